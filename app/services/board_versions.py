"""Which scorer version the boards of a snapshot, split and strategy show: one, until a re-scoring changes it."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.scorers import current_scorer_version


def get_board_version(session: Session, snapshot_id: int, *, split: str, strategy: str) -> str:
    """Return the version that the boards show: before anything is published there, that of the scorer in force."""
    return find_board_version(session, snapshot_id, split=split, strategy=strategy) or current_scorer_version()


def find_board_version(session: Session, snapshot_id: int, *, split: str, strategy: str) -> str | None:
    """Return the version that the boards were given by the first publication or by a re-scoring, or None."""
    table = models.BoardVersion
    query = select(table.scorer_version).where(
        table.snapshot_id == snapshot_id, table.split == split, table.strategy == strategy
    )
    return session.scalar(query)


def pin_board_version(session: Session, submission: models.Submission) -> str:
    """Return the version that a submission's boards show; what is published first gives them that of its score."""
    score, table = models.Score, models.BoardVersion
    newest = select(score.scorer_version).where(score.submission_id == submission.id).order_by(score.id.desc()).limit(1)
    target = {
        "snapshot_id": submission.snapshot_id,
        "split": submission.split,
        "strategy": submission.strategy,
    }
    version = session.scalar(newest) or current_scorer_version()
    added = insert(table).values(**target, scorer_version=version)
    session.execute(added.on_conflict_do_nothing())
    return get_board_version(session, submission.snapshot_id, split=submission.split, strategy=submission.strategy)


def list_score_versions(session: Session, submission_id: str) -> tuple[str, ...]:
    """Return the versions by which a submission was scored, oldest first."""
    score = models.Score
    query = select(score.scorer_version).where(score.submission_id == submission_id).order_by(score.id)
    return tuple(session.scalars(query))


def choose_score_version(session: Session, submission: models.Submission) -> str | None:
    """Return the version of the score that a submission shows: its boards' where it has that, else its newest one."""
    versions = list_score_versions(session, submission.id)
    shown = get_board_version(session, submission.snapshot_id, split=submission.split, strategy=submission.strategy)
    return shown if shown in versions else next(reversed(versions), None)
