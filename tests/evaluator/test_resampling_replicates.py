"""Replicates against the textbook: draws, exact frontiers at 101 budgets, uninformed references, totals."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from app.evaluator import draws
from app.evaluator.curves import upper_hull
from app.evaluator.draws import count_draws, count_weights, draw_replicate, resample_cell
from app.evaluator.frontier import solve_frontier
from app.evaluator.measurements import Cell, IntArray, Measurements, build_cell
from app.evaluator.overthinking import summarise_overthinking
from app.evaluator.reference import list_constant_caps
from app.evaluator.replicate_frontiers import ARRAYS, compute_replicates, concatenate_replicates
from app.evaluator.strategies import Strategy, find_positions_at_tokens

SEED = 7
Measure = Callable[[list[Cell]], Measurements]


def check_against_textbook(measurements: Measurements, replicates: range) -> None:
    """Compare every figure of these replicates with the programs that know nothing of multiplicities."""
    block = compute_replicates(measurements, replicates, seed=SEED)
    for row, number in enumerate(replicates):
        draw = draw_replicate(measurements, number, seed=SEED)
        cells = [resample_cell(*pair) for pair in zip(measurements.cells, draw.cells, strict=True)]
        for at, (original, cell) in enumerate(zip(measurements.cells, cells, strict=True)):
            areas = find_uninformed_areas(original, cell)
            for s, strategy in enumerate(Strategy):
                expected = solve_frontier(cell, strategy).curve.correct_at_grid(100)
                assert block.rewards[row, at, s].tolist() == expected.tolist(), (number, at, strategy)
                assert block.uninformed_area[row, at, s] == pytest.approx(areas[strategy], abs=1e-14)
        report = summarise_overthinking(replace(measurements, cells=tuple(cells)))
        for at, (summary, cell) in enumerate(zip(report.cells, cells, strict=True)):
            figures = summary.figures
            assert block.total("thinking_tokens")[row, at] == cell.total_thinking_tokens
            assert block.total("zero_correct")[row, at] / cell.total_probes == figures.zero_step_accuracy
            assert block.total("endpoint_correct")[row, at] / cell.total_probes == figures.endpoint_accuracy
            assert block.total("degradation")[row, at] / cell.total_probes == figures.accuracy_degradation
            assert block.overthinking_ratio[row, at] == pytest.approx(figures.overthinking_ratio, abs=1e-14)
            original_correct = block.total("original_correct")[row, at]
            if figures.full_thinking_accuracy is None:
                assert original_correct == -1
            else:
                assert original_correct / cell.n_trajectories == figures.full_thinking_accuracy


def find_uninformed_areas(original: Cell, cell: Cell) -> dict[Strategy, float]:
    """The trapezoid sums under the hulls of the original data's constant policies on a resampled cell."""
    caps = [find_positions_at_tokens(cell, np.full(cell.n_trajectories, cap)) for cap in list_constant_caps(original)]
    of_caps = add_up(cell, caps)
    of_positions = add_up(cell, [np.minimum(k, cell.n_steps) for k in range(101)])
    points = {
        Strategy.DYNAMIC_ROUTING: add_up(cell, [0 * cell.n_steps, cell.n_steps]),
        Strategy.FIXED_BUDGET: of_caps,
        Strategy.DYNAMIC_EARLY_EXIT: np.concatenate([of_caps, of_positions]),
    }
    areas = {}
    for strategy, (costs, rewards) in ((strategy, found.T) for strategy, found in points.items()):
        hull = upper_hull(
            costs, rewards, total_thinking_tokens=cell.total_thinking_tokens, total_probes=cell.total_probes
        )
        areas[strategy] = float(np.trapezoid(hull.accuracy_at_grid(100), dx=0.01))
    return areas


def add_up(cell: Cell, positions: list[IntArray]) -> IntArray:
    """Tokens and probes of policies that stop at these positions, one row each."""
    stops = [cell.first_idx + k for k in positions]
    return np.array(
        [(cell.retained_tokens[idx].sum(dtype=np.int64), cell.correct_probes[idx].sum(dtype=np.int64)) for idx in stops]
    )


@pytest.fixture
def measurements(as_measurements: Measure) -> Measurements:
    """Two models on two benchmarks: 4 cells of 8 or 20 questions with 4 trajectories, long and short steps."""
    rng = np.random.default_rng(1)
    return as_measurements(
        [
            draw_cell(rng, model, benchmark, n_questions)
            for model in ("small", "large")
            for benchmark, n_questions in (("hard", 8), ("easy", 20))
        ]
    )


