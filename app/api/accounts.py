"""The caller's account, tokens and teams."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime

from fastapi import APIRouter, Response

from app.api.account_schemas import (
    InvitationOut,
    JoinBody,
    MemberRoleBody,
    MeOut,
    NewTokenOut,
    TeamBody,
    TeamListOut,
    TeamOut,
    TeamSummaryOut,
    TokenBody,
    TokenListOut,
    TokenOut,
)
from app.api.documentation import errors
from app.services import teams, tokens
from app.services.accounts import Scope
from app.web.security import AccountDep, SessionDep

router = APIRouter()


@router.get("/me", tags=["account"], summary="Who am I", responses=errors(401, 403))
def get_me(account: AccountDep, session: SessionDep) -> MeOut:
    """Return the caller's account, its teams, and what the token may be used for."""
    mine = [TeamSummaryOut.model_validate(team) for team in teams.list_teams(session, account)]
    return MeOut(
        name=account.name,
        role=account.role,
        team=account.team,
        is_control=account.is_control,
        teams=mine,
        scopes=[scope for scope in Scope if scope in account.scopes],
    )


@router.get("/me/tokens", tags=["account"], summary="List my tokens", responses=errors(401, 403))
def list_tokens(account: AccountDep, session: SessionDep) -> TokenListOut:
    """List the caller's tokens, those that have ended too; never the tokens themselves."""
    return TokenListOut(items=[TokenOut.model_validate(token) for token in tokens.list_tokens(session, account)])


@router.post(
    "/me/tokens", tags=["account"], status_code=201, summary="Make a token", responses=errors(400, 401, 403, 413, 422)
)
def create_token(body: TokenBody, account: AccountDep, session: SessionDep, response: Response) -> NewTokenOut:
    """Make a token and tell it, this once. One that a token asks for may do no more than that one, nor end later."""
    made = tokens.create_token(
        session, account, name=body.name, scopes=body.scopes, days=body.days, now=datetime.now(UTC)
    )
    response.headers["Cache-Control"] = "no-store"
    return NewTokenOut(token=made.token, **asdict(made.details))


@router.delete(
    "/me/tokens/{token_id}",
    tags=["account"],
    status_code=204,
    summary="Revoke a token",
    responses=errors(401, 403, 404, 422),
)
def revoke_token(token_id: int, account: AccountDep, session: SessionDep) -> None:
    """End a token for good."""
    tokens.revoke_token(session, account, token_id)


@router.get("/teams", tags=["teams"], summary="List my teams", responses=errors(401, 403))
def list_teams(account: AccountDep, session: SessionDep) -> TeamListOut:
    """List the caller's teams, the personal one first."""
    return TeamListOut(items=[TeamSummaryOut.model_validate(team) for team in teams.list_teams(session, account)])


@router.post(
    "/teams", tags=["teams"], status_code=201, summary="Make a team", responses=errors(400, 401, 403, 409, 413, 422)
)
def create_team(body: TeamBody, account: AccountDep, session: SessionDep) -> TeamOut:
    """Make a team to share, with the caller as its owner."""
    return TeamOut.model_validate(teams.create_team(session, body.name, account=account))


@router.post("/teams/join", tags=["teams"], summary="Join a team", responses=errors(400, 401, 403, 410, 413, 422))
def join_team(body: JoinBody, account: AccountDep, session: SessionDep) -> TeamOut:
    """Join the team of an invitation, which is good once."""
    name = teams.join_team(session, body.code, account=account, now=datetime.now(UTC))
    return TeamOut.model_validate(teams.get_joined_team(session, name, account=account))


@router.get("/teams/{name}", tags=["teams"], summary="Get a team", responses=errors(401, 403, 404))
def get_team(name: str, account: AccountDep, session: SessionDep) -> TeamOut:
    """Return a team and its members, to them and to organisers."""
    return TeamOut.model_validate(teams.get_team(session, name, account=account))


@router.post(
    "/teams/{name}/invitations",
    tags=["teams"],
    status_code=201,
    summary="Invite to a team",
    responses=errors(401, 403, 404, 409),
)
def invite(name: str, account: AccountDep, session: SessionDep, response: Response) -> InvitationOut:
    """Make an invitation for one account. For owners."""
    response.headers["Cache-Control"] = "no-store"
    return InvitationOut(code=teams.invite_to_team(session, name, account=account, now=datetime.now(UTC)))


@router.delete(
    "/teams/{name}/invitations/{invitation_id}",
    tags=["teams"],
    status_code=204,
    summary="Revoke an invitation",
    responses=errors(401, 403, 404, 409),
)
def revoke_invitation(name: str, invitation_id: int, account: AccountDep, session: SessionDep) -> None:
    """End an invitation that nobody has used yet. For owners."""
    teams.revoke_invitation(session, name, invitation_id, account=account, now=datetime.now(UTC))


@router.put(
    "/teams/{name}/members/{member}",
    tags=["teams"],
    summary="Change a member's role",
    responses=errors(400, 401, 403, 404, 409, 413, 422),
)
def change_member(name: str, member: str, body: MemberRoleBody, account: AccountDep, session: SessionDep) -> TeamOut:
    """Make a member an owner, or an owner a member. For owners; the last one stays."""
    return TeamOut.model_validate(teams.set_member_role(session, name, member, body.role, account=account))


@router.delete(
    "/teams/{name}/members/{member}",
    tags=["teams"],
    status_code=204,
    summary="Leave a team, or remove a member",
    responses=errors(401, 403, 404, 409),
)
def remove_member(name: str, member: str, account: AccountDep, session: SessionDep) -> None:
    """Take a member out of a team: oneself, or as an owner another one."""
    teams.remove_member(session, name, member, account=account)
