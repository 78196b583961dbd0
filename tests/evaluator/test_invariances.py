"""What must not change a figure, and what may change it in one direction only, on many small snapshots full of ties."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, astuple, dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.evaluator.dynamics import (
    compare_direct_answers,
    correlate_overthinking,
    summarise_diversity,
    summarise_local_changes,
)
from app.evaluator.frontier import solve_frontier
from app.evaluator.measurements import Cell, Measurements, build_cell
from app.evaluator.overthinking import summarise_overthinking
from app.evaluator.reference import build_references
from app.evaluator.scoring import BoardScore, Score, score_actions
from app.evaluator.strategies import ActionTable, CellActions, Strategy, select_positions
from app.evaluator.thinning import summarise_probe_thinning
from app.evaluator.traces import summarise_traces

SMALL = settings(max_examples=20, deadline=None, derandomize=True)
# Compared to the last bit, unless a test says otherwise: the sums behind them are exact or correctly rounded.
FIGURES: dict[str, Callable[[Measurements], Any]] = {
    "thinning": lambda m: [
        report.averages for report in summarise_probe_thinning(m, range(1, m.probes_per_position + 1))
    ],
    "diversity": lambda m: summarise_diversity(m).averages,
    "traces": lambda m: summarise_traces(m).averages,
    "direct answers": lambda m: compare_direct_answers(m).averages,
}


@dataclass(frozen=True)
class Submission:
    """A snapshot, and actions of one strategy: per cell a matrix of settings x units."""

    measurements: Measurements
    strategy: Strategy
    actions: tuple[NDArray[np.int64], ...]


@st.composite
def draw_measurements(draw: st.DrawFn) -> Measurements:
    """Draw one or two models and benchmarks with few distinct lengths and counts, some trajectories without a step."""
    per_question, probes = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    models, benchmarks = ("m1", "m2")[: draw(st.integers(1, 2))], ("b1", "b2")[: draw(st.integers(1, 2))]
    step = st.tuples(st.sampled_from([1, 2, 5]), st.integers(0, probes))
    trajectory = st.tuples(st.integers(0, probes), st.lists(step, max_size=4))
    cells = []
    for model in models:
        for benchmark in benchmarks:
            size = per_question * (3 if benchmark == "b1" else 2)
            drawn = draw(st.lists(trajectory, min_size=size, max_size=size))
            curves = [list_positions(first, steps) for first, steps in drawn]
            questions = [curves[i : i + per_question] for i in range(0, size, per_question)]
            named = [(f"q{i}", "test", question) for i, question in enumerate(questions)]
            cells.append(build_cell(model, benchmark, named, probes))
    return Measurements("s", "0" * 64, "synthetic", "all", probes, per_question, models, benchmarks, tuple(cells))


def list_positions(first: int, steps: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return (L, C) of every position from the first count and (tokens, count) of each step."""
    positions = [(0, first)]
    for tokens, correct in steps:
        positions.append((positions[-1][0] + tokens, correct))
    return positions


@st.composite
def draw_submission(draw: st.DrawFn) -> Submission:
    """Draw a snapshot and one to three settings that cover all of it."""
    measurements = draw(draw_measurements())
    strategy = draw(st.sampled_from(list(Strategy)))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    n_settings = draw(st.integers(1, 3))
    return Submission(
        measurements,
        strategy,
        tuple(draw_actions(cell, strategy, n_settings=n_settings, rng=rng) for cell in measurements.cells),
    )


