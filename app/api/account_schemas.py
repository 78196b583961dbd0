"""The shapes of what REST says and takes about accounts, tokens and teams."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from app.api.schemas import Answer
from app.services.account_names import MAX_NAME_LENGTH
from app.services.accounts import Role, Scope
from app.services.teams import TeamRole
from app.services.tokens import MAX_TOKEN_DAYS, MAX_TOKEN_NAME


class TeamSummaryOut(Answer):
    """A team that the caller is in."""

    name: str
    kind: str = Field(description="`personal` or `shared`.")
    role: TeamRole


class MeOut(Answer):
    """Who is asking, and what for the token may be used."""

    name: str
    role: Role
    team: str = Field(description="The team that submissions belong to unless they name another one.")
    is_control: bool
    teams: list[TeamSummaryOut]
    scopes: list[Scope]


class TokenOut(Answer):
    """A token, without the token."""

    id: int
    name: str
    scopes: list[Scope]
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None


class NewTokenOut(TokenOut):
    """A token as it is told once."""

    token: str = Field(description="Told this once; the server keeps a hash.")


class TokenListOut(BaseModel):
    """The caller's tokens, newest first."""

    items: list[TokenOut]


class TokenBody(BaseModel):
    """The token to make."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=MAX_TOKEN_NAME, examples=["laptop"])
    scopes: list[Scope] = Field(default=[Scope.READ, Scope.SUBMIT], min_length=1, max_length=len(Scope))
    days: int | None = Field(default=90, ge=1, le=MAX_TOKEN_DAYS, description="When it ends; null: never.")


class TeamBody(BaseModel):
    """The team to make."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(min_length=1, max_length=MAX_NAME_LENGTH, examples=["deep-exit"])


class TeamMemberOut(Answer):
    """A member of a team."""

    name: str
    role: TeamRole
    since: datetime


class OpenInvitationOut(Answer):
    """An invitation that nobody has used yet, without its code."""

    id: int
    created_at: datetime
    expires_at: datetime


class TeamOut(Answer):
    """A team as its members see it; `role` is the caller's own, null for an organiser who is no member."""

    name: str
    kind: str
    role: TeamRole | None
    created_at: datetime
    members: list[TeamMemberOut]
    invitations: list[OpenInvitationOut] = Field(description="Those that nobody has used yet; told to owners.")


class TeamListOut(BaseModel):
    """The caller's teams, the personal one first."""

    items: list[TeamSummaryOut]


class InvitationOut(BaseModel):
    """An invitation to a team."""

    code: str = Field(description="Lets one account join, within seven days; told this once.")


class JoinBody(BaseModel):
    """The code of an invitation."""

    model_config = ConfigDict(extra="forbid")

    code: str = Field(min_length=1, max_length=200)


class MemberRoleBody(BaseModel):
    """The role that a member is to have."""

    model_config = ConfigDict(extra="forbid")

    role: TeamRole
