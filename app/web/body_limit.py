"""How large a request's body may be where no file is expected."""

from __future__ import annotations

from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Forms and JSON documents are held in memory while they are read.
MAX_BODY_BYTES = 2**20
# As much again is read and let go, so that a client that sends first and listens later hears why it was refused.
MAX_IGNORED_BYTES = 64 * 2**20
# What reads its body as it comes, up to a limit of its own.
OWN_LIMIT = frozenset(
    {
        "/api/v1/console/snapshot-imports",
        "/api/v1/efficiency-results",
        "/api/v1/probe-runs",
        "/api/v1/submissions",
        "/api/v1/validations",
        "/check",
        "/console/efficiency-results",
        "/console/snapshots/import",
        "/submit",
    }
)


class BodyLimit:
    """Answers 413 where a body passes `MAX_BODY_BYTES`, whether or not the request declares its length."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; reading its body beyond the limit raises what is answered as 413."""
        if scope["type"] != "http" or scope["path"] in OWN_LIMIT:
            await self.app(scope, receive, send)
            return
        n_bytes = 0

        async def receive_within_limit() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes <= MAX_BODY_BYTES:
                return message
            while message.get("more_body") and n_bytes <= MAX_BODY_BYTES + MAX_IGNORED_BYTES:
                message = await receive()
                n_bytes += len(message.get("body", b""))
            raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)

        await self.app(scope, receive_within_limit, send)
