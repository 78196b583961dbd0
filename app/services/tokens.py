"""Tokens for scripts: named, for some uses only, ended by a date or by their owner. Each is shown once."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ContentError, NotFoundError, Problem
from app.services.accounts import TOKEN_PREFIX, Identity, Scope, hash_token
from app.services.audit import record_audit

MAX_TOKEN_NAME = 60
MAX_TOKEN_DAYS = 366
MAX_TOKENS = 50


class InvalidTokenRequestError(ContentError):
    """A token that cannot be made as it was asked for; every reason is listed."""

    code = "invalid_token_request"
    title = "This token cannot be made"


class UnknownTokenError(NotFoundError):
    """The account has no token of this number."""

    code = "unknown_token"
    title = "No such token"


@dataclass(frozen=True)
class TokenDetails:
    """A token without the token: its number, name and uses."""

    id: int
    name: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None


@dataclass(frozen=True)
class NewToken:
    """A token as it is shown, this once."""

    token: str
    details: TokenDetails


def allowed_scopes(account: Identity) -> tuple[Scope, ...]:
    """Return what a token of this account may be for: what its role allows, and the token that asks for it."""
    by_role = {Scope.ORGANISE: account.is_organiser, Scope.OPERATE: account.is_operator}
    return tuple(scope for scope in Scope if scope in account.scopes and by_role.get(scope, True))


def create_token(
    session: Session, account: Identity, *, name: str, scopes: Collection[Scope], days: int | None, now: datetime
) -> NewToken:
    """Make a token that ends after so many days, or never where none are given.

    One that a token asked for ends no later than that one, and may do no more.
    """
    n_tokens = session.scalar(select(func.count()).where(models.ApiToken.account_id == account.id)) or 0
    faults = _list_faults(account, name=name.strip(), scopes=scopes, days=days, n_tokens=n_tokens)
    if faults:
        raise InvalidTokenRequestError(faults[0].message, problems=faults)
    token = f"{TOKEN_PREFIX}{secrets.token_urlsafe(32)}"
    ends = (None if days is None else now + timedelta(days=days), account.token_expires_at)
    row = models.ApiToken(
        account_id=account.id,
        name=name.strip(),
        token_sha256=hash_token(token),
        scopes=[scope.value for scope in Scope if scope in scopes],
        created_at=now,
        expires_at=min((moment for moment in ends if moment is not None), default=None),
    )
    session.add(row)
    session.flush()
    details = {"scopes": row.scopes, "days": days}
    record_audit(session, actor=account.name, action="create_token", subject=f"token {row.id}", details=details)
    return NewToken(token, _read(row))


def list_tokens(session: Session, account: Identity) -> tuple[TokenDetails, ...]:
    """Return the account's tokens, those that have expired too, newest first."""
    query = select(models.ApiToken).where(models.ApiToken.account_id == account.id).order_by(models.ApiToken.id.desc())
    return tuple(_read(row) for row in session.scalars(query))


def revoke_token(session: Session, account: Identity, token_id: int) -> None:
    """End a token of the account for good."""
    table = models.ApiToken
    # The largest number that the column holds; a larger one is nobody's.
    is_possible = 0 < token_id < 2**63
    ended = delete(table).where(table.id == token_id, table.account_id == account.id).returning(table.id)
    if not is_possible or session.scalar(ended) is None:
        raise UnknownTokenError(f"You have no token {token_id}.")
    record_audit(session, actor=account.name, action="revoke_token", subject=f"token {token_id}")


def revoke_all_tokens(session: Session, account_id: int, *, actor: str) -> int:
    """End every token of an account and return how many there were."""
    table = models.ApiToken
    ended = session.scalars(delete(table).where(table.account_id == account_id).returning(table.id)).all()
    details = {"tokens": len(ended)}
    record_audit(session, actor=actor, action="revoke_tokens", subject=f"account {account_id}", details=details)
    return len(ended)


def _list_faults(
    account: Identity, *, name: str, scopes: Collection[Scope], days: int | None, n_tokens: int
) -> list[Problem]:
    faults = []
    if not name or len(name) > MAX_TOKEN_NAME or not name.isprintable():
        faults.append(("name", f"A token's name has 1 to {MAX_TOKEN_NAME} printable characters."))
    if not scopes:
        faults.append(("scopes", "A token is for something: choose at least one scope."))
    for scope in sorted(set(scopes) - set(allowed_scopes(account))):
        faults.append(("scopes", f"You may not make a token with the scope {scope}."))
    if days is not None and not 1 <= days <= MAX_TOKEN_DAYS:
        faults.append(("days", f"A token ends after 1 to {MAX_TOKEN_DAYS} days."))
    if n_tokens >= MAX_TOKENS:
        faults.append(("name", f"An account has at most {MAX_TOKENS} tokens; revoke one first."))
    return [Problem("invalid_token_request", message, column=column) for column, message in faults]


def _read(row: models.ApiToken) -> TokenDetails:
    scopes = tuple(scope for scope in Scope if scope in row.scopes)
    return TokenDetails(row.id, row.name, scopes, row.created_at, row.last_used_at, row.expires_at)
