"""Snapshots: reading, verifying, hashing and writing the public format, and loading it as measurements."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from app.errors import ContentError, Problem
from app.evaluator.measurements import ALL_SPLITS, SPLITS, Cell, Measurements
from app.files.atomic import new_file, new_folder
from app.files.columns import (
    LABEL_COLUMNS,
    QUESTION_COLUMNS,
    QUESTIONS_FILE,
    QUESTIONS_SCHEMA,
    TRAJECTORIES_FILE,
    TRAJECTORIES_SCHEMA,
    TRAJECTORY_COLUMNS,
    Columns,
    coerce_columns,
    list_lengths,
)
from app.files.identity import hash_content
from app.files.manifest import MANIFEST_FILE, Manifest, ManifestFacts, build_manifest, check_manifest
from app.files.problems import ProblemCollector
from app.files.snapshot_checks import check_questions, check_trajectories
from app.files.snapshot_source import SnapshotSource, open_source

# Called with what is being done, and how many of how many steps are done.
Progress = Callable[[str, int, int], None]
_ROW_GROUP_ROWS = 16_384
_ZIP_TIME = (1980, 1, 1, 0, 0, 0)


class SnapshotError(ContentError):
    """A snapshot has faults; all of them are listed."""

    code = "invalid_snapshot"
    title = "The snapshot has problems"


class UnknownSplitError(ContentError):
    """A split that does not exist, or in which the snapshot has no question."""

    code = "unknown_split"
    title = "No such split"


class LabelsHiddenError(ContentError):
    """The measurements lack the labels of a hidden split, so nothing can be computed from them."""

    code = "labels_hidden"
    title = "The labels are hidden"


@dataclass(frozen=True, eq=False)
class Snapshot:
    """A verified snapshot in its canonical form.

    Attributes
    ----------
    manifest : the checked manifest.
    questions : one row per question, by benchmark in the manifest's order, then `question_id` by code point.
    trajectories : one row per trajectory, by model and benchmark in the manifest's order, question as above, then
        number. Both tables have every column of the format in its canonical type, null throughout where the files
        have none.
    sha256 : the identity of this content.
    full_sha256 : the identity that boards, scores and receipts refer to: that of the snapshot with all labels. Equal
        to `sha256` except for a public export, whose manifest says it.
    """

    manifest: Manifest
    questions: pa.Table
    trajectories: pa.Table
    sha256: str
    full_sha256: str


@dataclass(frozen=True, eq=False)
class _Content:
    """A snapshot's parts as found; None where a part could not be read."""

    manifest: dict[str, Any] | None
    questions: pa.Table | None
    trajectories: pa.Table | None


def read_snapshot(path: Path, *, progress: Progress | None = None) -> Snapshot:
    """Read and verify a snapshot folder or zip.

    Parameters
    ----------
    path : the folder with `manifest.json` and the two Parquet files, or a zip of it (of its files or of the folder).
    progress : called as the work goes on with what is done, how many of how many steps.

    Raises
    ------
    SnapshotError : with all faults: at most 100 examples, exact totals per code.
    """
    problems = ProblemCollector()
    snapshot = _read(Path(path), problems, progress or _no_progress)
    if snapshot is None:
        raise _error(problems, str(path))
    return snapshot


def verify_snapshot(path: Path, *, progress: Progress | None = None) -> list[Problem]:
    """Return the faults of a snapshot folder or zip, none for a sound one."""
    problems = ProblemCollector()
    _read(Path(path), problems, progress or _no_progress)
    return problems.problems()


