"""Finished probe runs become a snapshot: alone, together, or with one that exists, whose place it then takes."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db import bulk, models
from app.errors import ContentError, StateError
from app.files.columns import QUESTIONS_SCHEMA, TRAJECTORIES_SCHEMA, list_lengths
from app.files.combining import Heading, Part, combine_parts, snapshot_part
from app.files.problems import ProblemCollector
from app.services import snapshots
from app.services.probe_records import unpack_answers
from app.services.probe_runs import ProbeRunState, lock_run, transition

# What was assembled can be assembled again, once it was graded anew or together with more.
WHOLE_STATES = (ProbeRunState.FINISHED, ProbeRunState.ASSEMBLED)
LIMITS = ("thinking_token_limit", "answer_token_limit", "probe_token_limit")
# What a worker says of itself that is no version and no choice: where it ran.
PLACES = ("actor", "worker", "host")
# NUL characters and half surrogate pairs, which a decoder of broken tokens may leave.
UNSTORABLE = re.compile("[\x00\ud800-\udfff]")

TRAJECTORIES_QUERY = """
SELECT i.benchmark, i.question_id, t.trajectory, t.retained_tokens, t.correct_probes, t.end_margin, t.token_ids,
       t.block_tokens, t.original_correct, t.direct_correct, encode(t.answers, 'base64') AS probe_answers
FROM probe_trajectories t JOIN probe_items i ON i.id = t.probe_item_id
WHERE i.probe_run_id = {} ORDER BY i.idx, t.trajectory
"""
READ_COLUMNS = (
    "benchmark",
    "question_id",
    "trajectory",
    "retained_tokens",
    "correct_probes",
    "end_margin",
    "token_ids",
    "block_tokens",
    "original_correct",
    "direct_correct",
)


class RunNotFinishedError(StateError):
    """A run that has not measured all of its questions cannot become a snapshot."""

    code = "run_not_finished"
    title = "The probe run is not finished"


class NothingToAssembleError(ContentError):
    """No run was named."""

    code = "nothing_to_assemble"
    title = "No probe run was named"


@dataclass(frozen=True)
class Assembly:
    """What a new snapshot is to be called and to say of itself; None where it says what its runs say.

    `hidden_splits` are hidden besides those that are hidden in the snapshot it is combined with.
    """

    name: str
    title: str | None = None
    description: str | None = None
    license: str | None = None
    source: str | None = None
    hidden_splits: tuple[str, ...] = ()


def assemble_runs(
    session: Session, names: Sequence[str], *, assembly: Assembly, actor: str, with_snapshot: str | None = None
) -> models.Snapshot:
    """Import the measurements of finished runs as one new snapshot, not yet frozen.

    The runs, and the snapshot that they are combined with, have the same protocol: b, R, M, and the same questions of
    each benchmark. The new one takes the place of that snapshot, and of those that the runs were assembled into before;
    its manifest names them.

    Raises
    ------
    UnknownProbeRunError, UnknownSnapshotError : there is no such run or snapshot.
    RunNotFinishedError : a run is not finished, or questions of it failed; all are named.
    PartsDoNotFitError : the protocols, questions or cells do not fit; every reason is listed.
    SnapshotExistsError : the name is taken.
    """
    runs = _lock_runs(session, names)
    _check_finished(session, runs)
    base = None if with_snapshot is None else snapshots.export_snapshot(session, with_snapshot)
    parts = [run_part(session, run) for run in runs]
    heading = _make_heading(assembly, runs, base.manifest.raw if base else {})
    superseded = [{"name": base.manifest.name, "sha256": base.full_sha256}] if base else []
    superseded += _list_former(session, runs)
    combined = combine_parts([*([snapshot_part(base)] if base else []), *parts], heading, superseded=superseded)
    stored = snapshots.import_snapshot(session, combined)
    for run in runs:
        # A constraint wants the state and the snapshot to be written together.
        with session.no_autoflush:
            run.snapshot_id = stored.id
            transition(session, run, ProbeRunState.ASSEMBLED, actor=actor, reason=f"assembled into {stored.name}")
    return stored


def run_part(session: Session, run: models.ProbeRun) -> Part:
    """Return what a finished run measured, as a part of a snapshot."""
    protocol = run.protocol
    sets = _list_question_sets(session, run)
    items = [dict(row) for row in session.execute(_items_query(run)).mappings()]
    return Part(
        label=f"run {run.name}",
        kind="measured",
        step_tokens=protocol["step_tokens"],
        n_trajectories=protocol["n_trajectories"],
        n_probes=protocol["n_probes"],
        thinking_token_limit=protocol["thinking_token_limit"],
        models=(_describe_model(run),),
        benchmarks=tuple(_describe_benchmark(one) for one in sets),
        hidden_splits=(),
        questions=_read_questions(items),
        trajectories=_read_trajectories(session, run),
        sources=(_describe_source(session, run, items),),
        counts=tuple(count_cells(session, run)),
    )


def count_cells(session: Session, run: models.ProbeRun) -> list[dict[str, Any]]:
    """Return per benchmark how many trajectories hit the limit and how many probes' answers could not be extracted."""
    item, trajectory = models.ProbeItem, models.ProbeTrajectory
    n_positions = func.sum(func.cardinality(trajectory.retained_tokens))
    query = (
        select(
            item.benchmark,
            func.count(),
            func.count().filter(trajectory.hit_limit),
            n_positions,
            func.sum(trajectory.n_unextracted),
        )
        .join(item, item.id == trajectory.probe_item_id)
        .where(item.probe_run_id == run.id)
        .group_by(item.benchmark)
        .order_by(func.min(item.idx))
    )
    return [
        {
            "model": run.model,
            "benchmark": benchmark,
            "trajectories": n_trajectories,
            "hit_thinking_limit": n_hit,
            "answers": int(positions) * run.protocol["n_probes"],
            "unextracted_answers": int(n_unextracted),
        }
        for benchmark, n_trajectories, n_hit, positions, n_unextracted in session.execute(query)
    ]


