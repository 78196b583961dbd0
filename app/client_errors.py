"""What a server's refusals become: errors with the server's own code, title and problems."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import httpx

from app.errors import (
    AppError,
    ContentError,
    ForbiddenError,
    NotFoundError,
    Problem,
    StateError,
    TooManyRequestsError,
    UnreachableError,
)

ERROR_KINDS: dict[int, type[AppError]] = {
    HTTPStatus.UNAUTHORIZED: ForbiddenError,
    HTTPStatus.FORBIDDEN: ForbiddenError,
    HTTPStatus.NOT_FOUND: NotFoundError,
    HTTPStatus.CONFLICT: StateError,
    HTTPStatus.UNPROCESSABLE_ENTITY: ContentError,
    HTTPStatus.TOO_MANY_REQUESTS: TooManyRequestsError,
}


def read_json(answer: httpx.Response) -> dict[str, Any] | None:
    """Return the JSON object of an answer, or None where it is none."""
    try:
        body = answer.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def read_problems(listed: Any) -> tuple[Problem, ...]:
    """Return the problems that an answer lists."""
    return tuple(
        Problem(
            code=str(item.get("code")),
            message=str(item.get("message")),
            row=item.get("row"),
            column=item.get("column"),
            unit=item.get("unit"),
            count=item.get("count") or 1,
        )
        for item in listed or ()
        if isinstance(item, dict)
    )


def read_retry_after(answer: httpx.Response) -> int | None:
    """Return for how many seconds a server that is asked too often wants a pause; None where it wants none."""
    told = answer.headers.get("Retry-After", "")
    return int(told) if answer.status_code == HTTPStatus.TOO_MANY_REQUESTS and told.isdecimal() else None


def build_refusal(answer: httpx.Response, server: str) -> AppError:
    """Return the error that an answer stands for."""
    body = read_json(answer)
    if body is None or "code" not in body or answer.status_code in (502, 503, 504):
        detail = str(body["detail"]) if body and "detail" in body else "this is not an OTBoard server's answer"
        return UnreachableError(f"{server} answered {answer.status_code}: {detail}")
    return _make_error(answer, body)


def _make_error(answer: httpx.Response, body: Mapping[str, Any]) -> AppError:
    """Return the server's problem document as an error that keeps its status, code and title."""
    attributes = {
        "status": answer.status_code,
        "code": str(body["code"]),
        "title": str(body.get("title") or "Refused"),
    }
    base = ERROR_KINDS.get(answer.status_code, AppError)
    kind: Any = type("ServerRefusedError", (base,), attributes)
    detail = str(body.get("detail") or attributes["title"])
    error: AppError
    if issubclass(base, TooManyRequestsError):
        error = kind(detail, retry_after_seconds=read_retry_after(answer) or 0)
    else:
        error = kind(detail, problems=read_problems(body.get("problems")))
    return error
