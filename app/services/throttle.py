"""What is tried too often has to wait: counted in the database, so that all web processes count together."""

from __future__ import annotations

import hashlib
import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, sessionmaker

from app.db import models
from app.errors import TooManyRequestsError

KEPT_FOR = timedelta(days=1)


class ThrottledError(TooManyRequestsError):
    """Too many attempts; the answer is the same whether or not there is such an account."""

    code = "too_many_attempts"
    title = "Too many attempts"


@dataclass(frozen=True)
class Limits:
    """How many attempts a window of time allows: of one subject from one address, of the subject, from the address."""

    together: int
    subject: int
    address: int
    window: timedelta


# An attacker with many addresses gets 50 guesses at one account in a quarter of an hour, one with a single address 5.
# More than that would let anybody lock an account out for others by guessing at it.
SIGN_IN = Limits(together=5, subject=50, address=50, window=timedelta(minutes=15))
SIGN_UP = Limits(together=20, subject=20, address=100, window=timedelta(hours=1))
MAIL = Limits(together=3, subject=5, address=20, window=timedelta(hours=1))


def reserve_attempt(
    sessions: sessionmaker[Session], *, subject: str, address: str, limits: Limits, now: datetime
) -> None:
    """Count an attempt before it is made, so that many at once cannot pass the limit together.

    Raises
    ------
    ThrottledError : there were too many in the window; one that is refused does not count.
    """
    table = models.SignInAttempt
    subject_hash, address_hash = _digest(subject), _digest(_network(address))
    with sessions.begin() as session:
        for digest in sorted({subject_hash, address_hash}):
            session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(digest, 0))))
        for limit, condition in (
            (limits.together, (table.account_sha256 == subject_hash) & (table.address_sha256 == address_hash)),
            (limits.subject, table.account_sha256 == subject_hash),
            (limits.address, table.address_sha256 == address_hash),
        ):
            _require_room(session, condition, limit=limit, window=limits.window, now=now)
        added = insert(table).values(account_sha256=subject_hash, address_sha256=address_hash, at=now)
        session.execute(added)


def forgive_attempts(session: Session, *, subject: str, address: str, now: datetime) -> None:
    """Forget the attempts of who has shown to be right, and those that no window reaches any more."""
    table = models.SignInAttempt
    mine = (table.account_sha256 == _digest(subject)) & (table.address_sha256 == _digest(_network(address)))
    session.execute(delete(table).where(mine | (table.at < now - KEPT_FOR)))


def _require_room(
    session: Session, condition: ColumnElement[bool], *, limit: int, window: timedelta, now: datetime
) -> None:
    table = models.SignInAttempt
    recent = select(table.at).where(condition, table.at > now - window).order_by(table.at.desc()).limit(limit)
    moments = session.scalars(recent).all()
    if len(moments) == limit:
        seconds = max(1, int((moments[-1] + window - now).total_seconds()) + 1)
        raise ThrottledError(f"Too many attempts; try again in {seconds} seconds.", retry_after_seconds=seconds)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _network(address: str) -> str:
    """One household has as many IPv6 addresses as it likes: those of a network of 64 bits count as one."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        return str(parsed.ipv4_mapped or ipaddress.ip_network((parsed, 64), strict=False))
    return address
