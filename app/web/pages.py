"""The pages: each reads its address, calls one service and renders one template."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import RedirectResponse

from app.evaluator.measurements import ALL_SPLITS
from app.evaluator.strategies import Strategy
from app.services import publishing, scoring, submissions
from app.services.accounts import act_for_team
from app.services.methods import get_methods
from app.services.operating_rows import Order, SortKey
from app.services.snapshot_summaries import list_summaries
from app.services.submission_forms import SubmissionForm, ValidationForm
from app.services.withheld import release_submission
from app.web.security import AccountDep, ConfigDep, FormDep, OrganiserDep, ReaderDep, SessionDep
from app.web.snapshot_page import SnapshotQuery, load_snapshot_page
from app.web.static import static_file
from app.web.submission_page import BoardChoice, load_submission_page
from app.web.submit_page import LIMITS, SubmitQuery, load_submit_page, read_page_form
from app.web.templating import render_page
from app.web.vendor import PLOTLY_PATH, plotly_script

router = APIRouter(include_in_schema=False)

Axis = Literal["linear", "log"]
Cursor = Annotated[str | None, Query()]


def read_snapshot_query(split: str = "", model: str = "", benchmark: str = "", axis: Axis = "linear") -> SnapshotQuery:
    """Return which part of a snapshot an address asks for."""
    return SnapshotQuery(split or None, model or None, benchmark or None, axis)


def read_board_choice(
    model: str = "",
    benchmark: str = "",
    axis: Axis = "linear",
    sort: SortKey = "setting",
    order: Order = "asc",
    settings: Literal["", "all"] = "",
    scorer_version: str = "",
    losses: str = "",
) -> BoardChoice:
    """Return which of a submission's boards an address asks for, and how its settings are listed."""
    return BoardChoice(model or None, benchmark or None, axis, sort, order, settings, scorer_version or None, losses)


@router.get("/snapshots")
def show_snapshots(request: Request, reader: ReaderDep, session: SessionDep, cursor: Cursor = None) -> Response:
    """List the snapshots."""
    return render_page(request, "snapshots.html", reader=reader, page=list_summaries(session, cursor=cursor))


@router.get("/snapshots/{name}")
def show_snapshot(
    name: str,
    request: Request,
    reader: ReaderDep,
    session: SessionDep,
    config: ConfigDep,
    query: Annotated[SnapshotQuery, Depends(read_snapshot_query)],
) -> Response:
    """Show one snapshot."""
    page = load_snapshot_page(session, name, query, data_dir=config.data_dir)
    return render_page(request, "snapshot.html", reader=reader, page=page)


@router.get("/submissions")
def show_submissions(request: Request, account: AccountDep, session: SessionDep, cursor: Cursor = None) -> Response:
    """List the team's submissions."""
    page = submissions.list_submissions(session, account=account, cursor=cursor)
    return render_page(request, "submissions.html", reader=account, page=page)


@router.get("/submissions/{submission_id}")
def show_submission(
    submission_id: str,
    request: Request,
    reader: ReaderDep,
    session: SessionDep,
    config: ConfigDep,
    choice: Annotated[BoardChoice, Depends(read_board_choice)],
) -> Response:
    """Show one submission: its state, then its score."""
    page = load_submission_page(session, submission_id, reader=reader, choice=choice, config=config)
    server = str(request.base_url).rstrip("/")
    return render_page(request, "submission.html", reader=reader, page=page, server=server)


@router.post("/submissions/{submission_id}/publish")
def publish(submission_id: str, account: AccountDep, session: SessionDep) -> Response:
    """Publish a scored submission."""
    submissions.publish_submission(session, submission_id, account=account)
    return RedirectResponse(f"/submissions/{submission_id}", status_code=303)


@router.post("/submissions/{submission_id}/make-current")
def make_current(submission_id: str, account: AccountDep, session: SessionDep) -> Response:
    """Let a published submission stand for its method."""
    publishing.make_current(session, submission_id, account=account)
    return RedirectResponse(f"/submissions/{submission_id}", status_code=303)


