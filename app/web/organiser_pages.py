"""The organiser's console: every team's submissions, marks, allowances, workers, and the audit log."""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from typing import Annotated
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from app.services import marks
from app.services.allowance_overrides import describe_defaults, list_overrides, set_override
from app.services.audit_log import AuditFilter, list_actions, list_audit
from app.services.identical_uploads import list_identical_uploads
from app.services.queue_status import get_work_status
from app.services.snapshots import list_snapshots
from app.services.submission_lists import SubmissionFilter, list_all_submissions
from app.services.submissions import SubmissionState
from app.web.console_overview import load_overview
from app.web.security import ConfigDep, OrganiserDep, SessionDep
from app.web.templating import render_page

router = APIRouter(prefix="/console", include_in_schema=False)

Cursor = Annotated[str | None, Query()]
Field = Annotated[str, Form()]


@router.get("")
def show_overview(request: Request, organiser: OrganiserDep, session: SessionDep, config: ConfigDep) -> Response:
    """Show what needs an organiser."""
    overview = load_overview(session, silence_seconds=config.heartbeat_timeout_seconds)
    return render_page(request, "console/overview.html", reader=organiser, page=overview)


@router.get("/submissions")
def show_submissions(
    request: Request,
    organiser: OrganiserDep,
    session: SessionDep,
    state: str = "",
    snapshot: str = "",
    team: str = "",
    cursor: Cursor = None,
) -> Response:
    """List every team's submissions."""
    asked = SubmissionState(state) if state in set(SubmissionState) else None
    chosen = SubmissionFilter(asked, snapshot or None, team or None)
    page = list_all_submissions(session, chosen, account=organiser, cursor=cursor)
    query = {"state": asked or "", "snapshot": snapshot, "team": team}
    return render_page(
        request,
        "console/submissions.html",
        reader=organiser,
        page=page,
        chosen=query,
        states=tuple(SubmissionState),
        snapshots=[found.name for found in list_snapshots(session)],
        address=f"/console/submissions?{urlencode({name: value for name, value in query.items() if value})}",
    )


@router.get("/flags")
def show_flags(request: Request, organiser: OrganiserDep, session: SessionDep, cursor: Cursor = None) -> Response:
    """List what is flagged, and what several teams uploaded."""
    flagged = list_all_submissions(session, SubmissionFilter(is_flagged=True), account=organiser, cursor=cursor)
    return render_page(
        request,
        "console/flags.html",
        reader=organiser,
        page=flagged,
        identical=list_identical_uploads(session),
    )


@router.post("/submissions/{submission_id}/flag")
def flag(submission_id: str, organiser: OrganiserDep, session: SessionDep, reason: Field = "") -> Response:
    """Flag an entry with a public reason."""
    marks.flag_submission(session, submission_id, reason=reason, account=organiser)
    return _to_submission(submission_id)


@router.post("/submissions/{submission_id}/unflag")
def unflag(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Take a flag back."""
    marks.unflag_submission(session, submission_id, account=organiser)
    return _to_submission(submission_id)


@router.post("/submissions/{submission_id}/verify")
def verify(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Mark an entry as verified."""
    marks.verify_submission(session, submission_id, account=organiser)
    return _to_submission(submission_id)


@router.post("/submissions/{submission_id}/unverify")
def unverify(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Take the mark of a verified entry back."""
    marks.unverify_submission(session, submission_id, account=organiser)
    return _to_submission(submission_id)


@router.post("/submissions/{submission_id}/mark-baseline")
def mark_baseline(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Mark a submission's method as a baseline."""
    marks.mark_baseline(session, submission_id, account=organiser)
    return _to_submission(submission_id)


@router.post("/submissions/{submission_id}/unmark-baseline")
def unmark_baseline(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Take the mark of a baseline back."""
    marks.unmark_baseline(session, submission_id, account=organiser)
    return _to_submission(submission_id)


@router.get("/allowances")
def show_allowances(request: Request, organiser: OrganiserDep, session: SessionDep) -> Response:
    """List the limits that are set."""
    return render_page(
        request,
        "console/allowances.html",
        reader=organiser,
        overrides=list_overrides(session),
        defaults=describe_defaults(),
        snapshots=[found.name for found in list_snapshots(session)],
    )


@router.post("/allowances")
def set_allowance(
    organiser: OrganiserDep,
    session: SessionDep,
    snapshot: Field,
    limit: Field,
    team: Field = "",
    value: Annotated[int | None, Form()] = None,
) -> Response:
    """Set one limit for a team, or for every team; without a number it is taken back."""
    set_override(session, snapshot=snapshot, team=team.strip() or None, limits={limit: value}, actor=organiser.name)
    return RedirectResponse("/console/allowances", status_code=303)


@router.get("/work")
def show_work(request: Request, organiser: OrganiserDep, session: SessionDep, config: ConfigDep) -> Response:
    """Show workers and queue."""
    silence = config.heartbeat_timeout_seconds
    work = get_work_status(session, silence_seconds=silence)
    return render_page(request, "console/work.html", reader=organiser, page=work, silence_seconds=silence)


@router.get("/audit")
def show_audit(
    request: Request,
    organiser: OrganiserDep,
    session: SessionDep,
    actor: str = "",
    action: str = "",
    subject: str = "",
    since: str = "",
    until: str = "",
    cursor: Cursor = None,
) -> Response:
    """Show the audit log."""
    first, last = _read_day(since), _read_day(until)
    chosen = AuditFilter(actor or None, action or None, subject or None, first, last)
    times = {
        "since": first.isoformat() if first else "",
        "until": last.isoformat() if last else "",
    }
    asked = {"actor": actor, "action": action, "subject": subject}
    rest = {name: value for name, value in {**asked, **times, "format": "csv"}.items() if value}
    here = {name: value for name, value in {**asked, "since": since, "until": until}.items() if value}
    return render_page(
        request,
        "console/audit.html",
        reader=organiser,
        page=list_audit(session, chosen, cursor=cursor),
        chosen={**asked, "since": since, "until": until},
        actions=list_actions(session),
        csv_address=f"/api/v1/console/audit?{urlencode(rest)}",
        address=f"/console/audit?{urlencode(here)}",
    )


def _read_day(text: str) -> datetime | None:
    """Return the beginning of a day in UTC, or None where that is no day."""
    try:
        return datetime.combine(date.fromisoformat(text), time(), UTC) if text else None
    except ValueError:
        return None


def _to_submission(submission_id: str) -> Response:
    return RedirectResponse(f"/submissions/{submission_id}#organising", status_code=303)
