"""The account page: password, mail, browsers, tokens, the account's end. All of it takes a signed-in browser."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Form, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from app.config import Config
from app.errors import AppError
from app.services import profile, tokens
from app.services.accounts import Identity, Scope
from app.services.links import LinkPurpose, link_address
from app.services.mail import send_mail
from app.services.oidc import unlink_identities
from app.services.sign_ins import WrongPasswordError, end_sign_ins, list_sign_ins
from app.services.teams import list_teams
from app.services.throttle import MAIL, SIGN_IN, forgive_attempts, reserve_attempt
from app.web.cookies import clear_session_cookie
from app.web.forms import attempt
from app.web.security import BrowserDep, ConfigDep, SessionDep, SessionsDep
from app.web.sign_in import client_address
from app.web.templating import render_page

router = APIRouter(prefix="/account", include_in_schema=False)

EMAIL_MAIL = """The account {name} on {server} asks to have this address.

This link says yes, once, within 24 hours:

{address}

If it was not you, there is nothing to do.
"""


@router.get("")
def show_account(request: Request, account: BrowserDep, session: SessionDep, config: ConfigDep) -> Response:
    """Show the account to its owner."""
    return _show(request, session, account, config)


@router.post("/password")
def change_password(
    request: Request,
    account: BrowserDep,
    session: SessionDep,
    sessions: SessionsDep,
    config: ConfigDep,
    current: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
) -> Response:
    """Set another password, and sign all other browsers out."""
    now, subject, address = datetime.now(UTC), f"password {account.name}", client_address(request)
    reserve_attempt(sessions, subject=subject, address=address, limits=SIGN_IN, now=now)
    done = attempt(session, lambda: profile.change_password(session, account, current=current, new=password, now=now))
    if isinstance(done, AppError):
        return _show(request, session, account, config, error=done)
    forgive_attempts(session, subject=subject, address=address, now=now)
    return _show(request, session, account, config, done="The password is changed. All other browsers are signed out.")


@router.post("/email")
def change_email(
    request: Request,
    account: BrowserDep,
    session: SessionDep,
    sessions: SessionsDep,
    config: ConfigDep,
    later: BackgroundTasks,
    email: Annotated[str, Form()] = "",
) -> Response:
    """Send a link to an address, or forget the one there is."""
    if not email.strip() or not config.has_mail:
        profile.remove_email(session, account)
        return RedirectResponse("/account", status_code=303)
    now = datetime.now(UTC)
    reserve_attempt(sessions, subject=f"mail {account.name}", address=client_address(request), limits=MAIL, now=now)
    code = attempt(session, lambda: profile.propose_email(session, account, email, now=now))
    if isinstance(code, AppError):
        return _show(request, session, account, config, error=code)
    address = link_address(config.public_url or "", LinkPurpose.EMAIL, code)
    text = EMAIL_MAIL.format(name=account.name, server=config.server_name, address=address)
    later.add_task(send_mail, config, to=email.strip(), subject=f"Your address for {config.server_name}", text=text)
    response = _show(request, session, account, config, done="A mail is on its way; its link confirms the address.")
    response.background = later
    return response


@router.post("/sign-out-others")
def sign_out_others(account: BrowserDep, session: SessionDep) -> Response:
    """Sign every browser out but this one."""
    end_sign_ins(session, account.id, but=account.sign_in_id)
    return RedirectResponse("/account", status_code=303)


@router.post("/sign-out-everywhere")
def sign_out_everywhere(request: Request, account: BrowserDep, session: SessionDep) -> Response:
    """Sign every browser out, this one too."""
    end_sign_ins(session, account.id)
    response = RedirectResponse("/", status_code=303)
    clear_session_cookie(request, response)
    return response


@router.post("/unlink-provider")
def unlink_provider(request: Request, account: BrowserDep, session: SessionDep, config: ConfigDep) -> Response:
    """Take the provider's identities off the account, which keeps its password."""
    done = attempt(session, lambda: unlink_identities(session, account))
    if isinstance(done, AppError):
        return _show(request, session, account, config, error=done)
    return _show(request, session, account, config, done="The account is no longer linked; its password remains.")


@router.post("/tokens")
def create_token(
    request: Request,
    account: BrowserDep,
    session: SessionDep,
    config: ConfigDep,
    name: Annotated[str, Form()] = "",
    scope: Annotated[list[Scope], Form()] = [],  # noqa: B006  (the framework copies it)
    days: Annotated[str, Form()] = "",
) -> Response:
    """Make a token and show it, this once."""
    # Left blank it never ends; what is no number is refused as a number that is none.
    is_number = days.isascii() and days.isdecimal() and len(days) < 6
    n_days = None if not days else int(days) if is_number else 0
    made = attempt(
        session,
        lambda: tokens.create_token(session, account, name=name, scopes=scope, days=n_days, now=datetime.now(UTC)),
    )
    if isinstance(made, AppError):
        return _show(request, session, account, config, error=made)
    response = _show(request, session, account, config, token=made)
    response.headers["Cache-Control"] = "no-store"
    return response


@router.post("/tokens/{token_id}/revoke")
def revoke_token(token_id: int, account: BrowserDep, session: SessionDep) -> Response:
    """End a token for good."""
    tokens.revoke_token(session, account, token_id)
    return RedirectResponse("/account#tokens", status_code=303)


@router.post("/delete")
def delete_account(
    request: Request,
    account: BrowserDep,
    session: SessionDep,
    sessions: SessionsDep,
    config: ConfigDep,
    name: Annotated[str, Form()] = "",
    password: Annotated[str, Form()] = "",
) -> Response:
    """End the account, once its owner has written its name and password."""
    now, address = datetime.now(UTC), client_address(request)
    reserve_attempt(sessions, subject=f"password {account.name}", address=address, limits=SIGN_IN, now=now)
    if name.strip() != account.name:
        return _show(request, session, account, config, error=WrongPasswordError("Write the account’s name."))
    gone = attempt(session, lambda: profile.delete_account(session, account, password=password, now=now))
    if isinstance(gone, AppError):
        return _show(request, session, account, config, error=gone)
    response = RedirectResponse("/", status_code=303)
    clear_session_cookie(request, response)
    return response


def _show(
    request: Request,
    session: Session,
    account: Identity,
    config: Config,
    *,
    error: AppError | None = None,
    done: str | None = None,
    token: tokens.NewToken | None = None,
) -> Response:
    now = datetime.now(UTC)
    shown: dict[str, Any] = {
        "config": config,
        "profile": profile.get_profile(session, account),
        "sign_ins": list_sign_ins(session, account, now=now),
        "tokens": tokens.list_tokens(session, account),
        "scopes": tokens.allowed_scopes(account),
        "teams": list_teams(session, account),
        "now": now,
    }
    status = error.status if error else 200
    return render_page(
        request, "account.html", reader=account, status=status, error=error, done=done, new_token=token, **shown
    )