def build_snapshot(manifest: dict[str, Any], questions: pa.Table, trajectories: pa.Table) -> Snapshot:
    """Build a snapshot from parts in memory: verify them, bring them into canonical form, hash them.

    Parameters
    ----------
    manifest : the manifest's JSON object; `files` may be absent, it is made when the snapshot is written.
    questions, trajectories : tables with the columns of the format, rows in any order.

    Raises
    ------
    SnapshotError : with all faults, as for a file.

    Notes
    -----
    Vectorised over all rows: a snapshot of 92,448 trajectories and 2.3 million positions takes well under a second.

    Examples
    --------
    One trajectory, right with 1 of 4 probes at once, with 4 after 9 tokens.

    >>> question = {"benchmark": "b", "question_id": "q", "split": "test"}
    >>> row = {"model": "m", "benchmark": "b", "question_id": "q", "trajectory": 0, "thinking_tokens": 9}
    >>> row |= {"retained_tokens": [0, 9], "correct_probes": [1, 4]}
    >>> manifest = {"format": "stp-snapshot/1", "name": "s", "title": "S", "kind": "measured"}
    >>> manifest |= {"probes_per_position": 4, "trajectories_per_question": 1}
    >>> manifest |= {"models": [{"name": "m"}], "benchmarks": [{"name": "b"}]}
    >>> snapshot = build_snapshot(manifest, pa.Table.from_pylist([question]), pa.Table.from_pylist([row]))
    >>> load_measurements(snapshot, "test").cells[0].total_thinking_tokens
    9
    >>> row["thinking_tokens"] = 8
    >>> build_snapshot(manifest, pa.Table.from_pylist([question]), pa.Table.from_pylist([row]))
    Traceback (most recent call last):
    app.files.snapshot.SnapshotError: s has 1 problem (thinking_tokens_mismatch)
    """
    problems = ProblemCollector()
    content = _Content({"files": {}, **manifest}, questions, trajectories)
    snapshot = _build(content, problems, _no_progress)
    if snapshot is None:
        raise _error(problems, str(manifest.get("name")))
    return snapshot


