"""What every request passes: database session, identity, the check of where it comes from, response headers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Annotated, Any, cast
from urllib.parse import urlsplit

from fastapi import Depends, Request, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from sqlalchemy.orm import Session, sessionmaker
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as ASGIScope

from app.config import Config
from app.errors import AppError, ForbiddenError
from app.services.accounts import Identity, Scope, find_account_by_token
from app.services.efficiency_sets import MAX_FILE_BYTES
from app.services.sign_ins import find_account_by_key
from app.services.uploads import ReceivedForm, receive_form
from app.web.cookies import form_token_matches, read_session_key

# The hidden field of every form, and how large a form without a file may be.
FORM_TOKEN_FIELD = "csrf"
MAX_FORM_FIELDS = 100
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
# Plotly adds two style elements of its own: an empty one that it then fills rule by rule, which a policy does not
# govern, and that of the maps inside its bundle. Their hashes let in these two texts and no other; style attributes
# and evaluated text stay out. A test in a real browser fails if a new Plotly needs another hash.
PLOTLY_STYLE_HASHES = (
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='",
    "'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='",
)
CONTENT_SECURITY_POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {' '.join(PLOTLY_STYLE_HASHES)}; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_SECURITY_POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Cross-Origin-Opener-Policy": "same-origin",
}

bearer = HTTPBearer(auto_error=False, bearerFormat="otb_…", description="A token that begins with `otb_`.")


class NotSignedInError(AppError):
    """The request needs an account and names none that exists."""

    status = 401
    code = "not_signed_in"
    title = "Sign in first"


class MissingScopeError(ForbiddenError):
    """The token may be used for other things than this."""

    code = "missing_scope"
    title = "The token's scopes do not allow this"


class CrossSiteError(AppError):
    """A change asked for with a cookie from another site's page."""

    status = 403
    code = "cross_site_request"
    title = "The request comes from another site"


class FormTokenError(AppError):
    """A form that was not made for this browser as it is signed in now."""

    status = 403
    code = "form_expired"
    title = "The form is out of date"


def get_config(request: Request) -> Config:
    """Return the configuration the application was made with."""
    return cast(Config, request.app.state.config)


def get_sessions(request: Request) -> sessionmaker[Session]:
    """Return the factory of database sessions."""
    return cast("sessionmaker[Session]", request.app.state.sessions)


def get_session(request: Request) -> Iterator[Session]:
    """Give a request its session: committed once the endpoint has returned, before the answer is sent."""
    with get_sessions(request).begin() as session:
        yield session


def identify(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)] = None
) -> Identity | None:
    """Return who asks: by the bearer token, else by the cookie of a signed-in browser, else nobody.

    A bearer token that is nobody's is an error, a cookie that is stale is not: the reader is signed out. A browser
    sends the cookie by itself, so with it only requests from our own pages may change anything.
    """
    if credentials is None and request.headers.get("Authorization"):
        raise NotSignedInError("Use `Authorization: Bearer otb_…`.")
    key = None if credentials else read_session_key(request)
    if credentials is None and key is None:
        return None
    if key is not None and request.method not in SAFE_METHODS:
        require_same_origin(request)
    with get_sessions(request).begin() as session:
        if key is not None:
            return find_account_by_key(session, key, now=datetime.now(UTC))
        account = find_account_by_token(session, credentials.credentials) if credentials else None
    if account is None:
        raise NotSignedInError("This token is unknown or has expired.")
    return account


def current_account(request: Request, account: Annotated[Identity | None, Depends(identify)]) -> Identity | None:
    """Return who asks, or None where nobody does; a token must be for reading, or to submit where anything changes."""
    if account is not None:
        require_scope(account, Scope.READ if request.method in SAFE_METHODS else Scope.SUBMIT)
    return account


def require_account(account: Annotated[Identity | None, Depends(current_account)]) -> Identity:
    """Return who asks, or refuse."""
    return _require_somebody(account)


def require_organiser(account: Annotated[Identity | None, Depends(identify)]) -> Identity:
    """Return who asks if that is an organiser or operator, with a token to organise, or refuse."""
    organiser = _require_somebody(account)
    if not organiser.is_organiser:
        raise ForbiddenError("Only organisers and operators may do this.")
    require_scope(organiser, Scope.ORGANISE)
    return organiser


def require_operator(account: Annotated[Identity | None, Depends(identify)]) -> Identity:
    """Return who asks if that is an operator, with a token to operate, or refuse."""
    operator = _require_somebody(account)
    if not operator.is_operator:
        raise ForbiddenError("Only operators may do this.")
    require_scope(operator, Scope.OPERATE)
    return operator


def require_scope(account: Identity, scope: Scope) -> None:
    """Refuse a token that is not for this."""
    if scope not in account.scopes:
        raise MissingScopeError(f"This needs a token with the scope `{scope}`.")


def require_browser(account: Annotated[Identity | None, Depends(identify)]) -> Identity:
    """Return who is signed in with this browser; a token does not do for what belongs to the account's owner alone."""
    owner = _require_somebody(account)
    if owner.sign_in_id is None:
        raise ForbiddenError("This takes a signed-in browser; a token does not do.")
    return owner


