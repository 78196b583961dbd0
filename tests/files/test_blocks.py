"""Blocks of a snapshot as partitions, and the steps for other lengths that follow from them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from app.evaluator.segmentation import merge_blocks, merge_partition
from app.files.blocks import load_blocks
from app.files.snapshot import Snapshot, build_snapshot


def as_lists(partition: Any) -> list[list[int]]:
    return [partition.tokens[a:b].tolist() for a, b in pairwise(partition.offsets.tolist())]


@pytest.fixture
def blocked(parts: Any) -> Any:
    """The small snapshot with blocks of at most 60 tokens; the trajectory without thinking has none."""
    for row in parts.trajectories:
        whole, rest = divmod(row["thinking_tokens"], 60)
        row["block_tokens"] = [60] * whole + [rest] * (rest > 0)
    return parts


def build(parts: Any) -> Snapshot:
    return build_snapshot(parts.manifest, parts.question_table(), parts.trajectory_table())


def test_blocks_of_every_trajectory_in_canonical_order(blocked: Any) -> None:
    snapshot = build(blocked)
    blocks = load_blocks(snapshot)
    assert blocks is not None
    assert list(blocks) == list(snapshot.manifest.models)
    for model, partition in blocks.items():
        rows = [row for row in snapshot.trajectories.to_pylist() if row["model"] == model]
        assert as_lists(partition) == [row["block_tokens"] for row in rows]
        assert [] in as_lists(partition)


def test_blocks_of_one_split(blocked: Any) -> None:
    snapshot = build(blocked)
    chosen = {(q["benchmark"], q["question_id"]) for q in snapshot.questions.to_pylist() if q["split"] == "test"}
    blocks = load_blocks(snapshot, "test")
    assert blocks is not None
    for model, partition in blocks.items():
        rows = [row for row in snapshot.trajectories.to_pylist() if row["model"] == model]
        expected = [row["block_tokens"] for row in rows if (row["benchmark"], row["question_id"]) in chosen]
        assert as_lists(partition) == expected
        assert 0 < len(expected) < len(rows)


@pytest.mark.parametrize("step_tokens", [128, 256, 512])
def test_steps_of_other_lengths_follow_from_the_blocks(blocked: Any, step_tokens: int) -> None:
    snapshot = build(blocked)
    blocks = load_blocks(snapshot)
    assert blocks is not None
    for model, partition in blocks.items():
        rows = [row for row in snapshot.trajectories.to_pylist() if row["model"] == model]
        steps = as_lists(merge_partition(partition, step_tokens=step_tokens))
        assert steps == [merge_blocks(row["block_tokens"], step_tokens=step_tokens).tolist() for row in rows]
        assert [sum(lengths) for lengths in steps] == [row["thinking_tokens"] for row in rows]


def test_no_blocks_unless_all_are_stored(parts: Any, blocked: Any) -> None:
    row = blocked.trajectories[0]
    row["block_tokens"] = None
    snapshot = build(blocked)
    assert load_blocks(snapshot) is None
    # A split that this trajectory is not in has all of its own.
    unit = (row["benchmark"], row["question_id"])
    split_of = {(q["benchmark"], q["question_id"]): q["split"] for q in snapshot.questions.to_pylist()}
    assert load_blocks(snapshot, split_of[unit]) is None
    others = {"train", "validation", "test"} - {split_of[unit]}
    assert all(load_blocks(snapshot, split) is not None for split in others)
