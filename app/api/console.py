"""What organisers look at: every team's submissions, workers and queue, the audit log, allowances."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response

from app.api.console_schemas import (
    AuditEntryOut,
    AuditPageOut,
    OverrideBody,
    OverrideOut,
    OverridePageOut,
    WorkOut,
)
from app.api.csv_answers import CSV_MEDIA_TYPE, csv_attachment
from app.api.documentation import CURSOR, LIMIT, errors
from app.api.schemas import SubmissionPageOut
from app.services.allowance_overrides import describe_defaults, list_overrides, set_override
from app.services.audit_log import AuditFilter, format_audit_csv, list_audit
from app.services.queue_status import get_work_status
from app.services.submission_lists import SubmissionFilter, list_all_submissions
from app.services.submissions import SubmissionState
from app.web.security import ConfigDep, OrganiserDep, SessionDep

router = APIRouter(prefix="/console", tags=["organising"])

Text = Annotated[str | None, Query(max_length=500)]


def read_audit_filter(
    actor: Text = None,
    action: Text = None,
    subject: Annotated[str | None, Query(max_length=500, description="A part of what it was done to.")] = None,
    since: Annotated[datetime | None, Query(description="From this time on; UTC where it names no zone.")] = None,
    until: Annotated[datetime | None, Query(description="Before this time.")] = None,
) -> AuditFilter:
    """Return which acts an address asks for."""
    return AuditFilter(actor, action, subject, with_zone(since), with_zone(until))


def with_zone(moment: datetime | None) -> datetime | None:
    """Return a time with its zone, UTC where it names none."""
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment


@router.get("/submissions", summary="List every team's submissions", responses=errors(401, 403, 422))
def list_submissions(
    organiser: OrganiserDep,
    session: SessionDep,
    state: SubmissionState | None = None,
    snapshot: Text = None,
    team: Text = None,
    flagged: bool | None = None,
    limit: LIMIT = 50,
    cursor: CURSOR = None,
) -> SubmissionPageOut:
    """List the submissions of all teams, newest first."""
    chosen = SubmissionFilter(state, snapshot, team, flagged)
    page = list_all_submissions(session, chosen, account=organiser, limit=limit, cursor=cursor)
    return SubmissionPageOut.model_validate(page)


@router.get("/work", summary="Get workers and queue", responses=errors(401, 403))
def get_work(organiser: OrganiserDep, session: SessionDep, config: ConfigDep) -> WorkOut:
    """Tell which workers live, what they do since when, what waits since when, and which jobs failed."""
    return WorkOut.model_validate(get_work_status(session, silence_seconds=config.heartbeat_timeout_seconds))


@router.get(
    "/audit",
    summary="Read the audit log",
    response_model=AuditPageOut,
    responses=errors(401, 403, 422, also={200: {"content": {CSV_MEDIA_TYPE: {}}}}),
)
def get_audit(
    organiser: OrganiserDep,
    session: SessionDep,
    chosen: Annotated[AuditFilter, Depends(read_audit_filter)],
    format: Annotated[Literal["json", "csv"], Query(description="CSV is all of it, and not a page.")] = "json",
    limit: LIMIT = 50,
    cursor: CURSOR = None,
) -> AuditPageOut | Response:
    """List who did what to what, newest first."""
    if format == "csv":
        return csv_attachment("".join(format_audit_csv(session, chosen)), filename="audit.csv")
    page = list_audit(session, chosen, limit=limit, cursor=cursor)
    return AuditPageOut(
        items=[AuditEntryOut.model_validate(entry) for entry in page.items], next_cursor=page.next_cursor
    )


@router.get("/allowances", summary="List limits", responses=errors(401, 403))
def list_allowances(organiser: OrganiserDep, session: SessionDep) -> OverridePageOut:
    """List the limits that are set for teams on snapshots."""
    items = [OverrideOut.model_validate(override) for override in list_overrides(session)]
    return OverridePageOut(items=items, defaults=describe_defaults())


@router.put("/allowances", summary="Set limits", responses=errors(400, 401, 403, 404, 413, 422))
def set_allowance(body: OverrideBody, organiser: OrganiserDep, session: SessionDep) -> OverrideOut:
    """Set limits on a snapshot, for a team or for all."""
    limits = {name: getattr(body, name) for name in body.model_fields_set - {"snapshot", "team"}}
    override = set_override(session, snapshot=body.snapshot, team=body.team, limits=limits, actor=organiser.name)
    return OverrideOut.model_validate(override)
