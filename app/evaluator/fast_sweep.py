"""The windowed program behind the fast frontiers: what lies within a band below the bound, chunk by chunk.

A chunk is a stretch of the path; the slopes in it are those of its segments. Its band is how many correct probes a
combination may lie below the bound. `docs/exactness.md` tells why this finds every point of the frontier.

The file is long because compiled code kept on disk is only made anew when the file of its outermost function changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.evaluator.compiled import compiled, compiled_part
from app.evaluator.fast_path import FloatArray, IndexArray, Path
from app.evaluator.frontier import UnitActions
from app.evaluator.measurements import IntArray

# Floats only decide what may be left out. They decide it this much more generously than they need to.
_WIDER = 1e-9
_SLACK = 1e-6
_OPEN, _TAKEN, _CLOSED = 0, 1, 2
_N_BUCKETS = 256
# Loops over a multiple of this many integers have no remainder, which would be done one by one. Behind the rewards lie
# as many entries more.
_VECTOR = 32
_VECTORS = np.uint64(2**64 - _VECTOR)


class Rules(NamedTuple):
    """How bands are chosen, which decides how fast frontiers are found, and not which.

    Attributes
    ----------
    first_ratio : a chunk's first band, as a multiple of its width.
    growth : what a band that proves too narrow is multiplied with, unless less is enough.
    """

    first_ratio: float
    growth: float


class Chunk(NamedTuple):
    """The path's segments start..stop-1, their least slope, the slope after them (at the end, the last), and a band."""

    start: int
    stop: int
    low: float
    high: float
    band: float


class Room(NamedTuple):
    """Scratch space, per segment and per group of segments.

    Attributes
    ----------
    state, lower, upper : a segment's state, and the slopes between which it is open.
    group : the group that a segment is in.
    first, last, copies : a group's first and last action, and how many copies of it there are.
    cost, gain : what a group's last action costs and gains above its first.
    opens : the slope at which a group opens.
    order : the groups by where they open.
    """

    state: NDArray[np.int8]
    lower: FloatArray
    upper: FloatArray
    group: IndexArray
    first: IndexArray
    last: IndexArray
    copies: IndexArray
    cost: IntArray
    gain: IntArray
    opens: FloatArray
    order: IndexArray


class Groups(NamedTuple):
    """How many groups a chunk has, cost and gain of what is taken in any case, and the groups' order.

    Bucket b of the order, ``order[ends[b - 1]:ends[b]]``, has the groups that open at slope ``lowest + b * width`` or
    above it, and below the next.
    """

    n: int
    cost: int
    gain: int
    lowest: float
    width: float
    ends: IntArray


