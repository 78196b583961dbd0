"""The questions of probe runs in workers' hands: leased, renewed, recorded, failed, and taken back from dead workers.

All times are the database's own: workers on several machines compare with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, insert, select, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from app.config import Config
from app.db import models
from app.files.profiles import Profile, build_profile
from app.files.protocol import Protocol, read_protocol
from app.files.questions import Question, build_question
from app.services import jobs
from app.services.probe_records import LostItemError, QuestionRecord, TrajectoryRecord, pack_answers
from app.services.probe_runs import ProbeRunState, defer_item, defer_waiting, transition

MAX_FAILURES = 3
# Killing workers is allowed at any time, so this many losses of one question are needed before it is to blame.
MAX_LOSSES = 10
FIRST_RETRY = timedelta(seconds=10)
MAX_REASON = 2000
# Any number: whoever looks after the questions of dead workers does it alone.
REAP_LOCK = 7_207_260_723
KEEP_WORKERS = timedelta(hours=1)


@dataclass(frozen=True)
class Lease:
    """A question in a worker's hands, with what it needs to measure it."""

    item_id: int
    run_id: str
    attempt: int
    actor: str
    run_name: str
    profile: Profile
    protocol: Protocol
    question: Question
    instruction: str
    direct_instruction: str | None


def lease_item(session: Session, item_id: int, *, actor: str, config: Config) -> Lease | None:
    """Take a waiting question of a running run in hand; None where there is nothing to do, or not yet."""
    item, run, question_set = models.ProbeItem, models.ProbeRun, models.QuestionSet
    query = (
        select(item, run, question_set.header)
        .join(run, run.id == item.probe_run_id)
        .join(question_set, question_set.id == item.question_set_id)
        .where(item.id == item_id, item.state == "waiting", run.state == ProbeRunState.RUNNING)
        .where(item.retry_at.is_(None) | (item.retry_at <= func.clock_timestamp()))
        # The run is locked against a cancellation at the same moment, not against other workers.
        .with_for_update(of=item, skip_locked=True)
        .execution_options(populate_existing=True)
    )
    found = session.execute(query).one_or_none()
    if found is None:
        return None
    held, of_run, header = found
    state = session.scalar(select(run.state).where(run.id == of_run.id).with_for_update(read=True))
    if state != ProbeRunState.RUNNING:
        return None
    protocol = read_protocol(of_run.protocol)
    # Read before the update, which the session carries over to the row it has in hand.
    attempt = held.attempts + 1
    now = func.clock_timestamp()
    session.execute(
        update(item)
        .where(item.id == item_id)
        .values(
            state="running",
            attempts=attempt,
            actor=actor,
            lease_until=now + timedelta(seconds=config.heartbeat_timeout_seconds),
            deadline=now + timedelta(seconds=protocol.question_seconds),
            started_at=now,
            retry_at=None,
        )
    )
    return Lease(
        item_id=item_id,
        run_id=of_run.id,
        attempt=attempt,
        actor=actor,
        run_name=of_run.name,
        profile=protocol.limit_profile(build_profile(of_run.profile)),
        protocol=protocol,
        question=build_question(held.document),
        instruction=header["instruction"],
        direct_instruction=header.get("direct_instruction"),
    )


def renew_lease(session: Session, lease: Lease, *, config: Config) -> bool:
    """Say that the worker lives; False where the question is no longer its own, or is past its deadline."""
    item = models.ProbeItem
    held = update(item).where(*_is_held(lease), item.deadline > func.clock_timestamp())
    until = func.clock_timestamp() + timedelta(seconds=config.heartbeat_timeout_seconds)
    return session.execute(held.values(lease_until=until).returning(item.id)).one_or_none() is not None


def record_question(session: Session, lease: Lease, record: QuestionRecord) -> None:
    """Write all trajectories of a question and its state, in the session's transaction; the last one ends the run.

    Raises
    ------
    LostItemError : the question is no longer this worker's; whoever has it writes the same records.
    """
    run = _lock_run(session, lease.run_id)
    item = models.ProbeItem
    taken = record.accounting
    done = update(item).where(*_is_held(lease))
    values: dict[str, Any] = {
        "state": "done",
        "actor": None,
        "lease_until": None,
        "deadline": None,
        "finished_at": func.clock_timestamp(),
        "seconds": taken.seconds,
        "prompt_tokens": taken.prompt_tokens,
        "cached_tokens": taken.cached_tokens,
        "generated_tokens": taken.generated_tokens,
        "reason": None,
        "worker": {**record.worker, "actor": lease.actor},
    }
    if session.execute(done.values(**values).returning(item.id)).one_or_none() is None:
        raise LostItemError(f"Question {lease.question.question_id} of {lease.run_name} is no longer this worker's.")
    rows = [_describe(lease, trajectory, record.grader_version) for trajectory in record.trajectories]
    session.execute(insert(models.ProbeTrajectory), rows)
    settle_run(session, run, actor=lease.actor)