def _lock_runs(session: Session, names: Sequence[str]) -> list[models.ProbeRun]:
    if not names:
        raise NothingToAssembleError("Name at least one finished probe run.")
    # Locked in one order, so that two who assemble the same runs cannot wait for each other.
    found = {name: lock_run(session, name) for name in sorted(set(names))}
    # By its name and by its id a run may be named twice.
    return list({found[name].id: found[name] for name in names}.values())


def _check_finished(session: Session, runs: Iterable[models.ProbeRun]) -> None:
    problems = ProblemCollector()
    item = models.ProbeItem
    for run in runs:
        if run.state not in WHOLE_STATES:
            problems.add("run_not_finished", f"run {run.name} is {run.state}", column="state", unit=run.name)
        failed = select(item.benchmark, item.question_id, item.state, item.reason)
        failed = failed.where(item.probe_run_id == run.id, item.state != "done").order_by(item.idx)
        for benchmark, question_id, state, reason in session.execute(failed):
            why = f": {reason}" if reason else ""
            problems.add(
                "question_not_measured",
                f"a question of run {run.name} is {state}{why}",
                unit=f"{run.model} / {benchmark} / {question_id}",
            )
    if problems:
        found = problems.problems()
        raise RunNotFinishedError(f"{found[0].message}; only whole runs become a snapshot.", problems=found)


def _make_heading(assembly: Assembly, runs: Sequence[models.ProbeRun], base: Mapping[str, Any]) -> Heading:
    return Heading(
        name=assembly.name,
        title=assembly.title or base.get("title") or runs[0].title,
        description=assembly.description or base.get("description"),
        license=assembly.license or base.get("license"),
        source=assembly.source or base.get("source"),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        hidden_splits=assembly.hidden_splits,
    )


def _list_former(session: Session, runs: Sequence[models.ProbeRun]) -> list[dict[str, str]]:
    """Return the snapshots that runs were assembled into before."""
    ids = {run.snapshot_id for run in runs if run.snapshot_id is not None}
    query = select(models.Snapshot).where(models.Snapshot.id.in_(ids)).order_by(models.Snapshot.id)
    return [{"name": row.name, "sha256": row.full_sha256} for row in session.scalars(query)]


