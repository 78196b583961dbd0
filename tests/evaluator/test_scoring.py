"""Scores by hand, at their edges, under invariances, and of a real snapshot."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.evaluator.frontier import solve_frontiers
from app.evaluator.measurements import Cell, Measurements, build_cell
from app.evaluator.reference import build_references
from app.evaluator.scoring import BoardScore, Score, score_actions
from app.evaluator.strategies import ActionTable, CellActions, Strategy
from app.files.snapshot import load_measurements, read_snapshot

DR, FB, DEE = Strategy.DYNAMIC_ROUTING, Strategy.FIXED_BUDGET, Strategy.DYNAMIC_EARLY_EXIT
Curve = list[tuple[int, int]]


def make_cell(model: str, benchmark: str, questions: list[list[Curve]], probes: int = 4) -> Cell:
    """A cell of questions q0, q1 ..., each a list of trajectories of (tokens, correct probes)."""
    return build_cell(model, benchmark, [(f"q{i}", "test", curves) for i, curves in enumerate(questions)], probes)


def make_measurements(*cells: Cell) -> Measurements:
    """Measurements of these cells, their names in order of appearance."""
    models, benchmarks = (
        tuple(dict.fromkeys(names)) for names in zip(*((c.model, c.benchmark) for c in cells), strict=True)
    )
    first = cells[0]
    return Measurements(
        "tiny",
        "0" * 64,
        "measured",
        "all",
        first.probes_per_position,
        first.trajectories_per_question,
        models,
        benchmarks,
        cells,
    )


def score(measurements: Measurements, strategy: Strategy, settings: dict[str, list[list[int] | None]]) -> Score:
    """Score settings given as one list of actions per cell, None where the setting does not cover the cell."""
    rows = list(settings.values())
    cells = []
    for i, cell in enumerate(measurements.cells):
        units = cell.n_trajectories if strategy is DEE else cell.n_questions
        covered = np.array([row[i] is not None for row in rows])
        actions = np.array([row[i] or [0] * units for row in rows], dtype=np.int64).reshape(len(rows), units)
        cells.append(CellActions(covered, actions))
    table = ActionTable(strategy, tuple(settings), tuple(cells))
    references = build_references(measurements, strategy, solve_frontiers(measurements))
    return score_actions(measurements, table, references)


def find_board(scored: Score, model: str | None, benchmark: str | None) -> BoardScore | None:
    return next((b for b in scored.boards if (b.model, b.benchmark) == (model, benchmark)), None)


def as_plain(value: Any) -> Any:
    """A score as nested dictionaries and lists, so that == compares everything."""
    if isinstance(value, dict):
        return {name: as_plain(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_plain(item) for item in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


# Two trajectories, M = 4, T = 40 + 60 = 100, 8 probes. k* is 1 (20 tokens, 4 probes) and 2 (60 tokens, 3 probes).
FIRST: Curve = [(0, 1), (20, 4), (40, 2)]
SECOND: Curve = [(0, 0), (30, 1), (60, 3)]
TINY = make_measurements(make_cell("m", "b", [[FIRST], [SECOND]]))


def test_early_exit_by_hand() -> None:
    scored = score(TINY, DEE, {"0.1": [[1, 1]], "0.2": [[2, 0]], "0.3": [[2, 2]]})

    # "0.1" keeps 20 + 30 tokens for 4 + 1 probes; the second trajectory stops 30 tokens and 2 probes short of its best.
    first = scored.settings[0].cells[0]
    assert (first.cost, first.correct, first.mean_tokens, first.beta, first.accuracy) == (50, 5, 25.0, 0.5, 5 / 8)
    assert (first.early_loss, first.late_loss, first.wasted, first.forgone) == (2 / 8, 0.0, 0.0, 30 / 100)
    # Frontier: (0, 1), (20, 4), (50, 5), (80, 7). This is its third point.
    assert first.gap == 0.0
    assert first.on_curve

    # "0.2" keeps 40 + 0 for 2 + 0: 2 probes lost late with 20 tokens wasted, 3 lost early with 60 forgone; F(40) = 4.
    second = scored.settings[1].cells[0]
    assert (second.cost, second.correct, second.gap) == (40, 2, 2 / 8)
    assert (second.early_loss, second.late_loss, second.wasted, second.forgone) == (3 / 8, 2 / 8, 20 / 100, 60 / 100)
    # (40, 2) is not dominated by (50, 5), which costs more.
    assert second.on_curve

    # "0.3" keeps everything for 2 + 3: as accurate as "0.1" and dearer, so it is not on the curve. F(100) = 7.
    third = scored.settings[2].cells[0]
    assert (third.cost, third.correct, third.gap, third.on_curve) == (100, 5, 2 / 8, False)
    assert (third.early_loss, third.late_loss, third.wasted, third.forgone) == (0.0, 2 / 8, 20 / 100, 0.0)
    # The losses add up to mean P(k*) - A = 7/8 - 5/8.
    assert third.early_loss + third.late_loss == 7 / 8 - third.accuracy
    # One cell: the setting's own figures are the cell's.
    setting = scored.settings[1]
    assert (setting.setting, setting.beta, setting.accuracy, setting.reason) == ("0.2", 40 / 100, 2 / 8, None)
    assert (setting.gap, setting.e3) == (second.gap, second.e3)


def test_board_by_hand() -> None:
    board = score(TINY, DEE, {"0.1": [[1, 1]], "0.2": [[2, 0]], "0.3": [[2, 2]]}).summary
    assert board is not None
    # Method curve: 1 probe from 0, 2 from 40, 5 from 50: 40 * 1 + 10 * 2 + 50 * 5 = 310 of 800.
    assert board.area == 310 / 800
    assert as_plain([board.curve.beta, board.curve.accuracy]) == [[0.0, 0.4, 0.5], [1 / 8, 2 / 8, 5 / 8]]
    # Oracle: 20 * 1 + 30 * 4 + 30 * 5 + 20 * 7 = 430 of 800.
    assert board.oracle_area == 430 / 800
    assert board.gap == 120 / 800
    # Constants: caps are floor(c / 2), c = 0..100, and 60. Cap 20: (20, 4). Cap 30: (50, 5). Cap 40: (70, 3). Cap 60:
    # (100, 5). Positions 1 and 2: (50, 5), (100, 5). Hull (0, 1), (20, 4), (50, 5): 20 * 2.5 + 30 * 4.5 + 50 * 5 = 435.
    assert board.uninformed_area == 435 / 800
    assert board.realised_potential is None
    assert board.reason == "no_potential"
    # A_full = 5/8 is reached at 50 of 100 tokens.
    assert (board.beta_match, board.tokens_saved) == (0.5, 0.5)
    assert board.accuracy_at == {"0.25": 1 / 8, "0.5": 5 / 8, "0.75": 5 / 8}
    assert board.max_accuracy == 5 / 8
    # E3 with A0 = 5/8, T0 = 50. "0.1": A = 5/8, T = 25: 1 / (5/8 + 3/8 * 1/2) = 16/13. The others are below it.
    assert board.best_e3 == pytest.approx(16 / 13, rel=1e-15)
    assert (board.n_settings, board.n_cells, board.min_questions) == (3, 1, 2)
    assert board.reasons == {"realised_potential": "no_potential"}


def test_realised_potential_by_hand() -> None:
    """Two questions that need opposite treatment: routing them apart is worth more than any mix of constants."""
    cell = make_cell("m", "b", [[[(0, 0), (50, 4)]], [[(0, 4), (50, 0)]]])
    board = score(make_measurements(cell), DR, {"a": [[1, 1]], "b": [[1, 0]]}).summary
    assert board is not None
    # T = 100. Constants: (0, 4) and (100, 4), so 4 of 8 everywhere. Oracle and method: 4 until 50, then 8.
    assert (board.uninformed_area, board.oracle_area, board.area) == (1 / 2, 3 / 4, 3 / 4)
    assert board.realised_potential == 1.0
    half = score(make_measurements(cell), DR, {"a": [[1, 1]]}).summary
    assert half is not None
    assert (half.area, half.realised_potential) == (1 / 2, 0.0)


def test_fixed_budget_cuts_every_trajectory_of_the_question() -> None:
    cell = make_cell("m", "b", [[FIRST, SECOND]])
    scored = score(make_measurements(cell), FB, {"29": [[29]], "30": [[30]], "1000": [[1000]]})
    # A cap of 29 keeps 20 + 0, one of 30 keeps 20 + 30, one past the end keeps all.
    assert [(s.cells[0].cost, s.cells[0].correct) for s in scored.settings] == [(20, 4), (50, 5), (100, 5)]


def test_mean_over_cells_by_hand() -> None:
    """Two cells of different size weigh the same, and their budgets are relative to their own T."""
    small = make_cell("m", "small", [[[(0, 0), (10, 4)]]])
    large = make_cell("m", "large", [[[(0, 2), (1000, 1)]], [[(0, 0), (1000, 4)]]])
    measurements = make_measurements(small, large)
    scored = score(measurements, DEE, {"a": [[1], [0, 1]], "b": [[1], None]})
    setting, partial = scored.settings
    # "a": beta (10/10 + 1000/2000) / 2, accuracy (4/4 + 6/8) / 2.
    assert (setting.beta, setting.accuracy, setting.gap) == (0.75, 0.875, 0.0)
    assert (partial.beta, partial.accuracy, partial.gap, partial.e3) == (None, None, None, None)
    assert partial.reason == "not_all_cells_covered"
    assert [c.benchmark for c in partial.cells] == ["small"]
    board = scored.summary
    assert board is not None
    # Small: 0 until beta = 1. Large: 2/8 until 1/2, 6/8 after. Areas 0 and 1/2.
    assert board.area == 1 / 4
    assert as_plain(board.curve.beta) == [0.0, 0.5, 1.0]
    assert as_plain(board.curve.accuracy) == [1 / 8, 3 / 8, 7 / 8]
    # A_full = (4/4 + 5/8) / 2 = 13/16 is reached at beta = 1 only.
    assert (board.beta_match, board.tokens_saved) == (1.0, 0.0)
    assert board.accuracy_at == {"0.25": 1 / 8, "0.5": 3 / 8, "0.75": 3 / 8}
    # E3 of "a": A0 = 13/16, T0 = (10 + 1000) / 2 = 505, A = 7/8, T = (10 + 500) / 2 = 255.
    # 1 / (13/16 * (1/8)/(7/8) * (13/16)/(3/16) + 3/16 * 255/505).
    assert board.best_e3 == pytest.approx(1 / (13 / 16 / 7 * 13 / 3 + 3 / 16 * 255 / 505), rel=1e-14)
    assert (board.n_settings, board.n_cells, board.min_questions) == (2, 2, 1)


def test_boards_stand_on_the_union_of_settings() -> None:
    """A board needs every cell covered by some setting, not all by one; E3 needs one setting for all of them."""
    questions = [[[(0, 0), (10, 3)]], [[(0, 1), (20, 2)]]]
    cells = [make_cell(model, benchmark, questions) for model in ("m1", "m2") for benchmark in ("b1", "b2")]
    measurements = make_measurements(*cells)
    scored = score(measurements, DR, {"x": [[1, 0], None, None, None], "y": [None, [1, 1], [0, 1], None]})
    keys = [(b.model, b.benchmark) for b in scored.boards]
    # (m2, b2) is missing, so neither the whole, m2 nor b2 stand.
    assert keys == [("m1", None), (None, "b1"), ("m1", "b1"), ("m1", "b2"), ("m2", "b1")]
    assert scored.summary is None
    assert scored.summary_reason == "not_all_cells_covered"
    model_board = find_board(scored, "m1", None)
    assert model_board is not None
    assert (model_board.n_settings, model_board.best_e3) == (2, None)
    assert model_board.reasons["best_e3"] == "no_setting_covers_all_cells"
    assert [s.accuracy for s in scored.settings] == [None, None]
    # m1: (0, 1), (10, 4) of T = 30 in b1, (0, 1), (30, 5) in b2: areas (10 + 80) / 240 and 30 / 240.
    assert model_board.area == (90 / 240 + 30 / 240) / 2


def test_all_boards_in_order() -> None:
    questions = [[[(0, 0), (10, 3)]]]
    cells = [make_cell(model, benchmark, questions) for model in ("m2", "m1") for benchmark in ("b2", "b1")]
    scored = score(make_measurements(*cells), DR, {"x": [[1], [1], [1], [1]]})
    assert [(b.model, b.benchmark) for b in scored.boards] == [
        (None, None),
        ("m2", None),
        ("m1", None),
        (None, "b2"),
        (None, "b1"),
        ("m2", "b2"),
        ("m2", "b1"),
        ("m1", "b2"),
        ("m1", "b1"),
    ]
    assert scored.summary is scored.boards[0]
    assert scored.summary_reason is None


def test_full_thinking_accuracy_may_never_be_reached() -> None:
    cell = make_cell("m", "b", [[[(0, 1), (10, 2), (20, 4)]]])
    board = score(make_measurements(cell), DEE, {"x": [[1]]}).summary
    assert board is not None
    assert (board.beta_match, board.tokens_saved) == (None, None)
    # A_full = 1 leaves E3 without odds to compare with.
    assert board.best_e3 is None
    assert board.reasons["beta_match"] == board.reasons["tokens_saved"] == "full_thinking_accuracy_never_reached"
    assert board.reasons["best_e3"] == "base_accuracy_is_0_or_1"


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_cell_without_thinking(strategy: Strategy) -> None:
    """T = 0: every budget is 0 and every curve is constant at the zero-thinking accuracy."""
    scored = score(make_measurements(make_cell("m", "b", [[[(0, 3)]], [[(0, 0)]]])), strategy, {"x": [[0, 0]]})
    cell, board = scored.settings[0].cells[0], scored.summary
    assert (cell.cost, cell.beta, cell.accuracy, cell.gap, cell.wasted, cell.forgone) == (0, 0.0, 3 / 8, 0.0, 0.0, 0.0)
    assert cell.e3 is None
    assert board is not None
    assert board.area == board.uninformed_area == board.oracle_area == board.max_accuracy == 3 / 8
    assert (board.realised_potential, board.reason, board.beta_match) == (None, "no_potential", 0.0)
    assert board.reasons["best_e3"] == "base_tokens_is_0"


def test_a_cell_without_thinking_beside_another() -> None:
    """It counts as constant in the mean over cells."""
    idle, busy = make_cell("m", "idle", [[[(0, 2)]]]), make_cell("m", "busy", [[[(0, 0), (10, 4)]]])
    board = score(make_measurements(idle, busy), DEE, {"x": [[0], [1]]}).summary
    assert board is not None
    assert board.area == (2 / 4 + 0) / 2
    assert board.max_accuracy == (2 / 4 + 4 / 4) / 2


def test_a_setting_that_never_thinks_is_the_zero_thinking_point() -> None:
    scored = score(TINY, DEE, {"never": [[0, 0]]})
    cell, board = scored.settings[0].cells[0], scored.summary
    assert (cell.cost, cell.correct, cell.on_curve) == (0, 1, True)
    assert board is not None
    assert board.area == 1 / 8
    # E3 is finite at T = 0: A = 1/8, A0 = 5/8: 1 / (5/8 * 7 * 5/3) = 24/175.
    assert board.best_e3 == pytest.approx(24 / 175, rel=1e-14)


def test_equal_points_are_both_on_the_curve_and_equal_costs_keep_the_better() -> None:
    questions = [[[(0, 0), (10, 3)]], [[(0, 0), (10, 1)]]]
    scored = score(make_measurements(make_cell("m", "b", questions)), DR, {"a": [[1, 0]], "b": [[0, 1]], "c": [[1, 0]]})
    assert [s.cells[0].on_curve for s in scored.settings] == [True, False, True]


def test_the_best_e3_is_undefined_where_one_is_unbounded() -> None:
    """Always right without a token: no number is larger."""
    cell = make_cell("m", "b", [[[(0, 4), (10, 2)]]])
    board = score(make_measurements(cell), DEE, {"0": [[0]], "1": [[1]]}).summary
    assert board is not None
    assert (board.best_e3, board.reasons["best_e3"]) == (None, "unbounded")


ROOMY = make_measurements(
    make_cell("m", "b1", [[FIRST, SECOND], [SECOND, [(0, 4), (5, 3)]], [[(0, 2), (7, 2)], FIRST]]),
    make_cell("m", "b2", [[SECOND, SECOND], [FIRST, [(0, 0)]]]),
)
ROOMY_ACTIONS: dict[Strategy, dict[str, list[list[int] | None]]] = {
    DR: {"a": [[1, 0, 1], [0, 1]], "b": [[0, 0, 1], None], "c": [[1, 1, 0], [1, 1]]},
    FB: {"a": [[20, 30, 7], [60, 20]], "b": [[0, 61, 5], None], "c": [[100, 0, 40], [30, 0]]},
    DEE: {
        "a": [[1, 2, 0, 1, 1, 2], [2, 0, 1, 0]],
        "b": [[0, 1, 2, 0, 0, 1], None],
        "c": [[2] * 3 + [1, 1, 2], [1, 1, 2, 0]],
    },
}


@pytest.mark.parametrize("strategy", list(Strategy))
def test_order_of_questions_does_not_matter(strategy: Strategy) -> None:
    expected = as_plain(asdict(score(ROOMY, strategy, ROOMY_ACTIONS[strategy])))
    orders = [[2, 0, 1], [1, 0]]
    shuffled = replace(
        ROOMY, cells=tuple(cell.take_questions(order) for cell, order in zip(ROOMY.cells, orders, strict=True))
    )

    def shuffle(actions: list[int] | None, order: list[int]) -> list[int] | None:
        if actions is None:
            return None
        per_question = np.array(actions).reshape(len(order), -1)
        return per_question[order].reshape(-1).tolist()

    moved = {
        label: [shuffle(actions, order) for actions, order in zip(cells, orders, strict=True)]
        for label, cells in ROOMY_ACTIONS[strategy].items()
    }
    assert as_plain(asdict(score(shuffled, strategy, moved))) == expected


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_second_model_with_the_same_measurements_changes_no_mean(strategy: Strategy) -> None:
    once = score(ROOMY, strategy, ROOMY_ACTIONS[strategy])
    twins = tuple(replace(cell, model="twin") for cell in ROOMY.cells)
    twice = score(
        replace(ROOMY, models=("m", "twin"), cells=(*ROOMY.cells, *twins)),
        strategy,
        {label: [*cells, *cells] for label, cells in ROOMY_ACTIONS[strategy].items()},
    )
    assert once.summary is not None
    assert twice.summary is not None
    assert as_plain(asdict(replace(twice.summary, n_cells=2))) == as_plain(asdict(once.summary))
    for before, after in zip(once.settings, twice.settings, strict=True):
        assert replace(after, cells=()) == replace(before, cells=())


@pytest.mark.parametrize("strategy", list(Strategy))
def test_every_question_twice_changes_neither_the_method_nor_the_constants(strategy: Strategy) -> None:
    """The oracle may treat the two copies differently and so only gain."""
    once = score(ROOMY, strategy, ROOMY_ACTIONS[strategy])
    doubled = replace(ROOMY, cells=tuple(cell.take_questions([*range(cell.n_questions)] * 2) for cell in ROOMY.cells))
    actions = {
        label: [None if units is None else units * 2 for units in cells]
        for label, cells in ROOMY_ACTIONS[strategy].items()
    }
    twice = score(doubled, strategy, actions)
    for before, after in zip(once.boards, twice.boards, strict=True):
        assert (after.area, after.uninformed_area, after.max_accuracy) == (
            before.area,
            before.uninformed_area,
            before.max_accuracy,
        )
        assert (after.beta_match, after.best_e3, after.accuracy_at) == (
            before.beta_match,
            before.best_e3,
            before.accuracy_at,
        )
        assert after.oracle_area >= before.oracle_area
        assert after.min_questions == 2 * before.min_questions
    for before, after in zip(once.settings, twice.settings, strict=True):
        assert replace(after, gap=None, cells=()) == replace(before, gap=None, cells=())


@pytest.mark.parametrize("strategy", list(Strategy))
def test_a_dominated_setting_changes_only_the_number_of_settings(strategy: Strategy) -> None:
    """Setting "worse" costs more than "c" for no more: thinking to the end is never better in these cells."""
    settings = ROOMY_ACTIONS[strategy]
    everything = {DR: [[1] * 3, [1] * 2], FB: [[100] * 3, [100] * 2], DEE: [[2, 2, 2, 1, 1, 2], [2, 2, 2, 0]]}[strategy]
    nothing = {DR: [[0] * 3, [0] * 2], FB: [[0] * 3, [0] * 2], DEE: [[0] * 6, [0] * 4]}[strategy]
    before = score(ROOMY, strategy, {**settings, "all": everything})
    after = score(ROOMY, strategy, {**settings, "all": everything, "copy": everything, "nothing": nothing})
    assert after.settings[:4] == before.settings
    for old, new in zip(before.boards, after.boards, strict=True):
        assert new.n_settings == old.n_settings + 2
        assert as_plain(asdict(replace(new, n_settings=0))) == as_plain(asdict(replace(old, n_settings=0)))


def test_parts_that_do_not_belong_together_are_refused() -> None:
    references = build_references(TINY, DEE, solve_frontiers(TINY))
    table = ActionTable(DEE, ("x",), (CellActions(np.array([True]), np.array([[0, 0]])),))
    with pytest.raises(ValueError, match="differ in their cells"):
        score_actions(TINY, table, ())
    with pytest.raises(ValueError, match="the reference is of"):
        score_actions(TINY, replace(table, strategy=DR), references)
    other = make_measurements(make_cell("m", "b", [[FIRST], [[(0, 0), (30, 1), (61, 3)]]]))
    with pytest.raises(ValueError, match="the reference is of"):
        score_actions(other, table, references)
    with pytest.raises(ValueError, match="no dynamic_early_exit frontier"):
        build_references(TINY, DEE, solve_frontiers(TINY, (DR,)))
    # The same totals, and one probe more on the way: a point above a frontier that is not its own.
    better = make_measurements(make_cell("m", "b", [[FIRST], [[(0, 0), (30, 4), (60, 3)]]]))
    above = ActionTable(DEE, ("x",), (CellActions(np.array([True]), np.array([[1, 1]])),))
    with pytest.raises(ValueError, match="above the frontier"):
        score_actions(better, above, references)


def test_hidden_labels_are_refused() -> None:
    cell = TINY.cells[0]
    hidden = replace(TINY, cells=(replace(cell, correct_probes=np.full_like(cell.correct_probes, -1)),))
    references = build_references(TINY, DEE, solve_frontiers(TINY))
    table = ActionTable(DEE, ("x",), (CellActions(np.array([True]), np.array([[0, 0]])),))
    with pytest.raises(ValueError, match="hidden"):
        score_actions(hidden, table, references)


def test_a_real_snapshot_scored_at_full_thinking(real_snapshot: Path) -> None:
    """Keeping everything is a point whose figures the snapshot's description gives: 3668.5 and 3278.75 tokens, 0.50."""
    measurements = load_measurements(read_snapshot(real_snapshot))
    scored = score(measurements, DEE, {"all": [cell.n_steps.tolist() for cell in measurements.cells]})
    setting = scored.settings[0]
    assert [c.mean_tokens for c in setting.cells] == [3668.5, 3278.75]
    assert [c.accuracy for c in setting.cells] == [0.5, 0.5]
    assert (setting.beta, setting.forgone, setting.early_loss) == (1.0, 0.0, 0.0)
    # AD is 0.4420 and 0.3305, all of it lost late; OR is a mean of ratios and wasted one ratio of sums, so they differ.
    assert [round(c.late_loss, 4) for c in setting.cells] == [0.4420, 0.3305]
    assert setting.e3 == pytest.approx(1.0, rel=1e-15)
    assert scored.summary is not None
    # The curve is the zero-thinking point, 0.734 and 0.57, which full thinking does not improve on.
    assert scored.summary.area == pytest.approx((0.734 + 0.57) / 2, rel=1e-15)
    assert [round(b.oracle_area, 4) for b in scored.boards[1:3]] == [0.9296, 0.8074]
