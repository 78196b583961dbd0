"""Who acts: for now one built-in local account, known by its bearer token."""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import models
from app.files.atomic import write_once

LOCAL_ACCOUNT = "local"
LOCAL_TEAM = "local"
CONTROL_TEAM = "controls"
TOKEN_PREFIX = "otb_"
TOKEN_FILE = "local-token"
# Writing the time of every use would make each request a write.
USE_RECORDED_EVERY = timedelta(minutes=10)


@dataclass(frozen=True)
class Identity:
    """An account as the rest of the program needs it; `is_control` marks the team of the published controls."""

    id: int
    name: str
    team_id: int
    team: str
    is_control: bool


def ensure_local_account(session: Session, data_dir: Path) -> str:
    """Make sure that the built-in account exists, and return its token.

    The token lies in the data folder, readable by its owner only; the database knows its hash. A token file that was
    removed is replaced by a new token, and the old one stops working.
    """
    account = ensure_account(session, name=LOCAL_ACCOUNT, team=LOCAL_TEAM, is_control=False)
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
    added = insert(models.ApiToken).values(account_id=account.id, name=TOKEN_FILE, token_sha256=digest)
    session.execute(added.on_conflict_do_update(index_elements=["token_sha256"], set_={"expires_at": None}))
    return token


def ensure_account(session: Session, *, name: str, team: str, is_control: bool) -> Identity:
    """Return the account of this name in this team; either is made where it is missing."""
    add_team = insert(models.Team).values(name=team, is_control=is_control)
    session.execute(add_team.on_conflict_do_nothing(index_elements=["name"]))
    team_row = session.scalars(select(models.Team).where(models.Team.name == team)).one()
    add_account = insert(models.Account).values(name=name, team_id=team_row.id)
    session.execute(add_account.on_conflict_do_nothing(index_elements=["name"]))
    account = session.scalars(select(models.Account).where(models.Account.name == name)).one()
    return Identity(account.id, account.name, team_row.id, team_row.name, team_row.is_control)


def find_account_by_token(session: Session, token: str) -> Identity | None:
    """Return whose token this is, or None where nobody's or expired; the time of its use is noted now and then."""
    api_token, account, team = models.ApiToken, models.Account, models.Team
    query = (
        select(api_token, account.id, account.name, team.id, team.name, team.is_control)
        .join(account, account.id == api_token.account_id)
        .join(team, team.id == account.team_id)
        .where(api_token.token_sha256 == hash_token(token))
        .where((api_token.expires_at.is_(None)) | (api_token.expires_at > func.now()))
    )
    found = session.execute(query).one_or_none()
    if found is None:
        return None
    used, now = found[0], datetime.now(UTC)
    if used.last_used_at is None or now - used.last_used_at > USE_RECORDED_EVERY:
        used.last_used_at = now
    return Identity(*found[1:])


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
