"""Probe runs as lists show them, and the questions of one that failed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, tuple_
from sqlalchemy.orm import Session

from app.db import models
from app.services.paging import parse_moment, read_cursor, write_cursor

MAX_FAILED = 100
COUNTED_STATES = ("done", "failed", "running")


@dataclass(frozen=True)
class RunSummary:
    """A run in a list: where it stands, and how many of its questions are done, failed and in hand.

    `snapshot` is what it was last assembled into. `tokens_per_second` is of one worker, None until a question is done.
    """

    id: str
    name: str
    title: str
    model: str
    state: str
    priority: int
    n_questions: int
    n_done: int
    n_failed: int
    n_running: int
    tokens_per_second: float | None
    snapshot: str | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None


@dataclass(frozen=True)
class RunPage:
    """Some runs, newest first, and the cursor of the next page."""

    items: tuple[RunSummary, ...]
    next_cursor: str | None


@dataclass(frozen=True)
class FailedQuestion:
    """A question that nobody tries again until its run is resumed, and why."""

    benchmark: str
    question_id: str
    attempts: int
    reason: str


def list_run_summaries(session: Session, *, limit: int = 50, cursor: str | None = None) -> RunPage:
    """Return runs, newest first: two queries, however many there are."""
    run, snapshot = models.ProbeRun, models.Snapshot
    query = select(run, snapshot.name).outerjoin(snapshot, snapshot.id == run.snapshot_id)
    if cursor is not None:
        created_at, last_id = read_cursor(cursor, n_parts=2)
        query = query.where(tuple_(run.created_at, run.id) < (parse_moment(created_at), last_id))
    found = session.execute(query.order_by(run.created_at.desc(), run.id.desc()).limit(limit + 1)).all()
    counts = _count_items(session, [row.id for row, _ in found[:limit]])
    shown = tuple(_summarise(row, name, counts[row.id]) for row, name in found[:limit])
    more = len(found) > limit
    return RunPage(shown, write_cursor((shown[-1].created_at.isoformat(), shown[-1].id)) if more else None)


def list_failed_questions(session: Session, run_id: str) -> tuple[FailedQuestion, ...]:
    """Return the first hundred questions of a run that failed, in their order."""
    item = models.ProbeItem
    query = (
        select(item.benchmark, item.question_id, item.attempts, item.reason)
        .where(item.probe_run_id == run_id, item.state == "failed")
        .order_by(item.idx)
        .limit(MAX_FAILED)
    )
    return tuple(
        FailedQuestion(benchmark, question_id, attempts, reason or "")
        for benchmark, question_id, attempts, reason in session.execute(query)
    )


def _count_items(session: Session, run_ids: Sequence[str]) -> dict[str, Any]:
    """Return by run how many of its questions are done, failed and in hand, their tokens and seconds."""
    item = models.ProbeItem
    query = (
        select(
            item.probe_run_id,
            *(func.count().filter(item.state == state).label(state) for state in COUNTED_STATES),
            func.sum(item.generated_tokens).label("tokens"),
            func.sum(item.seconds).label("seconds"),
        )
        .where(item.probe_run_id.in_(run_ids))
        .group_by(item.probe_run_id)
    )
    # A run has at least one question, so that every run is here.
    return {row["probe_run_id"]: row for row in session.execute(query).mappings()}


def _summarise(run: models.ProbeRun, snapshot: str | None, counts: Any) -> RunSummary:
    return RunSummary(
        id=run.id,
        name=run.name,
        title=run.title,
        model=run.model,
        state=run.state,
        priority=run.priority,
        n_questions=run.n_questions,
        n_done=counts["done"],
        n_failed=counts["failed"],
        n_running=counts["running"],
        tokens_per_second=float(counts["tokens"]) / float(counts["seconds"]) if counts["seconds"] else None,
        snapshot=snapshot,
        created_at=run.created_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
    )
