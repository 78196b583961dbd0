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

# So many replicates are added up side by side, in vectors. Of fewer the compiler unrolls the loop instead.
_LANES = 50
_LARGEST_FLOAT = 2**53


@dataclass(frozen=True, eq=False)
class ConstantPolicies:
    """How the totals of a cell's constant caps and constant positions grow, one policy to the next.

    Attributes
    ----------
    n_caps, n_positions : how many policies there are of either kind, the first of either retaining nothing.
    bounds : int64; the changes of trajectory t are ``bounds[t]:bounds[t + 1]``.
    policy : int64; from which policy of its kind on, the positions counted on from the caps.
    change : tokens times 2^shift plus probes, which may fall. In float64 where every sum over a replicate is below 2^53
        and so stays exact, else in int64.
    """

    n_caps: int
    n_positions: int
    bounds: IntArray
    policy: IntArray
    change: NDArray[Any]
    shift: int


def tabulate_policies(cell: Cell) -> ConstantPolicies:
    """Return the changes of the constant policies of section 4, whose caps a replicate keeps.

    Constant positions past the longest trajectory select what the last one does and are left out.

    Examples
    --------
    The cap 5 is half of the mean length of 10 tokens. A cell of 4 probes packs a change of 5 tokens as 5 * 16.

    >>> from app.evaluator.measurements import build_cell
    >>> policies = tabulate_policies(build_cell("m", "b", [("q", "test", [[(0, 1), (5, 4), (10, 2)]])], 4))
    >>> policies.n_caps, policies.policy.tolist(), policies.change.tolist()
    (102, [0, 50, 100, 102, 103, 104], [1.0, 83.0, 78.0, 1.0, 83.0, 78.0])
    """
    caps = list_constant_caps(cell)
    shift = cell.total_probes.bit_length() + 1
    change = np.diff((cell.retained_tokens.astype(np.int64) << shift) + cell.correct_probes, prepend=0)
    change[cell.first_idx] = cell.correct_probes[cell.first_idx]
    first_cap = np.searchsorted(caps, cell.retained_tokens, side="left")
    # Changes of one trajectory under the same cap are one change.
    key = cell.trajectory_of_position * len(caps) + first_cap
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    position = np.arange(change.size) - cell.first_idx[cell.trajectory_of_position]
    is_policy = position <= LAST_CONSTANT_POSITION
    trajectory = np.concatenate([cell.trajectory_of_position[starts], cell.trajectory_of_position[is_policy]])
    order = np.argsort(trajectory, kind="stable")
    largest_total = cell.n_trajectories * int(cell.thinking_tokens.max())
    is_exact = (largest_total + 1) << shift < _LARGEST_FLOAT
    return ConstantPolicies(
        n_caps=len(caps),
        n_positions=min(int(cell.n_steps.max()), LAST_CONSTANT_POSITION) + 1,
        bounds=np.searchsorted(trajectory[order], np.arange(cell.n_trajectories + 1)),
        policy=np.concatenate([first_cap[starts], position[is_policy] + len(caps)])[order],
        change=np.concatenate([np.add.reduceat(change, starts), change[is_policy]])[order].astype(
            np.float64 if is_exact else np.int64
        ),
        shift=shift,
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
    One pass over the trajectories' changes for many replicates, and running sums over the policies. O(positions).
    """
    sums = add_policies(policies, weights)
    # The probes are signed, so half a unit more makes the division round to the tokens.
    tokens = (sums + (1 << policies.shift - 1)) >> policies.shift
    grid = np.empty((len(weights), len(Strategy), n_intervals + 1))
    _fill_grid(tokens, sums - (tokens << policies.shift), policies.n_caps, totals, total_probes, grid)
    return grid


def add_policies(policies: ConstantPolicies, weights: NDArray[np.int32]) -> IntArray:
    """Return each policy's tokens times 2^shift plus probes, int64 of replicates x policies, caps first.

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> policies = tabulate_policies(build_cell("m", "b", [("q", "test", [[(0, 1), (5, 4), (10, 2)]])], 4))
    >>> add_policies(policies, np.array([[2]], np.int32))[0, [0, 49, 50, 101, 102, 103, 104]].tolist()
    [2, 2, 168, 324, 2, 168, 324]
    """
    n_replicates, n_trajectories = weights.shape
    lanes = np.zeros((n_trajectories, _LANES), policies.change.dtype)
    sums = np.empty((n_replicates, policies.n_caps + policies.n_positions), np.int64)
    rows = np.empty((sums.shape[1], _LANES), policies.change.dtype)
    for start in range(0, n_replicates, _LANES):
        part = weights[start : start + _LANES]
        lanes[:, : len(part)] = part.T
        rows[:] = 0
        _add_changes(lanes, policies.bounds, policies.policy, policies.change, rows)
        sums[start : start + len(part)] = rows.T[: len(part)]
    for kind in (sums[:, : policies.n_caps], sums[:, policies.n_caps :]):
        np.cumsum(kind, axis=1, out=kind)
    return sums


@compiled
def _add_changes(lanes: Any, bounds: IntArray, policy: IntArray, change: Any, rows: Any) -> None:
    """Add every trajectory's changes to the policies' rows, times what each lane drew of it."""
    for t in range(bounds.size - 1):
        drawn = lanes[t]
        for e in range(bounds[t], bounds[t + 1]):
            more = change[e]
            row = rows[policy[e]]
            for k in range(_LANES):
                row[k] += drawn[k] * more


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
