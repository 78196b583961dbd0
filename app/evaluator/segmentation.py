"""How blocks of thinking tokens become steps: the merge rule, and partitions of recorded blocks for other lengths."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from app.evaluator.compiled import compiled
from app.evaluator.measurements import IntArray

STEP_TOKENS = 256
# A pair's length and place share one 64-bit key, so all tokens of a trajectory must fit 31 bits.
_MOST_TOKENS = 2**31 - 1


@dataclass(frozen=True, eq=False)
class Partition:
    """Consecutive pieces of several trajectories: blocks before merging, steps after.

    Attributes
    ----------
    offsets : int64, trajectories + 1; the pieces of trajectory t are ``offsets[t]:offsets[t + 1]``, maybe none.
    tokens : int64, length of each piece in tokens, at least 1.
    """

    offsets: IntArray
    tokens: IntArray


def split_blocks(ends_block: ArrayLike) -> IntArray:
    """Return the block lengths of a trajectory: a block ends after each boundary token, the rest is a last block.

    Parameters
    ----------
    ends_block : bool, one per thinking token; whether its id is in the tokenizer's boundary set.

    Returns
    -------
    int64, tokens of each block, at least 1; empty for an empty trajectory. Of two boundary tokens in a row the second
    is a block of its own.

    Notes
    -----
    Appendix A.2. O(tokens).

    Examples
    --------
    >>> split_blocks([False, True, True, False, False]).tolist()
    [2, 1, 2]
    """
    boundaries = np.asarray(ends_block, dtype=np.bool_)
    ends = np.flatnonzero(boundaries) + 1
    if boundaries.size and not boundaries[-1]:
        ends = np.append(ends, boundaries.size)
    return np.diff(ends, prepend=0).astype(np.int64)


def count_steps(n_tokens: ArrayLike, n_blocks: ArrayLike, *, step_tokens: int = STEP_TOKENS) -> IntArray:
    """Return how many steps trajectories are cut into: ``max(1, floor(L(n) / b + 1/2))``, at most their blocks.

    An empty trajectory has no block and no step.

    Parameters
    ----------
    n_tokens : integers L(n), at least 0, one per trajectory.
    n_blocks : integers of the same shape, each at most the number of tokens.
    step_tokens : b, the mean length aimed at, in tokens, at least 1.

    Returns
    -------
    int64 of the same shape.

    Notes
    -----
    Appendix A.2. In integers: ``(2 L(n) + b) // (2 b)``.

    Examples
    --------
    640 = 2.5 * 256 rounds up to 3; 639 rounds down to 2.

    >>> count_steps([640, 639, 100, 640, 0], [20, 20, 20, 2, 0]).tolist()
    [3, 2, 1, 2, 0]
    """
    if step_tokens < 1:
        raise ValueError(f"steps have at least one token, not {step_tokens}")
    rounded = (2 * np.asarray(n_tokens, dtype=np.int64) + step_tokens) // (2 * step_tokens)
    return np.minimum(np.asarray(n_blocks, dtype=np.int64), np.maximum(1, rounded))


def merge_blocks(block_tokens: ArrayLike, *, step_tokens: int = STEP_TOKENS) -> IntArray:
    """Return the step lengths of one trajectory.

    While there are more blocks than `count_steps` says, the adjacent pair with the smallest sum of tokens is merged; of
    equal pairs the leftmost.

    Parameters
    ----------
    block_tokens : integers, tokens of each block, at least 1; empty for an empty trajectory.
    step_tokens : b, at least 1.

    Returns
    -------
    int64, tokens of each step, with the same sum.

    Raises
    ------
    ValueError : an empty block, more than 2^31 - 1 tokens, or a b below 1.

    Notes
    -----
    Appendix A.2; cost as for `merge_partition`.

    Examples
    --------
    16 tokens and b = 5 make floor(3.2 + 0.5) = 3 steps. Sums of pairs: 6, 7, 5, 7; merging 3 + 2 leaves 2, 4, 5, 5 with
    the sums 6, 9, 10, so 2 + 4 follows.

    >>> merge_blocks([2, 4, 3, 2, 5], step_tokens=5).tolist()
    [6, 5, 5]
    """
    tokens = np.asarray(block_tokens, dtype=np.int64).reshape(-1)
    blocks = Partition(np.array([0, tokens.size], dtype=np.int64), tokens)
    return merge_partition(blocks, step_tokens=step_tokens).tokens


def merge_partition(blocks: Partition, *, step_tokens: int = STEP_TOKENS) -> Partition:
    """Return the steps of every trajectory from its blocks: the rule of `merge_blocks`, for a target length of choice.

    Parameters
    ----------
    blocks : the recorded blocks before merging.
    step_tokens : b, the mean length aimed at, in tokens, at least 1.

    Returns
    -------
    Partition of the same trajectories; the sum of its lengths up to each step is L(k).

    Raises
    ------
    ValueError : as for `merge_blocks`, or offsets that do not fit the blocks.

    Notes
    -----
    Appendices A.2 and D.1. A binary heap holds one key per pair, its sum in front and the place of its left block
    behind, so that equal sums come leftmost first. A merge leaves the keys of its neighbours in the heap; as sums only
    grow, a key whose sum is no longer its pair's is stale and dropped when it comes up. O(m log m) for m blocks of a
    trajectory. The steps for a larger b also come, faster, from those for a smaller one.

    Examples
    --------
    The second trajectory is short of a step and a half, and becomes one step.

    >>> blocks = Partition(np.array([0, 5, 7, 7]), np.array([2, 4, 3, 2, 5, 3, 4]))
    >>> steps = merge_partition(blocks, step_tokens=5)
    >>> steps.offsets.tolist(), steps.tokens.tolist()
    ([0, 3, 4, 4], [6, 5, 5, 7])
    """
    offsets = np.require(blocks.offsets, np.int64, ["C", "W"])
    tokens = np.require(blocks.tokens, np.int64, ["C", "W"])
    if offsets.size < 1 or offsets[0] != 0 or offsets[-1] != tokens.size or (np.diff(offsets) < 0).any():
        raise ValueError(f"offsets rise from 0 to the number of blocks, {tokens.size}")
    if tokens.size and not 1 <= tokens.min() <= tokens.max() <= _MOST_TOKENS:
        raise ValueError(f"blocks have 1 to {_MOST_TOKENS} tokens, not {tokens.min()} to {tokens.max()}")
    n_tokens = np.diff(np.concatenate([[0], np.cumsum(tokens)])[offsets])
    if (n_tokens > _MOST_TOKENS).any():
        raise ValueError(f"trajectories have at most {_MOST_TOKENS} tokens, not {n_tokens.max()}")
    n_steps = count_steps(n_tokens, np.diff(offsets), step_tokens=step_tokens)
    step_offsets = np.concatenate([[0], np.cumsum(n_steps)]).astype(np.int64)
    steps = np.empty(step_offsets[-1], dtype=np.int64)
    _merge(offsets, tokens, step_offsets, steps)
    return Partition(step_offsets, steps)


@compiled
def _push(heap: IntArray, size: int, key: int) -> None:
    """Put a key into the heap of `size` keys."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if heap[parent] <= key:
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = key


