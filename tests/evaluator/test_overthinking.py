"""Reference positions, OR, AD and their averages: by hand, against plain loops, and on a real snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.evaluator.measurements import Cell, Measurements, build_cell
from app.evaluator.overthinking import (
    OverthinkingFigures,
    find_reference_positions,
    summarise_overthinking,
    trajectory_overthinking,
)
from app.files.snapshot import load_measurements, read_snapshot

AsCell = Callable[..., Cell]
AsMeasurements = Callable[[list[Cell]], Measurements]


def by_hand(benchmark: str = "b") -> Cell:
    """Two questions of two trajectories, M = 4."""
    return build_cell(
        "m",
        benchmark,
        [
            ("q1", "train", [[(0, 1), (100, 4), (200, 4), (400, 3)], [(0, 2), (50, 2), (100, 0)]]),
            ("q2", "test", [[(0, 0), (60, 1), (240, 3)], [(0, 3)]]),
        ],
        4,
    )


def with_originals(cell: Cell, values: list[int]) -> Cell:
    return replace(cell, original_correct=np.array(values, dtype=np.int8))


def test_by_hand(as_measurements: AsMeasurements) -> None:
    cell = with_originals(by_hand(), [1, 0, 1, 1])
    # k*: the earliest of the two positions with 4; position 0 of the tie at 2; the end; the only position.
    assert find_reference_positions(cell).tolist() == [1, 0, 2, 0]
    trajectories = trajectory_overthinking(cell)
    assert trajectories.reference.tolist() == [1, 0, 2, 0]
    # OR: 1 - 100/400 = 3/4, 1 - 0/100 = 1, 1 - 240/240 = 0, and 0 for the trajectory in which nothing was thought.
    assert trajectories.ratio.tolist() == [0.75, 1.0, 0.0, 0.0]
    # AD in probes: 4 - 3, 2 - 0, 3 - 3, 3 - 3.
    assert trajectories.degradation.tolist() == [1, 2, 0, 0]

    [summary] = summarise_overthinking(as_measurements([cell])).cells
    assert (summary.model, summary.benchmark, summary.n_questions, summary.n_trajectories) == ("m", "b", 2, 4)
    assert summary.figures == OverthinkingFigures(
        mean_thinking_tokens=185.0,  # (400 + 100 + 240 + 0) / 4
        full_thinking_accuracy=0.75,  # 3 of 4 original answers
        zero_step_accuracy=0.375,  # (1 + 2 + 0 + 3) / 16
        endpoint_accuracy=0.5625,  # (3 + 0 + 3 + 3) / 16
        overthinking_ratio=0.4375,  # (0.75 + 1 + 0 + 0) / 4
        accuracy_degradation=0.1875,  # (1 + 2 + 0 + 0) / 16
    )


def test_equals_plain_loops(
    random_questions: Callable[..., list[list[list[tuple[int, int]]]]], as_cell: AsCell
) -> None:
    rng = np.random.default_rng(1)
    for _ in range(200):
        questions = random_questions(rng, n_questions=3, per_question=2, probes=3)
        trajectories = [t for question in questions for t in question]
        references, ratios, degradations = [], [], []
        for trajectory in trajectories:
            counts = [c for _, c in trajectory]
            k = counts.index(max(counts))
            references.append(k)
            ratios.append((trajectory[-1][0] - trajectory[k][0]) / trajectory[-1][0] if trajectory[-1][0] else 0.0)
            degradations.append(counts[k] - counts[-1])
        result = trajectory_overthinking(as_cell(questions, 3))
        assert result.reference.tolist() == references
        assert result.ratio.tolist() == ratios
        assert result.degradation.tolist() == degradations


def test_averages_weigh_cells_not_questions(as_measurements: AsMeasurements) -> None:
    # One question with OR 1 in b1; three with OR 0 in b2: the model's average is 1/2, not 1/4.
    falling, rising = [(0, 4), (10, 0)], [(0, 0), (30, 4)]
    cells = [
        build_cell("m1", "b1", [("q", "test", [falling])], 4),
        build_cell("m1", "b2", [(f"q{i}", "test", [rising]) for i in range(3)], 4),
        build_cell("m2", "b1", [("q", "test", [rising])], 4),
        build_cell("m2", "b2", [(f"q{i}", "test", [rising]) for i in range(3)], 4),
    ]
    report = summarise_overthinking(as_measurements(cells))
    assert [(c.model, c.benchmark) for c in report.cells] == [("m1", "b1"), ("m1", "b2"), ("m2", "b1"), ("m2", "b2")]
    model, other = report.by_model["m1"], report.by_model["m2"]
    assert model is not None
    assert other is not None
    assert (model.overthinking_ratio, model.accuracy_degradation, model.mean_thinking_tokens) == (0.5, 0.5, 20.0)
    assert (model.zero_step_accuracy, model.endpoint_accuracy) == (0.5, 0.5)
    assert (other.overthinking_ratio, other.accuracy_degradation, other.mean_thinking_tokens) == (0.0, 0.0, 30.0)
    benchmark = report.by_benchmark["b1"]
    assert benchmark is not None
    assert (benchmark.overthinking_ratio, benchmark.mean_thinking_tokens) == (0.5, 20.0)
    # (1 + 0 + 0 + 0) / 4 = 1/4, which is the mean of the models' 1/2 and 0 and of the benchmarks' 1/2 and 0.
    assert report.macro is not None
    assert (report.macro.overthinking_ratio, report.macro.mean_thinking_tokens) == (0.25, 25.0)


def test_one_unknown_original_answer_leaves_its_averages_undefined(as_measurements: AsMeasurements) -> None:
    known = with_originals(by_hand("b1"), [1, 1, 1, 0])
    partly = with_originals(by_hand("b2"), [1, 1, 1, -1])
    report = summarise_overthinking(as_measurements([known, partly]))
    assert [c.figures.full_thinking_accuracy for c in report.cells] == [0.75, None]
    for average in (report.macro, report.by_model["m"]):
        assert average is not None
        assert average.full_thinking_accuracy is None
        assert average.overthinking_ratio == 0.4375
    assert [f and f.full_thinking_accuracy for f in report.by_benchmark.values()] == [0.75, None]


def test_missing_cell_leaves_its_averages_undefined(as_measurements: AsMeasurements) -> None:
    cells = [by_hand("b1"), by_hand("b2"), replace(by_hand("b1"), model="m2")]
    report = summarise_overthinking(as_measurements(cells))
    assert report.macro is None
    assert [name for name, figures in report.by_model.items() if figures is None] == ["m2"]
    assert [name for name, figures in report.by_benchmark.items() if figures is None] == ["b2"]


def test_benchmark_without_a_question_in_the_split_takes_no_part(as_measurements: AsMeasurements) -> None:
    only_train = build_cell("m", "b2", [("q9", "train", [[(0, 1), (5, 2)], [(0, 1)]])], 4)
    cut = as_measurements([by_hand("b1"), only_train]).select("test")
    report = summarise_overthinking(cut)
    assert [(c.benchmark, c.n_questions) for c in report.cells] == [("b1", 1)]
    # Question q2 alone: ORs 0 and 0, 120 tokens on average.
    assert report.macro is not None
    assert (report.macro.overthinking_ratio, report.macro.mean_thinking_tokens) == (0.0, 120.0)
    assert report.by_model["m"] == report.macro
    assert report.by_benchmark == {"b1": report.macro, "b2": None}


def test_order_of_questions_and_copies_change_not_a_digit(
    random_questions: Callable[..., list[list[list[tuple[int, int]]]]],
    as_cell: AsCell,
    as_measurements: AsMeasurements,
) -> None:
    rng = np.random.default_rng(2)
    cell = as_cell(random_questions(rng, n_questions=40, per_question=3, probes=7), 7)
    [expected] = summarise_overthinking(as_measurements([cell])).cells
    shuffled = cell.take_questions(rng.permutation(40))
    twice = cell.take_questions([*range(40), *range(40)])
    for other in (shuffled, twice):
        [summary] = summarise_overthinking(as_measurements([other])).cells
        assert summary.figures == expected.figures


def test_hidden_labels_have_no_figures(as_measurements: AsMeasurements) -> None:
    hidden = replace(by_hand(), correct_probes=np.where(np.arange(11) == 3, -1, 2).astype(np.int32))
    for function in (find_reference_positions, trajectory_overthinking):
        with pytest.raises(ValueError, match="labels of m on b are hidden"):
            function(hidden)
    with pytest.raises(ValueError, match="labels of m on b are hidden"):
        summarise_overthinking(as_measurements([hidden]))


def test_real_snapshot(real_snapshot: Path) -> None:
    report = summarise_overthinking(load_measurements(read_snapshot(real_snapshot)))
    by_model = {c.model: c for c in report.cells}
    # Computed independently of this code: tokens, OR, AD, zero-step, endpoint.
    published = {
        "DeepSeek-R1-Distill-Qwen-14B": (3668.5, 0.7034, 0.4420, 0.734, 0.50),
        "DeepSeek-R1-Distill-Llama-8B": (3278.75, 0.6199, 0.3305, 0.57, 0.50),
    }
    assert by_model.keys() == published.keys()
    for name, expected in published.items():
        cell = by_model[name]
        figures = cell.figures
        assert (cell.n_questions, cell.n_trajectories) == (10, 20)
        assert figures.mean_thinking_tokens == expected[0]
        assert round(figures.overthinking_ratio, 4) == expected[1]
        assert figures.accuracy_degradation == expected[2]
        assert (figures.zero_step_accuracy, figures.endpoint_accuracy) == expected[3:]
        assert report.by_model[name] == figures
    assert report.macro is not None
    assert report.macro == report.by_benchmark["MATH"]
    for figure in ("overthinking_ratio", "accuracy_degradation", "mean_thinking_tokens"):
        both = [getattr(c.figures, figure) for c in report.cells]
        assert getattr(report.macro, figure) == pytest.approx(sum(both) / 2, rel=1e-15)


def test_full_thinking_is_not_the_endpoint(as_measurements: AsMeasurements) -> None:
    # All original answers are wrong although most probes at the end are right: the two stay different figures.
    [summary] = summarise_overthinking(as_measurements([with_originals(by_hand(), [0, 0, 0, 0])])).cells
    assert (summary.figures.full_thinking_accuracy, summary.figures.endpoint_accuracy) == (0.0, 0.5625)
