"""Cells and measurements: what they hold, and how they are cut."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from app.evaluator.measurements import Cell, Measurements, build_cell

AsMeasurements = Callable[[list[Cell]], Measurements]


def by_hand(model: str = "m", benchmark: str = "b") -> Cell:
    """Three questions of two trajectories, M = 4, with every original answer known."""
    cell = build_cell(
        model,
        benchmark,
        [
            ("q1", "train", [[(0, 1), (5, 4)], [(0, 0), (3, 2), (9, 1)]]),
            ("q2", "test", [[(0, 2)], [(0, 3), (7, 3)]]),
            ("q3", "train", [[(0, 0), (4, 1), (6, 2)], [(0, 4)]]),
        ],
        4,
    )
    return replace(cell, original_correct=np.array([1, 0, 1, 1, 0, 1], dtype=np.int8))


def curves_of(cell: Cell) -> list[list[tuple[int, int]]]:
    pairs = list(zip(cell.retained_tokens.tolist(), cell.correct_probes.tolist(), strict=True))
    return [pairs[start:end] for start, end in zip(cell.offsets[:-1], cell.offsets[1:], strict=True)]


def test_cell_by_hand() -> None:
    cell = by_hand()
    assert (cell.n_questions, cell.n_trajectories, cell.total_probes) == (3, 6, 24)
    assert cell.offsets.tolist() == [0, 2, 5, 6, 8, 11, 12]
    assert cell.n_steps.tolist() == [1, 2, 0, 1, 2, 0]
    assert cell.first_idx.tolist() == [0, 2, 5, 6, 8, 11]
    assert cell.last_idx.tolist() == [1, 4, 5, 7, 10, 11]
    assert cell.trajectory_of_position.tolist() == [0, 0, 1, 1, 1, 2, 3, 3, 4, 4, 4, 5]
    assert cell.thinking_tokens.tolist() == [5, 9, 0, 7, 6, 0]
    assert cell.total_thinking_tokens == 27
    assert cell.zero_correct.tolist() == [1, 0, 2, 3, 0, 4]
    assert cell.endpoint_correct.tolist() == [4, 1, 2, 3, 2, 4]
    assert cell.has_labels
    assert (cell.retained_tokens.dtype, cell.correct_probes.dtype) == (np.int32, np.int32)
    assert cell.thinking_tokens.dtype == cell.endpoint_correct.dtype == np.int64


def test_totals_do_not_overflow() -> None:
    # Two trajectories near the largest length that 32 bits hold: their sum needs more.
    cell = build_cell("m", "b", [("q", "test", [[(0, 0), (2**31 - 1, 1)]] * 2)], 4)
    assert cell.total_thinking_tokens == 2**32 - 2


def test_questions_must_agree_on_their_number_of_trajectories() -> None:
    with pytest.raises(ValueError, match=r"differ in their number of trajectories: \[1, 2\]"):
        build_cell("m", "b", [("q1", "test", [[(0, 1)]]), ("q2", "test", [[(0, 1)], [(0, 1)]])], 4)


def test_unknown_answers_are_marked() -> None:
    cell = build_cell("m", "b", [("q", "test", [[(0, 1)], [(0, 2)]])], 4)
    assert cell.original_correct.tolist() == cell.direct_correct.tolist() == [-1, -1]
    assert cell.original_correct is not cell.direct_correct


def test_one_hidden_position_hides_the_cell() -> None:
    cell = by_hand()
    labels = cell.correct_probes.copy()
    labels[7] = -1
    assert not replace(cell, correct_probes=labels).has_labels


def test_questions_are_taken_in_the_order_asked_for() -> None:
    cell = by_hand()
    whole = curves_of(cell)
    taken = cell.take_questions([2, 0, 2])
    assert taken.question_ids == ("q3", "q1", "q3")
    assert taken.question_splits == ("train", "train", "train")
    assert curves_of(taken) == [whole[t] for t in (4, 5, 0, 1, 4, 5)]
    assert taken.original_correct.tolist() == [0, 1, 1, 0, 0, 1]
    assert (taken.model, taken.benchmark, taken.probes_per_position) == ("m", "b", 4)
    # Figures that the first cell has already computed and kept are those of the new cell here.
    assert cell.total_thinking_tokens == 27
    assert taken.total_thinking_tokens == 6 + 5 + 9 + 6
    assert curves_of(cell.take_questions(np.arange(3))) == whole


def test_split_holds_its_questions_only(as_measurements: AsMeasurements) -> None:
    no_test = build_cell("m", "b2", [("q9", "train", [[(0, 1), (5, 2)], [(0, 1)]])], 4)
    measurements = as_measurements([by_hand(), no_test])
    train, test = measurements.select("train"), measurements.select("test")
    assert [c.question_ids for c in train.cells] == [("q1", "q3"), ("q9",)]
    # A cell without a question in the split is not a cell of it.
    assert [(c.benchmark, c.question_ids) for c in test.cells] == [("b", ("q2",))]
    assert (train.split, test.split) == ("train", "test")
    assert (test.models, test.benchmarks) == (("m",), ("b", "b2"))
    assert measurements.select("all") is measurements
    assert train.select("train") is train


def test_splits_that_cannot_be_cut(as_measurements: AsMeasurements) -> None:
    measurements = as_measurements([by_hand()])
    with pytest.raises(ValueError, match="unknown split 'dev'"):
        measurements.select("dev")
    with pytest.raises(ValueError, match="no question in split validation"):
        measurements.select("validation")
    with pytest.raises(ValueError, match="hold only the train split"):
        measurements.select("train").select("test")


def test_cells_are_found_by_name(as_measurements: AsMeasurements) -> None:
    measurements = as_measurements([by_hand("m1"), by_hand("m2")])
    assert measurements.find_cell("m2", "b") is measurements.cells[1]
    assert measurements.find_cell("b", "m2") is None


def test_hidden_cell_hides_the_measurements_but_not_another_split(as_measurements: AsMeasurements) -> None:
    cell = by_hand()
    hidden = replace(
        cell, correct_probes=np.where(np.isin(cell.trajectory_of_position, [2, 3]), -1, 1).astype(np.int32)
    )
    measurements = as_measurements([hidden])
    assert not measurements.has_labels
    assert measurements.select("train").has_labels
    assert not measurements.select("test").has_labels
