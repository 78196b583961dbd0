"""Draws of the two-stage paired bootstrap: which questions and trajectories a replicate consists of.

Every draw is a function of a key alone, so any replicate can be drawn again by itself, in any order, by any process.

The mixing function is the finaliser of SplitMix64: with all arithmetic modulo 2^64,
``mix(x)``: x ^= x >> 30; x *= 0xBF58476D1CE4E5B9; x ^= x >> 27; x *= 0x94D049BB133111EB; x ^= x >> 31. With
G = 0x9E3779B97F4A7C15, h(name) the first eight bytes, little-endian, of the SHA-256 of the name in UTF-8, and counting
from 0:

- replicate i: ``a = mix(mix(seed + G) + G * (i + 1))``;
- its benchmark: ``b = mix(a ^ h(benchmark))``; its question slot s: ``mix(b + G * (s + 1))``, the same for all models;
- its model: ``c = mix(b ^ h(model))``; slot s of it: ``d = mix(c + G * (s + 1))``; its trajectory slots 4w..4w+3: the
  four groups of 16 bits, from the lowest up, of ``mix(d + G * (w + 1))``.

A 64-bit value x becomes an integer below n without bias: of the product of its upper 32 bits with n the upper half is
the integer, unless the lower half is below 2^32 mod n; then x is replaced by ``mix(x + G)`` and tried again. A group of
16 bits goes the same way with 2^16 in place of 2^32; if it is refused, ``mix(x ^ (j + 1))`` takes its place, x being
the word it came from and j the trajectory slot, and becomes an integer as a 64-bit value does.
"""

from __future__ import annotations

import hashlib
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.compiled import compiled
from app.evaluator.measurements import Cell, IntArray, Measurements

BOOTSTRAP_SEED = 20260721
_LARGEST_SEED = 2**63 - 1
_MOST_TRAJECTORIES = 2**16
# So many replicates' multiplicities are made at a time, which keeps them in the processor's cache.
_CHUNK = 64
_LARGEST_FLOAT = 2**53
# Counts of so many trajectories of a question are kept in two words while they are drawn, in 8 bits each.
_MOST_PACKED = 16
_LARGEST_PACKED = 255


@dataclass(frozen=True, eq=False)
class CellDraw:
    """What a replicate drew in one cell.

    Attributes
    ----------
    model, benchmark : the cell.
    question_idx : int64, one per question slot: the question drawn, 0..N-1.
    trajectory_idx : int64, slots x R: the trajectories drawn of that question, 0..R-1, with replacement.
    """

    model: str
    benchmark: str
    question_idx: IntArray
    trajectory_idx: IntArray


@dataclass(frozen=True, eq=False)
class ReplicateDraw:
    """What a replicate drew: one `CellDraw` per cell in the measurements' order."""

    seed: int
    replicate: int
    cells: tuple[CellDraw, ...]


def draw_replicate(measurements: Measurements, replicate: int, *, seed: int = BOOTSTRAP_SEED) -> ReplicateDraw:
    """Draw a replicate: as many questions as each benchmark has, then R trajectories of every drawn occurrence.

    The questions are the same for all models of a benchmark; two occurrences of a question draw their trajectories
    independently of one another, and so do two models.

    Parameters
    ----------
    replicate : its number, from 0.
    seed : from 0 to 2^63 - 1.

    Raises
    ------
    ValueError : a number outside its range.

    Notes
    -----
    Section 5. The module says how a draw follows from its key. O(trajectories).

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> curves = [[(0, 1), (10, 4)], [(0, 0), (20, 3)]]
    >>> cell = build_cell("m", "b", [("p", "test", curves), ("q", "test", curves)], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "all", 4, 2, ("m",), ("b",), (cell,))
    >>> drawn = draw_replicate(measurements, 0).cells[0]
    >>> drawn.question_idx.shape, drawn.trajectory_idx.shape
    ((2,), (2, 2))
    """
    key = find_replicate_keys(range(replicate, replicate + 1), seed=seed)
    if measurements.trajectories_per_question > _MOST_TRAJECTORIES:
        raise ValueError(f"at most {_MOST_TRAJECTORIES} trajectories of a question can be drawn from")
    cells = []
    for cell in measurements.cells:
        question_idx = np.empty((1, cell.n_questions), np.int32)
        trajectory_idx = np.empty((1, cell.n_questions, cell.trajectories_per_question), np.int32)
        _draw_indices(key, hash_name(cell.benchmark), hash_name(cell.model), question_idx, trajectory_idx)
        cells.append(
            CellDraw(cell.model, cell.benchmark, question_idx[0].astype(np.int64), trajectory_idx[0].astype(np.int64))
        )
    return ReplicateDraw(seed, replicate, tuple(cells))


