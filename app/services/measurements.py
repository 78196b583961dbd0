"""A snapshot's measurements out of the database, kept by content hash in the process and on the disk."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import threading
import zipfile
from collections import OrderedDict
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from sqlalchemy.orm import Session

from app.db import bulk, models
from app.evaluator.measurements import ALL_SPLITS, Cell, Measurements
from app.files import snapshot as files
from app.files.columns import QUESTIONS_SCHEMA, TRAJECTORIES_SCHEMA
from app.files.manifest import Manifest, build_manifest, check_manifest
from app.files.problems import ProblemCollector

logger = logging.getLogger(__name__)

CACHE_VERSION = 1
SNAPSHOTS_IN_MEMORY = 2
CELL_ARRAYS = ("offsets", "retained_tokens", "correct_probes", "original_correct", "direct_correct")
WHOLE_FIELDS = tuple(field.name for field in fields(Measurements) if field.name != "cells")

QUESTIONS_QUERY = """
SELECT {columns} FROM questions q JOIN snapshot_benchmarks b ON b.id = q.benchmark_id
WHERE q.snapshot_id = {{}} ORDER BY b.idx, q.question_id COLLATE "C"
"""
TRAJECTORIES_QUERY = """
SELECT {columns} FROM trajectories t
JOIN questions q ON q.id = t.question_pk
JOIN snapshot_benchmarks b ON b.id = q.benchmark_id
JOIN snapshot_models m ON m.id = t.model_id
WHERE t.snapshot_id = {{}} ORDER BY m.idx, b.idx, q.question_id COLLATE "C", t.trajectory
"""
# Where a column of the format stands, for those that are not the row's own.
SOURCES = {"model": "m.name", "benchmark": "b.name", "question_id": "q.question_id"}

_memory: OrderedDict[str, Measurements] = OrderedDict()
_memory_lock = threading.Lock()


def load_measurements(session: Session, snapshot: models.Snapshot, *, data_dir: Path) -> Measurements:
    """Return the whole snapshot as arrays, labels included; the split "all".

    A frozen snapshot is read from the database once a machine and from the disk once a process. One that is not frozen
    may still change, so it is read anew each time.
    """
    if not snapshot.is_frozen:
        return _load_from_database(session, snapshot)
    with _memory_lock:
        found = _memory.get(snapshot.sha256)
        if found is None:
            found = _load_frozen(session, snapshot, data_dir)
            _memory[snapshot.sha256] = found
        _memory.move_to_end(snapshot.sha256)
        while len(_memory) > SNAPSHOTS_IN_MEMORY:
            _memory.popitem(last=False)
    return found


def read_questions(session: Session, snapshot_id: int, *columns: str) -> pa.Table:
    """Return the questions in canonical order; without `columns`, every column of the format."""
    schema = _choose(QUESTIONS_SCHEMA, columns)
    listed = ", ".join(SOURCES.get(name, f"q.{name}") for name in schema.names)
    return bulk.copy_out(session, QUESTIONS_QUERY.format(columns=listed), schema, parameters=[snapshot_id])


def read_trajectories(session: Session, snapshot_id: int, *columns: str) -> pa.Table:
    """Return the trajectories in canonical order; without `columns`, every column of the format."""
    schema = _choose(TRAJECTORIES_SCHEMA, columns)
    stored = pa.schema([pa.field(f.name, pa.string() if f.name == "probe_answers" else f.type) for f in schema])
    listed = ", ".join(SOURCES.get(name, f"t.{name}") for name in schema.names)
    table = bulk.copy_out(session, TRAJECTORIES_QUERY.format(columns=listed), stored, parameters=[snapshot_id])
    if "probe_answers" in table.column_names:
        idx = table.column_names.index("probe_answers")
        texts = table.column(idx).to_pylist()
        answers = pa.array([None if text is None else json.loads(text) for text in texts], schema.field(idx).type)
        table = table.set_column(idx, schema.field(idx), answers)
    return table


def read_manifest(snapshot: models.Snapshot) -> Manifest:
    """Return the stored manifest as the checked one it was imported from."""
    return build_manifest(snapshot.manifest, check_manifest({"files": {}, **snapshot.manifest}, ProblemCollector()))


def labels_hidden(snapshot: models.Snapshot, split: str) -> bool:
    """Whether the labels of a split are hidden; of "all", whether those of any split are."""
    hidden = set(snapshot.manifest.get("hidden_splits") or ())
    return bool(hidden) if split == ALL_SPLITS else split in hidden


def is_closed(snapshot: models.Snapshot, split: str) -> bool:
    """Whether nothing is computed or scored on a split: its hidden labels are not on this server, or it is "all".

    On all questions together the hidden ones could be told from the open ones by taking the difference.
    """
    return labels_hidden(snapshot, split) and (split == ALL_SPLITS or "full_sha256" in snapshot.manifest)


def _choose(schema: pa.Schema, columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([schema.field(name) for name in columns]) if columns else schema


def _load_from_database(session: Session, snapshot: models.Snapshot) -> Measurements:
    questions = read_questions(session, snapshot.id, "benchmark", "question_id", "split")
    labels = ("correct_probes", "original_correct", "direct_correct")
    trajectories = read_trajectories(session, snapshot.id, "retained_tokens", *labels)
    # Only the columns that arrays are made of: the prompts and token ids of a large snapshot are not moved for nothing.
    content = files.Snapshot(
        read_manifest(snapshot), questions, trajectories, sha256=snapshot.sha256, full_sha256=snapshot.full_sha256
    )
    return files.load_measurements(content)


def _load_frozen(session: Session, snapshot: models.Snapshot, data_dir: Path) -> Measurements:
    path = data_dir / "cache" / "measurements" / f"{snapshot.sha256}.{CACHE_VERSION}.npz"
    found = _read_cache(path)
    if found is None:
        found = _load_from_database(session, snapshot)
        _write_cache(path, found)
    return found


def _read_cache(path: Path) -> Measurements | None:
    try:
        # Opened here, since numpy leaves a file open that it cannot make sense of.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            described = json.loads(stored["description"].tobytes())
            cells = [
                Cell(**_with_tuples(cell), **{name: stored[f"{idx}.{name}"] for name in CELL_ARRAYS})
                for idx, cell in enumerate(described.pop("cells"))
            ]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as exc:
        # Cut short by a full disk or a power cut, or of an odd version: it is made again from the database.
        logger.warning("the cached measurements in %s cannot be used: %s", path, exc)
        return None
    return Measurements(**_with_tuples(described), cells=tuple(cells))


def _write_cache(path: Path, measurements: Measurements) -> None:
    """Write the arrays as they are, under another name first: a reader sees the whole file or none."""
    described: dict[str, Any] = {name: getattr(measurements, name) for name in WHOLE_FIELDS}
    named = [field.name for field in fields(Cell) if field.name not in CELL_ARRAYS]
    described["cells"] = [{name: getattr(cell, name) for name in named} for cell in measurements.cells]
    arrays = {
        f"{idx}.{name}": getattr(cell, name) for idx, cell in enumerate(measurements.cells) for name in CELL_ARRAYS
    }
    arrays["description"] = np.frombuffer(json.dumps(described).encode(), dtype=np.uint8)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            try:
                np.savez(file, **arrays)
                file.flush()
                os.replace(file.name, path)  # noqa: PTH105
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise
    except OSError as exc:
        # A full disk makes the next process slower; it does not stop this one.
        logger.warning("the measurements could not be cached in %s: %s", path, exc)


def _with_tuples(described: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(value) if isinstance(value, list) else value for name, value in described.items()}
