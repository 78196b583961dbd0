"""Scoring a submission: what the job does, step by step, each step committed so that its readers can follow."""

from __future__ import annotations

import json
import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.errors import AppError, ContentError, ForbiddenError, Problem, StateError
from app.evaluator.closeness import Verdict
from app.evaluator.measurements import Measurements
from app.evaluator.scorers import score_currently
from app.evaluator.scoring import Score
from app.evaluator.strategies import Strategy
from app.files.actions import ActionFile, read_actions
from app.services import bootstrap, intervals, jobs, release, snapshots, submissions
from app.services.accounts import Identity
from app.services.board_versions import choose_score_version, list_score_versions
from app.services.differencing import NOT_CLOSE, WITHHELD_REASON, ToldComparison
from app.services.method_notes import NO_NOTES, SubmissionNotes, check_notes
from app.services.score_records import ActionsGoneError, read_stored_actions, store_score
from app.services.submissions import SYSTEM, SubmissionDetails, SubmissionState
from app.services.uploads import StoredFile, upload_path

logger = logging.getLogger(__name__)

Sessions = sessionmaker[Session]
# The first retry comes after this, each further one after twice as long.
FIRST_RETRY = timedelta(seconds=5)
PROGRESS_SECONDS = 1.0


class NotScoredError(StateError):
    """A score was asked for that does not exist, or not yet."""

    code = "not_scored"
    title = "There is no score"


class WithheldScoreError(StateError):
    """There is a score, and it is not told: the file is too close to what has been told before."""

    code = "withheld"
    title = "The score is withheld"


class WithdrawnError(AppError):
    """Figures or file of a submission that its team withdrew; only its tombstone is left for others."""

    status = 410
    code = "withdrawn"
    title = "The submission was withdrawn"


class WithheldActionsError(ForbiddenError):
    """Someone else's action file on a split whose labels are hidden."""

    code = "labels_hidden"
    title = "The labels of this split are hidden"


@dataclass(frozen=True)
class CheckedFile:
    """An action file without problems."""

    actions_sha256: str
    n_rows: int
    n_settings: int
    settings: tuple[str, ...]
    n_cells_covered: int
    n_cells: int
    warnings: tuple[Problem, ...]


@dataclass(frozen=True)
class ActionsDownload:
    """Where an uploaded action file lies and what it was called."""

    path: Path
    filename: str
    sha256: str


@dataclass(frozen=True)
class StoredScore:
    """A score document as it may be told, as JSON text.

    Its intervals come later than its figures, and boards that are held back when an organiser releases them.
    """

    text: str
    scorer_version: str
    has_intervals: bool
    n_held_boards: int


@dataclass(frozen=True)
class _Attempt:
    """One try at scoring; `number` is its fence: an attempt that was given up may not write any more."""

    submission_id: str
    number: int
    snapshot: str
    split: str
    strategy: Strategy
    actions_sha256: str
    filename: str
    is_control: bool


class _LostAttemptError(Exception):
    """The submission moved on without this attempt: withdrawn, or taken up by another worker."""


class _ProgressWriter:
    """Notes now and then how much of the file was read, for whoever watches, and ends an attempt that was given up."""

    def __init__(self, sessions: Sessions, attempt: _Attempt) -> None:
        self._sessions = sessions
        self._attempt = attempt
        self._next_at = time.monotonic() + PROGRESS_SECONDS

    def __call__(self, share: float) -> None:
        if time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + PROGRESS_SECONDS
        submission = models.Submission
        held = (
            update(submission)
            .where(submission.id == self._attempt.submission_id, submission.attempts == self._attempt.number)
            .where(submission.state == SubmissionState.VALIDATING.value)
        )
        with self._sessions.begin() as session:
            still_held = session.scalar(held.values(progress=share).returning(submission.id))
        # Cancelled meanwhile, or given to another worker: nothing more is read.
        if still_held is None:
            raise _LostAttemptError(self._attempt.submission_id)


def score_submission(
    sessions: Sessions, submission_id: str, *, config: Config, actor: str, now: datetime | None = None
) -> None:
    """Score a submission: validating, scoring, then scored; or rejected with problems; or back for another attempt.

    May be called again at any time and by any worker: what is finished stays as it is, an attempt that died is
    followed by the next one, and of two attempts that run at once only the later one may write. One whose submission is
    withdrawn stops at its next step. The attempt's deadline counts from `now`.
    """
    attempt = _begin(sessions, submission_id, config=config, actor=actor, now=now)
    if attempt is None:
        return
    try:
        _run(sessions, attempt, config=config, actor=actor)
    except _LostAttemptError:
        logger.warning("attempt %d at submission %s was given up meanwhile", attempt.number, submission_id)
    except Exception as exc:
        # Whatever this is, it is not the file's fault; the next attempt or the reason on the page is what follows.
        logger.exception("attempt %d at submission %s failed", attempt.number, submission_id)
        _give_back(sessions, attempt, config=config, actor=actor, reason=describe_fault(exc))