def resample_cell(cell: Cell, draw: CellDraw) -> Cell:
    """Return the cell a replicate consists of, each drawn occurrence a question of its own.

    The textbook programs run on it, which is how the fast ones are checked. Occurrence s of question q is named "q#s".

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (10, 4)], [(0, 0), (20, 3)]])], 4)
    >>> resampled = resample_cell(cell, CellDraw("m", "b", np.array([0]), np.array([[1, 1]])))
    >>> resampled.question_ids, resampled.thinking_tokens.tolist()
    (('q#0',), [20, 20])
    """
    per_question = cell.trajectories_per_question
    # A cell of one trajectory a question: taking its "questions" takes trajectories.
    trajectories = replace(
        cell,
        question_ids=tuple(str(i) for i in range(cell.n_trajectories)),
        question_splits=tuple(np.repeat(cell.question_splits, per_question).tolist()),
        trajectories_per_question=1,
    )
    taken = trajectories.take_questions((draw.question_idx[:, None] * per_question + draw.trajectory_idx).reshape(-1))
    return replace(
        taken,
        question_ids=tuple(f"{cell.question_ids[q]}#{slot}" for slot, q in enumerate(draw.question_idx.tolist())),
        question_splits=tuple(cell.question_splits[q] for q in draw.question_idx),
        trajectories_per_question=per_question,
    )


@dataclass(frozen=True, eq=False)
class CellCounts:
    """The draws of several replicates in one cell, as multiplicities.

    Attributes
    ----------
    question_idx : int32, replicates x slots.
    counts : int32, replicates x slots x R: how often the slot drew each trajectory of its question.
    weights : int32, replicates x trajectories of the cell: how often each was drawn in all.
    """

    question_idx: NDArray[np.int32]
    counts: NDArray[np.int32]
    weights: NDArray[np.int32]


def count_draws(cell: Cell, replicates: range, *, seed: int) -> CellCounts:
    """Return the draws of consecutive replicates in a cell as multiplicities; the same draws as `draw_replicate`."""
    n, per_question = cell.n_questions, cell.trajectories_per_question
    drawn = CellCounts(
        question_idx=np.empty((len(replicates), n), np.int32),
        counts=np.zeros((len(replicates), n, per_question), np.int32),
        weights=np.zeros((len(replicates), n * per_question), np.int32),
    )
    keys = find_replicate_keys(replicates, seed=seed)
    names = hash_name(cell.benchmark), hash_name(cell.model)
    _draw_counts(keys, *names, drawn.question_idx, drawn.counts, drawn.weights)
    return drawn


def count_weights(
    cell: Cell, replicates: range, *, seed: int, dtype: type[np.int32 | np.float64] = np.int32
) -> NDArray[Any]:
    """Return only how often each trajectory was drawn in all, replicates x trajectories."""
    weights = np.zeros((len(replicates), cell.n_trajectories), dtype)
    keys = find_replicate_keys(replicates, seed=seed)
    names = hash_name(cell.benchmark), hash_name(cell.model)
    # The bytes of a packed word are counts in the order of the trajectories where the lowest comes first.
    largest = _LARGEST_PACKED if sys.byteorder == "little" else 0
    _draw_weights(keys, *names, cell.n_questions, cell.trajectories_per_question, largest, weights)
    return weights


def exact_columns(values: IntArray) -> NDArray[Any]:
    """Return columns (trajectories x columns, each >= 0) as `sum_draws` is fastest with: floats where sums stay exact.

    That is where trajectories times the largest value does not pass 2^53.
    """
    is_exact = len(values) * int(values.max(initial=0)) < _LARGEST_FLOAT
    return values.astype(np.float64) if is_exact else values


def sum_draws(cell: Cell, columns: NDArray[Any], *, replicates: range, seed: int) -> IntArray:
    """Return the sums of columns over the trajectories that each replicate draws, each as often as it is drawn.

    Parameters
    ----------
    columns : trajectories x columns, as `exact_columns` returns them; trajectories times the largest value fit in
        int64.

    Returns
    -------
    int64, replicates x columns.

    Notes
    -----
    A product of matrices, in floats where no sum passes 2^53, so that each is exact. O(trajectories x columns) a
    replicate.

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (10, 4)]])], 4)
    >>> sum_draws(cell, exact_columns(np.array([[10, 4]])), replicates=range(2), seed=0).tolist()
    [[10, 4], [10, 4]]
    """
    dtype = np.float64 if columns.dtype == np.float64 else np.int32
    sums = np.empty((len(replicates), columns.shape[1]), np.int64)
    for start in range(0, len(replicates), _CHUNK):
        rows = slice(start, min(start + _CHUNK, len(replicates)))
        sums[rows] = count_weights(cell, replicates[rows], seed=seed, dtype=dtype) @ columns
    return sums


