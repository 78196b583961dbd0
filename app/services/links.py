"""One-time links: a code that does one thing once, for a while. The database knows its hash."""

from __future__ import annotations

import secrets
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import models
from app.errors import AppError
from app.services.accounts import hash_token

KEPT_FOR = timedelta(days=30)


class LinkPurpose(StrEnum):
    """What a link does, once."""

    SIGN_IN = "sign_in"
    RESET = "reset"
    SIGN_UP = "sign_up"
    JOIN_TEAM = "join_team"
    EMAIL = "email"


LIFETIMES = {
    LinkPurpose.SIGN_IN: timedelta(minutes=15),
    LinkPurpose.RESET: timedelta(hours=24),
    LinkPurpose.SIGN_UP: timedelta(days=7),
    LinkPurpose.JOIN_TEAM: timedelta(days=7),
    LinkPurpose.EMAIL: timedelta(hours=24),
}
# Where the code is put in: behind the # of the address, which no browser sends and no log keeps.
PATHS = {
    LinkPurpose.SIGN_IN: "/sign-in/link",
    LinkPurpose.RESET: "/reset-password",
    LinkPurpose.SIGN_UP: "/sign-up",
    LinkPurpose.JOIN_TEAM: "/join-team",
    LinkPurpose.EMAIL: "/confirm-email",
}


class InvalidLinkError(AppError):
    """The code of a link that was used, has expired or never was: which of these is not told."""

    status = 410
    code = "invalid_link"
    title = "This link does not work"


def issue_link(
    session: Session,
    purpose: LinkPurpose,
    *,
    now: datetime,
    account_id: int | None = None,
    team_id: int | None = None,
    details: dict[str, Any] | None = None,
) -> str:
    """Return the code of a new link, which is not kept anywhere."""
    link = models.OneTimeLink
    session.execute(delete(link).where(link.expires_at < now - KEPT_FOR))
    code = secrets.token_urlsafe(32)
    added = insert(link).values(
        purpose=purpose.value,
        code_sha256=hash_token(code),
        account_id=account_id,
        team_id=team_id,
        details=details or {},
        created_at=now,
        expires_at=now + LIFETIMES[purpose],
    )
    session.execute(added)
    return code


def use_link(session: Session, purpose: LinkPurpose, code: str, *, now: datetime) -> models.OneTimeLink:
    """Use a link up and return it; of two that use it at once, one gets it.

    Raises
    ------
    InvalidLinkError : no link of this purpose has this code, or no longer.
    """
    link = models.OneTimeLink
    used = (
        update(link)
        .where(link.code_sha256 == hash_token(code.strip()), link.purpose == purpose.value)
        .where(link.used_at.is_(None), link.expires_at > now)
        .values(used_at=now)
        .returning(link)
    )
    found = session.scalars(used).one_or_none()
    if found is None:
        raise InvalidLinkError("The link was used already, has expired, or was not copied whole; ask for a new one.")
    return found


def end_links(session: Session, purpose: LinkPurpose, *, account_id: int, now: datetime) -> None:
    """Use up every other link of this purpose for an account."""
    link = models.OneTimeLink
    ended = update(link).where(link.account_id == account_id, link.purpose == purpose.value, link.used_at.is_(None))
    session.execute(ended.values(used_at=now))


def list_open_links(
    session: Session, purpose: LinkPurpose, *, team_id: int, now: datetime
) -> tuple[models.OneTimeLink, ...]:
    """Return a team's links of this purpose that still work, oldest first."""
    link = models.OneTimeLink
    query = select(link).where(link.purpose == purpose.value, link.team_id == team_id)
    query = query.where(link.used_at.is_(None), link.expires_at > now)
    return tuple(session.scalars(query.order_by(link.created_at, link.id)))


def revoke_link(session: Session, purpose: LinkPurpose, link_id: int, *, team_id: int, now: datetime) -> bool:
    """Use up one of a team's links and tell whether it had still worked."""
    link = models.OneTimeLink
    ended = (
        update(link)
        .where(link.id == link_id, link.purpose == purpose.value, link.team_id == team_id)
        .where(link.used_at.is_(None), link.expires_at > now)
        .values(used_at=now)
        .returning(link.id)
    )
    # The largest number that the column holds; a larger one is no link's.
    return 0 < link_id < 2**63 and session.scalar(ended) is not None


def link_address(base: str, purpose: LinkPurpose, code: str) -> str:
    """Return the address of a link on the server at `base`."""
    return f"{base.rstrip('/')}{PATHS[purpose]}#{code}"
