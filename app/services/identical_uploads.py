"""The same bytes from several teams: for organisers alone, since a team is never told of another one's files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db import models

MOST_FILES = 200


@dataclass(frozen=True)
class IdenticalUpload:
    """One of the submissions of a file that several teams uploaded."""

    actions_sha256: str
    submission_id: str
    team: str
    method: str
    account: str
    is_control: bool
    snapshot: str
    split: str
    strategy: str
    state: str
    created_at: datetime


def list_identical_uploads(session: Session, *, actions_sha256: str | None = None) -> tuple[IdenticalUpload, ...]:
    """Return the submissions of files that more than one team uploaded, for whatever target.

    Files come by their newest submission, the newest first; at most 200 of them. With `actions_sha256` it is this one
    file's. Whoever withdrew one is listed too: the bytes are what they are.
    """
    submission, method, team, account = models.Submission, models.Method, models.Team, models.Account
    of_several = (
        select(submission.actions_sha256, func.max(submission.created_at).label("newest"))
        .group_by(submission.actions_sha256)
        .having(func.count(submission.team_id.distinct()) > 1)
        .order_by(func.max(submission.created_at).desc())
        .limit(MOST_FILES)
    )
    if actions_sha256 is not None:
        of_several = of_several.where(submission.actions_sha256 == actions_sha256)
    files = of_several.subquery()
    query = (
        select(
            submission.actions_sha256,
            submission.id.label("submission_id"),
            team.name.label("team"),
            method.name.label("method"),
            account.name.label("account"),
            (method.is_control | team.is_control).label("is_control"),
            models.Snapshot.name.label("snapshot"),
            submission.split,
            submission.strategy,
            submission.state,
            submission.created_at,
        )
        .join(files, files.c.actions_sha256 == submission.actions_sha256)
        .join(method, method.id == submission.method_id)
        .join(team, team.id == submission.team_id)
        .join(account, account.id == submission.account_id)
        .join(models.Snapshot, models.Snapshot.id == submission.snapshot_id)
        .order_by(files.c.newest.desc(), submission.actions_sha256, submission.created_at, submission.id)
    )
    return tuple(IdenticalUpload(**row) for row in session.execute(query).mappings())
