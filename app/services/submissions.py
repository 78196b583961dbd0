"""The life of a submission: accepted, scored by a job, published or withdrawn; every change of state is an event."""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Select, func, or_, select, tuple_
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ContentError, ForbiddenError, NotFoundError, StateError
from app.evaluator.strategies import Strategy
from app.files.snapshot import UnknownSplitError
from app.services import allowance, jobs
from app.services.accounts import Identity
from app.services.paging import parse_moment, read_cursor, write_cursor
from app.services.snapshots import SnapshotNotFrozenError, get_snapshot, labels_hidden, list_splits
from app.services.uploads import StoredFile

SYSTEM = "system"
QUEUE_DEADLINE = timedelta(hours=24)
WORKER_SILENCE_SECONDS = 60
MAX_METHOD_NAME = 200
MAX_DESCRIPTION = 2000


class SubmissionState(StrEnum):
    """Where a submission stands; the value is the name in the database, REST and on pages."""

    RECEIVED = "received"
    VALIDATING = "validating"
    SCORING = "scoring"
    SCORED = "scored"
    WITHHELD = "withheld"
    PUBLISHED = "published"
    REJECTED = "rejected"
    FAILED = "failed"
    WITHDRAWN = "withdrawn"

    @property
    def is_waiting(self) -> bool:
        """Whether a job still has to end this state."""
        return self in (SubmissionState.RECEIVED, SubmissionState.VALIDATING, SubmissionState.SCORING)


# What may follow what. A state that a job holds can go back to `received` when its worker was lost or failed.
TRANSITIONS: dict[SubmissionState, frozenset[SubmissionState]] = {
    SubmissionState.RECEIVED: frozenset(
        {SubmissionState.VALIDATING, SubmissionState.FAILED, SubmissionState.WITHDRAWN}
    ),
    SubmissionState.VALIDATING: frozenset(
        {
            SubmissionState.SCORING,
            SubmissionState.REJECTED,
            SubmissionState.RECEIVED,
            SubmissionState.FAILED,
            SubmissionState.WITHDRAWN,
        }
    ),
    SubmissionState.SCORING: frozenset(
        {
            SubmissionState.SCORED,
            SubmissionState.WITHHELD,
            SubmissionState.RECEIVED,
            SubmissionState.FAILED,
            SubmissionState.WITHDRAWN,
        }
    ),
    SubmissionState.SCORED: frozenset({SubmissionState.PUBLISHED, SubmissionState.WITHDRAWN}),
    SubmissionState.WITHHELD: frozenset({SubmissionState.SCORED, SubmissionState.WITHDRAWN}),
    SubmissionState.PUBLISHED: frozenset({SubmissionState.WITHDRAWN}),
    SubmissionState.REJECTED: frozenset({SubmissionState.WITHDRAWN}),
    SubmissionState.FAILED: frozenset({SubmissionState.RECEIVED, SubmissionState.WITHDRAWN}),
    SubmissionState.WITHDRAWN: frozenset(),
}


class TransitionError(StateError):
    """A change of state that the table of transitions does not have."""

    code = "wrong_state"
    title = "The submission's state does not allow this"


class UnknownSubmissionError(NotFoundError):
    """No such submission, or not this reader's to see."""

    code = "unknown_submission"
    title = "No such submission"


class HiddenLabelsError(ForbiddenError):
    """Scoring on a split whose labels are hidden."""

    code = "labels_hidden"
    title = "The labels of this split are hidden"


class InvalidSubmissionError(ContentError):
    """A field of the submission's form is empty, too long or unknown."""

    code = "invalid_submission"
    title = "The submission cannot be accepted"


