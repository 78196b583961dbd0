"""Methods by name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import NotFoundError
from app.services.accounts import Identity
from app.services.anonymity import is_anonymous, shown_link, shown_team
from app.services.submissions import SubmissionState


class UnknownMethodError(NotFoundError):
    """No method of this name that the reader may see."""

    code = "unknown_method"
    title = "No such method"


@dataclass(frozen=True)
class MethodDetails:
    """A method of a team; two teams may use the same name.

    `is_anonymous` tells whether its team is hidden from others, until `anonymous_until`.
    """

    name: str
    team: str
    is_anonymous: bool
    anonymous_until: datetime | None
    description: str | None
    paper_url: str | None
    code_url: str | None
    is_control: bool
    created_at: datetime


def get_methods(
    session: Session, name: str, *, account: Identity | None, now: datetime | None = None
) -> tuple[MethodDetails, ...]:
    """Return the methods of this name, by team: one's own always, those of others once something is published."""
    now = now or datetime.now(UTC)
    method, team, submission = models.Method, models.Team, models.Submission
    published = exists().where(submission.method_id == method.id, submission.state == SubmissionState.PUBLISHED.value)
    visible = published if account is None else published | method.team_id.in_(account.team_ids)
    shown = shown_team(account, now=now).label("team")
    query = (
        select(
            method.name,
            shown,
            is_anonymous(now).label("is_anonymous"),
            method.anonymous_until,
            method.description,
            shown_link(method.paper_url, account, now=now).label("paper_url"),
            shown_link(method.code_url, account, now=now).label("code_url"),
            (method.is_control | team.is_control).label("is_control"),
            method.created_at,
        )
        .join(team, team.id == method.team_id)
        .where(method.name == name, visible)
        # By the name that is shown: the order must not tell where a hidden one belongs.
        .order_by(shown, method.created_at, method.id)
    )
    found = tuple(MethodDetails(**row) for row in session.execute(query).mappings())
    if not found:
        raise UnknownMethodError(f"There is no method {name!r}, or nothing of it is published.")
    return found
