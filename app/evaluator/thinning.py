"""What fewer probes or fewer trajectories would have shown: OR and AD after thinning the frozen measurements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.averages import Averages, average_figures
from app.evaluator.compiled import compiled
from app.evaluator.measurements import Cell, IntArray, Measurements
from app.evaluator.overthinking import trajectory_overthinking

FloatArray = NDArray[np.float64]

THINNING_SEED = 20260721
N_DRAWS = 2000
PERCENTILES = (2.5, 97.5)


@dataclass(frozen=True, eq=False)
class TrajectoryProbeThinning:
    """Expected overthinking of each trajectory of a cell over all choices of m of its M probes at every position.

    Attributes
    ----------
    ratio : float64, expected OR, in 0..1.
    degradation : float64, M times the expected AD, in probes, 0..M.
    same_reference : float64, probability that k* is the one that all M probes show, in 0..1.
    """

    ratio: FloatArray
    degradation: FloatArray
    same_reference: FloatArray


@dataclass(frozen=True)
class ProbeThinningFigures:
    """Means over a cell's trajectories, fractions in 0..1: expected OR, expected AD, probability that k* stays."""

    overthinking_ratio: float
    accuracy_degradation: float
    same_reference: float


@dataclass(frozen=True)
class CellProbeThinning:
    """The figures of one cell."""

    model: str
    benchmark: str
    figures: ProbeThinningFigures


@dataclass(frozen=True)
class ProbeThinning:
    """The figures with m probes per position.

    Attributes
    ----------
    probes : m.
    cells : in the measurements' order.
    averages : of each field of `ProbeThinningFigures`, by its name.
    """

    probes: int
    cells: tuple[CellProbeThinning, ...]
    averages: dict[str, Averages]


@dataclass(frozen=True)
class PercentileRange:
    """The 2.5th and the 97.5th percentile over the draws, in the figure's unit."""

    low: float
    high: float


@dataclass(frozen=True)
class ThinnedRanges:
    """Ranges of OR and AD, fractions in 0..1."""

    overthinking_ratio: PercentileRange
    accuracy_degradation: PercentileRange


@dataclass(frozen=True)
class CellTrajectoryThinning:
    """The ranges of one cell."""

    model: str
    benchmark: str
    ranges: ThinnedRanges


@dataclass(frozen=True)
class TrajectoryThinning:
    """The ranges with r trajectories per question.

    Attributes
    ----------
    trajectories : r.
    n_draws : how many times r trajectories were drawn for every model and question.
    cells : in the measurements' order.
    macro, by_model, by_benchmark : ranges of the averages over cells, taken within each draw; None where a cell is
        missing, as for `Averages`.
    """

    trajectories: int
    n_draws: int
    cells: tuple[CellTrajectoryThinning, ...]
    macro: ThinnedRanges | None
    by_model: dict[str, ThinnedRanges | None]
    by_benchmark: dict[str, ThinnedRanges | None]


