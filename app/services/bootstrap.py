"""The bootstrap of a snapshot's splits: computed by jobs in short slices, kept in the data folder, taken up again."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.evaluator.centring import INTERVAL_VERSION
from app.evaluator.draws import BOOTSTRAP_SEED
from app.evaluator.measurements import Measurements
from app.evaluator.replicate_frontiers import ReplicateFrontiers
from app.evaluator.replicate_store import count_stored, load_replicates, run_bootstrap
from app.evaluator.scorers import current_scorer_version
from app.services import jobs
from app.services.frontiers import EVALUATOR_VERSION
from app.services.measurements import is_closed, load_measurements
from app.services.snapshots import list_splits

logger = logging.getLogger(__name__)

Sessions = sessionmaker[Session]
SLICE_SECONDS = 5.0
"""A slice ends after the block that passes this, and after any block while another job waits."""


@dataclass(frozen=True)
class BootstrapProgress:
    """How far the bootstrap of a split has come; `failure_reason` says why it stopped, where it did."""

    n_done: int
    n_replicates: int
    failure_reason: str | None

    @property
    def is_finished(self) -> bool:
        """Whether all replicates are stored."""
        return self.n_done == self.n_replicates


class _SliceOverError(Exception):
    """Ends a slice between two blocks: what is stored stays."""


def begin_bootstrap(session: Session, snapshot: models.Snapshot, *, split: str, config: Config) -> None:
    """Queue the bootstrap of a split, unless it is finished, on its way, or known to fail.

    It keeps the number of replicates with which it began: all submissions are compared on the same ones.
    """
    if not snapshot.is_frozen or is_closed(snapshot, split):
        return
    added = insert(models.SplitReplicates).values(
        snapshot_id=snapshot.id,
        split=split,
        n_replicates=config.bootstrap_replicates,
        seed=BOOTSTRAP_SEED,
        evaluator_version=EVALUATOR_VERSION,
    )
    session.execute(added.on_conflict_do_nothing(constraint="uq_split_replicates_split"))
    progress = find_progress(session, snapshot.id, split=split)
    assert progress is not None
    is_over = progress.is_finished or progress.failure_reason is not None
    if not is_over and not jobs.is_bootstrap_queued(session, snapshot.id, split=split):
        jobs.defer_bootstrap(session, snapshot.id, split=split)


def begin_missing(session: Session, *, config: Config) -> None:
    """Queue the bootstraps of all frozen snapshots that are neither finished nor on their way.

    Intervals that an earlier version made in another way are queued to be made anew, once the replicates are there.
    """
    for snapshot in session.scalars(select(models.Snapshot).where(models.Snapshot.state == "frozen")):
        for split in list_splits(session, snapshot):
            begin_bootstrap(session, snapshot, split=split, config=config)
    queued = jobs.list_queued_resampling(session)
    for submission_id in _list_outdated(session):
        if submission_id not in queued:
            jobs.defer_resampling(session, submission_id)


def forget_failures(session: Session) -> None:
    """Let bootstraps that failed be tried again: whatever the reason was may be gone."""
    table = models.SplitReplicates
    session.execute(update(table).where(table.failure_reason.is_not(None)).values(failure_reason=None))


def find_progress(session: Session, snapshot_id: int, *, split: str) -> BootstrapProgress | None:
    """Return how far the bootstrap of a split has come, or None where it has not begun."""
    table = models.SplitReplicates
    query = select(table.n_done, table.n_replicates, table.failure_reason).where(*_is_split(snapshot_id, split))
    found = session.execute(query).one_or_none()
    return None if found is None else BootstrapProgress(found.n_done, found.n_replicates, found.failure_reason)


def run_slice(sessions: Sessions, snapshot_id: int, *, split: str, config: Config) -> None:
    """Compute some seconds' worth of a split's replicates and queue the rest.

    What a killed worker had stored stays. With the last block the intervals of every submission that was scored
    meanwhile are queued.
    """
    with sessions.begin() as session:
        row = session.scalar(select(models.SplitReplicates).where(*_is_split(snapshot_id, split)))
        if row is None or row.finished_at is not None:
            return
        snapshot = session.get_one(models.Snapshot, snapshot_id)
        measurements = load_measurements(session, snapshot, data_dir=config.data_dir).select(split)
    try:
        is_complete = _compute_blocks(sessions, row, measurements, folder=replicates_folder(config, snapshot, split))
    except Exception as exc:
        logger.exception("the bootstrap of %s, %s split, failed", snapshot.name, split)
        with sessions.begin() as session:
            reason = str(exc) if isinstance(exc, ValueError | OSError) else type(exc).__name__
            session.execute(update(models.SplitReplicates).filter_by(id=row.id).values(failure_reason=reason))
        return
    with sessions.begin() as session:
        if is_complete:
            _finish(session, row)
            logger.info("%d replicates of %s, %s split, are stored", row.n_replicates, snapshot.name, split)
        else:
            jobs.defer_bootstrap(session, snapshot_id, split=split)


def load_split_replicates(
    session: Session, snapshot: models.Snapshot, measurements: Measurements, *, config: Config
) -> ReplicateFrontiers | None:
    """Return the replicates of a split, or None until they are finished.

    Where they were finished and are no longer in the data folder, they are queued to be computed again.
    """
    split = measurements.split
    row = session.scalar(select(models.SplitReplicates).where(*_is_split(snapshot.id, split)))
    if row is None or row.finished_at is None:
        return None
    folder = replicates_folder(config, snapshot, split)
    try:
        return load_replicates(measurements, folder=folder, n_replicates=row.n_replicates, seed=row.seed)
    except (ValueError, OSError) as exc:
        logger.warning("the replicates in %s cannot be used and are computed again: %s", folder, exc)
        row.n_done, row.finished_at = min(count_stored(folder), row.n_replicates - 1), None
        jobs.defer_bootstrap(session, snapshot.id, split=split)
        return None


def defer_intervals(session: Session, submission: models.Submission) -> None:
    """Queue the intervals of a submission that was just scored, where its split's replicates are finished.

    Where they are not, whoever finishes them queues it: the row is locked, so that one of the two sees the other.
    """
    table = models.SplitReplicates
    query = select(table.finished_at).where(*_is_split(submission.snapshot_id, submission.split))
    if session.scalar(query.with_for_update(read=True)) is not None:
        jobs.defer_resampling(session, submission.id)


def replicates_folder(config: Config, snapshot: models.Snapshot, split: str) -> Path:
    """Return where the replicates of a split lie."""
    return config.data_dir / "replicates" / snapshot.sha256 / split


def _compute_blocks(
    sessions: Sessions, row: models.SplitReplicates, measurements: Measurements, *, folder: Path
) -> bool:
    """Compute blocks until the slice is over; return whether all of them are stored."""
    ends_at = time.monotonic() + SLICE_SECONDS
    n_before: int | None = None

    def note(_: str, n_done: int, n_replicates: int) -> None:
        nonlocal n_before
        is_first_call, n_before = n_before is None, n_done
        with sessions.begin() as session:
            session.execute(
                update(models.SplitReplicates)
                .where(models.SplitReplicates.id == row.id, models.SplitReplicates.finished_at.is_(None))
                .values(n_done=min(n_done, n_replicates - 1))
            )
            # At least one block a slice, or a busy board would never have intervals.
            is_over = not is_first_call and (
                time.monotonic() > ends_at or jobs.is_ahead(session, priority=jobs.BOOTSTRAP_PRIORITY)
            )
        if is_over and n_done < n_replicates:
            raise _SliceOverError

    try:
        run_bootstrap(measurements, folder=folder, n_replicates=row.n_replicates, seed=row.seed, progress=note)
    except _SliceOverError:
        return False
    return True


def _finish(session: Session, row: models.SplitReplicates) -> None:
    """Say that the replicates are there, and queue the intervals of what has been scored until now."""
    table = models.SplitReplicates
    session.execute(
        update(table).where(table.id == row.id).values(n_done=table.n_replicates, finished_at=datetime.now(UTC))
    )
    for submission_id in _list_without_intervals(session, row):
        jobs.defer_resampling(session, submission_id)


def _list_without_intervals(session: Session, row: models.SplitReplicates) -> Iterator[str]:
    """Yield the scored submissions of a split that lack intervals, those on the board first."""
    submission, score, board, interval = models.Submission, models.Score, models.BoardScore, models.BoardInterval
    has_intervals = (
        select(interval.id)
        .join(board, board.id == interval.board_score_id)
        .where(board.score_id == score.id, interval.version == INTERVAL_VERSION)
        .exists()
    )
    query = (
        select(submission.id)
        .join(score, score.submission_id == submission.id)
        .where(
            submission.snapshot_id == row.snapshot_id,
            submission.split == row.split,
            submission.state.in_(("scored", "published")),
            score.scorer_version == current_scorer_version(),
            ~has_intervals,
        )
        .order_by((submission.state == "published").desc(), submission.scored_at)
    )
    yield from session.scalars(query).all()


def _list_outdated(session: Session) -> Iterator[str]:
    """Yield the submissions whose stored intervals were made in another way, those on the board first."""
    submission, score, board, interval = models.Submission, models.Score, models.BoardScore, models.BoardInterval
    outdated = (
        select(score.submission_id)
        .join(board, board.score_id == score.id)
        .join(interval, interval.board_score_id == board.id)
        .where(interval.version != INTERVAL_VERSION, score.scorer_version == current_scorer_version())
    )
    replicates = models.SplitReplicates
    are_there = (
        select(replicates.id)
        .where(
            replicates.snapshot_id == submission.snapshot_id,
            replicates.split == submission.split,
            replicates.evaluator_version == EVALUATOR_VERSION,
            replicates.finished_at.is_not(None),
        )
        .exists()
    )
    query = (
        select(submission.id)
        .where(submission.id.in_(outdated), submission.state.in_(("scored", "published")), are_there)
        .order_by((submission.state == "published").desc(), submission.scored_at)
    )
    yield from session.scalars(query).all()


def _is_split(snapshot_id: int, split: str) -> tuple[ColumnElement[bool], ...]:
    table = models.SplitReplicates
    return (
        table.snapshot_id == snapshot_id,
        table.split == split,
        table.evaluator_version == EVALUATOR_VERSION,
    )