@dataclass(frozen=True)
class SubmissionDetails:
    """A submission as its readers see it.

    `queue_place` is 1 for the next one to be scored and None where it does not wait; `is_mine` tells whether the reader
    belongs to its team, and with that may publish or withdraw it.
    """

    id: str
    method: str
    team: str
    is_control: bool
    description: str | None
    snapshot: str
    snapshot_sha256: str
    kind: str
    split: str
    strategy: Strategy
    filename: str
    actions_sha256: str
    actions_bytes: int
    state: SubmissionState
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
    now: datetime | None = None,
) -> Accepted:
    """Take in an uploaded action file: a row, its first event and its scoring job appear together or not at all.

    The same bytes by the same team for the same snapshot, split and strategy are the submission that exists; where that
    one failed on our side, it is tried again. Raises where the team's allowance is spent.
    """
    now = now or _now()
    snapshot = get_snapshot(session, snapshot_name)
    check_target(session, snapshot, split=split)
    method = _ensure_method(session, account, name=method_name.strip(), description=description)
    target = {"snapshot_id": snapshot.id, "split": split, "strategy": strategy.value, "actions_sha256": upload.sha256}
    allowance.charge_new(session, account, snapshot, target=target, now=now)
    upload.keep()
    fields = {
        "id": models.new_submission_id(),
        "team_id": account.team_id,
        "method_id": method.id,
        "account_id": account.id,
        "snapshot_id": snapshot.id,
        "split": split,
        "strategy": strategy.value,
        "actions_sha256": upload.sha256,
        "actions_bytes": upload.size,
        "filename": filename,
        "deadline": now + QUEUE_DEADLINE,
        "charged_at": now,
    }
    added = insert(models.Submission).values(**fields).on_conflict_do_nothing(constraint="uq_submissions_same_bytes")
    submission_id = session.scalar(added.returning(models.Submission.id))
    if submission_id is None:
        return _accept_again(session, fields, actor=account.name)
    session.add(
        models.SubmissionEvent(
            submission_id=submission_id, from_state=None, to_state=SubmissionState.RECEIVED.value, actor=account.name
        )
    )
    session.flush()
    jobs.defer_scoring(session, submission_id)
    return Accepted(submission_id, created=True)


def transition(
    session: Session, submission: models.Submission, to_state: SubmissionState, *, actor: str, reason: str | None = None
) -> None:
    """Move a locked submission to another state and write the event; `TransitionError` where that is not allowed."""
    from_state = SubmissionState(submission.state)
    if to_state not in TRANSITIONS[from_state]:
        raise TransitionError(f"Submission {submission.id} is {from_state}; it cannot become {to_state}.")
    submission.state = to_state.value
    if not to_state.is_waiting:
        submission.deadline = None
        submission.progress = None
    session.add(
        models.SubmissionEvent(
            submission_id=submission.id,
            from_state=from_state.value,
            to_state=to_state.value,
            actor=actor,
            reason=reason,
        )
    )
    session.flush()


def note_event(session: Session, submission: models.Submission, *, actor: str, reason: str) -> None:
    """Write an event that changes no state, such as a mark, so that the submission's page tells of it."""
    session.add(
        models.SubmissionEvent(
            submission_id=submission.id,
            from_state=submission.state,
            to_state=submission.state,
            actor=actor,
            reason=reason,
        )
    )
    session.flush()


def find_locked(session: Session, submission_id: str) -> models.Submission | None:
    """Return the submission, locked until the transaction ends and read afresh, or None."""
    query = (
        select(models.Submission)
        .where(models.Submission.id == submission_id)
        .with_for_update()
        .execution_options(populate_existing=True)
    )
    return session.scalar(query)


def publish_submission(session: Session, submission_id: str, *, account: Identity) -> SubmissionDetails:
    """Show a scored submission on the board; publishing a published one changes nothing."""
    submission = lock_own(session, submission_id, account=account)
    if submission.state != SubmissionState.PUBLISHED:
        submission.published_at = _now()
        transition(session, submission, SubmissionState.PUBLISHED, actor=account.name)
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
    """Put a submission that failed on our side back into the queue with all its attempts."""
    submission = lock_own(session, submission_id, account=account)
    _requeue_failed(session, submission, actor=account.name, reason="tried again by its team")
    return get_submission(session, submission_id, account=account)


def get_submission(session: Session, submission_id: str, *, account: Identity | None) -> SubmissionDetails:
    """Return a submission: to its team always, to others once it is published, and then also when it was withdrawn."""
    found = session.execute(_details_query().where(models.Submission.id == submission_id)).mappings().one_or_none()
    if found is None or not _may_see(found, account):
        raise UnknownSubmissionError(f"There is no submission {submission_id!r}, or it is not published.")
    return _read_details(found, account)


def list_submissions(
    session: Session, *, account: Identity, limit: int = 50, cursor: str | None = None
) -> SubmissionPage:
    """Return the submissions of the account's teams, newest first."""
    query = _details_query().where(models.Submission.team_id.in_(account.team_ids))
    return _list_page(session, query, account=account, limit=limit, cursor=cursor)


def list_method_submissions(
    session: Session, *, method: str, account: Identity | None, limit: int = 50, cursor: str | None = None
) -> SubmissionPage:
    """Return the submissions of the methods of this name that the reader may see, newest first."""
    visible = models.Submission.state == SubmissionState.PUBLISHED
    if account is not None:
        visible = or_(visible, models.Submission.team_id.in_(account.team_ids))
    query = _details_query().where(models.Method.name == method, visible)
    return _list_page(session, query, account=account, limit=limit, cursor=cursor)


