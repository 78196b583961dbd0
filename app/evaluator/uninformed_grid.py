"""The uninformed reference of resampled cells: the original data's constant policies, added up for each replicate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.compiled import compiled
from app.evaluator.measurements import Cell, IntArray
from app.evaluator.reference import LAST_CONSTANT_POSITION, list_constant_caps
from app.evaluator.strategies import Strategy

FloatArray = NDArray[np.float64]

# A change of tokens and probes in one integer: tokens times 2^28 plus probes, which may fall.
_TOKEN_SHIFT = 28
_TOKEN_UNIT = 2**_TOKEN_SHIFT


@dataclass(frozen=True, eq=False)
class ConstantPolicies:
    """How the totals of a cell's constant caps and constant positions grow, one policy to the next.

    Attributes
    ----------
    n_caps, n_positions : how many policies there are of either kind, the first of either retaining nothing.
    cap_bounds, cap, cap_change : int64; the changes of trajectory t are ``cap_bounds[t]:cap_bounds[t + 1]``: from which
        cap on, and what.
    position_bounds, position_change : int64; those of its positions 0, 1, ... up to the last that is a policy.
    """

    n_caps: int
    n_positions: int
    cap_bounds: IntArray
    cap: IntArray
    cap_change: IntArray
    position_bounds: IntArray
    position_change: IntArray


def tabulate_policies(cell: Cell) -> ConstantPolicies:
    """Return the changes of the constant policies of section 4, whose caps a replicate keeps.

    Constant positions past the longest trajectory select what the last one does and are left out.

    Examples
    --------
    The cap 5 is half of the mean length of 10 tokens.

    >>> from app.evaluator.measurements import build_cell
    >>> policies = tabulate_policies(build_cell("m", "b", [("q", "test", [[(0, 1), (5, 4), (10, 2)]])], 4))
    >>> policies.cap.tolist(), policies.cap_change.tolist() == [1, 5 * 2**28 + 3, 5 * 2**28 - 2]
    ([0, 50, 100], True)
    """
    caps = list_constant_caps(cell)
    change = np.diff(cell.retained_tokens.astype(np.int64) * _TOKEN_UNIT + cell.correct_probes, prepend=0)
    change[cell.first_idx] = cell.correct_probes[cell.first_idx]
    first_cap = np.searchsorted(caps, cell.retained_tokens, side="left")
    # Changes of one trajectory under the same cap are one change.
    key = cell.trajectory_of_position * len(caps) + first_cap
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    position = np.arange(change.size) - cell.first_idx[cell.trajectory_of_position]
    return ConstantPolicies(
        n_caps=len(caps),
        n_positions=min(int(cell.n_steps.max()), LAST_CONSTANT_POSITION) + 1,
        cap_bounds=np.searchsorted(cell.trajectory_of_position[starts], np.arange(cell.n_trajectories + 1)),
        cap=first_cap[starts],
        cap_change=np.add.reduceat(change, starts),
        position_bounds=np.append(0, np.cumsum(np.minimum(cell.n_steps, LAST_CONSTANT_POSITION) + 1)),
        position_change=change[position <= LAST_CONSTANT_POSITION],
    )


def find_uninformed_grid(
    policies: ConstantPolicies, weights: NDArray[np.int32], *, totals: IntArray, total_probes: int, n_intervals: int
) -> FloatArray:
    """Return the accuracies of the three uninformed references at beta = i/N, for each replicate of a cell.

    Parameters
    ----------
    weights : int32, replicates x trajectories.
    totals : int64, replicates x 3: full-thinking tokens, probes right without thinking, and at the end of thinking.

    Returns
    -------
    float64, replicates x strategies (in the order of `Strategy`) x N + 1, in 0..1; the accuracies of `HullCurve` for
    these policies on the resampled cell, to the last bit.

    Notes
    -----
    One pass over the drawn trajectories' changes, and running sums over the policies. O(positions) a replicate.
    """
    sums = np.empty((len(weights), policies.n_caps + policies.n_positions), np.int64)
    _add_caps(weights, policies.cap_bounds, policies.cap, policies.cap_change, sums[:, : policies.n_caps])
    _add_positions(weights, policies.position_bounds, policies.position_change, sums[:, policies.n_caps :])
    # The probes are signed, so half a unit more makes the division round to the tokens.
    tokens = (sums + _TOKEN_UNIT // 2) >> _TOKEN_SHIFT
    grid = np.empty((len(weights), len(Strategy), n_intervals + 1))
    _fill_grid(tokens, sums - tokens * _TOKEN_UNIT, policies.n_caps, totals, total_probes, grid)
    return grid


@compiled
def _add_caps(weights: Any, bounds: IntArray, cap: IntArray, change: IntArray, sums: IntArray) -> None:
    for i in range(weights.shape[0]):
        row = sums[i]
        row[:] = 0
        for t in range(bounds.size - 1):
            w = np.int64(weights[i, t])
            if w > 0:
                for e in range(bounds[t], bounds[t + 1]):
                    row[cap[e]] += w * change[e]
        for c in range(1, row.size):
            row[c] += row[c - 1]


@compiled
def _add_positions(weights: Any, bounds: IntArray, change: IntArray, sums: IntArray) -> None:
    for i in range(weights.shape[0]):
        row = sums[i]
        row[:] = 0
        for t in range(bounds.size - 1):
            of_trajectory = change[bounds[t] : bounds[t + 1]]
            for _ in range(weights[i, t]):
                for k in range(of_trajectory.size):
                    row[k] += of_trajectory[k]
        for k in range(1, row.size):
            row[k] += row[k - 1]


@compiled
def _merge(cost: IntArray, correct: IntArray, n_caps: int, n: int, merged_cost: IntArray, merged: IntArray) -> None:
    """Merge the caps and the positions among the first n policies by tokens."""
    i, j = 0, n_caps
    for k in range(n):
        if j >= n or (i < n_caps and cost[i] <= cost[j]):
            merged_cost[k], merged[k] = cost[i], correct[i]
            i += 1
        else:
            merged_cost[k], merged[k] = cost[j], correct[j]
            j += 1


@compiled
def _find_hull(cost: IntArray, correct: IntArray) -> int:
    """Move the upper hull of points, sorted by cost, to the front, up to the highest one; returns its size."""
    n = 1
    for k in range(1, cost.size):
        if correct[k] <= correct[n - 1]:
            continue
        if cost[k] == cost[n - 1]:
            n -= 1
        while n > 1 and (correct[n - 1] - correct[n - 2]) * (cost[k] - cost[n - 2]) <= (correct[k] - correct[n - 2]) * (
            cost[n - 1] - cost[n - 2]
        ):
            n -= 1
        cost[n], correct[n] = cost[k], correct[k]
        n += 1
    return n


@compiled
def _evaluate(cost: IntArray, correct: IntArray, n: int, total: int, total_probes: int, grid: FloatArray) -> None:
    """Fill the accuracies of a hull with n vertices at beta = i/N: an integer, divided once."""
    n_intervals = grid.size - 1
    at = 0
    for i in range(grid.size):
        while at + 1 < n and cost[at + 1] * n_intervals <= i * total:
            at += 1
        if at + 1 < n:
            run = cost[at + 1] - cost[at]
            rise = correct[at + 1] - correct[at]
            scaled = correct[at] * run * n_intervals + rise * (i * total - cost[at] * n_intervals)
            grid[i] = np.float64(scaled) / np.float64(run * n_intervals * total_probes)
        else:
            grid[i] = np.float64(correct[at]) / np.float64(total_probes)


@compiled
def _fill_grid(
    tokens: IntArray, correct: IntArray, n_caps: int, totals: IntArray, total_probes: int, grid: FloatArray
) -> None:
    n_policies = tokens.shape[1]
    cost = np.empty(max(n_policies, 2), np.int64)
    reward = np.empty(max(n_policies, 2), np.int64)
    for i in range(tokens.shape[0]):
        total = totals[i, 0]
        cost[0], cost[1] = 0, total
        reward[0], reward[1] = totals[i, 1], totals[i, 2]
        n = _find_hull(cost[:2], reward[:2])
        _evaluate(cost, reward, n, total, total_probes, grid[i, 0])
        for s, size in enumerate((n_caps, n_policies)):
            _merge(tokens[i], correct[i], n_caps, size, cost, reward)
            n = _find_hull(cost[:size], reward[:size])
            _evaluate(cost, reward, n, total, total_probes, grid[i, s + 1])
