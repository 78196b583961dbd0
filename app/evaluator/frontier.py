"""Exact frontiers of a cell by the textbook dynamic program: the reference that faster solvers are checked against.

A frontier is a multiple-choice knapsack solved for all budgets at once. Each unit has actions of integer cost (retained
tokens) and reward (correct probes); one action per unit is chosen, and the frontier is every nondominated pair of
totals.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.certificates import Certificate
from app.evaluator.curves import Curve
from app.evaluator.measurements import Cell, IntArray, Measurements
from app.evaluator.strategies import Strategy, n_units

# Least costs by reward: int32 where the cell's tokens allow it, which nearly halves the time, else int64.
CostArray = NDArray[Any]

# The cost that stands for "no combination has this reward". Any real cost can be added to it once without leaving its
# type, since a narrow array is used only where all tokens of the cell together stay below it.
_UNREACHABLE = {np.dtype(np.int32): 2**30 - 1, np.dtype(np.int64): 2**62 - 1}


@dataclass(frozen=True, eq=False)
class UnitActions:
    """The nondominated actions of every unit of a cell, by increasing cost.

    Attributes
    ----------
    offsets : int64, units + 1; the actions of unit u are ``offsets[u]:offsets[u + 1]``, at least one.
    cost : int64, retained tokens over the unit's trajectories; 0 at each unit's first action, then strictly increasing.
    reward : int64, correct probes over the unit's trajectories, strictly increasing in the unit.
    action : int64, the action that has this cost and reward: 0 or 1, a cap in tokens, or a position. Of several that do
        (caps between two lengths select the same positions), the smallest.
    """

    offsets: IntArray
    cost: IntArray
    reward: IntArray
    action: IntArray

    @property
    def n_units(self) -> int:
        """Number of units."""
        return len(self.offsets) - 1


@dataclass(frozen=True, eq=False)
class Frontier:
    """The exact frontier of one strategy in one cell.

    Attributes
    ----------
    model, benchmark, strategy : whose frontier it is.
    curve : all nondominated (total cost, total reward) pairs as a step curve.
    full_correct : correct probes at the end of thinking, summed over the cell; A_full is this over `total_probes`.
    certificate : what shows that no point is missing, by `app.evaluator.fast_frontier`; the textbook's has none.
    """

    model: str
    benchmark: str
    strategy: Strategy
    curve: Curve
    full_correct: int
    certificate: Certificate | None = None

    @property
    def cost(self) -> IntArray:
        """Total retained tokens of each point, int64, strictly increasing from 0."""
        return self.curve.cost

    @property
    def correct(self) -> IntArray:
        """Total correct probes of each point, int64, strictly increasing."""
        return self.curve.correct

    @property
    def total_thinking_tokens(self) -> int:
        """T, the full-thinking tokens of the cell."""
        return self.curve.total_thinking_tokens

    @property
    def total_probes(self) -> int:
        """Trajectories times probes per position."""
        return self.curve.total_probes


def build_unit_actions(cell: Cell, strategy: Strategy) -> UnitActions:
    """Return each unit's nondominated actions.

    An action stays if its reward exceeds that of every cheaper one. Actions below the line between two others stay as
    well: the exact optimum uses them. The first action of every unit is 0, for nothing retained.

    Raises
    ------
    ValueError : the cell's labels are hidden.

    Notes
    -----
    Section 4.1. A unit's actions are listed by cost, and a running maximum of the reward, kept apart between units by
    an offset, selects them. O(positions log positions) for caps, O(positions) otherwise.

    Examples
    --------
    Two trajectories share the caps. Cap 100 keeps 0 + 100 tokens for 1 + 2 correct probes, cap 256 keeps 256 + 100 for
    4 + 2, and cap 300 keeps 256 + 300 for only 4 + 1.

    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (256, 4)], [(0, 0), (100, 2), (300, 1)]])], 4)
    >>> actions = build_unit_actions(cell, Strategy.FIXED_BUDGET)
    >>> actions.action.tolist(), actions.cost.tolist(), actions.reward.tolist()
    ([0, 100, 256], [0, 100, 356], [1, 3, 6])
    """
    if not cell.has_labels:
        raise ValueError(f"the labels of {cell.model} on {cell.benchmark} are hidden")
    listed = {
        Strategy.DYNAMIC_ROUTING: _list_routes,
        Strategy.FIXED_BUDGET: _list_caps,
        Strategy.DYNAMIC_EARLY_EXIT: _list_positions,
    }[strategy](cell)
    kept = listed.reward > _best_before(listed)
    counts = np.bincount(listed.unit[kept], minlength=n_units(cell, strategy))
    return UnitActions(
        offsets=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
        cost=listed.cost[kept],
        reward=listed.reward[kept],
        action=listed.action[kept],
    )


@dataclass(frozen=True, eq=False)
class _Listed:
    """Candidate actions ordered by unit, then strictly by cost."""

    unit: IntArray
    cost: IntArray
    reward: IntArray
    action: IntArray


def _best_before(listed: _Listed) -> IntArray:
    """Return the largest reward among the unit's earlier actions, -1 at each unit's first one."""
    apart = int(listed.reward.max()) + 1
    best = np.maximum.accumulate(listed.reward + listed.unit * apart)
    before = np.concatenate([[-1], best[:-1]]) - listed.unit * apart
    return np.maximum(before, -1)


def _list_routes(cell: Cell) -> _Listed:
    per_question = (cell.n_questions, cell.trajectories_per_question)
    full_cost = cell.thinking_tokens.reshape(per_question).sum(axis=1)
    zero = cell.zero_correct.reshape(per_question).sum(axis=1)
    full = cell.endpoint_correct.reshape(per_question).sum(axis=1)
    return _Listed(
        unit=np.repeat(np.arange(cell.n_questions), 2),
        cost=np.stack([np.zeros_like(full_cost), full_cost], axis=1).reshape(-1),
        reward=np.stack([zero, full], axis=1).reshape(-1),
        action=np.tile(np.arange(2), cell.n_questions),
    )


def _list_positions(cell: Cell) -> _Listed:
    return _Listed(
        unit=cell.trajectory_of_position,
        cost=cell.retained_tokens.astype(np.int64),
        reward=cell.correct_probes.astype(np.int64),
        action=np.arange(cell.retained_tokens.size) - cell.first_idx[cell.trajectory_of_position],
    )


def _list_caps(cell: Cell) -> _Listed:
    """List the distinct caps of each question: every position is an event at its length that adds cost and reward."""
    positions = _list_positions(cell)
    is_first = positions.action == 0
    question = positions.unit // cell.trajectories_per_question
    longest = int(cell.thinking_tokens.max())
    key = question * (longest + 1) + positions.cost
    order = np.argsort(key, kind="stable")
    key = key[order]
    # Positions of one length are one action, which has happened once the last of them has.
    ends = np.flatnonzero(np.append(key[1:] != key[:-1], True))
    added_cost = np.where(is_first, 0, np.diff(positions.cost, prepend=0))[order]
    added_reward = np.where(is_first, positions.reward, np.diff(positions.reward, prepend=0))[order]
    unit = question[order][ends]
    return _Listed(
        unit=unit,
        cost=_sum_within(unit, np.cumsum(added_cost)[ends]),
        reward=_sum_within(unit, np.cumsum(added_reward)[ends]),
        action=positions.cost[order][ends],
    )


def _sum_within(unit: IntArray, running: IntArray) -> IntArray:
    """Subtract from running sums over all units, in order of unit, what the units before contributed."""
    starts = np.flatnonzero(np.diff(unit, prepend=-1))
    before: IntArray = np.repeat(np.concatenate([[0], running])[starts], np.diff(starts, append=unit.size))
    return running - before


def solve_frontier(cell: Cell, strategy: Strategy) -> Frontier:
    """Return the exact frontier of a strategy in a cell.

    Raises
    ------
    ValueError : the cell's labels are hidden.

    Notes
    -----
    Section 4.1, appendix A.3. ``least[r]`` is the least cost of any combination of the units so far whose reward is r
    above that of no thinking at all; a unit whose actions j gain g_j at cost c_j turns it into
    ``min over j of least[r - g_j] + c_j``. A point is on the frontier if nothing of at least its reward costs as
    little. Integers throughout. Time: number of actions times reward range; memory: reward range.

    Examples
    --------
    One trajectory may stop at 256 for three probes more, the other at 100 for two more: 100, 256 and both together.

    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (256, 4)], [(0, 0), (100, 2), (300, 1)]])], 4)
    >>> frontier = solve_frontier(cell, Strategy.DYNAMIC_EARLY_EXIT)
    >>> frontier.cost.tolist(), frontier.correct.tolist(), frontier.full_correct
    ([0, 100, 256, 356], [1, 3, 4, 6], 5)
    """
    actions = build_unit_actions(cell, strategy)
    least = _no_unit(cell)
    for choice in _list_choices(actions):
        least = _add_unit(least, choice)
    base = int(actions.reward[actions.offsets[:-1]].sum())
    gains = _find_frontier(least)
    return Frontier(
        model=cell.model,
        benchmark=cell.benchmark,
        strategy=strategy,
        curve=Curve(least[gains].astype(np.int64), base + gains, cell.total_thinking_tokens, cell.total_probes),
        full_correct=int(cell.endpoint_correct.sum()),
    )


def solve_frontiers(measurements: Measurements, strategies: Sequence[Strategy] = tuple(Strategy)) -> list[Frontier]:
    """Return the frontiers of all cells, in the measurements' order, and in each cell of the strategies in theirs."""
    return [solve_frontier(cell, strategy) for cell in measurements.cells for strategy in strategies]


