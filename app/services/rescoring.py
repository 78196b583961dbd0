"""Re-scoring: new scores beside the old ones by the scorer in force, then all boards switch at once, or none does."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy import ColumnElement, Select, and_, func, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import models
from app.errors import NotFoundError, StateError
from app.evaluator.centring import INTERVAL_VERSION
from app.evaluator.scorers import current_scorer_version
from app.evaluator.strategies import Strategy
from app.services import jobs
from app.services.audit import record_audit
from app.services.snapshots import get_snapshot

OPEN_STATES = ("running", "ready")
WAITING_STATES = ("waiting", "scoring")
# What has a score that somebody may still look at, or publish.
RESCORED_STATES = ("scored", "withheld", "published")
ITEM_DEADLINE = timedelta(hours=24)
SHOWN_FAILURES = 100


class UnknownRescoringError(NotFoundError):
    """No re-scoring has this number."""

    code = "unknown_rescoring"
    title = "No such re-scoring"


class RescoringStateError(StateError):
    """The re-scoring's state does not allow this."""

    code = "rescoring_state"
    title = "The re-scoring's state does not allow this"


class NothingToRescoreError(StateError):
    """Every board that was named shows the scorer version in force already."""

    code = "nothing_to_rescore"
    title = "There is nothing to re-score"


@dataclass(frozen=True)
class RescoredBoard:
    """The boards of a split and strategy, and the version that they showed when the re-scoring began."""

    split: str
    strategy: Strategy
    from_version: str


@dataclass(frozen=True)
class FailedRescoring:
    """A submission that could not be scored again, and why."""

    submission_id: str
    method: str
    team: str
    reason: str


@dataclass(frozen=True)
class RescoringStatus:
    """How far a re-scoring is.

    `n_done` of `n_submissions` have a score of `to_version`, `n_resampled` of those have intervals too, or are on a
    split without any. `state` is `running`, `ready` (nothing waits any more), `applied` or `cancelled`.
    """

    id: int
    snapshot: str
    to_version: str
    state: str
    boards: tuple[RescoredBoard, ...]
    n_submissions: int
    n_waiting: int
    n_scoring: int
    n_done: int
    n_failed: int
    n_resampled: int
    failed: tuple[FailedRescoring, ...]
    actor: str
    created_at: datetime
    ended_by: str | None
    ended_at: datetime | None

    @property
    def is_open(self) -> bool:
        """Whether it can still be applied or cancelled."""
        return self.state in OPEN_STATES


def start_rescoring(
    session: Session, *, snapshot_name: str, split: str | None, strategy: Strategy | None, actor: str
) -> RescoringStatus:
    """Queue new scores, by the scorer in force, of what stands on boards that show another version.

    Parameters
    ----------
    split, strategy : of the boards; None is all of the snapshot's.

    Raises
    ------
    NothingToRescoreError : none of the boards shows another version.
    RescoringStateError : another re-scoring of the snapshot is still open.
    """
    snapshot = get_snapshot(session, snapshot_name)
    version = current_scorer_version()
    table = models.BoardVersion
    query = select(table).where(table.snapshot_id == snapshot.id, table.scorer_version != version)
    if split is not None:
        query = query.where(table.split == split)
    if strategy is not None:
        query = query.where(table.strategy == strategy.value)
    boards = list(session.scalars(query.order_by(table.split, table.strategy)))
    if not boards:
        raise NothingToRescoreError(f"No such board of snapshot {snapshot.name} shows another version than {version}.")
    added = insert(models.Rescoring).values(snapshot_id=snapshot.id, to_version=version, actor=actor)
    rescoring = session.scalar(added.on_conflict_do_nothing().returning(models.Rescoring))
    if rescoring is None:
        raise RescoringStateError(f"A re-scoring of snapshot {snapshot.name} is open; apply or cancel that one first.")
    session.add_all(
        models.RescoringBoard(
            rescoring_id=rescoring.id, split=row.split, strategy=row.strategy, from_version=row.scorer_version
        )
        for row in boards
    )
    session.flush()
    add_missing_items(session, rescoring)
    record_audit(
        session,
        actor=actor,
        action="start_rescoring",
        subject=f"snapshot {snapshot.name}",
        details={
            "rescoring": rescoring.id,
            "to_version": version,
            "boards": [f"{b.split} {b.strategy}" for b in boards],
        },
    )
    return get_rescoring(session, rescoring.id)


