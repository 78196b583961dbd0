"""The settings of a submission on bootstrap replicates: their tokens and probes, and the curve they make in a cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.compiled import compiled
from app.evaluator.draws import exact_columns, sum_draws
from app.evaluator.measurements import Cell, IntArray, Measurements
from app.evaluator.replicate_frontiers import N_INTERVALS, ReplicateFrontiers
from app.evaluator.strategies import ActionTable, select_positions

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Stops:
    """Where the settings of a submission stop in one cell.

    Attributes
    ----------
    covered : bool, one per setting of the file.
    positions : unsigned integers of as few bytes as they need, settings that cover the cell x trajectories.
    """

    covered: NDArray[np.bool_]
    positions: NDArray[np.unsignedinteger[Any]]


def find_stops(measurements: Measurements, table: ActionTable) -> tuple[Stops, ...]:
    """Return where a submission stops, cell by cell: all that its intervals need of its file.

    Raises
    ------
    ValueError : actions that do not belong to the measurements.

    Notes
    -----
    One or two bytes a setting and trajectory, which is why jobs keep them in place of the file.

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> from app.evaluator.strategies import CellActions, Strategy
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (10, 4), (30, 2)]])], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    >>> actions = CellActions(np.array([True, False, True]), np.array([[15], [0], [30]]))
    >>> stops = find_stops(measurements, ActionTable(Strategy.FIXED_BUDGET, ("a", "b", "c"), (actions,)))
    >>> stops[0].positions.tolist(), stops[0].positions.dtype.name
    ([[1], [2]], 'uint8')
    """
    found = []
    for cell, actions in zip(measurements.cells, table.cells, strict=True):
        rows = np.flatnonzero(actions.covered)
        positions = np.empty((len(rows), cell.n_trajectories), np.min_scalar_type(int(cell.n_steps.max())))
        for at, row in enumerate(rows):
            positions[at] = select_positions(cell, table.strategy, actions.actions[row])
        found.append(Stops(actions.covered, positions))
    return tuple(found)


@dataclass(frozen=True, eq=False)
class PreparedSettings:
    """What all replicates of a submission share in a cell.

    `columns` holds, per trajectory and setting that covers the cell, tokens times 2^shift plus probes, in floats where
    their sums stay exact: tokens and probes are added up as one number.
    """

    cell: Cell
    covered: NDArray[np.bool_]
    shift: int
    columns: NDArray[Any]


def prepare_settings(cell: Cell, stops: Stops) -> PreparedSettings:
    """Return what all replicates of a submission share in a cell, ready for `resample_settings`.

    Raises
    ------
    ValueError : stops of another cell.
    """
    if stops.positions.shape != (np.count_nonzero(stops.covered), cell.n_trajectories):
        raise ValueError("the stops are those of another cell")
    shift = cell.total_probes.bit_length()
    packed = np.empty(stops.positions.shape, np.int64)
    for at, positions in enumerate(stops.positions):
        idx = cell.first_idx + positions
        packed[at] = (cell.retained_tokens[idx].astype(np.int64) << shift) + cell.correct_probes[idx]
    return PreparedSettings(cell, stops.covered, shift, exact_columns(np.ascontiguousarray(packed.T)))


@dataclass(frozen=True, eq=False)
class ResampledSettings:
    """A submission in one cell: mean tokens and accuracy of every setting, and its curve's accuracies at the grid.

    `tokens`, `accuracy`: float64, replicates x settings of the file, NaN where a setting does not cover the cell;
    `curve`: float64, replicates x 101.
    """

    tokens: FloatArray
    accuracy: FloatArray
    curve: FloatArray


def resample_settings(prepared: PreparedSettings, replicates: ReplicateFrontiers, *, at: int) -> ResampledSettings:
    """Return the settings' figures in the cell with index `at`, one row per replicate.

    Raises
    ------
    ValueError : the replicates were not drawn from these measurements.

    Notes
    -----
    Section 5. O(replicates x trajectories x settings).
    """
    cell, rows, n = prepared.cell, np.flatnonzero(prepared.covered), replicates.n_replicates
    numbers = range(replicates.first, replicates.first + n)
    sums = sum_draws(cell, prepared.columns, replicates=numbers, seed=replicates.seed)
    cost, correct = sums >> prepared.shift, sums & ((1 << prepared.shift) - 1)
    grid = np.empty((n, N_INTERVALS + 1), np.int64)
    total, zero = (replicates.total(name)[:, at].copy() for name in ("thinking_tokens", "zero_correct"))
    if (cost > total[:, None]).any():
        raise ValueError("the replicates were not drawn from these measurements")
    fill_curves(cost, correct, total, zero, grid)
    tokens = np.full((n, len(prepared.covered)), np.nan)
    accuracy = np.full((n, len(prepared.covered)), np.nan)
    tokens[:, rows] = cost / cell.n_trajectories
    accuracy[:, rows] = correct / cell.total_probes
    return ResampledSettings(tokens, accuracy, grid / cell.total_probes)


@compiled
def fill_curves(cost: IntArray, correct: IntArray, total: IntArray, zero: IntArray, grid: IntArray) -> None:
    """Fill the best reward within each budget floor(i T / N), from no thinking on."""
    n_intervals = grid.shape[1] - 1
    for r in range(grid.shape[0]):
        best = grid[r]
        best[:] = zero[r]
        for s in range(cost.shape[1]):
            # The first i with i T / N >= cost; with T = 0 every cost is 0.
            i = (cost[r, s] * n_intervals + total[r] - 1) // total[r] if cost[r, s] > 0 else 0
            best[i] = max(best[i], correct[r, s])
        for i in range(1, n_intervals + 1):
            best[i] = max(best[i], best[i - 1])
