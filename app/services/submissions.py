"""The life of a submission: accepted, scored by a job, published or withdrawn; every change of state is an event."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Select, func, or_, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ForbiddenError, NotFoundError
from app.evaluator.measurements import ALL_SPLITS
from app.evaluator.scorers import current_scorer_version
from app.evaluator.strategies import Strategy
from app.files.snapshot import UnknownSplitError
from app.services import allowance, jobs
from app.services.accounts import Identity, Scope
from app.services.anonymity import hide_actor, hide_filename, hides_team, is_anonymous, shown_link, shown_team
from app.services.board_versions import list_score_versions, pin_board_version
from app.services.method_notes import NO_NOTES, SubmissionNotes, check_notes, ensure_method
from app.services.method_notes import InvalidSubmissionError as InvalidSubmissionError
from app.services.paging import parse_moment, read_cursor, write_cursor
from app.services.release import HiddenLabelsError as HiddenLabelsError
from app.services.snapshots import SnapshotNotFrozenError, get_snapshot, is_closed, list_splits
from app.services.submission_states import TRANSITIONS as TRANSITIONS
from app.services.submission_states import SubmissionState as SubmissionState
from app.services.submission_states import TransitionError as TransitionError
from app.services.submission_states import find_locked as find_locked
from app.services.submission_states import note_event as note_event
from app.services.submission_states import transition as transition
from app.services.submission_states import was_cancelled
from app.services.uploads import StoredFile

SYSTEM = "system"
QUEUE_DEADLINE = timedelta(hours=24)
WORKER_SILENCE_SECONDS = 60


class UnknownSubmissionError(NotFoundError):
    """No such submission, or not this reader's to see."""

    code = "unknown_submission"
    title = "No such submission"


@dataclass(frozen=True)
class SubmissionDetails:
    """A submission as its readers see it.

    `queue_place` is 1 for the next one to be scored and None where it does not wait; `was_cancelled` tells that it was
    withdrawn before it had a score, and may be queued again; `is_mine` tells whether the reader
    belongs to its team, and with that may publish or withdraw it. `is_anonymous` tells whether its team is hidden from
    others, `hides_team` whether from this reader: then `team` is "anonymous", and links and the file's name are too.
    """

    id: str
    method: str
    version: str | None
    team: str
    is_anonymous: bool
    hides_team: bool
    anonymous_until: datetime | None
    is_control: bool
    description: str | None
    paper_url: str | None
    code_url: str | None
    hardware: str | None
    snapshot: str
    snapshot_sha256: str
    kind: str
    split: str
    strategy: Strategy
    filename: str
    actions_sha256: str
    actions_bytes: int
    state: SubmissionState
    was_cancelled: bool
    is_current: bool
    is_baseline: bool
    is_verified: bool
    flag_reason: str | None
    flagged_at: datetime | None
    is_mine: bool
    problems: tuple[dict[str, Any], ...]
    warnings: tuple[dict[str, Any], ...]
    failure_reason: str | None
    n_settings: int | None
    attempts: int
    progress: float | None
    queue_place: int | None
    created_at: datetime
    scored_at: datetime | None
    published_at: datetime | None


@dataclass(frozen=True)
class SubmissionChange:
    """One event of a submission: who changed its state, when and why."""

    from_state: SubmissionState | None
    to_state: SubmissionState
    actor: str
    reason: str | None
    at: datetime


@dataclass(frozen=True)
class SubmissionPage:
    """Some submissions, newest first, and the cursor of the next page."""

    items: tuple[SubmissionDetails, ...]
    next_cursor: str | None


@dataclass(frozen=True)
class Accepted:
    """What became of an upload: a new submission, or the one these bytes already are."""

    submission_id: str
    created: bool


