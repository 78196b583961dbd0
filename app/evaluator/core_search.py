"""Exact rewards at given budgets, for many replicates of a cell: a search around the break of the greedy path.

At a budget B the greedy path over all units' hull segments breaks inside a segment of cost p and gain q with e tokens
left. No combination gains more than t = floor(e q / p) above the break. Against the break every other choice of a unit,
dc tokens dearer for dr probes more, loses q dc - p dr >= 0; a combination that beats the best gain known so far loses
at most Delta = q e - p (best + 1) over all units together. So only units with a choice that loses at most Delta are
tried, nearest slope first, in an array of least costs by gain.

What units remain have slopes no nearer than the next segment on either side. To gain a probe more from them loses at
least q dc / dr - p of the next dearer segment, to save a token at least p dr / dc - q of the next cheaper one. A
combination of the units tried so far that gains too little, or costs too much, must make up for it at that price: if
with it the loss exceeds Delta it is dropped. The search ends when t is reached, no such unit is left, or no combination
is. Each end proves that the reward is the largest one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.compiled import compiled
from app.evaluator.measurements import IntArray

FloatArray = NDArray[np.float64]

# How many segments past the break the first guess looks at.
_LOOK_AHEAD = 64
# Loops over rewards run in whole vectors, past the end of what is possible: so many entries there stand for "none".
_PAD = 32
# Relative room for the rounding of floats.
_WIDER = 1 + 1e-9
ROOM = 4 * _PAD
"""How many entries more than twice a cell's probes an array of rewards needs."""


@compiled
def _push_segments(
    first: int, stop: int, cost: Any, reward: Any, is_vertex: Any, n: Any, seg_first: Any, seg_last: Any, slope: Any
) -> int:
    """Add the hull segments of a unit's actions first..stop-1 behind the n there are; returns how many there are."""
    bottom = n
    for action in range(first + 1, stop):
        start = action - 1
        if n > bottom:
            start = seg_last[n - 1]
        s = np.float64(cost[action] - cost[start]) / np.float64(reward[action] - reward[start])
        # A segment no cheaper per probe than the one that follows is not on the hull: join the two.
        while n > bottom and s <= slope[n - 1]:
            n -= 1
            start = seg_first[n]
            s = np.float64(cost[action] - cost[start]) / np.float64(reward[action] - reward[start])
        seg_first[n], seg_last[n], slope[n] = start, action, s
        n += 1
    for action in range(first, stop):
        is_vertex[action] = False
    is_vertex[first] = True
    for k in range(bottom, n):
        is_vertex[seg_last[k]] = True
    return int(n)


@compiled
def _sort_by_slope(slope: Any, bits: Any, order: Any, starts: Any) -> None:
    """Order segments by slope, equal ones by index: a counting sort on the floats' leading bits, then insertion."""
    n = slope.size
    if n == 0:
        return
    least = bits[0]
    most = bits[0]
    for k in range(n):
        least = min(least, bits[k])
        most = max(most, bits[k])
    shift = np.uint64(0)
    while (most - least) >> shift >= np.uint64(starts.size):
        shift += np.uint64(1)
    n_buckets = np.int64((most - least) >> shift) + 1
    starts[:n_buckets] = 0
    for k in range(n):
        starts[np.int64((bits[k] - least) >> shift)] += 1
    total = 0
    for b in range(n_buckets):
        count = starts[b]
        starts[b] = total
        total += count
    for k in range(n):
        bucket = np.int64((bits[k] - least) >> shift)
        order[starts[bucket]] = k
        starts[bucket] += 1
    for j in range(1, n):
        k = order[j]
        s = slope[k]
        i = j
        while i > 0 and slope[order[i - 1]] > s:
            order[i] = order[i - 1]
            i -= 1
        order[i] = k


