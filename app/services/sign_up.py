"""New accounts, and the way back into one: roles, passwords, reset links."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ForbiddenError, NotFoundError
from app.services.account_names import NameTakenError, require_name
from app.services.accounts import Identity, Role, find_identity
from app.services.audit import record_audit
from app.services.links import LinkPurpose, end_links, issue_link, use_link
from app.services.passwords import hash_password
from app.services.sign_ins import end_sign_ins


class UnknownAccountError(NotFoundError):
    """No account has this name."""

    code = "unknown_account"
    title = "No such account"


class SignUpClosedError(ForbiddenError):
    """The server takes no new accounts, or only invited ones."""

    code = "sign_up_closed"
    title = "Sign-up is closed"


def create_account(
    session: Session, *, name: str, password: str | None, role: Role = Role.MEMBER, actor: str | None = None
) -> Identity:
    """Make an account and its personal team; of two that ask for one name at once, one gets it.

    Without a password it is entered by a reset link or a provider. `actor` is who made it, unless its owner did.

    Raises
    ------
    InvalidNameError, InvalidPasswordError, NameTakenError : see there.
    """
    password_hash = None if password is None else hash_password(password, name=require_name(name))
    add_team = insert(models.Team).values(name=require_name(name), kind="personal").on_conflict_do_nothing()
    team_id = session.scalar(add_team.returning(models.Team.id))
    account = models.Account
    account_id = None
    if team_id is not None:
        values = {"name": name, "team_id": team_id, "role": role.value, "password_hash": password_hash}
        account_id = session.scalar(insert(account).values(values).on_conflict_do_nothing().returning(account.id))
    if account_id is None:
        raise NameTakenError(f"The name {name} is taken.")
    session.add(models.TeamMember(team_id=team_id, account_id=account_id, role="owner"))
    record_audit(
        session,
        actor=actor or name,
        action="create_account",
        subject=f"account {account_id}",
        details={"role": role.value},
    )
    identity = find_identity(session, account_id)
    assert identity is not None
    return identity


def sign_up(
    session: Session, *, name: str, password: str | None, mode: str, invitation: str | None, now: datetime
) -> Identity:
    """Make an account for who asks for one, where the server's `mode` lets them: `open`, `invite` or `closed`.

    Raises
    ------
    SignUpClosedError : it is closed, or takes an invitation and none was given.
    InvalidLinkError : the invitation was used or has expired.
    """
    if mode == "closed":
        raise SignUpClosedError("This server takes no new accounts; ask its organiser.")
    if mode == "invite":
        if not invitation:
            raise SignUpClosedError("This server takes new accounts by invitation; ask its organiser for a link.")
        use_link(session, LinkPurpose.SIGN_UP, invitation, now=now)
    return create_account(session, name=name, password=password)


def invite_account(session: Session, *, actor: str, now: datetime) -> str:
    """Return the code of an invitation to sign up."""
    record_audit(session, actor=actor, action="invite_account", subject="sign-up")
    return issue_link(session, LinkPurpose.SIGN_UP, now=now)


def get_account(session: Session, name: str) -> models.Account:
    """Return an account that was not deleted, locked, or raise `UnknownAccountError`."""
    account = models.Account
    query = select(account).where(account.name == name, account.deleted_at.is_(None)).with_for_update()
    # The database refuses to compare a text with a NUL in it.
    found = session.scalars(query).one_or_none() if name.isprintable() else None
    if found is None:
        raise UnknownAccountError(f"There is no account {name!r}.")
    return found


def set_role(session: Session, name: str, role: Role, *, actor: str) -> None:
    """Give an account another role; it holds from its next request on."""
    account = get_account(session, name)
    if account.role == role.value:
        return
    details = {"from": account.role, "to": role.value}
    account.role = role.value
    record_audit(session, actor=actor, action="set_role", subject=f"account {account.id}", details=details)


def issue_reset_link(session: Session, name: str, *, by: Identity | None, actor: str, now: datetime) -> str:
    """Return the code of a link that sets a new password for an account; its earlier ones end.

    `by` is the organiser who issues it, None the command line or the account's own mail.

    Raises
    ------
    ForbiddenError : an organiser asks for the account of another organiser or operator, and with that for its rights.
    """
    account = get_account(session, name)
    if by is not None and not by.is_operator and account.id != by.id and account.role != Role.MEMBER:
        raise ForbiddenError("Only an operator may reset the password of an organiser or operator.")
    end_links(session, LinkPurpose.RESET, account_id=account.id, now=now)
    record_audit(session, actor=actor, action="issue_reset_link", subject=f"account {account.id}")
    return issue_link(session, LinkPurpose.RESET, account_id=account.id, now=now)


def reset_password(session: Session, code: str, *, password: str, now: datetime) -> int:
    """Set a new password by a link: every browser is signed out and the link is used up. Return the account."""
    link = use_link(session, LinkPurpose.RESET, code, now=now)
    account = session.get_one(models.Account, link.account_id, with_for_update=True)
    account.password_hash = hash_password(password, name=account.name)
    end_links(session, LinkPurpose.RESET, account_id=account.id, now=now)
    end_sign_ins(session, account.id)
    record_audit(session, actor=account.name, action="reset_password", subject=f"account {account.id}")
    return account.id