def add_missing_items(session: Session, rescoring: models.Rescoring) -> int:
    """Take in what was scored by an older version since the re-scoring began, and return how many submissions wait.

    What has a score of the new version already needs none: a re-scoring that was cancelled is taken up where it was.
    """
    item, now = models.RescoringItem, datetime.now(UTC)
    columns = ["rescoring_id", "submission_id", "state", "deadline", "finished_at"]
    missing = insert(item).from_select(
        columns,
        select(
            literal(rescoring.id), models.Submission.id, literal("waiting"), literal(now + ITEM_DEADLINE), literal(None)
        ).where(*_is_rescored(rescoring), ~_has_score(rescoring.to_version)),
    )
    unless_there = missing.on_conflict_do_nothing(constraint="uq_rescoring_items_submission")
    added = list(session.scalars(unless_there.returning(item.submission_id)))
    done = insert(item).from_select(
        columns,
        select(literal(rescoring.id), models.Submission.id, literal("done"), literal(None), literal(now)).where(
            *_is_rescored(rescoring), _has_score(rescoring.to_version), _has_older_score(rescoring.to_version)
        ),
    )
    session.execute(done.on_conflict_do_nothing(constraint="uq_rescoring_items_submission"))
    for submission_id in added:
        jobs.defer_rescoring(session, submission_id)
    refresh_state(session, rescoring)
    return len(added)


def refresh_state(session: Session, rescoring: models.Rescoring) -> None:
    """Let a re-scoring be ready once nothing of it waits, and run again where something does."""
    item = models.RescoringItem
    waiting = select(item.id).where(item.rescoring_id == rescoring.id, item.state.in_(WAITING_STATES)).exists()
    if rescoring.state in OPEN_STATES:
        rescoring.state = "running" if session.scalar(select(waiting)) else "ready"
        session.flush()


def retry_rescoring(session: Session, rescoring_id: int, *, actor: str) -> RescoringStatus:
    """Queue the submissions again that could not be scored, with all their attempts."""
    rescoring = lock_open(session, rescoring_id)
    item = models.RescoringItem
    again = (
        update(item)
        .where(item.rescoring_id == rescoring.id, item.state == "failed")
        .values(
            state="waiting",
            attempts=0,
            failure_reason=None,
            finished_at=None,
            deadline=datetime.now(UTC) + ITEM_DEADLINE,
        )
        .returning(item.submission_id)
    )
    for submission_id in list(session.scalars(again)):
        jobs.defer_rescoring(session, submission_id)
    refresh_state(session, rescoring)
    _record(session, rescoring, actor=actor, action="retry_rescoring")
    return get_rescoring(session, rescoring.id)


def cancel_rescoring(session: Session, rescoring_id: int, *, actor: str) -> RescoringStatus:
    """Give a re-scoring up: the boards stay as they are. Scores it has made are kept for the next one."""
    rescoring = lock_rescoring(session, rescoring_id)
    if rescoring.state != "cancelled":
        _require_open(rescoring)
        _end(session, rescoring, state="cancelled", actor=actor)
        _record(session, rescoring, actor=actor, action="cancel_rescoring")
    return get_rescoring(session, rescoring.id)