def _list_question_sets(session: Session, run: models.ProbeRun) -> list[models.QuestionSet]:
    """Return a run's question sets in the order in which it asks them."""
    item, question_set = models.ProbeItem, models.QuestionSet
    first = select(item.question_set_id, func.min(item.idx).label("idx")).where(item.probe_run_id == run.id)
    used = first.group_by(item.question_set_id).subquery()
    query = select(question_set).join(used, used.c.question_set_id == question_set.id).order_by(used.c.idx)
    return list(session.scalars(query))


def _describe_model(run: models.ProbeRun) -> dict[str, Any]:
    """Return the profile that a run measured with, with the limits of its protocol."""
    limits = {key: run.protocol[key] for key in LIMITS}
    profile = {key: value for key, value in {**run.profile, **limits}.items() if key != "format" and value is not None}
    return {**profile, "name": run.model}


def _describe_benchmark(question_set: models.QuestionSet) -> dict[str, Any]:
    header = {key: value for key, value in question_set.header.items() if key not in ("format", "benchmark")}
    return {"name": question_set.benchmark, **header, "questions_sha256": question_set.sha256}


def _describe_source(session: Session, run: models.ProbeRun, items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what measured a run: its protocol with the seeds' name, and the versions of every worker in it."""
    versions: dict[str, dict[str, Any]] = {}
    for item in items:
        known = {key: value for key, value in (item["worker"] or {}).items() if key not in PLACES}
        versions.setdefault(json.dumps(known, sort_keys=True), known)
    graders = select(models.ProbeTrajectory.grader_version).join(models.ProbeItem)
    used = session.scalars(graders.where(models.ProbeItem.probe_run_id == run.id).distinct())
    return {
        "run": run.name,
        "model": run.model,
        "protocol": run.protocol,
        "grader_versions": sorted(used),
        "versions": [versions[key] for key in sorted(versions)],
    }


def _items_query(run: models.ProbeRun) -> Any:
    item = models.ProbeItem
    query = select(item.benchmark, item.question_id, item.split, item.document, item.worker)
    return query.where(item.probe_run_id == run.id).order_by(item.idx)


def _read_questions(items: Iterable[Mapping[str, Any]]) -> pa.Table:
    rows = [
        {
            "benchmark": item["benchmark"],
            "question_id": item["question_id"],
            "split": item["split"],
            "prompt": item["document"]["prompt"],
            "reference_answer": item["document"]["reference_answer"],
            "difficulty": item["document"].get("difficulty"),
        }
        for item in items
    ]
    return pa.Table.from_pylist(rows, schema=QUESTIONS_SCHEMA)


def _read_trajectories(session: Session, run: models.ProbeRun) -> pa.Table:
    fields = [TRAJECTORIES_SCHEMA.field(name) for name in READ_COLUMNS]
    stored = pa.schema([*fields, pa.field("probe_answers", pa.string())])
    table = bulk.copy_out(session, TRAJECTORIES_QUERY, stored, parameters=[run.id])
    columns = {name: table[name] for name in READ_COLUMNS}
    columns["model"] = pa.array([run.model] * table.num_rows, pa.string())
    columns["thinking_tokens"] = pa.array(list_lengths(table["token_ids"]), pa.int32())
    columns["probe_answers"] = pa.array(
        [_read_answers(text) for text in table["probe_answers"].to_pylist()],
        TRAJECTORIES_SCHEMA.field("probe_answers").type,
    )
    columns["step_logprob"] = pa.nulls(table.num_rows, TRAJECTORIES_SCHEMA.field("step_logprob").type)
    return pa.table([columns[name] for name in TRAJECTORIES_SCHEMA.names], schema=TRAJECTORIES_SCHEMA)


def _read_answers(text: str) -> list[list[str]]:
    """Return the answers of each position; characters that the format cannot hold become the replacement character."""
    answers = unpack_answers(base64.b64decode(text))
    return [[UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", answer) for answer in of_one] for of_one in answers]