@compiled
def _list_choices(
    base: int, first: int, stop: int, p: Any, q: Any, limit: Any, cost: Any, reward: Any, is_vertex: Any,
    choice_cost: Any, choice_gain: Any
) -> int:  # fmt: skip
    """List what a unit can leave its base action for at a loss of at most the limit; returns how many choices."""
    n = 0
    base_cost, base_reward = np.int64(cost[base]), np.int64(reward[base])
    for direction in (1, -1):
        j = base + direction
        while first <= j < stop:
            dc = np.int64(cost[j]) - base_cost
            dr = np.int64(reward[j]) - base_reward
            if q * dc - p * dr <= limit:
                choice_cost[n], choice_gain[n] = dc, dr
                n += 1
            elif is_vertex[j]:
                # Losses grow along the hull, and everything past this vertex lies under it.
                break
            j += direction
    return n


@compiled
def _add_copies(
    n: int, copies: int, choice_cost: Any, choice_gain: Any, room: Any, side: int, unreachable: Any, low: int, high: int
) -> Any:  # fmt: skip
    """Let some copies of a unit take one of n choices each, where gains low..high were possible.

    Returns the row of `room` in which the least costs lie now, and the gains that are possible now.
    """
    zero = room.shape[1] // 2
    least_gain = most_gain = choice_gain[0] * 0
    for c in range(n):
        least_gain, most_gain = min(least_gain, choice_gain[c]), max(most_gain, choice_gain[c])
    for _ in range(copies):
        padded = (high - low + _PAD) & -_PAD
        source = room[side, zero + low : zero + low + padded]
        fresh = room[1 - side, zero + low + least_gain : zero + low + most_gain + padded + _PAD]
        for i in range(-least_gain):
            fresh[i] = unreachable
        kept = fresh[-least_gain : padded - least_gain]
        for i in range(padded):
            kept[i] = source[i]
        for i in range(padded - least_gain, fresh.size):
            fresh[i] = unreachable
        for c in range(n):
            start = choice_gain[c] - least_gain
            target = fresh[start : start + padded]
            more = room.dtype.type(choice_cost[c])
            for i in range(padded):
                total = room.dtype.type(source[i] + more)
                target[i] = total if total < target[i] else target[i]
        side = 1 - side
        low += least_gain
        high += most_gain
    return side, low, high


@compiled
def _price_moves(
    right: int, left: int, p: Any, q: Any, n_segments: int, order: Any, seg_cost: Any, seg_gain: Any
) -> Any:
    """Return the least loss of a probe gained from `right` on, and of a token saved by segments up to `left`."""
    of_probe = of_token = np.inf
    if right < n_segments:
        k = order[right]
        dc, dr = np.float64(seg_cost[k]), np.float64(seg_gain[k])
        of_probe = (q * dc - p * dr) / dr
    if left >= 0:
        k = order[left]
        dc, dr = np.float64(seg_cost[k]), np.float64(seg_gain[k])
        of_token = (p * dr - q * dc) / dc
    return of_probe, of_token


@compiled
def _is_hopeless(
    gain: Any, cost: Any, p: Any, q: Any, most: Any, rest: Any, best: Any, of_probe: Any, of_token: Any
) -> bool:
    """Whether a combination cannot become better than the best one without losing more than the most."""
    loss = np.float64(q * cost - p * gain)
    if gain <= best:
        loss += of_probe * np.float64(best + 1 - gain)
    if cost > rest:
        loss += of_token * np.float64(cost - rest)
    return bool(loss > most)


@compiled
def _trim(
    room: Any, side: int, low: int, high: int, p: Any, q: Any, rest: Any, best: Any, of_probe: Any, of_token: Any
) -> Any:
    """Drop what is hopeless from either end of the gains low..high; nothing is left where low exceeds high."""
    # Floats decide only what is dropped, and this much too little.
    most = np.float64(q * rest - p * (best + 1)) * _WIDER + 0.5
    zero = room.shape[1] // 2
    while low <= high and _is_hopeless(
        low, np.int64(room[side, zero + low]), p, q, most, rest, best, of_probe, of_token
    ):
        low += 1
    while low <= high and _is_hopeless(
        high, np.int64(room[side, zero + high]), p, q, most, rest, best, of_probe, of_token
    ):
        high -= 1
    return low, high


