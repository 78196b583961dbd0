"""Two methods on the same replicates: the interval of their difference, and which of them is better."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.evaluator.centring import Interval, find_percentiles

FloatArray = NDArray[np.float64]


def find_difference(first: FloatArray, second: FloatArray) -> Interval | None:
    """Return the 95 % interval of the first's figure minus the second's, replicate by replicate on the same draws.

    The very interval that shared ranks go by: one that lies above zero says that the first is better. Replicates in
    which either figure is undefined (NaN) are left out; None where they are more than 5 %, and where the numbers of
    replicates differ, so that nothing is paired.

    Notes
    -----
    Section 5. O(replicates).

    Examples
    --------
    >>> find_difference(np.array([3.0, 4.0, 5.0]), np.array([1.0, 2.0, 3.0]))
    Interval(low=2.0, high=2.0)
    >>> find_difference(np.array([3.0, np.nan]), np.array([1.0, 2.0])) is None
    True
    """
    return None if len(first) != len(second) else find_percentiles(first - second)
