"""Intervals on hidden labels: no labels of one unit move a told half-width by more than one step, tried out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from app.evaluator.centring import find_percentiles
from app.evaluator.measurements import Cell, Measurements
from app.evaluator.quanta import build_quanta, find_unit_weight
from app.evaluator.replicate_frontiers import compute_replicates
from app.evaluator.resampled_settings import find_stops
from app.evaluator.strategies import ActionTable, CellActions, Strategy, n_units
from app.evaluator.submission_intervals import RANKED_FIGURES, prepare_submission, resample_rows
from app.evaluator.told_intervals import (
    ToldPotential,
    find_half_width,
    find_potential_step,
    find_width_step,
    linearise_potential,
    rank_told,
    tell_difference,
    tell_interval,
)

N_REPLICATES = 400
N_QUESTIONS = 24


def resample(measurements: Measurements, table: ActionTable) -> dict[str, np.ndarray]:
    """Return the figures of the whole board in every replicate."""
    replicates = compute_replicates(measurements, range(N_REPLICATES))
    prepared = prepare_submission(measurements, table.strategy, find_stops(measurements, table))
    values = resample_rows(prepared, replicates, range(N_REPLICATES))
    return dict(zip(RANKED_FIGURES, values[0], strict=True))


@pytest.mark.parametrize("strategy", list(Strategy))
def test_no_labels_of_one_unit_move_a_half_width_by_more_than_a_step(
    strategy: Strategy,
    random_questions: Callable[..., Any],
    as_cell: Callable[..., Cell],
    as_measurements: Callable[[list[Cell]], Measurements],
) -> None:
    rng = np.random.default_rng(3)
    cell = as_cell(random_questions(rng, n_questions=N_QUESTIONS, per_question=2, probes=3), 3)
    units = n_units(cell, strategy)
    top = cell.n_steps + 1 if strategy is Strategy.DYNAMIC_EARLY_EXIT else np.full(units, 12)
    top = np.full(units, 2) if strategy is Strategy.DYNAMIC_ROUTING else top
    table = ActionTable(strategy, ("a",), (CellActions(np.array([True]), rng.integers(0, top)[None]),))
    weight = find_unit_weight(
        n_cells=1,
        min_questions=N_QUESTIONS,
        trajectories_per_question=2,
        unit_is_trajectory=strategy.unit_is_trajectory,
    )
    before = resample(as_measurements([cell]), table)
    told, potential = 0.3, 0.25
    largest = largest_move = 0.0
    per_unit = 1 if strategy.unit_is_trajectory else 2
    for unit in range(0, units, 5):
        first, last = cell.offsets[unit * per_unit], cell.offsets[(unit + 1) * per_unit]
        for right in (0, 3):
            changed = cell.correct_probes.copy()
            changed[first:last] = right
            after = resample(as_measurements([replace(cell, correct_probes=changed)]), table)
            for name in ("area", "uninformed_area", "oracle_area", "max_accuracy", "accuracy_50"):
                move = abs(find_half_width(after[name]) - find_half_width(before[name]))
                largest = max(largest, move)
                ends, others = find_percentiles(after[name]), find_percentiles(before[name])
                assert ends is not None
                assert others is not None
                largest_move = max(largest_move, abs(ends.low - others.low), abs(ends.high - others.high))
            lines = [
                linearise_potential(
                    *(one[name] for name in ("area", "uninformed_area", "oracle_area")), told=told, potential=potential
                )
                for one in (before, after)
            ]
            move = abs(find_half_width(lines[1]) - find_half_width(lines[0]))
            assert move <= 4 * float(weight) * 2 / potential
    # Accuracies and areas: within the step, and not idle; a percentile moves by more than the unit's weight.
    assert 0.1 * float(weight) < largest <= 4 * float(weight)
    assert largest_move > float(weight)


def test_a_told_interval_lies_about_the_told_figure_and_is_no_narrower() -> None:
    step = find_width_step(build_quanta(Fraction(1, 500)).accuracy)
    assert step == Fraction(8, 1000)
    rng = np.random.default_rng(0)
    for half in rng.random(50) / 10:
        interval = tell_interval(0.5, float(half), step, limits=(0.0, 1.0))
        assert interval is not None
        assert (interval.high - interval.low) / 2 >= half - 1e-9
        n_steps = (interval.high - interval.low) / 2 / 0.008
        assert n_steps == pytest.approx(round(n_steps))
    assert tell_interval(0.5, 0.1, None, limits=(0.0, 1.0)) is None
    assert find_potential_step(Fraction(1, 500), told=0.1, uninformed_area=0.5, oracle_area=0.5) is None


def test_ranks_are_the_differences_as_they_are_told() -> None:
    """Exactly the second is better than the third; told in steps of ten points they cannot be told apart."""
    rng = np.random.default_rng(1)
    shared = rng.normal(0, 0.05, 500)
    values = [shared + rng.normal(0, 0.01, 500) for _ in range(3)]
    fine = [ToldPotential(value, Fraction(1, 1000)) for value in (0.8, 0.5, 0.4)]
    coarse = [ToldPotential(value, Fraction(1, 10)) for value in (0.8, 0.5, 0.4)]
    assert rank_told(fine, values).tolist() == [1, 2, 3]
    assert rank_told(coarse, values).tolist() == [1, 2, 2]
    assert rank_told([ToldPotential(one.value, None) for one in coarse], values).tolist() == [1, 1, 1]
    assert tell_difference(fine[0], fine[1], (values[0], values[1][:10])) is None
