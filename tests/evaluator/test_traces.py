"""First right positions and flips: by hand, against plain loops, by difficulty, and their edges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pytest

from app.evaluator.correlation import Correlation
from app.evaluator.measurements import Cell, Measurements, build_cell
from app.evaluator.traces import TraceFigures, summarise_by_difficulty, summarise_traces, trace_trajectories
from app.files.snapshot import load_measurements, read_snapshot

AsCell = Callable[..., Cell]
AsMeasurements = Callable[[list[Cell]], Measurements]
Trajectory = list[tuple[int, int]]
Questions = list[list[Trajectory]]
NAMES = list(TraceFigures.__dataclass_fields__)


def by_hand() -> Cell:
    """M = 4, so that 3 probes are a majority and 2 are not."""
    q1 = [
        # wrong right wrong right right: first right at 10 of 50, position 1 of 4; 3 flips, 1 dangerous.
        [(0, 2), (10, 3), (20, 2), (30, 4), (50, 3)],
        # right wrong: its endpoint is wrong; 1 flip, dangerous.
        [(0, 4), (40, 0)],
    ]
    q2 = [
        # Nothing thought and right: no ratio of steps, all of its (no) thinking needed.
        [(0, 3)],
        # wrong wrong right: right at the very end.
        [(0, 0), (10, 2), (30, 3)],
    ]
    q3 = [
        # Never right, one of them without a step.
        [(0, 0), (5, 2), (9, 1)],
        [(0, 1)],
    ]
    cell = build_cell("m", "b", [("q1", "test", q1), ("q2", "test", q2), ("q3", "test", q3)], 4)
    return replace(cell, original_correct=np.array([1, 1, 0, 1, 1, 0], dtype=np.int8))


def test_trajectories_by_hand() -> None:
    traces = trace_trajectories(by_hand())
    assert traces.endpoint_right.tolist() == [True, False, True, True, False, False]
    assert traces.first_right.tolist() == [1, 0, 0, 2, 2, 0]
    assert traces.needed_share.tolist() == [0.2, 0.0, 1.0, 1.0, 1.0, 1.0]
    assert traces.flips.tolist() == [3, 1, 0, 1, 0, 0]
    assert traces.dangerous_flips.tolist() == [1, 1, 0, 0, 0, 0]


def test_cell_by_hand(as_measurements: AsMeasurements) -> None:
    report = summarise_traces(as_measurements([by_hand()]))
    [cell] = report.cells
    assert (cell.model, cell.benchmark, cell.n_questions, cell.n_trajectories, cell.n_right) == ("m", "b", 3, 6, 3)
    assert cell.reasons == {}
    assert cell.figures == TraceFigures(
        outcome_efficiency=pytest.approx(2.2 / 6, rel=1e-15),  # (0.2 + 0 + 1 + 1 + 0 + 0) / 6
        original_outcome_efficiency=pytest.approx(2.2 / 6, rel=1e-15),  # (0.2 + 0 + 0 + 1 + 1 + 0) / 6
        rfcs=0.625,  # 1/4 in q1, 2/2 in q2
        early_share=0.5,
        flips=5 / 6,
        dangerous_flips=2 / 6,
        dangerous_share=2 / 6,
    )
    assert report.averages["rfcs"].macro == 0.625


def trace_naively(trajectory: Trajectory, probes: int, *, original: bool) -> dict[str, Fraction | None]:
    right = [2 * count > probes for _, count in trajectory]
    total, n = trajectory[-1][0], len(trajectory) - 1
    first = right.index(True) if any(right) else n
    needed = Fraction(trajectory[first][0], total) if total else Fraction(1)
    flips = sum(a != b for a, b in pairwise(right))
    seen, dangerous = False, 0
    for before, after in pairwise(right):
        seen = seen or before
        dangerous += seen and before and not after
    has_ratio = right[-1] and n > 0
    return {
        "outcome_efficiency": needed * right[-1],
        "original_outcome_efficiency": needed * original,
        "rfcs": Fraction(first, n) if has_ratio else None,
        "early_share": Fraction(first < n) if has_ratio else None,
        "flips": Fraction(flips),
        "dangerous_flips": Fraction(dangerous),
        "dangerous_share": Fraction(dangerous > 0),
    }


def average(values: list[Fraction | None]) -> Fraction | None:
    known = [value for value in values if value is not None]
    return sum(known, start=Fraction(0)) / len(known) if known else None


def average_questions(questions: list[list[dict[str, Fraction | None]]]) -> dict[str, float | None]:
    """Trajectories within a question, then questions."""
    means = {name: average([average([t[name] for t in question]) for question in questions]) for name in NAMES}
    return {name: None if value is None else float(value) for name, value in means.items()}


def approx(figures: dict[str, float | None]) -> dict[str, object]:
    return {k: None if v is None else pytest.approx(v, rel=1e-13, abs=1e-15) for k, v in figures.items()}


def test_cells_equal_plain_loops(
    random_questions: Callable[..., Questions], as_cell: AsCell, as_measurements: AsMeasurements
) -> None:
    rng = np.random.default_rng(1)
    for probes in (1, 2, 4, 5):
        for per_question in (1, 3):
            questions = random_questions(rng, n_questions=8, per_question=per_question, probes=probes)
            original = rng.integers(0, 2, 8 * per_question).astype(np.int8)
            cell = replace(as_cell(questions, probes), original_correct=original)
            naive = [
                [
                    trace_naively(trajectory, probes, original=bool(original[i * per_question + j]))
                    for j, trajectory in enumerate(question)
                ]
                for i, question in enumerate(questions)
            ]
            report = summarise_traces(as_measurements([cell]))
            assert asdict(report.cells[0].figures) == approx(average_questions(naive))
            turned = summarise_traces(as_measurements([cell.take_questions(range(7, -1, -1))]))
            assert turned == report
            doubled = summarise_traces(as_measurements([cell.take_questions([*range(8), *range(8)])]))
            assert doubled.averages == report.averages


def test_difficulty_equals_plain_loops(random_questions: Callable[..., Questions], as_cell: AsCell) -> None:
    rng = np.random.default_rng(2)
    probes, n = 3, 30
    by_model = [random_questions(rng, n_questions=n, per_question=2, probes=probes) for _ in range(2)]
    original = rng.integers(0, 2, (2, 2 * n)).astype(np.int8)
    cells = [
        replace(as_cell(questions, probes, model=f"m{i}"), original_correct=original[i])
        for i, questions in enumerate(by_model)
    ]
    difficulty = [None if d == 0 else int(d) for d in rng.integers(0, 5, n)]
    # A question's trajectories are those of both models.
    naive = [
        [
            trace_naively(by_model[i][q][t], probes, original=bool(original[i, 2 * q + t]))
            for i in range(2)
            for t in range(2)
        ]
        for q in range(n)
    ]
    report = summarise_by_difficulty(cells, difficulty)
    assert (report.benchmark, report.models, report.reason) == ("b", ("m0", "m1"), None)
    assert (report.n_unknown, report.n_known) == (difficulty.count(None), n - difficulty.count(None))
    assert [level.difficulty for level in report.levels] == [1, 2, 3, 4]
    for level in report.levels:
        chosen = [naive[q] for q in range(n) if difficulty[q] == level.difficulty]
        assert level.n_questions == len(chosen)
        assert asdict(level.figures) == approx(average_questions(chosen))
    for name in NAMES:
        means = [average([t[name] for t in naive[q]]) for q in range(n)]
        points = [(d, float(v)) for d, v in zip(difficulty, means, strict=True) if d is not None and v is not None]
        found = report.over_questions[name]
        assert (found.n_points, found.reason) == (len(points), None)
        assert found.value == pytest.approx(float(np.corrcoef(np.array(points).T)[0, 1]), abs=1e-12)
        of_levels = [getattr(level.figures, name) for level in report.levels]
        expected = float(np.corrcoef([1, 2, 3, 4], of_levels)[0, 1])
        assert report.over_levels[name].value == pytest.approx(expected, abs=1e-12)


def test_one_difficulty_or_none_has_no_correlation() -> None:
    cell = by_hand()
    report = summarise_by_difficulty([cell], [5, 5, None])
    assert (len(report.levels), report.n_known, report.n_unknown) == (1, 2, 1)
    assert report.levels[0].figures.flips == 1.25
    assert report.over_questions["flips"] == Correlation(None, 2, "one_series_is_constant")
    assert report.over_levels["flips"] == Correlation(None, 1, "fewer_than_2_points")
    report = summarise_by_difficulty([cell], [None] * 3)
    assert (report.levels, report.reason) == ((), "no_question_has_a_difficulty")
    assert report.over_questions["rfcs"] == Correlation(None, 0, "fewer_than_2_points")


def test_a_level_without_a_right_endpoint_has_no_ratio() -> None:
    report = summarise_by_difficulty([by_hand()], [-1, 0, 3])
    assert [(level.difficulty, level.figures.rfcs) for level in report.levels] == [(-1, 0.25), (0, 1.0), (3, None)]
    assert report.over_questions["rfcs"].n_points == report.over_levels["rfcs"].n_points == 2


def test_unknown_original_answers_and_no_right_endpoint_have_reasons(as_measurements: AsMeasurements) -> None:
    known = by_hand()
    wrong = build_cell("n", "b", [(q, "test", [[(0, 2), (5, 1)], [(0, 4)]]) for q in ("q1", "q2", "q3")], 4)
    report = summarise_traces(as_measurements([known, wrong]))
    figures = report.cells[1].figures
    assert figures.original_outcome_efficiency is figures.rfcs is figures.early_share is None
    assert report.cells[1].reasons == {
        "original_outcome_efficiency": "original_answers_unknown",
        "rfcs": "no_trajectory_with_a_step_ends_right",
        "early_share": "no_trajectory_with_a_step_ends_right",
    }
    # The trajectory without a step is right and needed all of nothing.
    assert figures.outcome_efficiency == 0.5
    assert report.averages["rfcs"].macro is None
    assert report.averages["rfcs"].by_model == {"m": 0.625, "n": None}
    assert report.averages["flips"].macro == (5 / 6 + 0) / 2
    # The original answers of one model do not stand for those of both.
    both = summarise_by_difficulty([known, wrong], [1, 1, 2])
    assert all(level.figures.original_outcome_efficiency is None for level in both.levels)
    assert both.levels[0].figures.rfcs == 0.625


def test_what_does_not_belong_together_is_refused(as_measurements: AsMeasurements) -> None:
    cell = by_hand()
    with pytest.raises(ValueError, match="2 difficulties for 3"):
        summarise_by_difficulty([cell], [1, 2])
    with pytest.raises(ValueError, match="same questions"):
        summarise_by_difficulty([cell, cell.take_questions([0, 1])], [1, 2, 3])
    with pytest.raises(ValueError, match="same questions"):
        summarise_by_difficulty([cell, replace(cell, benchmark="c")], [1, 2, 3])
    hidden = replace(cell, correct_probes=np.full_like(cell.correct_probes, -1))
    with pytest.raises(ValueError, match="hidden"):
        summarise_traces(as_measurements([hidden]))


def test_on_a_real_snapshot(real_snapshot: Path) -> None:
    snapshot = read_snapshot(real_snapshot)
    measurements = load_measurements(snapshot)
    report = summarise_traces(measurements)
    for cell, summary in zip(measurements.cells, report.cells, strict=True):
        questions = []
        for q in range(cell.n_questions):
            spans = [slice(cell.offsets[t], cell.offsets[t + 1]) for t in (2 * q, 2 * q + 1)]
            curves = [
                list(zip(cell.retained_tokens[s].tolist(), cell.correct_probes[s].tolist(), strict=True)) for s in spans
            ]
            original = [bool(cell.original_correct[t]) for t in (2 * q, 2 * q + 1)]
            questions.append(
                [
                    trace_naively(curve, cell.probes_per_position, original=o)
                    for curve, o in zip(curves, original, strict=True)
                ]
            )
        assert asdict(summary.figures) == approx(average_questions(questions))
    of_benchmark = snapshot.questions.filter(pc.equal(snapshot.questions["benchmark"], measurements.benchmarks[0]))
    by_difficulty = summarise_by_difficulty(measurements.cells, of_benchmark["difficulty"].to_pylist())
    # All of its ten questions are of level 5.
    assert [(level.difficulty, level.n_questions) for level in by_difficulty.levels] == [(5, 10)]
