"""Actions of fixed budgets in drawn cells: listed for many drawn occurrences of a question side by side.

A drawn occurrence is its question with multiplicities of its trajectories. Its actions follow from one walk over what
changes between the question's useful caps, in the order of caps. All of a question's occurrences, of whatever
replicate, take that walk together, each in a lane of its own: the compiler makes vectors of the lanes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.compiled import compiled
from app.evaluator.measurements import IntArray

# Fewer lanes and the compiler unrolls their loops instead of making vectors of them; the surplus ones draw nothing. Two
# times as many take the occurrences of a question in a hundred replicates, most times.
_LANES = 56


def describe_events(events: IntArray) -> list[tuple[int, int, int, bool]]:
    """Return packed events as (trajectory, tokens more, probes more, whether a cap ends there), to be read.

    Examples
    --------
    The first trajectory has 4 probes right at 5 tokens. The second has 2 right at 5, 1 at 7, 3 at 9, and 0 at 12, which
    no cap is worth.

    >>> offsets, retained = np.array([0, 2, 7]), np.array([0, 5, 0, 5, 7, 9, 12], dtype=np.int32)
    >>> bounds, events = np.empty(2, np.int64), np.empty(5, np.int64)
    >>> pack_events(offsets, retained, np.array([0, 4, 0, 2, 1, 3, 0], dtype=np.int32), 2, bounds, events)
    >>> describe_events(events[: bounds[-1]])
    [(0, 5, 4, False), (1, 5, 2, True), (1, 4, 1, True)]
    """
    return [(e & 0xFFFF, e >> 32, (e >> 16 & 0x7FFF) - 0x2000, bool(e >> 31 & 1)) for e in events.tolist()]


def list_cap_actions(
    question_idx: NDArray[np.int32], counts: NDArray[np.int32], event_bounds: IntArray, events: IntArray,
    zero_correct: Any
) -> tuple[IntArray, IntArray, IntArray, NDArray[np.int32], NDArray[np.int32]]:  # fmt: skip
    """Return the nondominated actions of every drawn occurrence, as `solve_caps` takes them.

    Parameters
    ----------
    question_idx : int32, replicates x slots.
    counts : int32, replicates x slots x R: how often the slot drew each trajectory of its question.
    event_bounds, events : as `pack_events` says.
    zero_correct : questions x R.

    Returns
    -------
    base : int64, each replicate's reward without thinking.
    starts : int64, where each replicate's actions begin.
    bounds : int64, replicates x slots + 1: where, from there, those of each occurrence lie, sorted by question.
    cost, reward : int32, of the actions, over no thinking; the first of an occurrence is 0, 0.

    Notes
    -----
    O(drawn events). No cost passes 2^31: R times the longest trajectory does not.

    Examples
    --------
    Of a question's two trajectories the first has 4 probes right at 5 tokens, the second 6 at 7; one occurrence drew
    the first twice, the other one each.

    >>> offsets, retained = np.array([0, 2, 4]), np.array([0, 5, 0, 7], dtype=np.int32)
    >>> event_bounds, events = np.empty(2, np.int64), np.empty(2, np.int64)
    >>> pack_events(offsets, retained, np.array([1, 4, 0, 6], dtype=np.int32), 2, event_bounds, events)
    >>> idx, counts = np.array([[0, 0]], np.int32), np.array([[[2, 0], [1, 1]]], np.int32)
    >>> base, starts, bounds, cost, reward = list_cap_actions(idx, counts, event_bounds, events, np.array([[1, 0]]))
    >>> base.tolist(), bounds.tolist(), cost[:5].tolist(), reward[:5].tolist()
    ([3], [[0, 2, 5]], [0, 10, 0, 5, 12], [0, 6, 0, 3, 9])
    """
    ends_cap = np.append(0, np.cumsum(events >> 31 & 1))
    most = ends_cap[event_bounds[1:]] - ends_cap[event_bounds[:-1]] + 1
    starts = np.append(0, np.cumsum(most[question_idx].sum(axis=1)))
    base = np.zeros(len(question_idx), np.int64)
    bounds = np.zeros((len(question_idx), question_idx.shape[1] + 1), np.int64)
    cost, reward = (np.empty(starts[-1], np.int32) for _ in range(2))
    _list_all(
        question_idx, counts, event_bounds, events, zero_correct, int(most.max()), base, starts, bounds, cost, reward
    )
    return base, starts, bounds, cost, reward


@compiled
def _sort_occurrences(question_idx: Any, bounds: IntArray, row: Any, slot: Any) -> None:
    """Sort occurrences by question, those of question q at ``bounds[q]:bounds[q + 1]``."""
    bounds[:] = 0
    for i in range(question_idx.shape[0]):
        for s in range(question_idx.shape[1]):
            bounds[question_idx[i, s] + 1] += 1
    for q in range(1, bounds.size):
        bounds[q] += bounds[q - 1]
    place = bounds[:-1].copy()
    for i in range(question_idx.shape[0]):
        for s in range(question_idx.shape[1]):
            at = place[question_idx[i, s]]
            row[at], slot[at] = i, s
            place[question_idx[i, s]] += 1


@compiled
def _walk(events: IntArray, weights: Any, state: Any, lane: IntArray, size: Any) -> None:
    """List every lane's actions, tokens times 2^32 plus probes, as one walk over the events finds them."""
    tokens, gain, best = state[0], state[1], state[2]
    for k in range(_LANES):
        tokens[k] = gain[k] = best[k] = 0
        size[k] = 1
        lane[k, 0] = 0
    for e in range(events.size):
        event = events[e]
        more = np.int32(event >> 32)
        rise = np.int32(((event >> 16) & 0x7FFF) - 0x2000)
        w = weights[event & 0xFFFF]
        for k in range(_LANES):
            tokens[k] += np.int32(more * w[k])
            gain[k] += np.int32(rise * w[k])
        # Bit 31 says that all changes at this cap have been counted.
        if event & 0x80000000:
            for k in range(_LANES):
                reached, before = gain[k], best[k]
                # What is not better is written all the same, and over again by the next action: cheaper than a jump.
                lane[k, size[k]] = np.int64(tokens[k]) << 32 | np.int64(reached)
                size[k] += reached > before
                best[k] = reached if reached > before else before