def accept_submission(
    session: Session,
    *,
    account: Identity,
    snapshot_name: str,
    split: str,
    strategy: Strategy,
    method_name: str,
    description: str | None,
    upload: StoredFile,
    filename: str,
    notes: SubmissionNotes = NO_NOTES,
    now: datetime | None = None,
) -> Accepted:
    """Take in an uploaded action file: a row, its first event and its scoring job appear together or not at all.

    The same bytes by the same team for the same snapshot, split and strategy are the submission that exists; where that
    one failed on our side or was cancelled, it is tried again. Raises where the team's allowance is spent.
    """
    now = now or _now()
    snapshot = get_snapshot(session, snapshot_name)
    check_target(session, snapshot, split=split)
    name = method_name.strip()
    target = {
        "team_id": account.team_id,
        "snapshot_id": snapshot.id,
        "split": split,
        "strategy": strategy.value,
        "actions_sha256": upload.sha256,
    }
    if _is_of_another_method(session, target, name=name):
        check_notes(name, description, notes, now=now)
        return _accept_again(session, target, actor=account.name, now=now)
    method = ensure_method(session, account, name=name, description=description, notes=notes, now=now)
    allowance.charge_new(session, account, snapshot, target=target, now=now)
    upload.keep()
    fields = {
        **target,
        "id": models.new_submission_id(),
        "method_id": method.id,
        "account_id": account.id,
        "actions_bytes": upload.size,
        "filename": filename,
        "version": notes.version,
        "hardware": notes.hardware,
        "deadline": now + QUEUE_DEADLINE,
        "charged_at": now,
    }
    added = insert(models.Submission).values(**fields).on_conflict_do_nothing(constraint="uq_submissions_same_bytes")
    submission_id = session.scalar(added.returning(models.Submission.id))
    if submission_id is None:
        return _accept_again(session, target, actor=account.name, now=now, notes=notes)
    session.add(
        models.SubmissionEvent(
            submission_id=submission_id, from_state=None, to_state=SubmissionState.RECEIVED.value, actor=account.name
        )
    )
    session.flush()
    jobs.defer_scoring(session, submission_id)
    return Accepted(submission_id, created=True)


def publish_submission(session: Session, submission_id: str, *, account: Identity) -> SubmissionDetails:
    """Show a scored submission on the board; publishing a published one changes nothing."""
    submission = lock_own(session, submission_id, account=account)
    if submission.state != SubmissionState.PUBLISHED:
        submission.published_at = _now()
        transition(session, submission, SubmissionState.PUBLISHED, actor=account.name)
        shown = pin_board_version(session, submission)
        if shown == current_scorer_version() and shown not in list_score_versions(session, submission.id):
            # A draft that was scored before the boards were given a newer version.
            jobs.defer_rescoring(session, submission.id)
        jobs.defer_ranking(session, submission.snapshot_id, split=submission.split, strategy=submission.strategy)
    return get_submission(session, submission_id, account=account)


def withdraw_submission(
    session: Session, submission_id: str, *, account: Identity, reason: str | None = None
) -> SubmissionDetails:
    """Take a submission off the board for good; it stays as a tombstone. Doing it again changes nothing."""
    submission = lock_own(session, submission_id, account=account)
    if submission.state != SubmissionState.WITHDRAWN:
        was_ranked = submission.state == SubmissionState.PUBLISHED
        submission.is_current = False
        transition(session, submission, SubmissionState.WITHDRAWN, actor=account.name, reason=reason)
        if was_ranked:
            jobs.defer_ranking(session, submission.snapshot_id, split=submission.split, strategy=submission.strategy)
    return get_submission(session, submission_id, account=account)


def retry_submission(session: Session, submission_id: str, *, account: Identity) -> SubmissionDetails:
    """Put a submission that failed on our side, or was cancelled, back into the queue with all its attempts."""
    submission = lock_own(session, submission_id, account=account)
    _requeue(session, submission, actor=account.name, reason="tried again by its team", now=_now())
    return get_submission(session, submission_id, account=account)


def get_submission(
    session: Session, submission_id: str, *, account: Identity | None, now: datetime | None = None
) -> SubmissionDetails:
    """Return a submission: to its team and to organisers always, to others once it is published, withdrawn or not."""
    query = details_query(account, now=now).where(models.Submission.id == submission_id)
    found = session.execute(query).mappings().one_or_none()
    if found is None or not _may_see(found, account):
        raise UnknownSubmissionError(f"There is no submission {submission_id!r}, or it is not published.")
    return _read_details(found, account)


def list_submissions(
    session: Session,
    *,
    account: Identity,
    actions_sha256: str | None = None,
    limit: int = 50,
    cursor: str | None = None,
) -> SubmissionPage:
    """Return the submissions of the account's teams, newest first; with a hash, those of a file with these bytes."""
    query = details_query(account).where(models.Submission.team_id.in_(account.team_ids))
    if actions_sha256 is not None:
        query = query.where(models.Submission.actions_sha256 == actions_sha256)
    return list_page(session, query, account=account, limit=limit, cursor=cursor)


