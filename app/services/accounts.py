"""Who acts: accounts with a role and teams, known by a bearer token or a signed-in browser."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ForbiddenError
from app.files.atomic import write_once

LOCAL_ACCOUNT = "local"
LOCAL_TEAM = "local"
CONTROL_TEAM = "controls"
# Longer than any name that can be taken, so that a field for one never refuses an old one.
MAX_TEAM_NAME = 200
TOKEN_PREFIX = "otb_"
TOKEN_FILE = "local-token"
# Writing the time of every use would make each request a write.
USE_RECORDED_EVERY = timedelta(minutes=10)


class Role(StrEnum):
    """What an account may do on this server: an operator all that an organiser may, and that all that a member may."""

    MEMBER = "member"
    ORGANISER = "organiser"
    OPERATOR = "operator"


class Scope(StrEnum):
    """What a token may be used for; a signed-in browser may do all that its account may."""

    READ = "read"
    SUBMIT = "submit"
    ORGANISE = "organise"
    OPERATE = "operate"


ALL_SCOPES = frozenset(Scope)


@dataclass(frozen=True)
class Identity:
    """An account as the rest of the program needs it.

    `team_id` and `team` are the team it acts for: its own unless another one of `team_ids`, the teams it is a member
    of, was chosen by `act_for_team`. `is_control` marks the team of the published controls.
    """

    id: int
    name: str
    team_id: int
    team: str
    is_control: bool
    role: Role = Role.MEMBER
    team_ids: frozenset[int] = frozenset()
    scopes: frozenset[Scope] = ALL_SCOPES
    # Of which signed-in browser the request is; None for a token.
    sign_in_id: int | None = None
    # When the token ends that the request came with: what it makes ends no later.
    token_expires_at: datetime | None = None

    @property
    def is_organiser(self) -> bool:
        """Whether it may do what an organiser may."""
        return self.role in (Role.ORGANISER, Role.OPERATOR)

    @property
    def is_operator(self) -> bool:
        """Whether it may do what an operator may."""
        return self.role is Role.OPERATOR


def ensure_local_account(session: Session, data_dir: Path) -> str:
    """Make sure that the built-in account exists, and return its token.

    The token lies in the data folder, readable by its owner only; the database knows its hash. A token file that was
    removed is replaced by a new token, and the old one stops working.
    """
    account = ensure_account(session, name=LOCAL_ACCOUNT, team=LOCAL_TEAM, is_control=False, role=Role.OPERATOR)
    path = data_dir / TOKEN_FILE
    token = _read_or_create(path)
    digest = hash_token(token)
    session.execute(
        update(models.ApiToken)
        .where(models.ApiToken.account_id == account.id, models.ApiToken.name == TOKEN_FILE)
        .where(models.ApiToken.token_sha256 != digest)
        .where(models.ApiToken.expires_at.is_(None))
        .values(expires_at=func.now())
    )
    added = insert(models.ApiToken).values(
        account_id=account.id, name=TOKEN_FILE, token_sha256=digest, scopes=sorted(ALL_SCOPES)
    )
    session.execute(added.on_conflict_do_update(index_elements=["token_sha256"], set_={"expires_at": None}))
    return token


def ensure_account(session: Session, *, name: str, team: str, is_control: bool, role: Role = Role.MEMBER) -> Identity:
    """Return the account of this name in this team; either is made where it is missing, the account with this role."""
    kind = "shared" if is_control else "personal"
    add_team = insert(models.Team).values(name=team, is_control=is_control, kind=kind)
    session.execute(add_team.on_conflict_do_nothing(index_elements=["name"]))
    team_id = session.scalars(select(models.Team.id).where(models.Team.name == team)).one()
    add_account = insert(models.Account).values(name=name, team_id=team_id, role=role.value)
    session.execute(add_account.on_conflict_do_nothing(index_elements=["name"]))
    account_id = session.scalars(select(models.Account.id).where(models.Account.name == name)).one()
    add_member = insert(models.TeamMember).values(team_id=team_id, account_id=account_id, role="owner")
    session.execute(add_member.on_conflict_do_nothing())
    found = find_identity(session, account_id)
    assert found is not None
    return found


def find_identity(session: Session, account_id: int, *, scopes: Iterable[str] = ALL_SCOPES) -> Identity | None:
    """Return an account as the one who acts, or None where it was deleted."""
    account, team, member = models.Account, models.Team, models.TeamMember
    team_ids = select(func.array_agg(member.team_id)).where(member.account_id == account.id).scalar_subquery()
    query = (
        select(account.id, account.name, team.id, team.name, team.is_control, account.role, team_ids)
        .join(team, team.id == account.team_id)
        .where(account.id == account_id, account.deleted_at.is_(None))
    )
    found = session.execute(query).one_or_none()
    if found is None:
        return None
    account_id, name, team_id, team_name, is_control, role, teams = found
    return Identity(
        account_id,
        name,
        team_id,
        team_name,
        is_control,
        Role(role),
        frozenset(teams or ()),
        frozenset(map(Scope, scopes)),
    )


def act_for_team(session: Session, account: Identity, name: str | None) -> Identity:
    """Return the account acting for the team of this name, or for its own where none is named.

    Raises
    ------
    ForbiddenError : it is no member of such a team. Whether there is one is not told.
    """
    if name is None or name == account.team:
        return account
    team = models.Team
    query = select(team.id, team.name, team.is_control).where(team.name == name, team.id.in_(account.team_ids))
    found = session.execute(query).one_or_none()
    if found is None:
        raise ForbiddenError(f"You are no member of a team {name!r}.")
    return replace(account, team_id=found.id, team=found.name, is_control=found.is_control)


def list_team_names(session: Session, account: Identity) -> tuple[str, ...]:
    """Return the teams that the account may act for, its own first."""
    team = models.Team
    query = select(team.name).where(team.id.in_(account.team_ids)).order_by(team.id != account.team_id, team.name)
    return tuple(session.scalars(query))


def find_account_by_token(session: Session, token: str) -> Identity | None:
    """Return whose token this is, or None where nobody's or expired; the time of its use is noted now and then."""
    api_token = models.ApiToken
    query = (
        select(api_token)
        .where(api_token.token_sha256 == hash_token(token))
        .where((api_token.expires_at.is_(None)) | (api_token.expires_at > func.now()))
    )
    used = session.scalars(query).one_or_none()
    if used is None:
        return None
    now = datetime.now(UTC)
    if used.last_used_at is None or now - used.last_used_at > USE_RECORDED_EVERY:
        used.last_used_at = now
    identity = find_identity(session, used.account_id, scopes=used.scopes)
    return None if identity is None else replace(identity, token_expires_at=used.expires_at)


def hash_token(token: str) -> str:
    """Return the hash under which the database knows a token."""
    return hashlib.sha256(token.encode()).hexdigest()


def _read_or_create(path: Path) -> str:
    if path.exists() and (token := path.read_text().strip()):
        return token
    content = f"{TOKEN_PREFIX}{secrets.token_urlsafe(32)}\n".encode()
    # Two servers that start at once both write a whole file; the one that comes second finds the first one's.
    if path.exists():
        draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
        write_once(draft, content, mode=0o600)
        draft.rename(path)
    else:
        write_once(path, content, mode=0o600)
    return path.read_text().strip()