def draw_cell(
    rng: np.random.Generator, model: str, benchmark: str, n_questions: int, *, per_question: int = 4, steps: int = 20
) -> Cell:
    """Draw a cell of noisy rising curves whose steps have 200 to 320 tokens."""

    def draw_trajectory() -> list[tuple[int, int]]:
        n = int(rng.integers(0, steps))
        lengths = np.append(0, np.cumsum(rng.integers(200, 320, n)))
        rise = np.linspace(rng.uniform(0, 1), rng.uniform(0, 1), n + 1)
        return list(zip(lengths.tolist(), rng.binomial(16, rise).tolist(), strict=True))

    questions = [(f"q{i:03}", "test", [draw_trajectory() for _ in range(per_question)]) for i in range(n_questions)]
    cell = build_cell(model, benchmark, questions, 16)
    return replace(cell, original_correct=rng.integers(0, 2, cell.n_trajectories).astype(np.int8))


def test_replicates_are_the_textbook_ones(measurements: Measurements) -> None:
    check_against_textbook(measurements, range(25))


def test_a_large_cell_is_the_textbook_one(as_measurements: Measure) -> None:
    rng = np.random.default_rng(5)
    check_against_textbook(as_measurements([draw_cell(rng, "m", "b", 150, per_question=8, steps=30)]), range(2, 4))


@pytest.mark.parametrize("per_question", [1, 3, 5])
def test_small_cells_full_of_ties_are_the_textbook_ones(
    random_questions: Callable[..., object], as_cell: Callable[..., Cell], as_measurements: Measure, per_question: int
) -> None:
    rng = np.random.default_rng(per_question)
    for _ in range(12):
        probes = int(rng.integers(1, 9))
        cells = [
            as_cell(random_questions(rng, n_questions=n, per_question=per_question, probes=probes), probes, benchmark=b)
            for b, n in (("one", 1), ("some", int(rng.integers(2, 9))), ("more", 15))
        ]
        check_against_textbook(as_measurements(cells), range(3, 6))


def test_equal_slopes_need_a_proof(as_measurements: Measure) -> None:
    # Every step costs 2 tokens for 2 probes, so an odd budget leaves a token that no combination can use.
    questions = [(f"q{i:02}", "test", [[(0, 0), (2, 2), (4, 4)]] * 2) for i in range(25)]
    cell = build_cell("m", "b", questions, 4)
    check_against_textbook(as_measurements([cell]), range(2))


def test_a_replicate_recomputed_alone_is_the_same_to_the_byte(measurements: Measurements) -> None:
    block = compute_replicates(measurements, range(40), seed=SEED)
    alone = compute_replicates(measurements, range(35, 36), seed=SEED)
    for name in ARRAYS:
        assert getattr(alone, name)[0].tobytes() == getattr(block, name)[35].tobytes()


def test_blocks_that_follow_one_another_join(measurements: Measurements) -> None:
    parts = [compute_replicates(measurements, r, seed=SEED) for r in (range(3), range(3, 5))]
    joined = concatenate_replicates(parts)
    whole = compute_replicates(measurements, range(5), seed=SEED)
    for name in ARRAYS:
        assert getattr(joined, name).tobytes() == getattr(whole, name).tobytes()
    assert joined.take(2).n_replicates == 2
    with pytest.raises(ValueError, match="do not follow"):
        concatenate_replicates(parts[::-1])
    with pytest.raises(ValueError, match="there are 5"):
        joined.take(6)


def test_draws_do_not_depend_on_the_order_of_cells(measurements: Measurements) -> None:
    reversed_cells = replace(measurements, cells=measurements.cells[::-1])
    there = draw_replicate(measurements, 4).cells
    back = draw_replicate(reversed_cells, 4).cells[::-1]
    for one, other in zip(there, back, strict=True):
        assert one.question_idx.tolist() == other.question_idx.tolist()
        assert one.trajectory_idx.tolist() == other.trajectory_idx.tolist()


def test_models_share_questions_but_not_trajectories(measurements: Measurements) -> None:
    drawn = {(cell.model, cell.benchmark): cell for cell in draw_replicate(measurements, 0).cells}
    small, large = drawn["small", "easy"], drawn["large", "easy"]
    assert small.question_idx.tolist() == large.question_idx.tolist()
    assert small.trajectory_idx.tolist() != large.trajectory_idx.tolist()


def test_multiplicities_count_the_draws(measurements: Measurements) -> None:
    cell = measurements.cells[1]
    counted = count_draws(cell, range(6, 9), seed=SEED)
    for row, number in enumerate(range(6, 9)):
        draw = draw_replicate(measurements, number, seed=SEED).cells[1]
        slots = [np.bincount(of_slot, minlength=4).tolist() for of_slot in draw.trajectory_idx]
        assert counted.question_idx[row].tolist() == draw.question_idx.tolist()
        assert counted.counts[row].tolist() == slots
        drawn = (draw.question_idx[:, None] * 4 + draw.trajectory_idx).reshape(-1)
        assert counted.weights[row].tolist() == np.bincount(drawn, minlength=cell.n_trajectories).tolist()
    assert count_weights(cell, range(6, 9), seed=SEED).tolist() == counted.weights.tolist()


