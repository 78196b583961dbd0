"""Exact curves of accuracy against the relative budget: steps (methods, frontiers), hulls (the reference) and means.

A curve's points are integers: retained tokens and correct probes, summed over a cell. The relative budget beta of a
point is ``cost / total_thinking_tokens`` and its accuracy ``correct / total_probes``. Both stay rational until they
leave this module as floats, so no point is lost to rounding and equal budgets of different cells are seen to be equal.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.measurements import IntArray

FloatArray = NDArray[np.float64]

_SAFE = 2**62  # integers below it can be added once more without leaving int64


def _check_points(cost: IntArray, correct: IntArray, *, total_thinking_tokens: int, total_probes: int) -> None:
    """Raise ValueError unless the points are strictly increasing from cost 0 to at most T, rewards within 0..probes."""
    if cost.ndim != 1 or cost.shape != correct.shape or cost.size == 0:
        raise ValueError(f"a curve needs matching points, got shapes {cost.shape} and {correct.shape}")
    if cost.dtype != np.int64 or correct.dtype != np.int64:
        raise ValueError(f"a curve's points are int64, got {cost.dtype} and {correct.dtype}")
    if (np.diff(cost) <= 0).any() or (np.diff(correct) <= 0).any():
        raise ValueError("a curve's costs and rewards rise strictly")
    if cost[0] != 0 or cost[-1] > total_thinking_tokens:
        raise ValueError(f"costs lie in 0..{total_thinking_tokens} and begin at 0, got {cost[0]}..{cost[-1]}")
    if total_probes < 1 or correct[0] < 0 or correct[-1] > total_probes:
        raise ValueError(f"rewards lie in 0..{total_probes}, got {correct[0]}..{correct[-1]}")


def _check_beta(beta: Fraction) -> None:
    if not 0 <= beta <= 1:
        raise ValueError(f"a relative budget lies in 0..1, got {beta}")


def _budgets_of_grid(total_thinking_tokens: int, n_intervals: int) -> IntArray:
    """Return floor(i * T / N) for i = 0..N: the largest integer cost within each relative budget i/N."""
    if n_intervals < 1:
        raise ValueError(f"a grid needs at least one interval, got {n_intervals}")
    return np.array([i * total_thinking_tokens // n_intervals for i in range(n_intervals + 1)], dtype=np.int64)


def _integers(values: IntArray, bound: int) -> NDArray[Any]:
    """Return the values as int64, or as Python integers where results up to `bound` would leave int64."""
    return values if bound < _SAFE else values.astype(object)


@dataclass(frozen=True, eq=False)
class Curve:
    """Exact step curve of one cell: the largest reward at a cost within the budget, right-continuous.

    Frontiers and method curves are both of this kind. Between two points the curve keeps the lower one's reward; right
    of the last point it keeps the last reward. A cell without any thinking token (T = 0) has one point, at beta 0.

    Attributes
    ----------
    cost : int64, strictly increasing, retained tokens summed over the cell, 0 first, at most T.
    correct : int64, strictly increasing, correct probes summed over the cell, 0..total_probes.
    total_thinking_tokens : T, the full-thinking tokens of the cell, may be 0.
    total_probes : trajectories times probes per position, at least 1.

    Raises
    ------
    ValueError : points that are not such a curve.

    Examples
    --------
    Half the budget costs 50 tokens, which admits the point at 40: 5 of 8 probes.

    >>> curve = Curve(np.array([0, 40, 80]), np.array([2, 5, 6]), 100, 8)
    >>> curve.accuracy_at(Fraction(1, 2)), curve.correct_at_grid(4).tolist()
    (Fraction(5, 8), [2, 2, 5, 5, 6])
    """

    cost: IntArray
    correct: IntArray
    total_thinking_tokens: int
    total_probes: int

    def __post_init__(self) -> None:
        _check_points(
            self.cost,
            self.correct,
            total_thinking_tokens=self.total_thinking_tokens,
            total_probes=self.total_probes,
        )

    def area(self) -> Fraction:
        """Return the exact integral of accuracy over beta in 0..1.

        Notes
        -----
        A sum of integer rectangles, divided once by T * total_probes. With T = 0 the curve is constant. O(points).

        Examples
        --------
        2 * 40 + 5 * 40 + 6 * 20 = 400 of 100 * 8.

        >>> Curve(np.array([0, 40, 80]), np.array([2, 5, 6]), 100, 8).area()
        Fraction(1, 2)
        """
        total = self.total_thinking_tokens
        if total == 0:
            return Fraction(int(self.correct[-1]), self.total_probes)
        widths = np.diff(self.cost, append=total)
        rewards = _integers(self.correct, total * self.total_probes)
        return Fraction(int((rewards * widths).sum()), total * self.total_probes)

    def accuracy_at(self, beta: Fraction) -> Fraction:
        """Return the accuracy at a relative budget in 0..1: the best point with cost * den <= num * T, in integers."""
        _check_beta(beta)
        budget = beta.numerator * self.total_thinking_tokens // beta.denominator
        return Fraction(int(self.correct_at_cost(np.array([budget]))[0]), self.total_probes)

    def correct_at_cost(self, budgets: IntArray) -> IntArray:
        """Return the reward at absolute budgets in tokens (int64, each >= 0), int64 of the same shape.

        Examples
        --------
        >>> Curve(np.array([0, 40]), np.array([2, 5]), 100, 8).correct_at_cost(np.array([0, 39, 40, 1000])).tolist()
        [2, 2, 5, 5]
        """
        if budgets.size and int(budgets.min()) < 0:
            raise ValueError("a budget is never negative")
        return self.correct[np.searchsorted(self.cost, budgets, side="right") - 1]

    def correct_at_grid(self, n_intervals: int) -> IntArray:
        """Return the rewards at beta = i/N for i = 0..N, int64 of N + 1 entries, compared in integers."""
        return self.correct_at_cost(_budgets_of_grid(self.total_thinking_tokens, n_intervals))

    def accuracy_at_grid(self, n_intervals: int) -> FloatArray:
        """Return the accuracies at beta = i/N for i = 0..N, float64 of N + 1 entries in 0..1."""
        return self.correct_at_grid(n_intervals) / self.total_probes


@dataclass(frozen=True, eq=False)
class HullCurve:
    """Piecewise linear, concave curve of one cell: the best mix of the policies at its vertices.

    Constant to the right of its last, highest vertex. The attributes are those of `Curve`, the points being vertices,
    and every slope is smaller than the one before it.

    Examples
    --------
    Halfway between 2 probes at 0 tokens and 6 probes at 80 tokens:

    >>> hull = HullCurve(np.array([0, 80]), np.array([2, 6]), 100, 8)
    >>> hull.accuracy_at(Fraction(2, 5)), hull.accuracy_at_grid(2).tolist()
    (Fraction(1, 2), [0.25, 0.5625, 0.75])
    """

    cost: IntArray
    correct: IntArray
    total_thinking_tokens: int
    total_probes: int

    def __post_init__(self) -> None:
        _check_points(
            self.cost,
            self.correct,
            total_thinking_tokens=self.total_thinking_tokens,
            total_probes=self.total_probes,
        )
        slopes = [Fraction(int(r), int(c)) for c, r in zip(np.diff(self.cost), np.diff(self.correct), strict=True)]
        if any(later >= earlier for earlier, later in pairwise(slopes)):
            raise ValueError("the slopes of a hull fall strictly")

    def area(self) -> Fraction:
        """Return the exact integral of accuracy over beta in 0..1: trapezoids, then the constant part. O(vertices).

        Examples
        --------
        80 * (2 + 6) / 2 + 20 * 6 = 440 of 100 * 8.

        >>> HullCurve(np.array([0, 80]), np.array([2, 6]), 100, 8).area()
        Fraction(11, 20)
        """
        total = self.total_thinking_tokens
        if total == 0:
            return Fraction(int(self.correct[-1]), self.total_probes)
        vertices = list(zip(self.cost.tolist(), self.correct.tolist(), strict=True))
        doubled: int = sum((right - left) * (low + high) for (left, low), (right, high) in pairwise(vertices))
        doubled += 2 * (total - vertices[-1][0]) * vertices[-1][1]
        return Fraction(doubled, 2 * total * self.total_probes)

    def accuracy_at(self, beta: Fraction) -> Fraction:
        """Return the exact accuracy at a relative budget in 0..1."""
        _check_beta(beta)
        budget = beta * self.total_thinking_tokens
        idx = int(np.searchsorted(self.cost, math.floor(budget), side="right")) - 1
        reward = Fraction(int(self.correct[idx]))
        if idx + 1 < len(self.cost):
            rise, run = self.correct[idx + 1] - self.correct[idx], self.cost[idx + 1] - self.cost[idx]
            reward += Fraction(int(rise), int(run)) * (budget - int(self.cost[idx]))
        return reward / self.total_probes

    def accuracy_at_grid(self, n_intervals: int) -> FloatArray:
        """Return the accuracies at beta = i/N for i = 0..N, float64 of N + 1 entries in 0..1.

        Notes
        -----
        With a vertex at cost c and reward r before the budget i*T/N and the next one (run, rise) further, the reward is
        ``(r*run*N + rise*(i*T - c*N)) / (run*N)``: integers and one division.
        """
        total = self.total_thinking_tokens
        idx = np.searchsorted(self.cost, _budgets_of_grid(total, n_intervals), side="right") - 1
        bound = self.total_probes * max(total, 1) * n_intervals
        steps = _integers(np.arange(n_intervals + 1), bound)
        cost, correct = _integers(self.cost, bound), _integers(self.correct, bound)
        # Past the last vertex the curve is flat: any run will do there with a rise of 0.
        run = np.diff(cost, append=cost[-1] + 1)[idx]
        rise = np.diff(correct, append=correct[-1])[idx]
        scaled = correct[idx] * run * n_intervals + rise * (steps * total - cost[idx] * n_intervals)
        accuracy: FloatArray = (scaled / (run * n_intervals * self.total_probes)).astype(np.float64)
        return accuracy


AnyCurve = Curve | HullCurve


@dataclass(frozen=True, eq=False)
class StepSeries:
    """A mean step curve as floats, for tables and plots.

    Attributes
    ----------
    beta : float64, the relative budgets at which it rises, 0 first, increasing, at most 1.
    accuracy : float64, its value from that budget on, strictly increasing in 0..1.
    """

    beta: FloatArray
    accuracy: FloatArray


def find_nondominated(costs: IntArray, rewards: IntArray) -> IntArray:
    """Return the indices of the nondominated points, by increasing cost.

    Of points of equal cost the best stays, of points of equal reward the cheapest, of equal points the first.

    Parameters
    ----------
    costs, rewards : int64, one per point.

    Returns
    -------
    int64, indices; their costs and rewards rise strictly.

    Notes
    -----
    A sort by cost, then by falling reward, and a running maximum. O(n log n).

    Examples
    --------
    >>> find_nondominated(np.array([5, 0, 5, 9, 7]), np.array([3, 1, 4, 4, 6])).tolist()
    [1, 2, 4]
    """
    order = np.lexsort((-rewards, costs))
    ordered = rewards[order]
    best_before = np.maximum.accumulate(ordered)[:-1]
    return order[np.concatenate([[True] * min(1, ordered.size), ordered[1:] > best_before]).astype(np.bool_)]


def build_curve(costs: IntArray, rewards: IntArray, *, total_thinking_tokens: int, total_probes: int) -> Curve:
    """Return the step curve through the nondominated ones of any points; one of them must cost 0.

    Examples
    --------
    >>> points = np.array([0, 60, 40, 80]), np.array([2, 4, 5, 5])
    >>> build_curve(*points, total_thinking_tokens=100, total_probes=8).cost.tolist()
    [0, 40]
    """
    kept = find_nondominated(costs, rewards)
    return Curve(costs[kept], rewards[kept], total_thinking_tokens, total_probes)


def upper_hull(costs: IntArray, rewards: IntArray, *, total_thinking_tokens: int, total_probes: int) -> HullCurve:
    """Return the upper concave hull of any points up to their highest one; one of them must cost 0.

    Of several highest points the cheapest ends the hull. Points on a segment's inside are no vertices.

    Notes
    -----
    Monotone chain over the nondominated points with exact integer cross products. O(n log n).

    Examples
    --------
    The point (40, 3) lies below the line from (0, 2) to (80, 6), and (90, 6) is no better than (80, 6).

    >>> points = np.array([0, 40, 80, 90]), np.array([2, 3, 6, 6])
    >>> upper_hull(*points, total_thinking_tokens=100, total_probes=8).cost.tolist()
    [0, 80]
    """
    kept = find_nondominated(costs, rewards)
    vertices: list[tuple[int, int]] = []
    for cost, reward in zip(costs[kept].tolist(), rewards[kept].tolist(), strict=True):
        while len(vertices) > 1 and _is_below(vertices[-1], vertices[-2], (cost, reward)):
            vertices.pop()
        vertices.append((cost, reward))
    points = np.array(vertices, dtype=np.int64).reshape(-1, 2)
    return HullCurve(points[:, 0], points[:, 1], total_thinking_tokens, total_probes)


def _is_below(point: tuple[int, int], left: tuple[int, int], right: tuple[int, int]) -> bool:
    """Whether the point lies on or below the line from left to right."""
    return (point[1] - left[1]) * (right[0] - left[0]) <= (right[1] - left[1]) * (point[0] - left[0])


def mean_area(curves: Sequence[AnyCurve]) -> Fraction:
    """Return the mean of the cells' areas, exact; it is the area under their mean curve."""
    return _mean([curve.area() for curve in curves])


