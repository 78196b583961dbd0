"""All accounts, as organisers see them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db import models
from app.services.accounts import Role
from app.services.paging import read_cursor, write_cursor


@dataclass(frozen=True)
class AccountDetails:
    """An account: how it can be entered, its teams, and when it was last used by browser or token."""

    name: str
    role: Role
    teams: tuple[str, ...]
    has_password: bool
    has_identity: bool
    n_tokens: int
    created_at: datetime
    last_used_at: datetime | None


@dataclass(frozen=True)
class AccountPage:
    """Some accounts, by name, and the cursor of the next page."""

    items: tuple[AccountDetails, ...]
    next_cursor: str | None


def list_accounts(session: Session, *, limit: int = 50, cursor: str | None = None) -> AccountPage:
    """Return the accounts that were not deleted, by name, in one query."""
    account, member, team = models.Account, models.TeamMember, models.Team
    token, browser, identity = models.ApiToken, models.SignIn, models.AccountIdentity
    names = func.array_agg(team.name).filter(team.id.is_not(None))
    teams = select(names).join(member, member.team_id == team.id).where(member.account_id == account.id)
    query = (
        select(
            account.name,
            account.role,
            teams.scalar_subquery().label("teams"),
            account.password_hash.is_not(None).label("has_password"),
            select(identity.id).where(identity.account_id == account.id).exists().label("has_identity"),
            select(func.count()).where(token.account_id == account.id).scalar_subquery().label("n_tokens"),
            account.created_at,
            func.greatest(
                select(func.max(token.last_used_at)).where(token.account_id == account.id).scalar_subquery(),
                select(func.max(browser.last_used_at)).where(browser.account_id == account.id).scalar_subquery(),
            ).label("last_used_at"),
        )
        .where(account.deleted_at.is_(None))
        .order_by(account.name)
        .limit(limit + 1)
    )
    if cursor is not None:
        query = query.where(account.name > read_cursor(cursor, n_parts=1)[0])
    rows = session.execute(query).all()
    items = tuple(
        AccountDetails(row.name, Role(row.role), tuple(sorted(row.teams or ())), *row[3:]) for row in rows[:limit]
    )
    return AccountPage(items, write_cursor((items[-1].name,)) if len(rows) > limit else None)