def reap_submissions(session: Session, *, config: Config, now: datetime | None = None) -> int:
    """Move on every submission that nobody works on any more, and return how many.

    Its deadline has passed, or no job is left that would end its state: the worker failed where it could not even say
    so, as when the database was away. One that waits is queued again; one that was being worked on gets its next
    attempt, or fails where it has had all of them.
    """
    now = now or _now()
    _shorten_deadlines(session, config=config, now=now)
    submission = models.Submission
    waiting = [state.value for state in SubmissionState if state.is_waiting]
    jobless = jobs.list_jobless(
        session, session.scalars(select(submission.id).where(submission.state.in_(waiting))).all()
    )
    query = (
        select(submission)
        .where(submission.state.in_(waiting), or_(submission.deadline < now, submission.id.in_(jobless)))
        .order_by(submission.deadline)
        .with_for_update(skip_locked=True)
    )
    moved = 0
    for found in list(session.scalars(query)):
        is_jobless = bool(jobs.list_jobless(session, [found.id]))
        # Read again now that it is locked: what looked lost may have been taken up just then.
        if is_jobless or (found.deadline is not None and found.deadline < now):
            reason = "its job was lost" if is_jobless else "it took longer than allowed"
            _move_on(session, found, config=config, reason=reason, now=now)
            moved += 1
    return moved


def _move_on(session: Session, submission: models.Submission, *, config: Config, reason: str, now: datetime) -> None:
    if submission.state == SubmissionState.RECEIVED:
        submission.deadline = now + submissions.QUEUE_DEADLINE
        jobs.defer_scoring(session, submission.id)
    elif _retry_or_fail(session, submission, config=config, actor=SYSTEM, reason=reason, now=now):
        jobs.defer_scoring(session, submission.id)


def _shorten_deadlines(session: Session, *, config: Config, now: datetime) -> None:
    """Bring back deadlines that a clock which ran ahead has set further off than any state may last."""
    submission = models.Submission
    lasts = {
        SubmissionState.RECEIVED: submissions.QUEUE_DEADLINE,
        SubmissionState.VALIDATING: timedelta(seconds=config.scoring_deadline_seconds),
        SubmissionState.SCORING: timedelta(seconds=config.scoring_deadline_seconds),
    }
    for state, longest in lasts.items():
        too_late = update(submission).where(submission.state == state.value, submission.deadline > now + longest)
        session.execute(too_late.values(deadline=now + longest))


def check_upload(
    session: Session,
    *,
    snapshot_name: str,
    split: str,
    strategy: Strategy,
    upload: StoredFile,
    filename: str,
    config: Config,
    method_name: str | None = None,
    description: str | None = None,
    notes: SubmissionNotes = NO_NOTES,
) -> CheckedFile:
    """Check an action file against a target as a submission would be; raises with all problems.

    What is said of the method is checked too, as far as it is given.
    """
    check_notes(method_name, description, notes, now=_now())
    snapshot = snapshots.get_snapshot(session, snapshot_name)
    submissions.check_target(session, snapshot, split=split)
    measurements = snapshots.load_measurements(session, snapshot, data_dir=config.data_dir)
    checked = read_actions(
        upload.path,
        measurements,
        strategy=strategy,
        split=split,
        filename=filename,
        max_settings=release.find_max_settings(snapshot, split),
    )
    covered = sum(bool(cell.covered.any()) for cell in checked.table.cells)
    return CheckedFile(
        actions_sha256=checked.sha256,
        n_rows=checked.n_rows,
        n_settings=len(checked.table.settings),
        settings=checked.table.settings,
        n_cells_covered=covered,
        n_cells=len(checked.table.cells),
        warnings=checked.warnings,
    )


def get_score(
    session: Session, submission_id: str, *, account: Identity | None, scorer_version: str | None = None
) -> StoredScore:
    """Return the score document of a submission that the reader may see; of a withdrawn one to its team only.

    Unless another version is asked for it is the score of the version that the boards show, else the newest one. On a
    hidden split no other one is told.
    """
    details = _get_open(session, submission_id, account=account)
    shown = choose_score_version(session, session.get_one(models.Submission, details.id))
    version = scorer_version or shown
    query = select(models.Score.id, models.Score.document, models.Score.scorer_version).where(
        models.Score.submission_id == details.id, models.Score.scorer_version == version
    )
    found = session.execute(query).one_or_none()
    snapshot = snapshots.get_snapshot(session, details.snapshot)
    release.require_told_version(snapshot, details.split, asked=scorer_version, shown=shown)
    if found is None:
        of_version = "" if scorer_version is None else f" by scorer version {scorer_version}"
        raise NotScoredError(f"Submission {details.id} is {details.state}; it has no score{of_version}.")
    if details.scored_at is None:
        raise WithheldScoreError(f"The score of submission {details.id} is withheld until an organiser releases it.")
    document = dict(found.document)
    n_boards = intervals.fill_intervals(session, document, score_id=found.id)
    told = release.release_score(session, snapshot, document, submission_id=details.id, score_id=found.id)
    text = json.dumps(told, allow_nan=False, ensure_ascii=False)
    n_held = len(release.list_held(session, details.id))
    return StoredScore(text, found.scorer_version, has_intervals=n_boards > 0, n_held_boards=n_held)