def mean_accuracy_at(curves: Sequence[AnyCurve], beta: Fraction) -> Fraction:
    """Return the mean of the cells' accuracies at the same relative budget in 0..1, exact."""
    return _mean([curve.accuracy_at(beta) for curve in curves])


def max_accuracy(curves: Sequence[AnyCurve]) -> Fraction:
    """Return the mean curve's largest value, exact: its value at beta = 1."""
    return _mean([Fraction(int(curve.correct[-1]), curve.total_probes) for curve in curves])


def _mean(values: Sequence[Fraction]) -> Fraction:
    if not values:
        raise ValueError("no cell, no mean")
    return sum(values, start=Fraction(0)) / len(values)


def mean_accuracy_at_grid(curves: Sequence[AnyCurve], n_intervals: int) -> FloatArray:
    """Return the mean of the cells' accuracies at beta = i/N for i = 0..N, float64 of N + 1 entries in 0..1.

    Notes
    -----
    Step curves are added in integers over their common denominator and divided once; hulls are added as floats.
    """
    steps = [curve for curve in curves if isinstance(curve, Curve)]
    mean: FloatArray
    if len(steps) < len(curves):
        mean = np.mean([curve.accuracy_at_grid(n_intervals) for curve in curves], axis=0)
        return mean
    weights, denominator = _common_weights(steps)
    scaled = [_integers(c.correct_at_grid(n_intervals), denominator) * w for c, w in zip(steps, weights, strict=True)]
    mean = (np.sum(scaled, axis=0) / denominator).astype(np.float64)
    return mean


