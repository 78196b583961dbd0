"""The greedy path of a cell: the segments of all units' concave hulls, cheapest reward first."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.evaluator.compiled import compiled
from app.evaluator.frontier import UnitActions
from app.evaluator.measurements import IntArray

FloatArray = NDArray[np.float64]
IndexArray = NDArray[np.uint32]

_MOST_CHUNKS = 8
_SEGMENTS_PER_CHUNK = 24
_FEWEST_SEGMENTS = 4
_LEAST_WIDTH = 1e-4


class Path(NamedTuple):
    """All units' hull segments by increasing slope, and where taking them one after the other leads.

    No combination that gains as much costs less than the straight lines between the path's points, and its points
    themselves are combinations: they are on the frontier.

    Attributes
    ----------
    cost, gain : int64, segments + 1: totals at the segments' ends above those of no thinking, 0 first.
    slope : float64, retained tokens per correct probe of each segment, never falling; of equal ones the earlier unit's
        comes first.
    first, last : uint32, the actions (indices into the `UnitActions`) that each segment joins.
    before : uint32, the place in this order of the same unit's segment before; a unit's first segment has its own.
    copies : uint32, how many there are of its unit, at least 1.
    inside : float64, how far the best of the actions inside the segment lies below it in correct probes; infinity
        without one.
    below : float64, one per action of the `UnitActions`: how far it lies below its segment in correct probes, 0 for a
        segment's ends and for the actions of units without a copy.
    """

    cost: IntArray
    gain: IntArray
    slope: FloatArray
    first: IndexArray
    last: IndexArray
    before: IndexArray
    copies: IndexArray
    inside: FloatArray
    below: FloatArray


def build_path(actions: UnitActions, multiplicity: IntArray) -> Path:
    """Return the greedy path, each unit counted so many times (int64, one number >= 0 per unit).

    An action exactly on a segment is inside it, 0 below.

    Notes
    -----
    Hulls by a monotone chain with integer cross products. Segments are sorted by their slopes in single precision,
    which takes a tenth of the time of an exact sort, and put right by exact comparison of neighbours.
    O(actions + segments log segments).

    Examples
    --------
    Stopping at 10 for two probes more lies below the line from (0, 0) to (20, 9), which reaches 4.5 there.

    >>> cost, reward = [0, 10, 20, 30, 0, 9], [0, 2, 9, 10, 1, 4]
    >>> actions = UnitActions(*map(np.array, ([0, 4, 6], cost, reward, [0, 1, 2, 3, 0, 1])))
    >>> path = build_path(actions, np.array([1, 2]))
    >>> path.cost.tolist(), path.gain.tolist(), path.slope.round(2).tolist()
    ([0, 20, 38, 48], [0, 9, 15, 16], [2.22, 3.0, 10.0])
    >>> path.before.tolist(), path.below.tolist()
    ([0, 1, 0], [0.0, 2.5, 0.0, 0.0, 0.0, 0.0])
    """
    first, last, copies, keys = _find_segments(actions.offsets, actions.cost, actions.reward, multiplicity)
    keys.sort()
    return Path(*_walk(first, last, copies, keys, actions.cost, actions.reward))


def plan_chunks(path: Path) -> tuple[IntArray, FloatArray]:
    """Cut the path into chunks, short ones first, and say how wide bands in each may have to be.

    Returns
    -------
    int64, chunks + 1: the segments where chunks begin, and the number of segments. float64, one width per chunk, in
    correct probes. A band of some ten widths is mostly enough; the whole gain of a path of few segments always is.

    Notes
    -----
    How far the frontier lies below the bound is about as many segments' gains as there are segments whose slopes are
    all but equal: in proportion to the mean gain, and to how far slopes lie apart.

    Examples
    --------
    >>> actions = UnitActions(*map(np.array, ([0, 2, 4], [0, 10, 0, 6], [0, 2, 1, 4], [0, 1, 0, 1])))
    >>> breaks, widths = plan_chunks(build_path(actions, np.array([1, 2])))
    >>> breaks.tolist(), widths.tolist()
    ([0, 2], [8.0])
    """
    plan: tuple[IntArray, FloatArray] = _plan_chunks(path.gain, path.slope)
    return plan


@compiled
def _plan_chunks(gain: IntArray, slope: FloatArray) -> tuple[IntArray, FloatArray]:
    n = slope.size
    most = min(max(n // _SEGMENTS_PER_CHUNK, 1), _MOST_CHUNKS)
    breaks = np.zeros(most + 1, np.int64)
    widths = np.zeros(most, np.float64)
    n_chunks = 0
    for c in range(1, most + 1):
        stop = np.int64(np.ceil(n * (c / most) ** 3))
        if stop > breaks[n_chunks]:
            n_chunks += 1
            breaks[n_chunks] = stop
    for c in range(n_chunks):
        # A few segments more than a short chunk has tell better how dense they lie.
        first = max(min(breaks[c], breaks[c + 1] - _FEWEST_SEGMENTS), 0)
        last = min(max(breaks[c + 1], breaks[c] + _FEWEST_SEGMENTS), n)
        spread = np.log(slope[last - 1] / slope[first])
        mean = (gain[last] - gain[first]) / (last - first)
        widths[c] = max(mean * spread / (last - first), _LEAST_WIDTH)
    if most == 1 and n > 0:
        widths[0] = gain[n]
    return breaks[: n_chunks + 1], widths[:n_chunks]


@compiled
def _find_segments(
    offsets: IntArray, cost: IntArray, reward: IntArray, multiplicity: IntArray
) -> tuple[IndexArray, IndexArray, IndexArray, NDArray[np.uint64]]:
    """List the segments by unit, as first and last action and copies, and keys to sort them by.

    Hulls are built as stacks. A key holds the segment's number below the bits of its slope in single precision, which
    rise as slopes do.
    """
    first = np.empty(cost.size, np.uint32)
    last = np.empty(cost.size, np.uint32)
    copies = np.empty(cost.size, np.uint32)
    slopes = np.empty(2 * cost.size, np.float32)
    n = 0
    for unit in range(offsets.size - 1):
        if multiplicity[unit] == 0:
            continue
        bottom = n
        for action in range(offsets[unit] + 1, offsets[unit + 1]):
            start = action - 1
            dc = cost[action] - cost[start]
            dr = reward[action] - reward[start]
            # A segment no cheaper per probe than what comes after it is not on the hull: the two become one.
            while n > bottom:
                earlier = first[n - 1]
                if dc * (reward[start] - reward[earlier]) > (cost[start] - cost[earlier]) * dr:
                    break
                n -= 1
                start = int(earlier)
                dc = cost[action] - cost[start]
                dr = reward[action] - reward[start]
            first[n], last[n], copies[n] = start, action, multiplicity[unit]
            slopes[2 * n + 1] = np.float32(dc / dr)
            n += 1
    keys = slopes[: 2 * n].view(np.uint64)
    for k in range(n):
        keys[k] = keys[k] & np.uint64(0xFFFFFFFF00000000) | np.uint64(k)
    return first[:n], last[:n], copies[:n], keys


@compiled
def _walk(
    first: IndexArray,
    last: IndexArray,
    copies: IndexArray,
    keys: NDArray[np.uint64],
    action_cost: IntArray,
    action_reward: IntArray,
) -> tuple[IntArray, IntArray, FloatArray, IndexArray, IndexArray, IndexArray, IndexArray, FloatArray, FloatArray]:
    """Put a nearly sorted order right and list the segments in it."""
    n = keys.size
    order = np.empty(n, np.uint32)
    added_cost = np.empty(n, np.int64)
    added_gain = np.empty(n, np.int64)
    for i in range(n):
        k = np.uint32(keys[i] & np.uint64(0xFFFFFFFF))
        dc = action_cost[last[k]] - action_cost[first[k]]
        dr = action_reward[last[k]] - action_reward[first[k]]
        j = i
        while j > 0 and added_cost[j - 1] * dr > dc * added_gain[j - 1]:
            order[j], added_cost[j], added_gain[j] = order[j - 1], added_cost[j - 1], added_gain[j - 1]
            j -= 1
        order[j], added_cost[j], added_gain[j] = k, dc, dr
    place = np.empty(n, np.uint32)
    cost = np.zeros(n + 1, np.int64)
    gain = np.zeros(n + 1, np.int64)
    slope = np.empty(n, np.float64)
    before = np.empty(n, np.uint32)
    inside = np.full(n, np.inf)
    below = np.zeros(action_cost.size, np.float64)
    for i in range(n):
        k = order[i]
        place[k] = i
        cost[i + 1] = cost[i] + copies[k] * added_cost[i]
        gain[i + 1] = gain[i] + copies[k] * added_gain[i]
        slope[i] = added_cost[i] / added_gain[i]
        # A unit's segments meet, and the earlier one is the less steep: it has its place already.
        before[i] = place[k - 1] if k > 0 and last[k - 1] == first[k] else i
        start = first[k]
        for action in range(start + 1, last[k]):
            reach = (action_cost[action] - action_cost[start]) / slope[i]
            below[action] = reach - (action_reward[action] - action_reward[start])
            inside[i] = min(inside[i], below[action])
    ordered = np.empty((3, n), np.uint32)
    for i in range(n):
        ordered[0, i], ordered[1, i], ordered[2, i] = first[order[i]], last[order[i]], copies[order[i]]
    return cost, gain, slope, ordered[0], ordered[1], before, ordered[2], inside, below
