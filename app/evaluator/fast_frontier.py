"""Exact frontiers, fast: a windowed program along the greedy path whose certificate shows that no point is missing.

`app.evaluator.frontier` has the textbook program, to which every point found here is equal; `docs/exactness.md` tells
why. This module is the one to use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from app.evaluator.certificates import Certificate, check_certificate
from app.evaluator.curves import Curve
from app.evaluator.fast_path import FloatArray, Path, build_path, plan_chunks
from app.evaluator.fast_sweep import Rules, sweep_chunks
from app.evaluator.fast_units import list_unit_actions, own
from app.evaluator.frontier import Frontier, UnitActions, build_unit_actions
from app.evaluator.measurements import Cell, IntArray, Measurements
from app.evaluator.strategies import Strategy

_RULES = Rules(first_ratio=16.0, growth=2.0)
# Costs of this size stand for "unreachable"; twice as much still fits into the type.
_NARROW, _WIDE = np.int32(2**29), np.int64(2**61)

Plan = Callable[[Path], tuple[IntArray, FloatArray]]


@dataclass(frozen=True, eq=False)
class CertifiedPoints:
    """All nondominated (cost, reward) pairs over one action per unit, and what shows that they are all.

    Attributes
    ----------
    cost : int64, retained tokens, strictly increasing from 0.
    reward : int64, correct probes, strictly increasing.
    certificate : which chunks were solved within which bands.
    """

    cost: IntArray
    reward: IntArray
    certificate: Certificate


def solve_frontier_fast(cell: Cell, strategy: Strategy) -> Frontier:
    """Return the exact frontier of a strategy in a cell, with its certificate.

    Raises
    ------
    ValueError : the cell's labels are hidden.

    Notes
    -----
    Every point is equal to that of `app.evaluator.frontier.solve_frontier`. Time: about in proportion to the frontier's
    number of points. The first use on a machine compiles the loops, which takes several seconds and is logged.

    Examples
    --------
    One trajectory may stop at 256 for three probes more, the other at 100 for two more: 100, 256 and both together.

    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (256, 4)], [(0, 0), (100, 2), (300, 1)]])], 4)
    >>> frontier = solve_frontier_fast(cell, Strategy.DYNAMIC_EARLY_EXIT)
    >>> frontier.cost.tolist(), frontier.correct.tolist()
    ([0, 100, 256, 356], [1, 3, 4, 6])
    >>> check_frontier(cell, frontier)
    ()
    """
    actions = list_unit_actions(cell, strategy)
    copies = np.ones(actions.n_units, dtype=np.int64)
    points = _solve_units(actions, copies, plan=plan_chunks, rules=_RULES)
    return Frontier(
        model=cell.model,
        benchmark=cell.benchmark,
        strategy=strategy,
        curve=Curve(points.cost, points.reward, cell.total_thinking_tokens, cell.total_probes),
        full_correct=int(cell.endpoint_correct.sum()),
        certificate=points.certificate,
    )


def solve_frontiers_fast(
    measurements: Measurements, strategies: Sequence[Strategy] = tuple(Strategy)
) -> list[Frontier]:
    """Return the frontiers of all cells, in the measurements' order, and in each cell of the strategies in theirs."""
    return [solve_frontier_fast(cell, strategy) for cell in measurements.cells for strategy in strategies]


def check_frontier(cell: Cell, frontier: Frontier) -> tuple[str, ...]:
    """Check a frontier's certificate against the cell, with none of the fast code; returns what is wrong.

    See `check_certificate`; the units' actions are built by the textbook's function. Seconds for large cells.
    """
    if frontier.certificate is None:
        return ("the frontier has no certificate",)
    actions = build_unit_actions(cell, frontier.strategy)
    return check_certificate(actions, frontier.cost, frontier.correct, frontier.certificate)


def solve_units(actions: UnitActions, multiplicity: IntArray | None = None) -> CertifiedPoints:
    """Return the nondominated totals over one action per unit, or per copy of a unit, with their certificate.

    Parameters
    ----------
    actions : the units' nondominated actions, costs and rewards rising strictly from cost 0 within each unit.
    multiplicity : int64, how many copies there are of each unit, 0 or more; each may choose another action. One each by
        default.

    Raises
    ------
    ValueError : actions that do not rise so, or multiplicities that do not fit.

    Examples
    --------
    Twice the choice between nothing and 2 probes for 10 tokens, and never the other unit:

    >>> actions = UnitActions(*map(np.array, ([0, 2, 4], [0, 10, 0, 6], [0, 2, 1, 4], [0, 1, 0, 1])))
    >>> points = solve_units(actions, np.array([2, 0]))
    >>> points.cost.tolist(), points.reward.tolist()
    ([0, 10, 20], [0, 2, 4])
    """
    copies = np.ones(actions.n_units, dtype=np.int64) if multiplicity is None else multiplicity
    _check_units(actions, copies)
    owned = UnitActions(own(actions.offsets), own(actions.cost), own(actions.reward), actions.action)
    return _solve_units(owned, own(copies), plan=plan_chunks, rules=_RULES)


def _solve_units(actions: UnitActions, copies: IntArray, *, plan: Plan, rules: Rules) -> CertifiedPoints:
    """Solve; tests hand in other plans and rules, whose bands have to grow."""
    base = int((actions.reward[actions.offsets[:-1]] * copies).sum())
    path = build_path(actions, copies)
    if path.slope.size == 0:
        none, nothing = np.zeros(0), np.zeros(1, dtype=np.int64)
        return CertifiedPoints(nothing, nothing + base, Certificate(nothing, nothing + base, none, none))
    breaks, widths = plan(path)
    unreachable = _NARROW if path.cost[-1] < _NARROW else _WIDE
    cost, reward, band, needed = sweep_chunks(
        actions, path, base_reward=base, breaks=breaks, widths=widths, rules=rules, unreachable=unreachable
    )
    return CertifiedPoints(cost, reward, Certificate(path.cost[breaks], base + path.gain[breaks], band, needed))


def _check_units(actions: UnitActions, copies: IntArray) -> None:
    if copies.shape != (actions.n_units,) or copies.dtype != np.int64 or (copies < 0).any():
        raise ValueError(f"expected {actions.n_units} multiplicities, int64 and none negative")
    rises = np.ones(actions.cost.size, dtype=np.bool_)
    rises[1:] = (np.diff(actions.cost) > 0) & (np.diff(actions.reward) > 0)
    rises[actions.offsets[:-1]] = actions.cost[actions.offsets[:-1]] == 0
    if not rises.all() or (np.diff(actions.offsets) < 1).any():
        raise ValueError("the actions of a unit rise strictly in cost and reward, from cost 0")
