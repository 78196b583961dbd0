"""How much a team may still submit on a snapshot: one function counts, and page, REST and command all ask it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, or_, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import models
from app.errors import AppError, TooManyRequestsError
from app.evaluator.measurements import SPLITS
from app.services.accounts import Identity
from app.services.release import are_labels_told

WINDOW = timedelta(hours=24)
WAITING_STATES = ("received", "validating", "scoring")


class AllowanceSpentError(TooManyRequestsError):
    """The team has submitted as much as it may for now; `Retry-After` says when it may again."""

    code = "allowance_spent"
    title = "The allowance is spent for now"


class AllowanceExhaustedError(AppError):
    """The team may not submit here any more: waiting does not help."""

    status = 403
    code = "allowance_exhausted"
    title = "The allowance is used up"


@dataclass(frozen=True)
class Limits:
    """How much a team may submit on one snapshot.

    Attributes
    ----------
    hidden_per_day, hidden_total : scored submissions on splits whose labels are hidden, in 24 hours and in all.
    open_per_day : on all other splits, in 24 hours; None is no limit.
    rejected_per_day : files with problems in 24 hours, and submissions withdrawn before they had a score, counted on
        the splits that have a limit at all.
    """

    hidden_per_day: int = 5
    hidden_total: int = 100
    open_per_day: int | None = None
    rejected_per_day: int = 50


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Meter:
    """One limit and how much of it is used.

    `limit` and `left` are None where there is none. `next_at` is when one more fits, None where one does now, or where
    waiting does not help.
    """

    limit: int | None
    used: int
    left: int | None
    next_at: datetime | None


@dataclass(frozen=True)
class Allowance:
    """What a team may still submit on a snapshot.

    Attributes
    ----------
    hidden_splits : the splits that `hidden_day` and `hidden_total` are about; without any these two never matter.
    hidden_day, hidden_total : submissions on hidden splits that were scored or still are to be, in 24 hours, in all.
    open_day : the same on the other splits in 24 hours.
    rejected_day : rejected files on splits with a limit, in 24 hours.
    """

    snapshot: str
    hidden_splits: tuple[str, ...]
    hidden_day: Meter
    hidden_total: Meter
    open_day: Meter
    rejected_day: Meter


@dataclass(frozen=True)
class _Charges:
    """When what was charged to which meter; one moment a submission."""

    hidden: tuple[datetime, ...]
    open: tuple[datetime, ...]
    rejected: tuple[datetime, ...]


def get_allowance(session: Session, team_id: int, snapshot: models.Snapshot, *, now: datetime) -> Allowance:
    """Return what a team may still submit on a snapshot at a moment.

    A submission counts from its acceptance: while it is on its way, and for good once it has a score, withdrawn or
    not. One that failed on our side does not count. A file that was rejected counts as such, and so does a submission
    that was withdrawn before it had a score. What was charged later than `now`, by a clock that went back, counts.
    """
    limits = find_limits(session, team_id, snapshot.id)
    charges = _list_charges(session, team_id, snapshot, limits=limits, now=now)
    return Allowance(
        snapshot=snapshot.name,
        hidden_splits=tuple(split for split in SPLITS if not are_labels_told(snapshot, split)),
        hidden_day=build_meter(charges.hidden, limits.hidden_per_day, now=now),
        hidden_total=replace(build_meter(charges.hidden, limits.hidden_total, now=None), next_at=None),
        open_day=build_meter(charges.open, limits.open_per_day, now=now),
        rejected_day=build_meter(charges.rejected, limits.rejected_per_day, now=now),
    )


def build_meter(charged: Sequence[datetime], limit: int | None, *, now: datetime | None) -> Meter:
    """Return a meter of what was charged in the 24 hours before `now`, or ever where that is None.

    A charge leaves the window exactly 24 hours after it was made.
    """
    counted = sorted(moment for moment in charged if now is None or moment > now - WINDOW)
    if limit is None:
        return Meter(None, len(counted), None, None)
    left = max(0, limit - len(counted))
    # The first moment at which fewer than the limit are left in the window.
    next_at = counted[len(counted) - limit] + WINDOW if left == 0 and limit > 0 else None
    return Meter(limit, len(counted), left, next_at)


def charge_new(
    session: Session, account: Identity, snapshot: models.Snapshot, *, target: Mapping[str, Any], now: datetime
) -> None:
    """Make sure that a file may be accepted that is about to be; the row that follows is its charge.

    `target` is what makes the team's submission the one that it is: where there is one, nothing is charged again.
    The controls have no limit. Raises as `require_allowance`.
    """
    split = target["split"]
    if account.is_control or not _is_limited(session, account.team_id, snapshot, split=split):
        return
    _lock(session, account.team_id, snapshot.id)
    submission = models.Submission
    same = [getattr(submission, name) == value for name, value in target.items()]
    if session.scalar(select(submission.id).where(submission.team_id == account.team_id, *same)) is None:
        require_allowance(session, account.team_id, snapshot, split=split, now=now)


def charge_again(session: Session, submission: models.Submission, *, now: datetime) -> None:
    """Charge a submission that failed on our side, and so had its charge back, as it is tried again."""
    snapshot = session.get_one(models.Snapshot, submission.snapshot_id)
    is_control = session.scalar(select(models.Team.is_control).where(models.Team.id == submission.team_id))
    if not is_control and _is_limited(session, submission.team_id, snapshot, split=submission.split):
        _lock(session, submission.team_id, snapshot.id)
        require_allowance(session, submission.team_id, snapshot, split=submission.split, now=now)
    submission.charged_at = now


def require_allowance(session: Session, team_id: int, snapshot: models.Snapshot, *, split: str, now: datetime) -> None:
    """Raise unless the team may submit one more file on a split.

    Raises
    ------
    AllowanceExhaustedError : it may never again, as things stand.
    AllowanceSpentError : not now, with the seconds to wait.
    """
    if not _is_limited(session, team_id, snapshot, split=split):
        return
    allowance = get_allowance(session, team_id, snapshot, now=now)
    if are_labels_told(snapshot, split):
        meters = {"submissions": allowance.open_day}
    else:
        meters = {"scored submissions": allowance.hidden_day, "scored submissions in all": allowance.hidden_total}
    meters["rejected files"] = allowance.rejected_day
    spent = {name: meter for name, meter in meters.items() if meter.left == 0}
    for name, meter in spent.items():
        if meter.next_at is None:
            raise AllowanceExhaustedError(
                f"Your team has used {meter.used} of its {meter.limit} {name} on snapshot {snapshot.name}."
            )
    waits = {name: meter.next_at for name, meter in spent.items() if meter.next_at is not None}
    if waits:
        name = max(waits, key=lambda name: waits[name])
        seconds = math.ceil((waits[name] - now).total_seconds())
        raise AllowanceSpentError(
            f"Your team has used its {meters[name].limit} {name} in 24 hours on snapshot {snapshot.name}; "
            f"the next one fits at {waits[name]:%Y-%m-%d %H:%M:%S} UTC.",
            retry_after_seconds=seconds,
        )


def find_team_id(session: Session, submission_id: str) -> int:
    """Return the team that a submission is charged to."""
    return session.scalars(select(models.Submission.team_id).where(models.Submission.id == submission_id)).one()


def find_limits(session: Session, team_id: int, snapshot_id: int) -> Limits:
    """Return the limits of a team on a snapshot: each one its own, else the snapshot's, else the default."""
    table = models.AllowanceLimit
    query = (
        select(table)
        .where(table.snapshot_id == snapshot_id, or_(table.team_id == team_id, table.team_id.is_(None)))
        .order_by(table.team_id.nulls_first())
    )
    found = DEFAULT_LIMITS
    for row in session.scalars(query):
        stored = {field.name: getattr(row, field.name) for field in fields(Limits)}
        found = replace(found, **{name: value for name, value in stored.items() if value is not None})
    return found


