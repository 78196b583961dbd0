"""The console: pages for whoever measures models. Every one of them needs an account."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse

from app.services import probe_runs
from app.services.probe_run_lists import list_run_summaries
from app.services.probe_runs import ProbeRunState
from app.web.probe_run_page import load_probe_run_page
from app.web.security import ConfigDep, OperatorDep, SessionDep
from app.web.templating import render_page

router = APIRouter(prefix="/console", include_in_schema=False)


@router.get("/probe-runs")
def show_probe_runs(
    request: Request, operator: OperatorDep, session: SessionDep, cursor: Annotated[str | None, Query()] = None
) -> Response:
    """List the probe runs."""
    page = list_run_summaries(session, cursor=cursor)
    is_moving = any(item.state == ProbeRunState.RUNNING for item in page.items)
    return render_page(request, "probe_runs.html", reader=operator, page=page, is_moving=is_moving)


@router.get("/probe-runs/{name}")
def show_probe_run(
    name: str, request: Request, operator: OperatorDep, session: SessionDep, config: ConfigDep
) -> Response:
    """Show how far a probe run is."""
    page = load_probe_run_page(session, name, config=config)
    return render_page(request, "probe_run.html", reader=operator, page=page)


@router.post("/probe-runs/{name}/pause")
def pause_run(name: str, operator: OperatorDep, session: SessionDep) -> Response:
    """Hand out no more questions of a run."""
    return _return_to(probe_runs.pause_run(session, name, actor=operator.name).name)


@router.post("/probe-runs/{name}/resume")
def resume_run(name: str, operator: OperatorDep, session: SessionDep) -> Response:
    """Hand out questions of a run again, or for the first time."""
    return _return_to(probe_runs.resume_run(session, name, actor=operator.name).name)


@router.post("/probe-runs/{name}/cancel")
def cancel_run(name: str, operator: OperatorDep, session: SessionDep) -> Response:
    """End a run for good."""
    return _return_to(probe_runs.cancel_run(session, name, actor=operator.name).name)


def _return_to(name: str) -> Response:
    return RedirectResponse(f"/console/probe-runs/{name}", status_code=303)
