"""The cookies: who is signed in, what a form was made for, a sign-in that is under way at a provider."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Any, cast

from fastapi import Request, Response
from itsdangerous import BadSignature, URLSafeTimedSerializer

from app.config import Config
from app.files.atomic import write_once
from app.services.sign_ins import SIGN_IN_LIFETIME

SESSION_COOKIE = "otboard_session"
FORM_COOKIE = "otboard_form"
FLOW_COOKIE = "otboard_flow"
KEY_FILE = "secret-key"
# How long a sign-in may take at a provider.
FLOW_SECONDS = 600


def load_secret_key(config: Config) -> str:
    """Return the key that cookies are signed with: the configured one, else the data folder's, made if missing."""
    if config.secret_key is not None:
        return config.secret_key
    path: Path = config.data_dir / KEY_FILE
    if not path.exists():
        write_once(path, f"{secrets.token_urlsafe(48)}\n".encode(), mode=0o600)
    return path.read_text().strip()


def read_session_key(request: Request) -> str | None:
    """Return the key in the browser's cookie if this server signed it and it has not become too old."""
    key = _read(request, SESSION_COOKIE, max_age=int(SIGN_IN_LIFETIME.total_seconds()))
    return key if isinstance(key, str) else None


def set_session_cookie(request: Request, response: Response, key: str) -> None:
    """Sign the browser in; what it signed in with before is of no use to it any more."""
    max_age = int(SIGN_IN_LIFETIME.total_seconds())
    _set(request, response, SESSION_COOKIE, _serializer(request, SESSION_COOKIE).dumps(key), max_age=max_age)


def clear_session_cookie(request: Request, response: Response) -> None:
    """Have the browser forget that it was signed in."""
    response.delete_cookie(cookie_name(request, SESSION_COOKIE), httponly=True, samesite="lax", secure=_secure(request))


def read_flow(request: Request) -> Any:
    """Return what is kept of a sign-in at a provider, or None."""
    return _read(request, FLOW_COOKIE, max_age=FLOW_SECONDS)


def set_flow_cookie(request: Request, response: Response, flow: Any) -> None:
    """Keep what a sign-in at a provider is recognised by."""
    _set(request, response, FLOW_COOKIE, _serializer(request, FLOW_COOKIE).dumps(flow), max_age=FLOW_SECONDS)


def clear_flow_cookie(request: Request, response: Response) -> None:
    """Forget a sign-in at a provider, so that its answer is good once."""
    response.delete_cookie(cookie_name(request, FLOW_COOKIE), httponly=True, samesite="lax", secure=_secure(request))


def form_token(request: Request) -> str:
    """Return what the forms on this browser's page carry; a browser without any cookie gets one to be known by."""
    holder = _find_holder(request)
    if holder is None:
        holder = getattr(request.state, "new_form_cookie", None) or secrets.token_urlsafe(32)
        request.state.new_form_cookie = holder
    return _sign_form(request, holder)


def form_token_matches(request: Request, token: str) -> bool:
    """Tell whether a form was made for this browser, as it is signed in now."""
    holder = _find_holder(request)
    return holder is not None and hmac.compare_digest(_sign_form(request, holder).encode(), token.encode())


def set_form_cookie(request: Request, response: Response) -> None:
    """Give a browser the cookie that a form on its page was made for, where it is a new one."""
    holder = getattr(request.state, "new_form_cookie", None)
    if holder is not None:
        _set(request, response, FORM_COOKIE, holder, max_age=None)


def cookie_name(request: Request, name: str) -> str:
    """Return a cookie's name here: over https one that no other host of the domain can set."""
    return f"__Host-{name}" if _secure(request) else name


def _find_holder(request: Request) -> str | None:
    if read_session_key(request) is not None:
        return request.cookies[cookie_name(request, SESSION_COOKIE)]
    return request.cookies.get(cookie_name(request, FORM_COOKIE)) or None


def _sign_form(request: Request, holder: str) -> str:
    return hmac.new(_secret(request), b"form:" + os.fsencode(holder), hashlib.sha256).hexdigest()


def _read(request: Request, name: str, *, max_age: int) -> Any:
    cookie = request.cookies.get(cookie_name(request, name))
    if not cookie:
        return None
    try:
        return _serializer(request, name).loads(cookie, max_age=max_age)
    except BadSignature:
        return None


def _set(request: Request, response: Response, name: str, value: str, *, max_age: int | None) -> None:
    # Lax, not strict: a link from another site, or the way back from a provider, finds its reader signed in. What
    # changes anything is a form with a token.
    response.set_cookie(
        cookie_name(request, name), value, max_age=max_age, httponly=True, samesite="lax", secure=_secure(request)
    )


def _serializer(request: Request, name: str) -> URLSafeTimedSerializer:
    return URLSafeTimedSerializer(_secret(request), salt=name)


def _secret(request: Request) -> bytes:
    return cast(str, request.app.state.secret_key).encode()


def _secure(request: Request) -> bool:
    return request.url.scheme == "https"