@router.post("/submissions/{submission_id}/release")
def release(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Tell a team what was withheld from it on a hidden split."""
    release_submission(session, submission_id, account=organiser)
    return RedirectResponse(f"/submissions/{submission_id}", status_code=303)


@router.post("/submissions/{submission_id}/withdraw")
def withdraw(submission_id: str, account: AccountDep, session: SessionDep) -> Response:
    """Take a submission off the board for good."""
    submissions.withdraw_submission(session, submission_id, account=account)
    return RedirectResponse(f"/submissions/{submission_id}", status_code=303)


@router.post("/submissions/{submission_id}/retry")
def retry(submission_id: str, account: AccountDep, session: SessionDep) -> Response:
    """Put a submission that failed on our side back into the queue."""
    submissions.retry_submission(session, submission_id, account=account)
    return RedirectResponse(f"/submissions/{submission_id}", status_code=303)


@router.get("/submit")
def show_submit(
    request: Request,
    reader: ReaderDep,
    session: SessionDep,
    config: ConfigDep,
    snapshot: str = "",
    split: str = ALL_SPLITS,
    strategy: Strategy = Strategy.DYNAMIC_EARLY_EXIT,
) -> Response:
    """Show the form that takes an action file."""
    query = SubmitQuery(snapshot or None, split, strategy)
    server = str(request.base_url).rstrip("/")
    page = load_submit_page(session, query, reader=reader, config=config, server=server)
    return render_page(request, "submit.html", reader=reader, page=page, limits=LIMITS)


@router.post("/submit")
def submit(form: FormDep, account: AccountDep, session: SessionDep) -> Response:
    """Take in an action file and go to its page."""
    fields = read_page_form(form, SubmissionForm)
    accepted = submissions.accept_submission(
        session,
        account=act_for_team(session, account, fields.team),
        snapshot_name=fields.snapshot,
        split=fields.split,
        strategy=fields.strategy,
        method_name=fields.method,
        description=fields.description,
        upload=form.require_upload(sha256=fields.sha256),
        filename=form.filename,
        notes=fields.notes(),
    )
    return RedirectResponse(f"/submissions/{accepted.submission_id}", status_code=303)


@router.post("/check")
def check(request: Request, form: FormDep, account: AccountDep, session: SessionDep, config: ConfigDep) -> Response:
    """Check an action file as a submission would be, and store nothing."""
    fields = read_page_form(form, ValidationForm)
    act_for_team(session, account, fields.team)
    checked = scoring.check_upload(
        session,
        snapshot_name=fields.snapshot,
        split=fields.split,
        strategy=fields.strategy,
        upload=form.require_upload(sha256=fields.sha256),
        filename=form.filename,
        config=config,
        method_name=fields.method,
        description=fields.description,
        notes=fields.notes(),
    )
    return render_page(request, "checked.html", reader=account, checked=checked, filename=form.filename)


@router.get("/methods/{name:path}")
def show_method(name: str, request: Request, reader: ReaderDep, session: SessionDep, cursor: Cursor = None) -> Response:
    """Show a method and its submissions."""
    methods = get_methods(session, name, account=reader)
    page = submissions.list_method_submissions(session, method=name, account=reader, cursor=cursor)
    return render_page(request, "method.html", reader=reader, name=name, methods=methods, page=page)


@router.get("/about")
def show_about(request: Request, reader: ReaderDep) -> Response:
    """Explain how scoring works."""
    return render_page(request, "about.html", reader=reader)


@router.get(PLOTLY_PATH)
def show_plotly(request: Request) -> Response:
    """Send Plotly's script."""
    return plotly_script(request)


@router.get("/favicon.ico")
def show_icon() -> Response:
    """Send the icon to browsers that ask for it by its old name."""
    return static_file("favicon.svg", version="")


@router.get("/static/{name}")
def show_static(name: str, v: str = "") -> Response:
    """Send the style sheet, a script or the icon."""
    return static_file(name, version=v)
