"""What owners change on their own account: password, e-mail address, provider, and its end."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import delete, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ContentError, Problem, StateError
from app.services.accounts import CONTROL_TEAM, LOCAL_ACCOUNT, Identity, Role
from app.services.audit import record_audit
from app.services.links import LinkPurpose, end_links, issue_link, use_link
from app.services.passwords import hash_password, password_matches
from app.services.sign_ins import WrongPasswordError, end_sign_ins
from app.services.submissions import SubmissionState, find_locked, transition

MAX_EMAIL_LENGTH = 254
EMAIL_PATTERN = re.compile(r"[A-Za-z0-9.!#$%&'*+/=?^_`{|}~-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
# What keeps the names of those who acted; a trigger lets only this one column be changed, and only to a tombstone.
LOGS: tuple[Any, ...] = (models.SubmissionEvent, models.ProbeRunEvent, models.AuditEvent)


class InvalidEmailError(ContentError):
    """Not an e-mail address."""

    code = "invalid_email"
    title = "This is no e-mail address"


class EmailTakenError(StateError):
    """Another account has this e-mail address: told only to whoever reads its mail."""

    code = "email_taken"
    title = "The e-mail address belongs to another account"


class LastOwnerError(StateError):
    """The account is the only owner of a team of several."""

    code = "last_owner"
    title = "A team needs an owner"


class BuiltInAccountError(StateError):
    """The server's own accounts cannot be deleted."""

    code = "built_in_account"
    title = "A built-in account stays"


@dataclass(frozen=True)
class Profile:
    """An account as its owner sees it."""

    email: str | None
    has_password: bool
    has_identity: bool
    created_at: datetime


def get_profile(session: Session, account: Identity) -> Profile:
    """Return what is known of an account."""
    row = session.get_one(models.Account, account.id)
    identities = select(func.count()).where(models.AccountIdentity.account_id == account.id)
    return Profile(row.email, row.password_hash is not None, bool(session.scalar(identities)), row.created_at)


def change_password(session: Session, account: Identity, *, current: str, new: str, now: datetime) -> None:
    """Set another password: all other browsers are signed out and open reset links end.

    Raises
    ------
    WrongPasswordError : the account has a password and `current` is not it.
    """
    row = session.get_one(models.Account, account.id, with_for_update=True)
    require_password(row, current)
    row.password_hash = hash_password(new, name=row.name)
    end_sign_ins(session, account.id, but=account.sign_in_id)
    end_links(session, LinkPurpose.RESET, account_id=account.id, now=now)
    record_audit(session, actor=row.name, action="change_password", subject=f"account {row.id}")


def require_password(row: models.Account, password: str) -> None:
    """Raise unless it is the account's password; one that has none is taken at its sign-in."""
    if row.password_hash is not None and not password_matches(password, row.password_hash):
        raise WrongPasswordError("This is not the present password.")


def propose_email(session: Session, account: Identity, email: str, *, now: datetime) -> str:
    """Return the code of a link that, sent to the address, makes it the account's."""
    email = email.strip()
    if len(email) > MAX_EMAIL_LENGTH or not EMAIL_PATTERN.fullmatch(email):
        message = "Give an address such as ada@example.org."
        raise InvalidEmailError(message, problems=[Problem("invalid_email", message, column="email")])
    end_links(session, LinkPurpose.EMAIL, account_id=account.id, now=now)
    return issue_link(session, LinkPurpose.EMAIL, account_id=account.id, details={"email": email}, now=now)


def confirm_email(session: Session, code: str, *, now: datetime) -> None:
    """Make the address that a link was sent to the account's."""
    link = use_link(session, LinkPurpose.EMAIL, code, now=now)
    account = session.get_one(models.Account, link.account_id)
    try:
        with session.begin_nested():
            account.email = link.details["email"]
            session.flush()
    except IntegrityError as exc:
        raise EmailTakenError("Another account has this address; remove it there first.") from exc


def remove_email(session: Session, account: Identity) -> None:
    """Forget the account's address."""
    session.execute(update(models.Account).where(models.Account.id == account.id).values(email=None))


def delete_account(session: Session, account: Identity, *, password: str, now: datetime) -> None:
    """End an account: what it published stays, under a tombstone for a name; everything personal is erased.

    Unpublished submissions of its own team are withdrawn. Sign-ins, tokens, links and identities end. In logs its name
    gives way to the tombstone.

    Raises
    ------
    WrongPasswordError : it is not the account's password.
    LastOwnerError : a team of several would be left without an owner.
    BuiltInAccountError : it is one of the server's own.
    """
    row = session.get_one(models.Account, account.id, with_for_update=True)
    require_password(row, password)
    if row.name in (LOCAL_ACCOUNT, CONTROL_TEAM):
        raise BuiltInAccountError("This account belongs to the server itself.")
    _leave_teams(session, row)
    _withdraw_drafts(session, row)
    for table in (models.SignIn, models.ApiToken, models.AccountIdentity, models.OneTimeLink):
        session.execute(delete(table).where(table.account_id == row.id))
    name, tombstone = row.name, f"deleted account {row.id}"
    team = session.get_one(models.Team, row.team_id)
    if team.kind == "personal":
        team.name = tombstone
    row.name, row.role, row.email, row.password_hash, row.deleted_at = tombstone, Role.MEMBER.value, None, None, now
    session.flush()
    for log in LOGS:
        session.execute(update(log).where(log.actor == name).values(actor=tombstone))
    record_audit(session, actor=tombstone, action="delete_account", subject=f"account {row.id}")


def _leave_teams(session: Session, row: models.Account) -> None:
    member, team = models.TeamMember, models.Team
    shared = select(team).join(member, member.team_id == team.id).where(member.account_id == row.id)
    for found in session.scalars(shared.where(team.kind == "shared").order_by(team.id).with_for_update(of=team)).all():
        others = select(member.role).where(member.team_id == found.id, member.account_id != row.id)
        roles = session.scalars(others).all()
        if roles and "owner" not in roles:
            raise LastOwnerError(f"Make somebody else an owner of team {found.name} first.")
    session.execute(delete(member).where(member.account_id == row.id))


def _withdraw_drafts(session: Session, row: models.Account) -> None:
    """Nobody could publish or read them any more; names of files and descriptions may be personal."""
    team = session.get_one(models.Team, row.team_id)
    if team.kind != "personal":
        return
    submission, method = models.Submission, models.Method
    query = select(submission.id).where(submission.team_id == team.id)
    for submission_id in session.scalars(query.order_by(submission.id)).all():
        found = find_locked(session, submission_id)
        assert found is not None
        if found.state not in (SubmissionState.PUBLISHED, SubmissionState.WITHDRAWN):
            transition(session, found, SubmissionState.WITHDRAWN, actor=row.name, reason="the account was deleted")
        if found.published_at is None:
            found.filename = "actions"
    published = select(submission.method_id).where(submission.team_id == team.id, submission.published_at.is_not(None))
    erased = update(method).where(method.team_id == team.id, method.id.not_in(published))
    session.execute(erased.values(description=None))
