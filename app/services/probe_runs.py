"""Probe runs: created, started, paused, resumed, cancelled. Each of their questions is one job on the queue."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from sqlalchemy import Select, func, insert, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ContentError, NotFoundError, StateError
from app.files.manifest import is_slug
from app.files.problems import ProblemCollector
from app.files.profiles import Profile, build_profile, get_profile, profile_document
from app.files.protocol import Protocol, protocol_document
from app.files.questions import QuestionSet, header_document, question_document
from app.services import jobs
from app.services.snapshots import find_snapshot

PRIORITY_RANGE = (-1_000_000, 1_000_000)


class ProbeRunState(StrEnum):
    """Where a run stands; a cancelled or assembled one stays what it is."""

    CREATED = "created"
    RUNNING = "running"
    PAUSED = "paused"
    CANCELLED = "cancelled"
    FINISHED = "finished"
    ASSEMBLED = "assembled"
    FAILED = "failed"


TRANSITIONS: dict[ProbeRunState, frozenset[ProbeRunState]] = {
    ProbeRunState.CREATED: frozenset({ProbeRunState.RUNNING, ProbeRunState.CANCELLED}),
    ProbeRunState.RUNNING: frozenset(
        {ProbeRunState.PAUSED, ProbeRunState.CANCELLED, ProbeRunState.FINISHED, ProbeRunState.FAILED}
    ),
    # A question that was in a worker's hands at the pause may be the last one.
    ProbeRunState.PAUSED: frozenset(
        {ProbeRunState.RUNNING, ProbeRunState.CANCELLED, ProbeRunState.FINISHED, ProbeRunState.FAILED}
    ),
    ProbeRunState.CANCELLED: frozenset(),
    ProbeRunState.FINISHED: frozenset({ProbeRunState.ASSEMBLED}),
    # Once it was graded again, or together with other runs.
    ProbeRunState.ASSEMBLED: frozenset({ProbeRunState.ASSEMBLED}),
    ProbeRunState.FAILED: frozenset({ProbeRunState.RUNNING, ProbeRunState.CANCELLED}),
}
ENDED = frozenset({ProbeRunState.CANCELLED, ProbeRunState.FINISHED, ProbeRunState.ASSEMBLED, ProbeRunState.FAILED})


class UnknownProbeRunError(NotFoundError):
    """No probe run has this name."""

    code = "unknown_probe_run"
    title = "No such probe run"


class ProbeRunExistsError(StateError):
    """A probe run or a snapshot of this name is there already."""

    code = "probe_run_exists"
    title = "The name is taken"


class ProbeRunStateError(StateError):
    """The run is in a state that does not allow this."""

    code = "probe_run_state"
    title = "Not possible in the probe run's state"


class ProbeRunContentError(ContentError):
    """A probe run cannot be created like this; every fault is listed."""

    code = "bad_probe_run"
    title = "The probe run has problems"


def engine_key(profile: Profile) -> str:
    """Return what is the same for models that one loaded engine can serve: its weights, tokenizer and options."""
    parts = [profile.repository, profile.revision, profile.tokenizer, profile.engine]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def find_model_profile(session: Session, name: str) -> Profile:
    """Return the profile of a model: one that somebody registered, else a shipped one.

    Raises
    ------
    UnknownModelError : there is neither; the message says how to write one.
    """
    document = session.scalar(select(models.ModelProfile.document).where(models.ModelProfile.name == name))
    if document is not None:
        return build_profile(document)
    return get_profile(name)


def register_profile(session: Session, profile: Profile, *, account_id: int | None = None) -> None:
    """Keep a profile under its name, in place of an earlier one of that name; runs have their own copies."""
    added = upsert(models.ModelProfile).values(
        name=profile.name, document=profile_document(profile), account_id=account_id
    )
    replaced = {"document": added.excluded.document, "account_id": added.excluded.account_id}
    session.execute(added.on_conflict_do_update(index_elements=["name"], set_=replaced))


def create_run(
    session: Session,
    name: str,
    *,
    profile: Profile,
    protocol: Protocol,
    question_sets: Sequence[QuestionSet],
    actor: str,
    account_id: int | None = None,
    title: str | None = None,
    priority: int = 0,
) -> models.ProbeRun:
    """Create a run, not started yet: one job for every question of the sets.

    Parameters
    ----------
    name : of the snapshot that the run is to become.
    question_sets : of different benchmarks; their order is that of the benchmarks in the snapshot.

    Raises
    ------
    ProbeRunContentError : a name that cannot be used, no questions, or two sets of one benchmark.
    ProbeRunExistsError : the name is that of a run or snapshot.
    """
    _check(name, question_sets, priority=priority)
    _check_context(profile, protocol)
    if find_snapshot(session, name) is not None:
        raise ProbeRunExistsError(f"There is a snapshot {name!r} already; a run is named for the snapshot it makes.")
    added = upsert(models.ProbeRun).values(
        id=models.new_submission_id(),
        name=name,
        title=title or name,
        model=profile.name,
        engine_key=engine_key(profile),
        profile=profile_document(profile),
        protocol=protocol_document(protocol),
        priority=priority,
        n_questions=sum(len(question_set.questions) for question_set in question_sets),
        account_id=account_id,
    )
    run = session.scalars(
        added.on_conflict_do_nothing(index_elements=["name"]).returning(models.ProbeRun)
    ).one_or_none()
    if run is None:
        raise ProbeRunExistsError(f"There is a probe run {name!r} already.")
    _add_items(session, run, question_sets)
    _log(session, run, from_state=None, actor=actor, reason=None)
    return run


def start_run(session: Session, name: str, *, actor: str) -> models.ProbeRun:
    """Put the questions of a created run on the queue."""
    run = lock_run(session, name)
    if run.state != ProbeRunState.CREATED:
        raise ProbeRunStateError(f"Probe run {name} is {run.state}; only a created one can be started.")
    return resume_run(session, name, actor=actor)


def pause_run(session: Session, name: str, *, actor: str, reason: str | None = None) -> models.ProbeRun:
    """Hand out no more questions; those in a worker's hands are finished. Pausing a paused run changes nothing."""
    run = lock_run(session, name)
    if run.state != ProbeRunState.PAUSED:
        transition(session, run, ProbeRunState.PAUSED, actor=actor, reason=reason)
        jobs.drop_probes(session, run.id)
    return run


