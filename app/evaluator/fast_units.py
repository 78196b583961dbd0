"""Nondominated actions of a cell's units, listed by compiled loops: the same as the textbook's, many times faster."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.compiled import compiled
from app.evaluator.frontier import UnitActions
from app.evaluator.measurements import Cell, IntArray
from app.evaluator.strategies import Strategy


def list_unit_actions(cell: Cell, strategy: Strategy) -> UnitActions:
    """Return each unit's nondominated actions: exactly those of `build_unit_actions`, in its order.

    Raises
    ------
    ValueError : the cell's labels are hidden.

    Notes
    -----
    Section 4.1. Early exit and routing read each trajectory once. A question's caps are its positions' lengths, put in
    order by two or more rounds of a counting sort on eight bits each, then read once with running sums; an action ends
    where the next length differs. O(positions).

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (256, 4)], [(0, 0), (100, 2), (300, 1)]])], 4)
    >>> actions = list_unit_actions(cell, Strategy.FIXED_BUDGET)
    >>> actions.action.tolist(), actions.cost.tolist(), actions.reward.tolist()
    ([0, 100, 256], [0, 100, 356], [1, 3, 6])
    """
    if not cell.has_labels:
        raise ValueError(f"the labels of {cell.model} on {cell.benchmark} are hidden")
    arrays = own(cell.offsets), own(cell.retained_tokens), own(cell.correct_probes)
    if strategy is Strategy.DYNAMIC_EARLY_EXIT:
        return UnitActions(*_list_exits(*arrays))
    list_actions = _list_routes if strategy is Strategy.DYNAMIC_ROUTING else _list_caps
    return UnitActions(*list_actions(*arrays, cell.trajectories_per_question))


def own(array: NDArray[Any]) -> NDArray[Any]:
    """Return the array, or a copy of one that is read-only or not contiguous, for which loops would compile anew."""
    return array if array.flags.carray else array.copy()


@compiled
def _list_exits(offsets: IntArray, retained: Any, correct: Any) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """List the strict running maxima of each trajectory."""
    n_units = offsets.size - 1
    bounds = np.zeros(n_units + 1, np.int64)
    cost = np.empty(retained.size, np.int64)
    reward = np.empty(retained.size, np.int64)
    action = np.empty(retained.size, np.int64)
    n = 0
    for unit in range(n_units):
        best = -1
        first = offsets[unit]
        for i in range(first, offsets[unit + 1]):
            if correct[i] > best:
                best = correct[i]
                cost[n] = retained[i]
                reward[n] = best
                action[n] = i - first
                n += 1
        bounds[unit + 1] = n
    return bounds, cost[:n], reward[:n], action[:n]


@compiled
def _list_routes(
    offsets: IntArray, retained: Any, correct: Any, per_unit: int
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """List no thinking for each question, and full thinking where it is right more often."""
    n_units = (offsets.size - 1) // per_unit
    bounds = np.zeros(n_units + 1, np.int64)
    cost = np.empty(2 * n_units, np.int64)
    reward = np.empty(2 * n_units, np.int64)
    action = np.empty(2 * n_units, np.int64)
    n = 0
    for unit in range(n_units):
        full_cost = zero = full = 0
        for t in range(unit * per_unit, (unit + 1) * per_unit):
            full_cost += retained[offsets[t + 1] - 1]
            full += correct[offsets[t + 1] - 1]
            zero += correct[offsets[t]]
        cost[n], reward[n], action[n] = 0, zero, 0
        n += 1
        if full > zero:
            cost[n], reward[n], action[n] = full_cost, full, 1
            n += 1
        bounds[unit + 1] = n
    return bounds, cost[:n], reward[:n], action[:n]


@compiled
def _sort_events(events: Any, spare: Any, longest: Any) -> Any:
    """Sort packed events by the length in their upper half, eight bits a round; returns whichever array they end in."""
    starts = np.empty(256, np.int64)
    shift = np.uint64(32)
    while longest > 0:
        starts[:] = 0
        for e in range(events.size):
            starts[(events[e] >> shift) & np.uint64(255)] += 1
        total = 0
        for digit in range(256):
            count = starts[digit]
            starts[digit] = total
            total += count
        for e in range(events.size):
            digit = (events[e] >> shift) & np.uint64(255)
            spare[starts[digit]] = events[e]
            starts[digit] += 1
        events, spare = spare, events
        shift += np.uint64(8)
        longest >>= np.uint64(8)
    return events


@compiled
def _list_caps(
    offsets: IntArray, retained: Any, correct: Any, per_unit: int
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """List, for each question, the caps at which the sum over its trajectories exceeds every smaller cap's."""
    n_units = (offsets.size - 1) // per_unit
    bounds = np.zeros(n_units + 1, np.int64)
    cost = np.empty(retained.size, np.int64)
    reward = np.empty(retained.size, np.int64)
    action = np.empty(retained.size, np.int64)
    largest = 0
    for unit in range(n_units):
        largest = max(largest, offsets[(unit + 1) * per_unit] - offsets[unit * per_unit])
    events = np.empty(largest, np.uint64)
    spare = np.empty(largest, np.uint64)
    n = 0
    for unit in range(n_units):
        base = offsets[unit * per_unit]
        total_reward = np.int64(0)
        n_events = 0
        longest = np.uint64(0)
        for t in range(unit * per_unit, (unit + 1) * per_unit):
            total_reward += correct[offsets[t]]
            for i in range(offsets[t] + 1, offsets[t + 1]):
                events[n_events] = np.uint64(retained[i]) << np.uint64(32) | np.uint64(i - base)
                n_events += 1
            longest = max(longest, np.uint64(retained[offsets[t + 1] - 1]))
        ordered = _sort_events(events[:n_events], spare[:n_events], longest)
        cost[n], reward[n], action[n] = 0, total_reward, 0
        n += 1
        best = total_reward
        total_cost = np.int64(0)
        for e in range(n_events):
            i = base + np.int64(ordered[e] & np.uint64(0xFFFFFFFF))
            total_cost += retained[i] - retained[i - 1]
            total_reward += correct[i] - correct[i - 1]
            # Positions of one length are one action, which has happened once the last of them has.
            is_last = e + 1 == n_events or ordered[e + 1] >> np.uint64(32) != ordered[e] >> np.uint64(32)
            if total_reward > best and is_last:
                best = total_reward
                cost[n], reward[n], action[n] = total_cost, total_reward, retained[i]
                n += 1
        bounds[unit + 1] = n
    return bounds, cost[:n], reward[:n], action[:n]
