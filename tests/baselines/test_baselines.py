"""The oracle, the uninformed constants and the random control as submissions."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from app.baselines import BASELINE_NAMES, build_baseline, oracle, random, uninformed
from app.baselines.oracle import choose_points
from app.evaluator.curves import Curve
from app.evaluator.frontier import solve_frontiers
from app.evaluator.measurements import Cell, Measurements, build_cell
from app.evaluator.reference import build_references
from app.evaluator.scoring import Score, score_actions
from app.evaluator.strategies import ActionTable, Strategy, n_units, select_positions, sort_settings
from app.files.snapshot import LabelsHiddenError, load_measurements, read_snapshot

DR, FB, DEE = Strategy.DYNAMIC_ROUTING, Strategy.FIXED_BUDGET, Strategy.DYNAMIC_EARLY_EXIT


def draw_cell(model: str, benchmark: str, *, n_questions: int, rng: np.random.Generator) -> Cell:
    """Two trajectories per question of up to 12 steps, 8 probes."""

    def draw_trajectory() -> list[tuple[int, int]]:
        tokens = np.concatenate([[0], np.cumsum(rng.integers(1, 60, size=rng.integers(0, 13)))])
        return [(int(kept), int(rng.integers(0, 9))) for kept in tokens]

    questions = [(f"q{i}", "test", [draw_trajectory(), draw_trajectory()]) for i in range(n_questions)]
    return build_cell(model, benchmark, questions, 8)


def draw_measurements(*, n_questions: int, seed: int) -> Measurements:
    rng = np.random.default_rng(seed)
    cells = tuple(
        draw_cell(m, b, n_questions=n_questions + i, rng=rng) for m in ("m1", "m2") for i, b in enumerate(("b1", "b2"))
    )
    return Measurements("drawn", "0" * 64, "synthetic", "all", 8, 2, ("m1", "m2"), ("b1", "b2"), cells)


def hide_labels(measurements: Measurements) -> Measurements:
    cells = tuple(replace(c, correct_probes=np.full_like(c.correct_probes, -1)) for c in measurements.cells)
    return replace(measurements, cells=cells)


def score(measurements: Measurements, table: ActionTable) -> Score:
    frontiers = solve_frontiers(measurements, (table.strategy,))
    return score_actions(measurements, table, build_references(measurements, table.strategy, frontiers))


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_oracle_has_no_gap_and_nearly_all_potential(strategy: Strategy) -> None:
    measurements = draw_measurements(n_questions=40, seed=1)
    scored = score(measurements, oracle.build_actions(measurements, strategy))
    assert len(scored.settings) == 256
    assert {cell.gap for setting in scored.settings for cell in setting.cells} == {0.0}
    for board in scored.boards:
        assert board.realised_potential is not None
        assert 0.99 <= board.realised_potential <= 1.0
    # The dearest point is always among the settings, so the best accuracy is the frontier's own.
    for cell, found in zip(measurements.cells, scored.settings[-1].cells, strict=True):
        frontier = next(
            f
            for f in solve_frontiers(measurements, (strategy,))
            if (f.model, f.benchmark) == (cell.model, cell.benchmark)
        )
        assert found.correct == frontier.correct[-1]


@pytest.mark.parametrize("strategy", list(Strategy))
def test_fewer_points_than_settings_are_all_taken(strategy: Strategy) -> None:
    measurements = draw_measurements(n_questions=2, seed=2)
    for frontier, actions in zip(
        solve_frontiers(measurements, (strategy,)), oracle.build_actions(measurements, strategy).cells, strict=True
    ):
        cell = measurements.find_cell(frontier.model, frontier.benchmark)
        assert cell is not None
        stops = [cell.first_idx + select_positions(cell, strategy, units) for units in actions.actions]
        costs = [int(cell.retained_tokens[s].sum()) for s in stops]
        assert costs == sorted(costs)
        assert sorted(set(costs)) == frontier.cost.tolist()
        assert len(frontier.cost) < 256


def test_solved_frontiers_are_used() -> None:
    measurements = draw_measurements(n_questions=5, seed=3)
    expected = oracle.build_actions(measurements, DEE, n_settings=9)
    given = oracle.build_actions(measurements, DEE, n_settings=9, frontiers=solve_frontiers(measurements))
    for left, right in zip(expected.cells, given.cells, strict=True):
        assert np.array_equal(left.actions, right.actions)


def area_of(curve: Curve, chosen: tuple[int, ...]) -> int:
    """Area under the steps through the zero-thinking point and the chosen ones, in probes times tokens."""
    points = [0, *chosen]
    ends = [*(int(curve.cost[p]) for p in points[1:]), curve.total_thinking_tokens]
    return sum(int(curve.correct[p]) * (end - int(curve.cost[p])) for p, end in zip(points, ends, strict=True))


def test_chosen_points_are_the_best_or_close_to_it() -> None:
    """Against every choice of as many points: no move of one point helps, and hardly any choice does."""
    rng = np.random.default_rng(4)
    losses = []
    for _ in range(60):
        n_all, n_points = int(rng.integers(5, 12)), int(rng.integers(1, 5))
        cost = np.concatenate([[0], np.cumsum(rng.integers(1, 30, size=n_all - 1))])
        correct = np.cumsum(rng.integers(1, 9, size=n_all))
        curve = Curve(cost, correct, int(cost[-1]) + int(rng.integers(0, 50)), int(correct[-1]))
        chosen = tuple(choose_points(curve, n_points).tolist())
        assert len(set(chosen)) == n_points
        assert list(chosen) == sorted(chosen)
        assert chosen[0] > 0
        assert chosen[-1] == n_all - 1
        found = area_of(curve, chosen)
        for i in range(n_points - 1):
            low, high = (0, *chosen)[i] + 1, chosen[i + 1]
            assert all(area_of(curve, (*chosen[:i], p, *chosen[i + 1 :])) <= found for p in range(low, high))
        everything = area_of(curve, tuple(range(1, n_all)))
        best = max(area_of(curve, (*rest, n_all - 1)) for rest in combinations(range(1, n_all - 1), n_points - 1))
        losses.append((everything - found, everything - best))
    assert sum(found == best for found, best in losses) > len(losses) / 2
    assert sum(found for found, _ in losses) <= 1.1 * sum(best for _, best in losses)


def test_a_smooth_frontier_loses_what_theory_says() -> None:
    """On F(c) = sqrt(c) the least loss with n points is (integral of sqrt(F'))^2 / (2 n) to first order."""
    reward = np.arange(0, 20_001)
    cost = reward**2
    curve = Curve(cost, reward, int(cost[-1]), int(reward[-1]))
    chosen = choose_points(curve, 256)
    loss = (area_of(curve, tuple(range(1, len(cost)))) - area_of(curve, tuple(chosen.tolist()))) / (
        cost[-1] * reward[-1]
    )
    # With F = sqrt(x) on 0..1: sqrt(F') = x ** (-1/4) / sqrt(2), whose integral is (4/3) / sqrt(2); squared 8/9.
    assert loss == pytest.approx(8 / 9 / 512, rel=0.02)


def test_more_settings_than_points_and_a_single_one() -> None:
    curve = Curve(np.array([0, 5, 9]), np.array([0, 2, 3]), 10, 4)
    assert choose_points(curve, 3).tolist() == [0, 1, 2]
    assert choose_points(curve, 2).tolist() == [1, 2]
    assert choose_points(curve, 1).tolist() == [2]
    assert choose_points(Curve(np.array([0]), np.array([0]), 0, 4), 1).tolist() == [0]


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_constants_never_beat_their_own_mix(strategy: Strategy) -> None:
    for seed in range(5):
        measurements = draw_measurements(n_questions=4, seed=seed)
        table = uninformed.build_actions(measurements, strategy)
        assert len(table.settings) == {DR: 2, FB: 102, DEE: 203}[strategy]
        for board in score(measurements, table).boards:
            assert board.area <= board.uninformed_area
            assert board.realised_potential is None or board.realised_potential <= 0.0


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("name", BASELINE_NAMES)
def test_every_baseline_is_a_valid_file(name: str, strategy: Strategy) -> None:
    """Its settings are in the order a reader would put them in, and no unit has an action out of range."""
    measurements = draw_measurements(n_questions=3, seed=6)
    table = build_baseline(name, measurements, strategy=strategy, split="all")
    assert table.strategy is strategy
    assert table.settings == sort_settings(set(table.settings))
    assert len(table.settings) <= 256
    for cell, part in zip(measurements.cells, table.cells, strict=True):
        assert part.covered.all()
        assert part.actions.dtype == np.int64
        assert part.actions.shape == (len(table.settings), n_units(cell, strategy))
        for units in part.actions:
            select_positions(cell, strategy, units)


@pytest.mark.parametrize("strategy", list(Strategy))
@pytest.mark.parametrize("name", ["uninformed", "random"])
def test_constants_and_chance_read_no_label(name: str, strategy: Strategy) -> None:
    measurements = draw_measurements(n_questions=3, seed=7)
    seen = build_baseline(name, measurements, strategy=strategy, split="all")
    blind = build_baseline(name, hide_labels(measurements), strategy=strategy, split="all")
    for left, right in zip(seen.cells, blind.cells, strict=True):
        assert np.array_equal(left.actions, right.actions)


def test_the_oracle_needs_the_labels() -> None:
    with pytest.raises(LabelsHiddenError):
        build_baseline("oracle", hide_labels(draw_measurements(n_questions=2, seed=8)), strategy=DEE, split="all")


def test_an_unknown_baseline_is_refused() -> None:
    with pytest.raises(ValueError, match="oracle, uninformed, random"):
        build_baseline("magic", draw_measurements(n_questions=2, seed=8), strategy=DEE, split="all")


def test_the_seed_decides_the_random_control() -> None:
    measurements = draw_measurements(n_questions=5, seed=9)
    for strategy in Strategy:
        first, again, other = (
            random.build_actions(measurements, strategy, seed=seed, n_settings=7).cells for seed in (1, 1, 2)
        )
        assert all(np.array_equal(a.actions, b.actions) for a, b in zip(first, again, strict=True))
        assert not all(np.array_equal(a.actions, b.actions) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("strategy", list(Strategy))
def test_levels_of_the_random_control_cover_the_budget_evenly(strategy: Strategy) -> None:
    """Setting i of 10 has a level between i / 10 and (i + 1) / 10, and the mean share over 4,000 units is near it."""
    trajectory = [(k, 0) for k in range(1001)]
    cell = build_cell("m", "b", [(f"q{i:04d}", "test", [trajectory]) for i in range(4000)], 1)
    measurements = Measurements("s", "0" * 64, "synthetic", "all", 1, 1, ("m",), ("b",), (cell,))
    actions = random.build_actions(measurements, strategy, seed=3, n_settings=10).cells[0].actions
    shares = actions.mean(axis=1) / (1 if strategy is DR else 1000)
    # A share has a standard deviation of at most 0.5, its mean over 4,000 one of 0.008: six of them are 0.05.
    assert (shares > np.arange(10) / 10 - 0.05).all()
    assert (shares < np.arange(1, 11) / 10 + 0.05).all()
    # Units differ inside a setting: it is a policy by chance, not a constant.
    assert all(len(np.unique(units)) > 1 for units in actions[1:-1])


def test_baselines_of_a_real_snapshot(real_snapshot: Path) -> None:
    """On every split: gap exactly 0 and potential in [0.99, 1] for the oracle, never above 0 for the constants."""
    snapshot = read_snapshot(real_snapshot)
    whole = load_measurements(snapshot)
    n_with_potential = 0
    for split in ("all", "train", "validation", "test"):
        measurements = load_measurements(snapshot, split)
        for strategy in Strategy:
            found = score(measurements, build_baseline("oracle", whole, strategy=strategy, split=split))
            assert {cell.gap for setting in found.settings for cell in setting.cells} == {0.0}
            constants = score(measurements, build_baseline("uninformed", whole, strategy=strategy, split=split))
            for best, constant in zip(found.boards, constants.boards, strict=True):
                if best.realised_potential is None:
                    assert best.reason == constant.reason == "no_potential"
                    continue
                assert constant.realised_potential is not None
                assert 0.99 <= best.realised_potential <= 1.0
                assert constant.realised_potential <= 0.0
                n_with_potential += 1
    assert n_with_potential >= 40