def resume_run(session: Session, name: str, *, actor: str) -> models.ProbeRun:
    """Hand out questions of a created, paused or failed run; questions that failed are tried anew.

    Resuming a running run changes nothing.
    """
    run = lock_run(session, name)
    if run.state == ProbeRunState.RUNNING:
        return run
    had_failed = run.state == ProbeRunState.FAILED
    transition(session, run, ProbeRunState.RUNNING, actor=actor)
    item = models.ProbeItem
    if had_failed:
        failed = update(item).where(item.probe_run_id == run.id, item.state == "failed")
        session.execute(failed.values(state="waiting", failures=0, losses=0, finished_at=None, retry_at=None))
    session.flush()
    defer_waiting(session, run)
    return run


def cancel_run(session: Session, name: str, *, actor: str, reason: str | None = None) -> models.ProbeRun:
    """End a run for good; questions in a worker's hands are taken away, finished ones stay in the database."""
    run = lock_run(session, name)
    if run.state == ProbeRunState.CANCELLED:
        return run
    transition(session, run, ProbeRunState.CANCELLED, actor=actor, reason=reason)
    jobs.drop_probes(session, run.id)
    item = models.ProbeItem
    held = update(item).where(item.probe_run_id == run.id, item.state == "running")
    session.execute(held.values(state="waiting", actor=None, lease_until=None, deadline=None))
    return run


