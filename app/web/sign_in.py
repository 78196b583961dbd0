"""Signing in and out: with name and password, or with the link that `otboard serve` printed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from app.errors import AppError
from app.services.sign_ins import WrongPasswordError, begin_sign_in, check_password, end_sign_in, use_local_link
from app.web.cookies import clear_session_cookie, read_session_key, set_session_cookie
from app.web.forms import attempt
from app.web.security import ConfigDep, ReaderDep, SessionDep, SessionsDep, require_form_token
from app.web.templating import render_page

# Whoever signs in is nobody yet: here the form's token is asked for without a sign-in too.
router = APIRouter(include_in_schema=False, dependencies=[Depends(require_form_token)])

Next = Annotated[str, Form()]
Code = Annotated[str, Form()]
Name = Annotated[str, Form()]
Password = Annotated[str, Form()]


@router.get("/sign-in")
def show_sign_in(
    request: Request, reader: ReaderDep, config: ConfigDep, next: Annotated[str, Query()] = "/"
) -> Response:
    """Show the form that takes name and password."""
    return render_page(
        request, "sign_in.html", reader=reader, config=config, next=safe_target(next), name="", error=None
    )


@router.post("/sign-in")
def sign_in(
    request: Request,
    sessions: SessionsDep,
    session: SessionDep,
    config: ConfigDep,
    name: Name = "",
    password: Password = "",
    next: Next = "/",
) -> Response:
    """Sign a browser in whose name and password belong together."""
    target, now = safe_target(next), datetime.now(UTC)
    try:
        account_id = check_password(sessions, name=name, password=password, address=client_address(request), now=now)
    except WrongPasswordError as error:
        shown = {"config": config, "next": target, "name": name, "error": error}
        return render_page(request, "sign_in.html", reader=None, status=error.status, **shown)
    return enter(request, session, account_id, target=target)


@router.post("/sign-out")
def sign_out(request: Request, session: SessionDep) -> Response:
    """Sign the browser out here, and have it forget its cookie."""
    key = read_session_key(request)
    if key is not None:
        end_sign_in(session, key)
    response = RedirectResponse("/", status_code=303)
    clear_session_cookie(request, response)
    return response


@router.get("/sign-in/link")
def show_sign_in_link(request: Request, reader: ReaderDep, next: Annotated[str, Query()] = "/") -> Response:
    """Show the form that takes the code of a printed link; the script takes it out of the address."""
    return render_page(request, "sign_in_link.html", reader=reader, next=safe_target(next), error=None)


@router.post("/sign-in/link")
def sign_in_by_link(request: Request, session: SessionDep, code: Code = "", next: Next = "/") -> Response:
    """Sign the owner of this machine in, once for each link."""
    found = attempt(session, lambda: use_local_link(session, code, now=datetime.now(UTC)))
    if isinstance(found, AppError):
        shown = {"next": safe_target(next), "error": found}
        return render_page(request, "sign_in_link.html", reader=None, status=found.status, **shown)
    return enter(request, session, found, target=safe_target(next))


def enter(request: Request, session: Session, account_id: int, *, target: str) -> Response:
    """Begin a sign-in with a key of its own, end the one that the browser had, and go on."""
    before = read_session_key(request)
    if before is not None:
        end_sign_in(session, before)
    browser = request.headers.get("User-Agent", "")
    key = begin_sign_in(session, account_id, browser=browser, now=datetime.now(UTC))
    response = RedirectResponse(target, status_code=303)
    set_session_cookie(request, response, key)
    return response


def client_address(request: Request) -> str:
    """Return where a request comes from; behind a proxy on this machine, what the proxy says."""
    return request.client.host if request.client else ""


def safe_target(address: str) -> str:
    """Return a path of this server to go on to, never another host's address.

    Examples
    --------
    >>> safe_target("/submit?split=test"), safe_target("//evil.example"), safe_target("https://evil.example")
    ('/submit?split=test', '/', '/')
    """
    # Browsers read a backslash as a slash.
    is_path = address.startswith("/") and not address.startswith("//") and "\\" not in address
    if not is_path or not address.isprintable():
        return "/"
    parts = urlsplit(address)
    return address if not parts.scheme and not parts.netloc else "/"