def apply_rescoring(session: Session, rescoring_id: int, *, leave_out_failed: bool, actor: str) -> RescoringStatus:
    """Let all boards of a re-scoring show the new version, in the session's transaction; applying again does nothing.

    Parameters
    ----------
    leave_out_failed : apply although some submissions have no new score; they are then on no board.

    Raises
    ------
    RescoringStateError : scores are still missing, or the re-scoring was cancelled.
    """
    rescoring = lock_rescoring(session, rescoring_id)
    if rescoring.state == "applied":
        return get_rescoring(session, rescoring.id)
    _require_open(rescoring)
    add_missing_items(session, rescoring)
    status = get_rescoring(session, rescoring.id)
    if rescoring.state != "ready":
        n_left = status.n_waiting + status.n_scoring
        raise RescoringStateError(
            f"Re-scoring {rescoring.id} is not ready: {n_left} submissions still wait for a score."
        )
    if status.n_failed and not leave_out_failed:
        raise RescoringStateError(
            f"{status.n_failed} submissions of re-scoring {rescoring.id} could not be scored: try them again, or say "
            f"that they shall be left out."
        )
    table, boards = models.BoardVersion, status.boards
    chosen = or_(*(and_(table.split == b.split, table.strategy == b.strategy.value) for b in boards))
    switch = update(table).where(table.snapshot_id == rescoring.snapshot_id, chosen)
    session.execute(switch.values(scorer_version=rescoring.to_version))
    _end(session, rescoring, state="applied", actor=actor)
    for board in boards:
        jobs.defer_ranking(session, rescoring.snapshot_id, split=board.split, strategy=board.strategy.value)
    _record(session, rescoring, actor=actor, action="apply_rescoring", n_left_out=status.n_failed)
    return get_rescoring(session, rescoring.id)


def get_rescoring(session: Session, rescoring_id: int) -> RescoringStatus:
    """Return how far a re-scoring is or raise `UnknownRescoringError`."""
    (status,) = _read(session, select(models.Rescoring).where(models.Rescoring.id == rescoring_id)) or (None,)
    if status is None:
        raise UnknownRescoringError(f"There is no re-scoring {rescoring_id}.")
    return status


def list_rescorings(session: Session, *, limit: int = 50) -> tuple[RescoringStatus, ...]:
    """Return the newest re-scorings, newest first."""
    return _read(session, select(models.Rescoring).order_by(models.Rescoring.id.desc()).limit(limit))


def list_outdated_boards(session: Session) -> tuple[tuple[str, RescoredBoard], ...]:
    """Return the boards that show another version than the one in force, each with its snapshot's name."""
    table, snapshot = models.BoardVersion, models.Snapshot
    query = (
        select(snapshot.name, table.split, table.strategy, table.scorer_version)
        .join(snapshot, snapshot.id == table.snapshot_id)
        .where(table.scorer_version != current_scorer_version())
        .order_by(snapshot.id, table.split, table.strategy)
    )
    return tuple(
        (name, RescoredBoard(split, Strategy(strategy), version))
        for name, split, strategy, version in session.execute(query)
    )


def lock_rescoring(session: Session, rescoring_id: int) -> models.Rescoring:
    """Lock a re-scoring until the transaction ends, or raise `UnknownRescoringError`."""
    query = select(models.Rescoring).where(models.Rescoring.id == rescoring_id).with_for_update()
    found = session.scalar(query.execution_options(populate_existing=True))
    if found is None:
        raise UnknownRescoringError(f"There is no re-scoring {rescoring_id}.")
    return found


def lock_open(session: Session, rescoring_id: int) -> models.Rescoring:
    """Lock a re-scoring that is neither applied nor cancelled."""
    rescoring = lock_rescoring(session, rescoring_id)
    _require_open(rescoring)
    return rescoring


def _require_open(rescoring: models.Rescoring) -> None:
    if rescoring.state not in OPEN_STATES:
        raise RescoringStateError(f"Re-scoring {rescoring.id} is {rescoring.state}.")


def _end(session: Session, rescoring: models.Rescoring, *, state: str, actor: str) -> None:
    rescoring.state, rescoring.ended_by, rescoring.ended_at = state, actor, datetime.now(UTC)
    item = models.RescoringItem
    session.execute(update(item).where(item.rescoring_id == rescoring.id).values(deadline=None))
    session.flush()


def _record(session: Session, rescoring: models.Rescoring, *, actor: str, action: str, n_left_out: int = 0) -> None:
    snapshot = session.get_one(models.Snapshot, rescoring.snapshot_id)
    details = {"rescoring": rescoring.id, "to_version": rescoring.to_version}
    if n_left_out:
        details["n_left_out"] = n_left_out
    record_audit(session, actor=actor, action=action, subject=f"snapshot {snapshot.name}", details=details)


