"""Every error as RFC 9457 problem+json: one place that turns exceptions into answers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from sqlalchemy.exc import OperationalError
from starlette.exceptions import HTTPException

from app.errors import AppError, Problem, TooManyRequestsError, UnreachableError

logger = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
# Errors that come from the framework and not from a class of ours.
FRAMEWORK_ERROR = "FrameworkError"
FRAMEWORK_CODES = {400: "bad_request", 404: "not_found", 405: "method_not_allowed", 413: "upload_too_large"}
FRAMEWORK_KINDS = {
    "bad_request": (400, "The request cannot be read"),
    "not_found": (404, "Not found"),
    "method_not_allowed": (405, "This address does not answer that method"),
    "upload_too_large": (413, "The file is too large"),
    "invalid_request": (422, "The request has problems"),
    "internal_error": (500, "Something went wrong on our side"),
}
MAX_SHOWN_INPUT = 100


def find_error(exc: Exception) -> AppError:
    """Return the exception as an `AppError`: itself, or the framework's or the database's error in our words."""
    if isinstance(exc, AppError):
        return exc
    if isinstance(exc, RequestValidationError):
        problems = [_read_validation_error(error) for error in exc.errors()]
        return _make_error("invalid_request", problems[0].message, problems=problems)
    if isinstance(exc, HTTPException):
        phrase = HTTPStatus(exc.status_code).phrase
        code = FRAMEWORK_CODES.get(exc.status_code, phrase.lower().replace(" ", "_").replace("-", "_"))
        return _make_error(code, _explain(exc), status=exc.status_code, title=phrase)
    if isinstance(exc, OperationalError):
        return UnreachableError("The database does not answer; try again in a moment.")
    return _make_error("internal_error", "The server's log has the details; nothing was changed.")


def problem_response(request: Request, error: AppError) -> Response:
    """Return an error as problem+json."""
    body: dict[str, Any] = {
        "type": f"/api/docs#{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": error.detail,
        "code": error.code,
        "instance": request.url.path,
    }
    if error.problems:
        body["problems"] = [problem.as_dict() for problem in error.problems]
    headers = {"WWW-Authenticate": 'Bearer realm="otboard"'} if error.status == HTTPStatus.UNAUTHORIZED else {}
    return JSONResponse(body, status_code=error.status, media_type=MEDIA_TYPE, headers=headers)


def add_error_handlers(app: FastAPI, respond: Any) -> None:
    """Answer every error of `app` with `respond(request, error)`."""

    async def handle(request: Request, exc: Exception) -> Response:
        error = find_error(exc)
        if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR and not isinstance(exc, AppError):
            logger.error("%s %s failed", request.method, request.url.path, exc_info=exc)
        response: Response = respond(request, error)
        if isinstance(error, TooManyRequestsError):
            response.headers["Retry-After"] = str(error.retry_after_seconds)
        if error.code == "internal_error":
            # The web server closes the connection after an exception; clients should not send their next request there.
            response.headers["Connection"] = "close"
        if isinstance(exc, HTTPException) and exc.headers:
            response.headers.update(exc.headers)
        return response

    for kind in (AppError, RequestValidationError, HTTPException, OperationalError, Exception):
        app.add_exception_handler(kind, handle)


OTHER_MODULES = ("app.client", "app.cli", "worker.")
"""Their errors arise on the caller's side of REST, or in workers; a process that runs both must not list them."""


def list_error_kinds() -> list[type[AppError]]:
    """Return every kind of error that the server answers with, by status and code: where an error's `type` leads."""
    found: dict[str, type[AppError]] = {}
    waiting: list[type[AppError]] = [AppError]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        if kind.__name__ != FRAMEWORK_ERROR and not kind.__module__.startswith(OTHER_MODULES):
            found.setdefault(kind.code, kind)
    for code, (status, title) in FRAMEWORK_KINDS.items():
        found[code] = type(FRAMEWORK_ERROR, (AppError,), {"status": status, "code": code, "title": title})
    return sorted(found.values(), key=lambda kind: (kind.status, kind.code))


def _make_error(
    code: str, detail: str, *, status: int = 0, title: str = "", problems: Sequence[Problem] = ()
) -> AppError:
    # A class of its own, because status, code and title belong to the class.
    known = FRAMEWORK_KINDS.get(code, (status, title))
    kind = type(FRAMEWORK_ERROR, (AppError,), {"status": known[0], "code": code, "title": known[1]})
    error: AppError = kind(detail, problems=problems)
    return error


def _explain(exc: HTTPException) -> str:
    if exc.status_code == HTTPStatus.NOT_FOUND:
        return "There is nothing at this address."
    if exc.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        allowed = (exc.headers or {}).get("Allow", "")
        return f"This address answers {allowed}." if allowed else "This address does not answer that method."
    if exc.status_code == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return "The request's body is larger than this address accepts."
    return str(exc.detail)


def _read_validation_error(error: dict[str, Any]) -> Problem:
    """Name the parameter and what was wrong with it, in the words of the validation library."""
    place = [str(part) for part in error["loc"]]
    name = ".".join(place[1:]) or place[0]
    given = error.get("input")
    shown = f" (given: {str(given)[:MAX_SHOWN_INPUT]!r})" if given is not None and error["type"] != "missing" else ""
    return Problem(code="invalid_field", message=f"{name}: {error['msg']}{shown}", column=name)