def solve_policies(cell: Cell, strategy: Strategy, rewards: Sequence[int]) -> IntArray:
    """Return actions of the oracle that realise these points of the frontier, cost and reward exactly.

    Several combinations may realise a point; the answer is the one that, from the last unit to the first, takes the
    cheapest action that still leads there. Caps are the shortest that select their positions.

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
    The program of `solve_frontier`, run forwards once to keep every b-th array of least costs (b the root of the number
    of units), and backwards block by block, which recomputes the arrays in between: twice the time of the frontier, and
    memory for 2b arrays besides the result.

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (256, 4)], [(0, 0), (100, 2), (300, 1)]])], 4)
    >>> solve_policies(cell, Strategy.DYNAMIC_EARLY_EXIT, [1, 4, 6]).tolist()
    [[0, 0], [1, 0], [1, 1]]
    """
    actions = build_unit_actions(cell, strategy)
    choices = _list_choices(actions)
    block = math.isqrt(len(choices)) + 1
    checkpoints = []
    least = _no_unit(cell)
    for i, choice in enumerate(choices):
        if i % block == 0:
            checkpoints.append(least)
        least = _add_unit(least, choice)
    gain = np.asarray(rewards, dtype=np.int64).reshape(-1) - int(actions.reward[actions.offsets[:-1]].sum())
    if not np.isin(gain, _find_frontier(least)).all():
        raise ValueError(f"not every reward is on the frontier of {cell.model} on {cell.benchmark}")
    cost = least[gain].astype(np.int64)
    chosen = np.zeros((actions.n_units, gain.size), dtype=np.int64)
    for number, checkpoint in reversed(list(enumerate(checkpoints))):
        members = choices[number * block : (number + 1) * block]
        for choice, before in zip(reversed(members), reversed(_list_before(checkpoint, members)), strict=True):
            taken = _find_taken(choice, before, gain, cost)
            gain, cost = gain - choice.gain[taken], cost - choice.cost[taken]
            chosen[choice.unit] = actions.action[actions.offsets[choice.unit] + taken]
    return np.ascontiguousarray(chosen.T)


