"""Which recorded trajectories a report shows: by stated rules, never by eye."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.evaluator.dynamics import measure_diversity
from app.evaluator.measurements import Cell, IntArray, Measurements
from app.evaluator.overthinking import trajectory_overthinking

MIN_STEPS = 4
SHAPES = ("flat", "late_peak", "fluctuating")
SHAPE_RULES = {
    "flat": "No two positions differ by more than an eighth of the probes; of these the one with the most steps.",
    "late_peak": "The first maximum lies past three quarters of the tokens and is at least half of the probes above "
    "position 0; of these the one with the largest rise.",
    "fluctuating": "The changes between neighbouring positions add up to at least twice the probes; of these the one "
    "with the largest sum.",
}
QUESTION_RULE = (
    "The question of one model whose trajectories differ most: the largest sum of the mean absolute pairwise "
    "differences of OR and AD; of equals, and with one trajectory per question, the first."
)
PER_SHAPE = 2


@dataclass(frozen=True)
class CurveExample:
    """One recorded trajectory: tokens and correct probes at every position, k*, OR and AD (fractions in 0..1)."""

    model: str
    benchmark: str
    question_id: str
    trajectory: int
    probes_per_position: int
    retained_tokens: list[int]
    correct_probes: list[int]
    reference: int
    overthinking_ratio: float
    accuracy_degradation: float


@dataclass(frozen=True)
class ShapeExamples:
    """The trajectories that show one shape, at most one of a cell; none where no trajectory has it."""

    shape: str
    rule: str
    curves: tuple[CurveExample, ...]


@dataclass(frozen=True)
class QuestionExample:
    """Every trajectory of one model on one question."""

    rule: str
    curves: tuple[CurveExample, ...]


def find_shape_examples(measurements: Measurements) -> tuple[ShapeExamples, ...]:
    """Return up to two trajectories of at least four steps, of different cells, for each of three shapes.

    Equally good ones go by the measurements' order.

    Raises
    ------
    ValueError : hidden labels.
    """
    ranks: dict[str, Callable[[Cell], IntArray]] = {
        "flat": _rank_flat,
        "late_peak": _rank_late_peak,
        "fluctuating": _rank_fluctuating,
    }
    return tuple(ShapeExamples(shape, SHAPE_RULES[shape], _pick(measurements.cells, ranks[shape])) for shape in SHAPES)


def find_question_example(measurements: Measurements) -> QuestionExample:
    """Return all trajectories of the model and question whose trajectories differ most.

    Raises
    ------
    ValueError : hidden labels.
    """
    best = (-1.0, measurements.cells[0], 0)
    for cell in measurements.cells:
        diversity = measure_diversity(cell)
        if diversity is None:
            break
        spread = diversity.ratio + diversity.degradation
        question = int(np.argmax(spread))
        if spread[question] > best[0]:
            best = (float(spread[question]), cell, question)
    _, cell, question = best
    first = question * cell.trajectories_per_question
    return QuestionExample(
        QUESTION_RULE, tuple(show_curve(cell, first + number) for number in range(cell.trajectories_per_question))
    )


def _pick(cells: Sequence[Cell], rank: Callable[[Cell], IntArray]) -> tuple[CurveExample, ...]:
    """Take the highest-ranked trajectory of each cell, and of these the highest-ranked; -1 is out of the question."""
    candidates = []
    for cell in cells:
        values = np.where(cell.n_steps >= MIN_STEPS, rank(cell), -1)
        chosen = int(np.argmax(values))
        if values[chosen] >= 0:
            candidates.append((int(values[chosen]), cell, chosen))
    candidates.sort(key=lambda candidate: -candidate[0])
    return tuple(show_curve(cell, chosen) for _, cell, chosen in candidates[:PER_SHAPE])


def _rank_flat(cell: Cell) -> IntArray:
    highest = np.maximum.reduceat(cell.correct_probes, cell.first_idx)
    lowest = np.minimum.reduceat(cell.correct_probes, cell.first_idx)
    return np.where(8 * (highest - lowest) <= cell.probes_per_position, cell.n_steps, -1)


def _rank_late_peak(cell: Cell) -> IntArray:
    peak = cell.first_idx + trajectory_overthinking(cell).reference
    rise = cell.correct_probes[peak] - cell.zero_correct
    is_late = 4 * cell.retained_tokens[peak].astype(np.int64) >= 3 * cell.thinking_tokens
    return np.where(is_late & (2 * rise >= cell.probes_per_position), rise, -1)


def _rank_fluctuating(cell: Cell) -> IntArray:
    change = np.abs(np.diff(cell.correct_probes, prepend=0)).astype(np.int64)
    change[cell.first_idx] = 0
    total: IntArray = np.add.reduceat(change, cell.first_idx)
    return np.where(total >= 2 * cell.probes_per_position, total, -1)


def show_curve(cell: Cell, trajectory: int) -> CurveExample:
    """Return the trajectory with this index in its cell.

    Raises
    ------
    ValueError : hidden labels.
    """
    question, number = divmod(trajectory, cell.trajectories_per_question)
    alone = cell.take_questions([question])
    figures = trajectory_overthinking(alone)
    positions = slice(int(alone.offsets[number]), int(alone.offsets[number + 1]))
    return CurveExample(
        model=cell.model,
        benchmark=cell.benchmark,
        question_id=cell.question_ids[question],
        trajectory=number,
        probes_per_position=cell.probes_per_position,
        retained_tokens=alone.retained_tokens[positions].tolist(),
        correct_probes=alone.correct_probes[positions].tolist(),
        reference=int(figures.reference[number]),
        overthinking_ratio=float(figures.ratio[number]),
        accuracy_degradation=int(figures.degradation[number]) / cell.probes_per_position,
    )
