"""Submissions and validations."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Query, Request, Response
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from app.api.documentation import CURSOR, LIMIT, NOT_MODIFIED, VERSION, Responses, errors, multipart
from app.api.frozen import find_unchanged, frozen, make_etag
from app.api.schemas import EventOut, EventPageOut, ScoreOut, SubmissionOut, SubmissionPageOut, ValidationOut
from app.services import publishing, scoring, submissions
from app.services.accounts import act_for_team
from app.services.submission_forms import SubmissionForm, ValidationForm, read_form
from app.services.submissions import SubmissionDetails
from app.services.waiting import find_wait
from app.web.security import AccountDep, ConfigDep, FormDep, ReaderDep, SessionDep

router = APIRouter(tags=["submissions"])

EXISTING: Responses = {200: {"model": SubmissionOut, "description": "These bytes are a submission already: this one."}}


class WithdrawalBody(BaseModel):
    """Why a submission is withdrawn."""

    reason: str | None = Field(
        default=None, max_length=500, pattern=r"^[^\x00]*$", examples=["scored with the wrong checkpoint"]
    )


@router.post(
    "/validations",
    summary="Check an action file",
    openapi_extra=multipart(ValidationForm),
    responses=errors(400, 401, 403, 404, 409, 413, 422, 507),
)
def check_actions(form: FormDep, account: AccountDep, session: SessionDep, config: ConfigDep) -> ValidationOut:
    """Check an action file as a submission would be, and store nothing."""
    target = read_form(form.fields, ValidationForm)
    act_for_team(session, account, target.team)
    checked = scoring.check_upload(
        session,
        snapshot_name=target.snapshot,
        split=target.split,
        strategy=target.strategy,
        upload=form.require_upload(sha256=target.sha256),
        filename=form.filename,
        config=config,
        method_name=target.method,
        description=target.description,
        notes=target.notes(),
    )
    return ValidationOut.model_validate(checked)


@router.post(
    "/submissions",
    status_code=202,
    summary="Submit an action file",
    openapi_extra=multipart(SubmissionForm),
    responses=errors(400, 401, 403, 404, 409, 413, 422, 429, 507, also=EXISTING),
)
def create_submission(form: FormDep, account: AccountDep, session: SessionDep, response: Response) -> SubmissionOut:
    """Store an action file and put its scoring on the queue; `Location` says where to look for what becomes of it.

    The same bytes by the same team for the same snapshot, split and strategy are the submission that exists; where that
    one failed on the server's side or was cancelled, it is tried again.
    """
    target = read_form(form.fields, SubmissionForm)
    accepted = submissions.accept_submission(
        session,
        account=act_for_team(session, account, target.team),
        snapshot_name=target.snapshot,
        split=target.split,
        strategy=target.strategy,
        method_name=target.method,
        description=target.description,
        upload=form.require_upload(sha256=target.sha256),
        filename=form.filename,
        notes=target.notes(),
    )
    response.status_code = 202 if accepted.created else 200
    response.headers["Location"] = f"/api/v1/submissions/{accepted.submission_id}"
    return _show(session, submissions.get_submission(session, accepted.submission_id, account=account))


@router.get("/submissions", summary="List my teams' submissions", responses=errors(401, 403, 422))
def list_submissions(
    account: AccountDep,
    session: SessionDep,
    actions_sha256: Annotated[str | None, Query(pattern="^[0-9a-f]{64}$", description="Only of these bytes.")] = None,
    limit: LIMIT = 50,
    cursor: CURSOR = None,
) -> SubmissionPageOut:
    """List the submissions of the caller's teams, newest first."""
    page = submissions.list_submissions(
        session, account=account, actions_sha256=actions_sha256, limit=limit, cursor=cursor
    )
    return SubmissionPageOut.model_validate(page)


@router.get("/submissions/{submission_id}", summary="Get a submission", responses=errors(401, 403, 404))
def get_submission(submission_id: str, reader: ReaderDep, session: SessionDep) -> SubmissionOut:
    """Tell where a submission stands: its state, its place in the queue, the problems of its file."""
    return _show(session, submissions.get_submission(session, submission_id, account=reader))


