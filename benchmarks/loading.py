"""Times loading a snapshot as arrays, from its folder and from the database, against a plain loader in the same run.

    python benchmarks/loading.py                     # the paper's scale, and parts of it to show the growth
    python benchmarks/loading.py --scale 0.1 --format json

The textbook side reads row by row into lists, checks each row as it comes (known question, unrepeated trajectory, sound
curve) and makes arrays of the lists at the end. Ours checks the whole format and computes the content hash as well
when it reads a folder, which the textbook side leaves out. Both must find the same arrays, or it exits 1. Seconds are
those of a clock on the wall, the least of some runs of ours, since the database works in processes of its own. The
database is an embedded one in a temporary folder.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.db.embedded import start_embedded, stop_embedded
from app.db.migrations import upgrade_database
from app.db.session import make_engine, session_factory
from app.evaluator.measurements import Cell, Measurements
from app.files.columns import QUESTIONS_FILE, TRAJECTORIES_FILE, list_lengths
from app.files.snapshot import Snapshot, build_snapshot, load_measurements, read_snapshot, write_snapshot
from app.files.synthetic import draw_snapshot
from app.services import measurements as stored
from app.services.snapshots import freeze_snapshot, import_snapshot
from benchmarks.parts import SHARES
from benchmarks.timing import Row, add_format_option, build_row, count_size, measure, print_rows, time_best

CURVES = ("retained_tokens", "correct_probes")
QUESTION_ROWS = """
SELECT b.name AS benchmark, q.question_id, q.split
FROM questions q JOIN snapshot_benchmarks b ON b.id = q.benchmark_id WHERE q.snapshot_id = :snapshot
"""
TRAJECTORY_ROWS = """
SELECT m.name AS model, b.name AS benchmark, q.question_id, t.trajectory, t.thinking_tokens, t.original_correct,
  t.direct_correct, t.retained_tokens, t.correct_probes
FROM trajectories t JOIN questions q ON q.id = t.question_pk JOIN snapshot_benchmarks b ON b.id = q.benchmark_id
JOIN snapshot_models m ON m.id = t.model_id WHERE t.snapshot_id = :snapshot
"""


@dataclass(frozen=True)
class Trajectory:
    """A row that has been checked."""

    retained: list[int]
    correct: list[int]
    original: int
    direct: int


class PlainLoader:
    """Gathers rows in dictionaries and lists, and makes arrays of them."""

    def __init__(self, manifest: dict[str, Any]) -> None:
        self.models = [model["name"] for model in manifest["models"]]
        self.benchmarks = [benchmark["name"] for benchmark in manifest["benchmarks"]]
        self.per_question: int = manifest["trajectories_per_question"]
        self.probes: int = manifest["probes_per_position"]
        self.splits: dict[str, dict[str, str]] = {name: {} for name in self.benchmarks}
        self.rows: dict[tuple[str, str, str, int], Trajectory] = {}

    def add_questions(self, rows: Iterable[dict[str, Any]]) -> None:
        """Take in the questions."""
        for row in rows:
            self.splits[row["benchmark"]][row["question_id"]] = row["split"]

    def add_trajectories(self, rows: Iterable[dict[str, Any]]) -> None:
        """Take in the trajectories; raises ValueError at the first fault."""
        for row in rows:
            key = row["model"], row["benchmark"], row["question_id"], row["trajectory"]
            if key[0] not in self.models or key[2] not in self.splits[key[1]] or key in self.rows:
                raise ValueError(f"unknown or repeated: {key}")
            retained, correct = row["retained_tokens"], row["correct_probes"]
            if len(retained) != len(correct) or retained[0] != 0 or retained[-1] != row["thinking_tokens"]:
                raise ValueError(f"unsound lengths: {key}")
            for k in range(1, len(retained)):
                if retained[k] <= retained[k - 1]:
                    raise ValueError(f"tokens do not rise: {key}")
            for count in correct:
                if not 0 <= count <= self.probes:
                    raise ValueError(f"counts out of range: {key}")
            original, direct = row.get("original_correct"), row.get("direct_correct")
            self.rows[key] = Trajectory(
                retained, correct, -1 if original is None else int(original), -1 if direct is None else int(direct)
            )

    def build_cells(self) -> tuple[Cell, ...]:
        """Return the cells in canonical order."""
        return tuple(self._build_cell(model, benchmark) for model in self.models for benchmark in self.benchmarks)

    def _build_cell(self, model: str, benchmark: str) -> Cell:
        questions = sorted(self.splits[benchmark])
        offsets: list[int] = [0]
        retained: list[int] = []
        correct: list[int] = []
        original: list[int] = []
        direct: list[int] = []
        for question in questions:
            for number in range(self.per_question):
                row = self.rows[model, benchmark, question, number]
                retained.extend(row.retained)
                correct.extend(row.correct)
                offsets.append(len(retained))
                original.append(row.original)
                direct.append(row.direct)
        return Cell(
            model=model,
            benchmark=benchmark,
            question_ids=tuple(questions),
            question_splits=tuple(self.splits[benchmark][question] for question in questions),
            trajectories_per_question=self.per_question,
            probes_per_position=self.probes,
            offsets=np.array(offsets, np.int64),
            retained_tokens=np.array(retained, np.int32),
            correct_probes=np.array(correct, np.int32),
            original_correct=np.array(original, np.int8),
            direct_correct=np.array(direct, np.int8),
        )


def load_folder_by_the_book(folder: Path) -> tuple[Cell, ...]:
    """Load a snapshot's folder row by row."""
    loader = PlainLoader(json.loads((folder / "manifest.json").read_text(encoding="utf-8")))
    loader.add_questions(pq.read_table(folder / QUESTIONS_FILE).to_pylist())
    for batch in pq.ParquetFile(folder / TRAJECTORIES_FILE).iter_batches():
        loader.add_trajectories(batch.to_pylist())
    return loader.build_cells()


