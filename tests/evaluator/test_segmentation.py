"""Blocks and steps: by hand, and against the merge rule as it reads, on many lists full of ties."""

from __future__ import annotations

from itertools import accumulate, pairwise

import numpy as np
import pytest

from app.evaluator.segmentation import Partition, count_steps, merge_blocks, merge_partition, split_blocks


def merge_naively(blocks: list[int], step_tokens: int) -> list[int]:
    """The rule as it reads; `min` finds the leftmost of equal sums."""
    steps = list(blocks)
    # floor(L / b + 1/2), halves upwards, without fractions.
    whole, rest = divmod(sum(blocks), step_tokens)
    target = max(1, whole + (2 * rest >= step_tokens))
    while len(steps) > target:
        sums = [left + right for left, right in pairwise(steps)]
        i = sums.index(min(sums))
        steps[i : i + 2] = [sums[i]]
    return steps


def split_naively(ends_block: list[bool]) -> list[int]:
    blocks, length = [], 0
    for ends in ends_block:
        length += 1
        if ends:
            blocks.append(length)
            length = 0
    return [*blocks, length] if length else blocks


def as_partition(lists: list[list[int]]) -> Partition:
    offsets = np.array([0, *accumulate(len(blocks) for blocks in lists)], dtype=np.int64)
    return Partition(offsets, np.array([tokens for blocks in lists for tokens in blocks], dtype=np.int64))


def as_lists(partition: Partition) -> list[list[int]]:
    bounds = partition.offsets.tolist()
    return [partition.tokens[a:b].tolist() for a, b in pairwise(bounds)]


def test_blocks_by_hand() -> None:
    # A boundary first, two in a row, tokens after the last one.
    assert split_blocks([True, False, True, True, False]).tolist() == [1, 2, 1, 1]
    assert split_blocks([False, True]).tolist() == [2]
    assert split_blocks([False, False]).tolist() == [2]
    assert split_blocks([]).tolist() == []


def test_blocks_equal_a_plain_loop() -> None:
    rng = np.random.default_rng(1)
    for _ in range(500):
        ends_block = (rng.random(int(rng.integers(0, 12))) < 0.4).tolist()
        assert split_blocks(ends_block).tolist() == split_naively(ends_block)


def test_number_of_steps_by_hand() -> None:
    # b = 256: 127 / 256 rounds to 0, at least 1; 128 / 256 is a half, 384 / 256 is one and a half, both go up.
    assert count_steps([1, 127, 128, 383, 384, 896], [9] * 6).tolist() == [1, 1, 1, 1, 2, 4]
    # Odd b: 2.5 is a half of 5, but no whole number of tokens is.
    assert count_steps([12, 13], [9, 9], step_tokens=5).tolist() == [2, 3]
    # Never more steps than blocks; nothing for nothing.
    assert count_steps([9000, 0], [3, 0]).tolist() == [3, 0]
    with pytest.raises(ValueError, match="at least one token"):
        count_steps(5, 1, step_tokens=0)


def test_merging_by_hand() -> None:
    # 8 tokens, b = 4: two steps. All sums are 4, so the leftmost pair goes first: (4) 2 2 has the sums 6 and 4.
    assert merge_blocks([2, 2, 2, 2], step_tokens=4).tolist() == [4, 4]
    # Sums 6, 7, 6: the left 6 first, then 6 + 4 = 10 against 4 + 2 = 6.
    assert merge_blocks([3, 3, 4, 2], step_tokens=6).tolist() == [6, 6]
    # A long block is never cut, however small b is.
    assert merge_blocks([900], step_tokens=100).tolist() == [900]
    assert merge_blocks([1, 900, 1], step_tokens=1).tolist() == [1, 900, 1]
    assert merge_blocks([1, 1, 1], step_tokens=1000).tolist() == [3]
    assert merge_blocks([], step_tokens=256).tolist() == []


def test_merging_equals_the_rule_on_lists_full_of_ties() -> None:
    rng = np.random.default_rng(2)
    for step_tokens in (1, 2, 3, 5, 8, 13, 40):
        lists = []
        for _ in range(1800):
            kinds = [(1,), (1, 2), (1, 2, 3), (2, 4), (1, 9), tuple(range(1, 30))][int(rng.integers(6))]
            lists.append(rng.choice(kinds, int(rng.integers(0, 22))).tolist())
        steps = as_lists(merge_partition(as_partition(lists), step_tokens=step_tokens))
        assert steps == [merge_naively(blocks, step_tokens) for blocks in lists]


def test_merging_equals_the_rule_on_long_lists() -> None:
    rng = np.random.default_rng(3)
    lists = [rng.integers(1, most + 1, 400).tolist() for most in (1, 2, 40, 400)]
    for step_tokens in (7, 60, 100_000):
        steps = as_lists(merge_partition(as_partition(lists), step_tokens=step_tokens))
        assert steps == [merge_naively(blocks, step_tokens) for blocks in lists]


def test_one_trajectory_at_a_time_gives_the_same() -> None:
    rng = np.random.default_rng(4)
    lists = [rng.integers(1, 5, int(rng.integers(0, 30))).tolist() for _ in range(50)]
    together = as_lists(merge_partition(as_partition(lists), step_tokens=9))
    assert [merge_blocks(np.array(blocks, dtype=np.int32), step_tokens=9).tolist() for blocks in lists] == together


def test_a_larger_target_only_merges_further() -> None:
    # Which pair is merged next depends on the steps alone, so the steps for 2 b also come from those for b.
    rng = np.random.default_rng(5)
    blocks = as_partition([rng.integers(1, 9, 40).tolist() for _ in range(100)])
    fine, coarse = (merge_partition(blocks, step_tokens=b) for b in (10, 20))
    assert as_lists(merge_partition(fine, step_tokens=20)) == as_lists(coarse)
    assert coarse.tokens.size < fine.tokens.size < blocks.tokens.size


def test_large_lengths_keep_their_order() -> None:
    # The sum and the place share a key; here the sums fill the upper half to its last bit.
    blocks = [2**30, 2**30 - 3, 1, 1]
    assert merge_blocks(blocks, step_tokens=2**30).tolist() == merge_naively(blocks, 2**30) == [2**30, 2**30 - 1]


def test_no_trajectory_at_all() -> None:
    empty = merge_partition(Partition(np.array([0]), np.empty(0, dtype=np.int64)))
    assert (empty.offsets.tolist(), empty.tokens.tolist()) == ([0], [])


@pytest.mark.parametrize(
    ("offsets", "tokens", "message"),
    [
        ([0, 1], [0], "1 to 2147483647 tokens"),
        ([0, 1], [2**31], "1 to 2147483647 tokens"),
        ([0, 2], [2**30, 2**30], "at most 2147483647"),
        ([0, 1], [1, 1], "offsets rise"),
        ([1, 2], [1, 1], "offsets rise"),
        ([0, 2, 1, 2], [1, 1], "offsets rise"),
        ([], [], "offsets rise"),
    ],
)
def test_broken_blocks_are_refused(offsets: list[int], tokens: list[int], message: str) -> None:
    blocks = Partition(np.array(offsets, dtype=np.int64), np.array(tokens, dtype=np.int64))
    with pytest.raises(ValueError, match=message):
        merge_partition(blocks)
