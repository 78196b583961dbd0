"""Teams, accounts, their ways of signing in, and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    PrimaryKeyConstraint,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column, relationship
from sqlalchemy.types import Text

from app.db.models.declarative import Base, is_sha256, one_of, primary_key, reference

ROLES = ("member", "organiser", "operator")
TEAM_KINDS = ("personal", "shared")
TEAM_ROLES = ("owner", "member")
SCOPES = ("read", "submit", "organise", "operate")
LINK_PURPOSES = ("sign_in", "reset", "sign_up", "join_team", "email")


class Team(Base):
    """A team, an account's own or shared; the one with `is_control` owns the published controls."""

    __tablename__ = "teams"
    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint("name <> ''", name="name"),
        one_of("kind", TEAM_KINDS, name="kind"),
    )

    id: Mapped[int] = primary_key()
    name: Mapped[str]
    kind: Mapped[str] = mapped_column(server_default="shared")
    is_control: Mapped[bool] = mapped_column(server_default=text("false"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Account(Base):
    """Someone who may act; `team` is the one they act for unless they name another of theirs.

    A deleted account keeps its row, with a tombstone for a name, because what it published refers to it.
    """

    __tablename__ = "accounts"
    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint("name <> ''", name="name"),
        one_of("role", ROLES, name="role"),
        CheckConstraint(
            "deleted_at IS NULL OR (role = 'member' AND email IS NULL AND password_hash IS NULL)", name="erased"
        ),
        Index(None, "team_id"),
        Index("uq_accounts_email", text("lower(email)"), unique=True),
    )

    id: Mapped[int] = primary_key()
    name: Mapped[str]
    team_id: Mapped[int] = reference("teams.id")
    role: Mapped[str] = mapped_column(server_default="member")
    email: Mapped[str | None]
    password_hash: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    deleted_at: Mapped[datetime | None]

    team: Mapped[Team] = relationship(lazy="raise")


class TeamMember(Base):
    """An account's membership of a team."""

    __tablename__ = "team_members"
    __table_args__ = (
        PrimaryKeyConstraint("team_id", "account_id"),
        one_of("role", TEAM_ROLES, name="role"),
        Index(None, "account_id"),
    )

    team_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("teams.id"))
    account_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("accounts.id"))
    role: Mapped[str] = mapped_column(server_default="member")
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ApiToken(Base):
    """A bearer token, known here only by its hash, and what it may be used for."""

    __tablename__ = "api_tokens"
    __table_args__ = (
        UniqueConstraint("token_sha256"),
        is_sha256("token_sha256"),
        CheckConstraint(
            "cardinality(scopes) >= 1 AND scopes <@ '{read,submit,organise,operate}'::text[]", name="scopes"
        ),
        Index(None, "account_id"),
    )

    id: Mapped[int] = primary_key()
    account_id: Mapped[int] = reference("accounts.id", on_delete="CASCADE")
    name: Mapped[str]
    token_sha256: Mapped[str]
    scopes: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default="{read,submit}")
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_used_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]

    account: Mapped[Account] = relationship(lazy="raise")


class SignIn(Base):
    """A signed-in browser: its cookie holds a key, known here only by its hash."""

    __tablename__ = "sign_ins"
    __table_args__ = (UniqueConstraint("key_sha256"), is_sha256("key_sha256"), Index(None, "account_id"))

    id: Mapped[int] = primary_key()
    account_id: Mapped[int] = reference("accounts.id", on_delete="CASCADE")
    key_sha256: Mapped[str]
    browser: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_used_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime]


class SignInAttempt(Base):
    """An attempt at a password that was not right: what the throttle counts. Names are kept as hashes."""

    __tablename__ = "sign_in_attempts"
    __table_args__ = (
        is_sha256("account_sha256"),
        is_sha256("address_sha256"),
        Index(None, "account_sha256", "at"),
        Index(None, "address_sha256", "at"),
        Index(None, "at"),
    )

    id: Mapped[int] = primary_key()
    account_sha256: Mapped[str]
    address_sha256: Mapped[str]
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())


class OneTimeLink(Base):
    """A link that does one thing once: signs in, resets a password, lets sign up, joins a team, confirms an e-mail."""

    __tablename__ = "one_time_links"
    __table_args__ = (
        UniqueConstraint("code_sha256"),
        is_sha256("code_sha256"),
        one_of("purpose", LINK_PURPOSES, name="purpose"),
        CheckConstraint("(purpose = 'sign_up') = (account_id IS NULL AND team_id IS NULL)", name="subject"),
        Index(None, "account_id"),
        Index(None, "team_id"),
    )

    id: Mapped[int] = primary_key()
    purpose: Mapped[str]
    code_sha256: Mapped[str]
    account_id: Mapped[int | None] = mapped_column(BigInteger, ForeignKey("accounts.id", ondelete="CASCADE"))
    team_id: Mapped[int | None] = mapped_column(BigInteger, ForeignKey("teams.id", ondelete="CASCADE"))
    details: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    expires_at: Mapped[datetime]
    used_at: Mapped[datetime | None]


class AccountIdentity(Base):
    """An account as an OpenID Connect provider knows it: by issuer and subject, never by an e-mail address."""

    __tablename__ = "account_identities"
    __table_args__ = (
        UniqueConstraint("issuer", "subject"),
        CheckConstraint("issuer <> '' AND subject <> ''", name="named"),
        Index(None, "account_id"),
    )

    id: Mapped[int] = primary_key()
    account_id: Mapped[int] = reference("accounts.id", on_delete="CASCADE")
    issuer: Mapped[str]
    subject: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class AuditEvent(Base):
    """Who did what to what. Rows are only ever added, which a trigger holds; a deleted account's name is taken out."""

    __tablename__ = "audit_events"
    __table_args__ = (
        CheckConstraint("actor <> ''", name="actor"),
        CheckConstraint("action <> ''", name="action"),
        Index(None, "at"),
        Index(None, "actor"),
    )

    id: Mapped[int] = primary_key()
    actor: Mapped[str]
    action: Mapped[str]
    subject: Mapped[str]
    details: Mapped[dict[str, Any]] = mapped_column(server_default=text("'{}'::jsonb"))
    # Not now(), which stands still inside a transaction that writes several events.
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
