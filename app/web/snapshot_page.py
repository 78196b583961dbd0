"""A snapshot's page: what was measured, how much its models overthink, and what each strategy could reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.measurements import ALL_SPLITS
from app.evaluator.strategies import Strategy
from app.plots.captions import STRATEGY_NOUNS, Caption, describe_data, format_percent
from app.plots.traces import FrontierLines
from app.services.analyses import list_analyses
from app.services.board_lines import WHOLE, BoardKey, list_frontiers
from app.services.bootstrap import BootstrapProgress, find_progress
from app.services.frontiers import get_overthinking
from app.services.measurements import is_closed
from app.services.question_counts import count_questions
from app.services.release import ReleasedFrontier
from app.services.snapshot_summaries import SnapshotSummary, get_summary
from app.services.snapshots import get_snapshot
from app.web.board_figures import describe_place
from app.web.board_page import choose_split, name_choices
from app.web.datasheet import Datasheet, read_datasheet
from app.web.figures import FigureView, load_lines, show_frontiers_figure
from app.web.formatting import split_title

Document = Mapping[str, Any]
Figures = Mapping[str, Any]


@dataclass(frozen=True)
class SnapshotQuery:
    """Which part of a snapshot an address asks for; None where it leaves the choice to the page."""

    split: str | None = None
    model: str | None = None
    benchmark: str | None = None
    axis: str = "linear"

    def address(self, path: str, **changes: str | None) -> str:
        """Return the address of this view, or of the one with these changes."""
        shown = {**vars(self), **changes}
        parameters = {name: value for name, value in shown.items() if value and (name, value) != ("axis", "linear")}
        return f"{path}{'?' if parameters else ''}{urlencode(parameters)}"


@dataclass(frozen=True)
class FigureGrid:
    """Overthinking figures, models down and benchmarks across, the means last in both directions.

    A mean is None where one of its cells is missing.
    """

    benchmarks: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Figures | None, ...]], ...]


@dataclass(frozen=True)
class SplitCount:
    """A split's questions, by benchmark in the manifest's order and in all."""

    split: str
    is_hidden: bool
    counts: tuple[int, ...]
    total: int


@dataclass(frozen=True)
class MeasuredCounts:
    """How many trajectories of a cell the thinking limit cut off, and how many answers could not be read."""

    model: str
    benchmark: str
    trajectories: int
    hit_thinking_limit: int
    answers: int
    unextracted_answers: int


@dataclass(frozen=True)
class SnapshotPage:
    """Everything a snapshot's template shows; `status` says why there are no figures, where there are none."""

    snapshot: SnapshotSummary
    query: SnapshotQuery
    address: str
    splits: tuple[tuple[str, str], ...]
    models: tuple[tuple[str, str], ...]
    benchmarks: tuple[tuple[str, str], ...]
    split_counts: tuple[SplitCount, ...]
    measured: tuple[MeasuredCounts, ...]
    status: str
    intervals: str
    has_intervals: bool
    datasheet: Datasheet
    headline: str | None
    grid: FigureGrid | None
    figure: FigureView | None
    frontiers: tuple[ReleasedFrontier, ...]
    axis_address: str


def load_snapshot_page(session: Session, name: str, query: SnapshotQuery, *, data_dir: Path) -> SnapshotPage:
    """Return the page of a snapshot: figures of one split, frontiers of one board in it."""
    summary = get_summary(session, name)
    snapshot = get_snapshot(session, name)
    query = replace(query, split=query.split or choose_split(snapshot, summary.splits))
    split = query.split or ALL_SPLITS
    whole = list_frontiers(session, snapshot, split=split, board=WHOLE)
    # The averages are stored before the frontiers are, so that a page never has to wait for either.
    overthinking = get_overthinking(session, snapshot, split=split, data_dir=data_dir) if whole else None
    intervals = list_analyses(session, snapshot, split=split, kinds=("intervals",)).get("intervals")
    chosen = choose_frontiers(
        list_frontiers(session, snapshot, split=split, board=BoardKey(query.model, query.benchmark))
    )
    is_log = query.axis == "log"
    lines = [load_lines(session, snapshot, row, data_dir=data_dir, is_log=is_log) for row in chosen]
    path = f"/snapshots/{name}"
    return SnapshotPage(
        snapshot=summary,
        query=query,
        address=path,
        splits=tuple((known, split_title(known).capitalize()) for known in summary.splits),
        models=name_choices("All models", summary.manifest["models"]),
        benchmarks=name_choices("All benchmarks", summary.manifest["benchmarks"]),
        split_counts=arrange_counts(summary, count_questions(session, snapshot)),
        measured=read_measured_counts(summary.manifest),
        status=describe_status(snapshot, split=split, is_stored=bool(choose_frontiers(whole))),
        intervals=describe_bootstrap(find_progress(session, snapshot.id, split=split)),
        headline=None if overthinking is None else describe_overthinking(overthinking["macro"]),
        grid=None if overthinking is None else arrange_figures(add_intervals(overthinking, intervals)),
        has_intervals=intervals is not None,
        datasheet=read_datasheet(summary.manifest),
        figure=draw_frontiers(summary, query, lines, place=describe_place(chosen[0])) if chosen else None,
        frontiers=chosen,
        axis_address=query.address(path, axis="linear" if query.axis == "log" else "log"),
    )


