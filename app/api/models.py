"""Models that can be measured, by their profiles."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Body, Response

from app.api.documentation import CURSOR, LIMIT, Responses, errors
from app.api.probe_schemas import ModelOut, ModelPageOut
from app.files.profiles import build_profile
from app.services import model_profiles
from app.web.security import OperatorDep, SessionDep

router = APIRouter(prefix="/models", tags=["models"])

REPLACED: Responses = {200: {"model": ModelOut, "description": "A profile of this name was replaced."}}
EXAMPLE_PROFILE: dict[str, Any] = {
    "format": "otboard-profile/1",
    "name": "my-model",
    "repository": "me/my-model",
    "uses_chat_template": True,
    "thinking_start": "<think>",
    "thinking_end": "</think>",
    "thinking_token_limit": 16384,
}


@router.get("", summary="List models", responses=errors(401, 403, 422))
def list_models(operator: OperatorDep, session: SessionDep, limit: LIMIT = 50, cursor: CURSOR = None) -> ModelPageOut:
    """List the models that have a profile, shipped or registered, by name."""
    return ModelPageOut.model_validate(model_profiles.list_models(session, limit=limit, cursor=cursor))


@router.post("", status_code=201, summary="Register a model", responses=errors(400, 401, 403, 413, 422, also=REPLACED))
def register_model(
    profile: Annotated[dict[str, Any], Body(examples=[EXAMPLE_PROFILE])],
    operator: OperatorDep,
    session: SessionDep,
    response: Response,
) -> ModelOut:
    """Register a profile under its name, in place of one that has it already; `Location` says where it is.

    Every fault is listed with its key. Runs that were created with an earlier profile of the name keep theirs.
    """
    registered = model_profiles.register_model(session, build_profile(profile), account_id=operator.id)
    response.status_code = 201 if registered.created else 200
    response.headers["Location"] = f"/api/v1/models/{quote(registered.model.name)}"
    return ModelOut.model_validate(registered.model)


@router.get("/{name:path}", summary="Get a model", responses=errors(401, 403, 404))
def get_model(name: str, operator: OperatorDep, session: SessionDep) -> ModelOut:
    """Return a model's profile."""
    return ModelOut.model_validate(model_profiles.get_model(session, name))
