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
    if strategy is Strategy.DYNAMIC_ROUTING:
        return UnitActions(*_list_routes(*arrays, cell.trajectories_per_question))
    # An event is a length and an index packed into one integer, of 32 bits where both fit.
    n_positions = cell.offsets[:: cell.trajectories_per_question]
    most = int(np.diff(n_positions).max(initial=0))
    shift = most.bit_length()
    longest = int(cell.thinking_tokens.max(initial=0))
    packed = np.uint32 if longest.bit_length() + shift <= 32 else np.uint64
    events = np.empty(most, dtype=packed)
    return UnitActions(*_list_caps(*arrays, cell.trajectories_per_question, shift, events))


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
        lengths = retained[offsets[unit] : offsets[unit + 1]]
        probes = correct[offsets[unit] : offsets[unit + 1]]
        for position in range(probes.size):
            if probes[position] > best:
                best = probes[position]
                cost[n], reward[n], action[n] = lengths[position], best, position
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
def _sort_events(events: Any, spare: Any, shift: int, longest: int) -> Any:
    """Sort packed events by the length above the shift, eight bits a round; returns whichever array they end in."""
    eight = events.dtype.type(8)
    low_bits = events.dtype.type(255)
    shift = events.dtype.type(shift)
    starts = np.empty(256, np.int32)
    while longest > 0:
        starts[:] = 0
        for e in range(events.size):
            starts[(events[e] >> shift) & low_bits] += np.int32(1)
        total = np.int32(0)
        for digit in range(256):
            count = starts[digit]
            starts[digit] = total
            total = np.int32(total + count)
        for e in range(events.size):
            digit = (events[e] >> shift) & low_bits
            spare[starts[digit]] = events[e]
            starts[digit] += np.int32(1)
        events, spare = spare, events
        shift = events.dtype.type(shift + eight)
        longest >>= 8
    return events


@compiled
def _pack_events(offsets: IntArray, retained: Any, first: int, stop: int, shift: int, events: Any) -> int:
    """Pack each position but 0 of these trajectories as its length above the shift, its index below it."""
    n = 0
    for t in range(first, stop):
        lengths = retained[offsets[t] + 1 : offsets[t + 1]]
        packed = events[n : n + lengths.size]
        idx = offsets[t] + 1 - offsets[first]
        for i in range(lengths.size):
            packed[i] = events.dtype.type(np.int64(lengths[i]) << shift | (idx + i))
        n += lengths.size
    return n


@compiled
def _list_caps(
    offsets: IntArray, retained: Any, correct: Any, per_unit: int, shift: int, events: Any
) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """List, for each question, the caps at which the sum over its trajectories exceeds every smaller cap's."""
    n_units = (offsets.size - 1) // per_unit
    bounds = np.zeros(n_units + 1, np.int64)
    cost = np.empty(retained.size, np.int64)
    reward = np.empty(retained.size, np.int64)
    action = np.empty(retained.size, np.int64)
    spare = np.empty_like(events)
    index_bits = events.dtype.type((1 << shift) - 1)
    n = 0
    for unit in range(n_units):
        first, stop = unit * per_unit, (unit + 1) * per_unit
        lengths = retained[offsets[first] : offsets[stop]]
        probes = correct[offsets[first] : offsets[stop]]
        longest = np.int64(0)
        total_cost = total_reward = np.int64(0)
        for t in range(first, stop):
            total_reward += correct[offsets[t]]
            longest = max(longest, np.int64(retained[offsets[t + 1] - 1]))
        n_events = _pack_events(offsets, retained, first, stop, shift, events)
        ordered = _sort_events(events[:n_events], spare[:n_events], shift, longest)
        cost[n], reward[n], action[n] = 0, total_reward, 0
        n += 1
        best = total_reward
        for e in range(n_events):
            i = np.uint64(ordered[e] & index_bits)
            total_cost += np.int64(lengths[i]) - lengths[i - np.uint64(1)]
            total_reward += np.int64(probes[i]) - probes[i - np.uint64(1)]
            # Positions of one length are one action, which has happened once the last of them has.
            if total_reward > best and (e + 1 == n_events or ordered[e + 1] >> shift != ordered[e] >> shift):
                best = total_reward
                cost[n], reward[n], action[n] = total_cost, total_reward, lengths[i]
                n += 1
        bounds[unit + 1] = n
    return bounds, cost[:n], reward[:n], action[:n]
