"""What organisers say about entries: flagged, verified, a baseline; and who uploaded the same bytes."""

from __future__ import annotations

from datetime import datetime

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from app.api.documentation import errors
from app.api.schemas import Answer, SubmissionOut
from app.services import marks
from app.services.identical_uploads import list_identical_uploads
from app.services.submissions import get_submission
from app.web.security import OrganiserDep, SessionDep

router = APIRouter(tags=["organising"])


class FlagBody(BaseModel):
    """Why an entry is flagged; everyone can read it."""

    model_config = ConfigDict(extra="forbid")

    reason: str = Field(
        min_length=1, max_length=marks.MAX_FLAG_REASON, examples=["Its caps follow from the labels of the test split."]
    )


class IdenticalUploadOut(Answer):
    """A submission with the same bytes as another team's."""

    actions_sha256: str
    submission_id: str
    team: str
    method: str
    account: str
    is_control: bool
    snapshot: str
    split: str
    strategy: str
    state: str
    created_at: datetime


class IdenticalUploadPageOut(BaseModel):
    """Uploads that several teams made, file by file, the newest first; within a file in the order they came."""

    items: list[IdenticalUploadOut]
    next_cursor: str | None = None


@router.post("/submissions/{submission_id}/flag", summary="Flag", responses=errors(400, 401, 403, 404, 413, 422))
def flag_submission(submission_id: str, body: FlagBody, organiser: OrganiserDep, session: SessionDep) -> SubmissionOut:
    """Say in public what is wrong with an entry: it stays on the board and takes no rank."""
    found = marks.flag_submission(session, submission_id, reason=body.reason, account=organiser)
    return SubmissionOut.model_validate(found)


@router.post("/submissions/{submission_id}/unflag", summary="Unflag", responses=errors(401, 403, 404))
def unflag_submission(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> SubmissionOut:
    """Take a flag back; doing it again changes nothing."""
    return SubmissionOut.model_validate(marks.unflag_submission(session, submission_id, account=organiser))


@router.post("/submissions/{submission_id}/verify", summary="Mark as verified", responses=errors(401, 403, 404))
def verify_submission(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> SubmissionOut:
    """Mark an entry as verified; doing it again changes nothing."""
    return SubmissionOut.model_validate(marks.verify_submission(session, submission_id, account=organiser))


@router.post("/submissions/{submission_id}/unverify", summary="No longer verified", responses=errors(401, 403, 404))
def unverify_submission(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> SubmissionOut:
    """Take the mark of a verified entry back; doing it again changes nothing."""
    return SubmissionOut.model_validate(marks.unverify_submission(session, submission_id, account=organiser))


@router.post("/submissions/{submission_id}/mark-baseline", summary="Mark baseline", responses=errors(401, 403, 404))
def mark_baseline(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> SubmissionOut:
    """Mark the method of a submission as a baseline: shown as one, ranked as before."""
    return SubmissionOut.model_validate(marks.mark_baseline(session, submission_id, account=organiser))


@router.post("/submissions/{submission_id}/unmark-baseline", summary="No baseline", responses=errors(401, 403, 404))
def unmark_baseline(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> SubmissionOut:
    """Take the mark of a baseline back; doing it again changes nothing."""
    return SubmissionOut.model_validate(marks.unmark_baseline(session, submission_id, account=organiser))


@router.get("/console/identical-uploads", summary="List identical uploads", responses=errors(401, 403))
def list_identical(organiser: OrganiserDep, session: SessionDep) -> IdenticalUploadPageOut:
    """List files that more than one team uploaded. Teams are not told."""
    found = list_identical_uploads(session)
    return IdenticalUploadPageOut(items=[IdenticalUploadOut.model_validate(upload) for upload in found])


@router.get(
    "/submissions/{submission_id}/identical-uploads", summary="Who uploaded the same", responses=errors(401, 403, 404)
)
def list_identical_to(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> IdenticalUploadPageOut:
    """List the submissions of other teams with the same bytes."""
    submission = get_submission(session, submission_id, account=organiser)
    found = list_identical_uploads(session, actions_sha256=submission.actions_sha256)
    others = [upload for upload in found if upload.submission_id != submission_id]
    return IdenticalUploadPageOut(items=[IdenticalUploadOut.model_validate(upload) for upload in others])
