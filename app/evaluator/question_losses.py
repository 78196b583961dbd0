"""What one setting loses on every question of a cell, against each trajectory's own best position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from app.evaluator.measurements import Cell, IntArray
from app.evaluator.overthinking import find_reference_positions


@dataclass(frozen=True, eq=False)
class QuestionLosses:
    """Totals over a question's trajectories, one entry a question; all int64.

    Attributes
    ----------
    early_loss, late_loss : probes lost against k* by the trajectories that stop before it, and after it.
    wasted, forgone : tokens kept past k*, and tokens up to k* that were not kept.
    trajectory_loss : probes lost by every trajectory of the cell; it may be lost early or late.
    """

    early_loss: IntArray
    late_loss: IntArray
    wasted: IntArray
    forgone: IntArray
    trajectory_loss: IntArray


def measure_question_losses(cell: Cell, positions: IntArray) -> QuestionLosses:
    """Return the regret parts of one setting, question by question; over the cell they add up to the setting's own.

    Parameters
    ----------
    positions : int64, where each trajectory stops.

    Raises
    ------
    ValueError : hidden labels, or positions of another cell.

    Notes
    -----
    Section 4. O(positions of the cell).

    Examples
    --------
    k* is position 1 in both trajectories; stopping at 0 and 2 loses 3 probes early and 1 late.

    >>> from app.evaluator.measurements import build_cell
    >>> curves = [[(0, 1), (10, 4), (30, 2)], [(0, 0), (20, 3), (50, 2)]]
    >>> cell = build_cell("m", "b", [("q", "test", curves)], 4)
    >>> losses = measure_question_losses(cell, np.array([0, 2]))
    >>> losses.early_loss.tolist(), losses.late_loss.tolist(), losses.wasted.tolist(), losses.forgone.tolist()
    ([3], [1], [30], [10])
    """
    if positions.shape != (cell.n_trajectories,) or (positions > cell.n_steps).any():
        raise ValueError("the positions are those of another cell")
    best_idx = cell.first_idx + find_reference_positions(cell)
    stop_idx = cell.first_idx + positions.astype(np.int64)
    overrun = cell.retained_tokens[stop_idx].astype(np.int64) - cell.retained_tokens[best_idx]
    lost = cell.correct_probes[best_idx].astype(np.int64) - cell.correct_probes[stop_idx]

    def add_up(values: IntArray) -> IntArray:
        total: IntArray = values.reshape(cell.n_questions, cell.trajectories_per_question).sum(axis=1)
        return total

    return QuestionLosses(
        early_loss=add_up(np.where(overrun < 0, lost, 0)),
        late_loss=add_up(np.where(overrun > 0, lost, 0)),
        wasted=add_up(np.maximum(overrun, 0)),
        forgone=add_up(np.maximum(-overrun, 0)),
        trajectory_loss=lost,
    )
