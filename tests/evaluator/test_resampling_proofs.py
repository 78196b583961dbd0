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


def count_errors(
    cells: list[Cell], strategy: Strategy, scope: dict[str, Any], as_measurements: Callable[[list[Cell]], Measurements]
) -> int:
    """Return at how many budgets of some replicates a solver's copy finds another reward than the textbook."""
    n_wrong = 0
    for cell in cells:
        prepared = prepare_cell(cell)
        drawn = count_draws(cell, range(N_REPLICATES), seed=0)
        tokens = drawn.weights @ cell.thinking_tokens.astype(np.int64)
        budgets = np.arange(101) * tokens[:, None] // 100
        rewards = np.empty_like(budgets)
        work = *(buffer.astype(np.int64) for buffer in prepared.buffers), np.int64(2**40)
        if strategy is Strategy.DYNAMIC_ROUTING:
            scope["solve_routes"](drawn.question_idx, drawn.counts, *prepared.routes, budgets, rewards, *work)
        elif strategy is Strategy.FIXED_BUDGET:
            listed = list_cap_actions(drawn.question_idx, drawn.counts, *prepared.events)
            scope["solve_caps"](*listed, budgets, rewards, *work)
        else:
            scope["solve_exits"](drawn.weights, budgets, rewards, *prepared.exits, *work)
        for number in range(N_REPLICATES):
            draw = draw_replicate(as_measurements([cell]), number, seed=0).cells[0]
            expected = solve_frontier(resample_cell(cell, draw), strategy).curve.correct_at_grid(100)
            n_wrong += int((rewards[number] != expected).sum())
    return n_wrong


NO_SEARCH = ("        if best < target:\n            mark += 1", "        if False:\n            mark += 1")
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
    ("module", "strategy"),
    [
        (routing_sweep, Strategy.DYNAMIC_ROUTING),
        (core_search, Strategy.FIXED_BUDGET),
        (core_search, Strategy.DYNAMIC_EARLY_EXIT),
    ],
)
def test_an_unchanged_copy_agrees(
    cells: list[Cell], module: ModuleType, strategy: Strategy, as_measurements: Callable[[list[Cell]], Measurements]
) -> None:
    assert count_errors(cells, strategy, load_copy(module, "from __future__", "from __future__"), as_measurements) == 0


@pytest.mark.parametrize(("module", "strategy", "rule", "instead"), MUTATIONS)
def test_a_copy_without_a_proof_differs(
    cells: list[Cell],
    module: ModuleType,
    strategy: Strategy,
    rule: str,
    instead: str,
    as_measurements: Callable[[list[Cell]], Measurements],
) -> None:
    assert count_errors(cells, strategy, load_copy(module, rule, instead), as_measurements) > 0
