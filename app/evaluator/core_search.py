"""Exact rewards at given budgets, for many replicates of a cell: a search around the break of the greedy path.

At a budget B the greedy path over all units' hull segments breaks inside a segment of cost p and gain q with e tokens
left. No combination gains more than t = floor(e q / p) above the break. Against the break every other choice of a unit,
dc tokens dearer for dr probes more, loses q dc - p dr >= 0; a combination that beats the best gain known so far loses
at most Delta = q e - p (best + 1) over all units together. So only units with a choice that loses at most Delta are
tried, nearest slope first, in an array of least costs by gain, until t is reached or no such unit is left. Both ends
prove that the reward is the largest one.
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
ROOM = 4 * _PAD
"""How many entries more than twice a cell's probes an array of rewards needs."""


def describe_events(events: IntArray) -> list[tuple[int, int, int, bool]]:
    """Return packed events as (trajectory, tokens more, probes more, whether a cap ends there), to be read.

    Examples
    --------
    The first trajectory has 4 probes right at 5 tokens. The second has 2 right at 5, 1 at 7, 3 at 9, and 0 at 12, which
    no cap is worth.

    >>> offsets, retained = np.array([0, 2, 7]), np.array([0, 5, 0, 5, 7, 9, 12], dtype=np.int32)
    >>> bounds, events = np.empty(2, np.int64), np.empty(5, np.int64)
    >>> pack_events(offsets, retained, np.array([0, 4, 0, 2, 1, 3, 0], dtype=np.int32), 2, bounds, events)
    >>> describe_events(events[: bounds[-1]])
    [(0, 5, 4, False), (1, 5, 2, True), (1, 4, 1, True)]
    """
    return [(e & 0xFFFF, e >> 32, (e >> 16 & 0x7FFF) - 0x2000, bool(e >> 31 & 1)) for e in events.tolist()]


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
    n: int, copies: int, p: Any, q: Any, limit: Any, choice_cost: Any, choice_gain: Any, old: Any, new: Any,
    unreachable: Any, low: int, high: int, zero: int
) -> Any:  # fmt: skip
    """Let some copies of a unit take one of n choices each, where gains low..high were possible.

    Returns the arrays, their roles swapped as often as needed, and the gains that are possible now without losing more
    than the limit.
    """
    least_gain = most_gain = choice_gain[0] * 0
    for c in range(n):
        least_gain, most_gain = min(least_gain, choice_gain[c]), max(most_gain, choice_gain[c])
    for _ in range(copies):
        padded = (high - low + _PAD) & -_PAD
        source = old[zero + low : zero + low + padded]
        fresh = new[zero + low + least_gain : zero + low + most_gain + padded + _PAD]
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
            more = old.dtype.type(choice_cost[c])
            for i in range(padded):
                total = old.dtype.type(source[i] + more)
                target[i] = total if total < target[i] else target[i]
        old, new = new, old
        low += least_gain
        high += most_gain
        while low < high and q * np.int64(old[zero + low]) - p * low > limit:
            low += 1
        while low < high and q * np.int64(old[zero + high]) - p * high > limit:
            high -= 1
    return old, new, low, high


