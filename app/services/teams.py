"""Teams: made, joined by a link, left, and handed on. A personal team has its one owner and no other."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ForbiddenError, NotFoundError, StateError
from app.services.account_names import NameTakenError, require_name
from app.services.accounts import Identity, find_identity
from app.services.audit import record_audit
from app.services.links import LinkPurpose, issue_link, list_open_links, revoke_link, use_link
from app.services.profile import LastOwnerError


class TeamRole(StrEnum):
    """What a member may do in a team: an owner changes who is in it."""

    OWNER = "owner"
    MEMBER = "member"


class UnknownTeamError(NotFoundError):
    """No team has this name, or it is not this reader's to see."""

    code = "unknown_team"
    title = "No such team"


class UnknownMemberError(NotFoundError):
    """The team has no member of this name."""

    code = "unknown_member"
    title = "No such member"


class UnknownInvitationError(NotFoundError):
    """The team has no open invitation of this number."""

    code = "unknown_invitation"
    title = "No such invitation"


class PersonalTeamError(StateError):
    """A personal team stays as it is."""

    code = "personal_team"
    title = "This is somebody's own team"


@dataclass(frozen=True)
class TeamMemberDetails:
    """A member of a team."""

    name: str
    role: str
    since: datetime


@dataclass(frozen=True)
class InvitationDetails:
    """An invitation that nobody has used yet, without its code."""

    id: int
    created_at: datetime
    expires_at: datetime


@dataclass(frozen=True)
class TeamDetails:
    """A team as its members see it.

    `role` is the reader's own, None for an organiser who is no member; `invitations` are the open ones, for owners.
    """

    name: str
    kind: str
    role: str | None
    created_at: datetime
    members: tuple[TeamMemberDetails, ...]
    invitations: tuple[InvitationDetails, ...]

    @property
    def is_owner(self) -> bool:
        """Whether the reader may change who is in it."""
        return self.role == "owner" and self.kind == "shared"


@dataclass(frozen=True)
class TeamSummary:
    """A team that an account is in."""

    name: str
    kind: str
    role: str


def list_teams(session: Session, account: Identity) -> tuple[TeamSummary, ...]:
    """Return the teams of an account, its own first."""
    member, team = models.TeamMember, models.Team
    query = select(team.name, team.kind, member.role).join(member, member.team_id == team.id)
    query = query.where(member.account_id == account.id).order_by(team.id != account.team_id, team.name)
    return tuple(TeamSummary(*row) for row in session.execute(query))


def create_team(session: Session, name: str, *, account: Identity) -> TeamDetails:
    """Make a shared team with the account as its owner."""
    require_name(name)
    taken = select(models.Account.id).where(models.Account.name == name)
    added = insert(models.Team).values(name=name, kind="shared").on_conflict_do_nothing().returning(models.Team.id)
    team_id = None if session.scalar(taken) is not None else session.scalar(added)
    if team_id is None:
        raise NameTakenError(f"The name {name} is taken.")
    session.add(models.TeamMember(team_id=team_id, account_id=account.id, role="owner"))
    record_audit(session, actor=account.name, action="create_team", subject=f"team {team_id}")
    return get_joined_team(session, name, account=account)


def get_team(session: Session, name: str, *, account: Identity) -> TeamDetails:
    """Return a team to its members and to organisers."""
    team = _find_team(session, name, account=account)
    member, person = models.TeamMember, models.Account
    query = (
        select(person.id, person.name, member.role, member.created_at)
        .join(member, member.account_id == person.id)
        .where(member.team_id == team.id)
        .order_by(member.role.desc(), person.name)
    )
    rows = session.execute(query).all()
    role = next((row.role for row in rows if row.id == account.id), None)
    members = tuple(TeamMemberDetails(row.name, row.role, row.created_at) for row in rows)
    invitations = _list_invitations(session, team) if role == TeamRole.OWNER else ()
    return TeamDetails(team.name, team.kind, role, team.created_at, members, invitations)


def invite_to_team(session: Session, name: str, *, account: Identity, now: datetime) -> str:
    """Return the code of a link by which one account joins the team."""
    team = _lock_owned(session, name, account=account)
    record_audit(session, actor=account.name, action="invite_to_team", subject=f"team {team.id}")
    return issue_link(session, LinkPurpose.JOIN_TEAM, team_id=team.id, now=now)


