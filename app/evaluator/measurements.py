"""Frozen STP measurements as contiguous arrays: one `Cell` per model and benchmark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
SPLITS = ("train", "validation", "test")
ALL_SPLITS = "all"


@dataclass(frozen=True, eq=False)
class Cell:
    """All trajectories of one model on one benchmark, in order of question, then trajectory number.

    Attributes
    ----------
    model, benchmark : names as in the snapshot's manifest.
    question_ids : the N questions in the snapshot's canonical order (sorted by `question_id`).
    question_splits : the split of each question, N entries.
    trajectories_per_question : R >= 1; trajectory t belongs to question ``t // R``.
    probes_per_position : M >= 1.
    offsets : int64, N*R + 1; the positions of trajectory t are ``offsets[t]:offsets[t + 1]`` (n_steps + 1 of them).
    retained_tokens : int32, one per position; 0 at each trajectory's first position, strictly increasing in it.
    correct_probes : int32, one per position, 0..M; -1 where the labels are hidden.
    original_correct, direct_correct : int8, one per trajectory; 1, 0, or -1 where unknown.
    """

    model: str
    benchmark: str
    question_ids: tuple[str, ...]
    question_splits: tuple[str, ...]
    trajectories_per_question: int
    probes_per_position: int
    offsets: NDArray[np.int64]
    retained_tokens: NDArray[np.int32]
    correct_probes: NDArray[np.int32]
    original_correct: NDArray[np.int8]
    direct_correct: NDArray[np.int8]

    @property
    def n_questions(self) -> int:
        """Number of questions N."""
        return len(self.question_ids)

    @property
    def n_trajectories(self) -> int:
        """Number of trajectories N*R."""
        return len(self.offsets) - 1

    @cached_property
    def n_steps(self) -> IntArray:
        """Steps of each trajectory, int64; the last position of trajectory t is ``n_steps[t]``."""
        return np.diff(self.offsets) - 1

    @cached_property
    def first_idx(self) -> IntArray:
        """Index of each trajectory's position 0 in the position arrays."""
        return self.offsets[:-1]

    @cached_property
    def last_idx(self) -> IntArray:
        """Index of each trajectory's last position in the position arrays."""
        return self.offsets[1:] - 1

    @cached_property
    def trajectory_of_position(self) -> IntArray:
        """Trajectory index of each position."""
        return np.repeat(np.arange(self.n_trajectories), self.n_steps + 1)

    @cached_property
    def thinking_tokens(self) -> IntArray:
        """L(n) of each trajectory, int64."""
        return self.retained_tokens[self.last_idx].astype(np.int64)

    @cached_property
    def endpoint_correct(self) -> IntArray:
        """C(n) of each trajectory, int64."""
        return self.correct_probes[self.last_idx].astype(np.int64)

    @cached_property
    def zero_correct(self) -> IntArray:
        """C(0) of each trajectory, int64."""
        return self.correct_probes[self.first_idx].astype(np.int64)

    @cached_property
    def total_thinking_tokens(self) -> int:
        """T: full-thinking tokens summed over the trajectories."""
        return int(self.thinking_tokens.sum())

    @property
    def total_probes(self) -> int:
        """Trajectories times M: the reward that accuracy 1 would be."""
        return self.n_trajectories * self.probes_per_position

    @cached_property
    def length_keys(self) -> IntArray:
        """L(k) of every position, moved apart by trajectory so that the whole array rises strictly, int64.

        The key of t tokens in trajectory i is ``i * (longest + 1) + t``, `longest` being the cell's largest L(n).
        """
        apart = int(self.retained_tokens.max()) + 1
        return self.trajectory_of_position * apart + self.retained_tokens

    @cached_property
    def has_labels(self) -> bool:
        """Whether every position's `correct_probes` is known."""
        return bool((self.correct_probes >= 0).all())

    def take_questions(self, question_idx: Sequence[int] | IntArray) -> Cell:
        """Return the cell of the questions at these indices, in that order (repeats allowed).

        Examples
        --------
        >>> from app.evaluator.measurements import build_cell
        >>> cell = build_cell("m", "b", [("q1", "train", [[(0, 1), (5, 2)]]), ("q2", "test", [[(0, 0)]])], 4)
        >>> cell.take_questions([1]).question_ids
        ('q2',)
        """
        chosen = np.asarray(question_idx, dtype=np.int64)
        per_question = self.trajectories_per_question
        trajectory_idx = (chosen[:, None] * per_question + np.arange(per_question)).reshape(-1)
        sizes = self.n_steps[trajectory_idx] + 1
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        position_idx = np.arange(offsets[-1]) + np.repeat(self.offsets[trajectory_idx] - offsets[:-1], sizes)
        return replace(
            self,
            question_ids=tuple(self.question_ids[i] for i in chosen),
            question_splits=tuple(self.question_splits[i] for i in chosen),
            offsets=offsets,
            retained_tokens=self.retained_tokens[position_idx],
            correct_probes=self.correct_probes[position_idx],
            original_correct=self.original_correct[trajectory_idx],
            direct_correct=self.direct_correct[trajectory_idx],
        )