def fail_item(session: Session, lease: Lease, *, reason: str) -> None:
    """Give a question back after an error: it waits for a time that doubles with each, or has failed for good.

    Nothing happens where it is no longer this worker's.
    """
    run = _lock_run(session, lease.run_id)
    item = session.scalar(select(models.ProbeItem).where(*_is_held(lease)).with_for_update())
    if item is None:
        return
    item.failures += 1
    _give_back(session, run, item, reason=reason, has_failed=item.failures >= MAX_FAILURES)
    settle_run(session, run, actor=lease.actor)


def return_item(session: Session, lease: Lease) -> None:
    """Give a question back unfinished, without a word against it: its worker was told to stop at once."""
    run = _lock_run(session, lease.run_id)
    item = models.ProbeItem
    waits = {"state": "waiting", "actor": None, "lease_until": None, "deadline": None}
    returned = update(item).where(*_is_held(lease)).values(**waits).returning(item.id)
    if session.execute(returned).one_or_none() is not None and run.state == ProbeRunState.RUNNING:
        defer_item(session, run, lease.item_id)


def reap_items(session: Session, *, config: Config) -> int:
    """Take back the questions of silent workers, and queue every waiting one that lost its job; return how many moved.

    Only one transaction at a time does this; others find nothing to do.
    """
    if not session.scalar(text("SELECT pg_try_advisory_xact_lock(:key)"), {"key": REAP_LOCK}):
        return 0
    jobs.forget_lost_probes(session, timeout_seconds=config.heartbeat_timeout_seconds)
    worker = models.ProbeWorker
    session.execute(delete(worker).where(worker.seen_at < func.clock_timestamp() - KEEP_WORKERS))
    n_moved = 0
    for run_id in session.scalars(_list_overdue_runs()).all():
        n_moved += _reap_run(session, run_id)
    run = models.ProbeRun
    running = select(run).where(run.state == ProbeRunState.RUNNING).order_by(run.id)
    for found in session.scalars(running.with_for_update(skip_locked=True)).all():
        n_moved += defer_waiting(session, found)
    return n_moved


def settle_run(session: Session, run: models.ProbeRun, *, actor: str) -> None:
    """End a locked run whose questions are all done, or done and failed; else leave it."""
    item = models.ProbeItem
    counts = select(item.state, func.count()).where(item.probe_run_id == run.id).group_by(item.state)
    n_of = {str(state): int(n) for state, n in session.execute(counts)}
    if n_of.get("waiting", 0) + n_of.get("running", 0) > 0 or run.state not in ("running", "paused"):
        return
    n_failed = n_of.get("failed", 0)
    if n_failed == 0:
        transition(session, run, ProbeRunState.FINISHED, actor=actor)
        return
    first = select(item.question_id, item.reason).where(item.probe_run_id == run.id, item.state == "failed")
    question_id, why = session.execute(first.order_by(item.idx).limit(1)).one()
    reason = f"{n_failed} of {run.n_questions} questions failed; the first is {question_id}: {why}"
    transition(session, run, ProbeRunState.FAILED, actor=actor, reason=reason)


def announce_worker(session: Session, actor: str, *, model: str, engine_key: str, versions: dict[str, str]) -> None:
    """Say which model a worker serves; it then gives signs of life by `renew_worker`."""
    table = models.ProbeWorker
    now = func.clock_timestamp()
    values = {"model": model, "engine_key": engine_key, "versions": versions, "seen_at": now}
    added = upsert(table).values(actor=actor, started_at=now, **values)
    session.execute(added.on_conflict_do_update(index_elements=["actor"], set_=values))


def renew_worker(session: Session, actor: str, *, queue_worker_id: int | None = None) -> None:
    """Note that a worker lives, and what the queue calls it where that is known."""
    table = models.ProbeWorker
    values: dict[str, Any] = {"seen_at": func.clock_timestamp()}
    if queue_worker_id is not None:
        values["queue_worker_id"] = queue_worker_id
    session.execute(update(table).where(table.actor == actor).values(**values))


def dismiss_worker(session: Session, actor: str) -> None:
    """Forget a worker that ends."""
    session.execute(delete(models.ProbeWorker).where(models.ProbeWorker.actor == actor))


@dataclass(frozen=True)
class Work:
    """What the question that comes next needs, and how urgent it is."""

    engine_key: str
    profile: Profile
    priority: int


