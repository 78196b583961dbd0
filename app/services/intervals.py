"""Intervals of scored submissions: computed by a job on the stored replicates of their split, shown with the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.evaluator.intervals import BoardIntervals, SubmissionIntervals, bootstrap_submission
from app.evaluator.measurements import Measurements
from app.evaluator.replicate_frontiers import ReplicateFrontiers
from app.evaluator.scoring import SCORER_VERSION
from app.evaluator.strategies import Strategy
from app.files.actions import read_actions
from app.files.documents import intervals_document
from app.services import jobs
from app.services.bootstrap import load_split_replicates
from app.services.frontiers import get_references
from app.services.measurements import load_measurements
from app.services.uploads import upload_path

Sessions = sessionmaker[Session]
BoardNames = tuple[str | None, str | None]
RESAMPLED_STATES = ("scored", "published")


@dataclass(frozen=True, eq=False)
class _Parts:
    """What the intervals of a submission are computed from, and where they belong."""

    submission: models.Submission
    measurements: Measurements
    replicates: ReplicateFrontiers
    board_score_ids: dict[BoardNames, int]


def resample_submission(sessions: Sessions, submission_id: str, *, config: Config) -> None:
    """Compute and store the intervals of a scored submission, and queue the ranks of its boards.

    Does nothing where they are stored already, and where the replicates are not there yet: whoever finishes those
    queues this again. Boards all of whose cells have fewer than 20 questions have no intervals.
    """
    with sessions.begin() as session:
        parts = _collect(session, submission_id, config=config)
    if parts is None:
        return
    resampled = _resample(sessions, parts, config=config)
    rows = [
        _describe(board, parts.board_score_ids[board.model, board.benchmark], resampled.n_replicates)
        for board in resampled.boards
        if intervals_document(board) is not None
    ]
    with sessions.begin() as session:
        if rows:
            added = insert(models.BoardInterval).values(rows)
            session.execute(added.on_conflict_do_nothing(index_elements=["board_score_id"]))
        submission = parts.submission
        # Also before it is published: that may have happened while this was being computed.
        jobs.defer_ranking(session, submission.snapshot_id, split=submission.split, strategy=submission.strategy)


def fill_intervals(session: Session, document: dict[str, Any], *, score_id: int) -> int:
    """Put the stored intervals into the boards of a score document, and return how many boards have them."""
    board, interval = models.BoardScore, models.BoardInterval
    query = (
        select(board.model, board.benchmark, interval.intervals)
        .join(interval, interval.board_score_id == board.id)
        .where(board.score_id == score_id)
    )
    found = {(model, benchmark): intervals for model, benchmark, intervals in session.execute(query)}
    summary: Sequence[dict[str, Any]] = [document["summary"]] if document.get("summary") else []
    for shown in (*document.get("boards", ()), *summary):
        shown["intervals"] = found.get((shown["model"], shown["benchmark"]))
    return len(found)


def _collect(session: Session, submission_id: str, *, config: Config) -> _Parts | None:
    submission = session.get(models.Submission, submission_id)
    if submission is None or submission.state not in RESAMPLED_STATES:
        return None
    board, score, interval = models.BoardScore, models.Score, models.BoardInterval
    query = (
        select(board.id, board.model, board.benchmark, interval.id)
        .join(score, score.id == board.score_id)
        .outerjoin(interval, interval.board_score_id == board.id)
        .where(score.submission_id == submission_id, score.scorer_version == SCORER_VERSION)
    )
    boards = session.execute(query).all()
    if not boards or any(interval_id is not None for *_, interval_id in boards):
        return None
    snapshot = session.get_one(models.Snapshot, submission.snapshot_id)
    measurements = load_measurements(session, snapshot, data_dir=config.data_dir)
    replicates = load_split_replicates(session, snapshot, measurements.select(submission.split), config=config)
    if replicates is None:
        return None
    return _Parts(
        submission=submission,
        measurements=measurements,
        replicates=replicates,
        board_score_ids={(model, benchmark): key for key, model, benchmark, _ in boards},
    )


def _resample(sessions: Sessions, parts: _Parts, *, config: Config) -> SubmissionIntervals:
    submission = parts.submission
    strategy = Strategy(submission.strategy)
    actions = read_actions(
        upload_path(config.data_dir, submission.actions_sha256),
        parts.measurements,
        strategy=strategy,
        split=submission.split,
        filename=submission.filename,
    )
    with sessions.begin() as session:
        snapshot = session.get_one(models.Snapshot, submission.snapshot_id)
        references = get_references(
            session, snapshot, split=submission.split, strategy=strategy, data_dir=config.data_dir
        )
    return bootstrap_submission(
        parts.measurements.select(submission.split),
        actions.table,
        references,
        parts.replicates,
        n_replicates=parts.replicates.n_replicates,
    )


def _describe(board: BoardIntervals, board_score_id: int, n_replicates: int) -> dict[str, Any]:
    potential = board.intervals["realised_potential"]
    return {
        "board_score_id": board_score_id,
        "n_replicates": n_replicates,
        "intervals": intervals_document(board),
        "realised_potential_low": None if potential is None else potential.low,
        "realised_potential_high": None if potential is None else potential.high,
        "replicates": board.values["realised_potential"].astype(np.dtype("<f8")).tobytes(),
    }
