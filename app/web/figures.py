"""Figures as pages show them: the picture's JSON, its title, and the same in a sentence and a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from sqlalchemy.orm import Session

from app.db.models import Snapshot
from app.evaluator.strategies import Strategy
from app.plots.board import build_board_figure, describe_markers
from app.plots.captions import STRATEGY_NOUNS, STRATEGY_TITLES, Caption, format_percent
from app.plots.frame import dump_figure
from app.plots.frontiers import FRONTIERS_KEY, build_frontiers_figure, describe_frontier
from app.plots.steps import ReducedSteps, Steps, sample_steps
from app.plots.traces import FrontierLines, MethodLine
from app.services.board_lines import BoardKey, sample_oracle
from app.services.release import ReleasedFrontier

TABLE_BUDGETS = np.array([0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])


@dataclass(frozen=True)
class FigureTable:
    """A figure's curves as accuracies at a few relative budgets, all fractions."""

    columns: tuple[str, ...]
    rows: tuple[tuple[float, tuple[float, ...]], ...]


@dataclass(frozen=True)
class LegendEntry:
    """A name and how its line is drawn: the style sheet's class for the colour, dashes in pixels."""

    name: str
    css_class: str
    dash: str | None


@dataclass(frozen=True)
class FigureView:
    """One figure of a page.

    `name` identifies it on the page, `sentence` is its alternative in words, `key` explains its markers. The figure
    itself stands in the page as `json`, or is fetched from the address `source`. `csv` is the address of its numbers,
    `shape` the style sheet's class for its height, and `legend` what its lines are where nothing else on the page says.
    """

    name: str
    download_name: str
    caption: Caption
    key: str
    sentence: str
    table: FigureTable
    json: str = ""
    source: str = ""
    csv: str = ""
    shape: str = ""
    legend: tuple[LegendEntry, ...] = ()


def load_lines(
    session: Session, snapshot: Snapshot, row: ReleasedFrontier, *, data_dir: Path, is_log: bool
) -> FrontierLines:
    """Return a board's frontier as what a figure draws; a logarithmic axis needs it in finer steps at first.

    Of a hidden split there are no finer steps.
    """
    lines = read_frontier(row)
    if not is_log or row.quantum is not None:
        return lines
    oracle = sample_oracle(
        session,
        snapshot,
        split=row.split,
        strategy=lines.strategy,
        board=BoardKey(row.model, row.benchmark),
        data_dir=data_dir,
    )
    return replace(lines, oracle=oracle)


def read_frontier(row: ReleasedFrontier) -> FrontierLines:
    """Return a stored board frontier as what a figure draws."""
    grid = np.linspace(0.0, 1.0, len(row.grid_accuracy))
    return FrontierLines(
        strategy=Strategy(row.strategy),
        oracle=ReducedSteps(grid, np.array(row.grid_accuracy)),
        uninformed_beta=grid,
        uninformed_accuracy=np.array(row.uninformed_grid),
        full_accuracy=row.full_accuracy,
        beta_match=row.beta_match,
        max_accuracy=row.max_accuracy,
        beta_sat=row.beta_sat,
    )


def show_board_figure(
    lines: FrontierLines,
    methods: Sequence[MethodLine],
    *,
    caption: Caption,
    download_name: str,
    is_log: bool = False,
    source: str = "",
    csv: str = "",
) -> FigureView:
    """Return the figure of one board; one that has a `source` is not drawn here."""
    uninformed = ReducedSteps(lines.uninformed_beta, lines.uninformed_accuracy)
    curves: list[tuple[str, Steps]] = [("Oracle", lines.oracle), ("Uninformed", uninformed)]
    curves += [(method.name, method.steps) for method in methods]
    drawn = "" if source else dump_figure(build_board_figure(lines, methods, caption=caption, is_log=is_log))
    return FigureView(
        name="board-figure",
        download_name=download_name,
        caption=caption,
        key=describe_markers(lines),
        sentence=_describe_board(lines, methods),
        table=_tabulate(curves),
        json=drawn,
        source=source,
        csv=csv,
    )


def show_frontiers_figure(
    all_lines: Sequence[FrontierLines], *, caption: Caption, download_name: str, is_log: bool
) -> FigureView:
    """Return the figure of a snapshot's strategies."""
    return FigureView(
        name="frontiers-figure",
        download_name=download_name,
        caption=caption,
        key=FRONTIERS_KEY,
        sentence=" ".join(describe_frontier(lines) for lines in all_lines),
        table=_tabulate([(STRATEGY_TITLES[lines.strategy], lines.oracle) for lines in all_lines]),
        json=dump_figure(build_frontiers_figure(all_lines, caption=caption, is_log=is_log)),
    )


def _describe_board(lines: FrontierLines, methods: Sequence[MethodLine]) -> str:
    half = np.array([0.5])
    best = [
        f"{method.name} has {format_percent(float(sample_steps(method.steps, half)[0]))}"
        for method in methods
        if not method.is_pale
    ]
    at_half = f" At half of the tokens {', '.join(best)}." if best else ""
    oracle = (
        f"rises from {format_percent(float(lines.oracle.accuracy[0]))} without thinking to "
        f"{format_percent(lines.max_accuracy)} at {format_percent(lines.beta_sat)} of the tokens"
    )
    uninformed = " to ".join(format_percent(float(lines.uninformed_accuracy[i])) for i in (0, -1))
    return (
        f"Accuracy against the share of full-thinking tokens. The oracle of {STRATEGY_NOUNS[lines.strategy]} {oracle}, "
        f"the uninformed reference from {uninformed}; full thinking has {format_percent(lines.full_accuracy)}.{at_half}"
    )


def _tabulate(curves: Sequence[tuple[str, Steps]]) -> FigureTable:
    values = np.stack([sample_steps(steps, TABLE_BUDGETS) for _, steps in curves], axis=1)
    rows = zip(TABLE_BUDGETS.tolist(), values.tolist(), strict=True)
    return FigureTable(tuple(name for name, _ in curves), tuple((budget, tuple(row)) for budget, row in rows))