def write_snapshot(snapshot: Snapshot, path: Path) -> None:
    """Write a snapshot as a new folder, or as a new zip where the name ends in `.zip`: whole or not at all.

    Columns that are null throughout are left out. The same snapshot gives the same bytes.

    Raises
    ------
    OutputExistsError : something has that name already.
    OutputFailedError : the place cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() != ".zip":
        with new_folder(path) as folder:
            _write_files(snapshot, folder)
        return
    with new_file(path) as archive_path:
        folder = archive_path.parent / "files"
        folder.mkdir()
        _write_files(snapshot, folder)
        with zipfile.ZipFile(archive_path, "w") as archive:
            for name in (MANIFEST_FILE, QUESTIONS_FILE, TRAJECTORIES_FILE):
                entry = zipfile.ZipInfo(name, date_time=_ZIP_TIME)
                entry.external_attr = 0o644 << 16
                with (folder / name).open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                    shutil.copyfileobj(source, target, 2**20)


def make_public(snapshot: Snapshot) -> Snapshot:
    """Return the public form: labels of the hidden splits null, the full identity in the manifest.

    `correct_probes`, `original_correct`, `direct_correct` and `probe_answers` are null on every trajectory of a
    hidden split; everything else stays. A snapshot without hidden splits is returned as it is.
    """
    if not snapshot.manifest.hidden_splits:
        return snapshot
    split = _split_of_trajectories(snapshot)
    shown = pc.invert(pc.is_in(split, value_set=pa.array(snapshot.manifest.hidden_splits, pa.string())))
    trajectories = snapshot.trajectories
    for name in LABEL_COLUMNS:
        idx = trajectories.column_names.index(name)
        column = trajectories.column(idx)
        # A take with null indices gives null rows, for lists of lists as well.
        kept = pc.if_else(shown, pa.array(np.arange(len(column))), pa.scalar(None, pa.int64()))
        trajectories = trajectories.set_column(idx, trajectories.schema.field(idx), column.take(kept))
    raw = {**snapshot.manifest.raw, "full_sha256": snapshot.full_sha256}
    return build_snapshot(raw, snapshot.questions, trajectories)


def load_measurements(snapshot: Snapshot, split: str = ALL_SPLITS) -> Measurements:
    """Return a snapshot's measurements as arrays, whole or of one split.

    `correct_probes` is -1 where the labels are hidden.

    Raises
    ------
    UnknownSplitError : no such split, or the snapshot has no question in it.
    """
    require_split(snapshot, split)
    manifest = snapshot.manifest
    cells = _load_cells(snapshot)
    whole = Measurements(
        snapshot=manifest.name,
        sha256=snapshot.full_sha256,
        kind=manifest.kind,
        split=ALL_SPLITS,
        probes_per_position=manifest.probes_per_position,
        trajectories_per_question=manifest.trajectories_per_question,
        models=manifest.models,
        benchmarks=manifest.benchmarks,
        cells=tuple(cells),
    )
    return whole.select(split)


def require_split(snapshot: Snapshot, split: str) -> None:
    """Raise UnknownSplitError unless the split is "all" or one in which the snapshot has questions."""
    if split not in (ALL_SPLITS, *SPLITS):
        raise UnknownSplitError(f"there is no split {split!r}; splits are {', '.join((ALL_SPLITS, *SPLITS))}")
    if split != ALL_SPLITS and split not in pc.unique(snapshot.questions.column("split")).to_pylist():
        raise UnknownSplitError(f"the snapshot {snapshot.manifest.name} has no question in the split {split}")


def require_labels(measurements: Measurements) -> None:
    """Raise LabelsHiddenError unless every label of the measurements is known."""
    if not measurements.has_labels:
        raise LabelsHiddenError(
            f"the labels of the split {measurements.split} of {measurements.snapshot} are hidden in this public "
            "export; only the server that holds them can score on it"
        )


def _read(path: Path, problems: ProblemCollector, progress: Progress) -> Snapshot | None:
    with open_source(path, problems) as source:
        content = _read_content(source, problems, progress)
        return _build(content, problems, progress)


def _read_content(source: SnapshotSource, problems: ProblemCollector, progress: Progress) -> _Content:
    manifest = source.read_manifest(problems)
    files = manifest.get("files") if manifest else None
    digests = files if isinstance(files, dict) else None
    tables: dict[str, pa.Table | None] = {}
    names = (QUESTIONS_FILE, TRAJECTORIES_FILE)
    for done, name in enumerate(names):
        progress(f"reading {name}", done, len(names) + 2)
        if digests is not None and name not in digests:
            problems.add("missing_hash", f"the manifest's files lack {name}", column="files")
        tables[name] = source.read_table(name, problems)
    for name, digest in (digests or {}).items():
        source.check_hash(name, digest, problems)
    return _Content(manifest, tables[QUESTIONS_FILE], tables[TRAJECTORIES_FILE])


def _build(content: _Content, problems: ProblemCollector, progress: Progress) -> Snapshot | None:
    progress("verifying", 2, 4)
    facts = ManifestFacts() if content.manifest is None else check_manifest(content.manifest, problems)
    questions = _coerce(content.questions, QUESTION_COLUMNS, QUESTIONS_FILE, problems)
    trajectories = _coerce(content.trajectories, TRAJECTORY_COLUMNS, TRAJECTORIES_FILE, problems)
    if questions is not None:
        check_questions(questions, facts, problems)
    if trajectories is not None:
        check_trajectories(trajectories, questions, facts, problems)
    if problems or content.manifest is None or questions is None or trajectories is None:
        return None
    progress("hashing", 3, 4)
    manifest = build_manifest(content.manifest, facts)
    question_table, trajectory_table = _sort_tables(manifest, questions, trajectories)
    sha256 = hash_content(manifest.raw, question_table, trajectory_table)
    full_sha256 = sha256
    if manifest.full_sha256 is not None:
        full_sha256 = manifest.full_sha256
        if trajectory_table.column("correct_probes").null_count == 0 and full_sha256 != sha256:
            message = f"full_sha256 is {full_sha256}, but this content has all its labels and the identity {sha256}"
            problems.add("hash_mismatch", message, column="full_sha256")
            return None
    progress("done", 4, 4)
    return Snapshot(manifest, question_table, trajectory_table, sha256, full_sha256)


def _coerce(table: pa.Table | None, columns: Any, file: str, problems: ProblemCollector) -> Columns | None:
    return None if table is None else coerce_columns(table, columns, file=file, problems=problems)


def _sort_tables(manifest: Manifest, questions: Columns, trajectories: Columns) -> tuple[pa.Table, pa.Table]:
    """Return both tables in canonical order; the columns are all there and sound."""
    question_table = pa.table([questions[name] for name in QUESTIONS_SCHEMA.names], schema=QUESTIONS_SCHEMA)
    benchmarks = pa.array(manifest.benchmarks, pa.string())
    keys = pa.table(
        {
            "benchmark": pc.index_in(question_table["benchmark"], value_set=benchmarks),
            "question_id": question_table["question_id"],
        }
    )
    order = pc.sort_indices(keys, sort_keys=[("benchmark", "ascending"), ("question_id", "ascending")])
    question_table = question_table.take(order)
    table = pa.table([trajectories[name] for name in TRAJECTORIES_SCHEMA.names], schema=TRAJECTORIES_SCHEMA)
    model_idx = _numpy(pc.index_in(table["model"], value_set=pa.array(manifest.models, pa.string())))
    question_idx = _find_question_rows(question_table, table)
    trajectory = _numpy(table["trajectory"])
    row_key = (model_idx * question_table.num_rows + question_idx) * manifest.trajectories_per_question + trajectory
    if (np.diff(row_key) > 0).all():
        return question_table, table
    return question_table, table.take(pa.array(np.argsort(row_key, kind="stable")))


def _find_question_rows(questions: pa.Table, trajectories: pa.Table) -> NDArray[np.int64]:
    """Return the row of each trajectory's question."""
    known = pc.binary_join_element_wise(questions["benchmark"], questions["question_id"], "\x1f").combine_chunks()
    keys = pc.binary_join_element_wise(trajectories["benchmark"], trajectories["question_id"], "\x1f")
    return _numpy(pc.index_in(keys, value_set=known))


