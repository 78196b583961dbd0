"""The oracle's actions by compiled loops are the textbook program's, each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.evaluator.fast_policies import solve_policies_fast
from app.evaluator.frontier import solve_frontier, solve_policies
from app.evaluator.measurements import Cell
from app.evaluator.strategies import Strategy, select_positions
from app.files.snapshot import load_measurements, read_snapshot

Questions = list[list[list[tuple[int, int]]]]
AsCell = Callable[..., Cell]


def assert_equal_to_textbook(cell: Cell, strategy: Strategy, rewards: list[int]) -> np.ndarray:
    expected, found = solve_policies(cell, strategy, rewards), solve_policies_fast(cell, strategy, rewards)
    assert found.dtype == np.int64
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()
    return found


@pytest.mark.parametrize("strategy", Strategy)
def test_equal_to_the_textbook_on_small_cells(
    strategy: Strategy, random_questions: Callable[..., Questions], as_cell: AsCell
) -> None:
    rng = np.random.default_rng(31)
    for _ in range(200):
        n_questions, per_question, probes = int(rng.integers(1, 9)), int(rng.integers(1, 4)), int(rng.integers(1, 17))
        cell = as_cell(random_questions(rng, n_questions=n_questions, per_question=per_question, probes=probes), probes)
        frontier = solve_frontier(cell, strategy)
        # All points, in a mixed order, one of them twice.
        rewards = rng.permutation(np.append(frontier.correct, frontier.correct[0]))
        policies = assert_equal_to_textbook(cell, strategy, rewards.tolist())
        for reward, actions in zip(rewards.tolist(), policies, strict=True):
            positions = cell.first_idx + select_positions(cell, strategy, actions)
            cost = frontier.cost[frontier.correct == reward].item()
            assert (cell.retained_tokens[positions].sum(), cell.correct_probes[positions].sum()) == (cost, reward)


@pytest.mark.parametrize("strategy", Strategy)
def test_equal_to_the_textbook_on_the_real_snapshot(strategy: Strategy, real_snapshot: Path) -> None:
    for cell in load_measurements(read_snapshot(real_snapshot)).cells:
        assert_equal_to_textbook(cell, strategy, solve_frontier(cell, strategy).correct.tolist())


def test_tokens_beyond_32_bits(as_cell: AsCell) -> None:
    rng = np.random.default_rng(32)
    questions = [
        [[(0, 0), *((k * (2**28 - 3), int(rng.integers(0, 5))) for k in range(1, 8))] for _ in range(2)]
        for _ in range(30)
    ]
    cell = as_cell(questions, 4)
    assert cell.total_thinking_tokens > 2**36
    for strategy in Strategy:
        assert_equal_to_textbook(cell, strategy, solve_frontier(cell, strategy).correct.tolist())


def test_nothing_to_choose_and_nothing_wanted(as_cell: AsCell) -> None:
    fixed = as_cell([[[(0, 3), (5, 1)]], [[(0, 2)]]], 4)
    assert assert_equal_to_textbook(fixed, Strategy.DYNAMIC_EARLY_EXIT, [5]).tolist() == [[0, 0]]
    assert assert_equal_to_textbook(fixed, Strategy.DYNAMIC_EARLY_EXIT, []).shape == (0, 2)


@pytest.mark.parametrize("reward", [-1, 0, 2, 3, 5, 8])
def test_rewards_off_the_frontier_are_refused(reward: int, as_cell: AsCell) -> None:
    # Nothing, 3 more probes for 3 tokens, and another 3 for 5.
    cell = as_cell([[[(0, 1), (5, 4)]], [[(0, 0), (3, 3)]]], 4)
    assert solve_frontier(cell, Strategy.DYNAMIC_EARLY_EXIT).correct.tolist() == [1, 4, 7]
    for solve in (solve_policies, solve_policies_fast):
        with pytest.raises(ValueError, match="not every reward is on the frontier"):
            solve(cell, Strategy.DYNAMIC_EARLY_EXIT, [1, reward])


def test_hidden_labels_have_no_policy(as_cell: AsCell) -> None:
    hidden = replace(as_cell([[[(0, 1), (5, 2)]]], 4), correct_probes=np.full(2, -1, dtype=np.int32))
    with pytest.raises(ValueError, match="labels of m on b are hidden"):
        solve_policies_fast(hidden, Strategy.DYNAMIC_EARLY_EXIT, [1])
