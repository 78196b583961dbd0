"""What a test needs to act as a signed-in browser: the cookie, and the token that each form carries."""

from __future__ import annotations

import hashlib
import hmac
import re
from datetime import UTC, datetime
from typing import Any

import httpx
from itsdangerous import URLSafeTimedSerializer
from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.services.sign_ins import begin_sign_in, issue_local_link
from app.web.cookies import SESSION_COOKIE, load_secret_key

SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin", "Accept": "text/html"}
PASSWORD = "a long walk in the woods"


def session_cookie(sessions: sessionmaker[Session], config: Config, name: str = "local") -> dict[str, str]:
    """Return the cookie of a browser that is signed in as this account."""
    with sessions.begin() as session:
        account_id = session.scalars(select(models.Account.id).where(models.Account.name == name)).one()
        key = begin_sign_in(session, account_id, browser="a test", now=datetime.now(UTC))
    signed = URLSafeTimedSerializer(load_secret_key(config).encode(), salt=SESSION_COOKIE).dumps(key)
    assert isinstance(signed, str)
    return {SESSION_COOKIE: signed}


def cookie_header(cookies: dict[str, str]) -> dict[str, str]:
    """Return cookies as the header of one request."""
    return {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items())}


def form_token(config: Config, cookie: dict[str, str]) -> str:
    """Return the token of a signed-in browser's forms, without opening a page."""
    key = load_secret_key(config).encode()
    return hmac.new(key, b"form:" + cookie[SESSION_COOKIE].encode(), hashlib.sha256).hexdigest()


def sign_in_link(sessions: sessionmaker[Session], next: str = "/") -> str:
    """Return the path of a link that signs the local account in, once."""
    with sessions.begin() as session:
        code = issue_local_link(session, now=datetime.now(UTC))
    return f"/sign-in/link?next={next}#{code}"


def read_form_token(page: str) -> str:
    """Return the token that the forms of a page carry."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found is not None
    return found[1]


def send_form(client: httpx.Client, path: str, *, page: str | None = None, **fields: Any) -> httpx.Response:
    """Open a page as a browser does, and send one of its forms; `client` keeps the cookies."""
    shown = client.get(page or path, headers=SAME_ORIGIN)
    data = {"csrf": read_form_token(shown.text), **fields}
    return client.post(path, data=data, headers=SAME_ORIGIN, follow_redirects=False)
