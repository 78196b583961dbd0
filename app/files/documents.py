"""The JSON documents of the public formats: what commands print, REST answers and the database stores."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from app.errors import AppError, Problem
from app.evaluator.certificates import Certificate
from app.evaluator.curves import mean_accuracy_at_grid
from app.evaluator.efficiency import EfficiencyFigures
from app.evaluator.frontier_figures import summarise_frontier
from app.evaluator.measurements import ALL_SPLITS, SPLITS, Measurements
from app.evaluator.overthinking import CellOverthinking, OverthinkingFigures, OverthinkingReport
from app.evaluator.reference import CellReference
from app.evaluator.scoring import BUDGET_NAMES, BoardScore, Score, SettingScore
from app.evaluator.strategies import Strategy
from app.files.actions import ActionFile
from app.files.snapshot import Snapshot

if TYPE_CHECKING:
    # Imports the compiler, which takes a while and which most commands can do without.
    from app.evaluator.resampled_boards import BoardIntervals
    from app.evaluator.submission_intervals import SubmissionIntervals

Document = dict[str, Any]
DEFAULT_GRID_INTERVALS = 100


def dump_json(document: object) -> str:
    """Return a document as JSON text with a newline at its end; NaN and infinities are refused.

    Raises
    ------
    ValueError : a number that JSON does not have; the evaluator never makes one, so it is our bug.

    Examples
    --------
    >>> print(dump_json({"area": 0.5, "beta_match": None}), end="")
    {
     "area": 0.5,
     "beta_match": null
    }
    """
    return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def overthinking_document(report: OverthinkingReport, measurements: Measurements) -> Document:
    """Return the overthinking figures of every cell and their averages.

    Parameters
    ----------
    report : of these measurements.
    measurements : the split that was summarised; gives the snapshot's name, identity and kind.

    Notes
    -----
    `macro`, and an average in `by_model` or `by_benchmark`, is null where one of its cells is missing.
    """
    return {
        **_describe(measurements.snapshot, measurements.sha256, measurements.kind, measurements.split),
        "cells": [_overthinking_cell(cell) for cell in report.cells],
        "macro": _figures(report.macro),
        "by_model": {name: _figures(figures) for name, figures in report.by_model.items()},
        "by_benchmark": {name: _figures(figures) for name, figures in report.by_benchmark.items()},
    }


def frontier_document(
    references: Sequence[CellReference],
    measurements: Measurements,
    *,
    grid_intervals: int = DEFAULT_GRID_INTERVALS,
) -> Document:
    """Return the exact frontiers of cells and, per strategy, their mean curve on a grid of relative budgets.

    Parameters
    ----------
    references : cells with their frontiers and uninformed references, of one strategy or several, in the order to show.
    measurements : the split they belong to; gives the snapshot's name, identity and kind.
    grid_intervals : N >= 1; accuracies are given at the relative budgets 0, 1/N ... 1.

    Returns
    -------
    `cost` and `correct` of a cell are exact integers; accuracies, areas and relative budgets are fractions in [0, 1];
    `beta_match` is null where the frontier never reaches full thinking's accuracy. `certificate` is what shows that no
    point is missing; null of a frontier that the textbook program solved, which needs none.

    Notes
    -----
    The mean curve is over all cells given, so of a selection of them it is that selection's. O(points).
    """
    strategies = [s for s in Strategy if any(r.frontier.strategy is s for r in references)]
    return {
        **_describe(measurements.snapshot, measurements.sha256, measurements.kind, measurements.split),
        "cells": [_frontier_cell(reference, grid_intervals) for reference in references],
        "macro": [
            _macro_frontier(
                strategy, [r for r in references if r.frontier.strategy is strategy], grid_intervals=grid_intervals
            )
            for strategy in strategies
        ],
    }


def score_document(
    score: Score,
    *,
    actions_sha256: str,
    warnings: Sequence[Problem],
    intervals: SubmissionIntervals | None = None,
) -> Document:
    """Return a score: its settings with their cells, the boards it stands on, and the board of the whole snapshot.

    Parameters
    ----------
    score : as the scorer made it.
    actions_sha256 : of the action file's bytes.
    warnings : what is odd about the file without being wrong.
    intervals : of the same submission, where they were computed.
    """
    summary = score.summary
    resampled = {(b.model, b.benchmark): intervals_document(b) for b in intervals.boards} if intervals else {}
    return {
        **_describe(score.snapshot, score.sha256, score.kind, score.split),
        "strategy": str(score.strategy),
        "scorer_version": score.scorer_version,
        "actions_sha256": actions_sha256,
        "warnings": [warning.as_dict() for warning in warnings],
        "settings": [_setting(setting) for setting in score.settings],
        "boards": [
            board_document(board, intervals=resampled.get((board.model, board.benchmark))) for board in score.boards
        ],
        "summary": None if summary is None else board_document(summary, intervals=resampled.get((None, None))),
        "summary_reason": score.summary_reason,
    }


def board_document(board: BoardScore, *, intervals: Document | None = None) -> Document:
    """Return a score's figures on one board; its curve is left out. `intervals` is null until there are any."""
    return {
        "model": board.model,
        "benchmark": board.benchmark,
        "n_settings": board.n_settings,
        "realised_potential": board.realised_potential,
        "area": board.area,
        "uninformed_area": board.uninformed_area,
        "oracle_area": board.oracle_area,
        "gap": board.gap,
        "max_accuracy": board.max_accuracy,
        "beta_match": board.beta_match,
        "tokens_saved": board.tokens_saved,
        "accuracy_at": dict(board.accuracy_at),
        "best_e3": board.best_e3,
        "reason": board.reason,
        "reasons": dict(board.reasons),
        "n_cells": board.n_cells,
        "min_questions": board.min_questions,
        "intervals": intervals,
    }


