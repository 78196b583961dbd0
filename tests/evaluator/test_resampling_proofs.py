"""The proofs of the bootstrap's solvers are needed: copies of them without one differ from the textbook.

A copy is the module's own source with one rule taken out, run without compilation on small cells of few distinct steps.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from app.evaluator import core_search, routing_sweep
from app.evaluator.cap_actions import list_cap_actions
from app.evaluator.draws import count_draws, draw_replicate, resample_cell
from app.evaluator.frontier import solve_frontier
from app.evaluator.measurements import Cell, Measurements, build_cell
from app.evaluator.replicate_frontiers import prepare_cell
from app.evaluator.strategies import Strategy

N_REPLICATES = 2


def load_copy(module: ModuleType, rule: str, instead: str) -> dict[str, Any]:
    """Run the module's source, uncompiled, with a rule replaced; the rule must be there exactly once."""
    source = inspect.getsource(module)
    assert source.count(rule) == 1
    # A band that starts so narrow makes the sweeps of small cells depend on being repeated.
    source = source.replace(rule, instead).replace("_FIRST_BAND = 10.0", "_FIRST_BAND = 0.01")
    source = source.replace("from app.evaluator.compiled import compiled", "")
    scope: dict[str, Any] = {"compiled": lambda function: function, "__name__": "copy"}
    exec(compile(source, "copy", "exec", dont_inherit=True), scope)
    return scope


def draw_cell(rng: np.random.Generator) -> Cell:
    """Draw a cell whose actions have few distinct costs and gains, so that budgets are rarely met by greedy choice."""

    def draw_trajectory() -> list[tuple[int, int]]:
        lengths = np.append(0, np.cumsum(rng.choice([7, 11, 13, 30], int(rng.integers(1, 5)))))
        return list(zip(lengths.tolist(), rng.integers(0, 7, len(lengths)).tolist(), strict=True))

    questions = [(f"q{i:02}", "test", [draw_trajectory() for _ in range(2)]) for i in range(12)]
    return build_cell("m", "b", questions, 6)


@pytest.fixture(scope="module")
def cells() -> list[Cell]:
    rng = np.random.default_rng(8)
    return [draw_cell(rng) for _ in range(6)]


def differs(
    cells: list[Cell], strategy: Strategy, scope: dict[str, Any], as_measurements: Callable[[list[Cell]], Measurements]
) -> bool:
    """Return whether a solver's copy finds another reward than the textbook at a budget of some replicate."""
    return any(_differs_in(cell, strategy, scope, as_measurements([cell])) for cell in cells)


def _differs_in(cell: Cell, strategy: Strategy, scope: dict[str, Any], measurements: Measurements) -> bool:
    prepared = prepare_cell(cell)
    drawn = count_draws(cell, range(N_REPLICATES), seed=0)
    tokens = drawn.weights @ cell.thinking_tokens.astype(np.int64)
    budgets = np.arange(101) * tokens[:, None] // 100
    rewards = np.empty_like(budgets)
    work = prepared.room.astype(np.int64), np.int64(2**40)
    if strategy is Strategy.DYNAMIC_ROUTING:
        scope["solve_routes"](drawn.question_idx, drawn.counts, *prepared.routes, budgets, rewards, *work)
    elif strategy is Strategy.FIXED_BUDGET:
        listed = list_cap_actions(drawn.question_idx, drawn.counts, *prepared.events)
        scope["solve_caps"](*listed, budgets, rewards, *work)
    else:
        scope["solve_exits"](drawn.weights, budgets, rewards, *prepared.exits, *work)
    for number in range(N_REPLICATES):
        draw = draw_replicate(measurements, number, seed=0).cells[0]
        expected = solve_frontier(resample_cell(cell, draw), strategy).curve.correct_at_grid(100)
        if rewards[number].tolist() != expected.tolist():
            return True
    return False


NO_SEARCH = ("        if best < target:\n            mark += 1", "        if False:\n            mark += 1")
IN_RANGE = "    for y in range(high, max(best, low - 1), -1):\n"
# What lies below the gains that are possible is left over from other searches; nothing would be as tempting as this.
LEFT_OVER = "    room[side, zero + best + 1 : zero + low] = 0\n"
PRICE = "    if right < n_segments:\n        k = order[right]\n        dc"
MUTATIONS = [
    # Routing: what is not proved is believed.
    (routing_sweep, Strategy.DYNAMIC_ROUTING, "            proved = False\n", "            band[i] = -1.0\n"),
    # Routing: no unit is in doubt.
    (routing_sweep, Strategy.DYNAMIC_ROUTING, "reach = band[i] * slope[i] * _WIDER + 1e-6", "reach = -1.0"),
    # The core search: the first guess is believed.
    (core_search, Strategy.FIXED_BUDGET, *NO_SEARCH),
    (core_search, Strategy.DYNAMIC_EARLY_EXIT, *NO_SEARCH),
    # No unit past the next one on either side is tried.
    (core_search, Strategy.FIXED_BUDGET, "<= limit * dr)", "<= 0)"),
    # Gains below those that are possible are looked at: the search did so, until pruning brought it where it mattered.
    (core_search, Strategy.FIXED_BUDGET, IN_RANGE, LEFT_OVER + IN_RANGE.replace("max(best, low - 1)", "best")),
    # A combination that gains too little is dropped whatever dearer segments remain.
    (core_search, Strategy.FIXED_BUDGET, PRICE, PRICE.replace("right < n_segments", "False")),
    # The price of a probe is that of a segment further away than the next one.
    (
        core_search,
        Strategy.FIXED_BUDGET,
        PRICE,
        PRICE.replace("right < n_segments", "right < n_segments - 1").replace("order[right]", "order[right + 1]"),
    ),
]


@pytest.mark.parametrize(
    ("module", "strategy", "rule", "instead"),
    [
        (routing_sweep, Strategy.DYNAMIC_ROUTING, "from __future__", "from __future__"),
        (core_search, Strategy.FIXED_BUDGET, IN_RANGE, LEFT_OVER + IN_RANGE),
        (core_search, Strategy.DYNAMIC_EARLY_EXIT, IN_RANGE, LEFT_OVER + IN_RANGE),
    ],
)
def test_a_copy_with_all_proofs_agrees(
    cells: list[Cell],
    module: ModuleType,
    strategy: Strategy,
    rule: str,
    instead: str,
    as_measurements: Callable[[list[Cell]], Measurements],
) -> None:
    assert not differs(cells, strategy, load_copy(module, rule, instead), as_measurements)


@pytest.mark.parametrize(("module", "strategy", "rule", "instead"), MUTATIONS)
def test_a_copy_without_a_proof_differs(
    cells: list[Cell],
    module: ModuleType,
    strategy: Strategy,
    rule: str,
    instead: str,
    as_measurements: Callable[[list[Cell]], Measurements],
) -> None:
    assert differs(cells, strategy, load_copy(module, rule, instead), as_measurements)


def test_a_gain_that_is_not_possible_is_not_found() -> None:
    # Gains 2 and 3 are possible, at 9 and 5 tokens; the entry of gain 1 is left over from another search. The gain 0
    # lies in the middle of a row.
    room = np.array([[0, 0, 0, 0, 0, 1, 9, 5], [1, 1, 1, 1, 1, 1, 1, 1]])
    assert core_search._find_best(room, 0, 2, 3, 0, 4) == 0
    assert core_search._find_best(room, 0, 2, 3, 0, 5) == 3
    assert core_search._find_best(room, 0, 2, 2, 0, 9) == 2