@router.get(
    "/submissions/{submission_id}/actions",
    summary="Download the action file",
    response_class=FileResponse,
    responses=errors(401, 403, 404, 410, also={200: {"content": {"application/octet-stream": {}}}, **NOT_MODIFIED}),
)
def download_actions(
    submission_id: str, reader: ReaderDep, session: SessionDep, config: ConfigDep, request: Request
) -> Response:
    """Send the file as it was uploaded: to its team, and to everyone while it is published."""
    actions = scoring.get_actions_file(session, submission_id, account=reader, data_dir=config.data_dir)
    etag = f'"{actions.sha256}"'
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    return find_unchanged(request, etag) or FileResponse(
        actions.path, filename=actions.filename, media_type="application/octet-stream", headers=headers
    )


@router.get(
    "/submissions/{submission_id}/score",
    summary="Get the score document",
    response_model=ScoreOut,
    responses=errors(401, 403, 404, 409, 410, also=NOT_MODIFIED),
)
def get_score(
    submission_id: str,
    reader: ReaderDep,
    session: SessionDep,
    request: Request,
    scorer_version: VERSION = None,
) -> Response:
    """Return the score document: what `otboard score` prints for the same file. Its intervals follow a while later."""
    score = scoring.get_score(session, submission_id, account=reader, scorer_version=scorer_version)
    etag = make_etag(
        "score",
        submission_id,
        score.scorer_version,
        "intervals" if score.has_intervals else "",
        str(score.n_held_boards),
    )
    return find_unchanged(request, etag) or frozen(score.text, etag=etag)


@router.get("/submissions/{submission_id}/events", summary="List what happened", responses=errors(401, 403, 404))
def list_events(submission_id: str, reader: ReaderDep, session: SessionDep) -> EventPageOut:
    """List every change of the submission's state, oldest first: who, when and why."""
    events = submissions.list_events(session, submission_id, account=reader)
    return EventPageOut(items=[EventOut.model_validate(event) for event in events])


@router.post("/submissions/{submission_id}/publish", summary="Publish", responses=errors(401, 403, 404, 409))
def publish_submission(submission_id: str, account: AccountDep, session: SessionDep) -> SubmissionOut:
    """Show a scored submission on the board; doing it again changes nothing."""
    return _show(session, submissions.publish_submission(session, submission_id, account=account))


@router.post("/submissions/{submission_id}/make-current", summary="Make current", responses=errors(401, 403, 404, 409))
def make_current(submission_id: str, account: AccountDep, session: SessionDep) -> SubmissionOut:
    """Let a published submission stand for its method on the boards, in the place of its latest published one."""
    return _show(session, publishing.make_current(session, submission_id, account=account))


@router.post(
    "/submissions/{submission_id}/withdraw", summary="Withdraw", responses=errors(400, 401, 403, 404, 409, 413, 422)
)
def withdraw_submission(
    submission_id: str,
    account: AccountDep,
    session: SessionDep,
    body: Annotated[WithdrawalBody | None, Body()] = None,
) -> SubmissionOut:
    """Take a submission off the board for good; it stays as a tombstone. Doing it again changes nothing.

    One that waits or is being scored is cancelled: work on it stops, and the same file may be submitted again.
    """
    reason = body.reason if body else None
    return _show(session, submissions.withdraw_submission(session, submission_id, account=account, reason=reason))


@router.post("/submissions/{submission_id}/retry", summary="Try again", responses=errors(401, 403, 404, 409, 429))
def retry_submission(submission_id: str, account: AccountDep, session: SessionDep) -> SubmissionOut:
    """Put a submission that failed on the server's side, or was cancelled, back on the queue."""
    return _show(session, submissions.retry_submission(session, submission_id, account=account))


def _show(session: Session, details: SubmissionDetails) -> SubmissionOut:
    shown = SubmissionOut.model_validate(details)
    wait = find_wait(session, details)
    if wait is not None:
        shown.worker_alive = wait.worker_alive
        shown.estimated_seconds = wait.seconds
    return shown