@compiled
def _list_all(
    question_idx: Any, counts: Any, event_bounds: IntArray, events: IntArray, zero_correct: Any, longest: int,
    base: IntArray, starts: IntArray, bounds: IntArray, cost: Any, reward: Any
) -> None:  # fmt: skip
    n_questions, per_question = zero_correct.shape
    first = np.empty(n_questions + 1, np.int64)
    row = np.empty(question_idx.size, np.int32)
    slot = np.empty(question_idx.size, np.int32)
    _sort_occurrences(question_idx, first, row, slot)
    n_listed = np.zeros(bounds.shape[0], np.int64)
    lane = np.empty((_LANES, longest + 1), np.int64)
    state = np.empty((3, _LANES), np.int32)
    size = np.empty(_LANES, np.int32)
    weights = np.zeros((per_question, _LANES), np.int32)
    for q in range(n_questions):
        of_question = events[event_bounds[q] : event_bounds[q + 1]]
        for begin in range(first[q], first[q + 1], _LANES):
            width = min(_LANES, first[q + 1] - begin)
            for k in range(width):
                drawn = counts[row[begin + k], slot[begin + k]]
                total = np.int64(0)
                for j in range(per_question):
                    weights[j, k] = drawn[j]
                    total += drawn[j] * zero_correct[q, j]
                base[row[begin + k]] += total
            _walk(of_question, weights, state, lane, size)
            for k in range(width):
                i = row[begin + k]
                n = n_listed[i]
                at = starts[i] + bounds[i, n]
                of_lane = lane[k]
                for action in range(size[k]):
                    cost[at + action] = of_lane[action] >> 32
                    reward[at + action] = of_lane[action] & 0xFFFFFFFF
                bounds[i, n + 1] = bounds[i, n] + size[k]
                n_listed[i] = n + 1


@compiled
def pack_events(
    offsets: IntArray, retained: Any, correct: Any, per_unit: int, bounds: IntArray, events: IntArray
) -> None:
    """Pack what changes from one useful cap of a question to the next, in 64 bits a trajectory.

    Useful caps are the lengths at which some trajectory gains: no draw of trajectories has an action at any other. Bits
    32..62: the trajectory's tokens more than at the useful cap before. Bit 31: the last trajectory that changes at this
    cap. Bits 16..30: its correct probes more than before, plus 2^13. Bits 0..15: the trajectory, 0..R-1. Trajectories
    that do not change are left out, as is all that comes after the last useful cap.
    """
    n = 0
    bounds[0] = 0
    at = np.empty(per_unit, np.int64)
    seen = np.empty(per_unit, np.int64)
    for unit in range(bounds.size - 1):
        first = unit * per_unit
        for j in range(per_unit):
            at[j] = seen[j] = offsets[first + j]
        while True:
            length = np.int64(-1)
            for j in range(per_unit):
                k = at[j] + 1
                if k < offsets[first + j + 1] and (length < 0 or retained[k] < length):
                    length = np.int64(retained[k])
            if length < 0:
                break
            is_useful = False
            for j in range(per_unit):
                k = at[j] + 1
                if k < offsets[first + j + 1] and retained[k] == length:
                    is_useful |= correct[k] > correct[at[j]]
                    at[j] = k
            if is_useful:
                n = _push_changes(at, seen, retained, correct, events, n)
        bounds[unit + 1] = n


@compiled
def _push_changes(at: IntArray, seen: IntArray, retained: Any, correct: Any, events: IntArray, n: int) -> int:
    """Add the trajectories that have moved since they were last seen; returns how many events there are now."""
    for j in range(at.size):
        if at[j] > seen[j]:
            more = np.int64(retained[at[j]]) - np.int64(retained[seen[j]])
            gain = np.int64(correct[at[j]]) - np.int64(correct[seen[j]]) + 0x2000
            events[n] = more << 32 | gain << 16 | j
            seen[j] = at[j]
            n += 1
    events[n - 1] |= 0x80000000
    return n
