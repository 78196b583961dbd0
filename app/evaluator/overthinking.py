"""How much of the recorded thinking came after its best position (OR), and what it lost (AD): cells and averages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.evaluator.measurements import Cell, IntArray, Measurements


@dataclass(frozen=True, eq=False)
class TrajectoryOverthinking:
    """The overthinking of each trajectory of a cell.

    Attributes
    ----------
    reference : int64, the position k*, 0..n.
    ratio : float64, OR = 1 - L(k*) / L(n), in 0..1; 0 where nothing was thought.
    degradation : int64, C(k*) - C(n) in probes, 0..M; AD is this over M.
    """

    reference: IntArray
    ratio: NDArray[np.float64]
    degradation: IntArray


@dataclass(frozen=True)
class OverthinkingFigures:
    """The figures of a cell, or their averages over cells; all but the tokens are fractions in 0..1.

    Attributes
    ----------
    mean_thinking_tokens : mean of L(n).
    full_thinking_accuracy : share of original answers that are right; None unless every one of them is known.
    zero_step_accuracy, endpoint_accuracy : means of P(0) and of P(n).
    overthinking_ratio, accuracy_degradation : means of OR and AD.
    """

    mean_thinking_tokens: float
    full_thinking_accuracy: float | None
    zero_step_accuracy: float
    endpoint_accuracy: float
    overthinking_ratio: float
    accuracy_degradation: float


@dataclass(frozen=True)
class CellOverthinking:
    """The figures of one cell and how many questions and trajectories they rest on."""

    model: str
    benchmark: str
    n_questions: int
    n_trajectories: int
    figures: OverthinkingFigures


@dataclass(frozen=True)
class OverthinkingReport:
    """The figures of all cells and their averages.

    Attributes
    ----------
    cells : in the measurements' order.
    macro : over all cells with equal weight, which is the mean of the model averages and of the benchmark averages;
        None if a model lacks a benchmark that another one has.
    by_model : for each model over its benchmarks with equal weight; None if it lacks one that another model has.
    by_benchmark : for each benchmark over its models with equal weight; None if a model lacks it, or if it has no
        question in the split.
    """

    cells: tuple[CellOverthinking, ...]
    macro: OverthinkingFigures | None
    by_model: dict[str, OverthinkingFigures | None]
    by_benchmark: dict[str, OverthinkingFigures | None]


def find_reference_positions(cell: Cell) -> IntArray:
    """Return k* of each trajectory: the earliest position with the largest C(k).

    Returns
    -------
    int64, one position 0..n per trajectory.

    Raises
    ------
    ValueError : the cell's labels are hidden.

    Notes
    -----
    Section 3.1. O(positions).

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (256, 4), (300, 4)], [(0, 2), (90, 2)]])], 4)
    >>> find_reference_positions(cell).tolist()
    [1, 0]
    """
    if not cell.has_labels:
        raise ValueError(f"the labels of {cell.model} on {cell.benchmark} are hidden")
    largest = np.maximum.reduceat(cell.correct_probes, cell.first_idx)
    idx = np.arange(cell.correct_probes.size)
    is_largest = cell.correct_probes == largest[cell.trajectory_of_position]
    earliest: IntArray = np.minimum.reduceat(np.where(is_largest, idx, idx.size), cell.first_idx)
    return earliest - cell.first_idx


def trajectory_overthinking(cell: Cell) -> TrajectoryOverthinking:
    """Return k*, OR and AD of each trajectory.

    Raises
    ------
    ValueError : the cell's labels are hidden.

    Notes
    -----
    Section 3.1. The ratio is one division of integers, (L(n) - L(k*)) / L(n). O(positions).

    Examples
    --------
    The first trajectory is at its best at 256 of 400 tokens, with 4 probes against 3 at the end; the second is empty.

    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (256, 4), (400, 3)], [(0, 2)]])], 4)
    >>> figures = trajectory_overthinking(cell)
    >>> figures.ratio.tolist(), figures.degradation.tolist()
    ([0.36, 0.0], [1, 0])
    """
    reference = find_reference_positions(cell)
    idx = cell.first_idx + reference
    after = cell.thinking_tokens - cell.retained_tokens[idx]
    return TrajectoryOverthinking(
        reference=reference,
        # An empty trajectory has nothing after k*, and 0 over anything is its ratio.
        ratio=after / np.maximum(cell.thinking_tokens, 1),
        degradation=cell.correct_probes[idx] - cell.endpoint_correct,
    )


def summarise_overthinking(measurements: Measurements) -> OverthinkingReport:
    """Return the overthinking figures of every cell, model and benchmark, and over all of them.

    Trajectories count equally within a question and questions within a cell (every question has as many trajectories);
    cells count equally within a model or benchmark, and those among one another. A missing cell or label leaves the
    averages it belongs to undefined.

    Raises
    ------
    ValueError : labels are hidden.

    Notes
    -----
    Sections 3.1 and 3.2. Sums are exact or correctly rounded, so the order of questions changes nothing. O(positions).
    """
    cells = tuple(_summarise_cell(cell) for cell in measurements.cells)
    n_benchmarks = len({cell.benchmark for cell in cells})
    n_models = len(measurements.models)
    return OverthinkingReport(
        cells=cells,
        macro=_average(cells, n_expected=n_models * n_benchmarks),
        by_model={
            name: _average([c for c in cells if c.model == name], n_expected=n_benchmarks)
            for name in measurements.models
        },
        by_benchmark={
            name: _average([c for c in cells if c.benchmark == name], n_expected=n_models)
            for name in measurements.benchmarks
        },
    )


def _summarise_cell(cell: Cell) -> CellOverthinking:
    trajectories = trajectory_overthinking(cell)
    is_known = bool((cell.original_correct >= 0).all())
    figures = OverthinkingFigures(
        mean_thinking_tokens=cell.total_thinking_tokens / cell.n_trajectories,
        full_thinking_accuracy=int(cell.original_correct.sum()) / cell.n_trajectories if is_known else None,
        zero_step_accuracy=int(cell.zero_correct.sum()) / cell.total_probes,
        endpoint_accuracy=int(cell.endpoint_correct.sum()) / cell.total_probes,
        overthinking_ratio=_mean(trajectories.ratio.tolist()),
        accuracy_degradation=int(trajectories.degradation.sum()) / cell.total_probes,
    )
    return CellOverthinking(cell.model, cell.benchmark, cell.n_questions, cell.n_trajectories, figures)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _average(cells: Sequence[CellOverthinking], *, n_expected: int) -> OverthinkingFigures | None:
    """Return the equally weighted mean of the cells' figures, or None unless all the expected cells are there."""
    if not cells or len(cells) != n_expected:
        return None
    figures = [cell.figures for cell in cells]
    known = [f.full_thinking_accuracy for f in figures if f.full_thinking_accuracy is not None]
    return OverthinkingFigures(
        mean_thinking_tokens=_mean([f.mean_thinking_tokens for f in figures]),
        full_thinking_accuracy=_mean(known) if len(known) == len(figures) else None,
        zero_step_accuracy=_mean([f.zero_step_accuracy for f in figures]),
        endpoint_accuracy=_mean([f.endpoint_accuracy for f in figures]),
        overthinking_ratio=_mean([f.overthinking_ratio for f in figures]),
        accuracy_degradation=_mean([f.accuracy_degradation for f in figures]),
    )
