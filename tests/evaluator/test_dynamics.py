"""Local changes, diversity, correlations, direct answers: by hand, against plain loops, and their edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise, product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from app.evaluator.averages import average_cells
from app.evaluator.correlation import Correlation, correlate_ranks, correlate_values
from app.evaluator.dynamics import (
    ChangeBin,
    DirectFigures,
    average_local_changes,
    compare_direct_answers,
    correlate_overthinking,
    count_local_changes,
    measure_diversity,
    summarise_diversity,
    summarise_local_changes,
)
from app.evaluator.measurements import Cell, Measurements, build_cell
from app.evaluator.overthinking import summarise_overthinking
from app.files.snapshot import load_measurements, read_snapshot

AsCell = Callable[..., Cell]
AsMeasurements = Callable[[list[Cell]], Measurements]
Trajectory = list[tuple[int, int]]
RandomQuestions = Callable[..., list[list[Trajectory]]]


def with_hidden_labels(cell: Cell) -> Cell:
    return replace(cell, correct_probes=np.full_like(cell.correct_probes, -1))


def test_local_changes_by_hand() -> None:
    # Bins of 10 tokens: 1..10, 11..20, 21..30. Step ends of the first trajectory: 3 (up), 10 (down), 11 (flat), 30
    # (up); of the second: 25 (flat), which passes two bins; the third has none.
    curves = [[(0, 1), (3, 2), (10, 1), (11, 1), (30, 4)], [(0, 2), (25, 2)], [(0, 3)]]
    changes = count_local_changes(build_cell("m", "b", [("q", "test", curves)], 4), bin_tokens=10)
    assert changes.positive.tolist() == [1, 0, 1]
    assert changes.negative.tolist() == [1, 0, 0]
    assert changes.flat.tolist() == [0, 1, 1]
    assert changes.n_steps.tolist() == [2, 1, 2]
    assert changes.n_trajectories.tolist() == [1, 1, 2]


def test_cells_count_equally_and_drop_out_of_bins_they_do_not_reach(as_measurements: AsMeasurements) -> None:
    long = build_cell("m", "a", [("q", "test", [[(0, 1), (4, 2), (8, 3), (9, 2), (10, 2), (15, 1), (35, 1)]])], 4)
    short = build_cell("m", "b", [("q", "test", [[(0, 1), (7, 2)]])], 4)
    bins = summarise_local_changes(as_measurements([long, short]), bin_tokens=10)
    # First bin: (2/4 + 1) / 2 up, (1/4 + 0) / 2 down, (1/4 + 0) / 2 flat; down per up 1/8 : 3/4 = 1/6.
    assert bins == (
        ChangeBin(0, 10, 2, 2, 5, 0.75, 0.125, 0.125, 1 / 6, None),
        # Only the long cell reaches further, and no step of it gains anything there.
        ChangeBin(10, 20, 1, 1, 1, 0.0, 1.0, 0.0, None, "no_positive_change"),
        # Its last step passes this bin.
        ChangeBin(20, 30, 0, 0, 0, None, None, None, None, "no_step_ends_in_the_bin"),
        ChangeBin(30, 40, 1, 1, 1, 0.0, 0.0, 1.0, None, "no_positive_change"),
    )


def test_local_changes_equal_a_plain_loop(
    random_questions: RandomQuestions, as_cell: AsCell, as_measurements: AsMeasurements
) -> None:
    rng = np.random.default_rng(1)
    for bin_tokens in (1, 3, 4, 100):
        questions = {
            name: random_questions(rng, n_questions=int(rng.integers(1, 8)), per_question=2, probes=3) for name in "xyz"
        }
        shares = defaultdict(lambda: defaultdict(list))
        reached = defaultdict(set)
        for name, of_cell in questions.items():
            signs = defaultdict(list)
            for t, trajectory in enumerate(trajectory for question in of_cell for trajectory in question):
                for (_, before), (length, after) in pairwise(trajectory):
                    # The bin is the one whose end is the first that is not below the length.
                    i = next(i for i in range(1000) if length <= (i + 1) * bin_tokens)
                    signs[i].append((after > before) - (after < before))
                    reached[i].add((name, t))
            for i, found in signs.items():
                for sign in (1, -1, 0):
                    shares[i][sign].append(Fraction(found.count(sign), len(found)))
        cells = [as_cell(of_cell, 3, model=name) for name, of_cell in questions.items()]
        bins = summarise_local_changes(as_measurements(cells), bin_tokens=bin_tokens)
        assert [b.start_tokens for b in bins if b.n_cells] == [i * bin_tokens for i in sorted(shares)]
        for b in (b for b in bins if b.n_cells):
            i = b.start_tokens // bin_tokens
            means = [sum(shares[i][sign]) / len(shares[i][sign]) for sign in (1, -1, 0)]
            assert (b.positive, b.negative, b.flat) == tuple(float(m) for m in means)
            assert b.negative_per_positive == (float(means[1] / means[0]) if means[0] else None)
            assert (b.n_cells, b.n_trajectories) == (len(shares[i][1]), len(reached[i]))


def test_no_step_at_all_and_no_cell() -> None:
    cell = build_cell("m", "b", [("q", "test", [[(0, 1)], [(0, 2)]])], 4)
    assert count_local_changes(cell).n_steps.tolist() == []
    assert average_local_changes([count_local_changes(cell)]) == ()
    assert average_local_changes([]) == ()


def test_bins_must_fit() -> None:
    cell = build_cell("m", "b", [("q", "test", [[(0, 1), (5, 2)]])], 4)
    with pytest.raises(ValueError, match="at least one token"):
        count_local_changes(cell, bin_tokens=0)
    with pytest.raises(ValueError, match="width"):
        average_local_changes([count_local_changes(cell, bin_tokens=b) for b in (10, 20)])


def test_diversity_by_hand(as_measurements: AsMeasurements) -> None:
    # ORs of q1: 0, 1/2, 1/2, 1 with pairs 1/2, 1/2, 1, 0, 1/2, 1/2: 3/6. ADs: 0, 1/4, 0, 3/4 with pairs
    # 1/4, 0, 3/4, 1/4, 1/2, 3/4: 2.5/6. All trajectories of q2 are alike.
    q1 = [[(0, 0), (8, 2)], [(0, 0), (4, 3), (8, 2)], [(0, 0), (4, 1), (8, 1)], [(0, 4), (8, 1)]]
    q2 = [[(0, 0), (3, 2), (7, 1)]] * 4
    cell = build_cell("m", "b", [("q1", "test", q1), ("q2", "test", q2)], 4)
    diversity = measure_diversity(cell)
    assert diversity is not None
    assert diversity.ratio.tolist() == [0.5, 0.0]
    assert diversity.degradation.tolist() == [2.5 / 6, 0.0]
    report = summarise_diversity(as_measurements([cell]))
    assert (report.n_pairs, report.reason) == (6, None)
    assert report.cells[0].figures.overthinking_ratio == 0.25
    assert report.averages["accuracy_degradation"].macro == pytest.approx(2.5 / 12, rel=1e-15)


def test_diversity_equals_all_pairs(
    random_questions: RandomQuestions, as_cell: AsCell, as_measurements: AsMeasurements
) -> None:
    rng = np.random.default_rng(2)
    for per_question in (2, 3, 7):
        questions = random_questions(rng, n_questions=12, per_question=per_question, probes=5)

        def find_or_ad(trajectory: Trajectory) -> tuple[Fraction, Fraction]:
            total, last = trajectory[-1]
            most = max(count for _, count in trajectory)
            kept = next(length for length, count in trajectory if count == most)
            return Fraction(total - kept, max(1, total)), Fraction(most - last, 5)

        expected = []
        for question in questions:
            pairs = list(combinations([find_or_ad(trajectory) for trajectory in question], 2))
            expected.append([sum(abs(a[i] - b[i]) for a, b in pairs) / len(pairs) for i in range(2)])
        measurements = as_measurements([as_cell(questions, 5)])
        diversity = measure_diversity(measurements.cells[0])
        assert diversity is not None
        assert diversity.ratio == pytest.approx([float(e[0]) for e in expected], abs=1e-15)
        assert diversity.degradation.tolist() == [float(e[1]) for e in expected]
        mean = float(sum(e[0] for e in expected) / len(expected))
        report = summarise_diversity(measurements)
        assert report.averages["overthinking_ratio"].macro == pytest.approx(mean, abs=1e-15)
        # Questions in another order, and trajectories within them, have the same figures.
        turned = as_cell([question[::-1] for question in questions[::-1]], 5)
        assert summarise_diversity(as_measurements([turned])) == report


def test_diversity_of_single_trajectories_is_none(as_measurements: AsMeasurements) -> None:
    cell = build_cell("m", "b", [("q", "test", [[(0, 1), (5, 2)]])], 4)
    assert measure_diversity(cell) is None
    report = summarise_diversity(as_measurements([cell]))
    assert (report.n_pairs, report.reason) == (0, "one_trajectory_per_question")
    assert report.cells[0].figures.overthinking_ratio is report.averages["overthinking_ratio"].macro is None


def test_rank_correlation_by_hand() -> None:
    # Ranks 1, 2.5, 2.5, 4 against 1, 3, 2, 4: deviations -1.5, 0, 0, 1.5 and -1.5, .5, -.5, 1.5;
    # 4.5 / sqrt(4.5 * 5) = sqrt(0.9).
    assert correlate_ranks([1, 5, 5, 9], [0.1, 0.3, 0.2, 0.9]).value == pytest.approx(0.9**0.5, rel=1e-15)
    assert correlate_ranks([1, 2], [7, 5]) == Correlation(pytest.approx(-1.0, rel=1e-15), 2, None)
    assert correlate_ranks([1], [7]) == Correlation(None, 1, "fewer_than_2_points")
    assert correlate_ranks([1, 2, 3], [4, 4, 4]) == Correlation(None, 3, "one_series_is_constant")


def test_correlation_of_values() -> None:
    assert correlate_values([1, 2, 4], [3, 5, 9]).value == pytest.approx(1.0, rel=1e-15)
    assert correlate_values([], []) == Correlation(None, 0, "fewer_than_2_points")
    assert correlate_values([2, 2], [1, 3]) == Correlation(None, 2, "one_series_is_constant")
    rng = np.random.default_rng(3)
    for scale in (1.0, 1e-200, 1e150):
        x, y = rng.normal(size=(2, 20))
        expected = float(np.corrcoef(x, y)[0, 1])
        assert correlate_values((x * scale).tolist(), y.tolist()).value == pytest.approx(expected, rel=1e-12)
    with pytest.raises(ValueError, match="differ in length"):
        correlate_values([1, 2], [1])


def test_correlation_over_cells(as_measurements: AsMeasurements) -> None:
    # (OR, AD): (0, 0), (1/2, 1/4), (1, 0), (1/2, 3/4); ranks 1, 2.5, 4, 2.5 and 1.5, 3, 1.5, 4.
    curves = [[(0, 1), (8, 2)], [(0, 1), (4, 3), (8, 2)], [(0, 2), (8, 2)], [(0, 1), (4, 4), (8, 1)]]
    cells = [
        build_cell(model, benchmark, [("q", "test", [curve])], 4)
        for (model, benchmark), curve in zip(product("xy", "ab"), curves, strict=True)
    ]
    correlation = correlate_overthinking(summarise_overthinking(as_measurements(cells)).cells)
    assert correlation.n_points == 4
    expected = float(np.corrcoef([1, 2.5, 4, 2.5], [1.5, 3, 1.5, 4])[0, 1])
    assert correlation.value == pytest.approx(expected, abs=1e-15)
    assert correlation.value == pytest.approx(stats.spearmanr([0, 0.5, 1, 0.5], [0, 0.25, 0, 0.75])[0], abs=1e-15)


def test_direct_answers_by_hand(as_measurements: AsMeasurements) -> None:
    questions = [("q", "test", [[(0, 1), (5, 2)], [(0, 4)]]), ("r", "test", [[(0, 0)], [(0, 2)]])]
    known = replace(build_cell("x", "b", questions, 4), direct_correct=np.array([1, 1, 0, 1], dtype=np.int8))
    report = compare_direct_answers(as_measurements([known]))
    # 7 of 16 probes at position 0, 3 of 4 direct answers.
    assert report.cells[0].figures == DirectFigures(0.4375, 0.75, -0.3125)
    assert report.cells[0].reason is None
    assert report.averages["difference"].macro == -0.3125

    partly = replace(build_cell("y", "b", questions, 4), direct_correct=np.array([1, 1, -1, 1], dtype=np.int8))
    report = compare_direct_answers(as_measurements([known, partly]))
    assert report.cells[1].figures == DirectFigures(0.4375, None, None)
    assert report.cells[1].reason == "direct_answers_unknown"
    assert report.averages["direct_accuracy"].macro is None
    assert report.averages["direct_accuracy"].by_model == {"x": 0.75, "y": None}
    assert report.averages["zero_step_accuracy"].macro == 0.4375


def test_averages_are_those_of_the_overthinking_report(
    random_questions: RandomQuestions, as_cell: AsCell, as_measurements: AsMeasurements
) -> None:
    rng = np.random.default_rng(4)
    pairs = list(product(("m1", "m2", "m3"), ("b1", "b2")))
    for kept in (pairs, pairs[:-1]):
        cells = [
            as_cell(random_questions(rng, n_questions=3, per_question=2, probes=4), 4, model=m, benchmark=b)
            for m, b in kept
        ]
        measurements = as_measurements(cells)
        report = summarise_overthinking(measurements)
        averages = average_cells(measurements, [cell.figures.overthinking_ratio for cell in report.cells])
        assert averages.macro == (report.macro and report.macro.overthinking_ratio)
        assert averages.by_model == {k: v and v.overthinking_ratio for k, v in report.by_model.items()}
        assert averages.by_benchmark == {k: v and v.overthinking_ratio for k, v in report.by_benchmark.items()}
    # A cell without the figure leaves it out of the averages that need it, as a missing cell does.
    averages = average_cells(measurements, [None, 0.5, 0.25, 0.75, 1.0])
    assert averages.macro is averages.by_model["m1"] is averages.by_benchmark["b1"] is None
    assert averages.by_model == {"m1": None, "m2": 0.5, "m3": None}
    with pytest.raises(ValueError, match="shorter"):
        average_cells(measurements, [0.5])


def test_a_benchmark_without_questions_in_the_split_has_no_average(as_measurements: AsMeasurements) -> None:
    cell = build_cell("m", "b", [("q", "test", [[(0, 1), (5, 2)]])], 4)
    measurements = replace(as_measurements([cell]), benchmarks=("b", "empty"))
    averages = average_cells(measurements, [0.5])
    assert (averages.macro, averages.by_benchmark) == (0.5, {"b": 0.5, "empty": None})


def test_hidden_labels_are_refused(as_measurements: AsMeasurements) -> None:
    cell = with_hidden_labels(build_cell("m", "b", [("q", "test", [[(0, 1), (5, 2)], [(0, 1)]])], 4))
    for work in (summarise_local_changes, summarise_diversity, compare_direct_answers):
        with pytest.raises(ValueError, match="hidden"):
            work(as_measurements([cell]))


def test_on_a_real_snapshot(real_snapshot: Path) -> None:
    measurements = load_measurements(read_snapshot(real_snapshot))
    bins = summarise_local_changes(measurements)
    assert sum(b.n_steps for b in bins) == sum(int(cell.n_steps.sum()) for cell in measurements.cells)
    for b in bins:
        assert (b.positive or 0.0) + (b.negative or 0.0) + (b.flat or 0.0) == pytest.approx(1.0, rel=1e-15)
    report = summarise_diversity(measurements)
    # Two trajectories: the differences of each question, averaged.
    overthinking = summarise_overthinking(measurements)
    assert report.n_pairs == 1
    assert 0 < (report.averages["overthinking_ratio"].macro or 0) < 1
    assert correlate_overthinking(overthinking.cells).n_points == 2
    assert compare_direct_answers(measurements).averages["direct_accuracy"].macro is None
