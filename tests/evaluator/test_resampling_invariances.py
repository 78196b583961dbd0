"""What must not change a replicate's frontiers, and what may change them in one direction only, on small cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.evaluator.draws import CellCounts, count_draws
from app.evaluator.measurements import Cell, IntArray, Measurements, build_cell
from app.evaluator.replicate_frontiers import compute_replicates, prepare_cell, solve_drawn
from app.evaluator.strategies import Strategy
from app.evaluator.uninformed_grid import find_uninformed_grid

SMALL = settings(max_examples=40, deadline=None, derandomize=True)
N_REPLICATES = 3
PROBES = 5
ROUTING, CAPS, EXITS = range(len(Strategy))

Trajectory = list[tuple[int, int]]


@st.composite
def draw_questions(draw: st.DrawFn) -> list[list[Trajectory]]:
    """Draw questions with few distinct lengths and counts, some of whose trajectories have no step."""
    per_question = draw(st.integers(1, 3))
    step = st.tuples(st.sampled_from([2, 3, 7]), st.integers(0, PROBES))
    trajectory = st.tuples(st.integers(0, PROBES), st.lists(step, max_size=5)).map(add_up)
    question = st.lists(trajectory, min_size=per_question, max_size=per_question)
    return draw(st.lists(question, min_size=1, max_size=6))


def add_up(drawn: tuple[int, list[tuple[int, int]]]) -> Trajectory:
    """Turn a first count, and steps of so many tokens with a count each, into a trajectory."""
    zero_correct, steps = drawn
    lengths = np.append(0, np.cumsum([length for length, _ in steps])).astype(int)
    return list(zip(lengths.tolist(), [zero_correct, *(correct for _, correct in steps)], strict=True))


def as_cell(questions: Sequence[list[Trajectory]]) -> Cell:
    return build_cell("m", "b", [(f"q{i}", "test", list(q)) for i, q in enumerate(questions)], PROBES)


def as_measurements(cell: Cell) -> Measurements:
    per_question = cell.trajectories_per_question
    return Measurements("s", "0" * 64, "synthetic", "all", PROBES, per_question, ("m",), ("b",), (cell,))


def solve(cell: Cell, drawn: CellCounts, *, room: Cell | None = None) -> IntArray:
    """Return the rewards at the 101 budgets, replicates x strategies x 101; `room`: a cell with as many slots."""
    prepared = prepare_cell(cell)
    if room is not None:
        prepared = replace(prepared, room=prepare_cell(room).room)
    return solve_drawn(prepared, drawn, drawn.weights.astype(np.int64) @ cell.thinking_tokens.astype(np.int64))


def solve_uninformed(cell: Cell, drawn: CellCounts) -> NDArray[np.float64]:
    columns = (cell.thinking_tokens, cell.zero_correct, cell.endpoint_correct)
    totals = drawn.weights.astype(np.int64) @ np.stack(columns, axis=1).astype(np.int64)
    return find_uninformed_grid(
        prepare_cell(cell).policies, drawn.weights, totals=totals, total_probes=cell.total_probes, n_intervals=100
    )


@SMALL
@given(questions=draw_questions(), data=st.data())
def test_the_order_of_questions_does_not_matter(questions: list[list[Trajectory]], data: st.DataObject) -> None:
    """The draws are permuted like the questions: the same occurrences are drawn."""
    cell = as_cell(questions)
    order = np.array(data.draw(st.permutations(range(len(questions)))))
    permuted = cell.take_questions(order)
    drawn = count_draws(cell, range(N_REPLICATES), seed=0)
    place = np.argsort(order).astype(np.int32)
    weights = drawn.weights.reshape(N_REPLICATES, cell.n_questions, -1)[:, order].reshape(N_REPLICATES, -1)
    moved = CellCounts(place[drawn.question_idx], drawn.counts, np.ascontiguousarray(weights))
    assert solve(permuted, moved).tolist() == solve(cell, drawn).tolist()
    assert solve_uninformed(permuted, moved).tolist() == solve_uninformed(cell, drawn).tolist()


@SMALL
@given(questions=draw_questions())
def test_a_question_drawn_twice_is_two_questions_drawn_once(questions: list[list[Trajectory]]) -> None:
    cell = as_cell(questions)
    doubled = cell.take_questions(np.tile(np.arange(cell.n_questions), 2))
    drawn = count_draws(cell, range(N_REPLICATES), seed=0)
    idx, counts, weights = drawn.question_idx, drawn.counts, drawn.weights
    counts = np.concatenate([counts, counts], axis=1)
    twice = CellCounts(np.concatenate([idx, idx], axis=1), counts, 2 * weights)
    of_both = CellCounts(
        np.concatenate([idx, idx + np.int32(cell.n_questions)], axis=1), counts, np.concatenate([weights] * 2, axis=1)
    )
    rewards = solve(doubled, of_both)
    assert rewards.tolist() == solve(cell, twice, room=doubled).tolist()
    # Twice the best within a budget is possible within twice the budget.
    assert (rewards >= 2 * solve(cell, drawn)).all()


@SMALL
@given(questions=draw_questions(), data=st.data())
def test_a_dominated_position_gains_nothing(questions: list[list[Trajectory]], data: st.DataObject) -> None:
    """Some trajectories get a position that keeps a token more than another and has no more probes right.

    Early exit need not choose it and routing cannot. A cap may have to: it is never worth more than before, and where a
    question has one trajectory the cap just below does as well.
    """
    longer = [[data.draw(add_dominated(t)) for t in question] for question in questions]
    cell, other = as_cell(questions), as_cell(longer)
    drawn = count_draws(cell, range(N_REPLICATES), seed=0)
    before, after = solve(cell, drawn), solve(other, drawn)
    for strategy in (ROUTING, EXITS):
        assert after[:, strategy].tolist() == before[:, strategy].tolist()
    assert (after[:, CAPS] <= before[:, CAPS]).all()
    if cell.trajectories_per_question == 1:
        assert after[:, CAPS].tolist() == before[:, CAPS].tolist()


def add_dominated(trajectory: Trajectory) -> st.SearchStrategy[Trajectory]:
    """Add a dominated position behind one that is not the last, or none; steps are at least two tokens long."""

    def add(at: int, correct: int) -> Trajectory:
        if at == len(trajectory) - 1:
            return trajectory
        tokens, most = trajectory[at]
        return [*trajectory[: at + 1], (tokens + 1, min(correct, most)), *trajectory[at + 1 :]]

    return st.builds(add, st.integers(0, len(trajectory) - 1), st.integers(0, PROBES))


@SMALL
@given(questions=draw_questions(), factor=st.integers(2, 1000))
def test_tokens_of_another_size_change_no_accuracy(questions: list[list[Trajectory]], factor: int) -> None:
    scaled = [[[(factor * tokens, correct) for tokens, correct in t] for t in question] for question in questions]
    before, after = (
        compute_replicates(as_measurements(as_cell(given_ones)), range(N_REPLICATES))
        for given_ones in (questions, scaled)
    )
    assert after.rewards.tolist() == before.rewards.tolist()
    assert after.total("thinking_tokens").tolist() == (factor * before.total("thinking_tokens")).tolist()
    assert after.totals[..., 1:].tolist() == before.totals[..., 1:].tolist()
    assert after.overthinking_ratio.tolist() == before.overthinking_ratio.tolist()
    assert np.abs(after.uninformed_area - before.uninformed_area).max() < 1e-13