def load_database_by_the_book(session: Session, snapshot_id: int, manifest: dict[str, Any]) -> tuple[Cell, ...]:
    """Load a stored snapshot row by row."""
    loader = PlainLoader(manifest)
    for query, add in ((QUESTION_ROWS, loader.add_questions), (TRAJECTORY_ROWS, loader.add_trajectories)):
        add(dict(row) for row in session.execute(text(query), {"snapshot": snapshot_id}).mappings())
    return loader.build_cells()


def agree(ours: Measurements, textbook: tuple[Cell, ...]) -> bool:
    """Whether all cells are the same, with arrays of the same types."""
    return len(ours.cells) == len(textbook) and all(
        np.array_equal(a, b) and getattr(a, "dtype", None) == getattr(b, "dtype", None)
        for one, other in zip(ours.cells, textbook, strict=True)
        for a, b in ((getattr(one, field.name), getattr(other, field.name)) for field in fields(Cell))
    )


def time_folder(snapshot: Snapshot, growth: str) -> Row:
    """Time loading from files that are written first."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "snapshot"
        write_snapshot(snapshot, folder)
        ours_seconds, ours = time_best(
            lambda: load_measurements(read_snapshot(folder)), repeats=3, clock=time.perf_counter
        )
        textbook_seconds, textbook = measure(lambda: load_folder_by_the_book(folder), clock=time.perf_counter)
        n_bytes = sum(path.stat().st_size for path in folder.iterdir())
    if not agree(ours, textbook):
        sys.exit(f"the two sides differ on a folder, {growth}")
    size = count_size(ours, bytes=n_bytes)
    return build_row(f"folder, verified and hashed, {growth}", textbook_seconds, ours_seconds, size=size)


def time_database(session: Session, snapshot: Snapshot, data_dir: Path, growth: str) -> Iterator[Row]:
    """Time loading from the database, as it is before a snapshot is frozen, and as other processes do afterwards."""
    row = import_snapshot(session, snapshot)
    session.commit()

    def load() -> Measurements:
        # A process that has loaded a frozen snapshot keeps it; here each call stands for a new process.
        stored._memory.clear()
        return stored.load_measurements(session, row, data_dir=data_dir)

    ours_seconds, ours = time_best(load, repeats=3, clock=time.perf_counter)
    textbook_seconds, textbook = measure(
        lambda: load_database_by_the_book(session, row.id, row.manifest), clock=time.perf_counter
    )
    if not agree(ours, textbook):
        sys.exit(f"the two sides differ on the database, {growth}")
    size = count_size(ours)
    yield build_row(f"database, {growth}", textbook_seconds, ours_seconds, size=size)
    freeze_snapshot(session, row.name)
    session.commit()
    load()
    again_seconds, again = time_best(load, repeats=3, clock=time.perf_counter)
    if not agree(again, textbook):
        sys.exit(f"the two sides differ on what is kept of the database, {growth}")
    yield build_row(f"database, frozen, in a second process, {growth}", textbook_seconds, again_seconds, size=size)


def take_trajectories(snapshot: Snapshot, count: int) -> Snapshot:
    """Return the snapshot with the first trajectories of every question."""
    table = snapshot.trajectories
    manifest = {**snapshot.manifest.raw, "trajectories_per_question": count}
    return build_snapshot(manifest, snapshot.questions, table.filter(pc.less(table["trajectory"], count)))


def take_steps(snapshot: Snapshot, share: float) -> Snapshot:
    """Return the snapshot with every trajectory cut off after a share of its steps."""
    table = snapshot.trajectories
    lengths = list_lengths(table["retained_tokens"])
    kept = 1 + np.ceil((lengths - 1) * share).astype(np.int64)
    starts = np.cumsum(lengths) - lengths
    offsets = np.concatenate([[0], np.cumsum(kept)])
    idx = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], kept)
    columns = {name: table[name] for name in ("model", "benchmark", "question_id", "trajectory", "original_correct")}
    for name in CURVES:
        values = table[name].combine_chunks().flatten().to_numpy()[idx]
        columns[name] = pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(values))
        if name == "retained_tokens":
            columns["thinking_tokens"] = pa.array(values[offsets[1:] - 1])
    return build_snapshot(snapshot.manifest.raw, snapshot.questions, pa.table(columns))


def list_folders(scale: float) -> Iterator[tuple[str, Snapshot]]:
    """Yield the whole snapshot and smaller ones: fewer questions, trajectories, steps."""
    whole = draw_snapshot(scale=scale)
    yield "whole", whole
    for share in SHARES:
        yield f"{share:.3g} of the questions", draw_snapshot(scale=scale * share)
    full = whole.manifest.trajectories_per_question
    for share in SHARES:
        count = math.ceil(full * share)
        yield f"{count} of {full} trajectories", take_trajectories(whole, count)
    for share in SHARES:
        yield f"{share:.3g} of the steps", take_steps(whole, share)


def list_rows(scale: float) -> Iterator[Row]:
    """Yield the rows as they are measured: folders, then the database with fewer and with all questions."""
    time_folder(draw_snapshot(scale=min(scale, 0.01)), "to load what both sides need")
    for growth, snapshot in list_folders(scale):
        yield time_folder(snapshot, growth)
    with tempfile.TemporaryDirectory(prefix="otboard-loading-") as name:
        data_dir = Path(name)
        engine = make_engine(start_embedded(data_dir))
        try:
            upgrade_database(engine)
            for share in (*SHARES, 1.0):
                growth = "whole" if share == 1 else f"{share:.3g} of the questions"
                with session_factory(engine)() as session:
                    yield from time_database(session, draw_snapshot(scale=scale * share), data_dir, growth)
        finally:
            engine.dispose()
            stop_embedded(data_dir)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the paper's questions")
    add_format_option(parser)
    options = parser.parse_args()
    print_rows(list_rows(options.scale), options.format)


if __name__ == "__main__":
    main()
