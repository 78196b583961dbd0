"""Parts of a snapshot's measurements, to see how time grows in questions, trajectories and steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from app.evaluator.measurements import Cell, Measurements

SHARES = (1 / 16, 1 / 4)


def list_parts(whole: Measurements) -> Iterator[tuple[str, Measurements]]:
    """Yield the whole measurements and smaller ones, each with a name: fewer questions, trajectories, steps."""
    yield "whole", whole
    for share in SHARES:
        yield f"{share:.3g} of the questions", take_questions(whole, share)
    for share in SHARES:
        count = math.ceil(whole.trajectories_per_question * share)
        yield f"{count} of {whole.trajectories_per_question} trajectories", take_trajectories(whole, count)
    for share in SHARES:
        yield f"{share:.3g} of the steps", take_steps(whole, share)


def take_questions(whole: Measurements, share: float) -> Measurements:
    """Return the first questions of every cell."""
    cells = [cell.take_questions(np.arange(math.ceil(cell.n_questions * share))) for cell in whole.cells]
    return replace(whole, cells=tuple(cells))


def take_trajectories(whole: Measurements, count: int) -> Measurements:
    """Return the first trajectories of every question."""
    cells = [_cut(cell, per_question=count, share_of_steps=1.0) for cell in whole.cells]
    return replace(whole, cells=tuple(cells), trajectories_per_question=count)


def take_steps(whole: Measurements, share: float) -> Measurements:
    """Return every trajectory cut off after a share of its steps."""
    full = whole.trajectories_per_question
    cells = [_cut(cell, per_question=full, share_of_steps=share) for cell in whole.cells]
    return replace(whole, cells=tuple(cells))


def _cut(cell: Cell, *, per_question: int, share_of_steps: float) -> Cell:
    full = cell.trajectories_per_question
    chosen = np.flatnonzero(np.arange(cell.n_trajectories) % full < per_question)
    sizes = 1 + np.ceil(cell.n_steps[chosen] * share_of_steps).astype(np.int64)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    idx = np.arange(offsets[-1]) + np.repeat(cell.offsets[chosen] - offsets[:-1], sizes)
    return replace(
        cell,
        trajectories_per_question=per_question,
        offsets=offsets,
        retained_tokens=cell.retained_tokens[idx],
        correct_probes=cell.correct_probes[idx],
        original_correct=cell.original_correct[chosen],
        direct_correct=cell.direct_correct[chosen],
    )
