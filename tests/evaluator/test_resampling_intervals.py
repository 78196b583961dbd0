"""Intervals of submissions and snapshots, and shared ranks, against slow programs over resampled cells."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from app.evaluator.centring import Interval, find_band, find_interval, find_percentiles
from app.evaluator.curves import find_beta_match, mean_accuracy_at_grid
from app.evaluator.draws import draw_replicate, resample_cell
from app.evaluator.efficiency import e3
from app.evaluator.frontier import solve_frontier, solve_frontiers
from app.evaluator.intervals import summarise_intervals
from app.evaluator.measurements import Cell, IntArray, Measurements, build_cell
from app.evaluator.overthinking import summarise_overthinking
from app.evaluator.ranks import compare_pairs
from app.evaluator.reference import build_references
from app.evaluator.replicate_frontiers import ReplicateFrontiers, compute_replicates
from app.evaluator.resampled_boards import (
    MISSING_CELLS,
    TOO_FEW_QUESTIONS,
    UNDEFINED,
    UNDEFINED_IN_REPLICATES,
)
from app.evaluator.scored_cells import score_cell
from app.evaluator.scoring import score_actions
from app.evaluator.strategies import ActionTable, CellActions, Strategy, n_units
from app.evaluator.submission_intervals import RANKED_FIGURES, bootstrap_submission

N = 12
Measure = Callable[[list[Cell]], Measurements]


def draw_cell(rng: np.random.Generator, model: str, benchmark: str, n_questions: int) -> Cell:
    def draw_trajectory() -> list[tuple[int, int]]:
        n = int(rng.integers(0, 6))
        lengths = np.append(0, np.cumsum(rng.integers(1, 9, n)))
        return list(zip(lengths.tolist(), rng.integers(0, 5, n + 1).tolist(), strict=True))

    questions = [(f"q{i:03}", "test", [draw_trajectory() for _ in range(3)]) for i in range(n_questions)]
    cell = build_cell(model, benchmark, questions, 4)
    return replace(cell, original_correct=rng.integers(0, 2, cell.n_trajectories).astype(np.int8))


@pytest.fixture
def measurements(as_measurements: Measure) -> Measurements:
    rng = np.random.default_rng(2)
    sizes = (("hard", 9), ("easy", 22))
    return as_measurements([draw_cell(rng, m, b, n) for m in ("small", "large") for b, n in sizes])


@pytest.fixture
def replicates(measurements: Measurements) -> ReplicateFrontiers:
    return compute_replicates(measurements, range(N))


def draw_actions(rng: np.random.Generator, measurements: Measurements, strategy: Strategy) -> ActionTable:
    """Four settings, of which the last covers only the first two cells."""
    cells = []
    for at, cell in enumerate(measurements.cells):
        highest: IntArray = {
            Strategy.DYNAMIC_ROUTING: np.ones(cell.n_questions, np.int64),
            Strategy.FIXED_BUDGET: np.full(cell.n_questions, 40),
            Strategy.DYNAMIC_EARLY_EXIT: cell.n_steps,
        }[strategy]
        actions = rng.integers(0, highest + 1, (4, n_units(cell, strategy)))
        cells.append(
            CellActions(np.array([True, True, True, at < 2]), actions * (np.arange(4) < 3 + (at < 2))[:, None])
        )
    return ActionTable(strategy, ("a", "b", "c", "d"), tuple(cells))


def resample(measurements: Measurements, table: ActionTable, number: int) -> tuple[Measurements, ActionTable]:
    """Build a replicate as data of its own: its cells, and the actions of what it drew."""
    cells, actions = [], []
    for cell, of_cell, draw in zip(
        measurements.cells, table.cells, draw_replicate(measurements, number).cells, strict=True
    ):
        units = draw.question_idx
        if table.strategy.unit_is_trajectory:
            units = (draw.question_idx[:, None] * cell.trajectories_per_question + draw.trajectory_idx).reshape(-1)
        cells.append(resample_cell(cell, draw))
        actions.append(CellActions(of_cell.covered, of_cell.actions[:, units]))
    return replace(measurements, cells=tuple(cells)), replace(table, cells=tuple(actions))


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_submission_is_scored_on_each_replicate_as_on_data_of_its_own(
    measurements: Measurements, replicates: ReplicateFrontiers, strategy: Strategy
) -> None:
    table = draw_actions(np.random.default_rng(4), measurements, strategy)
    references = build_references(measurements, strategy, solve_frontiers(measurements))
    score = score_actions(measurements, table, references)
    result = bootstrap_submission(measurements, table, score, replicates, n_replicates=N)
    expected_boards = [(b.model, b.benchmark) for b in score.boards]
    assert [(b.model, b.benchmark) for b in result.boards] == expected_boards
    s = list(Strategy).index(strategy)
    for number in range(N):
        data, actions = resample(measurements, table, number)
        scored = [
            score_cell(*parts, build_references(data, strategy, solve_frontiers(data, [strategy]))[at])
            for at, parts in enumerate(zip(data.cells, [actions] * 4, actions.cells, strict=True))
        ]
        for board in result.boards:
            idx = [
                i
                for i, c in enumerate(data.cells)
                if board.model in (None, c.model) and board.benchmark in (None, c.benchmark)
            ]
            assert set(board.values) == set(RANKED_FIGURES)
            got = {name: float(values[number]) for name, values in board.values.items()}
            curve = mean_accuracy_at_grid([scored[i].curve for i in idx], 100)
            frontier = mean_accuracy_at_grid([scored[i].reference.frontier.curve for i in idx], 100)
            area, oracle = np.trapezoid(curve, dx=0.01), np.trapezoid(frontier, dx=0.01)
            uninformed = replicates.uninformed_area[number, idx, s].mean()
            full = np.mean([float(scored[i].full_accuracy) for i in idx])
            reaches = np.flatnonzero(curve >= full - 1e-12)
            match = reaches[0] / 100 if len(reaches) else np.nan
            covering = [k for k in range(4) if all(actions.cells[i].covered[k] for i in idx)]
            values = [
                e3(
                    float(np.mean([scored[i].correct[k] / scored[i].cell.total_probes for i in idx])),
                    float(np.mean([scored[i].cost[k] / scored[i].cell.n_trajectories for i in idx])),
                    base_accuracy=float(full),
                    base_tokens=float(np.mean([float(scored[i].full_tokens) for i in idx])),
                )
                for k in covering
            ]
            assert got == pytest.approx(
                {
                    "realised_potential": (area - uninformed) / (oracle - uninformed)
                    if oracle > uninformed
                    else np.nan,
                    "area": area,
                    "uninformed_area": uninformed,
                    "oracle_area": oracle,
                    "gap": oracle - area,
                    "max_accuracy": curve[-1],
                    "beta_match": match,
                    "tokens_saved": 1 - match,
                    "accuracy_25": curve[25],
                    "accuracy_50": curve[50],
                    "accuracy_75": curve[75],
                    "best_e3": max(v for v in values if v is not None),
                },
                abs=1e-11,
                nan_ok=True,
            )


def test_every_interval_of_a_submission_is_centred_on_its_score(
    measurements: Measurements, replicates: ReplicateFrontiers
) -> None:
    """Areas and budgets of the score are exact, those of replicates on the grid, and still it lies inside."""
    table = draw_actions(np.random.default_rng(4), measurements, Strategy.FIXED_BUDGET)
    references = build_references(measurements, Strategy.FIXED_BUDGET, solve_frontiers(measurements))
    score = score_actions(measurements, table, references)
    boards = bootstrap_submission(measurements, table, score, replicates, n_replicates=N).boards
    n_intervals = 0
    for scored, board in zip(score.boards, boards, strict=True):
        budgets = {"accuracy_25": "0.25", "accuracy_50": "0.5", "accuracy_75": "0.75"}
        shown = {**vars(scored), **{name: scored.accuracy_at[budget] for name, budget in budgets.items()}}
        for name, interval in board.intervals.items():
            if interval is None:
                assert board.reasons[name] in (TOO_FEW_QUESTIONS, UNDEFINED, UNDEFINED_IN_REPLICATES)
                continue
            n_intervals += 1
            defined = board.values[name][~np.isnan(board.values[name])]
            low, middle, high = np.percentile(defined, (2.5, 50, 97.5))
            least = -np.inf if name == "realised_potential" else 0.0
            most = np.inf if name == "best_e3" else 1.0
            assert interval.low <= shown[name] <= interval.high
            assert interval.low == pytest.approx(max(shown[name] - (middle - low), least), abs=1e-12)
            assert interval.high == pytest.approx(min(shown[name] + (high - middle), most), abs=1e-12)
    assert n_intervals > 60


def test_a_snapshots_own_figures_are_those_of_each_replicate(
    measurements: Measurements, replicates: ReplicateFrontiers
) -> None:
    references = [r for s in Strategy for r in build_references(measurements, s, solve_frontiers(measurements))]
    summary = summarise_intervals(measurements, replicates, references)
    whole = summary.boards[0]
    for number in range(N):
        draws = draw_replicate(measurements, number).cells
        cells = [resample_cell(*pair) for pair in zip(measurements.cells, draws, strict=True)]
        macro = summarise_overthinking(replace(measurements, cells=tuple(cells))).macro
        assert macro is not None
        for name, values in whole.figures.values.items():
            assert values[number] == pytest.approx(getattr(macro, name), abs=1e-12)
        for frontier in whole.frontiers:
            curves = [solve_frontier(cell, frontier.strategy).curve for cell in cells]
            mean = mean_accuracy_at_grid(curves, 100)
            got = {name: values[number] for name, values in frontier.figures.values.items()}
            assert got["area"] == pytest.approx(np.trapezoid(mean, dx=0.01), abs=1e-12)
            assert got["max_accuracy"] == pytest.approx(mean[-1], abs=1e-12)
            assert got["beta_sat"] == np.flatnonzero(mean >= mean[-1] - 1e-12)[0] / 100
            # On the grid it is the exact one, rounded up to a budget of the grid.
            target = sum((Fraction(int(c.endpoint_correct.sum()), c.total_probes) for c in cells), Fraction(0)) / 4
            exact = find_beta_match(curves, target)
            assert exact is not None
            assert got["beta_match"] == -(-exact * 100 // 1) / 100
    shown = summarise_overthinking(measurements).macro
    assert shown is not None
    for name, values in whole.figures.values.items():
        limits = (0.0, np.inf) if name == "mean_thinking_tokens" else (0.0, 1.0)
        assert whole.figures.intervals[name] == find_interval(values, getattr(shown, name), limits=limits)


def test_frontiers_lie_inside_their_intervals(measurements: Measurements, replicates: ReplicateFrontiers) -> None:
    """Fixed budgets are where replicates lie above the data: their 2.5th percentile passed the frontier itself."""
    references = [r for s in Strategy for r in build_references(measurements, s, solve_frontiers(measurements))]
    boards = summarise_intervals(measurements, replicates, references).boards
    n_bands = 0
    for board in boards:
        assert [frontier.strategy for frontier in board.frontiers] == list(Strategy)
        for frontier in board.frontiers:
            of_board = [
                r
                for r in references
                if r.frontier.strategy is frontier.strategy
                and board.model in (None, r.frontier.model)
                and board.benchmark in (None, r.frontier.benchmark)
            ]
            curves = [r.frontier.curve for r in of_board]
            area = sum(float(curve.area()) for curve in curves) / len(curves)
            if (interval := frontier.figures.intervals["area"]) is not None:
                assert interval.low < area < interval.high
            if frontier.low is None or frontier.high is None:
                assert frontier.figures.reasons["area"] == TOO_FEW_QUESTIONS
                continue
            n_bands += 1
            mean = mean_accuracy_at_grid(curves, 100)
            assert (frontier.low <= mean).all()
            assert (mean <= frontier.high).all()
            assert (frontier.low >= 0).all()
            assert (frontier.high <= 1).all()
    assert n_bands == 3 * 6


def test_frontiers_have_intervals_where_all_their_cells_are_given(
    measurements: Measurements, replicates: ReplicateFrontiers
) -> None:
    all_of_them = build_references(measurements, Strategy.DYNAMIC_ROUTING, solve_frontiers(measurements))
    of_model = [r for r in all_of_them if r.frontier.model == "small"]
    boards = summarise_intervals(measurements, replicates, of_model).boards
    assert [(b.model, b.benchmark) for b in boards if b.frontiers] == [
        ("small", None),
        ("small", "hard"),
        ("small", "easy"),
    ]
    assert not any(b.frontiers for b in summarise_intervals(measurements, replicates).boards)


def test_boards_of_few_questions_have_no_interval(measurements: Measurements, replicates: ReplicateFrontiers) -> None:
    references = build_references(measurements, Strategy.DYNAMIC_ROUTING, solve_frontiers(measurements))
    boards = {(b.model, b.benchmark): b for b in summarise_intervals(measurements, replicates, references).boards}
    small = boards["small", "hard"]
    assert small.figures.intervals["endpoint_accuracy"] is None
    assert small.figures.reasons["endpoint_accuracy"] == TOO_FEW_QUESTIONS
    assert small.frontiers[0].low is None
    assert boards["small", "easy"].figures.intervals["endpoint_accuracy"] is not None
    # One cell of 22 questions is enough for a board.
    assert boards["small", None].figures.intervals["endpoint_accuracy"] is not None


def test_averages_over_a_missing_cell_do_not_exist(measurements: Measurements) -> None:
    partial = replace(measurements, cells=measurements.cells[:3])
    references = build_references(partial, Strategy.DYNAMIC_ROUTING, solve_frontiers(partial))
    found = summarise_intervals(partial, compute_replicates(partial, range(4)), references).boards
    boards = {(b.model, b.benchmark): b for b in found}
    assert boards["large", None].figures.reasons["overthinking_ratio"] == MISSING_CELLS
    assert boards[None, None].figures.reasons["overthinking_ratio"] == MISSING_CELLS
    assert boards[None, None].frontiers[0].figures.intervals["area"] is not None
    assert boards["small", None].figures.intervals["overthinking_ratio"] is not None


def test_unknown_original_answers_leave_no_interval(measurements: Measurements) -> None:
    unknown = [replace(cell, original_correct=cell.original_correct * 0 - 1) for cell in measurements.cells]
    data = replace(measurements, cells=tuple(unknown))
    figures = summarise_intervals(data, compute_replicates(data, range(4))).boards[0].figures
    assert figures.intervals["full_thinking_accuracy"] is None
    assert figures.reasons == {"full_thinking_accuracy": UNDEFINED}


def test_replicates_of_other_data_are_refused(measurements: Measurements, replicates: ReplicateFrontiers) -> None:
    strategy = Strategy.DYNAMIC_ROUTING
    table = draw_actions(np.random.default_rng(4), measurements, strategy)
    references = build_references(measurements, strategy, solve_frontiers(measurements))
    score = score_actions(measurements, table, references)
    other = replace(score, strategy=Strategy.FIXED_BUDGET)
    fewer = replace(measurements, cells=measurements.cells[:3])
    shorter = replace(replicates, totals=replicates.totals // 3)
    with pytest.raises(ValueError, match="differ in their cells"):
        bootstrap_submission(fewer, table, score, replicates, n_replicates=N)
    with pytest.raises(ValueError, match="another strategy"):
        bootstrap_submission(measurements, table, other, replicates, n_replicates=N)
    with pytest.raises(ValueError, match="not drawn from these"):
        bootstrap_submission(measurements, table, score, shorter, n_replicates=N)
    with pytest.raises(ValueError, match="differ in their cells"):
        summarise_intervals(fewer, replicates)


def test_up_to_a_twentieth_of_undefined_replicates_is_left_out() -> None:
    values = np.arange(100.0)
    values[:5] = np.nan
    # The 95 others are 5..99: percentiles at 0.025 * 94 = 2.35 and 0.975 * 94 = 91.65 places from 5.
    interval = find_percentiles(values)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx((7.35, 96.65))
    # Their median is 52; about a figure of 50 the same interval lies 2 lower.
    centred = find_interval(values, 50.0, limits=(0.0, 94.0))
    assert centred is not None
    assert (centred.low, centred.high) == pytest.approx((5.35, 94.0))
    values[5] = np.nan
    assert find_percentiles(values) is None
    assert find_interval(values, 50.0) is None
    assert find_percentiles(np.array([np.nan])) is None
    assert find_percentiles(np.array([0.5, 0.5])) == Interval(0.5, 0.5)


def test_a_centred_interval_holds_its_figure_and_keeps_to_what_is_possible() -> None:
    """Replicates above the figure, below it, on one side of a limit, and with the figure a rounding past a limit."""
    values = np.linspace(0.8, 1.0, 101)
    for estimate in (0.0, 0.5, 0.97, 1.0, 1.0 + 1e-16):
        interval = find_interval(values, estimate)
        assert interval is not None
        assert interval.low <= estimate <= interval.high
        assert interval.low >= 0.0
        assert interval.high <= max(estimate, 1.0)
        low, high = find_band(np.stack([values, values], axis=1), np.array([estimate, 0.5]))
        assert (low[0], high[0]) == pytest.approx((interval.low, interval.high), abs=1e-15)
    assert find_interval(values, None) is None
    # The replicates are left as they are.
    assert values[0] == 0.8


def rank_slowly(values: np.ndarray) -> list[int]:
    """Ranks by sorting each pair's differences."""
    ranks = []
    for mine in values:
        better = 0
        for theirs in values:
            interval = find_percentiles(theirs - mine)
            better += interval is not None and interval.low > 0
        ranks.append(1 + better)
    return ranks


