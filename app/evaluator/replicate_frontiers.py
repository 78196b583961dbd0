"""Bootstrap replicates of a snapshot: exact frontiers re-solved at 101 budgets, and all that no submission changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.cap_actions import list_cap_actions, pack_events
from app.evaluator.compiled import compiled
from app.evaluator.core_search import ROOM, solve_caps, solve_exits, sort_exits
from app.evaluator.draws import BOOTSTRAP_SEED, CellCounts, count_draws
from app.evaluator.fast_units import list_unit_actions, own
from app.evaluator.measurements import Cell, IntArray, Measurements
from app.evaluator.overthinking import trajectory_overthinking
from app.evaluator.routing_sweep import solve_routes
from app.evaluator.strategies import Strategy
from app.evaluator.uninformed_grid import ConstantPolicies, find_uninformed_grid, tabulate_policies

FloatArray = NDArray[np.float64]
Progress = Callable[[str, int, int], None]

N_INTERVALS = 100
"""Replicates know their curves at the budgets i/100, i = 0..100, of their own full-thinking cost."""
TOTALS = ("thinking_tokens", "zero_correct", "endpoint_correct", "degradation", "original_correct")

# So many replicates of a cell are worked on at once: their draws stay in the processor's cache.
_CHUNK = 100
_LARGEST_PRODUCT = 2**51
_LARGEST_TOTAL = 2**60


@dataclass(frozen=True, eq=False)
class ReplicateFrontiers:
    """Consecutive replicates of a snapshot, one row each.

    Attributes
    ----------
    cells : (model, benchmark) of each cell in the measurements' order.
    n_questions, total_probes : of each cell; int64. Every replicate has as many.
    seed, first : the seed of the draws, and the number of the replicate in the first row.
    rewards : int32, replicates x cells x strategies x 101: the most correct probes at beta = i/100 of the replicate's
        own full-thinking tokens, strategies in the order of `Strategy`.
    uninformed_area : float64, replicates x cells x strategies: trapezoid sum of the uninformed reference over these
        budgets, in 0..1.
    totals : int64, replicates x cells x 5, summed over trajectories in the order of `TOTALS`: L(n), C(0), C(n),
        C(k*) - C(n), and original answers right (-1 where one of the cell's is unknown).
    overthinking_ratio : float64, replicates x cells: mean OR, in 0..1.
    """

    cells: tuple[tuple[str, str], ...]
    n_questions: IntArray
    total_probes: IntArray
    trajectories_per_question: int
    seed: int
    first: int
    rewards: NDArray[np.int32]
    uninformed_area: FloatArray
    totals: IntArray
    overthinking_ratio: FloatArray

    @property
    def n_replicates(self) -> int:
        """Number of replicates."""
        return len(self.rewards)

    def total(self, name: str) -> IntArray:
        """Return one of `TOTALS`, int64 of replicates x cells."""
        return self.totals[:, :, TOTALS.index(name)]

    def oracle_area(self) -> FloatArray:
        """Return the trapezoid sums of the frontiers, float64 of replicates x cells x strategies, in 0..1."""
        doubled = 2 * self.rewards.sum(axis=3, dtype=np.int64) - self.rewards[..., 0] - self.rewards[..., -1]
        area: FloatArray = doubled / (2 * N_INTERVALS * self.total_probes[:, None])
        return area

    def take(self, n_replicates: int) -> ReplicateFrontiers:
        """Return the first replicates of these.

        Raises
        ------
        ValueError : there are not so many.
        """
        if not 0 < n_replicates <= self.n_replicates:
            raise ValueError(f"there are {self.n_replicates} replicates, not {n_replicates}")
        return self.take_rows(range(n_replicates))

    def take_rows(self, rows: range) -> ReplicateFrontiers:
        """Return the replicates in consecutive rows of these."""
        taken: dict[str, Any] = {name: getattr(self, name)[rows.start : rows.stop] for name in ARRAYS}
        return replace(self, first=self.first + rows.start, **taken)


ARRAYS = ("rewards", "uninformed_area", "totals", "overthinking_ratio")
"""The attributes with one row per replicate."""


def concatenate_replicates(blocks: Sequence[ReplicateFrontiers]) -> ReplicateFrontiers:
    """Join blocks of replicates that follow one another.

    Raises
    ------
    ValueError : no block, a gap between two, or blocks of different cells or seeds.
    """
    if not blocks:
        raise ValueError("no replicates")
    for before, after in pairwise(blocks):
        if (before.cells, before.seed, before.first + before.n_replicates) != (after.cells, after.seed, after.first):
            raise ValueError("blocks of replicates do not follow one another")
    joined: dict[str, Any] = {name: np.concatenate([getattr(block, name) for block in blocks]) for name in ARRAYS}
    return replace(blocks[0], **joined)


def compute_replicates(
    measurements: Measurements, replicates: range, *, seed: int = BOOTSTRAP_SEED, progress: Progress | None = None
) -> ReplicateFrontiers:
    """Compute consecutive replicates of a snapshot: draws, totals, exact frontiers, uninformed references.

    Each replicate's rows depend on its number and the seed alone, to the byte, not on what else is computed.

    Parameters
    ----------
    replicates : their numbers; consecutive, from 0, at least one.
    progress : called as the work goes on with what is done, how many of how many parts are finished.

    Raises
    ------
    ValueError : hidden labels, no replicate, or numbers too large to compare exactly in 64 bits.

    Notes
    -----
    Section 5. Early exit: hull segments sorted once, only their multiplicities change. Fixed budget: each occurrence's
    actions listed from what changes between its question's useful caps. The solvers prove each reward.

    Examples
    --------
    One question with one trajectory leaves no choice: each replicate is the data.

    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (40, 4), (100, 2)]])], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    >>> block = compute_replicates(measurements, range(2))
    >>> block.rewards[1, 0, :, [0, 39, 40, 100]].T.tolist()
    [[1, 1, 1, 2], [1, 1, 4, 4], [1, 1, 4, 4]]
    """
    n_cells = len(measurements.cells)
    prepared = []
    for at, cell in enumerate(measurements.cells):
        if progress:
            progress(f"preparing {cell.model} on {cell.benchmark}", at, 2 * n_cells)
        prepared.append(prepare_cell(cell))

    def show(what: str, done: int, total: int) -> None:
        if progress:
            progress(what, total + done, 2 * total)

    return resample_cells(prepared, replicates, seed=seed, progress=show)


def resample_cells(
    prepared: Sequence[PreparedCell], replicates: range, *, seed: int, progress: Progress | None = None
) -> ReplicateFrontiers:
    """Compute consecutive replicates of cells that have been prepared; see `compute_replicates`."""
    if not len(replicates):
        raise ValueError("no replicates")
    block = _allocate([p.cell for p in prepared], replicates, seed=seed)
    for at, of_cell in enumerate(prepared):
        if progress:
            progress(f"resampling {of_cell.cell.model} on {of_cell.cell.benchmark}", at, len(prepared))
        for start in range(0, len(replicates), _CHUNK):
            rows = slice(start, min(start + _CHUNK, len(replicates)))
            drawn = count_draws(of_cell.cell, replicates[rows], seed=seed)
            totals = block.totals[rows, at]
            _fill_totals(of_cell, drawn, totals, block.overthinking_ratio[rows, at])
            _fill_curves(of_cell, drawn, totals, block.rewards[rows, at], block.uninformed_area[rows, at])
    return block


def _allocate(cells: Sequence[Cell], replicates: range, *, seed: int) -> ReplicateFrontiers:
    shape = (len(replicates), len(cells))
    return ReplicateFrontiers(
        cells=tuple((cell.model, cell.benchmark) for cell in cells),
        n_questions=np.array([cell.n_questions for cell in cells]),
        total_probes=np.array([cell.total_probes for cell in cells]),
        trajectories_per_question=cells[0].trajectories_per_question,
        seed=seed,
        first=replicates.start,
        rewards=np.empty((*shape, len(Strategy), N_INTERVALS + 1), np.int32),
        uninformed_area=np.empty((*shape, len(Strategy))),
        totals=np.empty((*shape, len(TOTALS)), np.int64),
        overthinking_ratio=np.empty(shape),
    )


@dataclass(frozen=True, eq=False)
class PreparedCell:
    """What all replicates of a cell share.

    `exits`, `events` and `routes` are the arguments of the three solvers, `room` is where they work; `per_trajectory`
    holds what `TOTALS` adds up.
    """

    cell: Cell
    ratio: FloatArray
    per_trajectory: IntArray
    exits: tuple[NDArray[Any], ...]
    events: tuple[NDArray[Any], ...]
    routes: tuple[NDArray[Any], ...]
    policies: ConstantPolicies
    room: NDArray[Any]


def prepare_cell(cell: Cell) -> PreparedCell:
    """Return what all replicates of a cell share, ready for `resample_cells`."""
    if not cell.has_labels:
        raise ValueError(f"the labels of {cell.model} on {cell.benchmark} are hidden")
    largest_total = cell.n_trajectories * int(cell.thinking_tokens.max())
    _check_size(cell, largest_total)
    plain = trajectory_overthinking(cell)
    shape = (cell.n_questions, cell.trajectories_per_question)
    zero = np.ascontiguousarray(cell.zero_correct.reshape(shape))
    actions = list_unit_actions(cell, Strategy.DYNAMIC_EARLY_EXIT)
    event_bounds = np.empty(cell.n_questions + 1, np.int64)
    events = np.empty(cell.retained_tokens.size - cell.n_trajectories, np.int64)
    arrays = own(cell.offsets), own(cell.retained_tokens), own(cell.correct_probes)
    pack_events(*arrays, cell.trajectories_per_question, event_bounds, events)
    # Costs in 32 bits take half the time, where none can overflow even when added to one that stands for "none".
    narrow = largest_total < 2**29
    size, dtype = 2 * cell.total_probes + ROOM, np.int32 if narrow else np.int64
    columns = (cell.thinking_tokens, cell.zero_correct, cell.endpoint_correct, plain.degradation, cell.original_correct)
    return PreparedCell(
        cell=cell,
        ratio=plain.ratio,
        per_trajectory=np.stack(columns, axis=1).astype(np.int64),
        exits=(actions.reward[actions.offsets[:-1]], *sort_exits(actions.offsets, actions.cost, actions.reward)),
        events=(event_bounds, events[: event_bounds[-1]].copy(), zero),
        routes=(cell.thinking_tokens.reshape(shape), zero, cell.endpoint_correct.reshape(shape)),
        policies=tabulate_policies(cell),
        room=np.empty((2, size), dtype),
    )


def _check_size(cell: Cell, largest_total: int) -> None:
    """Refuse what the packed events, or exact products of 64-bit integers and floats, cannot hold."""
    per_question = cell.trajectories_per_question
    unit_cost = per_question * int(cell.thinking_tokens.max())
    unit_reward = per_question * cell.probes_per_position
    too_large = (
        unit_cost * unit_reward >= _LARGEST_PRODUCT
        or unit_cost >= 2**31
        or largest_total * unit_reward >= _LARGEST_TOTAL
        or largest_total * N_INTERVALS * cell.total_probes >= _LARGEST_TOTAL
        or largest_total >= 2**35
        or cell.total_probes >= 2**27
        or cell.probes_per_position >= 2**13
        or per_question >= 2**16
    )
    if too_large:
        raise ValueError(f"{cell.model} on {cell.benchmark} is too large to be resampled exactly")


def _fill_totals(prepared: PreparedCell, drawn: CellCounts, totals: IntArray, ratio: FloatArray) -> None:
    sums = np.empty_like(totals)
    means = np.empty(len(ratio))
    _add_weighted(drawn.weights, prepared.per_trajectory, prepared.ratio, sums, means)
    totals[:] = sums
    ratio[:] = means
    if (prepared.cell.original_correct < 0).any():
        totals[:, TOTALS.index("original_correct")] = -1


def _fill_curves(
    prepared: PreparedCell, drawn: CellCounts, totals: IntArray, rewards: NDArray[np.int32], uninformed: FloatArray
) -> None:
    rewards[:] = solve_drawn(prepared, drawn, totals[:, 0])
    grid = find_uninformed_grid(
        prepared.policies,
        drawn.weights,
        totals=np.ascontiguousarray(totals[:, :3]),
        total_probes=prepared.cell.total_probes,
        n_intervals=N_INTERVALS,
    )
    _add_trapezoids(grid, areas := np.empty(grid.shape[:2]))
    uninformed[:] = areas


def solve_drawn(prepared: PreparedCell, drawn: CellCounts, thinking_tokens: IntArray) -> IntArray:
    """Return the exact frontiers of drawn cells at the budgets i/100, int64 of replicates x strategies x 101.

    Parameters
    ----------
    thinking_tokens : int64, the full-thinking tokens of each replicate.
    """
    budgets = np.arange(N_INTERVALS + 1) * thinking_tokens[:, None] // N_INTERVALS
    work = prepared.room, prepared.room.dtype.type(2**30 - 1 if prepared.room.dtype == np.int32 else 2**61)
    solved = np.empty((len(Strategy), *budgets.shape), np.int64)
    solve_routes(drawn.question_idx, drawn.counts, *prepared.routes, budgets, solved[0], *work)
    listed = list_cap_actions(drawn.question_idx, drawn.counts, *prepared.events)
    solve_caps(*listed, budgets, solved[1], *work)
    solve_exits(drawn.weights, budgets, solved[2], *prepared.exits, *work)
    return solved.transpose(1, 0, 2)


@compiled
def _add_weighted(weights: Any, columns: IntArray, ratio: FloatArray, sums: IntArray, means: FloatArray) -> None:
    """Add up what each replicate drew; the mean ratio always in the order of the trajectories."""
    for i in range(weights.shape[0]):
        sums[i] = 0
        mean = 0.0
        count = np.int64(0)
        for t in range(ratio.size):
            w = np.int64(weights[i, t])
            if w > 0:
                for c in range(columns.shape[1]):
                    sums[i, c] += w * columns[t, c]
                mean += w * ratio[t]
                count += w
        means[i] = mean / count


@compiled
def _add_trapezoids(grid: FloatArray, areas: FloatArray) -> None:
    """Integrate over beta in 0..1, adding from left to right."""
    n_intervals = grid.shape[2] - 1
    for i in range(grid.shape[0]):
        for s in range(grid.shape[1]):
            total = (grid[i, s, 0] + grid[i, s, n_intervals]) / 2
            for b in range(1, n_intervals):
                total += grid[i, s, b]
            areas[i, s] = total / n_intervals
