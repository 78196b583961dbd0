"""Signing in with a token: the browser then sends it as a cookie that no script can read."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse

from app.services.accounts import find_account_by_token
from app.web.security import SESSION_COOKIE, ReaderDep, SessionDep, require_same_origin
from app.web.templating import render_page

COOKIE_SECONDS = 30 * 24 * 3600

router = APIRouter(include_in_schema=False)


@router.get("/sign-in")
def show_sign_in(request: Request, reader: ReaderDep, next: Annotated[str, Query()] = "/") -> Response:
    """Show the form that takes a token."""
    return render_page(request, "sign_in.html", reader=reader, next=safe_target(next), error=None)


@router.post("/sign-in")
def sign_in(
    request: Request, session: SessionDep, token: Annotated[str, Form()] = "", next: Annotated[str, Form()] = "/"
) -> Response:
    """Keep a valid token as a cookie, out of the reach of scripts and of other sites."""
    require_same_origin(request)
    target = safe_target(next)
    if find_account_by_token(session, token.strip()) is None:
        error = "This token is unknown or has expired. Use the one that `otboard serve` printed."
        return render_page(request, "sign_in.html", reader=None, status=401, next=target, error=error)
    response = RedirectResponse(target, status_code=303)
    response.set_cookie(
        SESSION_COOKIE,
        token.strip(),
        max_age=COOKIE_SECONDS,
        httponly=True,
        samesite="strict",
        secure=request.url.scheme == "https",
    )
    return response


@router.post("/sign-out")
def sign_out(request: Request) -> Response:
    """Forget the cookie."""
    require_same_origin(request)
    response = RedirectResponse("/", status_code=303)
    response.delete_cookie(SESSION_COOKIE, httponly=True, samesite="strict", secure=request.url.scheme == "https")
    return response


def safe_target(address: str) -> str:
    """Return a path of this server to go on to, never another host's address.

    Examples
    --------
    >>> safe_target("/submit?split=test"), safe_target("//evil.example"), safe_target("https://evil.example")
    ('/submit?split=test', '/', '/')
    """
    parts = urlsplit(address)
    is_path = address.startswith("/") and not address.startswith(("//", "/\\")) and address.isprintable()
    return address if is_path and not parts.scheme and not parts.netloc else "/"