def draw_actions(cell: Cell, strategy: Strategy, *, n_settings: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw actions: positions, caps of 0 to 12 tokens, or routes."""
    if strategy is Strategy.DYNAMIC_EARLY_EXIT:
        return rng.integers(0, cell.n_steps + 1, (n_settings, cell.n_trajectories))
    highest = 1 if strategy is Strategy.DYNAMIC_ROUTING else 12
    return rng.integers(0, highest + 1, (n_settings, cell.n_questions))


def score(submission: Submission) -> Score:
    """Score a submission, each setting under the label of its number."""
    labels = tuple(str(i) for i in range(len(submission.actions[0])))
    covered = np.ones(len(labels), np.bool_)
    table = ActionTable(submission.strategy, labels, tuple(CellActions(covered, a) for a in submission.actions))
    frontiers = [solve_frontier(cell, submission.strategy) for cell in submission.measurements.cells]
    references = build_references(submission.measurements, submission.strategy, frontiers)
    return score_actions(submission.measurements, table, references)


def list_figures(board: BoardScore) -> dict[str, Any]:
    """Return a board's figures without its sizes; the curve as lists."""
    figures = {
        field.name: getattr(board, field.name)
        for field in fields(board)
        if field.name not in ("n_settings", "n_cells", "min_questions", "curve")
    }
    return {**figures, "curve": (board.curve.beta.tolist(), board.curve.accuracy.tolist())}


def change_cells(measurements: Measurements, change: Callable[[Cell], Cell]) -> Measurements:
    """Return the measurements with every cell changed."""
    return replace(measurements, cells=tuple(change(cell) for cell in measurements.cells))


def take_units(submission: Submission, order: Callable[[Cell], list[int]]) -> Submission:
    """Return the submission on the questions at these indices of each cell, actions taken along."""
    actions = []
    for cell, of_cell in zip(submission.measurements.cells, submission.actions, strict=True):
        per_question = cell.trajectories_per_question if submission.strategy.unit_is_trajectory else 1
        units = np.arange(of_cell.shape[1]).reshape(-1, per_question)[order(cell)].reshape(-1)
        actions.append(of_cell[:, units])
    taken = change_cells(submission.measurements, lambda cell: cell.take_questions(order(cell)))
    return replace(submission, measurements=taken, actions=tuple(actions))


def scale_tokens(measurements: Measurements, factor: int) -> Measurements:
    """Return the measurements with every token count multiplied."""
    return change_cells(
        measurements, lambda cell: replace(cell, retained_tokens=cell.retained_tokens * np.int32(factor))
    )


def reverse(cell: Cell) -> list[int]:
    """The questions from the last to the first: with two or three of them every order is this one or a turn of it."""
    return list(range(cell.n_questions))[::-1]


def turn(cell: Cell) -> list[int]:
    """The questions from the second on, the first one last."""
    return [*range(1, cell.n_questions), 0]


def twice(cell: Cell) -> list[int]:
    """Every question, and every question again."""
    return [*range(cell.n_questions)] * 2


ORDERS = st.sampled_from([reverse, turn])


@SMALL
@given(measurements=draw_measurements(), order=ORDERS)
def test_the_order_of_questions_changes_nothing(measurements: Measurements, order: Callable[[Cell], list[int]]) -> None:
    changed = change_cells(measurements, lambda cell: cell.take_questions(order(cell)))
    assert summarise_local_changes(changed, bin_tokens=3) == summarise_local_changes(measurements, bin_tokens=3)
    assert summarise_overthinking(changed) == summarise_overthinking(measurements)
    for name, find in FIGURES.items():
        assert find(changed) == find(measurements), name


@SMALL
@given(submission=draw_submission(), order=ORDERS)
def test_the_order_of_questions_changes_no_score(submission: Submission, order: Callable[[Cell], list[int]]) -> None:
    plain, changed = score(submission), score(take_units(submission, order))
    assert [list_figures(board) for board in changed.boards] == [list_figures(board) for board in plain.boards]
    assert changed.settings == plain.settings


@SMALL
@given(measurements=draw_measurements())
def test_a_snapshot_twice_has_the_same_means(measurements: Measurements) -> None:
    doubled = change_cells(measurements, lambda cell: cell.take_questions(twice(cell)))
    plain, changed = summarise_overthinking(measurements), summarise_overthinking(doubled)
    assert changed.macro == plain.macro
    assert (changed.by_model, changed.by_benchmark) == (plain.by_model, plain.by_benchmark)
    assert correlate_overthinking(changed.cells) == correlate_overthinking(plain.cells)
    proportions = ("positive", "negative", "flat", "negative_per_positive", "reason")
    for one, other in zip(
        summarise_local_changes(doubled, bin_tokens=3), summarise_local_changes(measurements, bin_tokens=3), strict=True
    ):
        assert [getattr(one, name) for name in proportions] == [getattr(other, name) for name in proportions]
        assert (one.n_steps, one.n_trajectories) == (2 * other.n_steps, 2 * other.n_trajectories)
    for name, find in FIGURES.items():
        assert find(doubled) == find(measurements), name


@SMALL
@given(submission=draw_submission())
def test_a_snapshot_twice_changes_a_score_by_its_oracle_alone(submission: Submission) -> None:
    """Two copies of a question may be treated differently, so the frontier can gain between its points, never lose."""
    plain, changed = score(submission), score(take_units(submission, twice))
    same = ("area", "uninformed_area", "max_accuracy", "beta_match", "tokens_saved", "accuracy_at", "best_e3")
    for one, other in zip(changed.boards, plain.boards, strict=True):
        assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]
        assert one.oracle_area >= other.oracle_area
    for one, other in zip(changed.settings, plain.settings, strict=True):
        for name in ("beta", "accuracy", "early_loss", "late_loss", "wasted", "forgone", "e3"):
            assert getattr(one, name) == getattr(other, name), name


@SMALL
@given(measurements=draw_measurements(), factor=st.sampled_from([2, 7, 4096]))
def test_the_unit_of_length_changes_no_share(measurements: Measurements, factor: int) -> None:
    scaled = scale_tokens(measurements, factor)
    plain, changed = summarise_overthinking(measurements), summarise_overthinking(scaled)
    assert plain.macro is not None
    assert changed.macro is not None
    assert changed.macro.mean_thinking_tokens == pytest.approx(factor * plain.macro.mean_thinking_tokens, rel=1e-14)
    assert replace(changed.macro, mean_thinking_tokens=0.0) == replace(plain.macro, mean_thinking_tokens=0.0)
    for name, find in FIGURES.items():
        assert find(scaled) == find(measurements), name
    bins = [astuple(b)[2:] for b in summarise_local_changes(measurements, bin_tokens=2)]
    assert [astuple(b)[2:] for b in summarise_local_changes(scaled, bin_tokens=2 * factor)] == bins


