"""What an action means: positions selected, by hand and against plain loops, and actions that mean nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from app.evaluator.measurements import Cell, build_cell
from app.evaluator.strategies import Strategy, find_positions_at_tokens, n_units, select_positions, sort_settings

DR, FB, DEE = Strategy.DYNAMIC_ROUTING, Strategy.FIXED_BUDGET, Strategy.DYNAMIC_EARLY_EXIT


@pytest.fixture
def cell() -> Cell:
    """Two questions of two trajectories; the first trajectory of the second has no step."""
    return build_cell(
        "m",
        "b",
        [
            ("q1", "test", [[(0, 1), (5, 4)], [(0, 0), (3, 2), (9, 1)]]),
            ("q2", "test", [[(0, 2)], [(0, 3), (7, 3)]]),
        ],
        4,
    )


def test_names_are_those_of_the_public_formats() -> None:
    assert [str(strategy) for strategy in Strategy] == ["dynamic_routing", "fixed_budget", "dynamic_early_exit"]
    assert Strategy("fixed_budget") is FB


def test_units(cell: Cell) -> None:
    assert [n_units(cell, strategy) for strategy in Strategy] == [2, 2, 4]
    assert [strategy.unit_is_trajectory for strategy in Strategy] == [False, False, True]


def test_routes(cell: Cell) -> None:
    # A question is routed as a whole; where there is no step, both routes stop at 0.
    assert select_positions(cell, DR, np.array([1, 0])).tolist() == [1, 2, 0, 0]
    assert select_positions(cell, DR, np.array([0, 1])).tolist() == [0, 0, 0, 1]


def test_caps(cell: Cell) -> None:
    # The largest k with L(k) <= cap, per trajectory: 5 keeps a step of 5, 4 does not.
    assert select_positions(cell, FB, np.array([5, 6])).tolist() == [1, 1, 0, 0]
    assert select_positions(cell, FB, np.array([4, 7])).tolist() == [0, 1, 0, 1]
    assert select_positions(cell, FB, np.array([0, 0])).tolist() == [0, 0, 0, 0]
    # A cap may be any integer: past the end it keeps everything, also where 32 bits would wrap.
    for cap in (9, 2**31, 2**32 + 1, 2**62):
        assert select_positions(cell, FB, np.array([cap, cap])).tolist() == [1, 2, 0, 1]


def test_exits(cell: Cell) -> None:
    assert select_positions(cell, DEE, np.array([0, 2, 0, 1])).tolist() == [0, 2, 0, 1]


@pytest.mark.parametrize(
    ("strategy", "actions", "message"),
    [
        (DR, [1, 0, 1], "expected 2 actions"),
        (FB, [[1, 0]], "expected 2 actions"),
        (DEE, [0, 0], "expected 4 actions"),
        (DR, [0, -1], "never negative"),
        (FB, [0, -1], "never negative"),
        (DEE, [0, 0, 0, -1], "never negative"),
        (DR, [0, 2], "0 or 1"),
        (DEE, [2, 0, 0, 0], "past its trajectory's last"),
        (DEE, [0, 0, 1, 0], "past its trajectory's last"),
    ],
)
def test_actions_out_of_range(cell: Cell, strategy: Strategy, actions: list[int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select_positions(cell, strategy, np.array(actions))


def test_caps_equal_plain_loops(
    random_questions: Callable[..., list[list[list[tuple[int, int]]]]], as_cell: Callable[..., Cell]
) -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        questions = random_questions(rng, n_questions=3, per_question=2, probes=3)
        cell = as_cell(questions, 3)
        caps = rng.integers(0, 16, 3)
        expected = [
            max(k for k, (length, _) in enumerate(trajectory) if length <= cap)
            for question, cap in zip(questions, caps.tolist(), strict=True)
            for trajectory in question
        ]
        assert select_positions(cell, FB, caps).tolist() == expected
        assert find_positions_at_tokens(cell, np.repeat(caps, 2)).tolist() == expected


def test_settings_are_ordered_by_number_then_text() -> None:
    labels = {"10", "9", "-1", "0.5", "1e3", "default", "b", "A", "nan", "inf"}
    # Numbers by value; then text, infinities and not-a-number among it, by code point.
    assert sort_settings(labels)[:4] == ("-1", "0.5", "9", "10")
    assert sort_settings(labels)[-5:] == ("A", "b", "default", "inf", "nan")
    # Equal values are ordered by their text, so the order never depends on that of the file.
    assert sort_settings({"1.0", "1", "01"}) == ("01", "1", "1.0")