def list_probe_counts(probes_per_position: int) -> tuple[int, ...]:
    """Return the quarters of M, rounded down, without 0 and repeats.

    Examples
    --------
    >>> list_probe_counts(16), list_probe_counts(2)
    ((4, 8, 12, 16), (1, 2))
    """
    quarters = {probes_per_position * i // 4 for i in range(1, 5)}
    return tuple(sorted(quarters - {0}))


def list_trajectory_counts(trajectories_per_question: int) -> tuple[int, ...]:
    """Return the powers of two from 2 that are below R, then R itself.

    Examples
    --------
    >>> list_trajectory_counts(16), list_trajectory_counts(5), list_trajectory_counts(1)
    ((2, 4, 8, 16), (2, 4, 5), (1,))
    """
    powers = [2**i for i in range(1, trajectories_per_question.bit_length())]
    return (*(p for p in powers if p < trajectories_per_question), trajectories_per_question)


def thin_probes(cell: Cell, probes: int) -> TrajectoryProbeThinning:
    """Return each trajectory's expected OR and AD with m of its M probes, and the probability that k* stays.

    At every position, independently, each choice of m of the M recorded probes is equally likely; k* is then the
    earliest position with the most correct ones of those. Nothing is sampled. With m = M these are the plain figures,
    to the last bit. An empty trajectory has an OR of 0 and keeps its k*.

    Parameters
    ----------
    probes : m, in 1..M.

    Raises
    ------
    ValueError : m outside its range, or hidden labels.

    Notes
    -----
    Section 5. The number right among the m, X_k, is hypergeometric, and Pr(k* = k) = sum over v of
    Pr(X_k = v) * prod_{j<k} Pr(X_j < v) * prod_{j>k} Pr(X_j <= v). One pass from the last position to the first keeps,
    for every v, the product S(v) of Pr(X_j <= v) and the sum T(v) of the tokens after k*, weighted with the
    probability that k* is among the positions passed and has v right:
    ``T(v) = tokens * Pr(X = v) * S(v) + Pr(X < v) * T(v)``, then ``S(v) = S(v) * Pr(X <= v)``. The expected largest
    count is the sum of 1 - S(v) over v < m. Values of v that X cannot take at a position change nothing there and are
    skipped, as is everything after the first position at which all M probes are right.
    O(positions * min(m, M - m)); errors stay around 1e-16 times the number of positions.

    Examples
    --------
    M = 2, m = 1. Position 0 shows a right probe with probability 1/2 and is then k*; otherwise position 1 is, which is
    right for certain. So half of the time all 10 tokens come after k*, and the largest share right is always 1.

    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (10, 2)]])], 2)
    >>> thinned = thin_probes(cell, 1)
    >>> thinned.ratio.tolist(), thinned.degradation.tolist(), thinned.same_reference.tolist()
    ([0.5], [0.0], [0.5])
    """
    return _thin_cell(cell, (probes,))[0]


def summarise_probe_thinning(
    measurements: Measurements, counts: Sequence[int] | None = None
) -> tuple[ProbeThinning, ...]:
    """Return the means of expected OR and AD, and of the probability that k* stays, for each number of probes m.

    Trajectories count equally within a question, questions within a cell, and cells among one another.

    Parameters
    ----------
    counts : the numbers m, each in 1..M; by default those of `list_probe_counts`.

    Raises
    ------
    ValueError : as for `thin_probes`.

    Notes
    -----
    Sections 3.2 and 5. Sums are correctly rounded, so the order of questions changes nothing.
    """
    chosen = tuple(list_probe_counts(measurements.probes_per_position) if counts is None else counts)
    thinned = [_thin_cell(cell, chosen) for cell in measurements.cells]
    return tuple(
        _summarise_probes(measurements, m, thinned=[of_cell[i] for of_cell in thinned]) for i, m in enumerate(chosen)
    )


def thin_trajectories(
    measurements: Measurements,
    counts: Sequence[int] | None = None,
    *,
    rng: np.random.Generator,
    n_draws: int = N_DRAWS,
) -> tuple[TrajectoryThinning, ...]:
    """Return percentile ranges of OR and AD where only r of the R recorded trajectories are kept, for each r.

    Each draw keeps r trajectories of every model and question, without replacement, each set equally likely, and takes
    the means over cells, models, benchmarks and all. The means over all sets are the plain figures, so the ranges say
    how far a smaller pool strays. With r = R there is one set only, and a range is the plain figure twice.

    Parameters
    ----------
    counts : the numbers r, each in 1..R; by default those of `list_trajectory_counts`. Within a draw the
        trajectories of a smaller r are among those of a larger one.
    rng : where the draws come from; ``np.random.default_rng(THINNING_SEED)`` gives the published ones. One 64-bit key
        per cell is taken from it, in the cells' order.
    n_draws : at least 1.

    Raises
    ------
    ValueError : a count outside its range, no draw, or hidden labels.

    Notes
    -----
    Section 5. A partial Fisher-Yates shuffle a draw, fed by a SplitMix64 stream; a place among R - i is its upper 32
    bits times R - i, shifted, so that sets are equally likely to within R / 2^32. The percentiles interpolate
    linearly. O(questions * draws * largest r).
    """
    full = measurements.trajectories_per_question
    chosen = list_trajectory_counts(full) if counts is None else counts
    if not all(1 <= r <= full for r in chosen):
        raise ValueError(f"1..{full} of {full} trajectories can be kept, not {list(chosen)}")
    if n_draws < 1:
        raise ValueError(f"at least one draw is needed, got {n_draws}")
    marks = tuple(sorted(set(chosen)))
    keys = rng.integers(0, 2**64, size=len(measurements.cells), dtype=np.uint64)
    drawn = [
        _draw_cell(cell, marks=marks, n_draws=n_draws, key=key)
        for cell, key in zip(measurements.cells, keys, strict=True)
    ]
    return tuple(_summarise_draws(measurements, r, means=[d[marks.index(r)] for d in drawn]) for r in chosen)


def _thin_cell(cell: Cell, counts: tuple[int, ...]) -> list[TrajectoryProbeThinning]:
    full = cell.probes_per_position
    if not all(1 <= m <= full for m in counts):
        raise ValueError(f"1..{full} of {full} probes can be kept, not {list(counts)}")
    if not cell.has_labels:
        raise ValueError(f"the labels of {cell.model} on {cell.benchmark} are hidden")
    results = np.empty((len(counts), 3, cell.n_trajectories))
    if counts:
        _thin(
            # The loops are compiled for these types; an array of another one, or a read-only one, is copied first.
            np.require(cell.offsets, np.int64, ["C", "W"]),
            np.require(cell.retained_tokens, np.int32, ["C", "W"]),
            np.require(cell.correct_probes, np.int32, ["C", "W"]),
            np.array(counts, dtype=np.int64),
            _tabulate(full, counts),
            results,
        )
    return [TrajectoryProbeThinning(*of_count) for of_count in results]


def _summarise_probes(
    measurements: Measurements, probes: int, *, thinned: Sequence[TrajectoryProbeThinning]
) -> ProbeThinning:
    pairs = list(zip(measurements.cells, thinned, strict=True))
    figures = [
        ProbeThinningFigures(
            overthinking_ratio=math.fsum(of_cell.ratio.tolist()) / cell.n_trajectories,
            accuracy_degradation=math.fsum(of_cell.degradation.tolist()) / cell.total_probes,
            same_reference=math.fsum(of_cell.same_reference.tolist()) / cell.n_trajectories,
        )
        for cell, of_cell in pairs
    ]
    return ProbeThinning(
        probes=probes,
        cells=tuple(
            CellProbeThinning(cell.model, cell.benchmark, f)
            for cell, f in zip(measurements.cells, figures, strict=True)
        ),
        averages=average_figures(measurements, figures),
    )


@lru_cache(maxsize=8)
def _tabulate(full: int, counts: tuple[int, ...]) -> FloatArray:
    """Tabulate the hypergeometric law: [i, c, v] holds Pr(X = v), Pr(X < v), Pr(X <= v) for counts[i] of c right ones.

    Each entry is a fraction of integers, rounded once.
    """
    table = np.zeros((len(counts), full + 1, max(counts) + 1, 3))
    for i, probes in enumerate(counts):
        ways = math.comb(full, probes)
        for c in range(full + 1):
            below = 0
            for v in range(probes + 1):
                exactly = math.comb(c, v) * math.comb(full - c, probes - v)
                table[i, c, v] = exactly / ways, below / ways, (below + exactly) / ways
                below += exactly
    return table


@compiled
def _thin(offsets: IntArray, retained: Any, correct: Any, counts: IntArray, table: FloatArray, results: Any) -> None:
    """Fill the results: for each number of probes OR, M times AD, and the probability that k* stays."""
    full = np.int64(table.shape[1] - 1)
    tokens_after = np.zeros(table.shape[2])
    none_above = np.zeros(table.shape[2])
    stays = np.zeros(table.shape[2])
    for t in range(offsets.size - 1):
        first = offsets[t]
        last = offsets[t + 1] - 1
        best = first
        for i in range(first, last + 1):
            if correct[i] > correct[best]:
                best = i
        # A position at which all probes are right is k* or comes after it, whatever is kept, so the rest says nothing.
        start = best if correct[best] == full else last
        for m in range(counts.size):
            probes = counts[m]
            # Thinned counts lie in low..high once the positions passed are known; low rises on the way.
            high = min(probes, np.int64(correct[best]))
            low = np.int64(0)
            tokens_after[: high + 1] = 0.0
            none_above[: high + 1] = 1.0
            stays[: high + 1] = 0.0
            for i in range(start, first - 1, -1):
                c = np.int64(correct[i])
                low = max(low, c - (full - probes))
                after = np.float64(retained[last] - retained[i])
                law = table[m, c]
                for v in range(low, min(c, probes) + 1):
                    reaches = law[v, 0] * none_above[v]
                    tokens_after[v] = after * reaches + law[v, 1] * tokens_after[v]
                    none_above[v] *= law[v, 2]
                    stays[v] = reaches if i == best else stays[v] * law[v, 1]
            most = np.float64(high)
            for v in range(low, high):
                most -= none_above[v]
            # Rounding can carry a sum of probabilities a hair past what is possible.
            results[m, 0, t] = min(1.0, tokens_after[low : high + 1].sum() / max(1, retained[last]))
            results[m, 1, t] = max(0.0, most * full / probes - correct[last])
            results[m, 2, t] = min(1.0, stays[low : high + 1].sum())


def _draw_cell(cell: Cell, *, marks: tuple[int, ...], n_draws: int, key: np.uint64) -> list[FloatArray]:
    """Return for each number of trajectories the means of OR and AD in every draw, float64 of 2 x draws."""
    plain = trajectory_overthinking(cell)
    full = cell.trajectories_per_question
    n_partial = sum(r < full for r in marks)
    ratio, degradation = np.zeros((n_partial, n_draws)), np.zeros((n_partial, n_draws), dtype=np.int64)
    if n_partial:
        partial = np.array(marks[:n_partial], dtype=np.int64)
        _draw(plain.ratio, plain.degradation.astype(np.int64), full, partial, key, ratio, degradation)
    kept = np.array(marks[:n_partial])[:, None] * cell.n_questions
    means = list(np.stack([ratio / kept, degradation / (kept * cell.probes_per_position)], axis=1))
    if n_partial < len(marks):
        figures = (
            math.fsum(plain.ratio.tolist()) / cell.n_trajectories,
            int(plain.degradation.sum()) / cell.total_probes,
        )
        means.append(np.repeat(np.array(figures)[:, None], n_draws, axis=1))
    return means


@compiled
def _draw(
    ratio: FloatArray,
    degradation: IntArray,
    per_question: int,
    marks: IntArray,
    key: Any,
    ratio_sums: FloatArray,
    degradation_sums: IntArray,
) -> None:
    """Add up, for every mark and draw, the figures of that many trajectories of each question."""
    # A shuffle may begin with any order, so each goes on from the one before. Unsigned places spare the check for
    # negative ones, which would cost as much as the rest.
    order = np.arange(per_question)
    one = np.uint64(1)
    state = np.uint64(key)
    for question in range(ratio.size // per_question):
        of_question = ratio[question * per_question : (question + 1) * per_question]
        lost = degradation[question * per_question : (question + 1) * per_question]
        for draw in range(ratio_sums.shape[1]):
            i = np.uint64(0)
            ratio_sum = 0.0
            degradation_sum = np.int64(0)
            for m in range(marks.size):
                while i < np.uint64(marks[m]):
                    state += np.uint64(0x9E3779B97F4A7C15)
                    mixed = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                    mixed ^= mixed >> np.uint64(31)
                    j = i + (((mixed >> np.uint64(32)) * (np.uint64(per_question) - i)) >> np.uint64(32))
                    taken = order[j]
                    order[j] = order[i]
                    order[i] = taken
                    ratio_sum += of_question[np.uint64(taken)]
                    degradation_sum += lost[np.uint64(taken)]
                    i += one
                ratio_sums[m, draw] += ratio_sum
                degradation_sums[m, draw] += degradation_sum


def _summarise_draws(measurements: Measurements, count: int, *, means: list[FloatArray]) -> TrajectoryThinning:
    cells = measurements.cells
    n_models, n_benchmarks = len(measurements.models), len({cell.benchmark for cell in cells})
    return TrajectoryThinning(
        trajectories=count,
        n_draws=means[0].shape[1],
        cells=tuple(
            CellTrajectoryThinning(cell.model, cell.benchmark, _find_ranges(m))
            for cell, m in zip(cells, means, strict=True)
        ),
        macro=_average_draws(means, n_expected=n_models * n_benchmarks),
        by_model={
            name: _average_draws(
                [m for cell, m in zip(cells, means, strict=True) if cell.model == name], n_expected=n_benchmarks
            )
            for name in measurements.models
        },
        by_benchmark={
            name: _average_draws(
                [m for cell, m in zip(cells, means, strict=True) if cell.benchmark == name], n_expected=n_models
            )
            for name in measurements.benchmarks
        },
    )


def _average_draws(means: list[FloatArray], *, n_expected: int) -> ThinnedRanges | None:
    return _find_ranges(np.mean(means, axis=0)) if means and len(means) == n_expected else None


def _find_ranges(means: FloatArray) -> ThinnedRanges:
    low, high = np.percentile(means, PERCENTILES, axis=1).tolist()
    return ThinnedRanges(PercentileRange(low[0], high[0]), PercentileRange(low[1], high[1]))