def _split_of_trajectories(snapshot: Snapshot) -> pa.ChunkedArray:
    rows = _find_question_rows(snapshot.questions, snapshot.trajectories)
    return snapshot.questions["split"].take(pa.array(rows))


def _load_cells(snapshot: Snapshot) -> list[Cell]:
    manifest, table = snapshot.manifest, snapshot.trajectories
    lengths = list_lengths(table["retained_tokens"])
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    retained = _flat_values(table["retained_tokens"])
    labelled = table["correct_probes"].is_valid().to_numpy()
    correct = np.full(len(retained), -1, dtype=np.int32)
    correct[np.repeat(labelled, lengths)] = _flat_values(table["correct_probes"])
    original, direct = _labels(table["original_correct"]), _labels(table["direct_correct"])
    per_question = manifest.trajectories_per_question
    cells = []
    row = 0
    for model in manifest.models:
        for benchmark in manifest.benchmarks:
            of_benchmark = snapshot.questions.filter(pc.equal(snapshot.questions["benchmark"], benchmark))
            rows = slice(row, row + of_benchmark.num_rows * per_question)
            row = rows.stop
            if not of_benchmark.num_rows:
                continue
            positions = slice(offsets[rows.start], offsets[rows.stop])
            cell = Cell(
                model=model,
                benchmark=benchmark,
                question_ids=tuple(of_benchmark["question_id"].to_pylist()),
                question_splits=tuple(of_benchmark["split"].to_pylist()),
                trajectories_per_question=per_question,
                probes_per_position=manifest.probes_per_position,
                offsets=offsets[rows.start : rows.stop + 1] - offsets[rows.start],
                retained_tokens=retained[positions],
                correct_probes=correct[positions],
                original_correct=original[rows],
                direct_correct=direct[rows],
            )
            cells.append(cell)
    return cells


def _flat_values(column: pa.ChunkedArray) -> NDArray[np.int32]:
    chunks = [chunk.flatten().to_numpy(zero_copy_only=False) for chunk in column.chunks]
    return np.concatenate(chunks) if chunks else np.empty(0, dtype=np.int32)


def _labels(column: pa.ChunkedArray) -> NDArray[np.int8]:
    """Return 1, 0 or -1 for true, false and null."""
    return np.asarray(column.cast(pa.int8()).fill_null(-1).to_numpy(), dtype=np.int8)


def _numpy(column: pa.ChunkedArray) -> NDArray[np.int64]:
    return np.asarray(column.cast(pa.int64()).to_numpy(), dtype=np.int64)


def _write_files(snapshot: Snapshot, folder: Path) -> None:
    for name, table in ((QUESTIONS_FILE, snapshot.questions), (TRAJECTORIES_FILE, snapshot.trajectories)):
        kept = [c for c in table.column_names if table[c].null_count < table.num_rows]
        texts = [c for c in kept if pa.types.is_string(table.schema.field(c).type)]
        with pa.OSFile(os.fsencode(folder / name), "wb") as sink:
            pq.write_table(
                table.select(kept),
                sink,
                row_group_size=_ROW_GROUP_ROWS,
                compression="zstd",
                use_dictionary=texts,
            )
    files = {name: hash_file(folder / name) for name in (QUESTIONS_FILE, TRAJECTORIES_FILE)}
    manifest = {**snapshot.manifest.raw, "files": files}
    text = json.dumps(manifest, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / MANIFEST_FILE).write_text(text + "\n", encoding="utf-8")


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's bytes in hexadecimal, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _error(problems: ProblemCollector, name: str) -> SnapshotError:
    listed = problems.problems()
    totals = {problem.code: problem.count for problem in listed}
    n_faults = sum(totals.values())
    noun = "problem" if n_faults == 1 else "problems"
    return SnapshotError(f"{name} has {n_faults} {noun} ({', '.join(totals)})", problems=listed)


def _no_progress(what: str, done: int, total: int) -> None:
    """Report to nobody."""
