"""Snapshots and what is computed from them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import FileResponse

from app.api.csv_answers import CSV_MEDIA_TYPE, csv_attachment
from app.api.documentation import CURSOR, LIMIT, NOT_MODIFIED, errors
from app.api.frozen import find_unchanged, frozen, make_etag
from app.api.schemas import (
    AnalysesOut,
    AnalysisStateOut,
    FrontiersOut,
    OverthinkingOut,
    SnapshotDetailsOut,
    SnapshotOut,
    SnapshotPageOut,
    TrajectoriesOut,
)
from app.evaluator.scorers import current_scorer_version
from app.evaluator.strategies import Strategy
from app.files.documents import dump_json
from app.report_csv import format_analysis_csv
from app.services import analyses
from app.services import snapshot_documents as documents
from app.services.snapshot_summaries import get_summary, list_summaries
from app.services.trajectories import list_trajectories
from app.web.security import ConfigDep, SessionDep

router = APIRouter(prefix="/snapshots", tags=["snapshots"])

SPLIT = Annotated[str, Query(description="`all`, or a split that has questions.")]


@router.get("", summary="List snapshots", responses=errors(422))
def list_snapshots(session: SessionDep, limit: LIMIT = 50, cursor: CURSOR = None) -> SnapshotPageOut:
    """List all snapshots by name."""
    page = list_summaries(session, limit=limit, cursor=cursor)
    return SnapshotPageOut(
        items=[SnapshotOut.model_validate(item) for item in page.items], next_cursor=page.next_cursor
    )


@router.get(
    "/{name}", summary="Get a snapshot", response_model=SnapshotDetailsOut, responses=errors(404, also=NOT_MODIFIED)
)
def get_snapshot(name: str, session: SessionDep, request: Request) -> Response:
    """Return what a snapshot measures, its hash and its manifest."""
    summary = get_summary(session, name)
    shown = SnapshotDetailsOut.model_validate(summary).model_dump_json()
    if summary.frozen_at is None:
        return Response(shown, media_type="application/json")
    etag = make_etag("snapshot", summary.name, summary.sha256, summary.superseded_by or "")
    return find_unchanged(request, etag) or frozen(shown, etag=etag)


@router.get("/{name}/trajectories", summary="Get a question's curves", responses=errors(403, 404, 409, 422))
def get_trajectories(
    name: str,
    session: SessionDep,
    benchmark: str,
    question_id: str,
    limit: LIMIT = 50,
    cursor: CURSOR = None,
) -> TrajectoriesOut:
    """Return L(k) and C(k) of every trajectory of one question, unless its split's labels are hidden."""
    snapshot = documents.get_released_snapshot(session, name)
    curves = list_trajectories(
        session, snapshot, benchmark=benchmark, question_id=question_id, limit=limit, cursor=cursor
    )
    return TrajectoriesOut.model_validate(curves)


@router.get(
    "/{name}/overthinking",
    summary="Get overthinking figures",
    response_model=OverthinkingOut,
    responses=errors(403, 404, 409, 422, also=NOT_MODIFIED),
)
def get_overthinking(
    name: str, session: SessionDep, config: ConfigDep, request: Request, split: SPLIT = "all"
) -> Response:
    """Return overthinking ratio, accuracy degradation and accuracies: what `otboard overthinking` prints."""
    snapshot = documents.get_told_snapshot(session, name, split=split)
    etag = make_etag("overthinking", snapshot.name, snapshot.sha256, split, current_scorer_version())
    if (unchanged := find_unchanged(request, etag)) is not None:
        return unchanged
    text = documents.get_overthinking_text(session, snapshot, split=split, data_dir=config.data_dir)
    return frozen(text, etag=etag)


@router.get(
    "/{name}/frontiers",
    summary="Get exact frontiers",
    response_model=FrontiersOut,
    responses=errors(403, 404, 409, 422, also=NOT_MODIFIED),
)
def get_frontiers(
    name: str,
    session: SessionDep,
    config: ConfigDep,
    request: Request,
    split: SPLIT = "all",
    strategy: Strategy | None = None,
    model: str | None = None,
    benchmark: str | None = None,
) -> Response:
    """Return the exact frontiers of the chosen cells and their mean: what `otboard frontier` prints."""
    snapshot = documents.get_told_snapshot(session, name, split=split)
    query = documents.FrontierQuery(split=split, strategy=strategy, model=model, benchmark=benchmark)
    etag = make_etag("frontiers", snapshot.name, snapshot.sha256, *query.key, current_scorer_version())
    if (unchanged := find_unchanged(request, etag)) is not None:
        return unchanged
    return frozen(documents.get_frontiers_text(session, snapshot, query, data_dir=config.data_dir), etag=etag)


@router.get("/{name}/analyses", summary="List analyses", responses=errors(403, 404, 409, 422))
def list_analyses(name: str, session: SessionDep, split: SPLIT = "all") -> AnalysesOut:
    """Tell which analyses of a split are computed and which are still to come."""
    snapshot = documents.get_released_snapshot(session, name, split=split)
    stored = analyses.list_analyses(session, snapshot, split=split)
    items = [AnalysisStateOut(kind=kind, is_ready=kind in stored) for kind in analyses.ANALYSES]
    return AnalysesOut(snapshot=name, split=split, items=items)


@router.get(
    "/{name}/analyses/{kind}",
    summary="Get an analysis",
    response_model=dict[str, Any],
    responses=errors(403, 404, 409, 422, also={200: {"content": {CSV_MEDIA_TYPE: {}}}}),
)
def get_analysis(
    name: str, kind: str, session: SessionDep, split: SPLIT = "all", format: Literal["json", "csv"] = "json"
) -> Response:
    """Return one analysis: the section of that name that `otboard analyse` writes for the split."""
    snapshot = documents.get_released_snapshot(session, name, split=split)
    document = analyses.get_analysis(session, snapshot, kind, split=split)
    if format == "csv":
        return csv_attachment(format_analysis_csv(kind, document), filename=f"{name}-{split}-{kind}.csv")
    return Response(dump_json(document), media_type="application/json")


@router.get(
    "/{name}/download",
    summary="Download a snapshot",
    response_class=FileResponse,
    responses=errors(404, 409, also={200: {"content": {"application/zip": {}}}, **NOT_MODIFIED}),
)
def download_snapshot(name: str, session: SessionDep, config: ConfigDep, request: Request) -> Response:
    """Send the snapshot as a zip in the public format, without the labels of hidden splits."""
    snapshot = documents.get_released_snapshot(session, name)
    path = documents.ensure_download(session, snapshot, data_dir=config.data_dir)
    # The zip may be written anew with other bytes for the same content, so its own time and size are part of the tag.
    status = path.stat()
    etag = make_etag("download", snapshot.sha256, str(status.st_mtime_ns), str(status.st_size))
    headers = {"ETag": etag, "Cache-Control": "private, no-cache"}
    return find_unchanged(request, etag) or FileResponse(
        path, filename=f"{snapshot.name}.zip", media_type="application/zip", headers=headers
    )
