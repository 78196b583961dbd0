"""What the job of a re-scoring does: one more score of one submission, by the scorer in force."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.errors import AppError, StateError
from app.evaluator.scorers import current_scorer_version, score_currently
from app.evaluator.scoring import Score
from app.evaluator.strategies import Strategy
from app.files.actions import ActionFile
from app.services import bootstrap, jobs, snapshots
from app.services.board_versions import get_board_version, list_score_versions
from app.services.rescoring import (
    ITEM_DEADLINE,
    OPEN_STATES,
    RESCORED_STATES,
    WAITING_STATES,
    add_missing_items,
    lock_rescoring,
    refresh_state,
)
from app.services.score_records import read_stored_actions, store_score
from app.services.scoring import FIRST_RETRY, describe_fault

logger = logging.getLogger(__name__)

Sessions = sessionmaker[Session]
LOST = "its worker was lost"


class OtherVersionError(StateError):
    """The worker scores with another version than the re-scoring asks for."""

    code = "other_scorer_version"
    title = "The worker has another scorer version"


@dataclass(frozen=True)
class _Attempt:
    """One try at a new score; `number` is its fence, as in scoring. `item_id` is None outside a re-scoring."""

    submission_id: str
    item_id: int | None
    rescoring_id: int | None
    number: int
    to_version: str


class _LostAttemptError(Exception):
    """The item moved on without this attempt."""


def rescore_submission(sessions: Sessions, submission_id: str, *, config: Config) -> None:
    """Give a submission another score by the scorer in force; its older ones stay. Does nothing where it has one.

    May be called again at any time and by any worker. An attempt that failed is followed by the next one after a pause;
    after the last one the reason stands with the re-scoring, and the submission itself is as it was.
    """
    attempt = _begin(sessions, submission_id, config=config)
    if attempt is None:
        return
    try:
        _run(sessions, attempt, config=config)
    except _LostAttemptError:
        logger.warning("attempt %d at re-scoring submission %s was given up meanwhile", attempt.number, submission_id)
    except Exception as exc:
        logger.exception("attempt %d at re-scoring submission %s failed", attempt.number, submission_id)
        _give_back(sessions, attempt, config=config, reason=_describe(exc))


def reap_rescorings(session: Session, *, config: Config) -> int:
    """Move on what is overdue in open re-scorings, take in what was scored meanwhile; return how many were overdue."""
    table, item = models.Rescoring, models.RescoringItem
    n_overdue = 0
    for rescoring_id in list(session.scalars(select(table.id).where(table.state.in_(OPEN_STATES)).order_by(table.id))):
        rescoring = lock_rescoring(session, rescoring_id)
        query = select(item).where(item.rescoring_id == rescoring_id, item.deadline < datetime.now(UTC))
        for found in list(session.scalars(query.order_by(item.id).execution_options(populate_existing=True))):
            n_overdue += 1
            lost = found.state == "scoring"
            if not lost or _retry_or_fail(found, config=config, reason="it took longer than allowed"):
                found.deadline = datetime.now(UTC) + ITEM_DEADLINE
                jobs.defer_rescoring(session, found.submission_id)
        session.flush()
        add_missing_items(session, rescoring)
    return n_overdue


def _begin(sessions: Sessions, submission_id: str, *, config: Config) -> _Attempt | None:
    with sessions.begin() as session:
        submission = session.get(models.Submission, submission_id)
        item = _lock_item(session, submission_id)
        if submission is None or submission.state not in RESCORED_STATES:
            # It was withdrawn: nothing of it is needed any more.
            if item is not None:
                rescoring = lock_rescoring(session, item.rescoring_id)
                session.delete(item)
                session.flush()
                refresh_state(session, rescoring)
            return None
        if item is None:
            return _begin_alone(session, submission)
        if item.state == "scoring" and not _retry_or_fail(item, config=config, reason=LOST):
            refresh_state(session, lock_rescoring(session, item.rescoring_id))
            return None
        item.state = "scoring"
        item.attempts += 1
        item.deadline = datetime.now(UTC) + timedelta(seconds=config.scoring_deadline_seconds)
        session.flush()
        to_version = session.get_one(models.Rescoring, item.rescoring_id).to_version
        return _Attempt(submission_id, item.id, item.rescoring_id, item.attempts, to_version)


def _begin_alone(session: Session, submission: models.Submission) -> _Attempt | None:
    """Return the attempt at a submission that was published on boards of a newer version than its score's."""
    version = current_scorer_version()
    target = {"split": submission.split, "strategy": submission.strategy}
    is_shown = get_board_version(session, submission.snapshot_id, **target) == version
    if not is_shown or version in list_score_versions(session, submission.id):
        return None
    return _Attempt(submission.id, None, None, 1, version)


