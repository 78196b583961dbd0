"""Reduced step curves against the full ones, and values at given budgets."""

from __future__ import annotations

import numpy as np
import pytest

from app.plots.steps import LOG_START, ReducedSteps, reduce_steps, sample_steps


def _draw_curve(rng: np.random.Generator, n_points: int) -> ReducedSteps:
    """A curve full of steps of very different heights, some at the very same pixel."""
    beta = np.unique(np.concatenate([[0.0], rng.beta(0.5, 0.5, n_points)]))
    return ReducedSteps(beta, 0.3 + 0.5 * np.sort(rng.beta(0.3, 0.3, len(beta))))


@pytest.mark.parametrize("seed", range(12))
def test_no_step_moves_by_more_than_half_a_pixel(seed: int) -> None:
    rng = np.random.default_rng(seed)
    full = _draw_curve(rng, int(rng.integers(1, 4000)))
    width, height, span = 200, 100, 0.6
    reduced = reduce_steps(full, height_accuracy=span, width=width, height=height)
    half_column, half_level = 0.5 / width, 0.5 * span / height
    budgets = np.linspace(0, 1, 5001)
    values = sample_steps(reduced, budgets)
    # Within half a column to either side the full curve takes a value within half a level of the reduced one.
    low = sample_steps(full, np.maximum(budgets - half_column, 0))
    high = sample_steps(full, np.minimum(budgets + half_column, 1))
    assert (values >= low - half_level).all()
    assert (values <= high + half_level).all()


@pytest.mark.parametrize("seed", range(4))
def test_a_reduced_curve_is_small_and_keeps_its_ends(seed: int) -> None:
    full = _draw_curve(np.random.default_rng(seed), 20_000)
    reduced = reduce_steps(full, height_accuracy=0.6, width=200, height=100)
    assert len(reduced.beta) <= 2 * 100 + 3
    assert (reduced.beta[0], reduced.accuracy[0]) == (0.0, full.accuracy[0])
    assert (reduced.beta[-1], reduced.accuracy[-1]) == (1.0, full.accuracy[-1])
    assert (np.diff(reduced.beta) > 0).all()


def test_a_few_wide_steps_stay_as_they_are() -> None:
    steps = ReducedSteps(np.array([0.0, 0.25, 0.5]), np.array([0.1, 0.4, 0.9]))
    reduced = reduce_steps(steps, height_accuracy=1.0)
    assert reduced.beta.tolist() == [0.0, 0.25, 0.5, 1.0]
    assert reduced.accuracy.tolist() == [0.1, 0.4, 0.9, 0.9]


def test_one_point_is_a_line_to_the_full_budget() -> None:
    reduced = reduce_steps(ReducedSteps(np.array([0.0]), np.array([0.5])), height_accuracy=0.1)
    assert reduced.beta.tolist() == [0.0, 1.0]
    assert reduced.accuracy.tolist() == [0.5, 0.5]


def test_points_past_the_full_budget_are_left_out() -> None:
    steps = ReducedSteps(np.array([0.0, 1.0, 1.5]), np.array([0.1, 0.4, 0.9]))
    reduced = reduce_steps(steps, height_accuracy=1.0)
    assert reduced.beta.tolist() == [0.0, 1.0]
    assert reduced.accuracy.tolist() == [0.1, 0.4]


def test_a_logarithmic_axis_keeps_early_steps_that_a_linear_one_merges() -> None:
    beta = np.concatenate([[0.0], np.geomspace(LOG_START, 9e-3, 20)])
    steps = ReducedSteps(beta, np.linspace(0.1, 0.9, len(beta)))
    linear = reduce_steps(steps, height_accuracy=0.8, width=50)
    logarithmic = reduce_steps(steps, height_accuracy=0.8, width=50, is_log=True)
    assert len(linear.beta) == 3
    assert len(logarithmic.beta) == len(beta) + 1


def test_a_value_holds_from_its_budget_on() -> None:
    steps = ReducedSteps(np.array([0.0, 0.5]), np.array([0.1, 0.9]))
    assert sample_steps(steps, np.array([0.0, 0.4999, 0.5, 1.0])).tolist() == [0.1, 0.1, 0.9, 0.9]
