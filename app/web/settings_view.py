"""The settings of a submission on its page: what each part of the loss is, drawn and listed, sorted as asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.plots.captions import Caption, format_hundredths
from app.plots.panels import DataTable
from app.plots.regret import build_regret_figure, build_tokens_figure
from app.services.operating_rows import OperatingRow, Order, SortKey, sort_rows
from app.web.panels import PanelView, show_panel

MAX_SHOWN_SETTINGS = 50
COLUMNS: tuple[tuple[SortKey, str, str, str], ...] = (
    ("beta", "Tokens kept", "%", "Retained tokens as a share of full thinking’s"),
    ("accuracy", "Accuracy", "%", "Share of the answer probes that are right where the setting stops"),
    ("gap", "Gap to the oracle", "points", "The frontier’s accuracy at the same cost, minus the setting’s"),
    ("early_loss", "Lost by stopping early", "points", "Accuracy at each trajectory’s best position, minus the one "
     "where it stopped before"),
    ("late_loss", "Lost by stopping late", "points", "The same where it stopped after its best position"),
    ("wasted", "Wasted tokens", "%", "Tokens kept past each trajectory’s best position"),
    ("forgone", "Forgone tokens", "%", "Tokens up to each trajectory’s best position that were not kept"),
    ("e3", "E³", "", "Efficiency score against full thinking, which has 1"),
)  # fmt: skip
LOWER_IS_BETTER = ("beta", "gap", "early_loss", "late_loss", "wasted", "forgone")


@dataclass(frozen=True)
class SortLink:
    """A column's head: where sorting by it leads, which way it is sorted now, what the figure means."""

    key: str
    head: str
    unit: str
    meaning: str
    address: str
    direction: str | None


@dataclass(frozen=True)
class SettingsView:
    """The settings of a submission on the board shown; `panels` is empty where no setting covers all of its cells."""

    rows: tuple[OperatingRow, ...]
    n_settings: int
    n_covering: int
    columns: tuple[SortLink, ...]
    panels: tuple[PanelView, ...]
    worst: str | None
    show_all_address: str | None


def show_settings(
    rows: Sequence[OperatingRow],
    *,
    sort: SortKey,
    order: Order,
    shows_all: bool,
    make_address: Callable[..., str],
    caption: Caption,
    download_name: str,
) -> SettingsView:
    """Return the settings of a score on one board.

    Parameters
    ----------
    make_address : the page's address with other choices of `sort`, `order` and `settings`.
    caption : title of the page's board, whose subtitle the figures share.
    """
    ordered = sort_rows(rows, sort=sort, order=order)
    covering = [row for row in rows if row.accuracy is not None]
    is_cut = len(rows) > MAX_SHOWN_SETTINGS and not shows_all
    return SettingsView(
        rows=ordered[:MAX_SHOWN_SETTINGS] if is_cut else ordered,
        n_settings=len(rows),
        n_covering=len(covering),
        columns=tuple(_link(column, sort, order, make_address) for column in COLUMNS),
        panels=_draw_panels(covering, caption=caption, download_name=download_name) if covering else (),
        worst=describe_worst(covering) if covering else None,
        show_all_address=f"{make_address(settings='all')}#settings" if is_cut else None,
    )


def describe_worst(rows: Sequence[OperatingRow]) -> str:
    """Return in a sentence which kind of loss weighs most over the settings.

    Examples
    --------
    >>> describe_worst([OperatingRow("a", 0.1, 0.5, 0.1, 0.2, 0.05, 0.01, 0.3, None, None)])
    'Over its settings it loses 20.0 points by stopping early and 5.0 points by stopping late on average.'
    """
    early, late = (_mean([getattr(row, name) for row in rows]) for name in ("early_loss", "late_loss"))
    return (
        f"Over its settings it loses {format_hundredths(early)} points by stopping early and "
        f"{format_hundredths(late)} points by stopping late on average."
    )


def _draw_panels(rows: Sequence[OperatingRow], *, caption: Caption, download_name: str) -> tuple[PanelView, ...]:
    names = [row.setting for row in rows]
    percent = {name: [100 * getattr(row, name) for row in rows] for name in LOWER_IS_BETTER}
    regret = build_regret_figure(names, early=percent["early_loss"], late=percent["late_loss"])
    tokens = build_tokens_figure(names, wasted=percent["wasted"], forgone=percent["forgone"])
    return (
        show_panel(
            regret,
            name="regret-figure",
            caption=Caption("Accuracy lost by stopping early and late", caption.subtitle),
            download_name=f"{download_name}-regret",
            sentence=f"Stacked bars, one a setting: accuracy lost before and after the best position. "
            f"{describe_worst(rows)}",
            table=_tabulate(rows, ("early_loss", "late_loss"), ("Stopped early (points)", "Stopped late (points)")),
        ),
        show_panel(
            tokens,
            name="tokens-figure",
            caption=Caption("Tokens wasted and forgone, % of full thinking", caption.subtitle),
            download_name=f"{download_name}-tokens",
            sentence="Bars, one a setting: upwards the tokens kept past each trajectory’s best position, downwards "
            "those up to it that were not kept, as shares of full thinking.",
            table=_tabulate(rows, ("wasted", "forgone"), ("Wasted (%)", "Forgone (%)")),
        ),
    )


def _tabulate(rows: Sequence[OperatingRow], names: Sequence[str], heads: Sequence[str]) -> DataTable:
    return DataTable(
        ("Setting", *heads), tuple((row.setting, *(100 * getattr(row, name) for name in names)) for row in rows)
    )


def _link(column: tuple[SortKey, str, str, str], sort: str, order: Order, make_address: Callable[..., str]) -> SortLink:
    key, head, unit, meaning = column
    first: Order = "asc" if key in LOWER_IS_BETTER else "desc"
    other: Order = "desc" if order == "asc" else "asc"
    chosen = other if sort == key else first
    direction = None if sort != key else {"asc": "ascending", "desc": "descending"}[order]
    return SortLink(key, head, unit, meaning, f"{make_address(sort=key, order=chosen)}#settings", direction)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
