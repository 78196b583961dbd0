"""One cell of a submission: its settings' totals, its curve, its areas; and means of such cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.curves import Curve, build_curve
from app.evaluator.efficiency import e3
from app.evaluator.measurements import Cell, IntArray
from app.evaluator.operating_points import measure_operating_points
from app.evaluator.reference import CellReference
from app.evaluator.strategies import ActionTable, CellActions, Strategy


@dataclass(frozen=True, eq=False)
class ScoredCell:
    """A submission in one cell.

    Attributes
    ----------
    covered : bool, one per setting of the file.
    cost, correct, gap, early_loss, late_loss, wasted, forgone : int64 totals in probes or tokens, one per setting of
        the file, 0 where it does not cover the cell.
    curve : the method's curve.
    area, oracle_area, uninformed_area : of that curve, of the frontier and of the uninformed reference.
    """

    cell: Cell
    reference: CellReference
    covered: NDArray[np.bool_]
    cost: IntArray
    correct: IntArray
    gap: IntArray
    early_loss: IntArray
    late_loss: IntArray
    wasted: IntArray
    forgone: IntArray
    curve: Curve
    area: Fraction
    oracle_area: Fraction
    uninformed_area: Fraction

    @property
    def full_accuracy(self) -> Fraction:
        """A_full: mean P(n)."""
        return Fraction(self.reference.frontier.full_correct, self.cell.total_probes)

    @property
    def full_tokens(self) -> Fraction:
        """Mean full-thinking tokens of a trajectory."""
        return Fraction(self.cell.total_thinking_tokens, self.cell.n_trajectories)

    @property
    def token_total(self) -> int:
        """T, or 1 where T = 0: the shares of no tokens are then 0."""
        return max(self.cell.total_thinking_tokens, 1)


def score_cell(cell: Cell, table: ActionTable, actions: CellActions, reference: CellReference) -> ScoredCell:
    """Measure all settings in a cell and build the method's curve, which starts at the zero-thinking point.

    Raises
    ------
    ValueError : hidden labels, actions out of range, or a reference that is not this cell's.
    """
    _check_reference(cell, table.strategy, reference)
    covered = actions.covered
    points = measure_operating_points(cell, table.strategy, actions.actions[covered])
    gap = reference.frontier.curve.correct_at_cost(points.cost) - points.correct
    if (gap < 0).any():
        raise ValueError(f"an operating point lies above the frontier of {cell.model} on {cell.benchmark}")
    curve = build_curve(
        np.append(points.cost, 0),
        np.append(points.correct, cell.zero_correct.sum()),
        total_thinking_tokens=cell.total_thinking_tokens,
        total_probes=cell.total_probes,
    )

    def spread(values: IntArray) -> IntArray:
        full = np.zeros(len(covered), dtype=np.int64)
        full[covered] = values
        return full

    return ScoredCell(
        cell=cell,
        reference=reference,
        covered=covered,
        cost=spread(points.cost),
        correct=spread(points.correct),
        gap=spread(gap),
        early_loss=spread(points.early_loss),
        late_loss=spread(points.late_loss),
        wasted=spread(points.wasted),
        forgone=spread(points.forgone),
        curve=curve,
        area=curve.area(),
        oracle_area=reference.frontier.curve.area(),
        uninformed_area=reference.uninformed.area(),
    )


def _check_reference(cell: Cell, strategy: Strategy, reference: CellReference) -> None:
    frontier = reference.frontier
    found = (
        frontier.model,
        frontier.benchmark,
        frontier.strategy,
        frontier.total_thinking_tokens,
        frontier.total_probes,
    )
    expected = (cell.model, cell.benchmark, strategy, cell.total_thinking_tokens, cell.total_probes)
    if found != expected:
        raise ValueError(f"the reference is of {found}, the actions are of {expected}")


def list_e3(scored: Sequence[ScoredCell]) -> list[float | None]:
    """E3 of each setting's mean point over the cells; meaningless where a setting does not cover them all."""
    accuracies = mean_ratios([s.correct for s in scored], [s.cell.total_probes for s in scored])
    tokens = mean_ratios([s.cost for s in scored], [s.cell.n_trajectories for s in scored])
    base = find_baseline(scored)
    return [
        e3(a, t, base_accuracy=base.accuracy, base_tokens=base.tokens) for a, t in zip(accuracies, tokens, strict=True)
    ]


@dataclass(frozen=True)
class Baseline:
    """Full thinking's accuracy A0 and mean tokens T0."""

    accuracy: float
    tokens: float


def find_baseline(scored: Sequence[ScoredCell]) -> Baseline:
    """Return full thinking's operating point on the board of these cells."""
    return Baseline(
        accuracy=float(mean([s.full_accuracy for s in scored])), tokens=float(mean([s.full_tokens for s in scored]))
    )


def find_complete(scored: Sequence[ScoredCell]) -> NDArray[np.bool_]:
    """Return which settings cover all of these cells."""
    complete: NDArray[np.bool_] = np.all([s.covered for s in scored], axis=0)
    return complete


def mean(values: Sequence[Fraction]) -> Fraction:
    """Return the exact mean."""
    return sum(values, start=Fraction(0)) / len(values)


def mean_ratios(numerators: Sequence[IntArray], denominators: Sequence[int]) -> list[float]:
    """Return the mean over cells of numerator / denominator for every setting.

    Parameters
    ----------
    numerators : one array per cell, int64, an entry per setting.
    denominators : one per cell, at least 1.

    Notes
    -----
    Added as integers of any size over the common denominator, with one division at the end: correctly rounded.

    Examples
    --------
    (1/2 + 2/3) / 2 = 7/12 and (0/2 + 3/3) / 2 = 1/2.

    >>> mean_ratios([np.array([1, 0]), np.array([2, 3])], [2, 3]) == [7 / 12, 1 / 2]
    True
    """
    shared = math.lcm(*denominators)
    totals: NDArray[Any] = np.zeros(len(numerators[0]), dtype=object)
    for values, denominator in zip(numerators, denominators, strict=True):
        totals += values.astype(object) * (shared // denominator)
    return [int(total) / (shared * len(denominators)) for total in totals]