def sweep_chunks(
    actions: UnitActions,
    path: Path,
    *,
    base_reward: int,
    breaks: IntArray,
    widths: FloatArray,
    rules: Rules,
    unreachable: np.int32 | np.int64,
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Return the frontier's costs and rewards, and each chunk's band and the band it needed.

    Parameters
    ----------
    base_reward : the reward of no thinking.
    breaks : int64, chunks + 1, rising: chunk c has the path's segments ``breaks[c]:breaks[c + 1]``; all of the path's.
    widths : float64, per chunk: the scale of bands in it.
    unreachable : an integer above the path's last cost, twice of which fits into its type; the program uses this type.

    Examples
    --------
    >>> from app.evaluator.fast_path import build_path
    >>> actions = UnitActions(*map(np.array, ([0, 2, 4], [0, 10, 0, 6], [0, 2, 1, 4], [0, 1, 0, 1])))
    >>> cost, reward, band, needed = sweep_chunks(
    ...     actions,
    ...     build_path(actions, np.array([1, 1])),
    ...     base_reward=1,
    ...     breaks=np.array([0, 2]),
    ...     widths=np.array([1.0]),
    ...     rules=Rules(first_ratio=3.0, growth=2.0),
    ...     unreachable=np.int32(2**29),
    ... )
    >>> cost.tolist(), reward.tolist(), band.tolist(), needed.round(6).tolist()
    ([0, 6, 16], [1, 4, 6], [3.0], [2.0])
    """
    # By name, so that compiled code kept on disk stays right when the path's fields are put in another order.
    points_and_bands: tuple[IntArray, IntArray, FloatArray, FloatArray] = _sweep_chunks(
        actions.cost, actions.reward, base_reward, breaks, widths, *rules, unreachable, **path._asdict()
    )
    return points_and_bands


@compiled
def _sweep_chunks(
    action_cost: IntArray,
    action_reward: IntArray,
    base_reward: int,
    breaks: IntArray,
    widths: FloatArray,
    first_ratio: float,
    growth: float,
    unreachable: Any,
    cost: IntArray,
    gain: IntArray,
    slope: FloatArray,
    first: IndexArray,
    last: IndexArray,
    before: IndexArray,
    copies: IndexArray,
    inside: FloatArray,
    below: FloatArray,
) -> tuple[IntArray, IntArray, FloatArray, FloatArray]:
    """Solve chunk by chunk, from the last to the first, each until its band is wide enough."""
    path = Path(cost, gain, slope, first, last, before, copies, inside, below)
    n_segments = slope.size
    n_chunks = breaks.size - 1
    points = np.empty((2, gain[-1] + 1), np.int64)
    bands = np.empty(n_chunks, np.float64)
    needed = np.empty(n_chunks, np.float64)
    index = np.empty((5, n_segments), np.uint32)
    ends = np.empty((3, n_segments), np.float64)
    totals = np.empty((2, n_segments), np.int64)
    state = np.empty(n_segments, np.int8)
    room = Room(
        state, ends[0], ends[1], index[0], index[1], index[2], index[3], totals[0], totals[1], ends[2], index[4]
    )
    at = points.shape[1]
    for c in range(n_chunks - 1, -1, -1):
        start, stop = breaks[c], breaks[c + 1]
        high = slope[min(stop, n_segments - 1)]
        band = widths[c] * first_ratio
        while True:
            chunk = Chunk(start, stop, slope[start], high, band)
            groups = _find_groups(action_cost, action_reward, path, chunk, room)
            least = _sweep(action_cost, action_reward, path, chunk, groups, room, unreachable)
            end, need = _trace(path, chunk, groups.cost, base_reward, least, points, at)
            # Rounded up, so that what is enough in floats is enough in fractions too.
            need = need * (1 + _WIDER) + _WIDER
            if need <= band:
                break
            # What a narrow band seems to need is too much: it shrinks as better points come into reach.
            band = min(need, max(growth * band, need / 16))
        at = end
        bands[c] = band
        needed[c] = need
    return points[0, at:], points[1, at:], bands, needed


@compiled_part
def _find_groups(action_cost: IntArray, action_reward: IntArray, path: Path, chunk: Chunk, room: Room) -> Groups:
    """Find what is open in the chunk."""
    # An increment gains at least one probe, so outside these slopes every segment is surely taken, or surely not.
    start = chunk.start
    while start > 0 and path.slope[start - 1] >= chunk.low * (1 - _WIDER) * (1 - chunk.band):
        start -= 1
    stop = chunk.stop
    while stop < path.slope.size and path.slope[stop] <= chunk.high * (1 + _WIDER) * (1 + chunk.band):
        stop += 1
    _find_states(path, chunk, start, stop, room)
    _widen_ends(action_cost, action_reward, path, chunk, start, stop, room)
    _repair_ends(path, start, stop, room)
    n, cost, gain = _join_segments(path, start, stop, room)
    lowest, width, ends = _sort_groups(room, n, chunk.high)
    return Groups(n, cost, gain, lowest, width, ends)


@compiled_part
def _find_states(path: Path, chunk: Chunk, start: int, stop: int, room: Room) -> None:
    """Decide for each segment on its own between which slopes it may be taken or left."""
    slopes, copies = path.slope[start:stop], path.copies[start:stop]
    gains = path.gain[start : stop + 1]
    states, lowers, uppers = room.state[start:stop], room.lower[start:stop], room.upper[start:stop]
    low, high, band = chunk.low * (1 - _WIDER), chunk.high * (1 + _WIDER), chunk.band
    for i in range(slopes.size):
        gain = np.float64(gains[i + 1] - gains[i])
        if copies[i] > 1:
            gain /= copies[i]
        cost = slopes[i] * gain
        # Taken at slope s it loses cost - s * gain, left s * gain - cost: at most s * band may be lost in all.
        lowers[i] = cost / (gain + band) * (1 - _WIDER)
        uppers[i] = cost / (gain - band) * (1 + _WIDER) if gain > band else np.inf
        states[i] = _CLOSED if lowers[i] > high else _TAKEN if uppers[i] < low else _OPEN


@compiled_part
def _widen_ends(
    action_cost: IntArray, action_reward: IntArray, path: Path, chunk: Chunk, start: int, stop: int, room: Room
) -> None:
    """Open segments also where an action inside them may be chosen."""
    low, high, band = chunk.low * (1 - _WIDER), chunk.high * (1 + _WIDER), chunk.band
    insides, below = path.inside[start:stop], path.below
    for k in range(insides.size):
        if insides[k] > band:
            continue
        i = start + k
        first, last = path.first[i], path.last[i]
        lower, upper = room.lower[i], room.upper[i]
        for j in range(first + 1, last):
            if below[j] <= band:
                more = action_reward[j] - action_reward[first] + band
                lower = min(lower, (action_cost[j] - action_cost[first]) / more * (1 - _WIDER))
                rest = action_reward[last] - action_reward[j] - band
                end = (action_cost[last] - action_cost[j]) / rest * (1 + _WIDER) if rest > 0 else np.inf
                upper = max(upper, end)
        room.lower[i], room.upper[i] = lower, upper
        room.state[i] = _CLOSED if lower > high else _TAKEN if upper < low else _OPEN


@compiled_part
def _repair_ends(path: Path, start: int, stop: int, room: Room) -> None:
    """Make ends rise along a unit: nothing is taken before what comes before it, nor left after what comes after it."""
    before, state, lower, upper = path.before, room.state, room.lower, room.upper
    for i in range(start, stop):
        k = before[i]
        if start <= k < i:
            lower[i] = max(lower[i], lower[k])
            if state[k] == _CLOSED:
                state[i] = _CLOSED
    for i in range(stop - 1, start - 1, -1):
        k = before[i]
        if start <= k < i:
            upper[k] = min(upper[k], upper[i])
            if state[i] == _TAKEN:
                state[k] = _TAKEN


@compiled_part
def _join_segments(path: Path, start: int, stop: int, room: Room) -> tuple[int, int, int]:
    """Join a unit's open segments where they overlap; returns how many groups, and cost and gain of what is taken."""
    before, state, lower, upper, group = path.before, room.state, room.lower, room.upper, room.group
    n = 0
    cost, gain = path.cost[start], path.gain[start]
    for i in range(start, stop):
        if state[i] == _CLOSED:
            continue
        more_cost, more_gain = path.cost[i + 1] - path.cost[i], path.gain[i + 1] - path.gain[i]
        if state[i] == _TAKEN:
            cost += more_cost
            gain += more_gain
            continue
        if path.copies[i] > 1:
            more_cost //= path.copies[i]
            more_gain //= path.copies[i]
        k = before[i]
        if start <= k < i and state[k] == _OPEN and lower[i] <= upper[k]:
            g = group[i] = group[k]
            room.last[g] = path.last[i]
            room.cost[g] += more_cost
            room.gain[g] += more_gain
        else:
            group[i] = n
            room.first[n], room.last[n], room.copies[n] = path.first[i], path.last[i], path.copies[i]
            room.cost[n], room.gain[n], room.opens[n] = more_cost, more_gain, lower[i]
            n += 1
    return n, cost, gain


@compiled_part
def _sort_groups(room: Room, n: int, highest: float) -> tuple[float, float, IntArray]:
    """Sort groups by where they open into buckets of equal width; inside a bucket their order does not matter."""
    opens, bucket = room.opens[:n], room.group[:n]
    lowest = highest
    for g in range(n):
        lowest = min(lowest, opens[g])
    width = max(highest - lowest, 1e-300) / (_N_BUCKETS - 1)
    per_width = 1 / width
    ends = np.zeros(_N_BUCKETS + 1, np.int64)
    for g in range(n):
        bucket[g] = int(min((opens[g] - lowest) * per_width, _N_BUCKETS - 1))
        ends[bucket[g] + 1] += 1
    for b in range(_N_BUCKETS):
        ends[b + 1] += ends[b]
    for g in range(n):
        room.order[ends[bucket[g]]] = g
        ends[bucket[g]] += 1
    return lowest, width, ends


@compiled_part
def _sweep(
    action_cost: IntArray,
    action_reward: IntArray,
    path: Path,
    chunk: Chunk,
    groups: Groups,
    room: Room,
    unreachable: Any,
) -> Any:
    """Return the least cost, above what is taken in any case, of each gain between the chunk's ends.

    Groups are added in the order in which they open. Only gains left..right above what is taken are looked at: what is
    further left is too far below the bound at the slopes at which groups still open (or, at first, at the chunk's
    least), what is further right too far below it at the chunk's largest.
    """
    path_cost, path_gain, path_slope, below = path.cost, path.gain, path.slope, path.below
    heads, tails, copies, order = room.first, room.last, room.copies, room.order
    room_gain, room_cost = room.gain, room.cost
    bottom = path_gain[chunk.start] - groups.gain
    top = path_gain[chunk.stop] - groups.gain
    most, pad = _find_sizes(heads, tails, room.gain, groups.n)
    gains = np.empty(most, np.int64)
    costs = np.empty(most, np.int64)
    # Gain r lies at index r + pad, so that r minus a group's gain has an index too.
    old = np.full(pad + top + 1 + _VECTOR, unreachable)
    new = np.full(pad + top + 1 + _VECTOR, unreachable)
    least = np.full(top - bottom + 1, unreachable)
    old[pad] = 0
    left = right = np.int64(0)
    # Cost and gain of the groups so far at their best at the chunk's least and at its largest slope.
    low_cost = low_gain = high_cost = high_gain = np.int64(0)
    limit = chunk.band * (1 + _WIDER) + _SLACK
    p = _find_place_before(path_slope, np.int64(chunk.start), groups.lowest * (1 - _WIDER))
    k = _find_left_before(path_cost, path_gain, p, groups.lowest * (1 - _WIDER), limit)
    at = np.int64(0)
    for bucket in range(_N_BUCKETS):
        if at == groups.ends[bucket]:
            continue
        # Everything below this slope has been added: there the bound of the groups so far is the path itself.
        slope = (groups.lowest + bucket * groups.width) * (1 - _WIDER)
        p = _find_place(path_slope, p, slope)
        k = _find_left(path_cost, path_gain, k, p, slope, limit)
        end = min(path_gain[k] - groups.gain, top)
        if end > left:
            _copy(least, left - bottom, old, left + pad, end - left)
            left = end
        for position in range(at, groups.ends[bucket]):
            g = order[position]
            gains[0], costs[0] = room_gain[g], room_cost[g]
            n = _list_actions(action_cost, action_reward, below, heads[g], tails[g], chunk.band, gains, costs)
            low = _find_best(gains, costs, n, chunk.low)
            high = _find_best(gains, costs, n, chunk.high)
            for _ in range(copies[g]):
                right = min(right + gains[0], top)
                start, stop = left + pad, right + pad + 1
                _take_one(new, old, start, stop, gains[0], costs[0])
                for j in range(1, n - 1, 2):
                    _take_two(new, old, start, stop, gains[j], costs[j], gains[j + 1], costs[j + 1])
                if n % 2 == 0:
                    _take_last(new, old, start, stop, gains[n - 1], costs[n - 1])
                if low >= 0:
                    low_cost += costs[low]
                    low_gain += gains[low]
                if high >= 0:
                    high_cost += costs[high]
                    high_gain += gains[high]
                right = _trim_right(new, old, pad, right, high_gain, high_cost, chunk.high, limit)
                left = _trim_left(new, pad, left, low_gain, low_cost, chunk.low, limit)
                old, new = new, old
        at = groups.ends[bucket]
    _copy(least, left - bottom, old, left + pad, top + 1 - left)
    return least


@compiled_part
def _find_sizes(heads: IndexArray, tails: IndexArray, gains: IntArray, n: int) -> tuple[Any, Any]:
    """Return the most actions, and the largest gain, that a group has."""
    most = 1
    gain = np.int64(0)
    for g in range(n):
        most = max(most, np.int64(tails[g]) - heads[g])
        gain = max(gain, gains[g])
    return most, gain


@compiled_part
def _find_place(slopes: FloatArray, p: int, slope: float) -> int:
    """Move on to the first place whose slope is not below this one."""
    while p < slopes.size and slopes[p] < slope:
        p += 1
    return p


@compiled_part
def _find_place_before(slopes: FloatArray, p: int, slope: float) -> int:
    """Move back to the first place whose slope is not below this one."""
    while p > 0 and slopes[p - 1] >= slope:
        p -= 1
    return p


@compiled_part
def _find_left_before(path_cost: IntArray, path_gain: IntArray, p: int, slope: float, limit: float) -> int:
    """Move back from the path's point p to the first that lies further below the bound than the limit, or to 0."""
    per_token = 1 / slope
    k = p
    while k > 0 and path_gain[p] - path_gain[k] - (path_cost[p] - path_cost[k]) * per_token <= limit:
        k -= 1
    return k


@compiled_part
def _find_left(path_cost: IntArray, path_gain: IntArray, k: int, p: int, slope: float, limit: float) -> int:
    """Move on to the last point of the path, below its point p, that lies further below the bound than the limit."""
    per_token = 1 / slope
    while k + 1 < p and path_gain[p] - path_gain[k + 1] - (path_cost[p] - path_cost[k + 1]) * per_token > limit:
        k += 1
    return k


@compiled_part
def _copy(target: Any, start: int, source: Any, first: int, n: int) -> None:
    """Copy n entries, but not those that would lie before the target."""
    skipped = max(-start, 0)
    if n > skipped:
        to, there = np.uint64(start + skipped), np.uint64(first + skipped)
        for i in range(np.uint64(n - skipped)):
            target[to + i] = source[there + i]


@compiled_part
def _list_actions(
    action_cost: IntArray,
    action_reward: IntArray,
    below: FloatArray,
    head: Any,
    tail: Any,
    band: float,
    gains: IntArray,
    costs: IntArray,
) -> int:
    """List what a group's actions gain and cost above its first, behind the last action's, the dearest first.

    Actions that lie too far below their segment are left out. Returns how many there are with the last one.
    """
    n = 1
    for action in range(np.int64(tail) - 1, np.int64(head), -1):
        if below[action] <= band:
            gains[n] = action_reward[action] - action_reward[head]
            costs[n] = action_cost[action] - action_cost[head]
            n += 1
    return n


@compiled_part
def _find_best(gains: IntArray, costs: IntArray, n: int, slope: float) -> int:
    """Return which action costs least for its gain at this slope, -1 if none is better than none of them."""
    best = -1
    least = 0.0
    for j in range(n):
        if costs[j] - slope * gains[j] < least:
            best, least = j, costs[j] - slope * gains[j]
    return best


@compiled_part
def _trim_right(new: Any, old: Any, pad: int, right: int, gain: int, cost: int, slope: float, limit: float) -> int:
    """Drop the largest gains that lie too far below the bound through this gain and cost; returns the largest left."""
    unreachable = old[new.size - 1]
    while right > gain and new[right + pad] - cost - slope * (right - gain) > limit * slope:
        new[right + pad] = old[right + pad] = unreachable
        right -= 1
    return right


@compiled_part
def _trim_left(new: Any, pad: int, left: int, gain: int, cost: int, slope: float, limit: float) -> int:
    """Drop the least gains that lie too far below the bound through this gain and cost; returns the least left."""
    while left < gain and new[left + pad] - cost - slope * (left - gain) > limit * slope:
        left += 1
    return left


# Indices are unsigned, since negative ones count from the end and checking for them keeps a loop from being vectorised.
# Sums are cast back to the type of the costs, since two 32-bit integers add up to a 64-bit one otherwise.


@compiled_part
def _take_one(new: Any, old: Any, start: int, stop: int, gain: int, cost: int) -> None:
    """Write the lesser of the costs without and with an action."""
    size = (np.uint64(stop - start) + np.uint64(_VECTOR - 1)) & _VECTORS
    here, there = np.uint64(start), np.uint64(start - gain)
    more = old.dtype.type(cost)
    for i in range(size):
        total = old.dtype.type(old[there + i] + more)
        new[here + i] = old[here + i] if old[here + i] < total else total


@compiled_part
def _take_last(new: Any, old: Any, start: int, stop: int, gain: int, cost: int) -> None:
    """Lower the costs written before to those with an action, where these are less."""
    size = (np.uint64(stop - start) + np.uint64(_VECTOR - 1)) & _VECTORS
    here, there = np.uint64(start), np.uint64(start - gain)
    more = old.dtype.type(cost)
    for i in range(size):
        total = old.dtype.type(old[there + i] + more)
        new[here + i] = new[here + i] if new[here + i] < total else total


@compiled_part
def _take_two(
    new: Any, old: Any, start: int, stop: int, gain: int, cost: int, other_gain: int, other_cost: int
) -> None:
    """Lower the costs written before to those with one of two actions, where these are less."""
    size = (np.uint64(stop - start) + np.uint64(_VECTOR - 1)) & _VECTORS
    here, there, other = np.uint64(start), np.uint64(start - gain), np.uint64(start - other_gain)
    more, other_more = old.dtype.type(cost), old.dtype.type(other_cost)
    for i in range(size):
        total = old.dtype.type(old[there + i] + more)
        second = old.dtype.type(old[other + i] + other_more)
        total = second if second < total else total
        new[here + i] = new[here + i] if new[here + i] < total else total


@compiled_part
def _trace(
    path: Path, chunk: Chunk, base_cost: int, base_reward: int, least: Any, points: IntArray, at: Any
) -> tuple[Any, float]:
    """Write the chunk's points before index `at`, from the last to the first; returns where they begin and their band.

    The point at the chunk's end is the next chunk's first, and written here only where there is none. The band needed
    is the largest distance, over neighbouring points, from the bound at the later's cost down to one probe more than
    the earlier has: nothing between the two that was missed lies further below the bound, nor does the later point.
    """
    path_cost, path_gain, path_slope = path.cost, path.gain, path.slope
    costs, rewards = points[0], points[1]
    bottom = path_gain[chunk.start]
    top = least.size - 1
    after = least[top]
    if chunk.stop == path_slope.size:
        at -= 1
        costs[at], rewards[at] = base_cost + after, base_reward + bottom + top
    p = chunk.stop
    end_cost, end_gain = path_cost[p], np.float64(path_gain[p])
    bound = end_gain
    needed = per_token = 0.0
    last, n = np.uint64(at - 1), np.uint64(0)
    under_top = np.uint64(top - 1)
    for i in range(np.uint64(top)):
        here = least[under_top - i]
        if here >= after:
            continue
        gain = bottom + np.int64(under_top - i)
        needed = max(needed, bound - (gain + 1))
        cost = base_cost + here
        while end_cost > cost:
            p -= 1
            end_cost, end_gain = path_cost[p], np.float64(path_gain[p])
            per_token = 1 / path_slope[p]
        bound = end_gain + (cost - end_cost) * per_token
        costs[last - n], rewards[last - n] = cost, base_reward + gain
        n += np.uint64(1)
        after = here
    return at - np.int64(n), needed
