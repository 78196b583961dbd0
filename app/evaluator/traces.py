"""When a trajectory first holds the right answer and how often it changes its mind, per cell and by difficulty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from app.evaluator.averages import Averages, average_figures
from app.evaluator.correlation import Correlation, correlate_values
from app.evaluator.measurements import Cell, IntArray, Measurements

ORIGINAL_UNKNOWN = "original_answers_unknown"
NO_RIGHT_ENDPOINT = "no_trajectory_with_a_step_ends_right"
NO_DIFFICULTY = "no_question_has_a_difficulty"


@dataclass(frozen=True, eq=False)
class TrajectoryTraces:
    """What the majority of probes says along each trajectory of a cell.

    A position is right if more than half of its M probes are; exactly half is not enough.

    Attributes
    ----------
    endpoint_right : bool, whether the last position is right.
    first_right : int64, the first right position, 0..n; n where none is.
    needed_share : float64, L(first right position) / L(n), in 0..1; 1 where no position is right, and where nothing was
        thought.
    flips : int64, how many positions differ from the one before in being right.
    dangerous_flips : int64, those of them that go from right to wrong.
    """

    endpoint_right: NDArray[np.bool_]
    first_right: IntArray
    needed_share: NDArray[np.float64]
    flips: IntArray
    dangerous_flips: IntArray


@dataclass(frozen=True)
class TraceFigures:
    """Means over trajectories within a question, then over questions; all but the flips are fractions in 0..1.

    Attributes
    ----------
    outcome_efficiency : share of the thinking that was needed for the first right position, 0 where the last position
        is wrong. It is 0 as well where no thinking was needed, so read it beside the accuracy.
    original_outcome_efficiency : the same, but 0 where the original answer is wrong instead; None unless all original
        answers are known.
    rfcs : ratio of the first correct step: first right position / n, over trajectories of at least one step whose last
        position is right; None where there is none. Questions without such a trajectory do not count.
    early_share : share of those trajectories whose ratio is below 1; None likewise.
    flips, dangerous_flips : how many a trajectory has.
    dangerous_share : share of trajectories with a dangerous flip.
    """

    outcome_efficiency: float
    original_outcome_efficiency: float | None
    rfcs: float | None
    early_share: float | None
    flips: float
    dangerous_flips: float
    dangerous_share: float


@dataclass(frozen=True)
class CellTraces:
    """The figures of one cell, how many trajectories they rest on, and why some are None, by the figure's name."""

    model: str
    benchmark: str
    n_questions: int
    n_trajectories: int
    n_right: int
    figures: TraceFigures
    reasons: dict[str, str]


@dataclass(frozen=True)
class TraceReport:
    """The figures of all cells; `averages` holds each field of `TraceFigures` by its name."""

    cells: tuple[CellTraces, ...]
    averages: dict[str, Averages]


@dataclass(frozen=True)
class DifficultyLevel:
    """The figures over the questions of one difficulty."""

    difficulty: int
    n_questions: int
    figures: TraceFigures


@dataclass(frozen=True)
class DifficultyReport:
    """Figures by question difficulty, in one benchmark.

    Attributes
    ----------
    models : whose trajectories are in it.
    n_known, n_unknown : questions with and without a difficulty; the latter are left out.
    levels : by increasing difficulty.
    over_questions : Pearson's r between difficulty and the questions' figures, by the figure's name.
    over_levels : the same between difficulty and the levels' figures, each level one point.
    reason : why there is no level, if there is none.
    """

    benchmark: str
    models: tuple[str, ...]
    n_known: int
    n_unknown: int
    levels: tuple[DifficultyLevel, ...]
    over_questions: dict[str, Correlation]
    over_levels: dict[str, Correlation]
    reason: str | None


@dataclass(frozen=True, eq=False)
class _Tally:
    """One figure's sum over the trajectories of each question, and how many of these it is defined for."""

    total: NDArray[np.float64]
    count: IntArray

    def find_values(self) -> NDArray[np.float64]:
        """The questions' means; meaningless where the count is 0."""
        return self.total / np.maximum(self.count, 1)

    def find_mean(self, chosen: NDArray[np.bool_]) -> float | None:
        """The mean of the chosen questions' means, or None."""
        used = chosen & (self.count > 0)
        counts = self.count[used]
        if not counts.size:
            return None
        if (counts == counts[0]).all():
            # Equal weights: all sums divided once.
            return math.fsum(self.total[used].tolist()) / int(counts.sum())
        return math.fsum(self.find_values()[used].tolist()) / counts.size


