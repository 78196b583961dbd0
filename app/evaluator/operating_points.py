"""Operating points of settings in a cell, and what each loses against every trajectory's own best position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.evaluator.measurements import Cell, IntArray
from app.evaluator.overthinking import find_reference_positions
from app.evaluator.strategies import Strategy, select_positions


@dataclass(frozen=True, eq=False)
class OperatingPoints:
    """Totals over a cell's trajectories, one entry a setting; all int64.

    Attributes
    ----------
    cost : retained tokens.
    correct : correct probes.
    early_loss : probes lost against k* by the trajectories that stop before it.
    late_loss : probes lost against k* by the trajectories that stop after it. Both losses together are the sum of C(k*)
        minus `correct`.
    wasted : tokens kept past k*.
    forgone : tokens of k* not kept.
    """

    cost: IntArray
    correct: IntArray
    early_loss: IntArray
    late_loss: IntArray
    wasted: IntArray
    forgone: IntArray


def measure_operating_points(cell: Cell, strategy: Strategy, actions: NDArray[np.int64]) -> OperatingPoints:
    """Return the operating point and the regret parts of every setting in a cell.

    Parameters
    ----------
    actions : int64, settings x units, as `select_positions` takes them; no rows are allowed, and give empty arrays.

    Returns
    -------
    OperatingPoints with one entry per row.

    Raises
    ------
    ValueError : hidden labels, or actions that `select_positions` refuses.

    Notes
    -----
    Section 4. Tokens rise strictly inside a trajectory, so it stops after k* exactly where it keeps more tokens than k*
    does. One pass over the trajectories per setting; a setting's positions are the largest thing in memory.

    Examples
    --------
    k* is position 1 in both trajectories; stopping at 0 and 2 loses 3 probes early and 1 late.

    >>> from app.evaluator.measurements import build_cell
    >>> curves = [[(0, 1), (10, 4), (30, 2)], [(0, 0), (20, 3), (50, 2)]]
    >>> cell = build_cell("m", "b", [("q", "test", curves)], 4)
    >>> points = measure_operating_points(cell, Strategy.DYNAMIC_EARLY_EXIT, np.array([[0, 2]]))
    >>> points.early_loss.tolist(), points.late_loss.tolist(), points.wasted.tolist(), points.forgone.tolist()
    ([3], [1], [30], [10])
    """
    if not cell.has_labels:
        raise ValueError(f"the labels of {cell.model} on {cell.benchmark} are hidden")
    best_idx = cell.first_idx + find_reference_positions(cell)
    best_tokens = cell.retained_tokens[best_idx].astype(np.int64)
    best_correct = cell.correct_probes[best_idx].astype(np.int64)
    totals = np.zeros((6, len(actions)), dtype=np.int64)
    for row, units in enumerate(actions):
        stop_idx = cell.first_idx + select_positions(cell, strategy, units)
        overrun = cell.retained_tokens[stop_idx] - best_tokens
        lost = best_correct - cell.correct_probes[stop_idx]
        late_loss = int(lost[overrun > 0].sum())
        wasted = int(overrun[overrun > 0].sum())
        totals[:, row] = (
            int(best_tokens.sum()) + int(overrun.sum()),
            int(best_correct.sum()) - int(lost.sum()),
            int(lost.sum()) - late_loss,
            late_loss,
            wasted,
            wasted - int(overrun.sum()),
        )
    return OperatingPoints(*totals)