def _require_somebody(account: Identity | None) -> Identity:
    if account is None:
        raise NotSignedInError("This needs an account: send `Authorization: Bearer otb_…`, or sign in on the page.")
    return account


def require_same_origin(request: Request) -> None:
    """Refuse a request that a browser sent from another site's page.

    Browsers of today say so in `Sec-Fetch-Site`; for others the `Origin` must be the host that was asked.
    """
    site = request.headers.get("Sec-Fetch-Site")
    origin = request.headers.get("Origin")
    if site is not None:
        allowed = site == "same-origin"
    elif origin is not None:
        allowed = urlsplit(origin).netloc == request.headers.get("Host", "")
    else:
        # Without either header it is no browser's form; scripts should use the token.
        allowed = False
    if not allowed:
        raise CrossSiteError("A change with a cookie must come from this server's own pages; scripts use a token.")


async def check_form(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(bearer)] = None
) -> None:
    """Refuse the form of a signed-in browser that does not carry the token of its page; every page router has this."""
    if request.method not in SAFE_METHODS and credentials is None and read_session_key(request) is not None:
        await require_form_token(request)


async def require_form_token(request: Request) -> None:
    """Refuse a form that no page of ours made for this browser, signed in or not.

    The token of a form with a file is looked at where it is read, in `_receive`.
    """
    if request.method in SAFE_METHODS:
        return
    require_same_origin(request)
    if _takes_upload(request):
        request.state.form_token_due = True
        return
    form = await request.form(max_files=0, max_fields=MAX_FORM_FIELDS)
    _require_matching(request, form.get(FORM_TOKEN_FIELD))


def _takes_upload(request: Request) -> bool:
    waiting = [request.scope["route"].dependant]
    while waiting:
        dependant = waiting.pop()
        if dependant.call in (receive_upload, receive_organisers_upload, receive_snapshot):
            return True
        waiting += dependant.dependencies
    return False


def _check_received(request: Request, form: ReceivedForm) -> None:
    """Take the token out of a form with a file, and look at it where the form came from a page."""
    token = form.fields.pop(FORM_TOKEN_FIELD, None)
    if getattr(request.state, "form_token_due", False):
        _require_matching(request, token)


def _require_matching(request: Request, token: Any) -> None:
    if not isinstance(token, str) or not form_token_matches(request, token):
        raise FormTokenError("Load the page again and send the form from there; you may have signed in or out since.")


ConfigDep = Annotated[Config, Depends(get_config)]
SessionDep = Annotated[Session, Depends(get_session, scope="function")]
ReaderDep = Annotated[Identity | None, Depends(current_account)]
AccountDep = Annotated[Identity, Depends(require_account)]
OrganiserDep = Annotated[Identity, Depends(require_organiser)]
OperatorDep = Annotated[Identity, Depends(require_operator)]
BrowserDep = Annotated[Identity, Depends(require_browser)]
SessionsDep = Annotated["sessionmaker[Session]", Depends(get_sessions)]


async def receive_upload(request: Request, config: ConfigDep, account: AccountDep) -> AsyncIterator[ReceivedForm]:
    """Read the request's multipart form, its file to disk; what was not kept is removed when the endpoint is done.

    The account is asked for first, so that a stranger's file is not even read.
    """
    async with _receive(request, config, limit_bytes=config.upload_limit_bytes) as form:
        yield form


async def receive_organisers_upload(
    request: Request, config: ConfigDep, organiser: OrganiserDep
) -> AsyncIterator[ReceivedForm]:
    """Read an organiser's form with a small table, which is refused past a few megabytes."""
    async with _receive(request, config, limit_bytes=min(MAX_FILE_BYTES, config.upload_limit_bytes)) as form:
        yield form


async def receive_snapshot(request: Request, config: ConfigDep, organiser: OrganiserDep) -> AsyncIterator[ReceivedForm]:
    """Read an organiser's form with the zip of a snapshot, which may be larger than an action file."""
    async with _receive(request, config, limit_bytes=config.snapshot_limit_bytes) as form:
        yield form


@asynccontextmanager
async def _receive(request: Request, config: Config, *, limit_bytes: int) -> AsyncIterator[ReceivedForm]:
    form = await receive_form(
        request.stream(),
        content_type=request.headers.get("Content-Type", ""),
        data_dir=config.data_dir,
        limit_bytes=limit_bytes,
    )
    try:
        _check_received(request, form)
        yield form
    finally:
        await asyncio.to_thread(form.close)


FormDep = Annotated[ReceivedForm, Depends(receive_upload, scope="function")]
OrganiserFormDep = Annotated[ReceivedForm, Depends(receive_organisers_upload, scope="function")]
SnapshotFormDep = Annotated[ReceivedForm, Depends(receive_snapshot, scope="function")]


class SecurityHeaders:
    """Adds the headers of `SECURITY_HEADERS` to every response that does not set them itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        """Pass the request on and complete the headers of its response."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self.app(scope, receive, send_with_headers)