def trace_trajectories(cell: Cell) -> TrajectoryTraces:
    """Return where each trajectory is right first, and how often that changes afterwards.

    A step from right to wrong always comes after the first right position, so each is a dangerous flip.

    Raises
    ------
    ValueError : hidden labels.

    Notes
    -----
    Seed 002; the majority of M probes stands for the answer read off a prefix. O(positions).

    Examples
    --------
    Majorities of 4 probes: wrong, right, wrong (2 of 4), right.

    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (10, 3), (30, 2), (40, 4)]])], 4)
    >>> traces = trace_trajectories(cell)
    >>> traces.first_right.tolist(), traces.needed_share.tolist()
    ([1], [0.25])
    >>> traces.flips.tolist(), traces.dangerous_flips.tolist()
    ([3], [1])
    """
    if not cell.has_labels:
        raise ValueError(f"the labels of {cell.model} on {cell.benchmark} are hidden")
    is_right = 2 * cell.correct_probes.astype(np.int64) > cell.probes_per_position
    idx = np.arange(is_right.size)
    # Where no position is right the last one takes its place, whose L(k) / L(n) is 1.
    first_idx = np.minimum(np.minimum.reduceat(np.where(is_right, idx, idx.size), cell.first_idx), cell.last_idx)
    change = np.diff(is_right.astype(np.int8), prepend=np.int8(0))
    change[cell.first_idx] = 0
    total = cell.thinking_tokens
    return TrajectoryTraces(
        endpoint_right=is_right[cell.last_idx],
        first_right=first_idx - cell.first_idx,
        needed_share=np.where(total > 0, cell.retained_tokens[first_idx] / np.maximum(total, 1), 1.0),
        flips=np.add.reduceat((change != 0).astype(np.int64), cell.first_idx),
        dangerous_flips=np.add.reduceat((change < 0).astype(np.int64), cell.first_idx),
    )


def summarise_traces(measurements: Measurements) -> TraceReport:
    """Return outcome efficiency, ratio of the first correct step and flips of every cell, and averaged over cells.

    Raises
    ------
    ValueError : hidden labels.

    Notes
    -----
    Section 6. Sums over questions are correctly rounded, so their order changes nothing. O(positions).
    """
    cells = tuple(_summarise_cell(cell) for cell in measurements.cells)
    return TraceReport(cells=cells, averages=average_figures(measurements, [cell.figures for cell in cells]))


def summarise_by_difficulty(cells: Sequence[Cell], difficulty: Sequence[int | None]) -> DifficultyReport:
    """Return the figures by question difficulty, over all trajectories that one or more models have on a benchmark.

    A level's figures are means over its questions; a question's are means over its trajectories, of all the models
    given. The ratio of the first correct step rests on the questions that have one.

    Parameters
    ----------
    cells : of one benchmark, with the same questions in the same order; at least one.
    difficulty : one integer per question of these cells, or None where unknown.

    Raises
    ------
    ValueError : cells that do not belong together, not one difficulty per question, or hidden labels.

    Notes
    -----
    Section 6, seed 002. O(positions).

    Examples
    --------
    The easy question is right from the start, the hard one from its second of two steps.

    >>> from app.evaluator.measurements import build_cell
    >>> easy, hard = [[(0, 4), (10, 4), (20, 4)]], [[(0, 0), (10, 1), (20, 3)]]
    >>> cell = build_cell("m", "b", [("q1", "test", easy), ("q2", "test", hard)], 4)
    >>> report = summarise_by_difficulty([cell], [1, 5])
    >>> [(level.difficulty, level.figures.rfcs) for level in report.levels], report.over_questions["rfcs"].value
    ([(1, 0.0), (5, 1.0)], 1.0)
    """
    if len({(cell.benchmark, cell.question_ids) for cell in cells}) != 1:
        raise ValueError("figures by difficulty need cells of one benchmark with the same questions")
    if len(difficulty) != cells[0].n_questions:
        raise ValueError(f"{len(difficulty)} difficulties for {cells[0].n_questions} questions")
    tallies = _combine([_tally(cell, trace_trajectories(cell)) for cell in cells])
    is_known = np.array([d is not None for d in difficulty], dtype=np.bool_)
    grade = np.array([0 if d is None else d for d in difficulty], dtype=np.int64)
    levels = tuple(
        DifficultyLevel(level, int(chosen.sum()), _find_figures(tallies, chosen))
        for level in np.unique(grade[is_known]).tolist()
        if (chosen := is_known & (grade == level)).any()
    )
    names = [field.name for field in fields(TraceFigures)]
    return DifficultyReport(
        benchmark=cells[0].benchmark,
        models=tuple(cell.model for cell in cells),
        n_known=int(is_known.sum()),
        n_unknown=int((~is_known).sum()),
        levels=levels,
        over_questions={name: _correlate_questions(grade, tallies[name], is_known) for name in names},
        over_levels={name: _correlate_levels(levels, name) for name in names},
        reason=None if levels else NO_DIFFICULTY,
    )


