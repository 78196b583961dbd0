"""Teams: who is in one, inviting by a link, joining, leaving."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import RedirectResponse

from app.errors import AppError
from app.services import teams
from app.services.links import LinkPurpose, link_address
from app.web.forms import attempt
from app.web.security import AccountDep, ConfigDep, ReaderDep, SessionDep
from app.web.templating import render_page

router = APIRouter(include_in_schema=False)


@router.post("/teams")
def create_team(
    request: Request, account: AccountDep, session: SessionDep, name: Annotated[str, Form()] = ""
) -> Response:
    """Make a team to share."""
    made = attempt(session, lambda: teams.create_team(session, name.strip(), account=account))
    if isinstance(made, AppError):
        mine = teams.list_teams(session, account)
        return render_page(request, "teams.html", reader=account, status=made.status, teams=mine, name=name, error=made)
    return RedirectResponse(f"/teams/{made.name}", status_code=303)


@router.get("/teams")
def show_teams(request: Request, account: AccountDep, session: SessionDep) -> Response:
    """List the reader's teams."""
    mine = teams.list_teams(session, account)
    return render_page(request, "teams.html", reader=account, teams=mine, name="", error=None)


@router.get("/teams/{name}")
def show_team(name: str, request: Request, account: AccountDep, session: SessionDep) -> Response:
    """Show a team to its members and to organisers."""
    team = teams.get_team(session, name, account=account)
    return render_page(request, "team.html", reader=account, team=team, invitation=None)


@router.post("/teams/{name}/invitations")
def invite(name: str, request: Request, account: AccountDep, session: SessionDep, config: ConfigDep) -> Response:
    """Make a link by which one account joins, and show it, this once."""
    code = teams.invite_to_team(session, name, account=account, now=datetime.now(UTC))
    invitation = link_address(config.public_url or str(request.base_url), LinkPurpose.JOIN_TEAM, code)
    team = teams.get_team(session, name, account=account)
    response = render_page(request, "team.html", reader=account, team=team, invitation=invitation)
    response.headers["Cache-Control"] = "no-store"
    return response


@router.post("/teams/{name}/invitations/{invitation_id}/revoke")
def revoke_invitation(name: str, invitation_id: int, account: AccountDep, session: SessionDep) -> Response:
    """End an invitation that nobody has used yet."""
    teams.revoke_invitation(session, name, invitation_id, account=account, now=datetime.now(UTC))
    return RedirectResponse(f"/teams/{name}", status_code=303)


@router.post("/teams/{name}/members/{member}/{role}")
def change_member(name: str, member: str, role: teams.TeamRole, account: AccountDep, session: SessionDep) -> Response:
    """Make a member an owner or a member again."""
    teams.set_member_role(session, name, member, role, account=account)
    return RedirectResponse(f"/teams/{name}", status_code=303)


@router.post("/teams/{name}/remove/{member}")
def remove_member(name: str, member: str, account: AccountDep, session: SessionDep) -> Response:
    """Take a member out of a team, or leave it."""
    teams.remove_member(session, name, member, account=account)
    return RedirectResponse("/teams" if member == account.name else f"/teams/{name}", status_code=303)


@router.get("/join-team")
def show_join(request: Request, reader: ReaderDep) -> Response:
    """Show the form that takes an invitation's code."""
    return render_page(request, "join_team.html", reader=reader, error=None)


@router.post("/join-team")
def join(request: Request, account: AccountDep, session: SessionDep, code: Annotated[str, Form()] = "") -> Response:
    """Join the team of an invitation."""
    joined = attempt(session, lambda: teams.join_team(session, code, account=account, now=datetime.now(UTC)))
    if isinstance(joined, AppError):
        return render_page(request, "join_team.html", reader=account, status=joined.status, error=joined)
    return RedirectResponse(f"/teams/{joined}", status_code=303)
