"""How accuracy moves along a trajectory and between trajectories: local changes, diversity, direct answers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from app.evaluator.averages import Averages, average_figures
from app.evaluator.correlation import Correlation, correlate_ranks
from app.evaluator.measurements import Cell, IntArray, Measurements
from app.evaluator.overthinking import CellOverthinking, trajectory_overthinking

BIN_TOKENS = 1024

NO_CHANGE = "no_step_ends_in_the_bin"
NO_POSITIVE_CHANGE = "no_positive_change"
SINGLE_TRAJECTORY = "one_trajectory_per_question"
DIRECT_UNKNOWN = "direct_answers_unknown"


@dataclass(frozen=True, eq=False)
class LocalChanges:
    """Changes C(k) - C(k - 1) of a cell's steps by the bin in which the step ends.

    Attributes
    ----------
    model, benchmark : the cell.
    bin_tokens : width of a bin in tokens; bin i holds the steps with ``i * bin_tokens < L(k) <= (i + 1) * bin_tokens``.
    positive, negative, flat : int64, one per bin, how many steps gained correct probes, lost some, did neither.
    n_trajectories : int64, one per bin, how many trajectories have a step that ends there.
    """

    model: str
    benchmark: str
    bin_tokens: int
    positive: IntArray
    negative: IntArray
    flat: IntArray
    n_trajectories: IntArray

    @property
    def n_steps(self) -> IntArray:
        """Steps that end in each bin, int64."""
        return self.positive + self.negative + self.flat


@dataclass(frozen=True)
class ChangeBin:
    """Mean proportions of changes over the cells that have a step ending in this bin, with equal weight.

    Attributes
    ----------
    start_tokens, end_tokens : the bin's L(k), the end included, so that trajectories cut off at a limit that ends a bin
        have none to themselves.
    n_cells, n_trajectories, n_steps : what the proportions rest on.
    positive, negative, flat : mean over these cells of the proportion of their steps, in 0..1, adding up to 1; None
        where no step ends.
    negative_per_positive : mean proportion of losses divided by that of gains; None where there is no gain.
    reason : why a figure is None.
    """

    start_tokens: int
    end_tokens: int
    n_cells: int
    n_trajectories: int
    n_steps: int
    positive: float | None
    negative: float | None
    flat: float | None
    negative_per_positive: float | None
    reason: str | None


@dataclass(frozen=True, eq=False)
class QuestionDiversity:
    """Mean absolute differences between the trajectories of each question of a cell.

    Attributes
    ----------
    ratio, degradation : float64, one per question in 0..1, over the R (R - 1) / 2 pairs of ORs and of ADs.
    """

    ratio: NDArray[np.float64]
    degradation: NDArray[np.float64]


@dataclass(frozen=True)
class DiversityFigures:
    """Mean over a cell's questions of the mean absolute difference of OR and AD; None with one trajectory each."""

    overthinking_ratio: float | None
    accuracy_degradation: float | None


@dataclass(frozen=True)
class CellDiversity:
    """The figures of one cell."""

    model: str
    benchmark: str
    figures: DiversityFigures


@dataclass(frozen=True)
class DiversityReport:
    """Diversity of all cells.

    Attributes
    ----------
    n_pairs : pairs of trajectories per question, R (R - 1) / 2.
    cells : in the measurements' order.
    averages : of each field of `DiversityFigures`, by its name.
    reason : why the figures are None, if they are.
    """

    n_pairs: int
    cells: tuple[CellDiversity, ...]
    averages: dict[str, Averages]
    reason: str | None


@dataclass(frozen=True)
class DirectFigures:
    """Accuracy without thinking, measured in two ways; fractions.

    Attributes
    ----------
    zero_step_accuracy : mean P(0), in 0..1.
    direct_accuracy : share of answers to a separate prompt without thinking that are right; None unless all are known.
    difference : the first minus the second, in -1..1, or None.
    """

    zero_step_accuracy: float
    direct_accuracy: float | None
    difference: float | None


@dataclass(frozen=True)
class CellDirect:
    """The figures of one cell, and why one of them is None."""

    model: str
    benchmark: str
    figures: DirectFigures
    reason: str | None


@dataclass(frozen=True)
class DirectReport:
    """Zero-step and direct answers of all cells; `averages` holds each field of `DirectFigures` by its name."""

    cells: tuple[CellDirect, ...]
    averages: dict[str, Averages]


