"""The pages below a snapshot's: its analyses, its trajectories."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response

from app.web.analyses_page import load_analyses_page
from app.web.explorer_page import TrajectoryQuery, load_explorer_page
from app.web.security import ReaderDep, SessionDep
from app.web.templating import render_page

router = APIRouter(prefix="/snapshots/{name}", include_in_schema=False)


def read_trajectory_query(
    split: str = "", model: str = "", benchmark: str = "", question_id: str = "", trajectory: str = ""
) -> TrajectoryQuery:
    """Return which trajectories an address asks for."""
    return TrajectoryQuery(split, model, benchmark, question_id, trajectory)


@router.get("/analyses")
def show_analyses(name: str, request: Request, reader: ReaderDep, session: SessionDep, split: str = "") -> Response:
    """Show the analyses of a split as far as they are computed."""
    page = load_analyses_page(session, name, split=split or None)
    return render_page(request, "analyses.html", reader=reader, page=page)


@router.get("/trajectories")
def show_trajectories(
    name: str,
    request: Request,
    reader: ReaderDep,
    session: SessionDep,
    query: Annotated[TrajectoryQuery, Depends(read_trajectory_query)],
) -> Response:
    """Show the accuracy curves of a question's trajectories."""
    return render_page(request, "trajectories.html", reader=reader, page=load_explorer_page(session, name, query))
