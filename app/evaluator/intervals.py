"""Bootstrap intervals of a snapshot's own figures: overthinking, accuracies, and the exact frontiers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from app.evaluator.centring import find_band
from app.evaluator.curves import mean_accuracy_at_grid
from app.evaluator.frontier_figures import summarise_frontier
from app.evaluator.measurements import IntArray, Measurements
from app.evaluator.overthinking import OverthinkingFigures, summarise_overthinking
from app.evaluator.reference import CellReference
from app.evaluator.replicate_frontiers import N_INTERVALS, ReplicateFrontiers
from app.evaluator.resampled_boards import (
    MISSING_CELLS,
    BoardIntervals,
    BoardNames,
    ResampledBoard,
    attach_intervals,
    find_first,
    find_full_accuracy,
    list_resampled_boards,
)
from app.evaluator.strategies import Strategy

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class FrontierIntervals:
    """A strategy's frontier on one board.

    Attributes
    ----------
    figures : `area`, `uninformed_area`, `max_accuracy`, `beta_match` and `beta_sat`.
    low, high : float64, 101: pointwise interval of the frontier's accuracy at beta = i/100; None where `figures` has
        no interval for lack of questions.
    """

    strategy: Strategy
    figures: BoardIntervals
    low: FloatArray | None
    high: FloatArray | None


@dataclass(frozen=True, eq=False)
class SnapshotBoard:
    """A snapshot's own figures on one board.

    Attributes
    ----------
    figures : `mean_thinking_tokens`, `full_thinking_accuracy`, `zero_step_accuracy`, `endpoint_accuracy`,
        `overthinking_ratio` and `accuracy_degradation`.
    frontiers : of the strategies that all of the board's cells have references of, in the order of `Strategy`.
    """

    model: str | None
    benchmark: str | None
    figures: BoardIntervals
    frontiers: tuple[FrontierIntervals, ...]


@dataclass(frozen=True, eq=False)
class SnapshotIntervals:
    """A snapshot's own figures: the whole, the models, the benchmarks, the cells."""

    n_replicates: int
    seed: int
    boards: tuple[SnapshotBoard, ...]


def summarise_intervals(
    measurements: Measurements, replicates: ReplicateFrontiers, references: Sequence[CellReference] = ()
) -> SnapshotIntervals:
    """Return the intervals of a snapshot's own figures on every board.

    Averages weigh cells equally; those of a model or benchmark that lacks a cell that another one has are None, as are
    intervals of boards all of whose cells have fewer than 20 questions. In replicates areas are trapezoid sums over the
    101 budgets, `beta_match` and `beta_sat` the first of these budgets at which the mean frontier reaches the
    replicate's A_full or its own largest value.

    Parameters
    ----------
    replicates : of these measurements.
    references : of cells whose frontiers are to have intervals, of one strategy or several.

    Raises
    ------
    ValueError : replicates of other cells, or hidden labels.

    Notes
    -----
    Section 5. O(replicates x cells), times 101 for frontiers.

    Examples
    --------
    One question is too few for an interval.

    >>> from app.evaluator.measurements import build_cell
    >>> from app.evaluator.replicate_frontiers import compute_replicates
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (40, 4), (100, 2)]])], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    >>> found = summarise_intervals(measurements, compute_replicates(measurements, range(2)))
    >>> figures = found.boards[0].figures
    >>> figures.values["endpoint_accuracy"].tolist(), figures.intervals["endpoint_accuracy"]
    ([0.5, 0.5], None)
    >>> figures.reasons["endpoint_accuracy"]
    'too_few_questions'
    """
    if replicates.cells != tuple((cell.model, cell.benchmark) for cell in measurements.cells):
        raise ValueError("the measurements and the replicates differ in their cells")
    estimates = _estimate_figures(measurements)
    by_strategy: dict[Strategy, dict[tuple[str, str], CellReference]] = defaultdict(dict)
    for reference in references:
        by_strategy[reference.frontier.strategy][reference.frontier.model, reference.frontier.benchmark] = reference
    areas = replicates.oracle_area() if references else np.empty(0)
    boards = tuple(
        SnapshotBoard(
            model=board.model,
            benchmark=board.benchmark,
            figures=_summarise_figures(replicates, board, estimates.get(board.names)),
            frontiers=tuple(
                _summarise_frontier(replicates, board, strategy=strategy, references=found, areas=areas)
                for strategy in Strategy
                if (found := _find_references(replicates, board, by_strategy[strategy])) is not None
            ),
        )
        for board in list_resampled_boards(replicates)
    )
    return SnapshotIntervals(replicates.n_replicates, replicates.seed, boards)


