"""The organiser's page of accounts: who there is, invitations, reset links, roles."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request, Response
from fastapi.responses import RedirectResponse
from sqlalchemy.orm import Session

from app.config import Config
from app.services import sign_up
from app.services.account_lists import list_accounts
from app.services.accounts import Identity, Role
from app.services.links import LinkPurpose, link_address
from app.web.security import ConfigDep, OperatorDep, OrganiserDep, SessionDep
from app.web.templating import render_page

router = APIRouter(prefix="/console/accounts", include_in_schema=False)


@router.get("")
def show_accounts(
    request: Request, organiser: OrganiserDep, session: SessionDep, cursor: Annotated[str | None, Query()] = None
) -> Response:
    """List the accounts."""
    return _show(request, session, organiser, cursor=cursor)


@router.post("/invitations")
def invite(request: Request, organiser: OrganiserDep, session: SessionDep, config: ConfigDep) -> Response:
    """Make an invitation to sign up, and show it, this once."""
    code = sign_up.invite_account(session, actor=organiser.name, now=datetime.now(UTC))
    address = _address(request, config, LinkPurpose.SIGN_UP, code)
    return _show(request, session, organiser, link=("Invitation, for one account, seven days", address))


@router.post("/{name}/reset-link")
def issue_reset_link(
    name: str, request: Request, organiser: OrganiserDep, session: SessionDep, config: ConfigDep
) -> Response:
    """Make a link that sets a new password for an account, and show it, this once."""
    now = datetime.now(UTC)
    code = sign_up.issue_reset_link(session, name, by=organiser, actor=organiser.name, now=now)
    address = _address(request, config, LinkPurpose.RESET, code)
    return _show(request, session, organiser, link=(f"New password for {name}, once, 24 hours", address))


@router.post("/{name}/role")
def set_role(name: str, operator: OperatorDep, session: SessionDep, role: Annotated[Role, Form()]) -> Response:
    """Give an account another role."""
    sign_up.set_role(session, name, role, actor=operator.name)
    return RedirectResponse("/console/accounts", status_code=303)


def _address(request: Request, config: Config, purpose: LinkPurpose, code: str) -> str:
    return link_address(config.public_url or str(request.base_url), purpose, code)


def _show(
    request: Request,
    session: Session,
    reader: Identity,
    *,
    cursor: str | None = None,
    link: tuple[str, str] | None = None,
) -> Response:
    page = list_accounts(session, cursor=cursor)
    response = render_page(request, "accounts.html", reader=reader, page=page, link=link, roles=tuple(Role))
    if link is not None:
        response.headers["Cache-Control"] = "no-store"
    return response