def _require_some(curves: Sequence[AnyCurve]) -> Sequence[AnyCurve]:
    if not curves:
        raise ValueError("no cell, no mean")
    return curves


def _common_weights(curves: Sequence[AnyCurve]) -> tuple[list[int], int]:
    """Return the weights w and the denominator d for which the mean accuracy is sum(w * correct) / d."""
    shared = math.lcm(*(curve.total_probes for curve in _require_some(curves)))
    return [shared // curve.total_probes for curve in curves], shared * len(curves)


def find_beta_match(curves: Sequence[Curve], target: Fraction) -> Fraction | None:
    """Return the least relative budget at which the mean curve reaches the target accuracy, or None if it never does.

    Found on the union of the cells' breakpoints, exactly. A target at or below the value at 0 gives 0.

    Examples
    --------
    At beta = 1/2 the second cell rises to 4/4, and the mean to (1/4 + 1) / 2 = 5/8.

    >>> first = Curve(np.array([0, 60]), np.array([1, 4]), 80, 4)
    >>> second = Curve(np.array([0, 5]), np.array([0, 4]), 10, 4)
    >>> find_beta_match([first, second], Fraction(5, 8)), find_beta_match([first], Fraction(1, 2))
    (Fraction(1, 2), Fraction(3, 4))
    """
    union = _unite(curves)
    needed = -(-target.numerator * union.denominator // target.denominator)
    if needed > int(union.scaled[-1]):
        return None
    idx = int(np.searchsorted(union.scaled, needed, side="left"))
    return Fraction(int(union.cost[idx]), int(union.total[idx]))


def find_beta_sat(curves: Sequence[Curve]) -> Fraction:
    """Return the least relative budget at which the mean curve is at its largest value, exact.

    The mean is there when every cell is, so this is the largest of the cells' last breakpoints.

    Examples
    --------
    >>> find_beta_sat([Curve(np.array([0, 60]), np.array([1, 4]), 80, 4), Curve(np.array([0]), np.array([2]), 0, 4)])
    Fraction(3, 4)
    """
    _require_some(curves)
    return max(Fraction(int(c.cost[-1]), max(c.total_thinking_tokens, 1)) for c in curves)


def mean_steps(curves: Sequence[Curve]) -> StepSeries:
    """Return the mean curve's steps: the union of the cells' breakpoints, equal ones merged, in exact order.

    Returns
    -------
    StepSeries whose entries are the correctly ordered budgets, each rounded to float64 once (budgets nearer to one
    another than float64 can tell stay separate entries), and the mean accuracies from there on.

    Examples
    --------
    Both cells rise at one half, where the mean goes from (1/4 + 0) / 2 to (4/4 + 3/4) / 2.

    >>> steps = mean_steps([
    ...     Curve(np.array([0, 40]), np.array([1, 4]), 80, 4), Curve(np.array([0, 5]), np.array([0, 3]), 10, 4)
    ... ])
    >>> steps.beta.tolist(), steps.accuracy.tolist()
    ([0.0, 0.5], [0.125, 0.875])
    """
    union = _unite(curves)
    return StepSeries(
        beta=union.cost / union.total,
        accuracy=(union.scaled / union.denominator).astype(np.float64),
    )


@dataclass(frozen=True, eq=False)
class _Union:
    """The mean step curve of some cells: value scaled / denominator from the relative budget cost / total on."""

    cost: IntArray
    total: IntArray
    scaled: NDArray[Any]
    denominator: int


def _unite(curves: Sequence[Curve]) -> _Union:
    weights, denominator = _common_weights(curves)
    rewards = [_integers(c.correct, denominator) * w for c, w in zip(curves, weights, strict=True)]
    gains = np.concatenate([np.diff(r) for r in rewards])
    cost = np.concatenate([c.cost[1:] for c in curves])
    total = np.concatenate([np.full(len(c.cost) - 1, c.total_thinking_tokens) for c in curves])
    keys = _sort_keys(cost, total)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    # Of equal budgets only the last entry counts: by then every cell that rises there has risen.
    ends = np.flatnonzero(np.concatenate([keys[1:] != keys[:-1], [True] * min(1, order.size)]))
    start = sum(int(r[0]) for r in rewards)
    return _Union(
        cost=np.concatenate([[0], cost[order][ends]]).astype(np.int64),
        total=np.concatenate([[1], total[order][ends]]).astype(np.int64),
        scaled=np.concatenate([[start], start + np.cumsum(gains[order])[ends]]).astype(gains.dtype),
        denominator=denominator,
    )


def _sort_keys(cost: IntArray, total: IntArray) -> NDArray[Any]:
    """Return keys that order the rationals cost / total (each in 0..1) exactly, equal keys for equal rationals.

    Notes
    -----
    Two different rationals lie at least 1 / (total_1 * total_2) apart, so with totals up to 2**31 the integers
    ``floor(cost * 2**62 / total)`` differ too. Long division in two digits of 31 bits keeps them inside int64. Larger
    totals take Python's fractions.
    """
    if cost.size and int(total.max()) > 2**31:
        fractions = np.empty(cost.size, dtype=object)
        fractions[:] = [Fraction(c, t) for c, t in zip(cost.tolist(), total.tolist(), strict=True)]
        return fractions
    high, remainder = np.divmod(cost << 31, total)
    return (high << 31) + (remainder << 31) // total
