"""Certificates of frontiers: what shows that no point is missing, and a check that shares no code with the solver."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from app.evaluator.measurements import IntArray

if TYPE_CHECKING:
    # A frontier holds its certificate, so its module imports this one.
    from app.evaluator.frontier import UnitActions

FloatArray = NDArray[np.float64]

Point = tuple[int, int]

_ROUNDING = 1e-6


@dataclass(frozen=True, eq=False)
class Certificate:
    """How far below the bound the solver looked, and how far it had to look, per chunk of the frontier.

    The bound at a cost is the largest reward that a mix of combinations has at that cost: the line through the ends of
    the greedy path's segments. A combination d probes below it can only be made of choices that lose at most d probes
    in all against it. The solver tries everything within `band` probes. Between two points of the frontier, a
    combination that was missed would lie at most `needed` below the bound.

    Attributes
    ----------
    cost, reward : int64, chunks + 1: points on the bound where chunks begin and end, the first and the last of the
        frontier among them.
    band : float64, per chunk: everything that lies so many correct probes below the bound was tried.
    needed : float64, per chunk: the largest distance, over neighbouring points of the frontier, from the bound at the
        later's cost down to one probe more than the earlier's reward, rounded up by some 1e-9. Where it is within the
        band, nothing is missing.
    """

    cost: IntArray
    reward: IntArray
    band: FloatArray
    needed: FloatArray


def check_certificate(
    actions: UnitActions,
    cost: IntArray,
    reward: IntArray,
    certificate: Certificate,
    *,
    multiplicity: IntArray | None = None,
) -> tuple[str, ...]:
    """Check that a certificate is that of a frontier, and that its bands were wide enough; returns what is wrong.

    The bound is found anew from the units' actions and compared in exact fractions. What cannot be seen from a
    certificate is whether the solver really tried everything within the band.

    Parameters
    ----------
    actions : the units' nondominated actions, as of `build_unit_actions`.
    cost, reward : int64, the frontier's points.
    multiplicity : int64, how many copies there are of each unit; one by default.

    Returns
    -------
    One sentence per fault, none if there is no fault.

    Notes
    -----
    Python's integers throughout: about a microsecond per action and point.

    Examples
    --------
    Two units: 2 probes for 10 tokens, 3 for 6. At 10 tokens the bound is 3 + 4 * 2 / 10 = 3.8.

    >>> from app.evaluator.frontier import UnitActions
    >>> actions = UnitActions(*map(np.array, ([0, 2, 4], [0, 10, 0, 6], [0, 2, 1, 4], [0, 1, 0, 1])))
    >>> cost, reward = np.array([0, 6, 16]), np.array([1, 4, 6])
    >>> certificate = Certificate(np.array([0, 16]), np.array([1, 6]), np.array([3.0]), np.array([2.0]))
    >>> check_certificate(actions, cost, reward, certificate)
    ()
    >>> narrow = Certificate(np.array([0, 16]), np.array([1, 6]), np.array([1.0]), np.array([2.0]))
    >>> check_certificate(actions, cost, reward, narrow)
    ('chunk 0 needs a band of 2 probes and has 1',)
    """
    points = list(zip(cost.tolist(), reward.tolist(), strict=True))
    joints = list(zip(certificate.cost.tolist(), certificate.reward.tolist(), strict=True))
    copies = np.ones(actions.n_units, dtype=np.int64) if multiplicity is None else multiplicity
    bound = _find_bound(actions, copies)
    faults = _check_course(points, joints, bound) or _check_columns(certificate)
    if faults:
        return faults
    for chunk, (left, right) in enumerate(pairwise(joints)):
        inside = points[points.index(left) : points.index(right) + 1]
        faults += _check_chunk(chunk, inside, bound, certificate)
    return faults


def _find_bound(actions: UnitActions, copies: IntArray) -> list[Point]:
    """Return costs and rewards at the ends of the greedy path's segments."""
    bounds = actions.offsets.tolist()
    outcomes = list(zip(actions.cost.tolist(), actions.reward.tolist(), strict=True))
    segments: list[tuple[int, int, int]] = []
    base = 0
    for unit, count in enumerate(copies.tolist()):
        hull: list[Point] = []
        for point in outcomes[bounds[unit] : bounds[unit + 1]]:
            while len(hull) > 1 and _rise_above(hull[-2], hull[-1], point) <= 0:
                hull.pop()
            hull.append(point)
        base += count * hull[0][1]
        segments += [(b[0] - a[0], b[1] - a[1], count) for a, b in pairwise(hull)] if count else []
    # Different slopes of rewards below 2^32 are more than 2^-64 apart, so that integers order them exactly.
    segments.sort(key=lambda segment: (segment[0] << 64) // segment[1])
    bound = [(0, base)]
    for cost, gain, count in segments:
        bound.append((bound[-1][0] + count * cost, bound[-1][1] + count * gain))
    return bound


def _rise_above(left: Point, point: Point, right: Point) -> int:
    """Return how far a point lies above the line from left to right, times the line's run."""
    return (point[1] - left[1]) * (right[0] - left[0]) - (right[1] - left[1]) * (point[0] - left[0])


def _check_course(points: list[Point], joints: list[Point], bound: list[Point]) -> tuple[str, ...]:
    """Check that points rise from the bound's first to its last, and that chunks cover them and meet on the bound."""
    if any(b[0] <= a[0] or b[1] <= a[1] for a, b in (*pairwise(points), *pairwise(joints))):
        return ("the points, or the chunks, do not rise",)
    if (points[0], points[-1]) != (bound[0], bound[-1]):
        return (f"the frontier leads from {points[0]} to {points[-1]}, the bound from {bound[0]} to {bound[-1]}",)
    if (joints[0], joints[-1]) != (bound[0], bound[-1]) or not set(joints) <= set(bound) & set(points):
        return ("chunks do not cover the frontier, or meet off it or off the bound",)
    return ()


def _check_columns(certificate: Certificate) -> tuple[str, ...]:
    if not len(certificate.band) == len(certificate.needed) == len(certificate.cost) - 1:
        return ("the certificate's columns do not belong together",)
    return ()


def _check_chunk(chunk: int, points: list[Point], bound: list[Point], certificate: Certificate) -> tuple[str, ...]:
    """Find the band that the points of a chunk need, exactly, and compare."""
    needed = Fraction(0)
    for before, point in pairwise(points):
        place = bisect_left(bound, point[0], key=lambda end: end[0])
        left, right = bound[place - 1], bound[place]
        if _rise_above(left, point, right) > 0:
            return (f"chunk {chunk} has a point above the bound: {point}",)
        run = right[0] - left[0]
        distance = -_rise_above(left, (point[0], before[1] + 1), right)
        if distance * needed.denominator > needed.numerator * run:
            needed = Fraction(distance, run)
    band, stated, exact = float(certificate.band[chunk]), float(certificate.needed[chunk]), float(needed)
    if not (math.isfinite(band) and needed <= Fraction(band)):
        return (f"chunk {chunk} needs a band of {exact:g} probes and has {band:g}",)
    if not abs(stated - exact) <= _ROUNDING * max(1.0, exact):
        return (f"chunk {chunk} needs a band of {exact:g} probes and states {stated:g}",)
    return ()
