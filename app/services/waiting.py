"""How long a submission still has to wait: its place, the workers that live, and how long scoring took lately."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db import models
from app.services import jobs
from app.services.submissions import WORKER_SILENCE_SECONDS, SubmissionDetails, SubmissionState

LOOK_BACK = 20


@dataclass(frozen=True)
class Wait:
    """What a waiting submission waits for.

    `seconds` until it is scored is an estimate, None where nobody can tell: no worker lives, or nothing was scored yet.
    """

    worker_alive: bool
    seconds: float | None


def find_wait(session: Session, submission: SubmissionDetails) -> Wait | None:
    """Return what a submission waits for, or None where it does not wait."""
    if not submission.state.is_waiting:
        return None
    n_workers = jobs.count_live_workers(session, timeout_seconds=WORKER_SILENCE_SECONDS)
    if submission.queue_place is None or n_workers == 0:
        return Wait(worker_alive=n_workers > 0, seconds=None)
    usual = _find_usual_seconds(session)
    # Those ahead are shared among the workers; one's own scoring is not.
    seconds = None if usual is None else usual * ((submission.queue_place - 1) // n_workers + 1)
    return Wait(worker_alive=True, seconds=seconds)


def _find_usual_seconds(session: Session) -> float | None:
    """Return the median time from the start of an attempt to its score, of the last submissions scored."""
    event = models.SubmissionEvent
    scored = (
        select(event.submission_id, event.at)
        .where(event.to_state == SubmissionState.SCORED, event.from_state == SubmissionState.SCORING)
        .order_by(event.id.desc())
        .limit(LOOK_BACK)
        .subquery()
    )
    begun = (
        select(func.max(event.at))
        .where(event.submission_id == scored.c.submission_id, event.to_state == SubmissionState.VALIDATING)
        .where(event.at <= scored.c.at)
        .scalar_subquery()
    )
    took = func.extract("epoch", scored.c.at - begun)
    median = session.scalar(select(func.percentile_cont(0.5).within_group(took)).select_from(scored))
    return None if median is None else float(median)