def _summarise_cell(cell: Cell) -> CellTraces:
    traces = trace_trajectories(cell)
    figures = _find_figures(_tally(cell, traces), np.ones(cell.n_questions, dtype=np.bool_))
    reasons = {
        "original_outcome_efficiency": ORIGINAL_UNKNOWN,
        "rfcs": NO_RIGHT_ENDPOINT,
        "early_share": NO_RIGHT_ENDPOINT,
    }
    return CellTraces(
        model=cell.model,
        benchmark=cell.benchmark,
        n_questions=cell.n_questions,
        n_trajectories=cell.n_trajectories,
        n_right=int(traces.endpoint_right.sum()),
        figures=figures,
        reasons={name: reason for name, reason in reasons.items() if getattr(figures, name) is None},
    )


def _tally(cell: Cell, traces: TrajectoryTraces) -> dict[str, _Tally]:
    """Sum every figure over the trajectories of each question, by the figure's name."""
    everywhere = np.ones(cell.n_trajectories, dtype=np.bool_)
    has_ratio = traces.endpoint_right & (cell.n_steps > 0)
    is_known = everywhere & bool((cell.original_correct >= 0).all())
    listed = {
        "outcome_efficiency": (traces.endpoint_right * traces.needed_share, everywhere),
        "original_outcome_efficiency": ((cell.original_correct == 1) * traces.needed_share, is_known),
        "rfcs": (traces.first_right / np.maximum(cell.n_steps, 1), has_ratio),
        "early_share": (traces.first_right < cell.n_steps, has_ratio),
        "flips": (traces.flips, everywhere),
        "dangerous_flips": (traces.dangerous_flips, everywhere),
        "dangerous_share": (traces.dangerous_flips > 0, everywhere),
    }
    shape = (cell.n_questions, cell.trajectories_per_question)
    return {
        name: _Tally(
            total=(values.astype(np.float64) * defined).reshape(shape).sum(axis=1),
            count=defined.reshape(shape).sum(axis=1, dtype=np.int64),
        )
        for name, (values, defined) in listed.items()
    }


def _combine(tallies: Sequence[dict[str, _Tally]]) -> dict[str, _Tally]:
    """Add up several models' tallies of the same questions."""
    combined = {
        name: _Tally(np.sum([t[name].total for t in tallies], axis=0), np.sum([t[name].count for t in tallies], axis=0))
        for name in tallies[0]
    }
    # Where one model's original answers are unknown, those of the others would stand for all of them.
    original = "original_outcome_efficiency"
    if any(not t[original].count.any() for t in tallies):
        combined[original] = _Tally(combined[original].total, np.zeros_like(combined[original].count))
    return combined


def _find_figures(tallies: dict[str, _Tally], chosen: NDArray[np.bool_]) -> TraceFigures:
    means = {name: tally.find_mean(chosen) for name, tally in tallies.items()}
    # Figures that every trajectory has are never None, which the types cannot see.
    return TraceFigures(**means)  # type: ignore[arg-type]


def _correlate_questions(grade: IntArray, tally: _Tally, is_known: NDArray[np.bool_]) -> Correlation:
    used = is_known & (tally.count > 0)
    return correlate_values(grade[used].tolist(), tally.find_values()[used].tolist())


def _correlate_levels(levels: Sequence[DifficultyLevel], name: str) -> Correlation:
    points = [(level.difficulty, value) for level in levels if (value := getattr(level.figures, name)) is not None]
    return correlate_values([d for d, _ in points], [value for _, value in points])
