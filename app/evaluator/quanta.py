"""Quanta of hidden labels: how coarsely a figure is told, so that one unit's labels move it by one step at most.

A *neighbour* of some measurements has other labels C(k) in one decision unit and is the same otherwise: the same
tokens, the same actions. The weight w of a unit on a board is the most that its labels can move the board's mean
accuracy: it has all of its R trajectories (or, for early exit, its only one) wrong, or right, out of the n·R of its
cell, and its cell is one of G.

**w bounds every accuracy and every area.** The reward of any one policy moves by at most the unit's probes, so each
operating point moves by at most w upwards or downwards while its cost stays. The method's curve is at each budget the
largest of the points that the budget admits, the frontier the largest over all policies that it admits, the reference
the largest mix of constant policies that it admits: the largest of numbers that each move by at most w moves by at
most w. So does the mean of full-thinking accuracies and, since the integral of a bounded change over [0, 1] has the
same bound, so do the three areas. Only one cell has the unit, so in the mean over G cells the change is a G-th.

The gap, the difference of two areas as they are told, moves by two of their steps at most.

**Realised potential** (a − u) / (o − u): with P = o − u, and P' of the neighbour, writing d for the changes,
RP' − RP = (d_a − RP · d_o − (1 − RP) · d_u) / P', hence |RP' − RP| ≤ w · (1 + |RP| + |1 − RP|) / P' and P' ≥ P − 2w.
RP is at most 1, so the bracket is 2 + 2 · max(0, −RP).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

TENTH_OF_A_POINT = Fraction(1, 1000)
COARSEST = Fraction(1, 4)
"""A board is not told at all where its quantum is larger: of a cell of fewer than four units nothing else is left."""


@dataclass(frozen=True)
class Quanta:
    """How coarsely the figures of one board are told, as fractions of 1.

    Attributes
    ----------
    weight : w, the most that one unit's labels can move the board's accuracies and areas.
    accuracy : quantum of accuracies and areas.
    """

    weight: Fraction
    accuracy: Fraction

    @property
    def is_coarsest(self) -> bool:
        """Whether the board is too small for anything to be told of it."""
        return self.accuracy > COARSEST


def build_quanta(weight: Fraction) -> Quanta:
    """Return the quanta of a board whose units weigh at most `weight`.

    Examples
    --------
    A question of one cell with 36 questions weighs 2.78 points, one of 24 such cells 0.12.

    >>> float(build_quanta(Fraction(1, 36)).accuracy), float(build_quanta(Fraction(1, 36 * 24)).accuracy)
    (0.028, 0.002)
    """
    return Quanta(weight, round_up_to_tenth(weight))


def find_unit_weight(
    *, n_cells: int, min_questions: int, trajectories_per_question: int, unit_is_trajectory: bool
) -> Fraction:
    """Return w: what the heaviest unit of a board can move its mean accuracy by.

    Parameters
    ----------
    n_cells : G, the cells of the board. min_questions : the questions of its smallest cell, where units weigh most.
    unit_is_trajectory : whether a unit is one of the R trajectories of a question (early exit), or the question.

    Examples
    --------
    >>> find_unit_weight(n_cells=1, min_questions=5, trajectories_per_question=2, unit_is_trajectory=True)
    Fraction(1, 10)
    """
    return Fraction(1, n_cells * min_questions * (trajectories_per_question if unit_is_trajectory else 1))


def round_up_to_tenth(change: Fraction) -> Fraction:
    """Return max(0.1 point, the change rounded up to 0.1 point).

    Examples
    --------
    >>> float(round_up_to_tenth(Fraction(1, 5))), float(round_up_to_tenth(Fraction(1, 10**6)))
    (0.2, 0.001)
    """
    return max(TENTH_OF_A_POINT, math.ceil(change / TENTH_OF_A_POINT) * TENTH_OF_A_POINT)


def round_to(value: float, quantum: Fraction) -> float:
    """Return the nearest multiple of the quantum, halves upwards, at most 1.

    Rising values stay rising, so a method's rounded curve never lies above its frontier's with the same quantum.

    Examples
    --------
    >>> round_to(0.5, Fraction(1, 5)), round_to(0.5, Fraction(28, 1000)), round_to(1.0, Fraction(28, 1000))
    (0.6, 0.504, 1.0)
    >>> round_to(-0.31, Fraction(1, 5))
    -0.4
    """
    return min(1.0, float(math.floor(Fraction(value) / quantum + Fraction(1, 2)) * quantum))


def round_down_to(value: float, quantum: Fraction) -> float:
    """Return the largest multiple of the quantum that is not above the value: the lower end of an interval."""
    return float(math.floor(Fraction(value) / quantum) * quantum)


def round_up_to(value: float, quantum: Fraction) -> float:
    """Return the smallest multiple of the quantum that is not below the value, at most 1: an interval's upper end."""
    return min(1.0, float(math.ceil(Fraction(value) / quantum) * quantum))


def find_potential_quantum(
    quanta: Quanta, *, area: float, uninformed_area: float, oracle_area: float
) -> Fraction | None:
    """Return the quantum of realised potential, or None where one unit could move it by the whole of its range.

    Parameters
    ----------
    area, uninformed_area, oracle_area : the board's areas *as they are told*, so that the quantum tells nothing more
        than they do: the exact ones lie within half a quantum of them.

    Notes
    -----
    With q the quantum of areas, P >= o - u - q and -RP <= max(0, u + q/2 - (a - q/2)) / P. See the head of this module.

    Examples
    --------
    With w = 0.1 and a potential of 10 points, P >= 9.9 points: 2 * 0.1 * (1 + 0.1 / 9.9) / (9.9 - 0.2) = 2.08 %.

    >>> float(find_potential_quantum(build_quanta(Fraction(1, 1000)), area=0.6, uninformed_area=0.6, oracle_area=0.7))
    0.021
    >>> find_potential_quantum(build_quanta(Fraction(1, 5)), area=0.6, uninformed_area=0.6, oracle_area=0.8)
    """
    step = quanta.accuracy
    area_told, uninformed, oracle = (_snap(value) for value in (area, uninformed_area, oracle_area))
    potential = oracle - uninformed - step
    if potential <= 2 * quanta.weight:
        return None
    below = max(Fraction(0), (uninformed - area_told + step) / potential)
    quantum = round_up_to_tenth(2 * quanta.weight * (1 + below) / (potential - 2 * quanta.weight))
    return quantum if quantum < 1 else None


def _snap(value: float) -> Fraction:
    """Return a told figure as the exact multiple of 0.1 point that it is."""
    return round(Fraction(value) / TENTH_OF_A_POINT) * TENTH_OF_A_POINT