@compiled
def _sink(heap: IntArray, size: int, place: int) -> None:
    """Let the key at a place sink below the smaller ones under it."""
    key = heap[place]
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= key:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = key


@compiled
def _merge(offsets: IntArray, tokens: IntArray, step_offsets: IntArray, steps: IntArray) -> None:
    """Fill the steps of every trajectory."""
    largest = 0
    for t in range(offsets.size - 1):
        largest = max(largest, offsets[t + 1] - offsets[t])
    length = np.empty(largest, np.int64)  # 0 once a block is part of the one to its left
    following = np.empty(largest, np.int64)
    preceding = np.empty(largest, np.int64)
    # A merge takes one key out and puts two in at most.
    heap = np.empty(2 * largest, np.int64)
    for t in range(offsets.size - 1):
        n = offsets[t + 1] - offsets[t]
        for i in range(n):
            length[i] = tokens[offsets[t] + i]
            following[i] = i + 1
            preceding[i] = i - 1
        size = n - 1
        for i in range(size):
            heap[i] = (length[i] + length[i + 1]) << 32 | i
        for i in range(size // 2 - 1, -1, -1):
            _sink(heap, size, i)
        excess = n - (step_offsets[t + 1] - step_offsets[t])
        while excess > 0:
            total = heap[0] >> 32
            i = heap[0] & 0xFFFFFFFF
            size -= 1
            heap[0] = heap[size]
            _sink(heap, size, 0)
            j = following[i]
            if length[i] == 0 or j == n or length[i] + length[j] != total:
                continue
            length[i] = total
            length[j] = 0
            following[i] = following[j]
            excess -= 1
            if following[i] < n:
                preceding[following[i]] = i
                _push(heap, size, (total + length[following[i]]) << 32 | i)
                size += 1
            if preceding[i] >= 0:
                _push(heap, size, (length[preceding[i]] + total) << 32 | preceding[i])
                size += 1
        at = step_offsets[t]
        for i in range(n):
            if length[i] > 0:
                steps[at] = length[i]
                at += 1
