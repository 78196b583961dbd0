"""Bootstrap intervals of a snapshot's own figures in JSON: by themselves, and beside the figures they belong to."""

from __future__ import annotations

from typing import Any

from app.evaluator.intervals import FrontierIntervals, SnapshotBoard, SnapshotIntervals
from app.evaluator.resampled_boards import BoardIntervals

Document = dict[str, Any]


def snapshot_intervals_document(intervals: SnapshotIntervals) -> Document:
    """Return all intervals of a snapshot: the whole, each model, each benchmark, each cell.

    An interval is `[low, high]` in the figure's unit, or null with its reason in `reasons`. `low` and `high` of a
    frontier are its pointwise interval at the relative budgets 0, 0.01 … 1.
    """
    return {
        **_describe_draws(intervals),
        "boards": [
            {
                "model": board.model,
                "benchmark": board.benchmark,
                "figures": _list_pairs(board.figures),
                "reasons": dict(board.figures.reasons),
                "frontiers": [_describe_frontier(frontier) for frontier in board.frontiers],
            }
            for board in intervals.boards
        ],
    }


def add_overthinking_intervals(document: Document, intervals: SnapshotIntervals) -> Document:
    """Return an overthinking document with `intervals` beside the figures of every cell and average.

    Parameters
    ----------
    document : as `overthinking_document` made it.
    intervals : of the same measurements.
    """
    boards = _index_boards(intervals)

    def attach(figures: Document | None, model: str | None, benchmark: str | None) -> Document | None:
        return None if figures is None else {**figures, **_attach_figures(boards[model, benchmark].figures)}

    return {
        **document,
        "bootstrap": _describe_draws(intervals),
        "cells": [attach(cell, cell["model"], cell["benchmark"]) for cell in document["cells"]],
        "macro": attach(document["macro"], None, None),
        "by_model": {name: attach(figures, name, None) for name, figures in document["by_model"].items()},
        "by_benchmark": {name: attach(figures, None, name) for name, figures in document["by_benchmark"].items()},
    }


def add_frontier_intervals(
    document: Document, intervals: SnapshotIntervals, *, model: str | None, benchmark: str | None
) -> Document:
    """Return a frontier document with `intervals` beside the figures of every cell and of the means.

    Parameters
    ----------
    document : as `frontier_document` made it.
    intervals : of the whole split that its cells were taken from.
    model, benchmark : to which its cells were restricted; None stands for all of them.
    """
    boards = _index_boards(intervals)

    def attach(curve: Document, key: tuple[str | None, str | None]) -> Document:
        frontier = next(f for f in boards[key].frontiers if str(f.strategy) == curve["strategy"])
        return {**curve, **_attach_figures(frontier.figures), "accuracy_intervals": _list_band(frontier)}

    return {
        **document,
        "bootstrap": _describe_draws(intervals),
        "cells": [attach(curve, (curve["model"], curve["benchmark"])) for curve in document["cells"]],
        "macro": [attach(curve, (model, benchmark)) for curve in document["macro"]],
    }


def _describe_draws(intervals: SnapshotIntervals) -> Document:
    return {"n_replicates": intervals.n_replicates, "seed": intervals.seed}


def _index_boards(intervals: SnapshotIntervals) -> dict[tuple[str | None, str | None], SnapshotBoard]:
    return {(board.model, board.benchmark): board for board in intervals.boards}


def _describe_frontier(frontier: FrontierIntervals) -> Document:
    band = _list_band(frontier)
    return {
        "strategy": str(frontier.strategy),
        "figures": _list_pairs(frontier.figures),
        "reasons": dict(frontier.figures.reasons),
        "low": None if band is None else band["low"],
        "high": None if band is None else band["high"],
    }


def _list_band(frontier: FrontierIntervals) -> Document | None:
    if frontier.low is None or frontier.high is None:
        return None
    return {"low": frontier.low.tolist(), "high": frontier.high.tolist()}


def _attach_figures(board: BoardIntervals) -> Document:
    return {"intervals": _list_pairs(board), "interval_reasons": dict(board.reasons)}


def _list_pairs(board: BoardIntervals) -> Document:
    return {name: None if i is None else [i.low, i.high] for name, i in board.intervals.items()}
