"""Re-scorings: new scores by a new scorer version, previewed and then applied as a whole."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response

from app.api.documentation import errors
from app.api.rescoring_schemas import ApplyBody, PreviewOut, RescoringBody, RescoringOut, RescoringPageOut
from app.evaluator.strategies import Strategy
from app.services import rescoring
from app.services.rescoring_preview import preview_rescoring
from app.web.security import OrganiserDep, SessionDep

RescoringId = Annotated[int, Path(ge=1, le=2**63 - 1)]

router = APIRouter(prefix="/console/rescorings", tags=["re-scoring"])


@router.get("", summary="List re-scorings", responses=errors(401, 403))
def list_rescorings(organiser: OrganiserDep, session: SessionDep) -> RescoringPageOut:
    """List the newest re-scorings, newest first."""
    found = rescoring.list_rescorings(session)
    return RescoringPageOut(items=[RescoringOut.model_validate(status) for status in found])


@router.post("", status_code=201, summary="Start a re-scoring", responses=errors(400, 401, 403, 404, 409, 413, 422))
def start_rescoring(
    body: RescoringBody, organiser: OrganiserDep, session: SessionDep, response: Response
) -> RescoringOut:
    """Queue new scores, by the scorer in force, of what stands on boards that show another version."""
    status = rescoring.start_rescoring(
        session, snapshot_name=body.snapshot, split=body.split, strategy=body.strategy, actor=organiser.name
    )
    response.headers["Location"] = f"/api/v1/console/rescorings/{status.id}"
    return RescoringOut.model_validate(status)


@router.get("/{rescoring_id}", summary="Get a re-scoring", responses=errors(401, 403, 404, 422))
def get_rescoring(rescoring_id: RescoringId, organiser: OrganiserDep, session: SessionDep) -> RescoringOut:
    """Tell how far a re-scoring is."""
    return RescoringOut.model_validate(rescoring.get_rescoring(session, rescoring_id))


@router.get("/{rescoring_id}/preview", summary="Preview a re-scoring", responses=errors(401, 403, 404, 422))
def preview(
    rescoring_id: RescoringId,
    organiser: OrganiserDep,
    session: SessionDep,
    split: Annotated[str | None, Query(description="The board in full: of this split, else the first one.")] = None,
    strategy: Strategy | None = None,
    model: str | None = None,
    benchmark: str | None = None,
) -> PreviewOut:
    """Tell which figures and ranks the re-scoring changes, as far as its scores are made."""
    found = preview_rescoring(
        session, rescoring_id, split=split, strategy=strategy, model=model, benchmark=benchmark, reader=organiser
    )
    return PreviewOut.model_validate(found)


@router.post("/{rescoring_id}/apply", summary="Apply a re-scoring", responses=errors(400, 401, 403, 404, 409, 413, 422))
def apply_rescoring(
    rescoring_id: RescoringId,
    organiser: OrganiserDep,
    session: SessionDep,
    body: Annotated[ApplyBody | None, Body()] = None,
) -> RescoringOut:
    """Let all its boards show the new version, at once; doing it again changes nothing."""
    status = rescoring.apply_rescoring(
        session, rescoring_id, leave_out_failed=bool(body and body.leave_out_failed), actor=organiser.name
    )
    return RescoringOut.model_validate(status)


@router.post("/{rescoring_id}/retry", summary="Try failed ones again", responses=errors(401, 403, 404, 409, 422))
def retry_rescoring(rescoring_id: RescoringId, organiser: OrganiserDep, session: SessionDep) -> RescoringOut:
    """Queue the submissions again that could not be scored."""
    return RescoringOut.model_validate(rescoring.retry_rescoring(session, rescoring_id, actor=organiser.name))


@router.post("/{rescoring_id}/cancel", summary="Cancel a re-scoring", responses=errors(401, 403, 404, 409, 422))
def cancel_rescoring(rescoring_id: RescoringId, organiser: OrganiserDep, session: SessionDep) -> RescoringOut:
    """Leave the boards as they are; scores that were made are kept for the next one. Doing it again changes nothing."""
    return RescoringOut.model_validate(rescoring.cancel_rescoring(session, rescoring_id, actor=organiser.name))
