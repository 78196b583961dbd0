"""Quanta: no labels of one unit move a figure by more than its bound, tried out on every kind of small cell."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from app.evaluator.frontier import solve_frontiers
from app.evaluator.measurements import Cell, Measurements
from app.evaluator.quanta import (
    TENTH_OF_A_POINT,
    build_quanta,
    find_potential_quantum,
    find_unit_weight,
    round_down_to,
    round_to,
    round_up_to,
    round_up_to_tenth,
)
from app.evaluator.reference import build_references
from app.evaluator.scoring import BoardScore, score_actions
from app.evaluator.strategies import ActionTable, CellActions, Strategy, n_units

EXACT = 1e-12


def draw_actions(rng: np.random.Generator, cell: Cell, strategy: Strategy, n_settings: int) -> CellActions:
    shape = (n_settings, n_units(cell, strategy))
    if strategy is Strategy.DYNAMIC_EARLY_EXIT:
        actions = rng.integers(0, cell.n_steps + 1, shape)
    else:
        actions = rng.integers(0, 2 if strategy is Strategy.DYNAMIC_ROUTING else 12, shape)
    return CellActions(np.ones(n_settings, dtype=np.bool_), actions.astype(np.int64))


def relabel(rng: np.random.Generator, cell: Cell, unit: int, strategy: Strategy) -> Iterator[Cell]:
    """Yield the cell with other labels in one unit: all wrong, all right, and some at random."""
    per_unit = 1 if strategy.unit_is_trajectory else cell.trajectories_per_question
    first, last = cell.offsets[unit * per_unit], cell.offsets[(unit + 1) * per_unit]
    m = cell.probes_per_position
    for labels in (np.zeros, np.ones, lambda n: rng.integers(0, m + 1, n), lambda n: m * rng.integers(0, 2, n)):
        changed = cell.correct_probes.copy()
        changed[first:last] = labels(last - first) * (m if labels is np.ones else 1)
        # Without what was computed from the old labels and kept.
        yield replace(cell, correct_probes=changed)


def score(measurements: Measurements, table: ActionTable) -> BoardScore:
    references = build_references(measurements, table.strategy, solve_frontiers(measurements, (table.strategy,)))
    summary = score_actions(measurements, table, references).summary
    assert summary is not None
    return summary


@pytest.mark.parametrize("strategy", list(Strategy))
def test_no_labels_of_one_unit_move_a_figure_by_more_than_its_bound(
    strategy: Strategy,
    random_questions: Callable[..., Any],
    as_cell: Callable[..., Cell],
    as_measurements: Callable[[list[Cell]], Measurements],
) -> None:
    rng = np.random.default_rng(7)
    largest = {"accuracy": 0.0, "gap": 0.0, "potential": 0.0}
    for _ in range(60):
        sizes = rng.integers(1, 6, size=int(rng.integers(1, 3)))
        cells = [
            as_cell(random_questions(rng, n_questions=int(n), per_question=2, probes=3), 3, benchmark=f"b{i}")
            for i, n in enumerate(sizes)
        ]
        table = ActionTable(strategy, ("a", "b", "c"), tuple(draw_actions(rng, cell, strategy, 3) for cell in cells))
        before = score(as_measurements(cells), table)
        weight = find_unit_weight(
            n_cells=len(cells),
            min_questions=int(sizes.min()),
            trajectories_per_question=2,
            unit_is_trajectory=strategy.unit_is_trajectory,
        )
        quanta = build_quanta(weight)
        unit = int(rng.integers(0, n_units(cells[0], strategy)))
        for changed in relabel(rng, cells[0], unit, strategy):
            after = score(as_measurements([changed, *cells[1:]]), table)
            moves = [getattr(after, f) - getattr(before, f) for f in ("area", "oracle_area", "uninformed_area")]
            moves += [after.accuracy_at[b] - before.accuracy_at[b] for b in before.accuracy_at]
            moves += [after.max_accuracy - before.max_accuracy]
            assert max(map(abs, moves)) <= weight + EXACT
            assert abs(after.gap - before.gap) <= 2 * weight + EXACT
            quantum = find_potential_quantum(
                quanta,
                area=round_to(before.area, quanta.accuracy),
                uninformed_area=round_to(before.uninformed_area, quanta.accuracy),
                oracle_area=round_to(before.oracle_area, quanta.accuracy),
            )
            largest["accuracy"] = max(largest["accuracy"], *map(abs, moves), 0) / 1
            largest["gap"] = max(largest["gap"], abs(after.gap - before.gap))
            if quantum is not None:
                assert before.realised_potential is not None
                assert after.realised_potential is not None
                assert abs(after.realised_potential - before.realised_potential) <= quantum + EXACT
                largest["potential"] = max(
                    largest["potential"], abs(after.realised_potential - before.realised_potential)
                )
    # The bounds are not empty: the figures do move.
    assert largest["accuracy"] > 0.1
    assert largest["gap"] > 0.05


def test_the_bound_of_realised_potential_holds_for_every_change_of_the_areas() -> None:
    rng = np.random.default_rng(11)
    n_bounded = n_tight = 0
    for _ in range(3000):
        uninformed, area, oracle = (float(v) for v in np.sort(rng.random(3)))
        if rng.random() < 0.3:
            uninformed, area = area, uninformed
        quanta = build_quanta(Fraction(1, int(rng.integers(5, 3000))))
        told = {
            name: round_to(value, quanta.accuracy)
            for name, value in (("area", area), ("uninformed_area", uninformed), ("oracle_area", oracle))
        }
        quantum = find_potential_quantum(quanta, **told)
        if quantum is None:
            continue
        n_bounded += 1
        w = float(quanta.weight)
        before = (area - uninformed) / (oracle - uninformed)
        for signs in np.ndindex(3, 3, 3):
            a, u, o = area + w * (signs[0] - 1), uninformed + w * (signs[1] - 1), oracle + w * (signs[2] - 1)
            moved = abs((a - u) / (o - u) - before)
            assert moved <= quantum + EXACT
            n_tight += moved > 0.5 * quantum
    assert n_bounded > 500
    assert n_tight > 500


def test_rounding_keeps_order_and_stays_within_half_a_quantum() -> None:
    rng = np.random.default_rng(3)
    values = np.sort(rng.random(2000))
    for weight in (Fraction(1, 5), Fraction(1, 36), Fraction(1, 432), Fraction(1, 10**6)):
        step = build_quanta(weight).accuracy
        told = [round_to(float(v), step) for v in values]
        assert told == sorted(told)
        assert max(abs(t - v) for t, v in zip(told, values, strict=True)) <= step / 2 + EXACT
        assert all(round_down_to(float(v), step) <= v <= round_up_to(float(v), step) for v in values)
        assert all(float(round(Fraction(t) / step) * step) in (t, 1.0) or t == 1.0 for t in told)


def test_a_quantum_is_a_tenth_of_a_point_at_least_and_rounded_up() -> None:
    assert round_up_to_tenth(Fraction(0)) == TENTH_OF_A_POINT
    assert round_up_to_tenth(Fraction(1, 500)) == Fraction(2, 1000)
    assert round_up_to_tenth(Fraction(1, 499)) == Fraction(3, 1000)
    assert build_quanta(Fraction(1, 5)).accuracy == Fraction(1, 5)
