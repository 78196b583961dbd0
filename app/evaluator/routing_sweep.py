"""Exact rewards of dynamic routing at all budgets at once, for many replicates of a cell.

Routing has few units of large cost and gain, so the greedy path alone is far from the best choice, but few units are in
doubt at a budget. With lambda tokens a probe where the greedy path breaks at budget i, a combination that misses the
linear bound by at most alpha_i probes deviates from the path only at units with |dc - lambda dr| <= alpha_i lambda.
Each unit is in doubt from the first budget of that kind to the last, counting the budget at which the path takes it.
One program over rewards sweeps the budgets upwards: it admits a unit at its first budget, and after its last one drops
the rewards that are only possible without it. At a budget the largest reward within reach is read off; if everything
better would miss the bound by at most alpha_i it is proved, else alpha_i grows and the sweep is repeated for such
budgets.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.compiled import compiled
from app.evaluator.measurements import IntArray

FloatArray = NDArray[np.float64]

# The first alpha, in gaps between neighbouring slopes times the mean gain, and how fast it may grow.
_FIRST_BAND = 10.0
_GROWTH = 1.7
# So far ahead the greedy path looks for units that still fit, and for the density of slopes.
_LOOK_AHEAD = 64
_NEIGHBOURS = 12
# Floats decide only what is left out, and this much too little.
_WIDER = 1 + 1e-9


@compiled
def _list_units(
    question_idx: Any, counts: Any, full_cost: Any, zero_correct: Any, full_correct: Any, cost: IntArray, gain: IntArray
) -> Any:
    """List the occurrences that gain by thinking, cheapest probe first; how many, and the reward without thinking."""
    base = np.int64(0)
    n = 0
    slope = np.empty(question_idx.size, np.float64)
    tokens_of = np.empty(question_idx.size, np.int64)
    gain_of = np.empty(question_idx.size, np.int64)
    for unit in range(question_idx.size):
        q = question_idx[unit]
        full = zero = tokens = np.int64(0)
        for j in range(counts.shape[1]):
            w = np.int64(counts[unit, j])
            tokens += w * full_cost[q, j]
            zero += w * zero_correct[q, j]
            full += w * full_correct[q, j]
        base += zero
        if full > zero:
            tokens_of[n], gain_of[n] = tokens, full - zero
            slope[n] = np.float64(tokens) / np.float64(full - zero)
            n += 1
    order = np.argsort(slope[:n], kind="mergesort")
    for k in range(n):
        cost[k], gain[k] = tokens_of[order[k]], gain_of[order[k]]
    return n, base


@compiled
def _find_breaks(
    budgets: IntArray, cost: IntArray, gain: IntArray, n: int, breaks: IntArray, reached: IntArray, most: IntArray,
    slope: FloatArray, bound: FloatArray, band: FloatArray
) -> None:  # fmt: skip
    """Find, for each budget, where the greedy path breaks, what is surely reached, and the bound."""
    spent = gained = np.int64(0)
    k = 0
    known = np.int64(0)
    for i in range(budgets.size):
        while k < n and spent + cost[k] <= budgets[i]:
            spent += cost[k]
            gained += gain[k]
            k += 1
        breaks[i] = k
        band[i] = -1.0
        known = max(known, gained)
        if k < n:
            rest = budgets[i] - spent
            most[i] = gained + rest * gain[k] // cost[k]
            slope[i] = np.float64(cost[k]) / np.float64(gain[k])
            bound[i] = gained + rest / slope[i]
            guess = gained
            for j in range(k + 1, min(n, k + 1 + _LOOK_AHEAD)):
                if cost[j] <= rest:
                    rest -= cost[j]
                    guess += gain[j]
            known = max(known, guess)
            if known < most[i]:
                first, last = max(k - _NEIGHBOURS, 0), min(k + _NEIGHBOURS, n - 1)
                total = np.int64(0)
                for j in range(first, last + 1):
                    total += gain[j]
                steepest = np.float64(cost[last]) / np.float64(gain[last])
                flattest = np.float64(cost[first]) / np.float64(gain[first])
                spacing = np.log(steepest / flattest) / max(last - first, 1)
                usual = _FIRST_BAND * spacing * total / (last - first + 1)
                band[i] = min(max(usual, 1.0), (bound[i] - known - 1) * _WIDER + 1e-6)
        reached[i] = known


@compiled
def _find_doubts(
    breaks: IntArray, slope: FloatArray, band: FloatArray, cost: FloatArray, gain: FloatArray, n: int, first: IntArray,
    last: IntArray
) -> None:  # fmt: skip
    """Find each unit's first and last budget of doubt; where there is none, the last lies before the first.

    A unit that is never in doubt is taken from `first` on.
    """
    n_budgets = breaks.size
    first[:n] = n_budgets
    last[:n] = -1
    for i in range(n_budgets):
        if band[i] >= 0:
            reach = band[i] * slope[i] * _WIDER + 1e-6
            here = slope[i]
            for k in range(n):
                is_open = abs(cost[k] - here * gain[k]) <= reach
                first[k] = min(first[k], i if is_open else n_budgets)
                last[k] = i if is_open else last[k]
    k = 0
    for i in range(n_budgets + 1):
        stop = breaks[i] if i < n_budgets else n
        while k < stop:
            if last[k] >= 0:
                first[k] = min(first[k], i)
                last[k] = max(last[k], i - 1)
            else:
                first[k] = i
                last[k] = i - 1
            k += 1


@compiled
def _order_units(
    gain: IntArray, n: int, first: IntArray, last: IntArray, starts: IntArray, order: IntArray, leaving: IntArray
) -> None:
    """Order units by their first budget of doubt and add up, for each budget, the gains that are certain from it on.

    Those of budget i are ``order[starts[i - 1]:starts[i]]``, those of budget 0 the ones before.
    """
    starts[:] = 0
    leaving[:] = 0
    for k in range(n):
        starts[first[k] + 1] += 1
        if last[k] >= first[k]:
            leaving[last[k] + 1] += gain[k]
    for i in range(1, starts.size):
        starts[i] += starts[i - 1]
    for k in range(n):
        order[starts[first[k]]] = k
        starts[first[k]] += 1


@compiled
def _sweep(
    budgets: IntArray, cost: IntArray, gain: IntArray, n: int, first: IntArray, last: IntArray, band: FloatArray,
    bound: FloatArray, most: IntArray, reached: IntArray, starts: IntArray, order: IntArray, leaving: IntArray,
    room: Any, unreachable: Any
) -> bool:  # fmt: skip
    """Run the program over rewards once; returns whether every budget is proved now."""
    _order_units(gain, n, first, last, starts, order, leaving)
    final = 0
    for i in range(budgets.size):
        if band[i] >= 0:
            final = i
    room[0, 0] = 0
    side = low = high = np.int64(0)
    base_cost = base_gain = np.int64(0)
    at = 0
    proved = True
    for i in range(final + 1):
        low += leaving[i]
        while at < starts[i]:
            k = order[at]
            at += 1
            if last[k] < first[k]:
                base_cost += cost[k]
                base_gain += gain[k]
                continue
            _admit(room, side, low, high, cost[k], gain[k], unreachable)
            side = 1 - side
            high += gain[k]
        if band[i] < 0:
            continue
        for y in range(min(high, most[i] - base_gain), max(low, reached[i] - base_gain + 1) - 1, -1):
            if base_cost + room[side, y] <= budgets[i]:
                reached[i] = base_gain + y
                break
        needed = bound[i] - (reached[i] + 1)
        if reached[i] == most[i] or needed <= band[i]:
            band[i] = -1.0
        else:
            band[i] = min(needed * _WIDER + 1e-6, band[i] * _GROWTH)
            proved = False
    return proved


@compiled
def _admit(room: Any, side: int, low: int, high: int, cost: int, gain: int, unreachable: Any) -> None:
    """Let a unit think or not, where rewards low..high were possible: from one row of the room into the other."""
    old, new = room[side], room[1 - side]
    more = old.dtype.type(cost)
    size = high - low + 1
    if gain >= size:
        new[low : high + 1] = old[low : high + 1]
        new[high + 1 : low + gain] = unreachable
        target = new[low + gain : high + gain + 1]
        source = old[low : high + 1]
        for y in range(size):
            target[y] = old.dtype.type(source[y] + more)
        return
    old[high + 1 : high + gain + 1] = unreachable
    new[low : low + gain] = old[low : low + gain]
    n = high + 1 - low
    without = old[low + gain : high + gain + 1]
    taken = old[low : high + 1]
    best = new[low + gain : high + gain + 1]
    for y in range(n):
        total = old.dtype.type(taken[y] + more)
        best[y] = without[y] if without[y] < total else total


@compiled
def solve_routes(
    question_idx: Any, counts: Any, full_cost: Any, zero_correct: Any, full_correct: Any, budgets: Any, rewards: Any,
    room: Any, unreachable: Any
) -> None:  # fmt: skip
    """Fill the largest reward of dynamic routing at each budget; a unit is a drawn occurrence, which thinks or not.

    `full_cost`, `zero_correct`, `full_correct`: questions x R. `question_idx`, `counts`, `budgets`, `rewards`: one row
    per replicate; budgets never fall. `room`: two rows with a place for every reward, in a type in which no cost
    overflows.

    Examples
    --------
    Two questions, one trajectory each: 10 tokens for 3 probes, 20 for 4.

    >>> idx, counts = np.array([[0, 1]], np.int32), np.ones((1, 2, 1), np.int32)
    >>> tokens, none, right = (np.array(column)[:, None] for column in ([10, 20], [0, 0], [3, 4]))
    >>> budgets, rewards = np.array([[0, 10, 19, 20, 30]]), np.empty((1, 5), np.int64)
    >>> room = np.empty((2, 20), np.int32)
    >>> solve_routes(idx, counts, tokens, none, right, budgets, rewards, room, np.int32(2**30 - 1))
    >>> rewards.tolist()
    [[0, 3, 3, 4, 7]]
    """
    n_budgets = budgets.shape[1]
    n_units = question_idx.shape[1]
    cost = np.empty(n_units, np.int64)
    gain = np.empty(n_units, np.int64)
    first = np.empty(n_units, np.int64)
    last = np.empty(n_units, np.int64)
    order = np.empty(n_units, np.int64)
    cost_float = np.empty(n_units, np.float64)
    gain_float = np.empty(n_units, np.float64)
    breaks = np.empty(n_budgets, np.int64)
    reached = np.empty(n_budgets, np.int64)
    most = np.empty(n_budgets, np.int64)
    slope = np.empty(n_budgets, np.float64)
    bound = np.empty(n_budgets, np.float64)
    band = np.empty(n_budgets, np.float64)
    starts = np.empty(n_budgets + 2, np.int64)
    leaving = np.empty(n_budgets + 1, np.int64)
    for i in range(question_idx.shape[0]):
        n, base = _list_units(question_idx[i], counts[i], full_cost, zero_correct, full_correct, cost, gain)
        for k in range(n):
            cost_float[k], gain_float[k] = cost[k], gain[k]
        _find_breaks(budgets[i], cost, gain, n, breaks, reached, most, slope, bound, band)
        proved = False
        while not proved:
            _find_doubts(breaks, slope, band, cost_float, gain_float, n, first, last)
            proved = _sweep(
                budgets[i], cost, gain, n, first, last, band, bound, most, reached, starts, order, leaving, room,
                unreachable
            )  # fmt: skip
        for b in range(n_budgets):
            rewards[i, b] = base + reached[b]
