"""Making an account, and getting back into one whose password is gone."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Depends, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.errors import AppError
from app.services import sign_up as accounts
from app.services.links import LinkPurpose, link_address
from app.services.mail import send_mail
from app.services.profile import confirm_email
from app.services.throttle import MAIL, SIGN_UP, reserve_attempt
from app.web.forms import attempt
from app.web.security import ConfigDep, ReaderDep, SessionDep, SessionsDep, require_form_token
from app.web.sign_in import Code, Name, Next, Password, client_address, enter, safe_target
from app.web.templating import render_page

router = APIRouter(include_in_schema=False, dependencies=[Depends(require_form_token)])

RESET_MAIL = """Somebody, perhaps you, asked for a new password for the account {name} on {server}.

This link sets one, once, within 24 hours:

{address}

If it was not you, there is nothing to do: your password stays as it is.
"""


@router.get("/sign-up")
def show_sign_up(request: Request, reader: ReaderDep, config: ConfigDep, next: str = "/") -> Response:
    """Show the form that makes an account; an invitation's code is behind the # of its address."""
    shown: dict[str, Any] = {"config": config, "next": safe_target(next), "name": "", "error": None}
    return render_page(request, "sign_up.html", reader=reader, **shown)


@router.post("/sign-up")
def sign_up(
    request: Request,
    session: SessionDep,
    sessions: SessionsDep,
    config: ConfigDep,
    name: Name = "",
    password: Password = "",
    code: Code = "",
    next: Next = "/",
) -> Response:
    """Make an account with a team of its own, and sign its browser in."""
    now, address = datetime.now(UTC), client_address(request)
    reserve_attempt(sessions, subject=f"sign up {address}", address=address, limits=SIGN_UP, now=now)
    made = attempt(
        session,
        lambda: accounts.sign_up(
            session, name=name.strip(), password=password, mode=config.sign_up, invitation=code, now=now
        ),
    )
    if isinstance(made, AppError):
        shown = {"config": config, "next": safe_target(next), "name": name, "error": made}
        return render_page(request, "sign_up.html", reader=None, status=made.status, **shown)
    return enter(request, session, made.id, target=safe_target(next))


@router.get("/forgot-password")
def show_forgot_password(request: Request, reader: ReaderDep, config: ConfigDep) -> Response:
    """Say how to get a new password: by mail where there is any, else from an organiser."""
    return render_page(request, "forgot_password.html", reader=reader, config=config, is_sent=False)


@router.post("/forgot-password")
def send_reset_link(
    request: Request, sessions: SessionsDep, config: ConfigDep, later: BackgroundTasks, name: Name = ""
) -> Response:
    """Send a link to the account's address, if there is such an account and it has one; the answer is the same."""
    now, name = datetime.now(UTC), name.strip().lower()
    reserve_attempt(sessions, subject=f"mail {name}", address=client_address(request), limits=MAIL, now=now)
    # After the answer, so that nobody can tell by its time whether a mail was sent.
    later.add_task(_mail_reset_link, sessions, config, name)
    response = render_page(request, "forgot_password.html", reader=None, config=config, is_sent=True)
    response.background = later
    return response


@router.get("/reset-password")
def show_reset_password(request: Request, reader: ReaderDep) -> Response:
    """Show the form that takes a reset link's code and a new password."""
    return render_page(request, "reset_password.html", reader=reader, error=None)


@router.post("/reset-password")
def reset_password(request: Request, session: SessionDep, code: Code = "", password: Password = "") -> Response:
    """Set a new password, sign every browser of the account out and this one in."""
    now = datetime.now(UTC)
    found = attempt(session, lambda: accounts.reset_password(session, code, password=password, now=now))
    if isinstance(found, AppError):
        return render_page(request, "reset_password.html", reader=None, status=found.status, error=found)
    return enter(request, session, found, target="/account")


@router.get("/confirm-email")
def show_confirm_email(request: Request, reader: ReaderDep) -> Response:
    """Show the form that takes the code of a mail."""
    return render_page(request, "confirm_email.html", reader=reader, error=None)


@router.post("/confirm-email")
def confirm(request: Request, session: SessionDep, code: Annotated[str, Form()] = "") -> Response:
    """Make the address that the code was sent to the account's."""
    found = attempt(session, lambda: confirm_email(session, code, now=datetime.now(UTC)))
    if isinstance(found, AppError):
        return render_page(request, "confirm_email.html", reader=None, status=found.status, error=found)
    return RedirectResponse("/account", status_code=303)


def _mail_reset_link(sessions: sessionmaker[Session], config: Config, name: str) -> None:
    with sessions.begin() as session:
        try:
            email = accounts.get_account(session, name).email
        except accounts.UnknownAccountError:
            return
        if email is None or not config.has_mail:
            return
        now = datetime.now(UTC)
        code = accounts.issue_reset_link(session, name, by=None, actor="mail", now=now)
    address = link_address(config.public_url or "", LinkPurpose.RESET, code)
    text = RESET_MAIL.format(name=name, server=config.server_name, address=address)
    send_mail(config, to=email, subject=f"A new password for {config.server_name}", text=text)
