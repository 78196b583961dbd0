"""The states of a submission, what may follow what, and how a change is made: checked, and written down as an event."""

from __future__ import annotations

from enum import StrEnum

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import StateError


class SubmissionState(StrEnum):
    """Where a submission stands; the value is the name in the database, REST and on pages."""

    RECEIVED = "received"
    VALIDATING = "validating"
    SCORING = "scoring"
    SCORED = "scored"
    WITHHELD = "withheld"
    PUBLISHED = "published"
    REJECTED = "rejected"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"

    @property
    def is_waiting(self) -> bool:
        """Whether a job still has to end this state."""
        return self in (SubmissionState.RECEIVED, SubmissionState.VALIDATING, SubmissionState.SCORING)


# What may follow what. A state that a job holds can go back to `received` when its worker was lost or failed. What was
# withdrawn before it was scored, and so cancelled, may be submitted again; what has a score stays withdrawn.
TRANSITIONS: dict[SubmissionState, frozenset[SubmissionState]] = {
    SubmissionState.RECEIVED: frozenset(
        {SubmissionState.VALIDATING, SubmissionState.FAILED, SubmissionState.WITHDRAWN}
    ),
    SubmissionState.VALIDATING: frozenset(
        {
            SubmissionState.SCORING,
            SubmissionState.REJECTED,
            SubmissionState.RECEIVED,
            SubmissionState.FAILED,
            SubmissionState.WITHDRAWN,
        }
    ),
    SubmissionState.SCORING: frozenset(
        {
            SubmissionState.SCORED,
            SubmissionState.WITHHELD,
            SubmissionState.RECEIVED,
            SubmissionState.FAILED,
            SubmissionState.WITHDRAWN,
        }
    ),
    SubmissionState.SCORED: frozenset({SubmissionState.PUBLISHED, SubmissionState.WITHDRAWN}),
    SubmissionState.WITHHELD: frozenset({SubmissionState.SCORED, SubmissionState.WITHDRAWN}),
    SubmissionState.PUBLISHED: frozenset({SubmissionState.WITHDRAWN}),
    SubmissionState.REJECTED: frozenset({SubmissionState.WITHDRAWN}),
    SubmissionState.FAILED: frozenset({SubmissionState.RECEIVED, SubmissionState.WITHDRAWN}),
    SubmissionState.WITHDRAWN: frozenset({SubmissionState.RECEIVED}),
}


class TransitionError(StateError):
    """A change of state that the table of transitions does not have."""

    code = "wrong_state"
    title = "The submission's state does not allow this"


def transition(
    session: Session, submission: models.Submission, to_state: SubmissionState, *, actor: str, reason: str | None = None
) -> None:
    """Move a locked submission to another state and write the event; `TransitionError` where that is not allowed."""
    from_state = SubmissionState(submission.state)
    is_over = from_state is SubmissionState.WITHDRAWN and not was_cancelled(submission)
    if is_over or to_state not in TRANSITIONS[from_state]:
        raise TransitionError(f"Submission {submission.id} is {from_state}; it cannot become {to_state}.")
    submission.state = to_state.value
    if not to_state.is_waiting:
        submission.deadline = None
        submission.progress = None
    session.add(
        models.SubmissionEvent(
            submission_id=submission.id,
            from_state=from_state.value,
            to_state=to_state.value,
            actor=actor,
            reason=reason,
        )
    )
    session.flush()


def note_event(session: Session, submission: models.Submission, *, actor: str, reason: str) -> None:
    """Write an event that changes no state, such as a mark, so that the submission's page tells of it."""
    session.add(
        models.SubmissionEvent(
            submission_id=submission.id,
            from_state=submission.state,
            to_state=submission.state,
            actor=actor,
            reason=reason,
        )
    )
    session.flush()


def was_cancelled(submission: models.Submission) -> bool:
    """Whether a submission was withdrawn while it waited or was worked on: the file has neither score nor problems.

    One that was withheld has a score that was not told.
    """
    has_score = submission.scored_at is not None or submission.withheld_at is not None
    return submission.state == SubmissionState.WITHDRAWN and not has_score and not submission.problems


def find_locked(session: Session, submission_id: str) -> models.Submission | None:
    """Return the submission, locked until the transaction ends and read afresh, or None."""
    query = (
        select(models.Submission)
        .where(models.Submission.id == submission_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    return session.scalar(query)
