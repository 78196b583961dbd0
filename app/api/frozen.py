"""Answers that never change again: a strong ETag, and 304 to whoever has them."""

from __future__ import annotations

import hashlib
from importlib.metadata import version

from fastapi import Request, Response
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

PROGRAM_VERSION = version("otboard")
COMPRESSED = "-gzip"


class CompressedTags:
    """Gives a compressed answer an ETag of its own: a strong one promises the same bytes."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on and mark the ETag of an answer that was compressed on its way."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                etag = headers.get("ETag", "")
                if headers.get("Content-Encoding") == "gzip" and etag.startswith('"'):
                    headers["ETag"] = f'{etag[:-1]}{COMPRESSED}"'
            await send(message)

        await self.app(scope, receive, send_marked)


def make_etag(*parts: str) -> str:
    """Return a strong ETag of what identifies the bytes of an answer; a new program version may write them anew."""
    return f'"{hashlib.sha256("/".join((*parts, PROGRAM_VERSION)).encode()).hexdigest()[:32]}"'


def find_unchanged(request: Request, etag: str) -> Response | None:
    """Return 304 where the client already has the answer with this ETag, compressed or not, else None."""
    for sent in request.headers.get("If-None-Match", "").split(","):
        tag = sent.strip().removeprefix("W/")
        if tag == "*" or tag.replace(f'{COMPRESSED}"', '"') == etag:
            return Response(status_code=304, headers=_headers(etag if tag == "*" else tag))
    return None


def frozen(content: str | bytes, *, etag: str, media_type: str = "application/json") -> Response:
    """Answer with content that never changes."""
    return Response(content, media_type=media_type, headers=_headers(etag))


def _headers(etag: str) -> dict[str, str]:
    # Kept and asked about each time: what is visible to whom may change even where the bytes do not.
    return {"ETag": etag, "Cache-Control": "private, no-cache"}
