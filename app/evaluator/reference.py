"""The uninformed reference: the best mix of constant policies, which a method must beat to have realised anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.evaluator.curves import HullCurve, upper_hull
from app.evaluator.frontier import Frontier
from app.evaluator.measurements import Cell, IntArray, Measurements
from app.evaluator.strategies import Strategy, find_positions_at_tokens

N_CAP_INTERVALS = 100
"""The constant caps are c/100 of the mean full-thinking tokens, c = 0..100, and no cap."""
LAST_CONSTANT_POSITION = 100
"""The constant positions are 0..100, each clipped to the trajectory's last one."""


@dataclass(frozen=True, eq=False)
class CellReference:
    """What scoring compares a cell with: its exact frontier under the strategy, and the uninformed reference."""

    frontier: Frontier
    uninformed: HullCurve


def list_constant_caps(cell: Cell) -> IntArray:
    """Return the constant caps of a cell in tokens: floor(c T / (100 N)), c = 0..100, then one that cuts nothing.

    T is the cell's full-thinking tokens and N its number of trajectories. int64, 102 entries that never fall; the last
    is the longest trajectory's length.

    Examples
    --------
    T = 300 and N = 2: the cap of c = 50 is floor(50 * 300 / 200) = 75.

    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (100, 4)], [(0, 0), (200, 2)]])], 4)
    >>> caps = list_constant_caps(cell)
    >>> caps[50], caps[100], caps[101], len(caps)
    (np.int64(75), np.int64(150), np.int64(200), 102)
    """
    shares = np.arange(N_CAP_INTERVALS + 1, dtype=np.int64)
    caps = shares * cell.total_thinking_tokens // (N_CAP_INTERVALS * cell.n_trajectories)
    return np.append(caps, cell.thinking_tokens.max())


def list_constant_actions(cell: Cell, strategy: Strategy) -> list[tuple[str, IntArray]]:
    """Return the constant policies of a strategy as (label, actions), with the same labels in every cell.

    Dynamic routing: nothing thinks, everything thinks. Fixed budget: the constant caps. Dynamic early exit: the
    positions those caps select, then the same position 0..100 for everything, clipped to each trajectory's last one.

    Returns
    -------
    2, 102 or 203 pairs, in the order of settings; actions are int64, one per unit of the cell.

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (100, 4)], [(0, 0), (200, 2)]])], 4)
    >>> [(label, actions.tolist()) for label, actions in list_constant_actions(cell, Strategy.DYNAMIC_ROUTING)]
    [('no-thinking', [0]), ('thinking', [1])]
    """
    if strategy is Strategy.DYNAMIC_ROUTING:
        routes = ("no-thinking", "thinking")
        return [(label, np.full(cell.n_questions, route, dtype=np.int64)) for route, label in enumerate(routes)]
    labels = [f"cap-{share:03d}-percent" for share in range(N_CAP_INTERVALS + 1)] + ["no-cap"]
    caps = list(zip(labels, list_constant_caps(cell).tolist(), strict=True))
    if strategy is Strategy.FIXED_BUDGET:
        return [(label, np.full(cell.n_questions, cap, dtype=np.int64)) for label, cap in caps]
    capped = [
        (label, find_positions_at_tokens(cell, np.full(cell.n_trajectories, cap, dtype=np.int64)))
        for label, cap in caps
    ]
    clipped = [(f"position-{k:03d}", np.minimum(k, cell.n_steps)) for k in range(LAST_CONSTANT_POSITION + 1)]
    return capped + clipped


def build_uninformed(cell: Cell, strategy: Strategy) -> HullCurve:
    """Return the uninformed reference of a cell: the upper concave hull of its constant policies.

    The policies are those of `list_constant_actions`. The hull may mix them; it is constant right of its highest point.

    Raises
    ------
    ValueError : hidden labels.

    Notes
    -----
    Section 4. Every position adds its tokens and probes to each cap (or constant position) that admits it, so one
    histogram over the positions and a running sum give all points at once. O(positions log 102).

    Examples
    --------
    Routing mixes (0, 1) and (300, 6); the caps reach 4 + 0 probes at 100 tokens, above that line.

    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (100, 4)], [(0, 0), (200, 2)]])], 4)
    >>> for strategy in (Strategy.DYNAMIC_ROUTING, Strategy.FIXED_BUDGET):
    ...     hull = build_uninformed(cell, strategy)
    ...     print(hull.cost.tolist(), hull.correct.tolist())
    [0, 300] [1, 6]
    [0, 100, 300] [1, 4, 6]
    """
    if not cell.has_labels:
        raise ValueError(f"the labels of {cell.model} on {cell.benchmark} are hidden")
    if strategy is Strategy.DYNAMIC_ROUTING:
        cost = np.array([0, cell.total_thinking_tokens])
        correct = np.array([cell.zero_correct.sum(), cell.endpoint_correct.sum()])
    else:
        caps = list_constant_caps(cell)
        admitted_by = [np.searchsorted(caps, cell.retained_tokens, side="left")]
        if strategy is Strategy.DYNAMIC_EARLY_EXIT:
            position = np.arange(len(cell.retained_tokens)) - cell.first_idx[cell.trajectory_of_position]
            admitted_by.append(np.minimum(position, LAST_CONSTANT_POSITION + 1))
        sizes = (len(caps), LAST_CONSTANT_POSITION + 1)
        points = [_sum_admitted(cell, first, size) for first, size in zip(admitted_by, sizes, strict=False)]
        cost, correct = np.concatenate(points, axis=1)
    return upper_hull(cost, correct, total_thinking_tokens=cell.total_thinking_tokens, total_probes=cell.total_probes)


def _sum_admitted(cell: Cell, first: IntArray, n_policies: int) -> IntArray:
    """Total tokens and probes of nested policies, int64 of shape (2, n): policy i admits positions with first <= i."""
    sums = np.zeros((2, n_policies + 1), dtype=np.int64)
    for row, values in enumerate((cell.retained_tokens, cell.correct_probes)):
        gains = np.diff(values, prepend=0).astype(np.int64)
        gains[cell.first_idx] = values[cell.first_idx]
        np.add.at(sums[row], first, gains)
    return np.cumsum(sums, axis=1)[:, :-1]


def build_references(
    measurements: Measurements, strategy: Strategy, frontiers: Sequence[Frontier]
) -> tuple[CellReference, ...]:
    """Return the references of every cell, in the measurements' order.

    Parameters
    ----------
    frontiers : the cells' frontiers under this strategy; others among them (other strategies) are left out.

    Raises
    ------
    ValueError : a cell without a frontier, or hidden labels.
    """
    by_cell = {(f.model, f.benchmark): f for f in frontiers if f.strategy is strategy}
    missing = [(c.model, c.benchmark) for c in measurements.cells if (c.model, c.benchmark) not in by_cell]
    if missing:
        raise ValueError(f"no {strategy} frontier for {missing}")
    return tuple(
        CellReference(frontier=by_cell[cell.model, cell.benchmark], uninformed=build_uninformed(cell, strategy))
        for cell in measurements.cells
    )