@dataclass(frozen=True, eq=False)
class _Choice:
    """A unit with several actions: what each costs, and gains in reward over the first, whose entries are 0."""

    unit: int
    cost: IntArray
    gain: IntArray


def _list_choices(actions: UnitActions) -> list[_Choice]:
    """List the units that have a choice; the others stay at their only action."""
    counts = np.diff(actions.offsets)
    gain = actions.reward - np.repeat(actions.reward[actions.offsets[:-1]], counts)
    bounds = actions.offsets.tolist()
    return [
        _Choice(unit, actions.cost[bounds[unit] : bounds[unit + 1]], gain[bounds[unit] : bounds[unit + 1]])
        for unit in np.flatnonzero(counts > 1).tolist()
    ]


def _no_unit(cell: Cell) -> CostArray:
    """Return the least costs before any unit has chosen: nothing, for nothing."""
    narrow = cell.total_thinking_tokens < _UNREACHABLE[np.dtype(np.int32)]
    return np.zeros(1, dtype=np.int32 if narrow else np.int64)


def _add_unit(least: CostArray, choice: _Choice) -> CostArray:
    """Return the least costs once this unit has chosen too."""
    size = least.size
    grown = np.full(size + int(choice.gain[-1]), _UNREACHABLE[least.dtype], dtype=least.dtype)
    grown[:size] = least
    for cost, gain in zip(choice.cost[1:].tolist(), choice.gain[1:].tolist(), strict=True):
        reached = grown[gain : gain + size]
        np.minimum(reached, least + cost, out=reached)
    return grown


def _find_frontier(least: CostArray) -> IntArray:
    """Return the gains whose least cost is below that of every larger gain; the largest gain is one of them."""
    cheapest_above = np.minimum.accumulate(least[::-1])[::-1][1:]
    return np.flatnonzero(np.append(least[:-1] < cheapest_above, True))


def _list_before(least: CostArray, choices: Sequence[_Choice]) -> list[CostArray]:
    """Return the least costs before each of these choices, given those before the first."""
    before = [least]
    for choice in choices[:-1]:
        before.append(_add_unit(before[-1], choice))
    return before


def _find_taken(choice: _Choice, before: CostArray, gain: IntArray, cost: IntArray) -> IntArray:
    """Return, per wanted (gain, cost), the index of the first action from which the units before make up the rest."""
    rest = gain[:, None] - choice.gain
    inside = (rest >= 0) & (rest < before.size)
    fits = inside & (before[np.where(inside, rest, 0)] == cost[:, None] - choice.cost)
    first: IntArray = np.argmax(fits, axis=1)
    return first
