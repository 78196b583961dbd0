"""Shared ranks: methods whose difference the replicates cannot tell from zero have the same rank."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from app.evaluator.centring import MOST_UNDEFINED, PERCENTILES
from app.evaluator.compiled import compiled
from app.evaluator.measurements import IntArray

FloatArray = NDArray[np.float64]


def compare_pairs(values: FloatArray) -> IntArray:
    """Return shared ranks: 1 + the number of methods that are better by a 95 % interval of the paired difference.

    Parameters
    ----------
    values : float64, methods x replicates: the ranking figure, larger is better, replicate by replicate on the same
        draws; NaN where undefined. A pair is compared on the replicates in which both have the figure; where that
        leaves more than 5 % out, neither is better.

    Returns
    -------
    int64, one rank >= 1 per method; at least one is 1 unless there is no method.

    Raises
    ------
    ValueError : not a matrix.

    Notes
    -----
    Section 5. The interval of a difference lies above zero if its 2.5th percentile (interpolated linearly) does. That
    takes no sorting: one pass counts the differences up to zero and those from zero on, which serves either of the two
    methods. Only where zero lies between the two differences that the percentile does, a second pass finds these.
    O(methods^2 x replicates).

    Examples
    --------
    The first method is better than the third in all replicates; the second cannot be told from either.

    >>> compare_pairs(np.array([[3.0, 3.0, 4.0], [1.0, 9.0, 2.0], [2.0, 1.0, 2.0]])).tolist()
    [1, 1, 2]
    """
    if values.ndim != 2:
        raise ValueError(f"expected methods x replicates, got shape {values.shape}")
    n_methods, n_replicates = values.shape
    ranks = np.ones(n_methods, np.int64)
    fewest = math.ceil((1 - MOST_UNDEFINED) * n_replicates - 1e-9)
    _count_better(np.ascontiguousarray(values, np.float64), max(fewest, 1), PERCENTILES[0] / 100, ranks)
    return ranks


@compiled
def _count_better(values: FloatArray, fewest: int, share: float, ranks: IntArray) -> None:
    """Add to each method's rank the number of methods that are better."""
    n_methods, n_replicates = values.shape
    for a in range(n_methods):
        mine = values[a]
        for b in range(a + 1, n_methods):
            theirs = values[b]
            up_to_zero = from_zero = equal = np.int64(0)
            for r in range(n_replicates):
                up_to_zero += theirs[r] <= mine[r]
                from_zero += theirs[r] >= mine[r]
                equal += theirs[r] == mine[r]
            n = up_to_zero + from_zero - equal
            if n >= fewest:
                ranks[a] += _is_better(theirs, mine, n, up_to_zero, share)
                ranks[b] += _is_better(mine, theirs, n, from_zero, share)


@compiled
def _is_better(values: FloatArray, others: FloatArray, n: int, n_below: int, share: float) -> bool:
    """Whether the percentile of the differences, n in all and so many of them up to zero, lies above zero."""
    # It lies between the sorted differences number k and k + 1, counted from 0.
    place = share * (n - 1)
    k = int(place)
    if n_below <= k:
        return True
    if n_below > k + 1 or n_below == n:
        return False
    below = -np.inf
    above = np.inf
    for r in range(values.size):
        difference = values[r] - others[r]
        if difference > 0.0:
            above = min(above, difference)
        elif difference <= 0.0:
            below = max(below, difference)
    return bool(below + (above - below) * (place - k) > 0.0)
