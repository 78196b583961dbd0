"""The example methods: each rule by hand on a small snapshot, and what they may not look at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from app.baselines.examples import EXAMPLES, NoTrainingQuestionsError, build_example, list_examples
from app.evaluator.strategies import ActionTable, Strategy, select_positions, sort_settings
from app.files.snapshot import (
    LabelsHiddenError,
    Snapshot,
    UnknownSplitError,
    build_snapshot,
    load_measurements,
    make_public,
    read_snapshot,
)

# Question, split, difficulty, two trajectories of (tokens, correct probes of 4, end margin).
Row = tuple[str, str, int | None, list[list[tuple[int, int, float]]]]
TRAIN_EASY: Row = ("a", "train", 1, [[(0, 4, 3.0), (100, 4, 1.0)], [(0, 3, 2.0), (300, 4, -1.0)]])
TRAIN_HARD: Row = ("b", "train", 5, [[(0, 0, 9.0), (200, 1, 8.0), (600, 4, 0.0)], [(0, 0, 9.0), (1000, 4, 0.5)]])
TEST_EASY: Row = ("c", "test", 1, [[(0, 0, 5.0), (40, 1, -2.0), (80, 2, -3.0)], [(0, 0, -2.0), (400, 4, -2.0)]])
TEST_HARD: Row = ("d", "test", 5, [[(0, 1, 8.5), (700, 2, 8.5)], [(0, 0, 8.5), (750, 2, 7.0), (1600, 0, 0.0)]])
TEST_ODD: Row = ("e", "test", 3, [[(0, 0, 1.0)], [(0, 0, 9.5), (500, 1, 9.5)]])
ROWS = [TRAIN_EASY, TRAIN_HARD, TEST_EASY, TEST_HARD, TEST_ODD]


def make_snapshot(rows: list[Row], *, hidden: tuple[str, ...] = (), with_margins: bool = True) -> Snapshot:
    manifest: dict[str, Any] = {
        "format": "stp-snapshot/1",
        "name": "small",
        "title": "Small",
        "kind": "synthetic",
        "probes_per_position": 4,
        "trajectories_per_question": 2,
        "models": [{"name": "m"}],
        "benchmarks": [{"name": "x", "title": "X"}],
        "hidden_splits": list(hidden),
    }
    questions = pa.table(
        {
            "benchmark": ["x"] * len(rows),
            "question_id": [row[0] for row in rows],
            "split": [row[1] for row in rows],
            "difficulty": pa.array([row[2] for row in rows], pa.int32()),
        }
    )
    curves = [(row[0], t, curve) for row in rows for t, curve in enumerate(row[3])]
    columns: dict[str, Any] = {
        "model": ["m"] * len(curves),
        "benchmark": ["x"] * len(curves),
        "question_id": [question for question, _, _ in curves],
        "trajectory": [t for _, t, _ in curves],
        "thinking_tokens": [curve[-1][0] for _, _, curve in curves],
        "retained_tokens": [[tokens for tokens, _, _ in curve] for _, _, curve in curves],
        "correct_probes": [[correct for _, correct, _ in curve] for _, _, curve in curves],
    }
    if with_margins:
        columns["end_margin"] = [[margin for _, _, margin in curve] for _, _, curve in curves]
    return build_snapshot(manifest, questions, pa.table(columns))


SNAPSHOT = make_snapshot(ROWS)


def find_actions(name: str, setting: str, *, snapshot: Snapshot = SNAPSHOT, split: str = "test") -> list[int]:
    table = build_example(name, snapshot, split=split)
    actions: list[int] = table.cells[0].actions[table.settings.index(setting)].tolist()
    return actions


def test_route_by_difficulty() -> None:
    table = build_example("example-route-by-difficulty", SNAPSHOT, split="test")
    # Training difficulties are 1 and 5; at 6 nothing thinks. Test questions have 1, 5 and 3.
    assert table.settings == ("1", "5", "6")
    assert table.cells[0].actions.tolist() == [[1, 1, 1], [0, 1, 0], [0, 0, 0]]


def test_route_by_training_gain() -> None:
    # Gains of a: 0 and 1, of b: 4 and 4; mean lengths 200 and 800. Per token difficulty 1 gains 0.5 / 200 = 0.0025,
    # difficulty 5 gains 4 / 800 = 0.005; 3 is unseen and takes all, 2.25 / 500 = 0.0045. Of the five questions b and d
    # come first, then e, then a and c, and a share of 0.4 is two of them.
    name = "example-route-by-training-gain"
    assert find_actions(name, "0.2", split="all") == [0, 1, 0, 0, 0]
    assert find_actions(name, "0.4", split="all") == [0, 1, 0, 1, 0]
    assert find_actions(name, "0.6", split="all") == [0, 1, 0, 1, 1]
    assert find_actions(name, "0.8", split="all") == [1, 1, 0, 1, 1]
    assert find_actions(name, "1", split="all") == [1, 1, 1, 1, 1]
    # On one split the same questions think.
    assert find_actions(name, "0.4") == [0, 1, 0]


def test_cap_by_training_length() -> None:
    # Mean lengths: difficulty 1: (100 + 300) / 2 = 200, 5: (600 + 1000) / 2 = 800, all: 500.
    assert find_actions("example-cap-by-training-length", "1") == [200, 800, 500]
    assert find_actions("example-cap-by-training-length", "0.1") == [20, 80, 50]
    assert find_actions("example-cap-by-training-length", "2") == [400, 1600, 1000]


def test_cap_at_training_best() -> None:
    # L(k*): a: 0 and 300, b: 600 and 1000. At 1 the largest of each group, at 0.5 halfway between its two.
    assert find_actions("example-cap-at-training-best", "1") == [300, 1000, 1000]
    assert find_actions("example-cap-at-training-best", "0.5") == [150, 800, 450]


def test_stop_at_token_count() -> None:
    # 200 tokens keep the first easy trajectory whole and cut the second before its only step; 800 and 500 likewise.
    assert find_actions("example-stop-at-token-count", "1") == [2, 0, 1, 1, 0, 1]
    assert find_actions("example-stop-at-token-count", "0.2") == [1, 0, 0, 0, 0, 0]


def test_stop_at_step_count() -> None:
    # k*: a: 0 and 1, b: 2 and 1. Means 0.5, 1.5 and 1 for the unseen difficulty.
    # At 2 times: 1, 3 and 2 steps, cut to each trajectory's own.
    assert find_actions("example-stop-at-step-count", "2") == [1, 1, 1, 2, 0, 1]
    # At 0.5 times: 0.25, 0.75 and 0.5 round to 0, 1 and 0 (halves go to the even number).
    assert find_actions("example-stop-at-step-count", "0.5") == [0, 0, 1, 1, 0, 0]


def test_stop_at_end_margin() -> None:
    # Training margins sorted: -1, 0, 0.5, 1, 2, 3, 8, 9, 9. Setting 1 stops at their least, -1; setting 0.5 at their
    # median, 2; never reaching it means thinking to the end, also where position 0 is all there is.
    assert find_actions("example-stop-at-end-margin", "1") == [1, 0, 1, 2, 0, 1]
    assert find_actions("example-stop-at-end-margin", "0.5") == [1, 0, 1, 2, 0, 1]
    # Setting 0.25 stops at the upper quartile, 8: the second hard trajectory falls below it at its first step.
    assert find_actions("example-stop-at-end-margin", "0.25") == [0, 0, 1, 1, 0, 1]


def test_a_threshold_of_zero_is_a_threshold() -> None:
    """A published method read a threshold of 0 as none at all and never stopped."""
    rows: list[Row] = [
        ("a", "train", 1, [[(0, 0, 0.0), (5, 1, 0.0)], [(0, 0, 0.0), (5, 1, 0.0)]]),
        ("b", "test", 1, [[(0, 0, 0.0), (5, 1, 0.0)], [(0, 0, 1.0), (5, 1, 0.0), (9, 1, 0.0)]]),
    ]
    assert find_actions("example-stop-at-end-margin", "0.5", snapshot=make_snapshot(rows)) == [0, 1]


def test_two_examples_or_more_per_strategy() -> None:
    for strategy in Strategy:
        named = [e for e in EXAMPLES if e.strategy is strategy]
        assert len([e for e in named if e.needs is None or e.needs == "difficulty"]) >= 2
    assert all(e.name.startswith("example-") for e in EXAMPLES)
    assert len({e.name for e in EXAMPLES}) == len(EXAMPLES)


def check_table(table: ActionTable, snapshot: Snapshot, split: str) -> None:
    measurements = load_measurements(snapshot, split)
    assert table.settings == sort_settings(set(table.settings))
    assert len(table.settings) <= 20
    for cell, part in zip(measurements.cells, table.cells, strict=True):
        assert part.covered.all()
        for units in part.actions:
            select_positions(cell, table.strategy, units)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_every_example_is_a_valid_file_of_any_split(example: Any) -> None:
    for split in ("all", "train", "test"):
        check_table(build_example(example.name, SNAPSHOT, split=split), SNAPSHOT, split)
    if example.needs != "difficulty":
        assert len(build_example(example.name, SNAPSHOT, split="test").settings) == 20


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_no_example_reads_labels_outside_the_training_split(example: Any) -> None:
    """The public export, in which they are hidden, gives the same actions."""
    public = make_public(make_snapshot(ROWS, hidden=("test",)))
    assert not load_measurements(public, "test").has_labels
    seen = build_example(example.name, SNAPSHOT, split="test")
    blind = build_example(example.name, public, split="test")
    assert np.array_equal(seen.cells[0].actions, blind.cells[0].actions)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.name)
def test_hidden_training_labels(example: Any) -> None:
    public = make_public(make_snapshot(ROWS, hidden=("train", "test")))
    if example.reads_labels:
        with pytest.raises(LabelsHiddenError, match=example.name):
            build_example(example.name, public, split="test")
    else:
        check_table(build_example(example.name, public, split="test"), public, "test")


def test_examples_whose_column_is_missing_are_left_out() -> None:
    bare = make_snapshot([(q, s, None, t) for q, s, _, t in ROWS], with_margins=False)
    names = {e.name for e in list_examples(bare)}
    assert names == {e.name for e in EXAMPLES if e.needs is None}
    assert {e.name for e in list_examples(SNAPSHOT)} == {e.name for e in EXAMPLES}
    with pytest.raises(ValueError, match="no example 'example-route-by-difficulty'"):
        build_example("example-route-by-difficulty", bare, split="test")
    # Without difficulties all questions are alike: one cap for the benchmark.
    assert find_actions("example-cap-by-training-length", "1", snapshot=bare) == [500, 500, 500]


def test_a_benchmark_without_training_questions() -> None:
    rows = [row for row in ROWS if row[1] != "train"]
    with pytest.raises(NoTrainingQuestionsError, match="benchmark x"):
        build_example("example-cap-by-training-length", make_snapshot(rows), split="test")


def test_an_unknown_split() -> None:
    with pytest.raises(UnknownSplitError):
        build_example("example-cap-by-training-length", SNAPSHOT, split="validation")


def test_examples_of_a_real_snapshot(real_snapshot: Path) -> None:
    snapshot = read_snapshot(real_snapshot)
    for example in list_examples(snapshot):
        for split in ("all", "train", "validation", "test"):
            check_table(build_example(example.name, snapshot, split=split), snapshot, split)
