"""Boards over bootstrap replicates: which cells each has, and its figures with their intervals or why there is none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.evaluator.centring import FRACTION, RANGES, Interval, find_interval
from app.evaluator.measurements import IntArray
from app.evaluator.replicate_frontiers import N_INTERVALS, ReplicateFrontiers

FloatArray = NDArray[np.float64]
BoardNames = tuple[str | None, str | None]

FEWEST_QUESTIONS = 20
TOO_FEW_QUESTIONS = "too_few_questions"
UNDEFINED = "undefined"
UNDEFINED_IN_REPLICATES = "undefined_in_replicates"
MISSING_CELLS = "missing_cells"

# Mean accuracies and areas are sums of a few fractions. Ones that differ do so by far more than this, and ones that are
# equal come out closer, whatever the order they were added in.
TOLERANCE = 1e-12


@dataclass(frozen=True, eq=False)
class BoardIntervals:
    """Figures of one board over the replicates.

    Attributes
    ----------
    model, benchmark : which cells the board has; None means all.
    values : the figures by name, float64 with one entry per replicate; NaN where a replicate has no such figure. They
        are for computing with, such as comparing two methods; nothing that shows figures to anyone may pass NaN on.
    intervals : the interval of each, or None.
    reasons : why, for each interval that is None.
    """

    model: str | None
    benchmark: str | None
    values: Mapping[str, FloatArray]
    intervals: Mapping[str, Interval | None]
    reasons: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class ResampledBoard:
    """The cells of a board by their indices, whether one that it should have is missing, and if questions suffice."""

    model: str | None
    benchmark: str | None
    idx: IntArray
    is_complete: bool
    has_enough: bool

    @property
    def names(self) -> BoardNames:
        """Its model and its benchmark, None standing for all."""
        return self.model, self.benchmark


def list_resampled_boards(replicates: ReplicateFrontiers) -> Iterator[ResampledBoard]:
    """Yield the boards in the order of a score's: the whole, the models, the benchmarks, the cells."""
    cells = replicates.cells
    models = list(dict.fromkeys(model for model, _ in cells))
    benchmarks = list(dict.fromkeys(benchmark for _, benchmark in cells))
    keys: list[BoardNames] = [(None, None)]
    keys += [(model, None) for model in models]
    keys += [(None, benchmark) for benchmark in benchmarks]
    keys += cells
    for model, benchmark in keys:
        idx = np.array([i for i, (m, b) in enumerate(cells) if model in (None, m) and benchmark in (None, b)])
        n_expected = (len(models) if model is None else 1) * (len(benchmarks) if benchmark is None else 1)
        yield ResampledBoard(
            model=model,
            benchmark=benchmark,
            idx=idx,
            is_complete=len(idx) == n_expected,
            has_enough=bool((replicates.n_questions[idx] >= FEWEST_QUESTIONS).any()),
        )


def attach_intervals(
    board: ResampledBoard,
    values: Mapping[str, FloatArray],
    estimates: Mapping[str, float | None],
    *,
    reason: str | None = None,
) -> BoardIntervals:
    """Return a board's figures with their intervals, none of them where there is a reason why.

    Parameters
    ----------
    values : each figure in the replicates. estimates : the same figures from the data, None where undefined.
    reason : why the board has no such figures at all, if it has none.
    """
    if reason is None and not board.has_enough:
        reason = TOO_FEW_QUESTIONS
    intervals: dict[str, Interval | None] = {}
    reasons: dict[str, str] = {}
    for name, of_figure in values.items():
        if reason is not None:
            intervals[name], reasons[name] = None, reason
            continue
        estimate = estimates[name]
        intervals[name] = find_interval(of_figure, estimate, limits=RANGES.get(name, FRACTION))
        if intervals[name] is None:
            reasons[name] = UNDEFINED if estimate is None else UNDEFINED_IN_REPLICATES
    return BoardIntervals(board.model, board.benchmark, dict(values), intervals, reasons)


def find_full_accuracy(replicates: ReplicateFrontiers, idx: IntArray) -> FloatArray:
    """Return A_full of some cells in each replicate, the mean of their accuracies at the end of thinking."""
    full: FloatArray = (replicates.total("endpoint_correct")[:, idx] / replicates.total_probes[idx]).mean(axis=1)
    return full


def find_first(accuracy: FloatArray, target: FloatArray) -> FloatArray:
    """Return the first budget of the grid at which each replicate's accuracy reaches its target; NaN if none does.

    Examples
    --------
    >>> accuracy = np.linspace([0.0, 0.0], [0.5, 0.2], 101).T
    >>> find_first(accuracy, np.array([0.25, 0.25])).tolist()
    [0.5, nan]
    """
    reaches = accuracy >= target[:, None] - TOLERANCE
    first: FloatArray = np.where(reaches.any(axis=1), reaches.argmax(axis=1) / N_INTERVALS, np.nan)
    return first