@pytest.mark.parametrize("per_question", [1, 3, 4, 8, 9, 15, 16, 17, 6000])
def test_weights_alone_are_those_of_the_draws(per_question: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted in packed words, except where many trajectories, or one drawn often, would not fit in there."""
    cell = build_cell("m", "b", [(f"q{i}", "test", [[(0, 1)]] * per_question) for i in range(5)], 4)
    expected = count_draws(cell, range(9), seed=SEED).weights.tolist()
    for largest in (255, 2 * per_question, 0):
        monkeypatch.setattr(draws, "_LARGEST_PACKED", largest)
        for dtype in (np.int32, np.float64):
            assert count_weights(cell, range(9), seed=SEED, dtype=dtype).tolist() == expected


@pytest.mark.parametrize("per_question", [3, 4])
def test_questions_and_trajectories_are_drawn_uniformly(per_question: int) -> None:
    cell = build_cell("m", "b", [(f"q{i}", "test", [[(0, 1)]] * per_question) for i in range(7)], 4)
    n = 20_000
    counted = count_draws(cell, range(n), seed=SEED)
    for values, size in ((counted.question_idx, 7), (counted.counts.sum(axis=(0, 1)), per_question)):
        counts = np.bincount(values.reshape(-1), minlength=size) if size == 7 else values
        expected = counts.sum() / size
        # Five standard deviations of a binomial count: a fair generator fails here once in a million seeds.
        assert np.abs(counts - expected).max() < 5 * np.sqrt(expected * (1 - 1 / size))
    # Slots and replicates are independent: two slots agree as often as chance has it.
    agree = (counted.question_idx[:, 0] == counted.question_idx[:, 1]).mean()
    assert abs(agree - 1 / 7) < 5 * np.sqrt(6 / 49 / n)


G = 0x9E3779B97F4A7C15
BITS = 2**64


def mix(x: int) -> int:
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % BITS
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % BITS
    return x ^ (x >> 31)


def number(key: int, i: int) -> int:
    return mix((key + G * (i + 1)) % BITS)


def bound(x: int, n: int) -> int:
    while (x >> 32) * n % 2**32 < 2**32 % n:
        x = mix((x + G) % BITS)
    return (x >> 32) * n >> 32


def bound_part(word: int, j: int, n: int) -> int:
    part = word >> 16 * (j % 4) & 0xFFFF
    return bound(mix(word ^ (j + 1)), n) if part * n % 2**16 < 2**16 % n else part * n >> 16


@pytest.mark.parametrize("per_question", [1, 4, 7, 6000])
def test_draws_follow_from_their_keys_as_written(as_measurements: Measure, per_question: int) -> None:
    # The module's text in Python's own integers. With 6,000 trajectories a group of 16 bits is often refused.
    n = 3
    cell = build_cell("model", "bench", [(f"q{i}", "test", [[(0, 1)]] * per_question) for i in range(n)], 4)
    for replicate in (0, 12):
        drawn = draw_replicate(as_measurements([cell]), replicate, seed=SEED).cells[0]
        root = number(number(SEED, 0), replicate)
        word = {
            name: int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little") for name in ("model", "bench")
        }
        of_benchmark = mix(root ^ word["bench"])
        of_model = mix(of_benchmark ^ word["model"])
        assert drawn.question_idx.tolist() == [bound(number(of_benchmark, s), n) for s in range(n)]
        for slot in range(n):
            key = number(of_model, slot)
            expected = [bound_part(number(key, j // 4), j, per_question) for j in range(per_question)]
            assert drawn.trajectory_idx[slot].tolist() == expected


def test_what_cannot_be_resampled_is_refused(measurements: Measurements) -> None:
    hidden = replace(measurements.cells[0], correct_probes=measurements.cells[0].correct_probes * 0 - 1)
    with pytest.raises(ValueError, match="hidden"):
        compute_replicates(replace(measurements, cells=(hidden,)), range(1))
    with pytest.raises(ValueError, match="no replicates"):
        compute_replicates(measurements, range(0))
    with pytest.raises(ValueError, match="consecutive"):
        compute_replicates(measurements, range(0, 4, 2))
    with pytest.raises(ValueError, match="a seed lies"):
        draw_replicate(measurements, 0, seed=-1)
    huge = build_cell("m", "b", [("q", "test", [[(0, 1), (2**30, 4)]] * 16)], 4)
    with pytest.raises(ValueError, match="too large"):
        compute_replicates(replace(measurements, cells=(huge,)), range(1))
