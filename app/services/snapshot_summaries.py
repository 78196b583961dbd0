"""Snapshots as lists and pages show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.measurements import ALL_SPLITS, SPLITS
from app.services.paging import read_cursor, write_cursor
from app.services.snapshots import get_snapshot
from app.services.successors import list_successors


@dataclass(frozen=True)
class SnapshotSummary:
    """A snapshot: what it measures, which splits have questions, and the hash that scores refer to.

    `superseded_by` names the snapshot that takes its place.
    """

    name: str
    title: str
    kind: str
    sha256: str
    state: str
    probes_per_position: int
    trajectories_per_question: int
    n_questions: int
    n_trajectories: int
    models: tuple[str, ...]
    benchmarks: tuple[str, ...]
    splits: tuple[str, ...]
    hidden_splits: tuple[str, ...]
    manifest: dict[str, Any]
    created_at: datetime
    frozen_at: datetime | None
    superseded_by: str | None


@dataclass(frozen=True)
class SnapshotPage:
    """Some snapshots, by name, and the cursor of the next page."""

    items: tuple[SnapshotSummary, ...]
    next_cursor: str | None


def list_summaries(session: Session, *, limit: int = 50, cursor: str | None = None) -> SnapshotPage:
    """Return snapshots by name: three queries, however many there are."""
    query = select(models.Snapshot).order_by(models.Snapshot.name).limit(limit + 1)
    if cursor is not None:
        query = query.where(models.Snapshot.name > read_cursor(cursor, n_parts=1)[0])
    found = list(session.scalars(query))
    shown = found[:limit]
    splits = _find_splits(session, [row.id for row in shown])
    successors = list_successors(session)
    items = tuple(_summarise(row, splits[row.id], successors) for row in shown)
    return SnapshotPage(items, write_cursor((items[-1].name,)) if len(found) > limit else None)


def get_summary(session: Session, name: str) -> SnapshotSummary:
    """Return one snapshot."""
    snapshot = get_snapshot(session, name)
    return _summarise(snapshot, _find_splits(session, [snapshot.id])[snapshot.id], list_successors(session))


def _find_splits(session: Session, snapshot_ids: list[int]) -> dict[int, set[str]]:
    question = models.Question
    query = select(question.snapshot_id, question.split).where(question.snapshot_id.in_(snapshot_ids)).distinct()
    splits: dict[int, set[str]] = {snapshot_id: set() for snapshot_id in snapshot_ids}
    for snapshot_id, split in session.execute(query):
        splits[snapshot_id].add(split)
    return splits


def _summarise(row: models.Snapshot, splits: set[str], successors: Mapping[str, str]) -> SnapshotSummary:
    manifest = row.manifest
    return SnapshotSummary(
        name=row.name,
        title=row.title,
        kind=row.kind,
        sha256=row.full_sha256,
        state=row.state,
        probes_per_position=row.probes_per_position,
        trajectories_per_question=row.trajectories_per_question,
        n_questions=row.n_questions,
        n_trajectories=row.n_trajectories,
        models=tuple(model["name"] for model in manifest["models"]),
        benchmarks=tuple(benchmark["name"] for benchmark in manifest["benchmarks"]),
        splits=(*(split for split in SPLITS if split in splits), ALL_SPLITS),
        hidden_splits=tuple(manifest.get("hidden_splits") or ()),
        manifest=manifest,
        created_at=row.created_at,
        frozen_at=row.frozen_at,
        superseded_by=successors.get(row.full_sha256),
    )