def list_told_versions(session: Session, submission: SubmissionDetails) -> tuple[str, ...]:
    """Return the versions whose score of a submission may be asked for, oldest first."""
    versions = list_score_versions(session, submission.id)
    if release.are_labels_told(snapshots.get_snapshot(session, submission.snapshot), submission.split):
        return versions
    shown = choose_score_version(session, session.get_one(models.Submission, submission.id))
    return tuple(version for version in versions if version == shown)


def get_actions_file(
    session: Session, submission_id: str, *, account: Identity | None, data_dir: Path
) -> ActionsDownload:
    """Return the uploaded file: to its team, and to everyone while published on a split that is not hidden."""
    details = _get_open(session, submission_id, account=account)
    snapshot = snapshots.get_snapshot(session, details.snapshot)
    if not details.is_mine and not release.are_labels_told(snapshot, details.split):
        raise WithheldActionsError("Action files of others are not shown on a split whose labels are hidden.")
    path = upload_path(data_dir, details.actions_sha256)
    if not path.is_file():
        raise ActionsGoneError(f"The action file of submission {details.id} is not on this server.")
    return ActionsDownload(path, details.filename, details.actions_sha256)


def _get_open(session: Session, submission_id: str, *, account: Identity | None) -> SubmissionDetails:
    """Return a submission whose figures and file the reader may see."""
    details = submissions.get_submission(session, submission_id, account=account)
    if details.state == SubmissionState.WITHDRAWN and not details.is_mine:
        raise WithdrawnError(f"Submission {details.id} was withdrawn by its team; its figures are no longer shown.")
    return details


def _begin(
    sessions: Sessions, submission_id: str, *, config: Config, actor: str, now: datetime | None = None
) -> _Attempt | None:
    """Take the submission up: it becomes `validating` under a new attempt number, unless it needs no scoring."""
    now = now or _now()
    with sessions.begin() as session:
        submission = submissions.find_locked(session, submission_id)
        if submission is None or not SubmissionState(submission.state).is_waiting:
            return None
        held = submission.state != SubmissionState.RECEIVED
        # The job came back while the state says that somebody works on it: that worker is gone.
        lost = "its worker was lost"
        if held and not _retry_or_fail(session, submission, config=config, actor=actor, reason=lost, now=now):
            return None
        submission.attempts += 1
        submission.progress = None
        submission.deadline = now + timedelta(seconds=config.scoring_deadline_seconds)
        submissions.transition(session, submission, SubmissionState.VALIDATING, actor=actor)
        snapshot = session.get_one(models.Snapshot, submission.snapshot_id)
        return _Attempt(
            submission_id=submission_id,
            number=submission.attempts,
            snapshot=snapshot.name,
            split=submission.split,
            strategy=Strategy(submission.strategy),
            actions_sha256=submission.actions_sha256,
            filename=submission.filename,
            is_control=session.get_one(models.Team, submission.team_id).is_control,
        )


def _run(sessions: Sessions, attempt: _Attempt, *, config: Config, actor: str) -> None:
    with sessions.begin() as session:
        snapshot = snapshots.get_snapshot(session, attempt.snapshot)
        measurements = snapshots.load_measurements(session, snapshot, data_dir=config.data_dir)
    try:
        actions = read_stored_actions(
            measurements,
            actions_sha256=attempt.actions_sha256,
            strategy=attempt.strategy,
            split=attempt.split,
            filename=attempt.filename,
            config=config,
            max_settings=release.find_max_settings(snapshot, attempt.split),
            progress=_ProgressWriter(sessions, attempt),
        )
    except ContentError as exc:
        _reject(sessions, attempt, exc, actor=actor)
        return
    with sessions.begin() as session:
        submission = _lock_held(session, attempt, SubmissionState.VALIDATING)
        submission.progress = None
        submission.n_settings = len(actions.table.settings)
        submission.warnings = [warning.as_dict() for warning in actions.warnings]
        submissions.transition(session, submission, SubmissionState.SCORING, actor=actor)
    with sessions.begin() as session:
        references = snapshots.get_references(
            session, snapshot, split=attempt.split, strategy=attempt.strategy, data_dir=config.data_dir
        )
    with sessions.begin() as session:
        _lock_held(session, attempt, SubmissionState.SCORING)
    score = score_currently(measurements.select(attempt.split), actions.table, references)
    comparison = _begin_comparison(attempt, snapshot, measurements, actions, config=config)
    while True:
        with sessions.begin() as session:
            submission = _lock_held(session, attempt, SubmissionState.SCORING)
            missing = comparison.find_missing(session, submission) if comparison is not None else []
            if not missing:
                verdict = NOT_CLOSE if comparison is None else comparison.conclude()
                _record(session, submission, score, actions=actions, verdict=verdict, actor=actor)
                return
        for earlier in missing:
            assert comparison is not None
            comparison.compare(earlier)