def test_ranks_are_those_of_sorted_differences() -> None:
    rng = np.random.default_rng(6)
    for trial in range(60):
        n_replicates = int(rng.integers(1, 130))
        values = np.round(rng.normal(rng.normal(0, 0.6, (9, 1)), 0.4, (9, n_replicates)), 1)
        if trial % 2:
            values[rng.random(values.shape) < 0.02] = np.nan
        assert compare_pairs(values).tolist() == rank_slowly(values)


def test_methods_that_cannot_be_separated_share_a_rank() -> None:
    draws = np.random.default_rng(0).normal(0, 1, 400)
    # Paired on the same draws, a constant lead of 0.01 is certain however much the draws vary.
    values = np.stack([draws + 0.01, draws, draws])
    assert compare_pairs(values).tolist() == [1, 2, 2]
    # One that trails in all but 2 % of the replicates is separated from all; in all but 5 %, from none.
    for share, rank in ((8, 4), (20, 1)):
        trailing = draws + np.where(np.arange(400) < share, 1.0, -0.01)
        assert compare_pairs(np.vstack([values, trailing])).tolist() == [1, 2, 2, rank]
    assert compare_pairs(np.zeros((3, 5))).tolist() == [1, 1, 1]
    assert compare_pairs(np.empty((0, 5))).tolist() == []
    assert compare_pairs(np.full((2, 5), np.nan)).tolist() == [1, 1]
    with pytest.raises(ValueError, match="methods x replicates"):
        compare_pairs(np.zeros(3))
