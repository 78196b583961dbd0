"""Fixtures of the file tests: a small sound snapshot as plain rows that a test may spoil, and writing it out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.files.columns import QUESTIONS_SCHEMA, TRAJECTORIES_SCHEMA


@dataclass
class Parts:
    """The parts of a snapshot as a test changes them; tables are lists of rows."""

    manifest: dict[str, Any]
    questions: list[dict[str, Any]]
    trajectories: list[dict[str, Any]]
    extra_types: dict[str, pa.DataType] = field(default_factory=dict)

    def question_table(self) -> pa.Table:
        return self._table(self.questions, QUESTIONS_SCHEMA)

    def trajectory_table(self) -> pa.Table:
        return self._table(self.trajectories, TRAJECTORIES_SCHEMA)

    def find(self, model: str, benchmark: str, question_id: str, trajectory: int) -> dict[str, Any]:
        """Return a trajectory's row for changing."""
        unit = (model, benchmark, question_id, trajectory)
        keys = ("model", "benchmark", "question_id", "trajectory")
        return next(row for row in self.trajectories if tuple(row[key] for key in keys) == unit)

    def write(self, folder: Path) -> Path:
        """Write the three files with the hashes of what was written."""
        folder.mkdir()
        pq.write_table(self.question_table(), folder / "questions.parquet")
        pq.write_table(self.trajectory_table(), folder / "trajectories.parquet")
        files = {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
            for name in ("questions.parquet", "trajectories.parquet")
        }
        (folder / "manifest.json").write_text(json.dumps({"files": files, **self.manifest}), encoding="utf-8")
        return folder

    def _table(self, rows: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
        names = list(dict.fromkeys(name for row in rows for name in row))
        columns = {}
        for name in names:
            known = schema.field(name).type if name in schema.names else None
            values = [row.get(name) for row in rows]
            columns[name] = pa.array(values, self.extra_types.get(name, known))
        return pa.table(columns)


def _trajectory(model: str, benchmark: str, question_id: str, trajectory: int, curve: list[tuple[int, int]]) -> Any:
    return {
        "model": model,
        "benchmark": benchmark,
        "question_id": question_id,
        "trajectory": trajectory,
        "thinking_tokens": curve[-1][0],
        "original_correct": 2 * curve[-1][1] > 4,
        "retained_tokens": [tokens for tokens, _ in curve],
        "correct_probes": [correct for _, correct in curve],
    }


def _build_parts() -> Parts:
    questions = [("math", "q2", "train"), ("math", "q10", "test"), ("math", "q1", "validation")]
    questions += [("aime", "b", "train"), ("aime", "a", "test")]
    curves = [[(0, 1), (100, 4), (250, 2)], [(0, 0)], [(0, 2), (7, 2)], [(0, 0), (10, 1), (20, 4), (300, 3)]]
    trajectories = [
        _trajectory(model, benchmark, question_id, trajectory, curves[(idx + trajectory + len(model)) % 4])
        for model in ("large", "tiny")
        for idx, (benchmark, question_id, _) in enumerate(questions)
        for trajectory in (0, 1)
    ]
    return Parts(
        manifest={
            "format": "stp-snapshot/1",
            "name": "small",
            "title": "A small snapshot",
            "kind": "synthetic",
            "probes_per_position": 4,
            "trajectories_per_question": 2,
            "models": [{"name": "large"}, {"name": "tiny", "revision": None}],
            "benchmarks": [{"name": "math", "title": "Mathematics"}, {"name": "aime"}],
        },
        questions=[
            {"benchmark": b, "question_id": q, "split": s, "prompt": f"What is {q}?", "difficulty": idx}
            for idx, (b, q, s) in enumerate(questions)
        ],
        trajectories=trajectories,
    )


@pytest.fixture
def parts() -> Parts:
    """A sound snapshot: 2 models, benchmarks math (3 questions) and aime (2), R = 2, M = 4, every split."""
    return _build_parts()


@pytest.fixture
def build_parts() -> Callable[[], Parts]:
    """The same as a function, for tests that need several."""
    return _build_parts