def hash_name(name: str) -> np.uint64:
    """Return the 64-bit word that stands for a name in a key.

    Examples
    --------
    >>> int(hash_name("")) == int.from_bytes(bytes.fromhex("e3b0c44298fc1c14"), "little")
    True
    """
    return np.uint64(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little"))


def find_replicate_keys(replicates: range, *, seed: int) -> NDArray[np.uint64]:
    """Return the key of each replicate, uint64.

    Raises
    ------
    ValueError : a seed or a number outside its range, or a range that skips some.
    """
    if not 0 <= seed <= _LARGEST_SEED:
        raise ValueError(f"a seed lies in 0..2^63-1, got {seed}")
    if replicates.step != 1 or replicates.start < 0 or replicates.stop > _LARGEST_SEED:
        raise ValueError(f"replicates are consecutive and numbered from 0, got {replicates}")
    keys = np.empty(len(replicates), np.uint64)
    _derive_keys(np.uint64(seed), np.uint64(replicates.start), keys)
    return keys


@compiled
def _mix(value: Any) -> Any:
    """Scramble 64 bits: the finaliser of SplitMix64."""
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))


@compiled
def _number(key: Any, i: int) -> Any:
    """Return number i of the stream that a key begins."""
    return _mix(key + np.uint64(0x9E3779B97F4A7C15) * np.uint64(i + 1))


@compiled
def _bound(value: Any, n: Any) -> Any:
    """Turn 64 random bits into an integer below n (uint64, under 2^32), each equally likely."""
    product = (value >> np.uint64(32)) * n
    rest = product & np.uint64(0xFFFFFFFF)
    if rest < n:
        least = np.uint64(2**32) % n
        while rest < least:
            value = _mix(value + np.uint64(0x9E3779B97F4A7C15))
            product = (value >> np.uint64(32)) * n
            rest = product & np.uint64(0xFFFFFFFF)
    return np.int64(product >> np.uint64(32))


@compiled
def _bound_part(word: Any, j: int, n: Any) -> Any:
    """Turn trajectory slot j's 16 bits of a word into an integer below n (at most 2^16), each equally likely."""
    product = ((word >> np.uint64(16 * (j & 3))) & np.uint64(0xFFFF)) * n
    rest = product & np.uint64(0xFFFF)
    if rest < n and rest < np.uint64(2**16) % n:
        return _bound(_mix(word ^ np.uint64(j + 1)), n)
    return np.int64(product >> np.uint64(16))


@compiled
def _tally_word(word: Any, first: int, size: int, n: Any, row: Any) -> None:
    """Add one to the entry of each of a word's trajectory slots, which are `first` and so many in all."""
    rest_of_word = word
    for j in range(first, first + size):
        product = (rest_of_word & np.uint64(0xFFFF)) * n
        rest_of_word >>= np.uint64(16)
        rest = product & np.uint64(0xFFFF)
        if rest < n and rest < np.uint64(2**16) % n:
            row[_bound(_mix(word ^ np.uint64(j + 1)), n)] += 1
        else:
            row[product >> np.uint64(16)] += 1


@compiled
def _tally_slot(key: Any, n: Any, row: Any) -> None:
    """Add what a question slot draws to its question's row, an entry per trajectory."""
    full = row.size >> 2
    for word in range(full):
        _tally_word(_number(key, word), 4 * word, 4, n, row)
    if row.size > 4 * full:
        _tally_word(_number(key, full), 4 * full, row.size - 4 * full, n, row)


@compiled
def _derive_keys(seed: Any, first: Any, keys: Any) -> None:
    root = _number(seed, 0)
    for i in range(keys.size):
        keys[i] = _number(root, first + np.uint64(i))


@compiled
def _draw_indices(keys: Any, benchmark: Any, model: Any, question_idx: Any, trajectory_idx: Any) -> None:
    n_slots, per_question = trajectory_idx.shape[1:]
    for i in range(keys.size):
        of_benchmark = _mix(keys[i] ^ benchmark)
        of_model = _mix(of_benchmark ^ model)
        for s in range(n_slots):
            question_idx[i, s] = _bound(_number(of_benchmark, s), np.uint64(n_slots))
            of_slot = _number(of_model, s)
            for j in range(per_question):
                trajectory_idx[i, s, j] = _bound_part(_number(of_slot, j >> 2), j, np.uint64(per_question))