def _run(sessions: Sessions, attempt: _Attempt, *, config: Config) -> None:
    if attempt.to_version != current_scorer_version():
        raise OtherVersionError(
            f"this worker scores with version {current_scorer_version()}, and not with {attempt.to_version}"
        )
    score, actions = _compute(sessions, attempt.submission_id, config=config)
    with sessions.begin() as session:
        item = _lock_held(session, attempt)
        submission = session.get_one(models.Submission, attempt.submission_id)
        store_score(session, attempt.submission_id, score, actions=actions)
        bootstrap.defer_intervals(session, submission)
        jobs.defer_ranking(session, submission.snapshot_id, split=submission.split, strategy=submission.strategy)
        if item is not None:
            item.state, item.deadline, item.finished_at = "done", None, datetime.now(UTC)
            session.flush()
            refresh_state(session, lock_rescoring(session, item.rescoring_id))


def _compute(sessions: Sessions, submission_id: str, *, config: Config) -> tuple[Score, ActionFile]:
    with sessions.begin() as session:
        submission = session.get_one(models.Submission, submission_id)
        snapshot = session.get_one(models.Snapshot, submission.snapshot_id)
        measurements = snapshots.load_measurements(session, snapshot, data_dir=config.data_dir)
    strategy = Strategy(submission.strategy)
    actions = read_stored_actions(
        measurements,
        actions_sha256=submission.actions_sha256,
        strategy=strategy,
        split=submission.split,
        filename=submission.filename,
        config=config,
    )
    with sessions.begin() as session:
        references = snapshots.get_references(
            session, snapshot, split=submission.split, strategy=strategy, data_dir=config.data_dir
        )
    return score_currently(measurements.select(submission.split), actions.table, references), actions


def _give_back(sessions: Sessions, attempt: _Attempt, *, config: Config, reason: str) -> None:
    """Queue the next attempt after a pause that doubles each time, or let the item fail."""
    if attempt.item_id is None:
        return
    with sessions.begin() as session:
        try:
            item = _lock_held(session, attempt)
        except _LostAttemptError:
            return
        assert item is not None
        if _retry_or_fail(item, config=config, reason=reason):
            jobs.defer_rescoring(session, item.submission_id, delay=FIRST_RETRY * 2 ** (attempt.number - 1))
        session.flush()
        refresh_state(session, lock_rescoring(session, item.rescoring_id))


def _retry_or_fail(item: models.RescoringItem, *, config: Config, reason: str) -> bool:
    """Let an item wait again and return True, or, where it has had all its attempts, let it fail."""
    if item.attempts < config.scoring_attempts:
        item.state, item.deadline = "waiting", datetime.now(UTC) + ITEM_DEADLINE
        return True
    tries = "1 attempt" if item.attempts == 1 else f"{item.attempts} attempts"
    item.state, item.deadline, item.finished_at = "failed", None, datetime.now(UTC)
    item.failure_reason = f"{reason} (after {tries})"
    return False


def _lock_item(session: Session, submission_id: str) -> models.RescoringItem | None:
    """Lock the item of a submission that an open re-scoring still waits for, the re-scoring first as everybody does."""
    item, rescoring = models.RescoringItem, models.Rescoring
    waiting = (item.submission_id == submission_id, item.state.in_(WAITING_STATES))
    query = (
        select(rescoring.id)
        .join(item, item.rescoring_id == rescoring.id)
        .where(*waiting, rescoring.state.in_(OPEN_STATES))
        .limit(1)
    )
    rescoring_id = session.scalar(query)
    if rescoring_id is None or lock_rescoring(session, rescoring_id).state not in OPEN_STATES:
        return None
    locked = select(item).where(*waiting, item.rescoring_id == rescoring_id)
    return session.scalar(locked.execution_options(populate_existing=True))


def _lock_held(session: Session, attempt: _Attempt) -> models.RescoringItem | None:
    """Lock the attempt's item, which must still be in its hands; None for an attempt outside a re-scoring."""
    if attempt.item_id is None or attempt.rescoring_id is None:
        return None
    lock_rescoring(session, attempt.rescoring_id)
    item = session.get(models.RescoringItem, attempt.item_id, populate_existing=True)
    if item is None or item.attempts != attempt.number or item.state != "scoring":
        raise _LostAttemptError(attempt.submission_id)
    return item


def _describe(error: Exception) -> str:
    if isinstance(error, AppError):
        problems = "; ".join(problem.message for problem in error.problems[:3])
        return f"{error.detail} {problems}".strip()
    return describe_fault(error)
