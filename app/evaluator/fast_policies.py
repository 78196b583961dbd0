"""The oracle's actions, by the textbook program in compiled loops: the same actions, many times faster."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from app.evaluator.compiled import compiled, compiled_part
from app.evaluator.fast_units import list_unit_actions
from app.evaluator.measurements import Cell, IntArray
from app.evaluator.strategies import Strategy

# Costs of this size stand for "unreachable"; twice as much still fits into the type.
_NARROW, _WIDE = np.int32(2**29), np.int64(2**61)


def solve_policies_fast(cell: Cell, strategy: Strategy, rewards: Sequence[int]) -> IntArray:
    """Return actions of the oracle that realise these points of the frontier: those of `solve_policies`, each of them.

    Parameters
    ----------
    rewards : total correct probes of the wanted points: values of the frontier's `correct`, in any order, also twice.

    Returns
    -------
    int64, rewards x units: actions as `select_positions` takes them.

    Raises
    ------
    ValueError : the cell's labels are hidden, or a reward that is not on the frontier.

    Notes
    -----
    As the textbook: forwards once to keep every b-th array of least costs (b the root of the number of units), then
    backwards block by block, which makes the arrays in between anew. Time: twice number of actions times reward range,
    and once actions times rewards; memory: 2b arrays besides the result.

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (256, 4)], [(0, 0), (100, 2), (300, 1)]])], 4)
    >>> solve_policies_fast(cell, Strategy.DYNAMIC_EARLY_EXIT, [1, 4, 6]).tolist()
    [[0, 0], [1, 0], [1, 1]]
    """
    actions = list_unit_actions(cell, strategy)
    first = actions.reward[actions.offsets[:-1]]
    counts = np.diff(actions.offsets)
    gain = actions.reward - np.repeat(first, counts)
    # Only units with a choice; the range of gains before each of them, and after the last.
    units = np.flatnonzero(counts > 1)
    most = np.concatenate([[0], np.cumsum(gain[actions.offsets[1:] - 1][units])])
    block = math.isqrt(units.size) + 1
    unreachable = _NARROW if cell.total_thinking_tokens < _NARROW else _WIDE
    kept, least = _run_forwards(actions.offsets, actions.cost, gain, units, most, block, unreachable)
    wanted = np.asarray(rewards, dtype=np.int64).reshape(-1) - int(first.sum())
    if not _is_on_frontier(least, wanted).all():
        raise ValueError(f"not every reward is on the frontier of {cell.model} on {cell.benchmark}")
    cost = least[wanted].astype(np.int64)
    chosen = np.zeros((wanted.size, actions.n_units), dtype=np.int64)
    _run_backwards(
        actions.offsets, actions.cost, gain, actions.action, units, most, block, unreachable, kept, wanted, cost, chosen
    )
    return chosen


def _is_on_frontier(least: Any, gain: IntArray) -> Any:
    """Whether every larger gain costs more; the largest of all is on the frontier."""
    inside = (gain >= 0) & (gain < least.size)
    above = np.append(np.minimum.accumulate(least[::-1])[::-1][1:], np.iinfo(least.dtype).max)
    place = np.where(inside, gain, 0)
    return inside & (least[place] < above[place])


@compiled_part
def _add_unit(old: Any, new: Any, size: int, cost: IntArray, gain: IntArray, unreachable: Any) -> None:
    """Write the least costs once a unit has chosen too, from the first `size` ones before."""
    # Loops rather than assignments to slices, which take seconds to compile.
    source, beyond = old[:size], new[size : size + gain[-1]]
    for r in range(size):
        new[r] = source[r]
    for r in range(beyond.size):
        beyond[r] = unreachable
    for j in range(1, cost.size):
        more = source.dtype.type(cost[j])
        target = new[gain[j] : gain[j] + size]
        for r in range(size):
            total = source.dtype.type(source[r] + more)
            target[r] = total if total < target[r] else target[r]


@compiled
def _run_forwards(
    offsets: IntArray, cost: IntArray, gain: IntArray, units: IntArray, most: IntArray, block: int, unreachable: Any
) -> tuple[Any, Any]:
    """Return the least costs before every block of units, one row each, and those after the last unit."""
    n_blocks = (units.size + block - 1) // block
    old = np.full(most[-1] + 1, unreachable)
    new = np.full(most[-1] + 1, unreachable)
    kept = np.empty((n_blocks, most[-1] + 1), old.dtype)
    old[0] = 0
    for i in range(units.size):
        size = most[i] + 1
        if i % block == 0:
            row = kept[i // block]
            for r in range(size):
                row[r] = old[r]
        start, stop = offsets[units[i]], offsets[units[i] + 1]
        _add_unit(old, new, size, cost[start:stop], gain[start:stop], unreachable)
        old, new = new, old
    return kept, old


@compiled
def _run_backwards(
    offsets: IntArray,
    cost: IntArray,
    gain: IntArray,
    action: IntArray,
    units: IntArray,
    most: IntArray,
    block: int,
    unreachable: Any,
    kept: Any,
    wanted_gain: IntArray,
    wanted_cost: IntArray,
    chosen: IntArray,
) -> None:
    """From the last unit to the first, take the first action from which the units before make up the rest."""
    before = np.empty((block, most[-1] + 1), kept.dtype)
    for b in range(kept.shape[0] - 1, -1, -1):
        first, end = b * block, min((b + 1) * block, units.size)
        row, least = kept[b], before[0]
        for r in range(most[first] + 1):
            least[r] = row[r]
        for i in range(first, end - 1):
            start, stop = offsets[units[i]], offsets[units[i] + 1]
            here, there = before[i - first], before[i - first + 1]
            _add_unit(here, there, most[i] + 1, cost[start:stop], gain[start:stop], unreachable)
        for i in range(end - 1, first - 1, -1):
            start, stop = offsets[units[i]], offsets[units[i] + 1]
            least = before[i - first][: most[i] + 1]
            for w in range(wanted_gain.size):
                for j in range(start, stop):
                    rest = wanted_gain[w] - gain[j]
                    if 0 <= rest < least.size and least[rest] == wanted_cost[w] - cost[j]:
                        wanted_gain[w] = rest
                        wanted_cost[w] -= cost[j]
                        chosen[w, units[i]] = action[j]
                        break
