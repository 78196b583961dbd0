"""What machines ask: is the process alive, can it serve, how is it doing."""

from __future__ import annotations

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from app.api.documentation import errors
from app.services.metrics import check_ready, count_work, format_metrics
from app.web.security import ConfigDep, SessionDep

router = APIRouter(tags=["health"])


@router.get("/healthz", response_class=PlainTextResponse, summary="Alive")
def is_alive() -> str:
    """Answer whenever the process runs."""
    return "ok\n"


@router.get("/readyz", response_class=PlainTextResponse, summary="Ready", responses=errors(503))
def is_ready(session: SessionDep) -> str:
    """Answer 200 when the database answers and has the tables of this version, else 503."""
    check_ready(session)
    return "ready\n"


@router.get("/metrics", response_class=PlainTextResponse, summary="Metrics")
def read_metrics(session: SessionDep, config: ConfigDep) -> Response:
    """Return gauges in the Prometheus text format."""
    work = count_work(session, silence_seconds=config.heartbeat_timeout_seconds)
    return Response(format_metrics(work), media_type="text/plain; version=0.0.4; charset=utf-8")
