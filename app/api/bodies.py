"""JSON bodies that are larger or looser than the framework's own: read up to a limit, parsed strictly."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from app.errors import AppError
from app.files.manifest import parse_json
from app.services.uploads import UploadTooLargeError
from app.web.security import OperatorDep

# A body is held in memory while it is read; larger question sets are stored by the command line.
MAX_BODY_BYTES = 32 * 2**20

Body = TypeVar("Body", bound=BaseModel)


class InvalidJsonError(AppError):
    """The body is not one JSON object."""

    status = 400
    code = "invalid_json"
    title = "The body is not a JSON object"


async def receive_object(request: Request, operator: OperatorDep) -> dict[str, Any]:
    """Read the request's body as a JSON object: no key twice, no NaN. A stranger's body is not even read."""
    received = bytearray()
    n_bytes = 0
    # What passes the limit is read to its end and let go, so that the client hears why.
    async for chunk in request.stream():
        n_bytes += len(chunk)
        if n_bytes <= MAX_BODY_BYTES:
            received += chunk
    if n_bytes > MAX_BODY_BYTES:
        raise UploadTooLargeError(f"The body is larger than {MAX_BODY_BYTES // 2**20} MiB.")
    try:
        document = parse_json(received.decode("utf-8-sig"))
    except ValueError as exc:
        raise InvalidJsonError(f"The body cannot be read as JSON: {exc}.") from exc
    if not isinstance(document, dict):
        raise InvalidJsonError("The body is JSON, and no object.")
    return document


ObjectDep = Annotated[dict[str, Any], Depends(receive_object, scope="function")]


def read_body(document: dict[str, Any], model: type[Body]) -> Body:
    """Return a body as `model`, or name every fault of it."""
    try:
        return model.model_validate(document)
    except ValidationError as exc:
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in exc.errors()]) from exc


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a request with a JSON body of this model."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})
    content = {"application/json": {"schema": _inline(schema, definitions)}}
    return {"requestBody": {"required": True, "content": content}}


def _inline(schema: Any, definitions: dict[str, Any]) -> Any:
    """Put definitions in the place of what refers to them: the document knows none by these names."""
    if isinstance(schema, list):
        return [_inline(part, definitions) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        found = definitions[schema["$ref"].rpartition("/")[2]]
        return _inline({**found, **{key: value for key, value in schema.items() if key != "$ref"}}, definitions)
    return {key: _inline(value, definitions) for key, value in schema.items()}