def list_method_submissions(
    session: Session,
    *,
    method: str,
    account: Identity | None,
    limit: int = 50,
    cursor: str | None = None,
    now: datetime | None = None,
) -> SubmissionPage:
    """Return the submissions of the methods of this name that the reader may see, newest first."""
    visible = models.Submission.state == SubmissionState.PUBLISHED
    if account is not None:
        visible = or_(visible, models.Submission.team_id.in_(account.team_ids))
    query = details_query(account, now=now).where(models.Method.name == method, visible)
    return list_page(session, query, account=account, limit=limit, cursor=cursor)


def list_events(
    session: Session, submission_id: str, *, account: Identity | None, now: datetime | None = None
) -> tuple[SubmissionChange, ...]:
    """Return what happened to a submission, oldest first."""
    details = get_submission(session, submission_id, account=account, now=now)
    event = models.SubmissionEvent
    query = select(event).where(event.submission_id == submission_id).order_by(event.id)
    return tuple(
        SubmissionChange(
            from_state=None if found.from_state is None else SubmissionState(found.from_state),
            to_state=SubmissionState(found.to_state),
            actor=hide_actor(found.actor) if details.hides_team else found.actor,
            reason=found.reason,
            at=found.at,
        )
        for found in session.scalars(query)
    )


def may_organise(account: Identity | None) -> bool:
    """Whether an account may look at every team's submissions: an organiser, with a token to organise."""
    return account is not None and account.is_organiser and Scope.ORGANISE in account.scopes


def was_shown(submission: models.Submission) -> bool:
    """Whether everyone may know of a submission: it is published, or it was and left a tombstone."""
    is_tombstone = submission.state == SubmissionState.WITHDRAWN and submission.published_at is not None
    return submission.state == SubmissionState.PUBLISHED or is_tombstone


def worker_alive(session: Session) -> bool:
    """Tell whether a scoring worker gave a sign of life within the last minute."""
    return jobs.has_live_worker(session, timeout_seconds=WORKER_SILENCE_SECONDS)


def count_states(session: Session) -> dict[SubmissionState, int]:
    """Return how many submissions stand in each state."""
    query = select(models.Submission.state, func.count()).group_by(models.Submission.state)
    counts = {state: int(n) for state, n in session.execute(query)}
    return {state: counts.get(state.value, 0) for state in SubmissionState}


def check_target(session: Session, snapshot: models.Snapshot, *, split: str) -> None:
    """Raise unless files can be scored on this split: the snapshot is frozen and the labels are on this server.

    Where labels of some split are hidden, files address one split: `all` would tell the hidden ones from the open ones.
    """
    if not snapshot.is_frozen:
        raise SnapshotNotFrozenError(f"Snapshot {snapshot.name} is not frozen yet; nothing can be scored on it.")
    splits = list_splits(session, snapshot)
    if split not in splits:
        raise UnknownSplitError(f"Snapshot {snapshot.name} has no split {split!r}; it has {', '.join(splits)}.")
    if is_closed(snapshot, split):
        hint = " Name one split." if split == ALL_SPLITS else ""
        raise HiddenLabelsError(f"The labels of split {split!r} of snapshot {snapshot.name} are hidden.{hint}")


def _is_of_another_method(session: Session, target: Mapping[str, Any], *, name: str) -> bool:
    """Whether the team has submitted these bytes for this target already, under another method's name."""
    query = select(models.Method.name).join(models.Submission, models.Submission.method_id == models.Method.id)
    found = session.scalar(query.where(*_same_target(target)))
    return found is not None and found != name


def _accept_again(
    session: Session, target: Mapping[str, Any], *, actor: str, now: datetime, notes: SubmissionNotes = NO_NOTES
) -> Accepted:
    submission = find_locked(session, session.scalars(select(models.Submission.id).where(*_same_target(target))).one())
    assert submission is not None
    submission.version = notes.version or submission.version
    submission.hardware = notes.hardware or submission.hardware
    if submission.state == SubmissionState.FAILED or was_cancelled(submission):
        _requeue(session, submission, actor=actor, reason="uploaded again", now=now)
    return Accepted(submission.id, created=False)


