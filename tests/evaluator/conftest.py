"""Small random cells, as nested lists that a test can enumerate by hand and as the evaluator's arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from app.evaluator.measurements import Cell, Measurements, build_cell

# A trajectory is its (L(k), C(k)) pairs, a question its trajectories.
Trajectory = list[tuple[int, int]]
Questions = list[list[Trajectory]]


def draw_questions(rng: np.random.Generator, *, n_questions: int, per_question: int, probes: int) -> Questions:
    """Draw questions full of ties: few distinct step lengths, few distinct counts, some trajectories without a step."""
    step_lengths = [(1,), (1, 2), (5,), (2, 3, 7)][int(rng.integers(4))]

    def draw_trajectory() -> Trajectory:
        lengths = [0]
        for _ in range(int(rng.integers(0, 5))):
            lengths.append(lengths[-1] + int(rng.choice(step_lengths)))
        return [(length, int(rng.integers(0, probes + 1))) for length in lengths]

    return [[draw_trajectory() for _ in range(per_question)] for _ in range(n_questions)]


@pytest.fixture
def random_questions() -> Callable[..., Questions]:
    """The function that draws questions: (rng, n_questions=, per_question=, probes=) to nested lists."""
    return draw_questions


@pytest.fixture
def as_cell() -> Callable[..., Cell]:
    """The function that turns nested lists into a cell: (questions, probes, model=, benchmark=)."""

    def build(questions: Questions, probes: int, *, model: str = "m", benchmark: str = "b") -> Cell:
        named = [(f"q{i:03}", "test", trajectories) for i, trajectories in enumerate(questions)]
        return build_cell(model, benchmark, named, probes)

    return build


@pytest.fixture
def as_measurements() -> Callable[[list[Cell]], Measurements]:
    """The function that wraps cells; models and benchmarks are listed in order of appearance."""

    def wrap(cells: list[Cell]) -> Measurements:
        return Measurements(
            snapshot="small",
            sha256="0" * 64,
            kind="synthetic",
            split="all",
            probes_per_position=cells[0].probes_per_position,
            trajectories_per_question=cells[0].trajectories_per_question,
            models=tuple(dict.fromkeys(cell.model for cell in cells)),
            benchmarks=tuple(dict.fromkeys(cell.benchmark for cell in cells)),
            cells=tuple(cells),
        )

    return wrap