@dataclass(frozen=True, eq=False)
class Measurements:
    """A snapshot's measurements, whole or of one split.

    Attributes
    ----------
    snapshot, sha256, kind : the snapshot's name, content hash and "measured" or "synthetic".
    split : "all", or the split the cells were cut to.
    models, benchmarks : names in the manifest's order.
    cells : models by benchmarks in that order, without the pairs that have no question.
    """

    snapshot: str
    sha256: str
    kind: str
    split: str
    probes_per_position: int
    trajectories_per_question: int
    models: tuple[str, ...]
    benchmarks: tuple[str, ...]
    cells: tuple[Cell, ...]

    @cached_property
    def has_labels(self) -> bool:
        """Whether every cell's labels are known."""
        return all(cell.has_labels for cell in self.cells)

    def select(self, split: str) -> Measurements:
        """Return the measurements of one split's questions ("all": this object); cells left empty are dropped.

        Raises
        ------
        ValueError : an unknown split, one with no question, or a cut of an already cut object.
        """
        if split in (ALL_SPLITS, self.split):
            return self
        if split not in SPLITS:
            raise ValueError(f"unknown split {split!r}; use one of {', '.join((ALL_SPLITS, *SPLITS))}")
        if self.split != ALL_SPLITS:
            raise ValueError(f"these measurements hold only the {self.split} split")
        cells = tuple(cut for cell in self.cells if (cut := _cut_to_split(cell, split)) is not None)
        if not cells:
            raise ValueError(f"snapshot {self.snapshot} has no question in split {split}")
        return replace(self, split=split, cells=cells)

    def find_cell(self, model: str, benchmark: str) -> Cell | None:
        """Return the cell of a model and benchmark, or None."""
        return next((c for c in self.cells if c.model == model and c.benchmark == benchmark), None)


def _cut_to_split(cell: Cell, split: str) -> Cell | None:
    question_idx = [i for i, s in enumerate(cell.question_splits) if s == split]
    return cell.take_questions(question_idx) if question_idx else None


def build_cell(
    model: str,
    benchmark: str,
    questions: Sequence[tuple[str, str, Sequence[Sequence[tuple[int, int]]]]],
    probes_per_position: int,
) -> Cell:
    """Build a cell by hand: (question_id, split, trajectories), a trajectory being its (L(k), C(k)) pairs.

    Every question must have the same number of trajectories. Original and direct answers are unknown.

    Examples
    --------
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (256, 4)], [(0, 0), (100, 2), (300, 1)]])], 4)
    >>> cell.n_steps.tolist(), cell.total_thinking_tokens, cell.endpoint_correct.tolist()
    ([1, 2], 556, [4, 1])
    """
    per_question = {len(trajectories) for _, _, trajectories in questions}
    if len(per_question) != 1:
        raise ValueError(f"questions differ in their number of trajectories: {sorted(per_question)}")
    curves = [np.asarray(t, dtype=np.int32).reshape(-1, 2) for _, _, trajectories in questions for t in trajectories]
    values = np.concatenate(curves)
    unknown = np.full(len(curves), -1, dtype=np.int8)
    return Cell(
        model=model,
        benchmark=benchmark,
        question_ids=tuple(q for q, _, _ in questions),
        question_splits=tuple(s for _, s, _ in questions),
        trajectories_per_question=per_question.pop(),
        probes_per_position=probes_per_position,
        offsets=np.concatenate([[0], np.cumsum([len(c) for c in curves])]).astype(np.int64),
        retained_tokens=np.ascontiguousarray(values[:, 0]),
        correct_probes=np.ascontiguousarray(values[:, 1]),
        original_correct=unknown,
        direct_correct=unknown.copy(),
    )
