"""All teams' submissions as an organiser sees them: by state, snapshot and team, each with its age."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.db import models
from app.services.accounts import Identity
from app.services.submissions import SubmissionPage, SubmissionState, details_query, list_page


@dataclass(frozen=True)
class SubmissionFilter:
    """Which submissions: in a state, on a snapshot, of a team, flagged ones alone; None is all."""

    state: SubmissionState | None = None
    snapshot: str | None = None
    team: str | None = None
    is_flagged: bool | None = None


def list_all_submissions(
    session: Session, chosen: SubmissionFilter, *, account: Identity, limit: int = 50, cursor: str | None = None
) -> SubmissionPage:
    """Return every team's submissions that meet a filter, newest first; `account` is the organiser who asks."""
    query = details_query(account)
    if chosen.state is not None:
        query = query.where(models.Submission.state == chosen.state.value)
    if chosen.snapshot is not None:
        query = query.where(models.Snapshot.name == chosen.snapshot)
    if chosen.team is not None:
        query = query.where(models.Team.name == chosen.team)
    if chosen.is_flagged is not None:
        query = query.where(models.Submission.flag_reason.is_not(None) == chosen.is_flagged)
    return list_page(session, query, account=account, limit=limit, cursor=cursor)
