"""Signed-in browsers: begun by a password, a link or a provider, known by a key in a cookie, ended from anywhere."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session, sessionmaker

from app.db import models
from app.errors import AppError
from app.services.account_names import NAME_PATTERN
from app.services.accounts import LOCAL_ACCOUNT, USE_RECORDED_EVERY, Identity, find_identity, hash_token
from app.services.links import InvalidLinkError, LinkPurpose, issue_link, use_link
from app.services.passwords import password_matches
from app.services.throttle import SIGN_IN, forgive_attempts, reserve_attempt

SIGN_IN_LIFETIME = timedelta(days=30)
MAX_BROWSER_NAME = 200


class WrongPasswordError(AppError):
    """Name and password do not belong together, or there is no such account: which of these is not told."""

    status = 401
    code = "wrong_password"
    title = "Name or password is wrong"


@dataclass(frozen=True)
class SignInDetails:
    """A signed-in browser as its owner sees it."""

    id: int
    browser: str
    created_at: datetime
    last_used_at: datetime
    is_this: bool


def check_password(sessions: sessionmaker[Session], *, name: str, password: str, address: str, now: datetime) -> int:
    """Return the account of this name and password; every wrong attempt counts, and commits by itself.

    A name that nobody has, one without a password and a wrong password take as long and answer the same.

    Raises
    ------
    ThrottledError : too many attempts at this name or from this address.
    WrongPasswordError : they do not belong together.
    """
    name = name.strip().lower()
    subject = f"sign in {name}"
    reserve_attempt(sessions, subject=subject, address=address, limits=SIGN_IN, now=now)
    account = models.Account
    with sessions() as session:
        query = select(account.id, account.password_hash).where(account.name == name, account.deleted_at.is_(None))
        # A name that cannot be one is not even asked for: the database refuses some characters.
        found = session.execute(query).one_or_none() if NAME_PATTERN.fullmatch(name) else None
    if not password_matches(password, found.password_hash if found else None) or found is None:
        raise WrongPasswordError("No account has this name and this password.")
    with sessions.begin() as session:
        forgive_attempts(session, subject=subject, address=address, now=now)
    return int(found.id)


def begin_sign_in(session: Session, account_id: int, *, browser: str, now: datetime) -> str:
    """Return the key of a new sign-in, for the browser's cookie: never one that the browser brought along."""
    table = models.SignIn
    session.execute(delete(table).where(table.expires_at < now))
    key = secrets.token_urlsafe(32)
    shown = "".join(character for character in browser if character.isprintable())[:MAX_BROWSER_NAME]
    session.add(
        table(
            account_id=account_id,
            key_sha256=hash_token(key),
            browser=shown,
            created_at=now,
            last_used_at=now,
            expires_at=now + SIGN_IN_LIFETIME,
        )
    )
    session.flush()
    return key


def find_account_by_key(session: Session, key: str, *, now: datetime) -> Identity | None:
    """Return who is signed in with this key, or None where it was ended; its use is noted now and then."""
    table = models.SignIn
    used = session.scalars(
        select(table).where(table.key_sha256 == hash_token(key), table.expires_at > now)
    ).one_or_none()
    if used is None:
        return None
    if now - used.last_used_at > USE_RECORDED_EVERY:
        used.last_used_at = now
    identity = find_identity(session, used.account_id)
    return None if identity is None else replace(identity, sign_in_id=used.id)


def list_sign_ins(session: Session, account: Identity, *, now: datetime) -> tuple[SignInDetails, ...]:
    """Return the browsers that are signed in, the one used last first."""
    table = models.SignIn
    query = select(table).where(table.account_id == account.id, table.expires_at > now)
    return tuple(
        SignInDetails(row.id, row.browser, row.created_at, row.last_used_at, row.id == account.sign_in_id)
        for row in session.scalars(query.order_by(table.last_used_at.desc(), table.id.desc()))
    )


def end_sign_in(session: Session, key: str) -> None:
    """Sign one browser out: its cookie is worth nothing from now on, wherever a copy of it lies."""
    session.execute(delete(models.SignIn).where(models.SignIn.key_sha256 == hash_token(key)))


def end_sign_ins(session: Session, account_id: int, *, but: int | None = None) -> None:
    """Sign every browser of an account out, but the one of the sign-in that is named."""
    table = models.SignIn
    ended = delete(table).where(table.account_id == account_id)
    session.execute(ended if but is None else ended.where(table.id != but))


def issue_local_link(session: Session, *, now: datetime) -> str:
    """Return the code of a link that signs the built-in local account in, and no other."""
    account_id = session.scalars(select(models.Account.id).where(models.Account.name == LOCAL_ACCOUNT)).one()
    return issue_link(session, LinkPurpose.SIGN_IN, account_id=account_id, now=now)


def use_local_link(session: Session, code: str, *, now: datetime) -> int:
    """Use a sign-in link up and return the local account, the only one that such a link is good for."""
    link = use_link(session, LinkPurpose.SIGN_IN, code, now=now)
    account = session.get(models.Account, link.account_id)
    if account is None or account.name != LOCAL_ACCOUNT:
        raise InvalidLinkError("Only the account of this machine signs in with a link.")
    return account.id
