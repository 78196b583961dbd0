"""The board's addresses: the page, its figure, one opened row; and submissions side by side."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import RedirectResponse

from app.errors import NotFoundError
from app.plots.frame import dump_figure
from app.services.comparison import compare_submissions
from app.services.demo_progress import find_demo_progress
from app.web.board_page import load_board_figure, load_board_page, load_open_row
from app.web.board_query import BoardQuery, parse_board_query
from app.web.compare_page import read_ids, show_comparison
from app.web.security import ConfigDep, ReaderDep, SessionDep
from app.web.templating import render_page

router = APIRouter(include_in_schema=False)


def read_board_query(request: Request) -> BoardQuery:
    """Return the view an address asks for; a form that was sent as it stands has empty fields, which mean all."""
    names = request.query_params.keys()
    return parse_board_query({name: request.query_params.getlist(name) for name in names})


QueryDep = Annotated[BoardQuery, Depends(read_board_query)]


@router.get("/")
def show_board(
    request: Request, reader: ReaderDep, session: SessionDep, config: ConfigDep, query: QueryDep
) -> Response:
    """Show the board."""
    server = str(request.base_url).rstrip("/")
    page = load_board_page(session, query, reader=reader, server=server, data_dir=config.data_dir)
    demo = find_demo_progress(config.data_dir)
    running = demo if demo is not None and demo.state == "running" else None
    answer = render_page(request, "board.html" if page else "no_board.html", reader=reader, page=page, demo=running)
    if running:
        # How far the demo is does not stand in the database, so nobody may be given this page again.
        answer.headers["Cache-Control"] = "no-store"
    return answer


@router.get("/figures/board")
def show_board_figure(reader: ReaderDep, session: SessionDep, config: ConfigDep, query: QueryDep) -> Response:
    """Send the board's figure to the page's script."""
    figure = load_board_figure(session, query, reader=reader, data_dir=config.data_dir)
    if figure is None:
        raise NotFoundError("The frontier of this board is not stored.")
    headers = {"Cache-Control": "private, no-cache", "Vary": "Cookie"}
    return Response(dump_figure(figure), media_type="application/json", headers=headers)


@router.get("/board-rows/{submission_id}")
def show_board_row(
    submission_id: str, request: Request, reader: ReaderDep, session: SessionDep, query: QueryDep
) -> Response:
    """Send what a row says once it is opened, to the page's script."""
    item = load_open_row(session, query, submission_id, reader=reader)
    if item is None:
        raise NotFoundError(f"Submission {submission_id!r} does not stand on this board.")
    return render_page(request, "board_row.html", reader=reader, item=item)


@router.get("/compare")
def show_compare(request: Request, reader: ReaderDep, session: SessionDep, config: ConfigDep) -> Response:
    """Show submissions side by side; the board's form, which names them otherwise, is sent on to their address."""
    ids = read_ids(request.query_params)
    if "pin" in request.query_params:
        return RedirectResponse(f"/compare?submissions={','.join(ids)}", status_code=303)
    comparison = compare_submissions(session, ids, account=reader)
    page = show_comparison(session, comparison, data_dir=config.data_dir)
    return render_page(request, "compare.html", reader=reader, page=page)