@compiled
def _guess(
    position: int, rest: Any, target: Any, n_segments: int, order: Any, seg_unit: Any, seg_cost: Any, seg_gain: Any,
    copies: Any, stamp: Any, mark: int
) -> Any:  # fmt: skip
    """Gain past the break by taking, of each unit, the next segment if it still fits."""
    gain = np.int64(0)
    stamp[seg_unit[order[position]]] = mark
    for i in range(position + 1, min(position + 1 + _LOOK_AHEAD, n_segments)):
        k = order[i]
        unit = seg_unit[k]
        if stamp[unit] == mark:
            continue
        stamp[unit] = mark
        dc, dr = np.int64(seg_cost[k]), np.int64(seg_gain[k])
        for _ in range(copies[unit]):
            if dc > rest:
                break
            rest -= dc
            gain += dr
        if gain >= target or rest == 0:
            break
    return gain


@compiled
def _is_near(k: int, side: int, p: Any, q: Any, limit: Any, seg_cost: Any, seg_gain: Any) -> bool:
    """Whether a segment on one side of the break (1 dearer, -1 cheaper) is so near that one probe of it may matter."""
    dc, dr = np.int64(seg_cost[k]), np.int64(seg_gain[k])
    return bool(side * (q * dc - p * dr) <= limit * dr)


@compiled
def _find_best(room: Any, side: int, low: int, high: int, best: Any, rest: Any) -> Any:
    """Return the largest gain in low..high that costs at most the rest, or `best` if none is larger."""
    zero = room.shape[1] // 2
    for y in range(high, max(best, low - 1), -1):
        if room[side, zero + y] <= rest:
            return y
    return best


@compiled
def _improve(
    position: int, taken: int, rest: Any, best: Any, p: Any, q: Any, n_segments: int, order: Any, seg_unit: Any,
    seg_first: Any, seg_last: Any, seg_cost: Any, seg_gain: Any, slope: Any, copies: Any, bounds: Any, cost: Any,
    reward: Any, is_vertex: Any, stamp: Any, mark: int, choice_cost: Any, choice_gain: Any, room: Any, unreachable: Any
) -> Any:  # fmt: skip
    """Return the largest gain above the break, given one that is known to be possible."""
    target = rest * q // p
    zero = room.shape[1] // 2
    room[0, zero] = 0
    for y in range(1, 2 * _PAD):
        room[0, zero + y] = unreachable
    side = low = high = np.int64(0)
    here = slope[order[position]]
    left, right = position - 1, position + 1
    k = order[position]
    # The unit at the break has copies on either side of it.
    base, count, waiting = seg_first[k], np.int64(copies[seg_unit[k]] - taken), np.int64(taken)
    while True:
        unit = seg_unit[k]
        if waiting > 0 or stamp[unit] != mark:
            limit = q * rest - p * (best + 1)
            n = _list_choices(
                base, bounds[unit], bounds[unit + 1], p, q, limit, cost, reward, is_vertex, choice_cost, choice_gain
            )
            if n > 0:
                side, low, high = _add_copies(n, count, choice_cost, choice_gain, room, side, unreachable, low, high)
                best = _find_best(room, side, low, min(high, target), best, rest)
                if best >= target:
                    return best
            of_probe, of_token = _price_moves(right, left, p, q, n_segments, order, seg_cost, seg_gain)
            if waiting > 0:
                # The copies past the break save tokens at its own slope.
                of_token = 0.0
            low, high = _trim(room, side, low, high, p, q, rest, best, of_probe, of_token)
            if low > high:
                return best
        if waiting > 0:
            base, count, waiting = seg_last[k], waiting, np.int64(0)
            continue
        stamp[unit] = mark
        limit = q * rest - p * (best + 1)
        if right < n_segments and (left < 0 or slope[order[right]] - here <= here - slope[order[left]]):
            k = order[right]
            base = seg_first[k]
            right = right + 1 if _is_near(k, 1, p, q, limit, seg_cost, seg_gain) else n_segments + 1
        elif left >= 0:
            k = order[left]
            base = seg_last[k]
            left = left - 1 if _is_near(k, -1, p, q, limit, seg_cost, seg_gain) else -2
        else:
            return best
        count = np.int64(copies[seg_unit[k]])


