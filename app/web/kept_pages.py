"""Answers about boards that are kept for readers who are not signed in, as long as nothing they show has changed."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import NamedTuple

from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.services.shown_changes import ShownState
from app.web.shown_state import StateReader

PATHS = frozenset(
    {"/", "/figures/board", "/compare", "/api/v1/leaderboard", "/api/v1/leaderboard/curves", "/api/v1/compare"}
)
PATH_PREFIX = "/board-rows/"
BODY_HEADERS = (b"content-length", b"content-type", b"content-encoding")
# How long ago something was, and until when a team is anonymous, changes by itself.
MOST_SECONDS = 30.0
MOST_BYTES = 64 * 2**20
MOST_BYTES_EACH = 4 * 2**20
# What an entry takes beside its body.
BYTES_BESIDE = 4096


class Asked(NamedTuple):
    """What an answer depends on besides the database; a page names its server in commands."""

    scheme: str
    host: str
    path: str
    query: bytes
    wants_csv: bool
    takes_gzip: bool


@dataclass(frozen=True)
class Kept:
    """An answer, the state of the database that it shows at least, and when it was made."""

    state: ShownState
    made_at: float
    status: int
    headers: Headers
    body: bytes

    @property
    def n_bytes(self) -> int:
        """Return what the answer takes, about."""
        return len(self.body) + BYTES_BESIDE


class KeptPages:
    """Answers again what it has answered; the state of the database is read for every request.

    So no process shows what another one has changed, and whoever is signed in never gets what is kept.
    """

    def __init__(self, app: ASGIApp, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.app = app
        self.clock = clock
        self.states = StateReader()
        self.kept: OrderedDict[Asked, Kept] = OrderedDict()
        self.n_bytes = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with what is kept, else with what the application says, and keep that."""
        asked = find_asked(scope)
        if asked is None:
            await self.app(scope, receive, send)
            return
        try:
            # Read before the answer is made, which then shows this state or a later one.
            state = await self.states.read(scope["app"].state.sessions)
        except SQLAlchemyError:
            # The application has its own words for that.
            await self.app(scope, receive, send)
            return
        answer = self.find(asked, state)
        if answer is None:
            answer = await self._ask(scope, receive, state)
            if may_be_kept(answer):
                self.keep(asked, answer)
        await _send(answer, Headers(scope=scope), send)

    def find(self, asked: Asked, state: ShownState) -> Kept | None:
        """Return what is kept for a request, or None."""
        found = self.kept.get(asked)
        if found is None or found.state != state or self.clock() - found.made_at > MOST_SECONDS:
            return None
        self.kept.move_to_end(asked)
        return found

    def keep(self, asked: Asked, answer: Kept) -> None:
        """Keep an answer; where there are too many, those go that nobody has asked for the longest."""
        replaced = self.kept.pop(asked, None)
        self.n_bytes += answer.n_bytes - (replaced.n_bytes if replaced else 0)
        self.kept[asked] = answer
        while self.n_bytes > MOST_BYTES:
            _, oldest = self.kept.popitem(last=False)
            self.n_bytes -= oldest.n_bytes

    async def _ask(self, scope: Scope, receive: Receive, state: ShownState) -> Kept:
        """Return what the application answers, with the strong ETag of just these bytes."""
        started: list[Message] = []
        parts: list[bytes] = []

        async def collect(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)
            else:
                parts.append(message.get("body", b""))

        made_at = self.clock()
        await self.app(scope, receive, collect)
        body = b"".join(parts)
        headers = MutableHeaders(raw=list(started[0]["headers"]))
        if started[0]["status"] == HTTPStatus.OK and "no-store" not in headers.get("Cache-Control", ""):
            headers.setdefault("ETag", f'"{hashlib.sha256(body).hexdigest()[:32]}"')
        return Kept(state, made_at, started[0]["status"], headers, body)


def find_asked(scope: Scope) -> Asked | None:
    """Return what a request asks for where its answer may be kept: by somebody unknown, about boards."""
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    path = scope["path"]
    headers = Headers(scope=scope)
    if not (path in PATHS or path.startswith(PATH_PREFIX)) or "Cookie" in headers or "Authorization" in headers:
        return None
    return Asked(
        scope["scheme"],
        headers.get("Host", ""),
        path,
        scope["query_string"],
        "text/csv" in headers.get("Accept", ""),
        "gzip" in headers.get("Accept-Encoding", ""),
    )


def may_be_kept(answer: Kept) -> bool:
    """Whether an answer may be given to others: a whole one, for nobody in particular."""
    return (
        answer.status == HTTPStatus.OK
        and "Set-Cookie" not in answer.headers
        and "no-store" not in answer.headers.get("Cache-Control", "")
        and len(answer.body) <= MOST_BYTES_EACH
    )


async def _send(answer: Kept, asked: Headers, send: Send) -> None:
    etag = answer.headers.get("ETag")
    tags = [tag.strip().removeprefix("W/") for tag in asked.get("If-None-Match", "").split(",")]
    status, headers, body = answer.status, answer.headers, answer.body
    if etag is not None and status == HTTPStatus.OK and (etag in tags or "*" in tags):
        status, body = HTTPStatus.NOT_MODIFIED, b""
        headers = MutableHeaders(raw=[pair for pair in headers.raw if pair[0].lower() not in BODY_HEADERS])
    await send({"type": "http.response.start", "status": int(status), "headers": headers.raw})
    await send({"type": "http.response.body", "body": body})
