"""The 95 % interval of a figure: percentiles of its replicates, moved so that their median lies on the figure."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

INTERVAL_VERSION = "3"
"""Changes whenever the same replicates could get another interval; stored ones of another version count as missing."""

PERCENTILES = (2.5, 97.5)
MOST_UNDEFINED = 0.05
"""A figure that is undefined in a larger share of the replicates has no interval."""

FRACTION = (0.0, 1.0)
RANGES = {
    "realised_potential": (-math.inf, 1.0),
    "mean_thinking_tokens": (0.0, math.inf),
    "best_e3": (0.0, math.inf),
}
"""Which values a figure can take, by its name; all others are fractions."""


@dataclass(frozen=True)
class Interval:
    """The ends of a 95 % interval, in the figure's unit."""

    low: float
    high: float


def find_percentiles(values: FloatArray) -> Interval | None:
    """Return the 2.5th and the 97.5th percentile of a figure over replicates, leaving undefined ones (NaN) out.

    None where more than 5 % of the replicates are undefined. Percentiles interpolate linearly.

    Examples
    --------
    >>> find_percentiles(np.arange(41.0))
    Interval(low=1.0, high=39.0)
    >>> find_percentiles(np.array([1.0, np.nan])) is None
    True
    """
    defined = _list_defined(values)
    if defined is None:
        return None
    low, high = np.percentile(defined, PERCENTILES).tolist()
    return Interval(low, high)


def find_interval(
    values: FloatArray, estimate: float | None, *, limits: tuple[float, float] = FRACTION
) -> Interval | None:
    """Return the interval of a figure: percentiles of its replicates, moved by the figure minus their median.

    Replicates of some figures lie to one side of the figure, since trajectories drawn with replacement are fewer
    different ones. The move takes this off again; it leaves the interval as wide as it is and the figure inside it.

    Parameters
    ----------
    values : the figure in each replicate; NaN where it is undefined.
    estimate : the figure itself, from the data; None where it is undefined.
    limits : the least and the largest value that the figure can take, to which the interval is cut.

    Returns
    -------
    Interval, or None where the figure, or more than 5 % of its replicates, are undefined.

    Notes
    -----
    Section 5. O(replicates).

    Examples
    --------
    The middle of 0.2 to 0.6 is 0.4; the figure is 0.5. That of the second is 0.1, too close to 0.

    >>> replicates = np.linspace(0.2, 0.6, 41)
    >>> interval = find_interval(replicates, 0.5)
    >>> round(interval.low, 9), round(interval.high, 9)
    (0.31, 0.69)
    >>> find_interval(replicates, 0.1).low
    0.0
    """
    defined = _list_defined(values)
    if defined is None or estimate is None:
        return None
    low, median, high = np.percentile(defined, (PERCENTILES[0], 50.0, PERCENTILES[1])).tolist()
    move = estimate - median
    # An estimate at a limit may have been rounded past it; it stays inside all the same.
    return Interval(min(max(low + move, limits[0]), estimate), max(min(high + move, limits[1]), estimate))


def find_band(values: FloatArray, estimates: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the lower and upper ends of the intervals of several fractions, each by itself.

    Parameters
    ----------
    values : float64, replicates x figures, all defined.
    estimates : float64, one a figure, from the data.

    Examples
    --------
    >>> low, high = find_band(np.linspace([0.2, 0.0], [0.6, 0.0], 41), np.array([0.5, 0.25]))
    >>> np.round(low, 9).tolist(), np.round(high, 9).tolist()
    ([0.31, 0.25], [0.69, 0.25])
    """
    # A figure's replicates side by side are partitioned several times as fast.
    low, median, high = np.percentile(
        np.ascontiguousarray(values.T), (PERCENTILES[0], 50.0, PERCENTILES[1]), axis=1, overwrite_input=True
    )
    move = estimates - median
    least, most = FRACTION
    return np.minimum(np.maximum(low + move, least), estimates), np.maximum(np.minimum(high + move, most), estimates)


def _list_defined(values: FloatArray) -> FloatArray | None:
    """Return the defined values, or None where they are too few."""
    defined = values[~np.isnan(values)]
    if len(defined) == 0 or len(values) - len(defined) > MOST_UNDEFINED * len(values):
        return None
    return defined