def find_work(session: Session, *, model: str | None = None, engine_key: str | None = None) -> Work | None:
    """Return what the first question that waits needs, by priority and age of its run; None where none waits.

    `model` and `engine_key` leave only runs of that model, and for that engine.
    """
    item, run = models.ProbeItem, models.ProbeRun
    ready = item.retry_at.is_(None) | (item.retry_at <= func.clock_timestamp())
    waits = select(item.id).where(item.probe_run_id == run.id, item.state == "waiting", ready).exists()
    query = select(run).where(run.state == ProbeRunState.RUNNING, waits)
    if model is not None:
        query = query.where(run.model == model)
    if engine_key is not None:
        query = query.where(run.engine_key == engine_key)
    found = session.scalar(query.order_by(run.priority.desc(), run.started_at, run.id).limit(1))
    return None if found is None else Work(found.engine_key, build_profile(found.profile), found.priority)


def is_work_left(session: Session, *, model: str | None = None) -> bool:
    """Whether a running run has questions that are not ended: waiting, waiting for another try, or in some hands."""
    item, run = models.ProbeItem, models.ProbeRun
    query = (
        select(item.id)
        .join(run, run.id == item.probe_run_id)
        .where(run.state == ProbeRunState.RUNNING, item.state.in_(("waiting", "running")))
    )
    if model is not None:
        query = query.where(run.model == model)
    return session.scalar(select(query.exists())) is True


def _list_overdue_runs() -> Any:
    item, now = models.ProbeItem, func.clock_timestamp()
    overdue = (item.lease_until < now) | (item.deadline < now)
    return select(item.probe_run_id).where(item.state == "running", overdue).distinct()


def _reap_run(session: Session, run_id: str) -> int:
    """Take back a run's overdue questions, the run being locked first, as everywhere."""
    run = _lock_run(session, run_id)
    item, now = models.ProbeItem, func.clock_timestamp()
    overdue = (item.lease_until < now) | (item.deadline < now)
    query = select(item, (item.deadline < now).label("is_late")).where(item.probe_run_id == run_id)
    found = session.execute(query.where(item.state == "running", overdue).with_for_update(of=item)).all()
    for held, is_late in found:
        if is_late:
            held.failures += 1
            reason = f"it took more than {read_protocol(run.protocol).question_seconds} seconds"
            _give_back(session, run, held, reason=reason, has_failed=held.failures >= MAX_FAILURES)
        else:
            held.losses += 1
            reason = f"{held.actor} fell silent"
            _give_back(session, run, held, reason=reason, has_failed=held.losses >= MAX_LOSSES, is_lost=True)
    settle_run(session, run, actor="reaper")
    return len(found)


def _give_back(
    session: Session,
    run: models.ProbeRun,
    item: models.ProbeItem,
    *,
    reason: str,
    has_failed: bool,
    is_lost: bool = False,
) -> None:
    """Let a held question wait again, at once after a loss and later after an error, or let it fail."""
    # Asked for first: what the constraints want together is written together.
    now = session.scalars(select(func.clock_timestamp())).one()
    item.actor = item.lease_until = item.deadline = None
    tries = "1 attempt" if item.attempts == 1 else f"{item.attempts} attempts"
    item.reason = f"{reason} (after {tries})"[:MAX_REASON]
    if has_failed:
        item.state = "failed"
        item.finished_at = now
        session.flush()
        return
    item.state = "waiting"
    delay = timedelta(0) if is_lost else FIRST_RETRY * 2 ** (item.failures - 1)
    if delay:
        item.retry_at = now + delay
    session.flush()
    if run.state == ProbeRunState.RUNNING:
        defer_item(session, run, item.id, delay=delay)


def _is_held(lease: Lease) -> tuple[Any, ...]:
    item = models.ProbeItem
    return (
        item.id == lease.item_id,
        item.state == "running",
        item.actor == lease.actor,
        item.attempts == lease.attempt,
    )


def _lock_run(session: Session, run_id: str) -> models.ProbeRun:
    run = session.get(models.ProbeRun, run_id, with_for_update=True, populate_existing=True)
    assert run is not None
    return run


def _describe(lease: Lease, trajectory: TrajectoryRecord, grader_version: str) -> dict[str, Any]:
    return {
        "probe_item_id": lease.item_id,
        "trajectory": trajectory.trajectory,
        "token_ids": list(trajectory.token_ids),
        "block_tokens": list(trajectory.block_tokens),
        "retained_tokens": list(trajectory.retained_tokens),
        "correct_probes": list(trajectory.correct_probes),
        "end_margin": None if trajectory.end_margin is None else list(trajectory.end_margin),
        "original_answer": trajectory.original_answer,
        "original_correct": trajectory.original_correct,
        "direct_answer": trajectory.direct_answer,
        "direct_correct": trajectory.direct_correct,
        "hit_limit": trajectory.hit_limit,
        "n_unextracted": trajectory.n_unextracted,
        "answers": pack_answers(trajectory.answers),
        "grader_version": grader_version,
    }
