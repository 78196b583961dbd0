"""The console's pages of snapshots and re-scorings."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Path, Request, Response
from fastapi.responses import RedirectResponse

from app.evaluator.strategies import Strategy
from app.services import rescoring, snapshot_admin, snapshot_imports
from app.services.rescoring_preview import preview_rescoring
from app.services.snapshot_summaries import list_summaries
from app.web.security import OperatorDep, OrganiserDep, SessionDep, SnapshotFormDep
from app.web.templating import render_page

router = APIRouter(prefix="/console", include_in_schema=False)

Number = Annotated[int, Path(ge=1, le=2**63 - 1)]
Field = Annotated[str, Form()]
MOST_SNAPSHOTS = 200


@router.get("/snapshots")
def show_snapshots(
    request: Request, organiser: OrganiserDep, session: SessionDep, cursor: str | None = None
) -> Response:
    """List snapshots and imports."""
    page = list_summaries(session, limit=MOST_SNAPSHOTS, cursor=cursor)
    imports = snapshot_imports.list_imports(session)
    return render_page(request, "console/snapshots.html", reader=organiser, page=page, imports=imports)


@router.post("/snapshots/import")
def import_upload(form: SnapshotFormDep, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Store the zip of a snapshot and queue its import."""
    found = snapshot_imports.begin_upload_import(
        session, upload=form.require_upload(), filename=form.filename, actor=organiser.name
    )
    return RedirectResponse(f"/console/snapshots/imports/{found.id}", status_code=303)


@router.post("/snapshots/import-path")
def import_path(operator: OperatorDep, session: SessionDep, path: Field = "") -> Response:
    """Queue the import of a snapshot that lies on the server."""
    found = snapshot_imports.begin_path_import(session, path=path.strip(), actor=operator.name)
    return RedirectResponse(f"/console/snapshots/imports/{found.id}", status_code=303)


@router.get("/snapshots/imports/{import_id}")
def show_import(import_id: Number, request: Request, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Show how far an import is, and what is wrong with the snapshot."""
    found = snapshot_imports.get_import(session, import_id)
    return render_page(request, "console/snapshot_import.html", reader=organiser, found=found)


@router.post("/snapshots/{name}/hidden-splits")
def hide_splits(
    name: str,
    organiser: OrganiserDep,
    session: SessionDep,
    splits: Annotated[list[str] | None, Form()] = None,
) -> Response:
    """Say which splits' labels are hidden."""
    snapshot_admin.set_hidden_splits(session, name, splits or [], actor=organiser.name)
    return RedirectResponse("/console/snapshots", status_code=303)


@router.post("/snapshots/{name}/freeze")
def freeze(name: str, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Make a snapshot unchangeable."""
    snapshot_admin.freeze_for_good(session, name, actor=organiser.name)
    return RedirectResponse("/console/snapshots", status_code=303)


@router.post("/snapshots/{name}/remove")
def remove(name: str, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Remove a snapshot that is not frozen."""
    snapshot_admin.remove_snapshot(session, name, actor=organiser.name)
    return RedirectResponse("/console/snapshots", status_code=303)


@router.get("/rescorings")
def show_rescorings(request: Request, organiser: OrganiserDep, session: SessionDep) -> Response:
    """List re-scorings, and the boards that show an older version."""
    return render_page(
        request,
        "console/rescorings.html",
        reader=organiser,
        rescorings=rescoring.list_rescorings(session),
        outdated=rescoring.list_outdated_boards(session),
    )


@router.post("/rescorings")
def start_rescoring(organiser: OrganiserDep, session: SessionDep, snapshot: Field) -> Response:
    """Start a re-scoring of all boards of a snapshot."""
    status = rescoring.start_rescoring(session, snapshot_name=snapshot, split=None, strategy=None, actor=organiser.name)
    return _to_rescoring(status.id)


@router.get("/rescorings/{rescoring_id}")
def show_rescoring(
    rescoring_id: Number,
    request: Request,
    organiser: OrganiserDep,
    session: SessionDep,
    split: str = "",
    strategy: Strategy | None = None,
    model: str = "",
    benchmark: str = "",
) -> Response:
    """Show how far a re-scoring is and what it changes."""
    preview = preview_rescoring(
        session,
        rescoring_id,
        split=split or None,
        strategy=strategy,
        model=model or None,
        benchmark=benchmark or None,
        reader=organiser,
    )
    return render_page(request, "console/rescoring.html", reader=organiser, page=preview)


@router.post("/rescorings/{rescoring_id}/apply")
def apply_rescoring(
    rescoring_id: Number, organiser: OrganiserDep, session: SessionDep, leave_out_failed: bool = Form(default=False)
) -> Response:
    """Let all its boards show the new version."""
    rescoring.apply_rescoring(session, rescoring_id, leave_out_failed=leave_out_failed, actor=organiser.name)
    return _to_rescoring(rescoring_id)


@router.post("/rescorings/{rescoring_id}/retry")
def retry_rescoring(rescoring_id: Number, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Queue the submissions again that could not be scored."""
    rescoring.retry_rescoring(session, rescoring_id, actor=organiser.name)
    return _to_rescoring(rescoring_id)


@router.post("/rescorings/{rescoring_id}/cancel")
def cancel_rescoring(rescoring_id: Number, organiser: OrganiserDep, session: SessionDep) -> Response:
    """Leave the boards as they are."""
    rescoring.cancel_rescoring(session, rescoring_id, actor=organiser.name)
    return _to_rescoring(rescoring_id)


def _to_rescoring(rescoring_id: int) -> Response:
    return RedirectResponse(f"/console/rescorings/{rescoring_id}", status_code=303)
