"""A small snapshot made by hand, the rows of a valid file for it, and reading bytes as an action file."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from app.evaluator.measurements import Cell, Measurements, build_cell
from app.evaluator.strategies import Strategy
from app.files.actions import ActionFile, read_actions

Row = dict[str, object]

# Question, split, and the retained tokens of its two trajectories; in the test split AIME has 2 questions, MATH 3.
QUESTIONS = {
    "AIME": [
        ("aime-1", "train", [(0, 300), (0, 250, 500)]),
        ("aime-2", "test", [(0, 256, 500, 760), (0, 200)]),
        ("aime-3", "test", [(0,), (0, 100, 300)]),
    ],
    "MATH": [
        ("math-1", "test", [(0, 250), (0, 260, 510)]),
        ("math-2", "validation", [(0, 1), (0, 2)]),
        ("math-3", "test", [(0, 10, 20, 30, 40), (0, 90)]),
        ("math-4", "test", [(0, 5), (0, 7)]),
    ],
}
MODELS = ("Large-14B", "Small-8B")
PROBES = 4


def _build_cell(model: str, benchmark: str, label: int) -> Cell:
    questions = [
        (name, split, [[(tokens, label) for tokens in trajectory] for trajectory in trajectories])
        for name, split, trajectories in QUESTIONS[benchmark]
    ]
    return build_cell(model, benchmark, questions, PROBES)


def _build(label: int) -> Measurements:
    cells = tuple(_build_cell(model, benchmark, label) for model in MODELS for benchmark in QUESTIONS)
    return Measurements("tiny", "0" * 64, "synthetic", "all", PROBES, 2, MODELS, tuple(QUESTIONS), cells)


@pytest.fixture(scope="session")
def whole() -> Measurements:
    """Two models, two benchmarks, seven questions, two trajectories of each."""
    return _build(1)


@pytest.fixture(scope="session")
def hidden() -> Measurements:
    """The same snapshot with its labels hidden."""
    return _build(-1)


@pytest.fixture(scope="session")
def make_rows(whole: Measurements) -> Callable[..., list[Row]]:
    """Make the rows of a valid file of the test split: `make_rows(strategy, settings=...)`."""

    def make(strategy: Strategy, *, settings: Iterable[object] = (None,), split: str = "test") -> list[Row]:
        rows: list[Row] = []
        for setting in settings:
            for cell in whole.select(split).cells:
                for question in cell.question_ids:
                    for trajectory in range(2) if strategy.unit_is_trajectory else (None,):
                        row: Row = {"model": cell.model, "benchmark": cell.benchmark, "question_id": question}
                        if trajectory is not None:
                            row["trajectory"] = trajectory
                        if setting is not None:
                            row["setting"] = setting
                        rows.append(row | {"action": 0})
        return rows

    return make


@pytest.fixture
def read(tmp_path: Path, whole: Measurements) -> Callable[..., ActionFile]:
    """Read bytes as an action file of the test split: `read(data, strategy, name="actions.csv")`."""

    def read_bytes(
        data: bytes,
        strategy: Strategy,
        *,
        name: str = "actions.csv",
        split: str = "test",
        measurements: Measurements = whole,
        max_settings: int = 256,
    ) -> ActionFile:
        path = tmp_path / name
        path.write_bytes(data)
        return read_actions(path, measurements, strategy=strategy, split=split, max_settings=max_settings)

    return read_bytes


def _to_csv(rows: list[Row]) -> bytes:
    lines = [",".join(rows[0])] + [",".join("" if v is None else str(v) for v in row.values()) for row in rows]
    return ("\n".join(lines) + "\n").encode()


def _to_jsonl(rows: list[Row]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _to_parquet(rows: list[Row]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink)
    return bytes(sink.getvalue())


@pytest.fixture(scope="session")
def encode() -> Callable[[list[Row], str], bytes]:
    """Encode rows as the bytes of a file of a suffix, by other means than the code under test."""

    def encode_rows(rows: list[Row], suffix: str) -> bytes:
        if suffix == ".parquet":
            return _to_parquet(rows)
        data = _to_csv(rows) if suffix.startswith(".csv") else _to_jsonl(rows)
        if suffix.endswith(".gz"):
            return gzip.compress(data, mtime=0)
        return zstandard.ZstdCompressor().compress(data) if suffix.endswith(".zst") else data

    return encode_rows