def count_local_changes(cell: Cell, *, bin_tokens: int = BIN_TOKENS) -> LocalChanges:
    """Return how many steps gain, lose and keep correct probes, by the tokens retained at their end.

    A trajectory has steps in the bins it reaches only, so short ones drop out of later bins; a step longer than a bin
    leaves none in the bins it passes.

    Parameters
    ----------
    bin_tokens : width of the bins, at least 1.

    Returns
    -------
    LocalChanges with bins from the first token to the longest trajectory's last; none where no trajectory has a step.

    Raises
    ------
    ValueError : hidden labels, or a width below 1.

    Notes
    -----
    Section 3.2, figure 2. O(positions).

    Examples
    --------
    Steps end at 4 (a gain), 10 (flat) and 12 (a loss); the bins are 1..10 and 11..20.

    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (4, 3), (10, 3), (12, 2)]])], 4)
    >>> changes = count_local_changes(cell, bin_tokens=10)
    >>> changes.positive.tolist(), changes.negative.tolist(), changes.flat.tolist()
    ([1, 0], [0, 1], [1, 0])
    """
    if not cell.has_labels:
        raise ValueError(f"the labels of {cell.model} on {cell.benchmark} are hidden")
    if bin_tokens < 1:
        raise ValueError(f"bins are at least one token wide, not {bin_tokens}")
    ends_step = np.ones(cell.retained_tokens.size, dtype=np.bool_)
    ends_step[cell.first_idx] = False
    # Position 0 has the bin -1, so that every trajectory's first step enters one.
    bins = (cell.retained_tokens - 1) // bin_tokens
    n_bins = int(bins.max()) + 1
    change = np.diff(cell.correct_probes, prepend=0)
    enters_bin = ends_step & (np.diff(bins, prepend=-1) > 0)

    def count(chosen: NDArray[np.bool_]) -> IntArray:
        return np.bincount(bins[chosen], minlength=n_bins)

    return LocalChanges(
        model=cell.model,
        benchmark=cell.benchmark,
        bin_tokens=bin_tokens,
        positive=count(ends_step & (change > 0)),
        negative=count(ends_step & (change < 0)),
        flat=count(ends_step & (change == 0)),
        n_trajectories=count(enters_bin),
    )


def average_local_changes(cells: Sequence[LocalChanges]) -> tuple[ChangeBin, ...]:
    """Return the equal-weight means of the proportions over cells, for each bin up to the last that any of them has.

    Within a cell all steps of a bin count equally. A cell without a step in a bin does not count there, so later bins
    rest on fewer cells, as they rest on fewer trajectories. The ratio of losses to gains is that of the means.

    Parameters
    ----------
    cells : with bins of the same width; of any model and benchmark.

    Raises
    ------
    ValueError : widths that differ.

    Notes
    -----
    Section 3.2, figure 2. Means are formed from exact fractions. O(cells * bins).

    Examples
    --------
    One of four steps of the first cell gains and two lose; the only step of the second gains.

    >>> def changes(positive, negative, flat):
    ...     counts = (np.array([n]) for n in (positive, negative, flat, 1))
    ...     return LocalChanges("m", "b", 100, *counts)
    >>> [average] = average_local_changes([changes(1, 2, 1), changes(1, 0, 0)])
    >>> average.positive, average.negative, average.negative_per_positive
    (0.625, 0.25, 0.4)
    """
    if len({cell.bin_tokens for cell in cells}) > 1:
        raise ValueError("the bins of the cells differ in width")
    n_bins = max((len(cell.positive) for cell in cells), default=0)
    return tuple(_average_bin([cell for cell in cells if i < len(cell.positive)], i) for i in range(n_bins))


def summarise_local_changes(measurements: Measurements, *, bin_tokens: int = BIN_TOKENS) -> tuple[ChangeBin, ...]:
    """Return the mean proportions of local changes over all cells, bin by bin: both functions above in one."""
    return average_local_changes([count_local_changes(cell, bin_tokens=bin_tokens) for cell in measurements.cells])


def measure_diversity(cell: Cell) -> QuestionDiversity | None:
    """Return each question's mean absolute pairwise difference of OR and AD; None with one trajectory per question.

    Raises
    ------
    ValueError : hidden labels.

    Notes
    -----
    Section 3.2. With sorted values the sum over pairs is that of the gaps between neighbours, the i-th of which lies
    between i * (R - i) pairs: no term is negative, and equal values give exactly 0. O(trajectories * log R).

    Examples
    --------
    ORs 0, 1/4 and 1 differ by 1/4, 3/4 and 1; the ADs 0, 2 and 0 of 4 probes by 1/2, 1/2 and 0.

    >>> from app.evaluator.measurements import build_cell
    >>> curves = [[(0, 0), (8, 4)], [(0, 0), (6, 4), (8, 2)], [(0, 3), (8, 3)]]
    >>> diversity = measure_diversity(build_cell("m", "b", [("q", "test", curves)], 4))
    >>> (diversity.ratio * 3).tolist(), (diversity.degradation * 3).tolist()
    ([2.0], [1.0])
    """
    if cell.trajectories_per_question == 1:
        return None
    figures = trajectory_overthinking(cell)
    ratio = _sum_differences(figures.ratio, cell) / _n_pairs(cell.trajectories_per_question)
    degradation = _sum_differences(figures.degradation, cell)
    return QuestionDiversity(ratio, degradation / (_n_pairs(cell.trajectories_per_question) * cell.probes_per_position))


