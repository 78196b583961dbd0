"""A part of a board, in an order: what of its rows is shown never changes their ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, date
from enum import StrEnum
from typing import Any

from app.services.leaderboard import BoardRow, Leaderboard


class Baselines(StrEnum):
    """Which rows of controls and baselines are shown: beside the others, not at all, or alone."""

    SHOWN = "shown"
    HIDDEN = "hidden"
    ONLY = "only"


# What rows can be sorted by, and whether the larger comes first; `rank` is the board's own order.
SORT_KEYS: dict[str, bool] = {
    "rank": False,
    "method": False,
    "team": False,
    "realised_potential": True,
    "area": True,
    "gap": False,
    "beta_match": False,
    "tokens_saved": True,
    "max_accuracy": True,
    "accuracy_25": True,
    "accuracy_50": True,
    "accuracy_75": True,
    "best_e3": True,
    "n_settings": True,
    "published_at": True,
}
DEFAULT_SORT = "rank"
SORTS = tuple(f"{sign}{name}" for name in SORT_KEYS for sign in ("", "-"))
"""Every order: a key in its usual direction, or with a minus the other way round."""


@dataclass(frozen=True)
class RowChoice:
    """Which rows of a board are shown, and in which order; without a choice all are, best first.

    Attributes
    ----------
    search : text that the method's or the team's name contains, whatever its case.
    verified, open_code : whether only verified ones, only ones with a link to their code.
    since, until : first and last day of publication, in UTC.
    sort : one of `SORTS`.
    """

    search: str = ""
    verified: bool = False
    open_code: bool = False
    baselines: Baselines = Baselines.SHOWN
    since: date | None = None
    until: date | None = None
    sort: str = DEFAULT_SORT


def choose_rows(board: Leaderboard, choice: RowChoice) -> Leaderboard:
    """Return the board with the chosen rows in the chosen order, their ranks as they are among all."""
    kept = [row for row in board.rows if _is_shown(row, choice)]
    return replace(board, rows=tuple(sort_rows(kept, choice.sort)))


def sort_rows(rows: Iterable[BoardRow], sort: str) -> list[BoardRow]:
    """Return the rows in an order; undefined figures come last in either direction, equal rows keep their order."""
    name = sort.removeprefix("-")
    if name == DEFAULT_SORT:
        ordered = list(rows)
        return ordered[::-1] if sort.startswith("-") else ordered
    found = list(rows)
    key: Callable[[BoardRow], Any] = lambda row: _fold(getattr(row, name))  # noqa: E731
    defined = [row for row in found if getattr(row, name) is not None]
    # Python keeps equal ones in order when it sorts in reverse, too.
    defined.sort(key=key, reverse=SORT_KEYS[name] != sort.startswith("-"))
    return [*defined, *(row for row in found if getattr(row, name) is None)]


def _fold(value: Any) -> Any:
    return value.casefold() if isinstance(value, str) else value


def _is_shown(row: BoardRow, choice: RowChoice) -> bool:
    is_baseline = row.is_control or row.is_baseline
    published = row.published_at.astimezone(UTC).date()
    needle = choice.search.casefold()
    return (
        (needle in row.method.casefold() or needle in row.team.casefold())
        and (row.is_verified or not choice.verified)
        and (row.code_url is not None or not choice.open_code)
        and (choice.baselines is Baselines.SHOWN or is_baseline == (choice.baselines is Baselines.ONLY))
        and (choice.since is None or published >= choice.since)
        and (choice.until is None or published <= choice.until)
    )
