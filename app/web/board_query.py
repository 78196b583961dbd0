"""The state of the board's page: read from an address and written into one in this place alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlencode

from app.errors import ContentError, Problem
from app.evaluator.strategies import Strategy
from app.services.board_views import DEFAULT_SORT, SORTS, Baselines, RowChoice
from app.services.comparison import MOST

_Choice = TypeVar("_Choice", bound=str)

COLUMNS = (
    "area",
    "gap",
    "beta_match",
    "tokens_saved",
    "max_accuracy",
    "accuracy_25",
    "accuracy_50",
    "accuracy_75",
    "best_e3",
    "n_settings",
    "published_at",
)
DEFAULT_COLUMNS = ("area", "gap", "beta_match", "max_accuracy", "n_settings", "published_at")
MOST_CHARACTERS = 200
MOST_PAGES = 10_000


class InvalidViewError(ContentError):
    """The address asks for a view that there is not."""

    code = "invalid_view"
    title = "This view cannot be shown"


class By(StrEnum):
    """Whether the figure is one plot, or one for each model or benchmark."""

    WHOLE = "whole"
    MODEL = "model"
    BENCHMARK = "benchmark"


@dataclass(frozen=True)
class BoardQuery:
    """The view an address asks for; None where it leaves the choice to the page.

    Attributes
    ----------
    axis, by, lines, intervals : of the figure: a logarithmic axis, small multiples, only the methods that lead at some
        budget, 95 % intervals.
    columns : of the table, beside the realised potential.
    sort, q, verified, code, baselines, since, until : which rows, in which order.
    pin : submissions that are shown first and drawn in colours.
    open : submissions whose rows are open.
    page, rows : which page of rows, or all.
    scorer_version : an older one than that which the board shows.
    """

    snapshot: str | None = None
    split: str | None = None
    strategy: Strategy = Strategy.DYNAMIC_EARLY_EXIT
    model: str | None = None
    benchmark: str | None = None
    axis: str = "linear"
    by: By = By.WHOLE
    lines: str = "all"
    intervals: bool = False
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    sort: str = DEFAULT_SORT
    q: str = ""
    verified: bool = False
    code: bool = False
    baselines: Baselines = Baselines.SHOWN
    since: date | None = None
    until: date | None = None
    pin: tuple[str, ...] = ()
    open: tuple[str, ...] = ()
    page: int = 1
    rows: str = "paged"
    scorer_version: str | None = None

    @property
    def choice(self) -> RowChoice:
        """Which rows are shown."""
        return RowChoice(
            search=self.q,
            verified=self.verified,
            open_code=self.code,
            baselines=self.baselines,
            since=self.since,
            until=self.until,
            sort=self.sort,
        )

    @property
    def is_log(self) -> bool:
        """Whether budgets are drawn on a logarithmic axis."""
        return self.axis == "log"

    def address(self, path: str = "/", **changes: Any) -> str:
        """Return the address of this view, or of the one with these changes: what is as usual is left out."""
        written = self.parameters(**changes)
        return f"{path}?{urlencode(written, safe=',')}"

    def parameters(self, **changes: Any) -> dict[str, str]:
        """Return the parameters of this view, or of the one with these changes."""
        changed = replace(self, **changes)
        shown = {f.name: getattr(changed, f.name) for f in fields(changed)}
        return {
            name: _write(value)
            for name, value in shown.items()
            if value is not None and (name == "strategy" or value != _DEFAULTS[name])
        }


_DEFAULTS = {f.name: f.default for f in fields(BoardQuery)}


def parse_board_query(parameters: Mapping[str, Sequence[str]]) -> BoardQuery:
    """Return the view that the parameters of an address ask for.

    Each parameter may be given several times: lists are joined, of others the last counts. Empty ones are as usual, as
    a form sends them. Names that are not the board's are left alone.

    Raises
    ------
    InvalidViewError : values that mean nothing, every one of them named.
    """
    found: dict[str, Any] = {}
    problems = []
    for name, read in _READERS.items():
        given = [value for value in parameters.get(name, ()) if value != ""]
        try:
            if given:
                found[name] = read(given)
        except ValueError as exc:
            problems.append(Problem(code="invalid_field", message=f"{name}: {exc}", column=name))
    if problems:
        raise InvalidViewError(" ".join(problem.message for problem in problems), problems=problems)
    return BoardQuery(**found)


def _write(value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def _read_text(given: Sequence[str]) -> str:
    text = given[-1]
    if len(text) > MOST_CHARACTERS:
        raise ValueError(f"at most {MOST_CHARACTERS} characters.")
    if not text.isprintable():
        raise ValueError("a character that cannot be shown.")
    return text


def _read_choice(options: Sequence[_Choice]) -> Callable[[Sequence[str]], _Choice]:
    def read(given: Sequence[str]) -> _Choice:
        found = next((option for option in options if option == given[-1]), None)
        if found is None:
            raise ValueError(f"{given[-1][:MOST_CHARACTERS]!r} is not one of {', '.join(options)}.")
        return found

    return read


def _read_switch(given: Sequence[str]) -> bool:
    return _read_choice(("0", "1"))(given) == "1"


def _read_date(given: Sequence[str]) -> date:
    try:
        return date.fromisoformat(given[-1])
    except ValueError as exc:
        raise ValueError(f"{given[-1][:MOST_CHARACTERS]!r} is not a day, as in 2026-07-21.") from exc


def _read_page(given: Sequence[str]) -> int:
    if not given[-1].isdecimal() or not 1 <= int(given[-1][:9]) <= MOST_PAGES:
        raise ValueError(f"{given[-1][:MOST_CHARACTERS]!r} is not the number of a page.")
    return int(given[-1])


def _list(given: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(part.strip() for value in given for part in value.split(",") if part.strip()))


def _read_ids(given: Sequence[str]) -> tuple[str, ...]:
    ids = _list(given)
    if len(ids) > MOST:
        raise ValueError(f"at most {MOST} submissions.")
    for one in ids:
        _read_text([one])
    return tuple(ids)


def _read_columns(given: Sequence[str]) -> tuple[str, ...]:
    """Read chosen columns; they stand in the table's order, whatever theirs."""
    chosen = _list(given)
    read = _read_choice(COLUMNS)
    unknown = [name for name in chosen if name not in COLUMNS]
    if unknown:
        read(unknown)
    return tuple(name for name in COLUMNS if name in chosen)


_READERS: dict[str, Callable[[Sequence[str]], Any]] = {
    "snapshot": _read_text,
    "split": _read_text,
    "strategy": _read_choice(tuple(Strategy)),
    "model": _read_text,
    "benchmark": _read_text,
    "axis": _read_choice(("linear", "log")),
    "by": _read_choice(tuple(By)),
    "lines": _read_choice(("all", "frontier")),
    "intervals": _read_switch,
    "columns": _read_columns,
    "sort": _read_choice(SORTS),
    "q": _read_text,
    "verified": _read_switch,
    "code": _read_switch,
    "baselines": _read_choice(tuple(Baselines)),
    "since": _read_date,
    "until": _read_date,
    "pin": _read_ids,
    "open": _read_ids,
    "page": _read_page,
    "rows": _read_choice(("paged", "all")),
    "scorer_version": _read_text,
}