def summarise_diversity(measurements: Measurements) -> DiversityReport:
    """Return how far the trajectories of a question differ in OR and AD: means over questions, then over cells.

    Raises
    ------
    ValueError : hidden labels.

    Notes
    -----
    Section 3.2. Sums over questions are correctly rounded, so their order changes nothing.
    """
    figures = [_average_diversity(measure_diversity(cell)) for cell in measurements.cells]
    n_pairs = _n_pairs(measurements.trajectories_per_question)
    return DiversityReport(
        n_pairs=n_pairs,
        cells=tuple(
            CellDiversity(cell.model, cell.benchmark, f) for cell, f in zip(measurements.cells, figures, strict=True)
        ),
        averages=average_figures(measurements, figures),
        reason=None if n_pairs else SINGLE_TRAJECTORY,
    )


def correlate_overthinking(cells: Sequence[CellOverthinking]) -> Correlation:
    """Return Spearman's correlation of OR and AD over cells; None below two cells or where one of them is constant.

    Notes
    -----
    Section 3.2.

    Examples
    --------
    >>> from app.evaluator.overthinking import OverthinkingFigures
    >>> def figures(ratio, degradation):
    ...     return CellOverthinking("m", "b", 1, 1, OverthinkingFigures(9.0, None, 0.0, 0.5, ratio, degradation))
    >>> correlate_overthinking([figures(0.9, 0.1), figures(0.5, 0.3), figures(0.2, 0.2)]).value
    -0.5
    """
    return correlate_ranks(
        [cell.figures.overthinking_ratio for cell in cells], [cell.figures.accuracy_degradation for cell in cells]
    )


def compare_direct_answers(measurements: Measurements) -> DirectReport:
    """Return the accuracy of position 0 beside that of direct answers, per cell and averaged.

    Direct answers come from a separate prompt that asks for no reasoning. A cell in which one of them is unknown has
    no direct accuracy, and neither have the averages it belongs to.

    Raises
    ------
    ValueError : hidden labels.

    Notes
    -----
    Appendix B.3, table 7. Integers, and one division for each figure. O(trajectories).
    """
    figures = [_compare_direct(cell) for cell in measurements.cells]
    return DirectReport(
        cells=tuple(
            CellDirect(cell.model, cell.benchmark, f, DIRECT_UNKNOWN if f.direct_accuracy is None else None)
            for cell, f in zip(measurements.cells, figures, strict=True)
        ),
        averages=average_figures(measurements, figures),
    )


def _average_bin(reaching: Sequence[LocalChanges], i: int) -> ChangeBin:
    filled = [cell for cell in reaching if cell.n_steps[i]]
    width = reaching[0].bin_tokens

    def mean_share(name: str) -> Fraction:
        shares = (Fraction(int(getattr(cell, name)[i]), int(cell.n_steps[i])) for cell in filled)
        return sum(shares, start=Fraction(0)) / max(1, len(filled))

    positive, negative, flat = mean_share("positive"), mean_share("negative"), mean_share("flat")
    return ChangeBin(
        start_tokens=i * width,
        end_tokens=(i + 1) * width,
        n_cells=len(filled),
        n_trajectories=sum(int(cell.n_trajectories[i]) for cell in filled),
        n_steps=sum(int(cell.n_steps[i]) for cell in filled),
        positive=float(positive) if filled else None,
        negative=float(negative) if filled else None,
        flat=float(flat) if filled else None,
        negative_per_positive=float(negative / positive) if positive else None,
        reason=NO_CHANGE if not filled else None if positive else NO_POSITIVE_CHANGE,
    )


def _n_pairs(trajectories_per_question: int) -> int:
    return trajectories_per_question * (trajectories_per_question - 1) // 2


def _sum_differences(values: NDArray[np.float64] | IntArray, cell: Cell) -> NDArray[np.float64] | IntArray:
    """Sum of the absolute differences over all pairs of a question's trajectories, one per question."""
    per_question = cell.trajectories_per_question
    ordered = np.sort(values.reshape(-1, per_question), axis=1)
    left = np.arange(1, per_question)
    total: NDArray[np.float64] | IntArray = (np.diff(ordered, axis=1) * (left * (per_question - left))).sum(axis=1)
    return total


def _average_diversity(diversity: QuestionDiversity | None) -> DiversityFigures:
    if diversity is None:
        return DiversityFigures(None, None)
    n_questions = len(diversity.ratio)
    return DiversityFigures(
        overthinking_ratio=math.fsum(diversity.ratio.tolist()) / n_questions,
        accuracy_degradation=math.fsum(diversity.degradation.tolist()) / n_questions,
    )


def _compare_direct(cell: Cell) -> DirectFigures:
    if not cell.has_labels:
        raise ValueError(f"the labels of {cell.model} on {cell.benchmark} are hidden")
    zero, direct = int(cell.zero_correct.sum()), int(cell.direct_correct.sum())
    is_known = bool((cell.direct_correct >= 0).all())
    return DirectFigures(
        zero_step_accuracy=zero / cell.total_probes,
        direct_accuracy=direct / cell.n_trajectories if is_known else None,
        difference=(zero - direct * cell.probes_per_position) / cell.total_probes if is_known else None,
    )