def describe_status(snapshot: models.Snapshot, *, split: str, is_stored: bool) -> str:
    """Return whether figures of a split can be shown: ready, not_frozen, hidden or preparing."""
    if not snapshot.is_frozen:
        return "not_frozen"
    if is_closed(snapshot, split):
        return "hidden"
    return "ready" if is_stored else "preparing"


def describe_bootstrap(progress: BootstrapProgress | None) -> str:
    """Return in words how far the intervals of a split have come."""
    if progress is None:
        return "not computed"
    if progress.failure_reason is not None:
        return f"not computed, because the bootstrap failed: {progress.failure_reason}"
    if progress.is_finished:
        return f"from {progress.n_replicates:,} bootstrap replicates"
    return f"being computed: {progress.n_done:,} of {progress.n_replicates:,} bootstrap replicates are done"


def describe_overthinking(macro: Figures) -> str:
    """Return in one sentence how much the models overthink, on average."""
    ratio, lost = macro["overthinking_ratio"], macro["accuracy_degradation"]
    if ratio is None or lost is None:
        return "Not every model has been measured on every benchmark, so there is no average over all of them"
    return (
        f"{format_percent(ratio)} of the thinking comes after a trajectory’s best position and costs "
        f"{100 * lost:.1f} points of accuracy"
    )


def add_intervals(document: Document, intervals: Document | None) -> Document:
    """Return an overthinking document with `intervals` beside the figures of every cell and average."""
    if intervals is None:
        return document
    found = {(board["model"], board["benchmark"]): board["figures"] for board in intervals["boards"]}

    def attach(figures: Document | None, model: str | None, benchmark: str | None) -> Document | None:
        return None if figures is None else {**figures, "intervals": found.get((model, benchmark), {})}

    return {
        **document,
        "cells": [attach(cell, cell["model"], cell["benchmark"]) for cell in document["cells"]],
        "macro": attach(document["macro"], None, None),
        "by_model": {name: attach(figures, name, None) for name, figures in document["by_model"].items()},
        "by_benchmark": {name: attach(figures, None, name) for name, figures in document["by_benchmark"].items()},
    }


def arrange_figures(document: Mapping[str, Any]) -> FigureGrid:
    """Return an overthinking document as a grid."""
    cells = {(cell["model"], cell["benchmark"]): cell for cell in document["cells"]}
    benchmarks = tuple(document["by_benchmark"])
    rows = [
        (model, (*(cells.get((model, benchmark)) for benchmark in benchmarks), mean))
        for model, mean in document["by_model"].items()
    ]
    rows.append(("Mean", (*document["by_benchmark"].values(), document["macro"])))
    return FigureGrid(benchmarks, tuple(rows))


def arrange_counts(summary: SnapshotSummary, counts: Mapping[tuple[str, str], int]) -> tuple[SplitCount, ...]:
    """Return how many questions each split has of each benchmark."""
    splits = [split for split in summary.splits if split != ALL_SPLITS]
    found = []
    for split in splits:
        row = tuple(counts.get((benchmark, split), 0) for benchmark in summary.benchmarks)
        found.append(SplitCount(split, split in summary.hidden_splits, row, sum(row)))
    return tuple(found)


def read_measured_counts(manifest: Mapping[str, Any]) -> tuple[MeasuredCounts, ...]:
    """Return what a manifest says was counted while measuring; an entry of another form is passed over.

    The format leaves `worker` free, and only our own worker is known to write it like this.
    """
    worker = manifest.get("worker")
    counts = worker.get("counts") if isinstance(worker, dict) else None
    found = []
    for entry in counts if isinstance(counts, list) else []:
        values: list[Any] = []
        if isinstance(entry, dict):
            values = [entry.get(field.name) for field in fields(MeasuredCounts)]
        names, numbers = values[:2], values[2:]
        if values and all(isinstance(name, str) for name in names) and all(_is_count(number) for number in numbers):
            found.append(MeasuredCounts(*values))
    return tuple(found)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def choose_frontiers(stored: Mapping[Strategy, ReleasedFrontier]) -> tuple[ReleasedFrontier, ...]:
    """Return the frontiers of one board in the strategies' order; none until there are those of all strategies."""
    return tuple(stored[strategy] for strategy in Strategy) if len(stored) == len(Strategy) else ()


def draw_frontiers(
    summary: SnapshotSummary, query: SnapshotQuery, lines: Sequence[FrontierLines], *, place: str
) -> FigureView:
    """Return the figure of the three strategies on one board."""
    best = max(lines, key=lambda line: line.max_accuracy)
    gain = best.max_accuracy - best.full_accuracy
    title = (
        f"{STRATEGY_NOUNS[best.strategy].capitalize()} could reach {format_percent(best.max_accuracy)}, "
        f"{100 * gain:.1f} points above full thinking"
    )
    subtitle = describe_data(
        snapshot=summary.name,
        split=query.split or ALL_SPLITS,
        place=place,
        n_questions=None,
        kind=summary.kind,
    )
    return show_frontiers_figure(
        lines,
        caption=Caption(title, subtitle),
        download_name="-".join(part for part in (summary.name, query.split, query.model, query.benchmark) if part),
        is_log=query.axis == "log",
    )