def _estimate_figures(measurements: Measurements) -> dict[BoardNames, OverthinkingFigures]:
    """Return the figures of the data themselves, of every board that has them."""
    report = summarise_overthinking(measurements)
    found: dict[BoardNames, OverthinkingFigures | None] = {(None, None): report.macro}
    found |= {(model, None): figures for model, figures in report.by_model.items()}
    found |= {(None, benchmark): figures for benchmark, figures in report.by_benchmark.items()}
    found |= {(cell.model, cell.benchmark): cell.figures for cell in report.cells}
    return {names: figures for names, figures in found.items() if figures is not None}


def _find_references(
    replicates: ReplicateFrontiers, board: ResampledBoard, by_cell: Mapping[tuple[str, str], CellReference]
) -> list[CellReference] | None:
    """Return the references of a board's cells, or None where one is missing."""
    names = [replicates.cells[i] for i in board.idx]
    return [by_cell[name] for name in names] if all(name in by_cell for name in names) else None


def _summarise_figures(
    replicates: ReplicateFrontiers, board: ResampledBoard, estimates: OverthinkingFigures | None
) -> BoardIntervals:
    values = _list_own_figures(replicates, board.idx)
    if not board.is_complete or estimates is None:
        return attach_intervals(board, values, {}, reason=MISSING_CELLS)
    return attach_intervals(board, values, asdict(estimates))


def _list_own_figures(replicates: ReplicateFrontiers, idx: IntArray) -> dict[str, FloatArray]:
    probes = replicates.total_probes[idx]
    n_trajectories = replicates.n_questions[idx] * replicates.trajectories_per_question
    original = replicates.total("original_correct")[:, idx]
    return {
        "mean_thinking_tokens": (replicates.total("thinking_tokens")[:, idx] / n_trajectories).mean(axis=1),
        "full_thinking_accuracy": np.where(original < 0, np.nan, original / n_trajectories).mean(axis=1),
        "zero_step_accuracy": (replicates.total("zero_correct")[:, idx] / probes).mean(axis=1),
        "endpoint_accuracy": (replicates.total("endpoint_correct")[:, idx] / probes).mean(axis=1),
        "overthinking_ratio": replicates.overthinking_ratio[:, idx].mean(axis=1),
        "accuracy_degradation": (replicates.total("degradation")[:, idx] / probes).mean(axis=1),
    }


def _summarise_frontier(
    replicates: ReplicateFrontiers,
    board: ResampledBoard,
    *,
    strategy: Strategy,
    references: Sequence[CellReference],
    areas: FloatArray,
) -> FrontierIntervals:
    s = list(Strategy).index(strategy)
    accuracy = _mean_accuracies(replicates.rewards[:, :, s], replicates.total_probes, board.idx)
    values = {
        "area": areas[:, board.idx, s].mean(axis=1),
        "uninformed_area": replicates.uninformed_area[:, board.idx, s].mean(axis=1),
        "max_accuracy": accuracy[:, -1],
        "beta_match": find_first(accuracy, find_full_accuracy(replicates, board.idx)),
        "beta_sat": find_first(accuracy, accuracy[:, -1]),
    }
    figures = attach_intervals(board, values, asdict(summarise_frontier(references)))
    if not board.has_enough:
        return FrontierIntervals(strategy, figures, None, None)
    shown = mean_accuracy_at_grid([reference.frontier.curve for reference in references], N_INTERVALS)
    return FrontierIntervals(strategy, figures, *find_band(accuracy, shown))


def _mean_accuracies(rewards: NDArray[np.int32], total_probes: IntArray, idx: IntArray) -> FloatArray:
    """Return the mean over some cells of rewards (replicates x cells x budgets) over probes."""
    mean = np.zeros((rewards.shape[0], rewards.shape[2]))
    for i in idx:
        mean += rewards[:, i] / total_probes[i]
    return mean / len(idx)
