"""Intervals on hidden labels: a told figure and a half-width that one unit's labels move by one step at most.

Percentiles of replicates would not do. A unit that a replicate draws c times moves the replicate's figures by c times
its weight w, and a percentile may sit on the replicate that drew it most often. What is told instead is

    told figure +/- 1.96 s, where s is the standard deviation of the figure over the replicates.

**Accuracies and areas.** Let d_i be the change of replicate i by a neighbour (`app/evaluator/quanta.py`) in one unit.
The replicate's costs stay, so |d_i| <= c_i w as there. A standard deviation is a seminorm, hence
|s' - s| <= s(d) <= sqrt(mean d_i^2) <= w sqrt(mean c_i^2). A question of n is drawn as often as a binomial variable
with mean 1 says, so the mean of c^2 is below 2; a trajectory of R is drawn R times 1/R as often as its question, which
makes it 3 - 1/R at most. Over a thousand replicates and more the mean stays below 4: 1.96 s moves by less than 4 w, and
half-widths are told in steps of four quanta, rounded up.

**Realised potential** is a ratio whose denominator may be small in some replicate. So it is linearised where it is
told: with x the told potential and P = oracle - uninformed as they are told, a replicate's value is
x + (a - (1 - x) u - x o) / P. Its change is at most c w (1 + |1 - x| + |x|) / P, linear in c again. x and P are
figures everybody knows, so they tell nothing more. A difference of two such values, replicate by replicate, moves by
the sum of both steps at most; the ranks follow from differences as they are told.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from app.evaluator.centring import Interval
from app.evaluator.measurements import IntArray
from app.evaluator.quanta import round_up_to_tenth

FloatArray = NDArray[np.float64]

DEVIATIONS = 1.96
"""Standard deviations to either side of a figure: the 95 % interval of the normal distribution."""
STEPS = 4
"""Quanta in a step of a half-width: 1.96 times the square root of the mean of c^2, rounded up."""


@dataclass(frozen=True)
class ToldPotential:
    """A realised potential as it is told, and the steps its half-width is told in.

    `step` is None where one unit could move the half-width by the whole range: then there is no interval. `is_exact`
    says that its labels are open.
    """

    value: float
    step: Fraction | None
    is_exact: bool = False


def find_half_width(values: FloatArray) -> float:
    """Return 1.96 standard deviations of a figure over the replicates.

    Examples
    --------
    >>> round(find_half_width(np.array([0.4, 0.6])), 3)
    0.196
    """
    return DEVIATIONS * float(np.std(values))


def linearise_potential(
    area: FloatArray, uninformed: FloatArray, oracle: FloatArray, *, told: float, potential: float
) -> FloatArray:
    """Return the realised potential in every replicate, linear in the three areas.

    Parameters
    ----------
    told : the realised potential as it is told. potential : oracle minus uninformed area as they are told, above 0.

    Examples
    --------
    Where the areas are as they are told, so is the value.

    >>> one = np.array([0.6]), np.array([0.5]), np.array([0.7])
    >>> np.round(linearise_potential(*one, told=0.5, potential=0.2), 9).tolist()
    [0.5]
    """
    values: FloatArray = told + (area - (1 - told) * uninformed - told * oracle) / potential
    return values


def find_width_step(quantum: Fraction) -> Fraction | None:
    """Return the step of the half-width of an accuracy or area with this quantum; None from 1 on.

    Examples
    --------
    >>> find_width_step(Fraction(2, 1000)), find_width_step(Fraction(1, 4))
    (Fraction(1, 125), None)
    """
    step = STEPS * quantum
    return step if step < 1 else None


def find_potential_step(
    quantum: Fraction, *, told: float, uninformed_area: float, oracle_area: float
) -> Fraction | None:
    """Return the step of the half-width of a realised potential; None from 1 on, and where nothing is to be realised.

    Parameters
    ----------
    quantum : of the board's areas. told, uninformed_area, oracle_area : the figures as they are told.

    Examples
    --------
    4 * 0.002 * 2 / 0.2 = 0.08; below zero the bracket grows.

    >>> float(find_potential_step(Fraction(1, 500), told=0.5, uninformed_area=0.5, oracle_area=0.7))
    0.08
    >>> float(find_potential_step(Fraction(1, 500), told=-0.5, uninformed_area=0.5, oracle_area=0.7))
    0.12
    """
    potential = _as_told(oracle_area) - _as_told(uninformed_area)
    if potential <= 0:
        return None
    share = _as_told(told)
    step = round_up_to_tenth(STEPS * quantum * (1 + abs(1 - share) + abs(share)) / potential)
    return step if step < 1 else None


def tell_interval(
    figure: float, half_width: float, step: Fraction | None, *, limits: tuple[float, float]
) -> Interval | None:
    """Return a told figure's interval, its half-width rounded up to the step; None without a step.

    Examples
    --------
    >>> tell_interval(0.5, 0.011, Fraction(8, 1000), limits=(0.0, 1.0))
    Interval(low=0.484, high=0.516)
    >>> tell_interval(0.99, 0.011, Fraction(8, 1000), limits=(0.0, 1.0)).high
    1.0
    """
    if step is None:
        return None
    # A width that is a multiple of the step up to the dust of floats is that multiple.
    half = math.ceil(round(Fraction(half_width) / step, 9)) * step
    centre = _as_told(figure)
    return Interval(max(limits[0], float(centre - half)), min(limits[1], float(centre + half)))


def tell_difference(
    first: ToldPotential, second: ToldPotential, values: tuple[FloatArray, FloatArray]
) -> Interval | None:
    """Return the interval of two realised potentials' difference as it is told; None where either has none.

    Parameters
    ----------
    values : both, linearised, in every replicate, on the same draws. Unequal numbers of replicates are not paired.

    Examples
    --------
    >>> one, other = ToldPotential(0.5, Fraction(2, 100)), ToldPotential(0.3, Fraction(3, 100))
    >>> tell_difference(one, other, (np.array([0.5, 0.6]), np.array([0.3, 0.4])))
    Interval(low=0.2, high=0.2)
    """
    if first.step is None or second.step is None or len(values[0]) != len(values[1]):
        return None
    difference = float(_as_told(first.value) - _as_told(second.value))
    half_width = find_half_width(values[0] - values[1])
    return tell_interval(difference, half_width, first.step + second.step, limits=(-math.inf, math.inf))


def rank_told(told: Sequence[ToldPotential], values: Sequence[FloatArray]) -> IntArray:
    """Return shared ranks: 1 + the number of methods whose told difference to it lies above zero.

    Examples
    --------
    >>> told = [ToldPotential(value, Fraction(2, 100)) for value in (0.5, 0.49, 0.2)]
    >>> rank_told(told, [np.array([0.0, 0.1]), np.array([0.1, 0.0]), np.array([0.0, 0.1])]).tolist()
    [1, 1, 3]
    """
    ranks = np.ones(len(told), dtype=np.int64)
    for i in range(len(told)):
        for j in range(i + 1, len(told)):
            interval = tell_difference(told[i], told[j], (values[i], values[j]))
            if interval is not None:
                ranks[j] += interval.low > 0
                ranks[i] += interval.high < 0
    return ranks


def _as_told(figure: float) -> Fraction:
    """Return a told figure as the exact multiple of 0.1 point that it is."""
    return Fraction(round(figure * 1000), 1000)
