"""What an organiser says about an entry: flagged with a public reason, verified, a baseline."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy.orm import Session

from app.db import models
from app.errors import ContentError
from app.services import jobs
from app.services.accounts import Identity
from app.services.audit import record_audit
from app.services.submissions import (
    SubmissionDetails,
    SubmissionState,
    UnknownSubmissionError,
    find_locked,
    get_submission,
    note_event,
)

MAX_FLAG_REASON = 500


class InvalidReasonError(ContentError):
    """The reason for a flag is missing or too long; it is public, so there has to be one."""

    code = "invalid_reason"
    title = "The reason cannot be used"


def flag_submission(session: Session, submission_id: str, *, reason: str, account: Identity) -> SubmissionDetails:
    """Say in public what is wrong with an entry: it stays on the board and takes no rank. A new reason replaces it."""
    reason = reason.strip()
    if not reason or len(reason) > MAX_FLAG_REASON or not reason.isprintable():
        raise InvalidReasonError(f"A flag needs a public reason of 1 to {MAX_FLAG_REASON} printable characters.")
    submission = _lock(session, submission_id)
    if submission.flag_reason != reason:
        submission.flag_reason, submission.flagged_at = reason, datetime.now(UTC)
        _record(session, submission, account, action="flag_submission", event=f"flagged: {reason}")
        _rank_again(session, submission)
    return get_submission(session, submission_id, account=account)


def unflag_submission(session: Session, submission_id: str, *, account: Identity) -> SubmissionDetails:
    """Take a flag back; the entry takes its rank again."""
    submission = _lock(session, submission_id)
    if submission.flag_reason is not None:
        submission.flag_reason = submission.flagged_at = None
        _record(session, submission, account, action="unflag_submission", event="no longer flagged")
        _rank_again(session, submission)
    return get_submission(session, submission_id, account=account)


def verify_submission(session: Session, submission_id: str, *, account: Identity) -> SubmissionDetails:
    """Mark an entry as verified by an organiser; readers can ask the board for such entries alone."""
    submission = _lock(session, submission_id)
    if not submission.is_verified:
        submission.is_verified = True
        _record(session, submission, account, action="verify_submission", event="verified by an organiser")
    return get_submission(session, submission_id, account=account)


def unverify_submission(session: Session, submission_id: str, *, account: Identity) -> SubmissionDetails:
    """Take the mark of a verified entry back."""
    submission = _lock(session, submission_id)
    if submission.is_verified:
        submission.is_verified = False
        _record(session, submission, account, action="unverify_submission", event="no longer verified")
    return get_submission(session, submission_id, account=account)


def mark_baseline(session: Session, submission_id: str, *, account: Identity) -> SubmissionDetails:
    """Mark the method of a submission as a baseline, with all its entries: shown as one, and ranked as before."""
    return _set_baseline(session, submission_id, account=account, action="mark_baseline")


def unmark_baseline(session: Session, submission_id: str, *, account: Identity) -> SubmissionDetails:
    """Take the mark of a baseline back."""
    return _set_baseline(session, submission_id, account=account, action="unmark_baseline")


def _set_baseline(session: Session, submission_id: str, *, account: Identity, action: str) -> SubmissionDetails:
    submission = _lock(session, submission_id)
    method = session.get_one(models.Method, submission.method_id)
    marked = action == "mark_baseline"
    if method.is_baseline != marked:
        method.is_baseline = marked
        event = "its method was marked as a baseline" if marked else "its method is no longer a baseline"
        _record(session, submission, account, action=action, event=event)
    return get_submission(session, submission_id, account=account)


def _lock(session: Session, submission_id: str) -> models.Submission:
    submission = find_locked(session, submission_id)
    if submission is None:
        raise UnknownSubmissionError(f"There is no submission {submission_id!r}.")
    return submission


def _record(session: Session, submission: models.Submission, account: Identity, *, action: str, event: str) -> None:
    """Write an act both into the public history of the entry and into the audit log."""
    note_event(session, submission, actor=account.name, reason=event)
    details = {"reason": submission.flag_reason} if action == "flag_submission" else None
    record_audit(session, actor=account.name, action=action, subject=f"submission {submission.id}", details=details)


def _rank_again(session: Session, submission: models.Submission) -> None:
    if submission.state == SubmissionState.PUBLISHED:
        jobs.defer_ranking(session, submission.snapshot_id, split=submission.split, strategy=submission.strategy)
