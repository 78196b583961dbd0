"""Frontiers against plain enumeration, by hand, under invariances, and on a real snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from app.evaluator.curves import find_beta_match, find_beta_sat, max_accuracy, mean_area
from app.evaluator.frontier import Frontier, build_unit_actions, solve_frontier, solve_frontiers, solve_policies
from app.evaluator.measurements import Cell, Measurements
from app.evaluator.strategies import Strategy, select_positions
from app.files.snapshot import load_measurements, read_snapshot

DR, FB, DEE = Strategy.DYNAMIC_ROUTING, Strategy.FIXED_BUDGET, Strategy.DYNAMIC_EARLY_EXIT
Questions = list[list[list[tuple[int, int]]]]
DrawQuestions = Callable[..., Questions]
AsCell = Callable[..., Cell]


def unit_outcomes(questions: Questions, strategy: Strategy) -> list[list[tuple[int, int, int]]]:
    """Every action of every unit as (cost, reward, action), straight from the definitions, nothing left out."""
    if strategy is DEE:
        return [[(*pair, k) for k, pair in enumerate(t)] for question in questions for t in question]
    units = []
    for question in questions:
        longest = max(t[-1][0] for t in question)
        actions = (0, 1) if strategy is DR else range(longest + 2)
        kept = {a: [keep(t, a if strategy is FB else a * longest) for t in question] for a in actions}
        units.append([(sum(length for length, _ in p), sum(c for _, c in p), a) for a, p in kept.items()])
    return units


def keep(trajectory: list[tuple[int, int]], cap: int) -> tuple[int, int]:
    """The last pair whose length is within the cap."""
    return [pair for pair in trajectory if pair[0] <= cap][-1]


def enumerate_frontier(questions: Questions, strategy: Strategy) -> list[tuple[int, int]]:
    """The nondominated totals over all combinations of all actions."""
    totals = {(0, 0)}
    for outcomes in unit_outcomes(questions, strategy):
        totals = {(cost + c, reward + r) for cost, reward in totals for c, r, _ in outcomes}
    points: list[tuple[int, int]] = []
    for cost, reward in sorted(totals, key=lambda point: (point[0], -point[1])):
        if not points or reward > points[-1][1]:
            points.append((cost, reward))
    return points


def points_of(frontier: Frontier) -> list[tuple[int, int]]:
    return list(zip(frontier.cost.tolist(), frontier.correct.tolist(), strict=True))


def outcome_of(cell: Cell, strategy: Strategy, actions: np.ndarray) -> tuple[int, int]:
    idx = cell.first_idx + select_positions(cell, strategy, actions)
    return int(cell.retained_tokens[idx].sum()), int(cell.correct_probes[idx].sum())


@pytest.mark.parametrize("strategy", Strategy)
def test_equals_enumeration_on_thousands_of_small_cells(
    strategy: Strategy, random_questions: DrawQuestions, as_cell: AsCell
) -> None:
    rng = np.random.default_rng(1)
    for _ in range(1000):
        n_questions, per_question, probes = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.integers(1, 6))
        questions = random_questions(rng, n_questions=n_questions, per_question=per_question, probes=probes)
        cell = as_cell(questions, probes)
        frontier = solve_frontier(cell, strategy)
        assert points_of(frontier) == enumerate_frontier(questions, strategy)
        assert frontier.total_thinking_tokens == sum(t[-1][0] for q in questions for t in q)
        assert frontier.full_correct == sum(t[-1][1] for q in questions for t in q)


SHAPES: dict[str, Questions] = {
    # The reward of the second step is larger than that of the first: one exit lies below the line between the others.
    "convex": [[[(0, 0), (10, 1), (20, 5), (30, 16)]], [[(0, 0), (11, 1), (22, 5), (33, 16)]]],
    "late jump": [[[(0, 0), (9, 0), (18, 0), (27, 16)]], [[(0, 0), (9, 0), (18, 0), (28, 15)]]],
    "flat": [[[(0, 7), (9, 7), (18, 7)]], [[(0, 7), (8, 7)]]],
    "exactly linear": [[[(0, 0), (3, 1), (6, 2), (9, 3)]], [[(0, 0), (3, 1), (6, 2)]], [[(0, 0), (6, 2)]]],
    "equal costs": [[[(0, 0), (5, 4)]], [[(0, 0), (5, 3)]], [[(0, 0), (5, 3)]], [[(0, 1), (5, 2)]]],
    "falling": [[[(0, 9), (4, 5), (8, 1)]], [[(0, 3), (4, 3), (8, 2)]]],
    "one unit": [[[(0, 2), (4, 9), (9, 3), (11, 12)]]],
    "one empty unit": [[[(0, 5)]]],
    "knapsack where greed fails": [[[(0, 0), (10, 10)]], [[(0, 0), (6, 7)]], [[(0, 0), (7, 8)]], [[(0, 0), (9, 9)]]],
    "shared caps": [
        [[(0, 0), (4, 2), (8, 9)], [(0, 8), (4, 3), (8, 8)], [(0, 1), (5, 6)]],
        [[(0, 3), (8, 3)], [(0, 0), (4, 16), (5, 0)], [(0, 2)]],
    ],
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("strategy", Strategy)
def test_equals_enumeration_on_awkward_shapes(name: str, strategy: Strategy, as_cell: AsCell) -> None:
    cell = as_cell(SHAPES[name], 16)
    frontier = solve_frontier(cell, strategy)
    assert points_of(frontier) == enumerate_frontier(SHAPES[name], strategy)
    policies = solve_policies(cell, strategy, frontier.correct.tolist())
    assert [outcome_of(cell, strategy, actions) for actions in policies] == points_of(frontier)


def test_by_hand(as_cell: AsCell) -> None:
    # Question 1: trajectories (0: 1, 4: 3) and (0: 0, 6: 4). Question 2: (0: 2, 5: 2) and (0: 2, 5: 3).
    questions = [[[(0, 1), (4, 3)], [(0, 0), (6, 4)]], [[(0, 2), (5, 2)], [(0, 2), (5, 3)]]]
    cell = as_cell(questions, 4)
    # Nothing retained: 1 + 0 + 2 + 2 = 5 of 16 probes. T = 4 + 6 + 5 + 5 = 20.
    # Routing: question 1 costs 10 for +6, question 2 costs 10 for +1.
    assert points_of(solve_frontier(cell, DR)) == [(0, 5), (10, 11), (20, 12)]
    # Caps: question 1 at 4 costs 4 for +2, at 6 costs 10 for +6; question 2 at 5 costs 10 for +1.
    assert points_of(solve_frontier(cell, FB)) == [(0, 5), (4, 7), (10, 11), (20, 12)]
    # Exits: 4 for +2, 6 for +4, 5 for +1, the third trajectory never; 4 + 5, then 10, 6 + 5 = 11 is no better than 10.
    assert points_of(solve_frontier(cell, DEE)) == [(0, 5), (4, 7), (6, 9), (10, 11), (15, 12)]


def test_unit_actions_keep_what_the_optimum_needs(as_cell: AsCell) -> None:
    # The exit at 10 lies below the line from (0, 0) to (20, 9), and the budget 10 can use nothing else.
    cell = as_cell([[[(0, 0), (10, 2), (20, 9), (25, 9), (30, 4)]]], 16)
    actions = build_unit_actions(cell, DEE)
    assert actions.n_units == 1
    assert actions.action.tolist() == [0, 1, 2]
    assert actions.cost.tolist() == [0, 10, 20]
    assert actions.reward.tolist() == [0, 2, 9]
    assert solve_frontier(cell, DEE).correct.tolist() == [0, 2, 9]


def test_caps_of_equal_lengths_are_one_action(as_cell: AsCell) -> None:
    # At length 5 the first trajectory loses three and the second wins four: the cap 5 does both, or neither.
    cell = as_cell([[[(0, 4), (5, 1)], [(0, 0), (5, 4)]]], 4)
    actions = build_unit_actions(cell, FB)
    assert (actions.action.tolist(), actions.cost.tolist(), actions.reward.tolist()) == ([0, 5], [0, 10], [4, 5])


@pytest.mark.parametrize("strategy", Strategy)
def test_unit_actions_are_the_nondominated_outcomes(
    strategy: Strategy, random_questions: DrawQuestions, as_cell: AsCell
) -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        questions = random_questions(rng, n_questions=3, per_question=2, probes=4)
        actions = build_unit_actions(as_cell(questions, 4), strategy)
        kept = list(zip(actions.cost.tolist(), actions.reward.tolist(), actions.action.tolist(), strict=True))
        for unit, outcomes in enumerate(unit_outcomes(questions, strategy)):
            expected: list[tuple[int, int, int]] = []
            for outcome in sorted(outcomes, key=lambda o: (o[0], -o[1], o[2])):
                if not expected or outcome[1] > expected[-1][1]:
                    expected.append(outcome)
            assert kept[actions.offsets[unit] : actions.offsets[unit + 1]] == expected


@pytest.mark.parametrize("strategy", Strategy)
def test_policies_realise_each_point_by_the_stated_tie_rule(
    strategy: Strategy, random_questions: DrawQuestions, as_cell: AsCell
) -> None:
    rng = np.random.default_rng(3)
    for _ in range(150):
        questions = random_questions(rng, n_questions=int(rng.integers(1, 4)), per_question=1, probes=3)
        cell = as_cell(questions, 3)
        frontier = solve_frontier(cell, strategy)
        policies = solve_policies(cell, strategy, frontier.correct.tolist())
        outcomes = unit_outcomes(questions, strategy)
        for point, actions in zip(points_of(frontier), policies, strict=True):
            assert outcome_of(cell, strategy, actions) == point
            realising = [
                combination
                for combination in product(*outcomes)
                if (sum(o[0] for o in combination), sum(o[1] for o in combination)) == point
            ]
            # The last unit's cheapest action that still leads there, then the one before it; the shortest cap.
            best = min(realising, key=lambda combination: [(o[0], o[2]) for o in reversed(combination)])
            assert actions.tolist() == [action for _, _, action in best]


@pytest.mark.parametrize("strategy", Strategy)
def test_policies_of_many_units_cross_the_checkpoints(
    strategy: Strategy, random_questions: DrawQuestions, as_cell: AsCell
) -> None:
    rng = np.random.default_rng(4)
    cell = as_cell(random_questions(rng, n_questions=60, per_question=3, probes=16), 16)
    frontier = solve_frontier(cell, strategy)
    assert len(frontier.cost) > 20
    wanted = rng.permutation(np.concatenate([frontier.correct, frontier.correct[:3]]))
    cost_of = dict(zip(frontier.correct.tolist(), frontier.cost.tolist(), strict=True))
    policies = solve_policies(cell, strategy, wanted.tolist())
    assert [outcome_of(cell, strategy, a) for a in policies] == [(cost_of[r], r) for r in wanted.tolist()]
    assert (solve_policies(cell, strategy, wanted[:5].tolist()) == policies[:5]).all()


def test_policies_refuse_what_is_not_on_the_frontier(as_cell: AsCell) -> None:
    cell = as_cell([[[(0, 0), (5, 2)]], [[(0, 0), (5, 4)]]], 4)
    assert solve_frontier(cell, DEE).correct.tolist() == [0, 4, 6]
    # 2 is reachable, but dominated by 4 at the same cost; 3 is not reachable; the others lie outside the range.
    for reward in (2, 3, 7, -1):
        with pytest.raises(ValueError, match="not every reward is on the frontier of m on b"):
            solve_policies(cell, DEE, [0, reward])
    assert solve_policies(cell, DEE, []).shape == (0, 2)


def test_policies_of_a_cell_without_a_choice(as_cell: AsCell) -> None:
    cell = as_cell([[[(0, 3)]], [[(0, 1), (7, 1)]]], 4)
    for strategy in Strategy:
        assert points_of(solve_frontier(cell, strategy)) == [(0, 4)]
        assert solve_policies(cell, strategy, [4, 4]).tolist() == [[0, 0], [0, 0]]


def test_cell_in_which_nothing_was_thought(as_cell: AsCell) -> None:
    cell = as_cell([[[(0, 3)], [(0, 1)]]], 4)
    for strategy in Strategy:
        frontier = solve_frontier(cell, strategy)
        assert points_of(frontier) == [(0, 4)]
        assert frontier.total_thinking_tokens == 0
        # T = 0: beta is 0, the curve constant at 4 of 8 probes.
        assert frontier.curve.area() == Fraction(1, 2)
        assert frontier.curve.accuracy_at(Fraction(1)) == Fraction(1, 2)
        assert find_beta_match([frontier.curve], Fraction(frontier.full_correct, 8)) == 0
        assert find_beta_sat([frontier.curve]) == 0


@pytest.mark.parametrize("strategy", Strategy)
def test_tokens_beyond_32_bits_change_nothing(
    strategy: Strategy, random_questions: DrawQuestions, as_cell: AsCell
) -> None:
    rng = np.random.default_rng(5)
    questions = random_questions(rng, n_questions=12, per_question=2, probes=8)
    # Costs a hundred million times as large: totals near 10**10, far past what 32 bits hold.
    scale = 10**8
    scaled = [[[(length * scale, c) for length, c in t] for t in q] for q in questions]
    small, large = as_cell(questions, 8), as_cell(scaled, 8)
    assert large.total_thinking_tokens > 2**32
    expected = solve_frontier(small, strategy)
    frontier = solve_frontier(large, strategy)
    assert frontier.cost.tolist() == (expected.cost * scale).tolist()
    assert frontier.correct.tolist() == expected.correct.tolist()
    policies = solve_policies(large, strategy, frontier.correct.tolist())
    assert [outcome_of(large, strategy, actions) for actions in policies] == points_of(frontier)


def test_costs_at_the_edge_of_32_bits(as_cell: AsCell) -> None:
    # T lies just below, at and just above half of what int32 holds, where the program changes its integers.
    for total in (2**30 - 2, 2**30 - 1, 2**30):
        cell = as_cell([[[(0, 0), (total // 2, 2)]], [[(0, 0), (total - total // 2, 3)]]], 4)
        assert points_of(solve_frontier(cell, DEE))[-1] == (total, 5)
        assert solve_policies(cell, DEE, [5]).tolist() == [[1, 1]]


@pytest.mark.parametrize("strategy", Strategy)
def test_thousand_probes_per_position(strategy: Strategy, random_questions: DrawQuestions, as_cell: AsCell) -> None:
    rng = np.random.default_rng(6)
    for _ in range(20):
        questions = random_questions(rng, n_questions=2, per_question=2, probes=1000)
        assert points_of(solve_frontier(as_cell(questions, 1000), strategy)) == enumerate_frontier(questions, strategy)


def test_strategies_are_ordered_at_every_breakpoint(random_questions: DrawQuestions, as_cell: AsCell) -> None:
    rng = np.random.default_rng(7)
    for _ in range(150):
        questions = random_questions(rng, n_questions=int(rng.integers(1, 8)), per_question=3, probes=16)
        assert_ordered(as_cell(questions, 16))


def assert_ordered(cell: Cell) -> None:
    routing, budget, exit_ = (solve_frontier(cell, s).curve for s in (DR, FB, DEE))
    breakpoints = np.unique(np.concatenate([routing.cost, budget.cost, exit_.cost, [cell.total_thinking_tokens]]))
    assert (routing.correct_at_cost(breakpoints) <= budget.correct_at_cost(breakpoints)).all()
    assert (budget.correct_at_cost(breakpoints) <= exit_.correct_at_cost(breakpoints)).all()
    # All start at nothing retained; at beta = 1 each is at its ceiling, which is no lower than full thinking.
    assert routing.correct[0] == budget.correct[0] == exit_.correct[0] == cell.zero_correct.sum()
    for curve in (routing, budget, exit_):
        assert curve.accuracy_at(Fraction(1)) == Fraction(int(curve.correct[-1]), cell.total_probes)
        assert curve.correct[-1] >= cell.endpoint_correct.sum()


@pytest.mark.parametrize("strategy", Strategy)
def test_order_of_questions_changes_nothing(
    strategy: Strategy, random_questions: DrawQuestions, as_cell: AsCell
) -> None:
    rng = np.random.default_rng(8)
    cell = as_cell(random_questions(rng, n_questions=20, per_question=2, probes=8), 8)
    frontier = solve_frontier(cell, strategy)
    shuffled = solve_frontier(cell.take_questions(rng.permutation(20)), strategy)
    assert points_of(shuffled) == points_of(frontier)


@pytest.mark.parametrize("strategy", Strategy)
def test_every_question_twice(strategy: Strategy, random_questions: DrawQuestions, as_cell: AsCell) -> None:
    # Copies may be treated differently, so the frontier may gain points in between, but never falls below the original
    # at the same relative budget, and starts, ends and saturates where the original does.
    rng = np.random.default_rng(9)
    for _ in range(30):
        cell = as_cell(random_questions(rng, n_questions=6, per_question=2, probes=8), 8)
        once, twice = (solve_frontier(c, strategy).curve for c in (cell, cell.take_questions([*range(6), *range(6)])))
        assert (twice.correct_at_cost(2 * once.cost) >= 2 * once.correct).all()
        assert twice.correct[[0, -1]].tolist() == (2 * once.correct[[0, -1]]).tolist()
        assert find_beta_sat([twice]) == find_beta_sat([once])


def test_dominated_action_changes_nothing(random_questions: DrawQuestions, as_cell: AsCell) -> None:
    # A position worth no more than an earlier one, put in the middle of a step: no frontier moves. (With several
    # trajectories to a question a cap could no longer pass over it, so the fixed budgets have one trajectory here.)
    rng = np.random.default_rng(10)
    for _ in range(50):
        questions = random_questions(rng, n_questions=4, per_question=1, probes=8)
        doubled = [[[(2 * length, c) for length, c in t] for t in q] for q in questions]
        added = [
            [t if len(t) == 1 else [t[0], (1, int(rng.integers(0, t[0][1] + 1))), *t[1:]] for t in q] for q in doubled
        ]
        for strategy in Strategy:
            before, after = (solve_frontier(as_cell(q, 8), strategy) for q in (doubled, added))
            assert points_of(after) == points_of(before)


def test_frontiers_of_a_snapshot_are_listed_by_cell_then_strategy(
    as_cell: AsCell, as_measurements: Callable[..., Measurements], random_questions: DrawQuestions
) -> None:
    rng = np.random.default_rng(11)
    cells = [
        as_cell(random_questions(rng, n_questions=2, per_question=1, probes=4), 4, model=model, benchmark=benchmark)
        for model in ("m2", "m1")
        for benchmark in ("b2", "b1")
    ]
    frontiers = solve_frontiers(as_measurements(cells), (FB, DR))
    assert [(f.model, f.benchmark, f.strategy) for f in frontiers] == [
        (model, benchmark, strategy) for model in ("m2", "m1") for benchmark in ("b2", "b1") for strategy in (FB, DR)
    ]
    assert points_of(frontiers[3]) == points_of(solve_frontier(cells[1], DR))
    assert len(solve_frontiers(as_measurements(cells))) == 12


@pytest.mark.parametrize("strategy", Strategy)
def test_hidden_labels_have_no_frontier(strategy: Strategy, as_cell: AsCell) -> None:
    cell = as_cell([[[(0, 1), (5, 2)]]], 4)
    hidden = replace(cell, correct_probes=np.full(2, -1, dtype=np.int32))
    for solve in (build_unit_actions, solve_frontier, lambda c, s: solve_policies(c, s, [1])):
        with pytest.raises(ValueError, match="labels of m on b are hidden"):
            solve(hidden, strategy)


# Computed independently of this code: ceiling, beta_sat, area, points.
PUBLISHED = {
    ("DeepSeek-R1-Distill-Qwen-14B", DR): (0.751, 0.1624, 0.7482, 2),
    ("DeepSeek-R1-Distill-Qwen-14B", FB): (0.8835, 0.2845, 0.8771, 203),
    ("DeepSeek-R1-Distill-Qwen-14B", DEE): (0.942, 0.2860, 0.9296, 360),
    ("DeepSeek-R1-Distill-Llama-8B", DR): (0.663, 0.2811, 0.648, 6),
    ("DeepSeek-R1-Distill-Llama-8B", FB): (0.7435, 0.5202, 0.7259, 260),
    ("DeepSeek-R1-Distill-Llama-8B", DEE): (0.8305, 0.4403, 0.8074, 416),
}


def test_real_snapshot(real_snapshot: Path) -> None:
    measurements = load_measurements(read_snapshot(real_snapshot))
    frontiers = {(f.model, f.strategy): f for f in solve_frontiers(measurements)}
    assert frontiers.keys() == PUBLISHED.keys()
    for key, (ceiling, beta_sat, area, n_points) in PUBLISHED.items():
        curve = frontiers[key].curve
        assert max_accuracy([curve]) == Fraction(str(ceiling))
        assert round(float(find_beta_sat([curve])), 4) == beta_sat
        assert round(float(mean_area([curve])), 4) == area
        assert len(curve.cost) == n_points
    for cell in measurements.cells:
        assert_ordered(cell)
        for strategy in Strategy:
            frontier = frontiers[cell.model, strategy]
            policies = solve_policies(cell, strategy, frontier.correct.tolist())
            assert [outcome_of(cell, strategy, actions) for actions in policies] == points_of(frontier)