@compiled
def _solve_budgets(
    budgets: Any, result: Any, base_reward: Any, n_segments: int, order: Any, seg_unit: Any, seg_first: Any,
    seg_last: Any, seg_cost: Any, seg_gain: Any, slope: Any, copies: Any, bounds: Any, cost: Any, reward: Any,
    is_vertex: Any, stamp: Any, choice_cost: Any, choice_gain: Any, room: Any, unreachable: Any
) -> None:  # fmt: skip
    """Fill the largest reward at each budget; the budgets never fall, and each unit counts so many times."""
    stamp[:] = 0
    mark = 0
    spent = np.int64(0)
    gained = np.int64(0)
    position = 0
    for i in range(budgets.size):
        budget = budgets[i]
        p = q = np.int64(0)
        while position < n_segments:
            k = order[position]
            p, q = np.int64(seg_cost[k]), np.int64(seg_gain[k])
            m = np.int64(copies[seg_unit[k]])
            if spent + m * p > budget:
                break
            spent += m * p
            gained += m * q
            position += 1
        if position == n_segments:
            result[i] = base_reward + gained
            continue
        taken = (budget - spent) // p
        rest = budget - spent - taken * p
        target = rest * q // p
        best = np.int64(0)
        if target > 0:
            mark += 1
            best = _guess(
                position, rest, target, n_segments, order, seg_unit, seg_cost, seg_gain, copies, stamp, mark
            )  # fmt: skip
        if best < target:
            mark += 1
            best = _improve(
                position, taken, rest, best, p, q, n_segments, order, seg_unit, seg_first, seg_last, seg_cost, seg_gain,
                slope, copies, bounds, cost, reward, is_vertex, stamp, mark, choice_cost, choice_gain, room, unreachable
            )  # fmt: skip
        result[i] = base_reward + gained + taken * q + best


@compiled
def sort_exits(bounds: IntArray, cost: IntArray, reward: IntArray) -> Any:
    """Return the units' actions and hull segments, by slope, as `solve_exits` takes them."""
    is_vertex = np.empty(cost.size, np.bool_)
    unit_of = np.empty(cost.size, np.int64)
    first = np.empty(cost.size, np.int64)
    last = np.empty(cost.size, np.int64)
    slope = np.empty(cost.size, np.float64)
    n = 0
    for unit in range(bounds.size - 1):
        end = _push_segments(bounds[unit], bounds[unit + 1], cost, reward, is_vertex, n, first, last, slope)
        unit_of[n:end] = unit
        n = end
    order = np.empty(n, np.int64)
    _sort_by_slope(slope[:n], slope[:n].view(np.uint64), order, np.empty(4096, np.int64))
    first, last = first[order], last[order]
    seg_cost, seg_gain = cost[last] - cost[first], reward[last] - reward[first]
    return bounds, cost, reward, is_vertex, unit_of[order], first, last, seg_cost, seg_gain, slope[order]


@compiled
def solve_exits(
    weights: Any, budgets: Any, rewards: Any, base: Any, bounds: Any, cost: Any, reward: Any, is_vertex: Any,
    seg_unit: Any, seg_first: Any, seg_last: Any, seg_cost: Any, seg_gain: Any, slope: Any, room: Any, unreachable: Any
) -> None:  # fmt: skip
    """Dynamic early exit: segments sorted once, of which each replicate only changes the multiplicities.

    `weights`, `base` (each trajectory's first reward), `budgets`, `rewards` (the result): one row per replicate. The
    rest up to the slopes is what `sort_exits` returns. `room`: two rows of `ROOM` entries and twice a cell's probes.
    """
    n_segments = seg_unit.size
    order = np.empty(n_segments, np.int64)
    stamp = np.zeros(bounds.size - 1, np.int64)
    most = 1
    for unit in range(bounds.size - 1):
        most = max(most, bounds[unit + 1] - bounds[unit])
    choice_cost = np.empty(most, np.int64)
    choice_gain = np.empty(most, np.int64)
    for i in range(weights.shape[0]):
        n = 0
        for k in range(n_segments):
            order[n] = k
            n += weights[i, seg_unit[k]] > 0
        base_reward = np.int64(0)
        for unit in range(base.size):
            base_reward += weights[i, unit] * base[unit]
        _solve_budgets(
            budgets[i], rewards[i], base_reward, n, order, seg_unit, seg_first, seg_last, seg_cost, seg_gain, slope,
            weights[i], bounds, cost, reward, is_vertex, stamp, choice_cost, choice_gain, room, unreachable
        )  # fmt: skip