def intervals_document(board: BoardIntervals) -> Document | None:
    """Return the 95 % intervals of a submission's figures on one board under the names the board has them by.

    Each is `[low, high]`, or null where more than 5 % of the replicates have no such figure. None where none has an
    interval, as on boards all of whose cells have fewer than 20 questions.
    """
    found = {
        name: None if interval is None else [interval.low, interval.high] for name, interval in board.intervals.items()
    }
    if all(interval is None for interval in found.values()):
        return None
    shown: Document = {name: interval for name, interval in found.items() if name not in BUDGET_NAMES.values()}
    return {**shown, "accuracy_at": {budget: found[name] for budget, name in BUDGET_NAMES.items()}}


def check_document(file: ActionFile, measurements: Measurements) -> Document:
    """Return what a valid action file holds.

    Parameters
    ----------
    file : the file as it was read.
    measurements : the split it addresses.
    """
    return {
        **_describe(measurements.snapshot, measurements.sha256, measurements.kind, measurements.split),
        "strategy": str(file.table.strategy),
        "actions_sha256": file.sha256,
        "n_rows": file.n_rows,
        "n_settings": len(file.table.settings),
        "settings": list(file.table.settings),
        "n_cells_covered": sum(bool(cell.covered.any()) for cell in file.table.cells),
        "n_cells": len(file.table.cells),
        "warnings": [warning.as_dict() for warning in file.warnings],
    }


def snapshot_document(snapshot: Snapshot) -> Document:
    """Return what a sound snapshot holds, without its measurements."""
    manifest = snapshot.manifest
    splits = set(snapshot.questions["split"].to_pylist())
    return {
        "name": manifest.name,
        "title": manifest.title,
        "kind": manifest.kind,
        "sha256": snapshot.sha256,
        "full_sha256": snapshot.full_sha256,
        "probes_per_position": manifest.probes_per_position,
        "trajectories_per_question": manifest.trajectories_per_question,
        "n_questions": snapshot.questions.num_rows,
        "n_trajectories": snapshot.trajectories.num_rows,
        "models": list(manifest.models),
        "benchmarks": list(manifest.benchmarks),
        "splits": [*(split for split in SPLITS if split in splits), ALL_SPLITS],
        "hidden_splits": list(manifest.hidden_splits),
        "problems": [],
    }


def efficiency_document(figures: EfficiencyFigures) -> Document:
    """Return E3 and AES with what they were computed from, and why one of them is null."""
    return asdict(figures)


def error_document(error: AppError) -> Document:
    """Return an error as commands print it: the object that REST answers as problem+json, without its address."""
    return {
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "code": error.code,
        "problems": [problem.as_dict() for problem in error.problems],
    }


def _describe(snapshot: str, sha256: str, kind: str, split: str) -> Document:
    return {"snapshot": snapshot, "snapshot_sha256": sha256, "kind": kind, "split": split}


def _overthinking_cell(cell: CellOverthinking) -> Document:
    return {
        "model": cell.model,
        "benchmark": cell.benchmark,
        "questions": cell.n_questions,
        "trajectories": cell.n_trajectories,
        **asdict(cell.figures),
    }


def _figures(figures: OverthinkingFigures | None) -> Document | None:
    return None if figures is None else asdict(figures)


def _frontier_cell(reference: CellReference, grid_intervals: int) -> Document:
    frontier = reference.frontier
    return {
        "model": frontier.model,
        "benchmark": frontier.benchmark,
        "strategy": str(frontier.strategy),
        "total_thinking_tokens": frontier.total_thinking_tokens,
        "total_probes": frontier.total_probes,
        "cost": frontier.cost.tolist(),
        "correct": frontier.correct.tolist(),
        **_curve_figures([reference], grid_intervals),
        "certificate": None if frontier.certificate is None else _certificate(frontier.certificate),
    }


def _certificate(certificate: Certificate) -> Document:
    return {
        "cost": certificate.cost.tolist(),
        "correct": certificate.reward.tolist(),
        "band": certificate.band.tolist(),
        "needed": certificate.needed.tolist(),
    }


def _macro_frontier(strategy: Strategy, references: Sequence[CellReference], *, grid_intervals: int) -> Document:
    return {
        "strategy": str(strategy),
        "cells": len(references),
        **_curve_figures(references, grid_intervals),
        "grid": [i / grid_intervals for i in range(grid_intervals + 1)],
    }


def _curve_figures(references: Sequence[CellReference], grid_intervals: int) -> Mapping[str, Any]:
    curves = [reference.frontier.curve for reference in references]
    accuracy = mean_accuracy_at_grid(curves, grid_intervals).tolist()
    return {**asdict(summarise_frontier(references)), "accuracy": accuracy}


def _setting(setting: SettingScore) -> Document:
    return {**vars(setting), "cells": [dict(vars(cell)) for cell in setting.cells]}
