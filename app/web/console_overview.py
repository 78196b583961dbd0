"""The console's first page: what needs an organiser, and how the server is."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db import models
from app.services.audit_log import AuditEntry, AuditFilter, list_audit
from app.services.identical_uploads import list_identical_uploads
from app.services.queue_status import WorkStatus, get_work_status
from app.services.rescoring import RescoredBoard, RescoringStatus, list_outdated_boards, list_rescorings
from app.services.snapshot_imports import ImportStatus, list_imports
from app.services.submissions import SubmissionState, count_states

RECENT_ACTS = 8
# States that somebody may have to do something about come first.
STATE_ORDER = (
    SubmissionState.WITHHELD,
    SubmissionState.FAILED,
    SubmissionState.RECEIVED,
    SubmissionState.VALIDATING,
    SubmissionState.SCORING,
    SubmissionState.SCORED,
    SubmissionState.PUBLISHED,
    SubmissionState.REJECTED,
    SubmissionState.WITHDRAWN,
)


@dataclass(frozen=True)
class Overview:
    """What the console's first page shows."""

    states: tuple[tuple[SubmissionState, int], ...]
    n_flagged: int
    n_identical_files: int
    unfrozen: tuple[str, ...]
    imports: tuple[ImportStatus, ...]
    rescorings: tuple[RescoringStatus, ...]
    outdated: tuple[tuple[str, RescoredBoard], ...]
    work: WorkStatus
    acts: tuple[AuditEntry, ...]


def load_overview(session: Session, *, silence_seconds: float) -> Overview:
    """Return what the console's first page shows."""
    counts = count_states(session)
    snapshot, submission = models.Snapshot, models.Submission
    unfrozen = select(snapshot.name).where(snapshot.state != "frozen").order_by(snapshot.name)
    flagged = select(func.count()).where(submission.flag_reason.is_not(None))
    return Overview(
        states=tuple((state, counts[state]) for state in STATE_ORDER),
        n_flagged=int(session.scalar(flagged) or 0),
        n_identical_files=len({upload.actions_sha256 for upload in list_identical_uploads(session)}),
        unfrozen=tuple(session.scalars(unfrozen)),
        imports=tuple(found for found in list_imports(session) if found.is_waiting),
        rescorings=tuple(found for found in list_rescorings(session) if found.is_open),
        outdated=list_outdated_boards(session),
        work=get_work_status(session, silence_seconds=silence_seconds),
        acts=list_audit(session, AuditFilter(), limit=RECENT_ACTS).items,
    )
