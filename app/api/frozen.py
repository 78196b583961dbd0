"""Answers that never change again: a strong ETag, and 304 to whoever has them."""

from __future__ import annotations

import hashlib
from importlib.metadata import version

from fastapi import Request, Response

PROGRAM_VERSION = version("otboard")


def make_etag(*parts: str) -> str:
    """Return a strong ETag of what identifies the bytes of an answer; a new program version may write them anew."""
    return f'"{hashlib.sha256("/".join((*parts, PROGRAM_VERSION)).encode()).hexdigest()[:32]}"'


def is_current(request: Request, etag: str) -> bool:
    """Whether the client already has the answer with this ETag."""
    header = request.headers.get("If-None-Match", "")
    return header.strip() == "*" or etag in {tag.strip().removeprefix("W/") for tag in header.split(",")}


def not_modified(etag: str) -> Response:
    """Answer that the client's copy is good."""
    return Response(status_code=304, headers=_headers(etag))


def frozen(content: str | bytes, *, etag: str, media_type: str = "application/json") -> Response:
    """Answer with content that never changes."""
    return Response(content, media_type=media_type, headers=_headers(etag))


def _headers(etag: str) -> dict[str, str]:
    # Kept and asked about each time: what is visible to whom may change even where the bytes do not.
    return {"ETag": etag, "Cache-Control": "private, no-cache"}
