"""The analyses of a snapshot's split: each computed once by a job, stored as a document, then only read."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, sessionmaker

from app import report_analyses as report
from app.config import Config
from app.db import models
from app.errors import NotFoundError, StateError
from app.evaluator.centring import INTERVAL_VERSION
from app.evaluator.intervals import summarise_intervals
from app.evaluator.measurements import Measurements
from app.evaluator.reference import CellReference
from app.evaluator.strategies import Strategy
from app.files import snapshot as files
from app.files.interval_documents import snapshot_intervals_document
from app.report_values import Document
from app.services import jobs
from app.services.bootstrap import find_progress, load_split_replicates
from app.services.frontiers import EVALUATOR_VERSION, get_references
from app.services.measurements import (
    load_measurements,
    read_manifest,
    read_questions,
    read_trajectories,
)
from app.services.release import are_labels_told
from app.services.snapshots import list_splits

logger = logging.getLogger(__name__)

Sessions = sessionmaker[Session]
SLICE_SECONDS = 5.0
"""A slice ends after the analysis that passes this, and after any while another job waits."""
INTERVALS = "intervals"
PREFIX = "analysis:"
"""Stored documents are named apart from the overthinking figures, which an earlier version stores under their name."""


class AnalysisNotReadyError(StateError):
    """The analysis was asked for before a job has computed it."""

    code = "analysis_not_ready"
    title = "The analysis is being computed"


class UnknownAnalysisError(NotFoundError):
    """There is no analysis of this name."""

    code = "unknown_analysis"
    title = "No such analysis"


@dataclass(frozen=True)
class AnalysisNeeds:
    """What analyses are computed from: a split's measurements, and how to read more of the snapshot."""

    session: Session
    snapshot: models.Snapshot
    measurements: Measurements
    config: Config

    def read_columns(self, *columns: str) -> files.Snapshot:
        """Return the snapshot with its questions' difficulties and these columns of its trajectories."""
        questions = read_questions(self.session, self.snapshot.id, "benchmark", "question_id", "split", "difficulty")
        key = ("model", "benchmark", "question_id", "trajectory")
        trajectories = read_trajectories(self.session, self.snapshot.id, *key, *columns) if columns else pa.table({})
        return files.Snapshot(
            read_manifest(self.snapshot),
            questions,
            trajectories,
            sha256=self.snapshot.sha256,
            full_sha256=self.snapshot.full_sha256,
        )


@dataclass(frozen=True)
class AnalysisState:
    """How many of a split's analyses are stored, and whether a job is on its way to the others."""

    n_done: int
    n_kinds: int
    is_failed: bool


def _analyse_intervals(needs: AnalysisNeeds) -> Document | None:
    """Return the intervals; None where the replicates have left the data folder and are now computed again."""
    replicates = load_split_replicates(needs.session, needs.snapshot, needs.measurements, config=needs.config)
    if replicates is None:
        return None
    references = _list_references(needs)
    return snapshot_intervals_document(summarise_intervals(needs.measurements, replicates, references))


def _list_references(needs: AnalysisNeeds) -> list[CellReference]:
    split = needs.measurements.split
    return [
        reference
        for strategy in Strategy
        for reference in get_references(
            needs.session, needs.snapshot, split=split, strategy=strategy, data_dir=needs.config.data_dir
        )
    ]


def _analyse_efficiency(needs: AnalysisNeeds) -> Document:
    references = _list_references(needs)
    strategies = [{"strategy": str(strategy)} for strategy in Strategy]
    return {"points": report.measure_oracles(references, strategies, needs.measurements)}


ANALYSES: dict[str, Callable[[AnalysisNeeds], Document | None]] = {
    "overthinking": lambda needs: report.analyse_overthinking(needs.measurements),
    "direct_answers": lambda needs: report.analyse_direct_answers(needs.measurements),
    "local_changes": lambda needs: report.analyse_local_changes(needs.measurements),
    "diversity": lambda needs: report.analyse_diversity(needs.measurements),
    "examples": lambda needs: report.analyse_examples(needs.measurements),
    "thinning": lambda needs: report.analyse_thinning(needs.measurements),
    "step_lengths": lambda needs: report.analyse_step_lengths(needs.read_columns("block_tokens"), needs.measurements),
    "traces": lambda needs: report.analyse_traces(needs.read_columns(), needs.measurements),
    "efficiency": _analyse_efficiency,
    INTERVALS: _analyse_intervals,
}
"""By name, in the order in which they are computed; intervals wait for the bootstrap."""


def list_analyses(
    session: Session, snapshot: models.Snapshot, *, split: str, kinds: Sequence[str] = ()
) -> dict[str, Document]:
    """Return the stored analyses of a split by name, or those of some kinds; none where its labels are hidden."""
    wanted = kinds or tuple(ANALYSES)
    if not are_labels_told(snapshot, split):
        return {}
    table = models.SnapshotFigure
    query = select(table.kind, table.document).where(
        table.snapshot_id == snapshot.id,
        table.split == split,
        table.kind.in_([_stored_name(kind) for kind in wanted]),
        table.evaluator_version == EVALUATOR_VERSION,
    )
    found = {row.kind: row.document for row in session.execute(query)}
    return {kind: found[_stored_name(kind)] for kind in wanted if _stored_name(kind) in found}


