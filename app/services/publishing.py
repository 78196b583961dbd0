"""Which of a method's published submissions stands for it on the boards."""

from __future__ import annotations

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.db import models
from app.services import jobs
from app.services.accounts import Identity
from app.services.submissions import (
    SubmissionDetails,
    SubmissionState,
    TransitionError,
    get_submission,
    lock_own,
    note_event,
)


def make_current(session: Session, submission_id: str, *, account: Identity) -> SubmissionDetails:
    """Let a published submission stand for its method, whatever else of it is published; the one before gives way.

    Choosing the one that is current already changes nothing. Raises `TransitionError` unless it is published.
    """
    # The method is locked first, as an upload does, so that two choices of one method follow one another.
    table = models.Submission
    method_id = select(table.method_id).where(table.id == submission_id).scalar_subquery()
    session.execute(select(models.Method.id).where(models.Method.id == method_id).with_for_update(key_share=True))
    submission = lock_own(session, submission_id, account=account)
    if submission.state != SubmissionState.PUBLISHED:
        raise TransitionError(f"Submission {submission.id} is {submission.state}; only a published one can be current.")
    if not submission.is_current:
        session.execute(
            update(table)
            .where(table.method_id == submission.method_id, table.snapshot_id == submission.snapshot_id)
            .where(table.split == submission.split, table.strategy == submission.strategy, table.is_current)
            .values(is_current=False)
        )
        submission.is_current = True
        note_event(session, submission, actor=account.name, reason="chosen to stand for its method")
        jobs.defer_ranking(session, submission.snapshot_id, split=submission.split, strategy=submission.strategy)
    return get_submission(session, submission_id, account=account)