def set_priority(session: Session, name: str, *, priority: int, actor: str) -> models.ProbeRun:
    """Give a run another priority: of two runs the questions of the higher one are handed out first."""
    _check_priority(priority)
    run = lock_run(session, name)
    if ProbeRunState(run.state) in ENDED and run.state != ProbeRunState.FAILED:
        raise ProbeRunStateError(f"Probe run {name} is {run.state}; its priority no longer matters.")
    if run.priority != priority:
        note_event(session, run, actor=actor, reason=f"priority {run.priority} becomes {priority}")
        run.priority = priority
        jobs.prioritise_probes(session, run.id, priority=priority)
    session.flush()
    return run


def transition(
    session: Session, run: models.ProbeRun, to_state: ProbeRunState, *, actor: str, reason: str | None = None
) -> None:
    """Move a locked run to another state and write the event; `ProbeRunStateError` where that is not allowed."""
    from_state = ProbeRunState(run.state)
    if to_state not in TRANSITIONS[from_state]:
        raise ProbeRunStateError(f"Probe run {run.name} is {from_state}; it cannot become {to_state}.")
    # Asked for first: what the constraints want together is written together.
    now = _now(session)
    run.state = to_state.value
    # A finished run keeps the time at which it finished when it is assembled.
    if to_state not in ENDED:
        run.finished_at = None
    elif run.finished_at is None:
        run.finished_at = now
    run.failure_reason = reason if to_state is ProbeRunState.FAILED else None
    if to_state is ProbeRunState.RUNNING and run.started_at is None:
        run.started_at = now
    _log(session, run, from_state=from_state.value, actor=actor, reason=reason)


def note_event(session: Session, run: models.ProbeRun, *, actor: str, reason: str) -> None:
    """Write into a run's log what was done to it without moving it to another state."""
    _log(session, run, from_state=run.state, actor=actor, reason=reason)


def find_run(session: Session, name: str) -> models.ProbeRun | None:
    """Return the run of this name, else of this id, or None."""
    return session.scalar(_named(name))


def get_run(session: Session, name: str) -> models.ProbeRun:
    """Return the run of this name or raise `UnknownProbeRunError`."""
    run = find_run(session, name)
    if run is None:
        raise UnknownProbeRunError(f"There is no probe run {name!r}.")
    return run


def list_runs(session: Session) -> list[models.ProbeRun]:
    """Return all runs, newest first."""
    run = models.ProbeRun
    return list(session.scalars(select(run).order_by(run.created_at.desc(), run.id)))


def list_run_events(session: Session, run: models.ProbeRun) -> list[models.ProbeRunEvent]:
    """Return what happened to a run, oldest first."""
    event = models.ProbeRunEvent
    return list(session.scalars(select(event).where(event.probe_run_id == run.id).order_by(event.id)))


def lock_run(session: Session, name: str) -> models.ProbeRun:
    """Return the run of this name or id, locked until the transaction ends and read afresh."""
    run = session.scalar(_named(name).with_for_update().execution_options(populate_existing=True))
    if run is None:
        raise UnknownProbeRunError(f"There is no probe run {name!r}.")
    return run


def defer_waiting(session: Session, run: models.ProbeRun) -> int:
    """Put the waiting questions of a running run on the queue, save those with a job there; return how many."""
    item = models.ProbeItem
    pause = func.extract("epoch", func.greatest(item.retry_at - func.clock_timestamp(), timedelta(0)))
    query = select(item.id, func.coalesce(pause, 0)).where(item.probe_run_id == run.id, item.state == "waiting")
    queued = jobs.list_queued_probes(session)
    pauses = {item_id: float(seconds) for item_id, seconds in session.execute(query.order_by(item.idx))}
    missing = [item_id for item_id in pauses if item_id not in queued]
    at_once = [item_id for item_id in missing if pauses[item_id] == 0]
    jobs.defer_probes(session, at_once, run_id=run.id, engine_key=run.engine_key, priority=run.priority)
    for item_id in missing:
        if pauses[item_id] > 0:
            defer_item(session, run, item_id, delay=timedelta(seconds=pauses[item_id]))
    return len(missing)