@compiled
def _guess(
    position: int, rest: Any, target: Any, n_segments: int, order: Any, seg_unit: Any, seg_first: Any, seg_last: Any,
    copies: Any, cost: Any, reward: Any, stamp: Any, mark: int
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
        dc = np.int64(cost[seg_last[k]] - cost[seg_first[k]])
        dr = np.int64(reward[seg_last[k]] - reward[seg_first[k]])
        for _ in range(copies[unit]):
            if dc > rest:
                break
            rest -= dc
            gain += dr
        if gain >= target or rest == 0:
            break
    return gain


@compiled
def _is_near(
    k: int, side: int, p: Any, q: Any, limit: Any, seg_first: Any, seg_last: Any, cost: Any, reward: Any
) -> bool:
    """Whether a segment on one side of the break (1 dearer, -1 cheaper) is so near that one probe of it may matter."""
    dc = np.int64(cost[seg_last[k]] - cost[seg_first[k]])
    dr = np.int64(reward[seg_last[k]] - reward[seg_first[k]])
    return bool(side * (q * dc - p * dr) <= limit * dr)


@compiled
def _find_best(costs: Any, zero: int, high: int, best: Any, rest: Any) -> Any:
    """Return the largest gain up to `high` that costs at most the rest, or `best` if none is larger."""
    for y in range(high, best, -1):
        if costs[zero + y] <= rest:
            return y
    return best


@compiled
def _improve(
    position: int, taken: int, rest: Any, best: Any, p: Any, q: Any, n_segments: int, order: Any, seg_unit: Any,
    seg_first: Any, seg_last: Any, slope: Any, copies: Any, bounds: Any, cost: Any, reward: Any, is_vertex: Any,
    stamp: Any, mark: int, choice_cost: Any, choice_gain: Any, one: Any, other: Any, unreachable: Any
) -> Any:  # fmt: skip
    """Return the largest gain above the break, given one that is known to be possible."""
    target = rest * q // p
    zero = one.size // 2
    old, new = one, other
    old[zero] = 0
    for y in range(1, 2 * _PAD):
        old[zero + y] = unreachable
    low = high = np.int64(0)
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
                old, new, low, high = _add_copies(
                    n, count, p, q, limit, choice_cost, choice_gain, old, new, unreachable, low, high, zero
                )
                best = _find_best(old, zero, min(high, target), best, rest)
                if best >= target:
                    return best
        if waiting > 0:
            base, count, waiting = seg_last[k], waiting, np.int64(0)
            continue
        stamp[unit] = mark
        limit = q * rest - p * (best + 1)
        if right < n_segments and (left < 0 or slope[order[right]] - here <= here - slope[order[left]]):
            k = order[right]
            base = seg_first[k]
            right = right + 1 if _is_near(k, 1, p, q, limit, seg_first, seg_last, cost, reward) else n_segments + 1
        elif left >= 0:
            k = order[left]
            base = seg_last[k]
            left = left - 1 if _is_near(k, -1, p, q, limit, seg_first, seg_last, cost, reward) else -2
        else:
            return best
        count = np.int64(copies[seg_unit[k]])


@compiled
def _solve_budgets(
    budgets: Any, result: Any, base_reward: Any, n_segments: int, order: Any, seg_unit: Any, seg_first: Any,
    seg_last: Any, slope: Any, copies: Any, bounds: Any, cost: Any, reward: Any, is_vertex: Any, stamp: Any,
    choice_cost: Any, choice_gain: Any, one: Any, other: Any, unreachable: Any
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
            p = np.int64(cost[seg_last[k]] - cost[seg_first[k]])
            q = np.int64(reward[seg_last[k]] - reward[seg_first[k]])
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
                position, rest, target, n_segments, order, seg_unit, seg_first, seg_last, copies, cost, reward,
                stamp, mark
            )  # fmt: skip
        if best < target:
            mark += 1
            best = _improve(
                position, taken, rest, best, p, q, n_segments, order, seg_unit, seg_first, seg_last, slope, copies,
                bounds, cost, reward, is_vertex, stamp, mark, choice_cost, choice_gain, one, other, unreachable
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
    return bounds, cost, reward, is_vertex, unit_of[order], first[order], last[order], slope[order]


@compiled
def solve_exits(
    weights: Any, budgets: Any, rewards: Any, base: Any, bounds: Any, cost: Any, reward: Any, is_vertex: Any,
    seg_unit: Any, seg_first: Any, seg_last: Any, slope: Any, one: Any, other: Any, unreachable: Any
) -> None:  # fmt: skip
    """Dynamic early exit: segments sorted once, of which each replicate only changes the multiplicities.

    `weights`, `base` (each trajectory's first reward), `budgets`, `rewards` (the result): one row per replicate.
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
            budgets[i], rewards[i], base_reward, n, order, seg_unit, seg_first, seg_last, slope, weights[i], bounds,
            cost, reward, is_vertex, stamp, choice_cost, choice_gain, one, other, unreachable
        )  # fmt: skip


@compiled
def solve_caps(
    question_idx: Any, counts: Any, event_bounds: Any, events: Any, zero_correct: Any, budgets: Any, rewards: Any,
    one: Any, other: Any, unreachable: Any
) -> None:  # fmt: skip
    """Fixed budget: a unit is a drawn occurrence, whose actions are listed anew from its question's events.

    `event_bounds`: questions + 1; `events`: int64, packed as `pack_events` says. The others have one row per replicate.
    """
    n_units = question_idx.shape[1]
    room = np.int64(0)
    longest = np.int64(0)
    for i in range(question_idx.shape[0]):
        total = np.int64(0)
        for unit in range(n_units):
            q = question_idx[i, unit]
            size = event_bounds[q + 1] - event_bounds[q] + 1
            total += size
            longest = max(longest, size)
        room = max(room, total)
    bounds = np.empty(n_units + 1, np.int64)
    cost = np.empty(room, np.int32)
    reward = np.empty(room, np.int32)
    is_vertex = np.empty(room, np.bool_)
    seg_unit = np.empty(room, np.int32)
    seg_first = np.empty(room, np.int32)
    seg_last = np.empty(room, np.int32)
    slope = np.empty(room, np.float64)
    order = np.empty(room, np.int32)
    starts = np.empty(4096, np.int64)
    copies = np.ones(n_units, np.int32)
    stamp = np.zeros(n_units, np.int64)
    choice_cost = np.empty(longest, np.int64)
    choice_gain = np.empty(longest, np.int64)
    for i in range(question_idx.shape[0]):
        base_reward = np.int64(0)
        n = 0
        n_segments = 0
        for unit in range(n_units):
            q = question_idx[i, unit]
            weights = counts[i, unit]
            for j in range(weights.size):
                base_reward += weights[j] * zero_correct[q, j]
            bounds[unit] = n
            start = n
            n = _list_actions(events[event_bounds[q] : event_bounds[q + 1]], weights, n, cost, reward)
            end = _push_segments(start, n, cost, reward, is_vertex, n_segments, seg_first, seg_last, slope)
            seg_unit[n_segments:end] = unit
            n_segments = end
        bounds[n_units] = n
        _sort_by_slope(slope[:n_segments], slope[:n_segments].view(np.uint64), order, starts)
        _solve_budgets(
            budgets[i], rewards[i], base_reward, n_segments, order, seg_unit, seg_first, seg_last, slope, copies,
            bounds, cost, reward, is_vertex, stamp, choice_cost, choice_gain, one, other, unreachable
        )  # fmt: skip


@compiled
def _list_actions(events: Any, weights: Any, n: int, cost: Any, reward: Any) -> int:
    """Add an occurrence's nondominated actions, as costs and gains over no thinking, behind the n there are."""
    cost[n] = 0
    reward[n] = 0
    n += 1
    tokens = gain = best = np.int64(0)
    for e in range(events.size):
        event = events[e]
        w = np.int64(weights[event & 0xFFFF])
        tokens += w * (event >> 32)
        gain += w * (((event >> 16) & 0x7FFF) - 0x2000)
        # Bit 31 says that all changes at this cap have been counted.
        if gain > best and event & 0x80000000:
            best = gain
            cost[n] = tokens
            reward[n] = gain
            n += 1
    return n


@compiled
def pack_events(
    offsets: IntArray, retained: Any, correct: Any, per_unit: int, bounds: IntArray, events: IntArray
) -> None:
    """Pack what changes from one useful cap of a question to the next, in 64 bits a trajectory.

    Useful caps are the lengths at which some trajectory gains: no draw of trajectories has an action at any other. Bits
    32..62: the trajectory's tokens more than at the useful cap before. Bit 31: the last trajectory that changes at this
    cap. Bits 16..30: its correct probes more than before, plus 2^13. Bits 0..15: the trajectory, 0..R-1. Trajectories
    that do not change are left out, as is all that comes after the last useful cap.
    """
    n = 0
    bounds[0] = 0
    at = np.empty(per_unit, np.int64)
    seen = np.empty(per_unit, np.int64)
    for unit in range(bounds.size - 1):
        first = unit * per_unit
        for j in range(per_unit):
            at[j] = seen[j] = offsets[first + j]
        while True:
            length = np.int64(-1)
            for j in range(per_unit):
                k = at[j] + 1
                if k < offsets[first + j + 1] and (length < 0 or retained[k] < length):
                    length = np.int64(retained[k])
            if length < 0:
                break
            is_useful = False
            for j in range(per_unit):
                k = at[j] + 1
                if k < offsets[first + j + 1] and retained[k] == length:
                    is_useful |= correct[k] > correct[at[j]]
                    at[j] = k
            if is_useful:
                n = _push_changes(at, seen, retained, correct, events, n)
        bounds[unit + 1] = n


@compiled
def _push_changes(at: IntArray, seen: IntArray, retained: Any, correct: Any, events: IntArray, n: int) -> int:
    """Add the trajectories that have moved since they were last seen; returns how many events there are now."""
    for j in range(at.size):
        if at[j] > seen[j]:
            more = np.int64(retained[at[j]]) - np.int64(retained[seen[j]])
            gain = np.int64(correct[at[j]]) - np.int64(correct[seen[j]]) + 0x2000
            events[n] = more << 32 | gain << 16 | j
            seen[j] = at[j]
            n += 1
    events[n - 1] |= 0x80000000
    return n
