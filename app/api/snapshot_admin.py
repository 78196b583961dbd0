"""What organisers do with snapshots: import, hide splits, freeze, remove."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from app.api.console_schemas import HiddenSplitsBody, ImportOut, ImportPageOut, PathBody
from app.api.documentation import errors
from app.api.schemas import SnapshotOut
from app.services import snapshot_admin, snapshot_imports
from app.services.snapshot_summaries import get_summary
from app.web.security import OperatorDep, OrganiserDep, SessionDep, SnapshotFormDep

router = APIRouter(tags=["organising"])

ImportId = Annotated[int, Path(ge=1, le=2**63 - 1)]
ZIP_FORM: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary", "description": "A snapshot's zip."}},
                }
            }
        },
    }
}


@router.get("/console/snapshot-imports", summary="List imports", responses=errors(401, 403))
def list_imports(organiser: OrganiserDep, session: SessionDep) -> ImportPageOut:
    """List the newest imports of snapshots, newest first."""
    return ImportPageOut(items=[ImportOut.model_validate(found) for found in snapshot_imports.list_imports(session)])


@router.post(
    "/console/snapshot-imports",
    status_code=202,
    summary="Import a snapshot",
    openapi_extra=ZIP_FORM,
    responses=errors(400, 401, 403, 413, 422),
)
def import_upload(form: SnapshotFormDep, organiser: OrganiserDep, session: SessionDep, response: Response) -> ImportOut:
    """Store the zip of a snapshot and queue its import; `Location` says where to look for what becomes of it."""
    found = snapshot_imports.begin_upload_import(
        session, upload=form.require_upload(), filename=form.filename, actor=organiser.name
    )
    response.headers["Location"] = f"/api/v1/console/snapshot-imports/{found.id}"
    return ImportOut.model_validate(found)


@router.post(
    "/console/snapshot-imports/from-path",
    status_code=202,
    summary="Import from a path",
    responses=errors(400, 401, 403, 413, 422),
)
def import_path(body: PathBody, operator: OperatorDep, session: SessionDep, response: Response) -> ImportOut:
    """Queue the import of a snapshot folder or zip that lies on the server."""
    found = snapshot_imports.begin_path_import(session, path=body.path, actor=operator.name)
    response.headers["Location"] = f"/api/v1/console/snapshot-imports/{found.id}"
    return ImportOut.model_validate(found)


@router.get("/console/snapshot-imports/{import_id}", summary="Get an import", responses=errors(401, 403, 404, 422))
def get_import(import_id: ImportId, organiser: OrganiserDep, session: SessionDep) -> ImportOut:
    """Tell how far an import is, and every fault of the snapshot."""
    return ImportOut.model_validate(snapshot_imports.get_import(session, import_id))


@router.put(
    "/snapshots/{name}/hidden-splits", summary="Hide splits", responses=errors(400, 401, 403, 404, 409, 413, 422)
)
def set_hidden_splits(name: str, body: HiddenSplitsBody, organiser: OrganiserDep, session: SessionDep) -> SnapshotOut:
    """Say which splits' labels are hidden, before the snapshot is frozen; its hash changes."""
    snapshot_admin.set_hidden_splits(session, name, body.splits, actor=organiser.name)
    return SnapshotOut.model_validate(get_summary(session, name))


@router.post("/snapshots/{name}/freeze", summary="Freeze", responses=errors(401, 403, 404, 409))
def freeze_snapshot(name: str, organiser: OrganiserDep, session: SessionDep) -> SnapshotOut:
    """Make a snapshot unchangeable, so that submissions can be scored on it; doing it again changes nothing."""
    snapshot_admin.freeze_for_good(session, name, actor=organiser.name)
    return SnapshotOut.model_validate(get_summary(session, name))


@router.delete("/snapshots/{name}", status_code=204, summary="Remove", responses=errors(401, 403, 404, 409))
def remove_snapshot(name: str, organiser: OrganiserDep, session: SessionDep) -> None:
    """Remove a snapshot that is not frozen."""
    snapshot_admin.remove_snapshot(session, name, actor=organiser.name)
