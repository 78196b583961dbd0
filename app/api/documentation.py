"""What the OpenAPI document says beyond the types: errors, forms, paging."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel

from app.api.problems import MEDIA_TYPE
from app.api.schemas import ErrorOut

Responses = dict[int | str, dict[str, Any]]

NOT_MODIFIED: Responses = {304: {"description": "Unchanged since the `ETag` that was sent."}}
LIMIT = Annotated[int, Query(ge=1, le=200, description="How many items a page has at most.")]
CURSOR = Annotated[str | None, Query(description="The `next_cursor` of the page before.", max_length=500)]

VERSION = Annotated[
    str | None,
    Query(max_length=100, description="The score by this scorer version; else by the one that the boards show."),
]


def errors(*statuses: int, also: Responses | None = None) -> Responses:
    """Return the OpenAPI responses of these error statuses, and of others besides."""
    schema = {"$ref": f"#/components/schemas/{ErrorOut.__name__}"}
    described: Responses = {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in statuses
    }
    return {**(also or {}), **described}


ACTION_FILE = "CSV (also .gz, .zst), JSON Lines (also .gz) or Parquet; the file's name says which."


def multipart(form: type[BaseModel], *, file_description: str = ACTION_FILE) -> dict[str, Any]:
    """Return the OpenAPI request body of a form with these text fields and a file in `file`."""
    schema = form.model_json_schema(ref_template="#/components/schemas/{model}")
    schema.pop("$defs", None)
    schema["properties"] = {
        "file": {
            "type": "string",
            "format": "binary",
            "description": file_description,
        },
        **schema["properties"],
    }
    schema["required"] = ["file", *schema.get("required", [])]
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}
