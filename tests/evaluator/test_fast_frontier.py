"""The fast frontiers equal the textbook program's: on cells of all kinds, a real snapshot, and beyond 32 bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.evaluator.certificates import Certificate
from app.evaluator.fast_frontier import (
    check_frontier,
    solve_frontier_fast,
    solve_frontiers_fast,
    solve_units,
)
from app.evaluator.fast_units import list_unit_actions
from app.evaluator.frontier import Frontier, UnitActions, build_unit_actions, solve_frontier, solve_frontiers
from app.evaluator.measurements import Cell, Measurements
from app.evaluator.strategies import Strategy
from app.files.snapshot import load_measurements, read_snapshot
from app.files.synthetic import draw_snapshot

DR, FB, DEE = Strategy.DYNAMIC_ROUTING, Strategy.FIXED_BUDGET, Strategy.DYNAMIC_EARLY_EXIT
Questions = list[list[list[tuple[int, int]]]]
DrawQuestions = Callable[..., Questions]
AsCell = Callable[..., Cell]


def assert_equal_to_textbook(cell: Cell, strategy: Strategy) -> Frontier:
    expected = solve_frontier(cell, strategy)
    frontier = solve_frontier_fast(cell, strategy)
    assert frontier.cost.tolist() == expected.cost.tolist()
    assert frontier.correct.tolist() == expected.correct.tolist()
    assert (frontier.model, frontier.benchmark, frontier.strategy) == (cell.model, cell.benchmark, strategy)
    assert (frontier.full_correct, frontier.total_thinking_tokens, frontier.total_probes) == (
        expected.full_correct,
        expected.total_thinking_tokens,
        expected.total_probes,
    )
    return frontier


def certificate_of(frontier: Frontier) -> Certificate:
    assert frontier.certificate is not None
    return frontier.certificate


def assert_equal_actions(cell: Cell, strategy: Strategy) -> None:
    expected, actions = build_unit_actions(cell, strategy), list_unit_actions(cell, strategy)
    for name in ("offsets", "cost", "reward", "action"):
        assert getattr(actions, name).dtype == np.int64
        assert getattr(actions, name).tolist() == getattr(expected, name).tolist()


def draw_curves(rng: np.random.Generator, *, n_questions: int, per_question: int, steps: int, probes: int) -> Questions:
    """Draw curves as measured ones look: steps of about 256 tokens, the answer found at some step, sometimes lost."""

    def draw_trajectory(ease: float) -> list[tuple[int, int]]:
        n = int(rng.integers(1, 2 * steps))
        lengths = np.concatenate([[0], np.cumsum(rng.integers(150, 400, n))])
        found, lost = int(rng.geometric(0.03 + 0.4 * ease)) - 1, int(rng.integers(n // 2, 3 * n + 2))
        knows = (np.arange(n + 1) >= found) & (np.arange(n + 1) < lost)
        correct = rng.binomial(probes, np.where(knows, 0.6 + 0.39 * ease, 0.5 * ease))
        return list(zip(lengths.tolist(), correct.tolist(), strict=True))

    eases = rng.beta(0.8, 0.8, n_questions).tolist()
    return [[draw_trajectory(ease) for _ in range(per_question)] for ease in eases]


@pytest.mark.parametrize("strategy", Strategy)
def test_equals_the_textbook_on_small_cells(
    strategy: Strategy, random_questions: DrawQuestions, as_cell: AsCell
) -> None:
    rng = np.random.default_rng(21)
    for _ in range(700):
        n_questions, per_question, probes = int(rng.integers(1, 9)), int(rng.integers(1, 4)), int(rng.integers(1, 17))
        cell = as_cell(random_questions(rng, n_questions=n_questions, per_question=per_question, probes=probes), probes)
        assert_equal_actions(cell, strategy)
        assert_equal_to_textbook(cell, strategy)


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize(
    ("n_questions", "per_question", "steps", "probes"),
    [(60, 8, 20, 16), (25, 16, 40, 16), (300, 2, 6, 4), (40, 3, 9, 64)],
)
def test_equals_the_textbook_on_measured_looking_cells(
    strategy: Strategy, n_questions: int, per_question: int, steps: int, probes: int, as_cell: AsCell
) -> None:
    rng = np.random.default_rng(22)
    for _ in range(2):
        questions = draw_curves(rng, n_questions=n_questions, per_question=per_question, steps=steps, probes=probes)
        cell = as_cell(questions, probes)
        assert_equal_actions(cell, strategy)
        frontier = assert_equal_to_textbook(cell, strategy)
        certificate = certificate_of(frontier)
        assert (certificate.needed <= certificate.band).all()
        # Several chunks, some of them solved within a band that is far less than everything.
        if strategy is DEE and len(frontier.cost) > 1000:
            assert len(certificate.band) > 3
            assert certificate.band.min() < len(frontier.cost) / 500
        assert check_frontier(cell, frontier) == ()


def test_real_snapshot(real_snapshot: Path) -> None:
    measurements = load_measurements(read_snapshot(real_snapshot))
    for cell in measurements.cells:
        for strategy in Strategy:
            assert_equal_actions(cell, strategy)
            assert check_frontier(cell, assert_equal_to_textbook(cell, strategy)) == ()


def test_frontiers_of_a_snapshot_are_listed_by_cell_then_strategy(
    as_cell: AsCell, as_measurements: Callable[..., Measurements], random_questions: DrawQuestions
) -> None:
    rng = np.random.default_rng(23)
    cells = [
        as_cell(random_questions(rng, n_questions=2, per_question=1, probes=4), 4, model=model, benchmark=benchmark)
        for model in ("m2", "m1")
        for benchmark in ("b2", "b1")
    ]
    measurements = as_measurements(cells)
    expected = solve_frontiers(measurements, (FB, DR))
    found = solve_frontiers_fast(measurements, (FB, DR))
    assert [(f.model, f.benchmark, f.strategy) for f in found] == [(f.model, f.benchmark, f.strategy) for f in expected]
    assert [f.cost.tolist() for f in found] == [f.cost.tolist() for f in expected]
    assert len(solve_frontiers_fast(measurements)) == 12


@pytest.mark.parametrize("strategy", Strategy)
def test_tokens_beyond_32_bits_change_nothing(strategy: Strategy, as_cell: AsCell) -> None:
    rng = np.random.default_rng(24)
    questions = draw_curves(rng, n_questions=30, per_question=4, steps=6, probes=8)
    # Lengths near 2^31, and a total near 2^38: events no longer fit into 32 bits, nor costs.
    scale = (2**31 - 1) // max(t[-1][0] for q in questions for t in q)
    scaled = [[[(length * scale, c) for length, c in t] for t in q] for q in questions]
    small, large = as_cell(questions, 8), as_cell(scaled, 8)
    assert large.total_thinking_tokens > 2**36
    assert_equal_actions(large, strategy)
    frontier = assert_equal_to_textbook(large, strategy)
    assert frontier.cost.tolist() == (solve_frontier_fast(small, strategy).cost * scale).tolist()
    assert check_frontier(large, frontier) == ()


def test_costs_at_the_edge_of_32_bits(as_cell: AsCell) -> None:
    # The last cost lies just below, at and just above where the program changes its integers.
    for total in (2**29 - 1, 2**29, 2**29 + 1):
        cell = as_cell([[[(0, 0), (total // 2, 2)]], [[(0, 0), (total - total // 2, 3)]]], 4)
        assert solve_frontier_fast(cell, DEE).cost.tolist()[-1] == total
        assert_equal_to_textbook(cell, DEE)


def test_cell_without_a_choice(as_cell: AsCell) -> None:
    cell = as_cell([[[(0, 3)], [(0, 1)]], [[(0, 1), (7, 1)], [(0, 4), (3, 0)]]], 4)
    for strategy in Strategy:
        frontier = assert_equal_to_textbook(cell, strategy)
        assert (frontier.cost.tolist(), frontier.correct.tolist()) == ([0], [9])
        assert certificate_of(frontier).band.size == 0
        assert check_frontier(cell, frontier) == ()
        assert check_frontier(cell, solve_frontier(cell, strategy)) == ("the frontier has no certificate",)


def test_read_only_and_strided_arrays_are_taken_too(as_cell: AsCell) -> None:
    rng = np.random.default_rng(25)
    cell = as_cell(draw_curves(rng, n_questions=5, per_question=2, steps=5, probes=4), 4)
    frozen = replace(cell, correct_probes=np.repeat(cell.correct_probes, 2)[::2])
    for array in (frozen.offsets, frozen.retained_tokens):
        array.flags.writeable = False
    for strategy in Strategy:
        assert_equal_to_textbook(frozen, strategy)
    actions = build_unit_actions(cell, DEE)
    actions.cost.flags.writeable = False
    assert solve_units(actions).cost.tolist() == solve_frontier(cell, DEE).cost.tolist()


@pytest.mark.parametrize("strategy", Strategy)
def test_hidden_labels_have_no_frontier(strategy: Strategy, as_cell: AsCell) -> None:
    cell = as_cell([[[(0, 1), (5, 2)]]], 4)
    hidden = replace(cell, correct_probes=np.full(2, -1, dtype=np.int32))
    for solve in (list_unit_actions, solve_frontier_fast):
        with pytest.raises(ValueError, match="labels of m on b are hidden"):
            solve(hidden, strategy)


@pytest.mark.parametrize("strategy", [DR, FB])
def test_copies_of_a_question_equal_the_question_repeated(strategy: Strategy, as_cell: AsCell) -> None:
    rng = np.random.default_rng(26)
    cell = as_cell(draw_curves(rng, n_questions=40, per_question=3, steps=8, probes=16), 16)
    copies = rng.integers(0, 4, 40)
    repeated = cell.take_questions(np.repeat(np.arange(40), copies))
    expected = solve_frontier(repeated, strategy)
    points = solve_units(list_unit_actions(cell, strategy), copies)
    assert points.cost.tolist() == expected.cost.tolist()
    assert points.reward.tolist() == expected.correct.tolist()


def test_no_copies_at_all(as_cell: AsCell) -> None:
    actions = list_unit_actions(as_cell([[[(0, 1), (5, 2)]]], 4), DEE)
    points = solve_units(actions, np.array([0]))
    assert (points.cost.tolist(), points.reward.tolist()) == ([0], [0])


def test_units_that_break_the_rules_are_refused() -> None:
    def solve(offsets: list[int], cost: list[int], reward: list[int], copies: np.ndarray | None = None) -> None:
        solve_units(UnitActions(*map(np.array, (offsets, cost, reward, cost))), copies)

    solve([0, 2], [0, 1], [0, 1])
    for cost, reward in (([0, 0], [0, 1]), ([0, 1], [1, 1]), ([1, 2], [0, 1])):
        with pytest.raises(ValueError, match="rise strictly"):
            solve([0, 2], cost, reward)
    with pytest.raises(ValueError, match="rise strictly"):
        solve([0, 0, 2], [0, 1], [0, 1])
    for copies in (np.array([1, 1]), np.array([-1]), np.array([1.0])):
        with pytest.raises(ValueError, match="expected 1 multiplicities"):
            solve([0, 2], [0, 1], [0, 1], copies)


def test_same_input_same_bytes(as_cell: AsCell) -> None:
    rng = np.random.default_rng(27)
    cell = as_cell(draw_curves(rng, n_questions=50, per_question=4, steps=10, probes=16), 16)

    def columns(frontier: Frontier) -> list[bytes]:
        return [getattr(certificate_of(frontier), name).tobytes() for name in ("cost", "reward", "band", "needed")]

    for strategy in Strategy:
        once, twice = (solve_frontier_fast(cell, strategy) for _ in range(2))
        assert columns(once) == columns(twice)
        assert once.cost.tobytes() == twice.cost.tobytes()


def test_every_frontier_of_a_snapshot_of_the_papers_scale() -> None:
    measurements = load_measurements(draw_snapshot(scale=1.0))
    assert len(measurements.cells) == 24
    n_points = 0
    for cell in measurements.cells:
        assert cell.trajectories_per_question == 16
        for strategy in Strategy:
            frontier = assert_equal_to_textbook(cell, strategy)
            certificate = certificate_of(frontier)
            assert (certificate.needed <= certificate.band).all()
            n_points += len(frontier.cost)
    assert n_points > 1_000_000
