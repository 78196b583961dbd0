"""The identity of a snapshot depends on its content and on nothing else."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.files.snapshot import build_snapshot, read_snapshot


def _identity(parts: Any) -> str:
    return build_snapshot(parts.manifest, parts.question_table(), parts.trajectory_table()).sha256


def test_identity_follows_the_documented_recipe(parts):
    """An independent computation, with struct and hashlib alone, of the recipe in docs/snapshot-format.md."""
    parts.find("tiny", "aime", "a", 1)["end_margin"] = [-0.0, math.nan]
    parts.find("tiny", "aime", "a", 1)["retained_tokens"] = [0, 9]
    parts.find("tiny", "aime", "a", 1)["correct_probes"] = [0, 1]
    parts.find("tiny", "aime", "a", 1)["thinking_tokens"] = 9
    parts.find("large", "math", "q1", 0)["probe_answers"] = [["7", None], [], ["é"]]
    parts.find("large", "math", "q1", 0)["retained_tokens"] = [0, 5, 6]
    parts.find("large", "math", "q1", 0)["correct_probes"] = [0, 1, 4]
    parts.find("large", "math", "q1", 0)["thinking_tokens"] = 6
    benchmarks, models = ["math", "aime"], ["large", "tiny"]
    questions = sorted(parts.questions, key=lambda q: (benchmarks.index(q["benchmark"]), q["question_id"]))
    trajectories = sorted(
        parts.trajectories,
        key=lambda t: (
            models.index(t["model"]),
            benchmarks.index(t["benchmark"]),
            t["question_id"],
            t["trajectory"],
        ),
    )

    def streams(values: list[Any]) -> list[bytes]:
        present = [v for v in values if v is not None]
        if any(isinstance(v, list) for v in present):
            lengths = struct.pack(f"<{len(values)}q", *(-1 if v is None else len(v) for v in values))
            return [lengths, *streams([item for v in present for item in v])]
        if any(isinstance(v, str) for v in present):
            texts = [None if v is None else v.encode() for v in values]
            lengths = struct.pack(f"<{len(values)}q", *(-1 if t is None else len(t) for t in texts))
            return [lengths, b"".join(t for t in texts if t is not None)]
        flags = bytes(v is not None for v in values)
        if isinstance(present[0], bool):
            return [flags, bytes(present)]
        if isinstance(present[0], int):
            return [flags, struct.pack(f"<{len(present)}q", *present)]
        cleaned = [b"\x00\x00\xc0\x7f" if math.isnan(v) else struct.pack("<f", v or 0.0) for v in present]
        return [flags, b"".join(cleaned)]

    manifest = (
        '{"benchmarks":[{"name":"math","title":"Mathematics"},{"name":"aime"}],"format":"stp-snapshot/1",'
        '"kind":"synthetic","models":[{"name":"large"},{"name":"tiny"}],"name":"small","probes_per_position":4,'
        '"title":"A small snapshot","trajectories_per_question":2}'
    )
    text = f"stp-snapshot/1 identity\nmanifest {hashlib.sha256(manifest.encode()).hexdigest()}\n"
    for name, rows, columns in (
        ("questions", questions, "benchmark question_id split prompt difficulty"),
        (
            "trajectories",
            trajectories,
            "model benchmark question_id trajectory thinking_tokens original_correct retained_tokens correct_probes "
            "end_margin probe_answers",
        ),
    ):
        text += f"{name} {len(rows)}\n"
        for column in columns.split():
            digests = [hashlib.sha256(s).hexdigest() for s in streams([row.get(column) for row in rows])]
            text += f"{name}.{column} {' '.join(digests)}\n"
    assert _identity(parts) == hashlib.sha256(text.encode()).hexdigest()


def test_identity_ignores_row_order_column_order_and_row_groups(parts, tmp_path: Path):
    expected = _identity(parts)
    rng = np.random.default_rng(20260721)
    rng.shuffle(parts.questions)
    rng.shuffle(parts.trajectories)
    parts.trajectories = [dict(reversed(row.items())) for row in parts.trajectories]
    folder = parts.write(tmp_path / "snapshot")
    assert read_snapshot(folder).sha256 == expected
    pq.write_table(parts.trajectory_table(), folder / "trajectories.parquet", row_group_size=3, compression="none")
    files = {
        n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in ("questions.parquet", "trajectories.parquet")
    }
    (folder / "manifest.json").write_text(json.dumps({**parts.manifest, "files": files, "created": "2026-07-21"}))
    assert read_snapshot(folder).sha256 == expected


@pytest.mark.parametrize(
    ("column", "data_type"),
    [
        ("model", pa.dictionary(pa.int8(), pa.string())),
        ("question_id", pa.large_string()),
        ("question_id", pa.string_view()),
        ("benchmark", pa.dictionary(pa.int32(), pa.large_string())),
        ("trajectory", pa.int8()),
        ("trajectory", pa.uint64()),
        ("thinking_tokens", pa.float64()),
        ("retained_tokens", pa.list_(pa.int64())),
        ("retained_tokens", pa.large_list(pa.uint16())),
        ("correct_probes", pa.list_(pa.float64())),
        ("correct_probes", pa.list_(pa.uint8())),
    ],
)
def test_identity_ignores_the_physical_type(parts, column, data_type):
    expected = _identity(parts)
    table = parts.trajectory_table()
    idx = table.column_names.index(column)
    column_values = pa.array(table.column(column).to_pylist(), data_type)
    changed = table.set_column(idx, column, pa.chunked_array([column_values]))
    assert build_snapshot(parts.manifest, parts.question_table(), changed).sha256 == expected


def test_identity_ignores_fixed_size_lists_and_slices(parts):
    for row in parts.trajectories:
        row.update(retained_tokens=[0, 5], correct_probes=[1, 2], thinking_tokens=5)
    expected = _identity(parts)
    table = parts.trajectory_table()
    fixed = pa.array(table["correct_probes"].to_pylist(), pa.list_(pa.int32(), 2))
    table = table.set_column(table.column_names.index("correct_probes"), "correct_probes", fixed)
    padded = pa.concat_tables([table.slice(0, 3), table, table.slice(0, 5)]).slice(3, table.num_rows)
    assert build_snapshot(parts.manifest, parts.question_table(), padded).sha256 == expected


def test_an_absent_column_equals_one_of_nulls(parts):
    expected = _identity(parts)
    for row in parts.trajectories:
        row.update(end_margin=None, token_ids=None, direct_correct=None, probe_answers=None)
    for row in parts.questions:
        row["reference_answer"] = None
    assert _identity(parts) == expected


def test_negative_zero_and_every_nan_are_one_value(parts):
    row = next(row for row in parts.trajectories if len(row["retained_tokens"]) == 4)
    row["end_margin"] = [0.0, math.nan, math.inf, 1.5]
    expected = _identity(parts)
    other_nan = struct.unpack("<f", b"\x01\x00\xe0\xff")[0]
    row["end_margin"] = [-0.0, other_nan, math.inf, 1.5]
    assert _identity(parts) == expected
    row["end_margin"] = [-0.0, other_nan, -math.inf, 1.5]
    assert _identity(parts) != expected


def test_identity_ignores_how_the_manifest_is_written(parts):
    expected = _identity(parts)
    parts.manifest.update(created="yesterday", license=None, hidden_splits=[], probes_per_position=4.0)
    parts.manifest["models"][1] = {"name": "tiny"}
    parts.manifest = dict(reversed(parts.manifest.items()))
    assert _identity(parts) == expected


@pytest.mark.parametrize(
    "change",
    [
        lambda p: p.manifest.update(title="Another"),
        lambda p: p.manifest.update(hidden_splits=["test"]),
        lambda p: p.manifest.update(models=p.manifest["models"][::-1]),
        lambda p: p.questions[0].update(split="test"),
        lambda p: p.questions[0].update(prompt=None),
        lambda p: p.questions[0].update(prompt=""),
        lambda p: p.questions[0].update(difficulty=None),
        lambda p: p.find("large", "math", "q2", 0).update(original_correct=None),
        lambda p: p.find("tiny", "aime", "a", 0)["correct_probes"].__setitem__(0, 3),
        lambda p: [row.update(trajectory=1 - row["trajectory"]) for row in p.trajectories],
    ],
)
def test_identity_changes_with_the_content(build_parts, change):
    changed = build_parts()
    change(changed)
    assert _identity(changed) != _identity(build_parts())