def _same_target(target: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    return [getattr(models.Submission, name) == value for name, value in target.items()]


def _requeue(session: Session, submission: models.Submission, *, actor: str, reason: str, now: datetime) -> None:
    allowance.charge_again(session, submission, now=now)
    submission.attempts = 0
    submission.failure_reason = None
    submission.deadline = now + QUEUE_DEADLINE
    transition(session, submission, SubmissionState.RECEIVED, actor=actor, reason=reason)
    jobs.defer_scoring(session, submission.id)


def lock_own(session: Session, submission_id: str, *, account: Identity) -> models.Submission:
    """Lock a submission of one of the account's teams; one that others may see is theirs to read and not to change."""
    submission = find_locked(session, submission_id)
    is_mine = submission is not None and submission.team_id in account.team_ids
    if submission is None or not (is_mine or was_shown(submission)):
        raise UnknownSubmissionError(f"There is no submission {submission_id!r}, or it is not published.")
    if not is_mine:
        raise ForbiddenError(f"Submission {submission_id} belongs to another team.")
    return submission


def details_query(reader: Identity | None, *, now: datetime | None = None) -> Select[Any]:
    """Return the query of what `SubmissionDetails` holds, one row a submission, as `reader` may see it."""
    submission, method, team, snapshot = models.Submission, models.Method, models.Team, models.Snapshot
    now = now or _now()
    waiting = select(
        submission.id, func.row_number().over(order_by=(submission.created_at, submission.id)).label("place")
    )
    queue = waiting.where(submission.state == SubmissionState.RECEIVED).subquery()
    shown: tuple[Any, ...] = (
        method.name.label("method"),
        method.description,
        shown_link(method.paper_url, reader, now=now).label("paper_url"),
        shown_link(method.code_url, reader, now=now).label("code_url"),
        method.anonymous_until,
        is_anonymous(now).label("is_anonymous"),
        hides_team(reader, now=now).label("hides_team"),
        (method.is_control | team.is_control).label("is_control"),
        method.is_baseline,
        shown_team(reader, now=now).label("team"),
        snapshot.name.label("snapshot"),
        func.coalesce(snapshot.manifest["full_sha256"].as_string(), snapshot.sha256).label("snapshot_sha256"),
        snapshot.kind,
        queue.c.place.label("queue_place"),
    )
    return (
        select(submission, *shown)
        .join(method, method.id == submission.method_id)
        .join(team, team.id == submission.team_id)
        .join(snapshot, snapshot.id == submission.snapshot_id)
        .outerjoin(queue, queue.c.id == submission.id)
    )


def _may_see(found: Any, account: Identity | None) -> bool:
    submission: models.Submission = found["Submission"]
    if account is not None and (submission.team_id in account.team_ids or may_organise(account)):
        return True
    return was_shown(submission)


def _read_details(found: Any, account: Identity | None) -> SubmissionDetails:
    submission: models.Submission = found["Submission"]
    converted: dict[str, Any] = {
        "strategy": Strategy(submission.strategy),
        "state": SubmissionState(submission.state),
        "was_cancelled": was_cancelled(submission),
        "is_mine": account is not None and submission.team_id in account.team_ids,
        "problems": tuple(submission.problems),
        "warnings": tuple(submission.warnings),
        "filename": hide_filename(submission.filename) if found["hides_team"] else submission.filename,
    }
    names = [field.name for field in fields(SubmissionDetails) if field.name not in converted]
    plain = {name: found[name] if name in found else getattr(submission, name) for name in names}
    return SubmissionDetails(**converted, **plain)


def list_page(
    session: Session, query: Select[Any], *, account: Identity | None, limit: int, cursor: str | None
) -> SubmissionPage:
    """Return some of the submissions of a query of `details_query`, newest first."""
    submission = models.Submission
    if cursor is not None:
        created_at, last_id = read_cursor(cursor, n_parts=2)
        query = query.where(tuple_(submission.created_at, submission.id) < (parse_moment(created_at), last_id))
    query = query.order_by(submission.created_at.desc(), submission.id.desc()).limit(limit + 1)
    items = [_read_details(found, account) for found in session.execute(query).mappings()]
    shown = tuple(items[:limit])
    more = len(items) > limit
    return SubmissionPage(shown, write_cursor((shown[-1].created_at.isoformat(), shown[-1].id)) if more else None)


def _now() -> datetime:
    return datetime.now(UTC)