def _is_rescored(rescoring: models.Rescoring) -> tuple[ColumnElement[bool], ...]:
    """Return what makes a submission one of a re-scoring's: it stands on its boards, and has a score."""
    submission, board = models.Submission, models.RescoringBoard
    on_boards = (
        select(board.split)
        .where(
            board.rescoring_id == rescoring.id,
            board.split == submission.split,
            board.strategy == submission.strategy,
        )
        .exists()
    )
    has_score = select(models.Score.id).where(models.Score.submission_id == submission.id).exists()
    return (
        submission.snapshot_id == rescoring.snapshot_id,
        submission.state.in_(RESCORED_STATES),
        on_boards,
        has_score,
    )


def _has_score(version: str) -> ColumnElement[bool]:
    score = models.Score
    return select(score.id).where(score.submission_id == models.Submission.id, score.scorer_version == version).exists()


def _has_older_score(version: str) -> ColumnElement[bool]:
    score = models.Score
    return select(score.id).where(score.submission_id == models.Submission.id, score.scorer_version != version).exists()


def _read(session: Session, query: Select[models.Rescoring]) -> tuple[RescoringStatus, ...]:
    rescorings = list(session.scalars(query.execution_options(populate_existing=True)))
    ids = [rescoring.id for rescoring in rescorings]
    item, board = models.RescoringItem, models.RescoringBoard
    counted = session.execute(
        select(item.rescoring_id, item.state, func.count())
        .where(item.rescoring_id.in_(ids))
        .group_by(item.rescoring_id, item.state)
    )
    counts = {(rescoring_id, state): int(n) for rescoring_id, state, n in counted}
    boards = list(
        session.scalars(select(board).where(board.rescoring_id.in_(ids)).order_by(board.split, board.strategy))
    )
    snapshots = session.execute(select(models.Snapshot.id, models.Snapshot.name)) if rescorings else ()
    names = {row.id: row.name for row in snapshots}
    return tuple(
        RescoringStatus(
            id=found.id,
            snapshot=names[found.snapshot_id],
            to_version=found.to_version,
            state=found.state,
            boards=tuple(
                RescoredBoard(b.split, Strategy(b.strategy), b.from_version)
                for b in boards
                if b.rescoring_id == found.id
            ),
            n_submissions=sum(n for (rescoring_id, _), n in counts.items() if rescoring_id == found.id),
            n_waiting=counts.get((found.id, "waiting"), 0),
            n_scoring=counts.get((found.id, "scoring"), 0),
            n_done=counts.get((found.id, "done"), 0),
            n_failed=counts.get((found.id, "failed"), 0),
            n_resampled=_count_resampled(session, found),
            failed=_list_failed(session, found.id) if counts.get((found.id, "failed")) else (),
            actor=found.actor,
            created_at=found.created_at,
            ended_by=found.ended_by,
            ended_at=found.ended_at,
        )
        for found in rescorings
    )


def _count_resampled(session: Session, rescoring: models.Rescoring) -> int:
    item, score, board, interval = (
        models.RescoringItem,
        models.Score,
        models.BoardScore,
        models.BoardInterval,
    )
    query = (
        select(func.count(item.id.distinct()))
        .join(score, and_(score.submission_id == item.submission_id, score.scorer_version == rescoring.to_version))
        .join(board, board.score_id == score.id)
        .join(interval, interval.board_score_id == board.id)
        .where(item.rescoring_id == rescoring.id, interval.version == INTERVAL_VERSION)
    )
    return int(session.scalar(query) or 0)


def _list_failed(session: Session, rescoring_id: int) -> tuple[FailedRescoring, ...]:
    item, submission, method, team = models.RescoringItem, models.Submission, models.Method, models.Team
    query = (
        select(submission.id, method.name, team.name, item.failure_reason)
        .join(submission, submission.id == item.submission_id)
        .join(method, method.id == submission.method_id)
        .join(team, team.id == submission.team_id)
        .where(item.rescoring_id == rescoring_id, item.state == "failed")
        .order_by(item.id)
        .limit(SHOWN_FAILURES)
    )
    return tuple(
        FailedRescoring(submission_id, name, team_name, reason or "")
        for submission_id, name, team_name, reason in session.execute(query)
    )