def list_events(session: Session, submission_id: str, *, account: Identity | None) -> tuple[SubmissionChange, ...]:
    """Return what happened to a submission, oldest first."""
    get_submission(session, submission_id, account=account)
    event = models.SubmissionEvent
    query = select(event).where(event.submission_id == submission_id).order_by(event.id)
    return tuple(
        SubmissionChange(
            from_state=None if found.from_state is None else SubmissionState(found.from_state),
            to_state=SubmissionState(found.to_state),
            actor=found.actor,
            reason=found.reason,
            at=found.at,
        )
        for found in session.scalars(query)
    )


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
    """Raise unless files can be scored on this split: the snapshot is frozen and the split's labels are not hidden."""
    if not snapshot.is_frozen:
        raise SnapshotNotFrozenError(f"Snapshot {snapshot.name} is not frozen yet; nothing can be scored on it.")
    splits = list_splits(session, snapshot)
    if split not in splits:
        raise UnknownSplitError(f"Snapshot {snapshot.name} has no split {split!r}; it has {', '.join(splits)}.")
    if labels_hidden(snapshot, split):
        raise HiddenLabelsError(f"The labels of split {split!r} of snapshot {snapshot.name} are hidden.")


def _ensure_method(session: Session, account: Identity, *, name: str, description: str | None) -> models.Method:
    if not name or len(name) > MAX_METHOD_NAME or not name.isprintable():
        raise InvalidSubmissionError(f"A method's name has 1 to {MAX_METHOD_NAME} printable characters.")
    if description is not None and len(description) > MAX_DESCRIPTION:
        raise InvalidSubmissionError(f"A method's description has at most {MAX_DESCRIPTION} characters.")
    # An update, so that the statement also returns a row that exists or that another request is adding just now.
    added = insert(models.Method).values(
        team_id=account.team_id, name=name, description=description, is_control=account.is_control
    )
    ensured = added.on_conflict_do_update(
        index_elements=["team_id", "name"],
        set_={"description": func.coalesce(added.excluded.description, models.Method.description)},
    )
    return session.scalars(ensured.returning(models.Method)).one()


def _accept_again(session: Session, fields: dict[str, Any], *, actor: str) -> Accepted:
    same = ("team_id", "snapshot_id", "split", "strategy", "actions_sha256")
    query = select(models.Submission.id).where(*(getattr(models.Submission, name) == fields[name] for name in same))
    submission = find_locked(session, session.scalars(query).one())
    assert submission is not None
    if submission.state == SubmissionState.FAILED:
        _requeue_failed(session, submission, actor=actor, reason="uploaded again")
    return Accepted(submission.id, created=False)


def _requeue_failed(session: Session, submission: models.Submission, *, actor: str, reason: str) -> None:
    allowance.charge_again(session, submission, now=_now())
    submission.attempts = 0
    submission.failure_reason = None
    submission.deadline = _now() + QUEUE_DEADLINE
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


def _details_query() -> Select[Any]:
    submission, method, team, snapshot = models.Submission, models.Method, models.Team, models.Snapshot
    waiting = select(
        submission.id, func.row_number().over(order_by=(submission.created_at, submission.id)).label("place")
    )
    queue = waiting.where(submission.state == SubmissionState.RECEIVED).subquery()
    return (
        select(
            submission,
            method.name.label("method"),
            method.description,
            (method.is_control | team.is_control).label("is_control"),
            method.is_baseline,
            team.name.label("team"),
            snapshot.name.label("snapshot"),
            func.coalesce(snapshot.manifest["full_sha256"].as_string(), snapshot.sha256).label("snapshot_sha256"),
            snapshot.kind,
            queue.c.place.label("queue_place"),
        )
        .join(method, method.id == submission.method_id)
        .join(team, team.id == submission.team_id)
        .join(snapshot, snapshot.id == submission.snapshot_id)
        .outerjoin(queue, queue.c.id == submission.id)
    )


def _may_see(found: Any, account: Identity | None) -> bool:
    submission: models.Submission = found["Submission"]
    mine = account is not None and submission.team_id in account.team_ids
    return mine or was_shown(submission)


def _read_details(found: Any, account: Identity | None) -> SubmissionDetails:
    submission: models.Submission = found["Submission"]
    converted: dict[str, Any] = {
        "strategy": Strategy(submission.strategy),
        "state": SubmissionState(submission.state),
        "is_mine": account is not None and submission.team_id in account.team_ids,
        "problems": tuple(submission.problems),
        "warnings": tuple(submission.warnings),
    }
    names = [field.name for field in fields(SubmissionDetails) if field.name not in converted]
    plain = {name: found[name] if name in found else getattr(submission, name) for name in names}
    return SubmissionDetails(**converted, **plain)


def _list_page(
    session: Session, query: Select[Any], *, account: Identity | None, limit: int, cursor: str | None
) -> SubmissionPage:
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
