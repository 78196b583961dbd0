"""The three strategies: what a decision unit is, what an action means, and which position it selects."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from app.evaluator.measurements import Cell, IntArray

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


class Strategy(StrEnum):
    """How a method decides; the value is the name in files, REST and commands."""

    DYNAMIC_ROUTING = "dynamic_routing"
    FIXED_BUDGET = "fixed_budget"
    DYNAMIC_EARLY_EXIT = "dynamic_early_exit"

    @property
    def unit_is_trajectory(self) -> bool:
        """Whether the decision unit is a trajectory; otherwise it is a question."""
        return self is Strategy.DYNAMIC_EARLY_EXIT


@dataclass(frozen=True, eq=False)
class CellActions:
    """The actions of a file in one cell.

    Attributes
    ----------
    covered : bool, one per setting of the table; whether that setting covers the cell (completely, or not at all).
    actions : int64, settings x units; the units are the cell's questions or trajectories in the cell's order.
        Rows of settings that do not cover the cell are 0 and mean nothing. Early-exit actions are positions,
        also where the file gave `stop_tokens`.
    """

    covered: NDArray[np.bool_]
    actions: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ActionTable:
    """All actions of a file: one `CellActions` per cell of the split, in the measurements' order.

    `settings` holds the labels in their order: numeric labels by value, then the others by text.
    """

    strategy: Strategy
    settings: tuple[str, ...]
    cells: tuple[CellActions, ...]


def n_units(cell: Cell, strategy: Strategy) -> int:
    """Number of decision units of a cell: trajectories for dynamic early exit, else questions."""
    return cell.n_trajectories if strategy.unit_is_trajectory else cell.n_questions


def sort_settings(labels: set[str]) -> tuple[str, ...]:
    """Order setting labels: plain decimal numbers by value (equal values by text), then the others by text.

    Examples
    --------
    >>> sort_settings({"10", "9", "0.5", "b", "a", "1_0", "nan"})
    ('0.5', '9', '10', '1_0', 'a', 'b', 'nan')
    """

    def key(label: str) -> tuple[int, float, str]:
        # Python's own float() would also read "1_0", " 5 " and digits of other scripts.
        value = float(label) if _NUMBER.fullmatch(label) else math.inf
        return (0, value, label) if math.isfinite(value) else (1, 0.0, label)

    return tuple(sorted(labels, key=key))


def find_positions_at_tokens(cell: Cell, tokens: IntArray) -> IntArray:
    """Return, per trajectory, the largest position with L(k) <= its token cap.

    Parameters
    ----------
    tokens : int64, one cap >= 0 per trajectory; any size, a cap past L(n) gives n.

    Returns
    -------
    int64, one position 0..n per trajectory.

    Notes
    -----
    Retained tokens rise strictly inside a trajectory, so one binary search per trajectory finds the position.
    O(trajectories log positions), once the cell's search keys are made.

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (256, 4)], [(0, 0), (100, 2), (300, 1)]])], 4)
    >>> find_positions_at_tokens(cell, np.array([255, 300])).tolist()
    [0, 2]
    """
    longest = int(cell.retained_tokens.max())
    wanted = np.arange(cell.n_trajectories) * (longest + 1) + np.minimum(tokens, longest)
    return np.searchsorted(cell.length_keys, wanted, side="right") - 1 - cell.first_idx


def select_positions(cell: Cell, strategy: Strategy, actions: IntArray) -> IntArray:
    """Return the stopping position of each trajectory under one action per unit.

    Parameters
    ----------
    actions : int64, one per unit. Dynamic routing: 0 or 1, for position 0 or n. Fixed budget: a cap in tokens >= 0.
        Dynamic early exit: the position itself, 0..n.

    Returns
    -------
    int64, one position 0..n per trajectory.

    Raises
    ------
    ValueError : the wrong number of actions, or an action outside its range (a caller's bug: files are checked before).
    """
    if actions.shape != (n_units(cell, strategy),):
        raise ValueError(f"expected {n_units(cell, strategy)} actions, got shape {actions.shape}")
    if actions.size and int(actions.min()) < 0:
        raise ValueError("actions are never negative")
    if strategy is Strategy.DYNAMIC_EARLY_EXIT:
        if (actions > cell.n_steps).any():
            raise ValueError("a position lies past its trajectory's last one")
        return actions.astype(np.int64)
    per_trajectory = np.repeat(actions, cell.trajectories_per_question)
    if strategy is Strategy.FIXED_BUDGET:
        return find_positions_at_tokens(cell, per_trajectory)
    if (actions > 1).any():
        raise ValueError("a routing action is 0 or 1")
    return per_trajectory * cell.n_steps