def defer_item(session: Session, run: models.ProbeRun, item_id: int, *, delay: timedelta = timedelta(0)) -> None:
    """Put one question of a run on the queue."""
    jobs.defer_probes(session, [item_id], run_id=run.id, engine_key=run.engine_key, priority=run.priority, delay=delay)


def _named(name: str) -> Select[models.ProbeRun]:
    run = models.ProbeRun
    return select(run).where(or_(run.name == name, run.id == name)).order_by((run.name == name).desc()).limit(1)


def _check(name: str, question_sets: Sequence[QuestionSet], *, priority: int) -> None:
    _check_priority(priority)
    problems = ProblemCollector()
    if not is_slug(name):
        problems.add(
            "bad_name",
            f"{name!r} cannot be the name of a snapshot: use lower-case words of a-z and 0-9 joined by '-', at most 64 "
            "characters",
            column="name",
        )
    if not question_sets:
        problems.add("missing_questions", "a run needs at least one question set", column="questions")
    benchmarks = [question_set.benchmark for question_set in question_sets]
    for benchmark in sorted({name for name in benchmarks if benchmarks.count(name) > 1}):
        problems.add("duplicate_benchmark", f"two question sets are of the benchmark {benchmark!r}", column="questions")
    if problems:
        raise ProbeRunContentError("the probe run cannot be created", problems=problems.problems())


def _check_context(profile: Profile, protocol: Protocol) -> None:
    """Refuse limits that no question fits between; a worker looks again when it knows a question's length."""
    held = profile.engine["max_model_len"]
    needed = protocol.thinking_token_limit + max(protocol.answer_token_limit, protocol.probe_token_limit)
    if held is not None and needed >= held:
        raise ProbeRunContentError(
            f"A thinking and an answer at their limits take {needed} tokens and leave no room for a question: the "
            f"profile's max_model_len is {held}."
        )


def _check_priority(priority: int) -> None:
    least, largest = PRIORITY_RANGE
    if not least <= priority <= largest:
        raise ProbeRunContentError(f"A priority is a whole number from {least} to {largest}, not {priority}.")


def _add_items(session: Session, run: models.ProbeRun, question_sets: Sequence[QuestionSet]) -> None:
    session.flush()
    rows: list[dict[str, Any]] = []
    for question_set in question_sets:
        set_id = _store_questions(session, question_set)
        for question in question_set.questions:
            rows.append(
                {
                    "probe_run_id": run.id,
                    "question_set_id": set_id,
                    "idx": len(rows),
                    "benchmark": question.benchmark,
                    "question_id": question.question_id,
                    "split": question.split,
                    "document": question_document(question),
                }
            )
    session.execute(insert(models.ProbeItem), rows)


def _store_questions(session: Session, question_set: QuestionSet) -> int:
    """Store a question set unless one of its content is there, and return its number."""
    table = models.QuestionSet
    added = upsert(table).values(
        benchmark=question_set.benchmark,
        sha256=question_set.sha256,
        header=header_document(question_set),
        n_questions=len(question_set.questions),
    )
    set_id = session.scalar(added.on_conflict_do_nothing(index_elements=["sha256"]).returning(table.id))
    if set_id is None:
        set_id = session.scalars(select(table.id).where(table.sha256 == question_set.sha256)).one()
        return int(set_id)
    rows = [
        {
            "question_set_id": set_id,
            "idx": idx,
            "question_id": question.question_id,
            "split": question.split,
            "document": question_document(question),
        }
        for idx, question in enumerate(question_set.questions)
    ]
    session.execute(insert(models.QuestionSetItem), rows)
    return int(set_id)


def _log(session: Session, run: models.ProbeRun, *, from_state: str | None, actor: str, reason: str | None) -> None:
    session.add(
        models.ProbeRunEvent(probe_run_id=run.id, from_state=from_state, to_state=run.state, actor=actor, reason=reason)
    )
    session.flush()


def _now(session: Session) -> datetime:
    """Return the database's time: workers on several machines compare with it."""
    now: datetime = session.scalars(select(func.clock_timestamp())).one()
    return now