@SMALL
@given(submission=draw_submission(), factor=st.sampled_from([2, 7, 4096]))
def test_the_unit_of_length_changes_no_score(submission: Submission, factor: int) -> None:
    """Caps are in tokens too; the constant caps of the uninformed reference admit the same positions as before."""
    caps = factor if submission.strategy is Strategy.FIXED_BUDGET else 1
    scaled = replace(
        submission,
        measurements=scale_tokens(submission.measurements, factor),
        actions=tuple(actions * caps for actions in submission.actions),
    )
    plain, changed = score(submission), score(scaled)
    for one, other in zip(changed.boards, plain.boards, strict=True):
        assert {**list_figures(one), "best_e3": None} == {**list_figures(other), "best_e3": None}
        assert are_close(one.best_e3, other.best_e3)
    for one, other in zip(changed.settings, plain.settings, strict=True):
        assert replace(one, e3=None, cells=()) == replace(other, e3=None, cells=())
        # E3 is formed in logarithms, so a factor that divides out leaves its last digits.
        assert are_close(one.e3, other.e3)
        for cell, before in zip(one.cells, other.cells, strict=True):
            assert cell.cost == factor * before.cost
            assert are_close(cell.e3, before.e3)
            left_out = {"cost": 0, "mean_tokens": 0.0, "e3": None}
            assert {**asdict(cell), **left_out} == {**asdict(before), **left_out}


def are_close(one: float | None, other: float | None) -> bool:
    """Whether both are undefined, or the same but for their last digits."""
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=1e-12)


def find_dominated(cell: Cell, strategy: Strategy, setting: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return actions that cost at least as much as a setting's and get at most as many probes right, in every unit.

    Of a unit's actions that do, the dearest one, and of equal ones the worst; the setting's own is always among them.
    """
    highest = {Strategy.DYNAMIC_ROUTING: 1, Strategy.FIXED_BUDGET: int(cell.retained_tokens.max()) + 12}
    per_unit = 1 if strategy.unit_is_trajectory else cell.trajectories_per_question

    def measure(actions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        at = cell.first_idx + select_positions(cell, strategy, actions)
        of_units = (
            values[at].astype(np.int64).reshape(-1, per_unit) for values in (cell.retained_tokens, cell.correct_probes)
        )
        cost, correct = (values.sum(axis=1) for values in of_units)
        return cost, correct

    worst = setting.copy()
    least_cost, most_correct = measure(setting)
    worst_cost, worst_correct = least_cost.copy(), most_correct.copy()
    for action in range(highest.get(strategy, int(cell.n_steps.max())) + 1):
        limit = cell.n_steps if strategy.unit_is_trajectory else np.full(len(setting), action)
        tried = np.minimum(np.full(len(setting), action), limit)
        cost, correct = measure(tried)
        dominated = (cost >= least_cost) & (correct <= most_correct)
        worse = dominated & ((cost > worst_cost) | ((cost == worst_cost) & (correct < worst_correct)))
        worst[worse], worst_cost[worse], worst_correct[worse] = tried[worse], cost[worse], correct[worse]
    return worst


@SMALL
@given(submission=draw_submission())
def test_a_dominated_setting_changes_no_board(submission: Submission) -> None:
    dominated = tuple(
        np.vstack([actions, find_dominated(cell, submission.strategy, actions[0])])
        for cell, actions in zip(submission.measurements.cells, submission.actions, strict=True)
    )
    plain, more = score(submission), score(replace(submission, actions=dominated))
    assert [list_figures(board) for board in more.boards] == [list_figures(board) for board in plain.boards]
    assert [board.n_settings for board in more.boards] == [board.n_settings + 1 for board in plain.boards]


@SMALL
@given(submission=draw_submission(), seed=st.integers(0, 2**32))
def test_another_setting_never_makes_a_board_worse(submission: Submission, seed: int) -> None:
    rng = np.random.default_rng(seed)
    longer = tuple(
        np.vstack([actions, draw_actions(cell, submission.strategy, n_settings=1, rng=rng)])
        for cell, actions in zip(submission.measurements.cells, submission.actions, strict=True)
    )
    plain, more = score(submission), score(replace(submission, actions=longer))
    for one, other in zip(more.boards, plain.boards, strict=True):
        assert (one.oracle_area, one.uninformed_area, one.reason) == (
            other.oracle_area,
            other.uninformed_area,
            other.reason,
        )
        for name in ("area", "max_accuracy", "realised_potential", "best_e3"):
            found, before = getattr(one, name), getattr(other, name)
            assert found == before or before is None or found > before, name
        assert all(one.accuracy_at[name] >= value for name, value in other.accuracy_at.items())
        if other.beta_match is not None:
            assert one.beta_match is not None
            assert one.beta_match <= other.beta_match