def get_analysis(session: Session, snapshot: models.Snapshot, kind: str, *, split: str) -> Document:
    """Return one stored analysis of a split that may be looked at.

    Raises
    ------
    UnknownAnalysisError : no such kind.
    AnalysisNotReadyError : no job has computed it yet.
    """
    if kind not in ANALYSES:
        raise UnknownAnalysisError(f"There is no analysis {kind!r}; there are {', '.join(ANALYSES)}.")
    found = list_analyses(session, snapshot, split=split, kinds=(kind,)).get(kind)
    if found is None:
        raise AnalysisNotReadyError(f"The {kind} of {snapshot.name}, split {split}, are not computed yet; try later.")
    return found


def find_state(session: Session, snapshot: models.Snapshot, *, split: str) -> AnalysisState:
    """Return how far the analyses of a split have come."""
    stored = _list_stored(session, snapshot.id, split=split)
    is_failed = jobs.is_analysis_queued(session, snapshot.id, split=split, statuses=("failed",))
    return AnalysisState(len(stored), len(ANALYSES), is_failed)


def begin_missing(session: Session) -> None:
    """Queue the analyses that frozen snapshots lack and that can be computed now, unless they failed before."""
    for snapshot in session.scalars(select(models.Snapshot).where(models.Snapshot.state == "frozen")):
        for split in list_splits(session, snapshot):
            begin_analyses(session, snapshot, split=split)


def begin_analyses(session: Session, snapshot: models.Snapshot, *, split: str) -> None:
    """Queue the analyses of a split unless nothing is missing, or a job is on its way, or has failed."""
    if not snapshot.is_frozen or not are_labels_told(snapshot, split):
        return
    if _list_missing(session, snapshot, split=split) and not jobs.is_analysis_queued(session, snapshot.id, split=split):
        jobs.defer_analyses(session, snapshot.id, split=split)


def run_slice(sessions: Sessions, snapshot_id: int, *, split: str, config: Config) -> None:
    """Compute and store analyses of a split for some seconds and queue the rest; each is stored as it is done."""
    ends_at = time.monotonic() + SLICE_SECONDS
    while True:
        with sessions.begin() as session:
            snapshot = session.get_one(models.Snapshot, snapshot_id)
            if not are_labels_told(snapshot, split):
                return
            missing = _list_missing(session, snapshot, split=split)
            if not missing:
                return
            _store(session, snapshot, missing[0], split=split, config=config)
            logger.info("%s of %s, %s split, is stored", missing[0], snapshot.name, split)
            is_over = time.monotonic() > ends_at or jobs.is_ahead(session, priority=jobs.ANALYSIS_PRIORITY)
            if is_over and len(missing) > 1:
                jobs.defer_analyses(session, snapshot_id, split=split)
                return


def _store(session: Session, snapshot: models.Snapshot, kind: str, *, split: str, config: Config) -> None:
    measurements = load_measurements(session, snapshot, data_dir=config.data_dir).select(split)
    document = ANALYSES[kind](AnalysisNeeds(session, snapshot, measurements, config))
    if document is None:
        return
    added = insert(models.SnapshotFigure).values(
        snapshot_id=snapshot.id,
        split=split,
        kind=_stored_name(kind),
        document=document,
        evaluator_version=EVALUATOR_VERSION,
    )
    session.execute(added.on_conflict_do_nothing(constraint="uq_snapshot_figures_kind"))


def _list_missing(session: Session, snapshot: models.Snapshot, *, split: str) -> list[str]:
    """Return what is neither stored nor waits for the bootstrap."""
    stored = _list_stored(session, snapshot.id, split=split)
    missing = [kind for kind in ANALYSES if kind not in stored]
    if INTERVALS in missing:
        progress = find_progress(session, snapshot.id, split=split)
        if progress is None or not progress.is_finished:
            missing.remove(INTERVALS)
    return missing


def _list_stored(session: Session, snapshot_id: int, *, split: str) -> set[str]:
    table = models.SnapshotFigure
    query = select(table.kind).where(
        table.snapshot_id == snapshot_id,
        table.split == split,
        table.kind.in_([_stored_name(kind) for kind in ANALYSES]),
        table.evaluator_version == EVALUATOR_VERSION,
    )
    found = set(session.scalars(query))
    return {kind for kind in ANALYSES if _stored_name(kind) in found}


def _stored_name(kind: str) -> str:
    """Return the name a document is stored under; intervals of another version are computed anew."""
    return f"{PREFIX}{kind}.{INTERVAL_VERSION}" if kind == INTERVALS else f"{PREFIX}{kind}"