@compiled
def solve_caps(
    base: IntArray, starts: IntArray, bounds: IntArray, cost: Any, reward: Any, budgets: Any, rewards: Any, room: Any,
    unreachable: Any
) -> None:  # fmt: skip
    """Fixed budget: a unit is a drawn occurrence, with actions of its own in each replicate.

    The first five are what `list_cap_actions` returns. `budgets`, `rewards` (the result): one row per replicate.

    Examples
    --------
    Two units: 5 tokens for 3 probes or 12 for 4, and 6 tokens for 2.

    >>> base, starts, bounds = np.array([1]), np.array([0, 5]), np.array([[0, 3, 5]])
    >>> cost, reward = np.array([0, 5, 12, 0, 6], np.int32), np.array([0, 3, 4, 0, 2], np.int32)
    >>> budgets, rewards = np.array([[4, 5, 10, 11, 12, 18]]), np.empty((1, 6), np.int64)
    >>> room = np.empty((2, 20 + ROOM), np.int32)
    >>> solve_caps(base, starts, bounds, cost, reward, budgets, rewards, room, np.int32(2**30 - 1))
    >>> rewards.tolist()
    [[1, 4, 4, 6, 6, 7]]
    """
    n_units = bounds.shape[1] - 1
    most = 1
    longest = np.int64(1)
    for i in range(bounds.shape[0]):
        most = max(most, bounds[i, n_units])
        for unit in range(n_units):
            longest = max(longest, bounds[i, unit + 1] - bounds[i, unit])
    is_vertex = np.empty(most, np.bool_)
    seg_unit = np.empty(most, np.int32)
    seg_first = np.empty(most, np.int32)
    seg_last = np.empty(most, np.int32)
    slope = np.empty(most, np.float64)
    order = np.empty(most, np.int32)
    sorted_unit = np.empty(most, np.int32)
    sorted_first = np.empty(most, np.int32)
    sorted_last = np.empty(most, np.int32)
    sorted_cost = np.empty(most, np.int32)
    sorted_gain = np.empty(most, np.int32)
    sorted_slope = np.empty(most, np.float64)
    as_sorted = np.arange(most)
    buckets = np.empty(4096, np.int64)
    copies = np.ones(n_units, np.int32)
    stamp = np.zeros(n_units, np.int64)
    choice_cost = np.empty(longest, np.int64)
    choice_gain = np.empty(longest, np.int64)
    for i in range(bounds.shape[0]):
        of_row = slice(starts[i], starts[i] + bounds[i, n_units])
        own_cost, own_reward = cost[of_row], reward[of_row]
        n = 0
        for unit in range(n_units):
            end = _push_segments(
                bounds[i, unit], bounds[i, unit + 1], own_cost, own_reward, is_vertex, n, seg_first, seg_last, slope
            )
            seg_unit[n:end] = unit
            n = end
        _sort_by_slope(slope[:n], slope[:n].view(np.uint64), order, buckets)
        for j in range(n):
            k = order[j]
            first, last = seg_first[k], seg_last[k]
            sorted_unit[j], sorted_first[j], sorted_last[j], sorted_slope[j] = seg_unit[k], first, last, slope[k]
            sorted_cost[j], sorted_gain[j] = own_cost[last] - own_cost[first], own_reward[last] - own_reward[first]
        _solve_budgets(
            budgets[i], rewards[i], base[i], n, as_sorted, sorted_unit, sorted_first, sorted_last, sorted_cost,
            sorted_gain, sorted_slope, copies, bounds[i], own_cost, own_reward, is_vertex, stamp, choice_cost,
            choice_gain, room, unreachable
        )  # fmt: skip
