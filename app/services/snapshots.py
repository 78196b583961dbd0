"""Snapshots in the database: imported whole or not at all, frozen for good, exported as they came."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlalchemy import func, select, text
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import bulk, models
from app.errors import NotFoundError, StateError
from app.evaluator.measurements import ALL_SPLITS, SPLITS
from app.files import snapshot as files
from app.services import jobs
from app.services.frontiers import (
    SnapshotNotFrozenError,
    get_overthinking,
    get_references,
    list_board_frontiers,
    prepare_split,
)
from app.services.measurements import (
    is_closed,
    load_measurements,
    read_questions,
    read_trajectories,
)

# What other modules call by way of this one.
__all__ = [
    "SnapshotChangedError",
    "SnapshotExistsError",
    "SnapshotNotFrozenError",
    "UnknownSnapshotError",
    "export_snapshot",
    "find_snapshot",
    "freeze_snapshot",
    "get_overthinking",
    "get_references",
    "get_snapshot",
    "import_snapshot",
    "is_closed",
    "list_board_frontiers",
    "list_snapshots",
    "list_splits",
    "load_measurements",
    "prepare_split",
]

# The split that a board shows first is prepared first.
PREPARATION_ORDER = ("test", ALL_SPLITS, "validation", "train")


class UnknownSnapshotError(NotFoundError):
    """No snapshot has this name."""

    code = "unknown_snapshot"
    title = "No such snapshot"


class SnapshotExistsError(StateError):
    """A snapshot of this name, or with this content, is there already."""

    code = "snapshot_exists"
    title = "The snapshot exists already"


class SnapshotChangedError(StateError):
    """What is stored is no longer what was imported."""

    code = "snapshot_changed"
    title = "The stored snapshot was changed"


def get_snapshot(session: Session, name: str) -> models.Snapshot:
    """Return the snapshot of this name or raise `UnknownSnapshotError`."""
    found = find_snapshot(session, name)
    if found is None:
        raise UnknownSnapshotError(f"There is no snapshot {name!r}.")
    return found


def find_snapshot(session: Session, name: str) -> models.Snapshot | None:
    """Return the snapshot of this name, or None."""
    return session.scalar(select(models.Snapshot).where(models.Snapshot.name == name))


def list_snapshots(session: Session) -> list[models.Snapshot]:
    """Return all snapshots, newest first."""
    return list(session.scalars(select(models.Snapshot).order_by(models.Snapshot.id.desc())))


def list_splits(session: Session, snapshot: models.Snapshot) -> list[str]:
    """Return the splits in which the snapshot has questions, in their order, and "all"."""
    question = models.Question
    found = set(session.scalars(select(question.split).where(question.snapshot_id == snapshot.id).distinct()))
    return [*(split for split in SPLITS if split in found), ALL_SPLITS]


def import_snapshot(
    session: Session, snapshot: files.Snapshot, *, progress: files.Progress | None = None
) -> models.Snapshot:
    """Store a verified snapshot by COPY, in the session's transaction: all of it or nothing.

    Parameters
    ----------
    progress : called with what is being done, and how many of how many rows are stored.

    Raises
    ------
    SnapshotExistsError : one of this name or content is there, or is being imported by somebody else and then is.
    """
    stored = _insert_snapshot(session, snapshot)
    model_ids = _insert_models(session, stored.id, snapshot)
    question_ids = _insert_questions(session, stored.id, snapshot)
    total = snapshot.trajectories.num_rows
    columns = snapshot.trajectories.drop_columns(["model", "benchmark", "question_id"])
    columns = _encode_answers(columns)
    columns = columns.append_column("snapshot_id", _repeat(stored.id, total))
    columns = columns.append_column("model_id", _look_up(snapshot.trajectories, ["model"], model_ids))
    columns = columns.append_column(
        "question_pk", _look_up(snapshot.trajectories, ["benchmark", "question_id"], question_ids)
    )
    report = progress or _ignore
    report("storing trajectories", 0, total)
    bulk.copy_in(session, "trajectories", columns, progress=lambda done: report("storing trajectories", done, total))
    # The planner otherwise knows nothing of the new rows until the server comes round to looking at them.
    session.execute(text("ANALYZE questions, trajectories"))
    return stored


def export_snapshot(session: Session, name: str) -> files.Snapshot:
    """Return a stored snapshot, labels included, with the content hash it was imported with.

    For the public form, see `app.files.snapshot.make_public`.

    Raises
    ------
    SnapshotChangedError : its rows were changed before it was frozen: they have faults or give another hash.
    """
    stored = get_snapshot(session, name)
    try:
        exported = files.build_snapshot(
            stored.manifest, read_questions(session, stored.id), read_trajectories(session, stored.id)
        )
    except files.SnapshotError as exc:
        raise SnapshotChangedError(_describe_change(stored, exc.detail), problems=exc.problems) from exc
    if exported.sha256 != stored.sha256:
        raise SnapshotChangedError(_describe_change(stored, f"the hash is now {exported.sha256}"))
    return exported


def _describe_change(stored: models.Snapshot, what: str) -> str:
    return (
        f"Snapshot {stored.name} was imported with the content hash {stored.sha256} and its rows were changed since: "
        f"{what}. Delete its row of the table snapshots and import it again."
    )


def freeze_snapshot(session: Session, name: str) -> models.Snapshot:
    """Make a snapshot immutable and queue the computation of its frontiers; a frozen one is returned as it is.

    Raises
    ------
    SnapshotChangedError : its rows are not what was imported, so its hash would name something else.
    """
    query = select(models.Snapshot).where(models.Snapshot.name == name).with_for_update()
    stored = session.scalar(query.execution_options(populate_existing=True))
    if stored is None:
        raise UnknownSnapshotError(f"There is no snapshot {name!r}.")
    if stored.is_frozen:
        return stored
    export_snapshot(session, name)
    now = session.scalar(select(func.now()))
    stored.state, stored.frozen_at = "frozen", now
    session.flush()
    splits = list_splits(session, stored)
    for split in PREPARATION_ORDER:
        if split in splits and not is_closed(stored, split):
            jobs.defer_preparation(session, stored.id, split=split)
    return stored


def _insert_snapshot(session: Session, snapshot: files.Snapshot) -> models.Snapshot:
    manifest = snapshot.manifest
    new = insert(models.Snapshot).values(
        name=manifest.name,
        title=manifest.title,
        kind=manifest.kind,
        sha256=snapshot.sha256,
        manifest={key: value for key, value in manifest.raw.items() if key != "files"},
        probes_per_position=manifest.probes_per_position,
        trajectories_per_question=manifest.trajectories_per_question,
        n_questions=snapshot.questions.num_rows,
        n_trajectories=snapshot.trajectories.num_rows,
    )
    stored = session.scalars(new.on_conflict_do_nothing().returning(models.Snapshot)).one_or_none()
    if stored is None:
        raise _explain_conflict(session, snapshot)
    return stored


def _explain_conflict(session: Session, snapshot: files.Snapshot) -> SnapshotExistsError:
    name = snapshot.manifest.name
    same_name = find_snapshot(session, name)
    if same_name is None:
        return SnapshotExistsError(f"A snapshot with the same content as {name} is there under another name.")
    if same_name.sha256 == snapshot.sha256:
        return SnapshotExistsError(f"Snapshot {name} is there already, with the same content.")
    return SnapshotExistsError(
        f"There is another snapshot named {name}, with the content hash {same_name.sha256}; this one has "
        f"{snapshot.sha256}. Give it a name of its own."
    )


def _insert_models(session: Session, snapshot_id: int, snapshot: files.Snapshot) -> dict[tuple[str, ...], int]:
    found = [
        models.SnapshotModel(snapshot_id=snapshot_id, idx=idx, name=name)
        for idx, name in enumerate(snapshot.manifest.models)
    ]
    session.add_all(found)
    session.flush()
    return {(model.name,): model.id for model in found}


def _insert_questions(session: Session, snapshot_id: int, snapshot: files.Snapshot) -> dict[tuple[str, ...], int]:
    """Store benchmarks and questions; return the questions' keys by benchmark and `question_id`."""
    manifest = snapshot.manifest
    found = [
        models.SnapshotBenchmark(snapshot_id=snapshot_id, idx=idx, name=name, title=title)
        for idx, (name, title) in enumerate(zip(manifest.benchmarks, manifest.benchmark_titles, strict=True))
    ]
    session.add_all(found)
    session.flush()
    benchmark_ids: dict[tuple[str, ...], int] = {(benchmark.name,): benchmark.id for benchmark in found}
    rows = snapshot.questions.drop_columns(["benchmark"])
    rows = rows.append_column("snapshot_id", _repeat(snapshot_id, rows.num_rows))
    rows = rows.append_column("benchmark_id", _look_up(snapshot.questions, ["benchmark"], benchmark_ids))
    bulk.copy_in(session, "questions", rows)
    names = {benchmark.id: benchmark.name for benchmark in found}
    query = select(models.Question.id, models.Question.benchmark_id, models.Question.question_id)
    stored = session.execute(query.where(models.Question.snapshot_id == snapshot_id))
    return {(names[benchmark_id], question_id): key for key, benchmark_id, question_id in stored}


def _look_up(table: pa.Table, columns: list[str], ids: dict[tuple[str, ...], int]) -> pa.Array:
    """Return the key of each row's names. Names hold no control characters, so one of those can join them."""
    joined = pc.binary_join_element_wise(*(table[column] for column in columns), "\x1f")
    known = pa.array(["\x1f".join(names) for names in ids], pa.string())
    idx = pc.index_in(joined, value_set=known)
    return pa.array(list(ids.values()), pa.int64()).take(idx.combine_chunks())


def _repeat(value: int, n_rows: int) -> pa.Array:
    return pa.array(np.full(n_rows, value, dtype=np.int64))


def _encode_answers(rows: pa.Table) -> pa.Table:
    """Write the probes' answers, lists of lists of texts, as JSON."""
    idx = rows.column_names.index("probe_answers")
    answers = rows.column(idx)
    if answers.null_count == len(answers):
        return rows.set_column(idx, "probe_answers", pa.nulls(len(answers), pa.string()))
    texts = [None if value is None else json.dumps(value) for value in answers.to_pylist()]
    return rows.set_column(idx, "probe_answers", pa.array(texts, pa.string()))


def _ignore(what: str, done: int, total: int) -> None:
    """Report to nobody."""
