"""What frontiers and their areas owe to the data alone, on cells that Hypothesis draws."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.evaluator.fast_frontier import check_frontier, solve_frontier_fast
from app.evaluator.frontier import Frontier
from app.evaluator.measurements import Cell, build_cell
from app.evaluator.strategies import Strategy

PROBES = 6
# A trajectory is its (L(k), C(k)) pairs; all questions of a cell have as many trajectories.
Trajectory = list[tuple[int, int]]
Questions = list[list[Trajectory]]

# Without a deadline, since the first example may wait for the compiler.
examples = settings(deadline=None, max_examples=40)


@st.composite
def draw_trajectories(draw: st.DrawFn) -> Trajectory:
    """A trajectory of up to six steps of few distinct, even lengths: ties everywhere, and room between lengths."""
    steps = draw(st.lists(st.sampled_from([2, 2, 4, 10]), max_size=6))
    lengths = [sum(steps[:k]) for k in range(len(steps) + 1)]
    return [(length, draw(st.integers(0, PROBES))) for length in lengths]


@st.composite
def draw_questions(draw: st.DrawFn) -> Questions:
    if draw(st.booleans()):
        return draw_many_questions(np.random.default_rng(draw(st.integers(0, 2**32 - 1))))
    n_questions, per_question = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    return [[draw(draw_trajectories()) for _ in range(per_question)] for _ in range(n_questions)]


def draw_many_questions(rng: np.random.Generator) -> Questions:
    """Enough questions for frontiers of several chunks."""

    def draw_trajectory() -> Trajectory:
        lengths = np.concatenate([[0], 2 * np.cumsum(rng.integers(1, 60, rng.integers(0, 9)))])
        found = int(rng.integers(0, 9))
        correct = rng.binomial(PROBES, np.where(np.arange(lengths.size) < found, 0.2, 0.8))
        return list(zip(lengths.tolist(), correct.tolist(), strict=True))

    return [[draw_trajectory() for _ in range(2)] for _ in range(int(rng.integers(20, 60)))]


def as_cell(questions: Questions) -> Cell:
    named = [(f"q{i:03}", "test", trajectories) for i, trajectories in enumerate(questions)]
    return build_cell("m", "b", named, PROBES)


def solve(questions: Questions, strategy: Strategy) -> Frontier:
    cell = as_cell(questions)
    frontier = solve_frontier_fast(cell, strategy)
    assert check_frontier(cell, frontier) == ()
    return frontier


def points_of(frontier: Frontier) -> list[tuple[int, int]]:
    return list(zip(frontier.cost.tolist(), frontier.correct.tolist(), strict=True))


def keep_nondominated(points: list[tuple[int, int]]) -> list[tuple[int, int]]:
    kept: list[tuple[int, int]] = []
    for cost, correct in sorted(points, key=lambda point: (point[0], -point[1])):
        if not kept or correct > kept[-1][1]:
            kept.append((cost, correct))
    return kept


@pytest.mark.parametrize("strategy", Strategy)
@given(data=st.data())
@examples
def test_the_order_of_questions_does_not_matter(strategy: Strategy, data: st.DataObject) -> None:
    questions = data.draw(draw_questions())
    once, again = solve(questions, strategy), solve(data.draw(st.permutations(questions)), strategy)
    assert points_of(again) == points_of(once)
    assert again.curve.area() == once.curve.area()


@pytest.mark.parametrize("strategy", Strategy)
@given(questions=draw_questions())
@examples
def test_every_question_twice(strategy: Strategy, questions: Questions) -> None:
    once, twice = solve(questions, strategy), solve(questions * 2, strategy)
    points = points_of(once)
    # Two copies choose apart from each other: their frontier is all sums of two points, and nothing else.
    sums = [(a[0] + b[0], a[1] + b[1]) for a in points for b in points]
    assert points_of(twice) == keep_nondominated(sums)
    # At the same relative budget there is never less to be had. It may be more: in between two points of which both
    # copies would choose the same, one may take the first and the other the second.
    assert twice.curve.area() >= once.curve.area()
    for beta in (Fraction(i, 12) for i in range(13)):
        assert twice.curve.accuracy_at(beta) >= once.curve.accuracy_at(beta)
    # No mix of combinations is better than the bound, which is the same for any number of copies: its corners stay.
    assert once.certificate is not None
    corners = zip(once.certificate.cost.tolist(), once.certificate.reward.tolist(), strict=True)
    assert {(2 * cost, 2 * correct) for cost, correct in corners} <= set(points_of(twice))


@pytest.mark.parametrize("strategy", Strategy)
@given(data=st.data())
@examples
def test_a_dominated_action_changes_nothing(strategy: Strategy, data: st.DataObject) -> None:
    questions = data.draw(draw_questions())
    before = solve(questions, strategy)
    question = data.draw(st.integers(0, len(questions) - 1))
    trajectory = data.draw(st.integers(0, len(questions[question]) - 1))
    positions = questions[question][trajectory]
    if len(positions) > 1:
        # One token short of an even length no other trajectory changes, so that this position, with no more right
        # probes than the one before it, only costs more: under a cap as well.
        k = data.draw(st.integers(1, len(positions) - 1))
        worse = (positions[k][0] - 1, data.draw(st.integers(0, positions[k - 1][1])))
        questions[question][trajectory] = [*positions[:k], worse, *positions[k:]]
    after = solve(questions, strategy)
    assert points_of(after) == points_of(before)
    assert after.curve.area() == before.curve.area()


@pytest.mark.parametrize("strategy", Strategy)
@given(questions=draw_questions(), factor=st.sampled_from([2, 3, 1000, 2**21]))
@examples
def test_costs_scale_with_the_tokens(strategy: Strategy, questions: Questions, factor: int) -> None:
    scaled = [[[(length * factor, c) for length, c in t] for t in question] for question in questions]
    before, after = solve(questions, strategy), solve(scaled, strategy)
    assert points_of(after) == [(cost * factor, correct) for cost, correct in points_of(before)]
    assert after.curve.area() == before.curve.area()


@given(questions=draw_questions())
@examples
def test_finer_decisions_are_never_worse(questions: Questions) -> None:
    curves = [solve(questions, strategy).curve for strategy in Strategy]
    for beta in (Fraction(i, 12) for i in range(13)):
        routing, budget, early_exit = (curve.accuracy_at(beta) for curve in curves)
        assert routing <= budget <= early_exit
    assert curves[0].area() <= curves[1].area() <= curves[2].area()