@compiled
def _draw_counts(keys: Any, benchmark: Any, model: Any, question_idx: Any, counts: Any, weights: Any) -> None:
    n_slots, per_question = counts.shape[1:]
    for i in range(keys.size):
        of_benchmark = _mix(keys[i] ^ benchmark)
        of_model = _mix(of_benchmark ^ model)
        for s in range(n_slots):
            q = _bound(_number(of_benchmark, s), np.uint64(n_slots))
            question_idx[i, s] = q
            of_slot = counts[i, s]
            _tally_slot(_number(of_model, s), np.uint64(per_question), of_slot)
            of_question = weights[i, q * per_question : (q + 1) * per_question]
            for j in range(per_question):
                of_question[j] += of_slot[j]


@compiled
def _pack_slot(key: Any, per_question: int) -> Any:
    """Return how often a question slot draws each of at most 16 trajectories, in 8 bits each of two words.

    Counters in registers do not wait for one another as those in memory do when a trajectory is drawn again.
    """
    low = high = np.uint64(0)
    n = np.uint64(per_question)
    for first in range(0, per_question, 4):
        word = _number(key, first >> 2)
        rest_of_word = word
        for j in range(first, min(first + 4, per_question)):
            product = (rest_of_word & np.uint64(0xFFFF)) * n
            rest_of_word >>= np.uint64(16)
            rest = product & np.uint64(0xFFFF)
            at = product >> np.uint64(16)
            if rest < n and rest < np.uint64(2**16) % n:
                at = np.uint64(_bound(_mix(word ^ np.uint64(j + 1)), n))
            one = np.uint64(1) << ((at & np.uint64(7)) << np.uint64(3))
            in_high = np.uint64(0) - (at >> np.uint64(3))
            high += one & in_high
            low += one & ~in_high
    return low, high


@compiled
def _pack_slots(of_model: Any, per_question: int, words: Any, low: Any, high: Any) -> None:
    """Fill what `_pack_slot` returns for each question slot, where 4, 8 or 16 trajectories divide 16 bits evenly.

    No draw has to be repeated, so the compiler makes vectors of the slots. `words`: per_question / 4 x slots, uint64.
    """
    n = np.uint64(per_question)
    for s in range(low.size):
        key = _number(of_model, s)
        for w in range(words.shape[0]):
            words[w, s] = _number(key, w)
    low[:] = 0
    high[:] = 0
    for w in range(words.shape[0]):
        of_word = words[w]
        for part in range(4):
            shift = np.uint64(16 * part)
            for s in range(low.size):
                at = (((of_word[s] >> shift) & np.uint64(0xFFFF)) * n) >> np.uint64(16)
                one = np.uint64(1) << ((at & np.uint64(7)) << np.uint64(3))
                in_high = np.uint64(0) - (at >> np.uint64(3))
                high[s] += one & in_high
                low[s] += one & ~in_high


@compiled
def _unpack(counts: Any, per_question: int, row: Any) -> None:
    """Write the counts of questions' trajectories, 16 bytes a question, into a row."""
    for q in range(counts.size // 16):
        source = counts[16 * q : 16 * q + per_question]
        target = row[q * per_question : (q + 1) * per_question]
        for j in range(target.size):
            target[j] = source[j]


@compiled
def _draw_weights(
    keys: Any, benchmark: Any, model: Any, n_slots: int, per_question: int, largest: int, weights: Any
) -> None:
    """Fill rows of zeros; counts are packed where none can pass the largest, at most 255."""
    n = np.uint64(per_question)
    drawn = np.empty(n_slots, np.int64)
    times = np.empty(n_slots, np.int64)
    packed = np.empty((n_slots, 2), np.uint64)
    words = np.empty((per_question >> 2, n_slots), np.uint64)
    low = np.empty(n_slots, np.uint64)
    high = np.empty(n_slots, np.uint64)
    is_even = per_question == 4 or per_question == 8 or per_question == 16
    for i in range(keys.size):
        of_benchmark = _mix(keys[i] ^ benchmark)
        of_model = _mix(of_benchmark ^ model)
        times[:] = 0
        for s in range(n_slots):
            drawn[s] = _bound(_number(of_benchmark, s), np.uint64(n_slots))
            times[drawn[s]] += 1
        if per_question <= _MOST_PACKED and times.max() * per_question <= largest:
            packed[:] = 0
            if is_even:
                _pack_slots(of_model, per_question, words, low, high)
            else:
                for s in range(n_slots):
                    low[s], high[s] = _pack_slot(_number(of_model, s), per_question)
            for s in range(n_slots):
                packed[drawn[s], 0] += low[s]
                packed[drawn[s], 1] += high[s]
            _unpack(packed.reshape(-1).view(np.uint8), per_question, weights[i])
        else:
            for s in range(n_slots):
                of_question = weights[i, drawn[s] * per_question : (drawn[s] + 1) * per_question]
                _tally_slot(_number(of_model, s), n, of_question)
