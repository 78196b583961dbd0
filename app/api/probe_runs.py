"""Probe runs: measuring models."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Response
from sqlalchemy.orm import Session

from app.api.bodies import ObjectDep, json_body, read_body
from app.api.documentation import CURSOR, LIMIT, errors
from app.api.probe_schemas import (
    FailedQuestionOut,
    ProbeRunBody,
    ProbeRunEventOut,
    ProbeRunEventPageOut,
    ProbeRunOut,
    ProbeRunPageOut,
    ReasonBody,
)
from app.config import Config
from app.db import models
from app.services import probe_runs
from app.services.probe_run_lists import list_failed_questions, list_run_summaries
from app.services.probe_run_requests import RunRequest, create_requested_run
from app.services.probe_status import get_status
from app.web.security import ConfigDep, OperatorDep, SessionDep

router = APIRouter(prefix="/probe-runs", tags=["probe runs"])

Reason = Annotated[ReasonBody | None, Body()]


@router.get("", summary="List probe runs", responses=errors(401, 403, 422))
def list_runs(operator: OperatorDep, session: SessionDep, limit: LIMIT = 50, cursor: CURSOR = None) -> ProbeRunPageOut:
    """List all runs, newest first."""
    return ProbeRunPageOut.model_validate(list_run_summaries(session, limit=limit, cursor=cursor))


@router.post(
    "",
    status_code=201,
    summary="Create a probe run",
    openapi_extra=json_body(ProbeRunBody),
    responses=errors(400, 401, 403, 409, 413, 422),
)
def create_run(
    body: ObjectDep, operator: OperatorDep, session: SessionDep, config: ConfigDep, response: Response
) -> ProbeRunOut:
    """Create a run and queue its questions; `Location` says where to look for how far it is.

    A question set comes inline, the objects of a question file's lines, or as the hash of a set that an earlier run
    brought. Every fault of every set is listed.
    """
    asked = read_body(body, ProbeRunBody)
    run = create_requested_run(session, _read_request(asked), account=operator)
    if asked.start:
        probe_runs.start_run(session, run.name, actor=operator.name)
    response.headers["Location"] = f"/api/v1/probe-runs/{run.id}"
    return _show(session, run, config)


@router.get("/{run}", summary="Get a probe run", responses=errors(401, 403, 404))
def get_run(run: str, operator: OperatorDep, session: SessionDep, config: ConfigDep) -> ProbeRunOut:
    """Tell how far a run is, by its id or its name: questions, tokens, time left, workers, failures."""
    return _show(session, probe_runs.get_run(session, run), config)


@router.get("/{run}/events", summary="List what happened", responses=errors(401, 403, 404))
def list_events(run: str, operator: OperatorDep, session: SessionDep) -> ProbeRunEventPageOut:
    """List every change of a run's state or priority, oldest first."""
    events = probe_runs.list_run_events(session, probe_runs.get_run(session, run))
    return ProbeRunEventPageOut(items=[ProbeRunEventOut.model_validate(event) for event in events])


@router.post("/{run}/pause", summary="Pause", responses=errors(400, 401, 403, 404, 409, 413, 422))
def pause_run(
    run: str, operator: OperatorDep, session: SessionDep, config: ConfigDep, body: Reason = None
) -> ProbeRunOut:
    """Hand out no more questions; those in a worker's hands are finished. Doing it again changes nothing."""
    return _show(session, probe_runs.pause_run(session, run, actor=operator.name, reason=_reason(body)), config)


@router.post("/{run}/resume", summary="Resume", responses=errors(401, 403, 404, 409))
def resume_run(run: str, operator: OperatorDep, session: SessionDep, config: ConfigDep) -> ProbeRunOut:
    """Hand out questions again, those that failed among them; also starts a run that was created without."""
    return _show(session, probe_runs.resume_run(session, run, actor=operator.name), config)


@router.post("/{run}/cancel", summary="Cancel", responses=errors(400, 401, 403, 404, 409, 413, 422))
def cancel_run(
    run: str, operator: OperatorDep, session: SessionDep, config: ConfigDep, body: Reason = None
) -> ProbeRunOut:
    """End a run for good; what was measured stays in the database. Doing it again changes nothing."""
    return _show(session, probe_runs.cancel_run(session, run, actor=operator.name, reason=_reason(body)), config)


def _read_request(body: ProbeRunBody) -> RunRequest:
    return RunRequest(
        name=body.name,
        model=body.model,
        question_sets=[given.model_dump(exclude_none=True) for given in body.question_sets],
        title=body.title,
        priority=body.priority,
        seed_name=body.seed_name,
        protocol=body.protocol.model_dump(),
    )


def _show(session: Session, run: models.ProbeRun, config: Config) -> ProbeRunOut:
    shown = ProbeRunOut.model_validate(get_status(session, run, config=config))
    if shown.n_failed:
        failed: list[Any] = list(list_failed_questions(session, run.id))
        shown.failed_questions = [FailedQuestionOut.model_validate(question) for question in failed]
    return shown


def _reason(body: ReasonBody | None) -> str | None:
    return body.reason if body else None
