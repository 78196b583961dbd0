"""The oracle as a submission: settings on every cell's exact frontier, placed where its curve loses little area."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.evaluator.curves import Curve
from app.evaluator.frontier import Frontier
from app.evaluator.measurements import Cell, IntArray, Measurements
from app.evaluator.strategies import ActionTable, CellActions, Strategy

N_SETTINGS = 256


def build_actions(
    measurements: Measurements,
    strategy: Strategy,
    *,
    frontiers: Sequence[Frontier] = (),
    n_settings: int = N_SETTINGS,
) -> ActionTable:
    """Return settings that are frontier points of their cell in every cell, spread by `choose_points`.

    Where a cell's frontier has fewer points than there are settings, every point is taken and neighbours repeat one, so
    that setting i is never cheaper than setting i - 1.

    Parameters
    ----------
    measurements : labels included.
    frontiers : frontiers that are already solved; a cell's own one is used where it is among them.
    n_settings : at least 1.

    Raises
    ------
    ValueError : hidden labels.

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (10, 4), (30, 2)]])], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    >>> build_actions(measurements, Strategy.DYNAMIC_EARLY_EXIT, n_settings=3).cells[0].actions.tolist()
    [[0], [0], [1]]
    """
    # Brings the compiler along, which the commands that build nothing do without.
    from app.evaluator.fast_frontier import solve_frontier_fast

    solved = {(f.model, f.benchmark): f for f in frontiers if f.strategy is strategy}
    cells = []
    for cell in measurements.cells:
        frontier = solved.get((cell.model, cell.benchmark)) or solve_frontier_fast(cell, strategy)
        cells.append(_build_cell_actions(cell, strategy, frontier=frontier, n_settings=n_settings))
    return ActionTable(strategy, tuple(str(i + 1) for i in range(n_settings)), tuple(cells))


def _build_cell_actions(cell: Cell, strategy: Strategy, *, frontier: Frontier, n_settings: int) -> CellActions:
    chosen = choose_points(frontier.curve, n_settings)
    # As in `build_actions`.
    from app.evaluator.fast_policies import solve_policies_fast

    policies = solve_policies_fast(cell, strategy, frontier.correct[chosen].tolist())
    of_setting = np.arange(n_settings) * len(chosen) // n_settings
    return CellActions(covered=np.ones(n_settings, dtype=np.bool_), actions=policies[of_setting])


def choose_points(curve: Curve, n_points: int) -> IntArray:
    """Return the indices of at most `n_points` points of a frontier whose own step curve loses little area.

    Up to `n_points` points: all of them. Otherwise the last point, and others that start at equal shares of the sum of
    ``sqrt(dcost * dreward)`` along the frontier, which is where points belong on a smooth curve; then every chosen
    point moves in turn to where it saves the most area between its two neighbours, until no move saves more. The
    zero-thinking point is not chosen, because every method has it for free.

    Parameters
    ----------
    curve : a frontier.
    n_points : at least 1.

    Returns
    -------
    int64, increasing indices of the curve's points.

    Notes
    -----
    A point p between a and b saves ``(r_p - r_a) (c_b - c_p)``, compared in integers; the first of equal ones is taken.
    A sweep moves all points of odd rank, then all of even rank, each time by one pass over the frontier. The area never
    falls, so the sweeps end; the result is best against moves of single points, not proved best overall.

    Examples
    --------
    With two points allowed the last one stays, and the cost 20 saves 4 * 70, the cost 10 only 3 * 80.

    >>> curve = Curve(np.array([0, 10, 20, 90]), np.array([0, 3, 4, 5]), 100, 8)
    >>> choose_points(curve, 2).tolist()
    [2, 3]
    """
    n_all = len(curve.cost)
    if n_all <= n_points:
        return np.arange(n_all)
    chosen = _start_points(curve, n_points)
    saved, before = _area_of(curve, chosen), -1
    while saved > before:
        for parity in (1, 2):
            chosen = _move_points(curve, chosen, parity=parity)
        saved, before = _area_of(curve, chosen), saved
    return chosen[1:]


def _start_points(curve: Curve, n_points: int) -> IntArray:
    """The zero-thinking point, then `n_points` points that divide the curve evenly, the last one among them."""
    steps = np.sqrt(np.diff(curve.cost).astype(np.float64) * np.diff(curve.correct))
    length = np.concatenate([[0.0], np.cumsum(steps)])
    rank = np.arange(n_points + 1)
    nearest = np.searchsorted(length, length[-1] * rank / n_points)
    # Coarse steps may put two shares on one point: push later ones right, then keep room for those that follow.
    distinct = np.maximum.accumulate(nearest - rank) + rank
    return np.minimum(distinct, len(curve.cost) - 1 - n_points + rank)


def _move_points(curve: Curve, chosen: IntArray, *, parity: int) -> IntArray:
    """Move every second chosen point, from rank `parity` on, to the best place between its neighbours."""
    moved = np.arange(parity, len(chosen) - 1, 2)
    if moved.size == 0:
        return chosen
    left, right = chosen[moved - 1], chosen[moved + 1]
    widths = right - left
    span = slice(int(left[0]), int(right[-1]))
    gain = curve.correct[span] - np.repeat(curve.correct[left], widths)
    gain *= np.repeat(curve.cost[right], widths) - curve.cost[span]
    best = np.maximum.reduceat(gain, left - left[0])
    hits = np.flatnonzero(gain == np.repeat(best, widths))
    first_hit = hits[np.searchsorted(hits, left - left[0])]
    result = chosen.copy()
    result[moved] = left[0] + first_hit
    return result


def _area_of(curve: Curve, chosen: IntArray) -> int:
    """Area under the step curve through the chosen points, in probes times tokens."""
    widths = np.diff(curve.cost[chosen], append=curve.total_thinking_tokens)
    return int((curve.correct[chosen] * widths).sum())
