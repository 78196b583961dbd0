"""What an organiser does about the release policy: tells a team the figures that were withheld from it."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import delete
from sqlalchemy.orm import Session

from app.db import models
from app.services import bootstrap, jobs
from app.services.accounts import Identity
from app.services.audit import record_audit
from app.services.release import list_held
from app.services.submissions import (
    SubmissionState,
    TransitionError,
    UnknownSubmissionError,
    find_locked,
    transition,
)


def release_submission(session: Session, submission_id: str, *, account: Identity) -> None:
    """Tell a team the figures that were withheld from it: the whole score, or the boards that were held back.

    Raises `TransitionError` where nothing is withheld.
    """
    submission = find_locked(session, submission_id)
    if submission is None:
        raise UnknownSubmissionError(f"There is no submission {submission_id!r}.")
    held = list_held(session, submission_id)
    was_withheld = submission.state == SubmissionState.WITHHELD
    if not was_withheld and not held:
        raise TransitionError(f"Submission {submission_id} is {submission.state}; nothing of it is withheld.")
    session.execute(delete(models.HeldBoard).where(models.HeldBoard.submission_id == submission_id))
    if was_withheld:
        submission.scored_at = datetime.now(UTC)
        transition(session, submission, SubmissionState.SCORED, actor=account.name, reason="released by an organiser")
        bootstrap.defer_intervals(session, submission)
    elif submission.state == SubmissionState.PUBLISHED:
        jobs.defer_ranking(session, submission.snapshot_id, split=submission.split, strategy=submission.strategy)
    record_audit(
        session,
        actor=account.name,
        action="release_submission",
        subject=f"submission {submission_id}",
        details={"was_withheld": was_withheld, "held_boards": len(held)},
    )
