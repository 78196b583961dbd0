"""Methods by name."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import NotFoundError
from app.services.accounts import Identity
from app.services.submissions import SubmissionState


class UnknownMethodError(NotFoundError):
    """No method of this name that the reader may see."""

    code = "unknown_method"
    title = "No such method"


@dataclass(frozen=True)
class MethodDetails:
    """A method of a team; two teams may use the same name."""

    name: str
    team: str
    description: str | None
    is_control: bool
    created_at: datetime


def get_methods(session: Session, name: str, *, account: Identity | None) -> tuple[MethodDetails, ...]:
    """Return the methods of this name, by team: one's own always, those of others once something is published."""
    method, team, submission = models.Method, models.Team, models.Submission
    published = exists().where(submission.method_id == method.id, submission.state == SubmissionState.PUBLISHED.value)
    visible = published if account is None else published | method.team_id.in_(account.team_ids)
    query = (
        select(method, team)
        .join(team, team.id == method.team_id)
        .where(method.name == name, visible)
        .order_by(team.name)
    )
    found = tuple(
        MethodDetails(row.name, owner.name, row.description, row.is_control or owner.is_control, row.created_at)
        for row, owner in session.execute(query)
    )
    if not found:
        raise UnknownMethodError(f"There is no method {name!r}, or nothing of it is published.")
    return found
