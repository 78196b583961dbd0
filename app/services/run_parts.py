"""What a finished probe run measured, as a part of a snapshot."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db import bulk, models
from app.files.columns import QUESTIONS_SCHEMA, TRAJECTORIES_SCHEMA, list_lengths
from app.files.combining import Part
from app.services.probe_records import unpack_answers

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
# What a snapshot can do without.
OPTIONAL_COLUMNS = (
    "prompt",
    "reference_answer",
    "difficulty",
    "original_correct",
    "end_margin",
    "token_ids",
    "block_tokens",
    "direct_correct",
    "probe_answers",
)
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


def leave_out(part: Part, columns: Sequence[str]) -> Part:
    """Return a part without these optional columns, which are null throughout."""
    tables = {"questions": part.questions, "trajectories": part.trajectories}
    for name, table in tables.items():
        for idx, field in enumerate(table.schema):
            if field.name in columns:
                tables[name] = tables[name].set_column(idx, field, pa.nulls(table.num_rows, field.type))
    return replace(part, **tables)


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
        # How long a question may take says nothing of what was measured.
        "protocol": {key: value for key, value in run.protocol.items() if key != "question_seconds"},
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