def revoke_invitation(session: Session, name: str, invitation_id: int, *, account: Identity, now: datetime) -> None:
    """End an invitation that nobody has used yet."""
    team = _lock_owned(session, name, account=account)
    if not revoke_link(session, LinkPurpose.JOIN_TEAM, invitation_id, team_id=team.id, now=now):
        raise UnknownInvitationError(f"Team {name} has no open invitation {invitation_id}.")
    record_audit(session, actor=account.name, action="revoke_invitation", subject=f"team {team.id}")


def join_team(session: Session, code: str, *, account: Identity, now: datetime) -> str:
    """Use an invitation up and return the name of the team, of which the account then is a member."""
    link = use_link(session, LinkPurpose.JOIN_TEAM, code, now=now)
    added = insert(models.TeamMember).values(team_id=link.team_id, account_id=account.id, role="member")
    session.execute(added.on_conflict_do_nothing())
    record_audit(session, actor=account.name, action="join_team", subject=f"team {link.team_id}")
    return session.scalars(select(models.Team.name).where(models.Team.id == link.team_id)).one()


def get_joined_team(session: Session, name: str, *, account: Identity) -> TeamDetails:
    """Return a team that the account has joined within this request, so that it does not know of it yet."""
    known = find_identity(session, account.id)
    assert known is not None
    return get_team(session, name, account=known)


def set_member_role(session: Session, name: str, member_name: str, role: TeamRole, *, account: Identity) -> TeamDetails:
    """Make a member an owner or an owner a member; a team keeps at least one owner."""
    team = _lock_owned(session, name, account=account)
    member = _get_member(session, team, member_name)
    if role is not TeamRole.OWNER:
        _require_another_owner(session, team, member)
    member.role = role.value
    session.flush()
    details = {"account": member.account_id, "role": role.value}
    record_audit(session, actor=account.name, action="set_member_role", subject=f"team {team.id}", details=details)
    return get_team(session, name, account=account)


def remove_member(session: Session, name: str, member_name: str, *, account: Identity) -> None:
    """Take a member out of a team: oneself, or as an owner another one. Its open invitations stay open."""
    if member_name == account.name:
        team = _lock_team(session, name, account=account)
    else:
        team = _lock_owned(session, name, account=account)
    member = _get_member(session, team, member_name)
    _require_another_owner(session, team, member)
    table = models.TeamMember
    session.execute(delete(table).where(table.team_id == team.id, table.account_id == member.account_id))
    details = {"account": member.account_id}
    record_audit(session, actor=account.name, action="remove_member", subject=f"team {team.id}", details=details)


def _list_invitations(session: Session, team: models.Team) -> tuple[InvitationDetails, ...]:
    found = list_open_links(session, LinkPurpose.JOIN_TEAM, team_id=team.id, now=datetime.now(UTC))
    return tuple(InvitationDetails(link.id, link.created_at, link.expires_at) for link in found)


def _find_team(session: Session, name: str, *, account: Identity) -> models.Team:
    query = select(models.Team).where(models.Team.name == name)
    team = session.scalars(query).one_or_none() if name.isprintable() else None
    if team is None or not (team.id in account.team_ids or account.is_organiser):
        raise UnknownTeamError(f"There is no team {name!r}, or you are not in it.")
    return team


def _lock_team(session: Session, name: str, *, account: Identity) -> models.Team:
    """Lock a shared team, so that two changes of who is in it follow one another."""
    team = _find_team(session, name, account=account)
    if team.id not in account.team_ids:
        raise ForbiddenError("Only its members change a team.")
    if team.kind == "personal":
        raise PersonalTeamError(f"Team {name} is an account's own; make a team to share.")
    session.refresh(team, with_for_update=True)
    return team


def _lock_owned(session: Session, name: str, *, account: Identity) -> models.Team:
    team = _lock_team(session, name, account=account)
    role = select(models.TeamMember.role).where(models.TeamMember.team_id == team.id)
    if session.scalar(role.where(models.TeamMember.account_id == account.id)) != "owner":
        raise ForbiddenError("Only an owner of the team may do this.")
    return team


def _get_member(session: Session, team: models.Team, name: str) -> models.TeamMember:
    member, person = models.TeamMember, models.Account
    query = select(member).join(person, person.id == member.account_id).where(member.team_id == team.id)
    found = session.scalars(query.where(person.name == name)).one_or_none() if name.isprintable() else None
    if found is None:
        raise UnknownMemberError(f"Team {team.name} has no member {name!r}.")
    return found


def _require_another_owner(session: Session, team: models.Team, member: models.TeamMember) -> None:
    table = models.TeamMember
    owners = select(table.account_id).where(table.team_id == team.id, table.role == "owner")
    if set(session.scalars(owners)) == {member.account_id}:
        raise LastOwnerError(f"Make somebody else an owner of team {team.name} first.")