def set_limits(
    session: Session, snapshot: models.Snapshot, *, team_id: int | None, limits: dict[str, int | None]
) -> None:
    """Set limits of a team on a snapshot, or of every team where none is named; None takes a limit back.

    Only the names in `limits` are changed.
    """
    unknown = limits.keys() - {field.name for field in fields(Limits)}
    if unknown:
        raise ValueError(f"no such limits: {sorted(unknown)}")
    table = models.AllowanceLimit
    row = session.scalar(
        select(table)
        .where(table.snapshot_id == snapshot.id, table.team_id.is_not_distinct_from(team_id))
        .with_for_update()
    )
    if row is None:
        session.execute(
            insert(table).values(snapshot_id=snapshot.id, team_id=team_id, **limits).on_conflict_do_nothing()
        )
    else:
        for name, value in limits.items():
            setattr(row, name, value)
    session.flush()


def _lock(session: Session, team_id: int, snapshot_id: int) -> None:
    """Let the submissions of a team on a snapshot be counted one after the other, until the transaction ends."""
    name = f"otboard allowance {team_id} {snapshot_id}"
    session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))


def _is_limited(session: Session, team_id: int, snapshot: models.Snapshot, *, split: str) -> bool:
    return not are_labels_told(snapshot, split) or find_limits(session, team_id, snapshot.id).open_per_day is not None


def _list_charges(
    session: Session, team_id: int, snapshot: models.Snapshot, *, limits: Limits, now: datetime
) -> _Charges:
    submission = models.Submission
    has_score = select(models.Score.id).where(models.Score.submission_id == submission.id).exists()
    hidden_splits = [split for split in (*SPLITS, "all") if not are_labels_told(snapshot, split)]
    is_hidden = submission.split.in_(hidden_splits)
    query = select(submission.charged_at, submission.state, is_hidden, has_score).where(
        submission.team_id == team_id,
        submission.snapshot_id == snapshot.id,
        submission.state != "failed",
        or_(is_hidden, submission.charged_at > now - WINDOW),
    )
    hidden: list[datetime] = []
    open_: list[datetime] = []
    rejected: list[datetime] = []
    for charged_at, state, on_hidden, scored in session.execute(query):
        if scored or state in WAITING_STATES:
            (hidden if on_hidden else open_).append(charged_at)
        elif on_hidden or limits.open_per_day is not None:
            rejected.append(charged_at)
    return _Charges(tuple(hidden), tuple(open_), tuple(rejected))