def _begin_comparison(
    attempt: _Attempt, snapshot: models.Snapshot, measurements: Measurements, actions: ActionFile, *, config: Config
) -> ToldComparison | None:
    """Return what compares a file on a hidden split with what has been told there, or None for an open split."""
    if attempt.is_control or release.are_labels_told(snapshot, attempt.split):
        return None
    return ToldComparison(measurements, actions, snapshot_sha256=snapshot.sha256, split=attempt.split, config=config)


def _record(
    session: Session,
    submission: models.Submission,
    score: Score,
    *,
    actions: ActionFile,
    verdict: Verdict,
    actor: str,
) -> None:
    """Write the score, its boards and the state in one transaction: all of it or nothing."""
    store_score(session, submission.id, score, actions=actions)
    if verdict.is_close:
        submission.withheld_at = _now()
        submissions.transition(session, submission, SubmissionState.WITHHELD, actor=actor, reason=WITHHELD_REASON)
        return
    session.add_all(
        models.HeldBoard(submission_id=submission.id, model=model, benchmark=benchmark)
        for model, benchmark in sorted(verdict.close_boards, key=str)
    )
    submission.scored_at = _now()
    submissions.transition(session, submission, SubmissionState.SCORED, actor=actor)
    bootstrap.defer_intervals(session, submission)


def _reject(sessions: Sessions, attempt: _Attempt, error: ContentError, *, actor: str) -> None:
    with sessions.begin() as session:
        submission = _lock_held(session, attempt, SubmissionState.VALIDATING)
        found = error.problems or (Problem(code=error.code, message=error.detail),)
        submission.problems = [problem.as_dict() for problem in found]
        submissions.transition(session, submission, SubmissionState.REJECTED, actor=actor, reason=error.detail)


def _give_back(sessions: Sessions, attempt: _Attempt, *, config: Config, actor: str, reason: str) -> None:
    """Queue the next attempt after a pause that doubles each time, or let the submission fail."""
    with sessions.begin() as session:
        try:
            submission = _lock_held(session, attempt, SubmissionState.VALIDATING, SubmissionState.SCORING)
        except _LostAttemptError:
            return
        if _retry_or_fail(session, submission, config=config, actor=actor, reason=reason, now=_now()):
            jobs.defer_scoring(session, submission.id, delay=FIRST_RETRY * 2 ** (attempt.number - 1))


def _retry_or_fail(
    session: Session, submission: models.Submission, *, config: Config, actor: str, reason: str, now: datetime
) -> bool:
    """Send a submission back to `received` and return True, or, where it has had all its attempts, let it fail."""
    if submission.attempts < config.scoring_attempts:
        submission.deadline = now + submissions.QUEUE_DEADLINE
        submissions.transition(session, submission, SubmissionState.RECEIVED, actor=actor, reason=reason)
        return True
    tries = "1 attempt" if submission.attempts == 1 else f"{submission.attempts} attempts"
    submission.failure_reason = f"{reason} (after {tries})"
    submissions.transition(session, submission, SubmissionState.FAILED, actor=actor, reason=submission.failure_reason)
    return False


def _lock_held(session: Session, attempt: _Attempt, *expected: SubmissionState) -> models.Submission:
    """Lock the submission, which must still be in the hands of this attempt."""
    submission = submissions.find_locked(session, attempt.submission_id)
    if submission is None or submission.attempts != attempt.number or submission.state not in expected:
        raise _LostAttemptError(attempt.submission_id)
    return submission


def describe_fault(error: Exception) -> str:
    """Return in a few words why an attempt at a score failed that is not the file's fault."""
    if isinstance(error, MemoryError):
        return "the scorer ran out of memory"
    if isinstance(error, AppError):
        return error.detail
    return f"the scorer failed on our side ({type(error).__name__})"


def _now() -> datetime:
    return datetime.now(UTC)
