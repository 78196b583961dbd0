"""How far a probe run is: counts, tokens, throughput, time left, who works on it, and what went wrong."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Integer, cast, func, select
from sqlalchemy.orm import Session

from app.config import Config
from app.db import models
from app.files.estimates import Estimate
from app.files.estimates import estimate_run as estimate_from_lengths
from app.files.protocol import read_protocol
from app.services.probe_runs import ProbeRunState

MAX_REASONS = 20


@dataclass(frozen=True)
class WorkerStatus:
    """A worker that lives and can serve the run, with the question in its hands."""

    actor: str
    seen_at: datetime
    benchmark: str | None
    question_id: str | None
    question_started_at: datetime | None


@dataclass(frozen=True)
class FailureReason:
    """Why questions failed or were given back, and how many last did for this reason."""

    reason: str
    n_questions: int
    n_failed: int


@dataclass(frozen=True)
class ItemStatus:
    """One question of a run with what it took."""

    benchmark: str
    question_id: str
    split: str
    state: str
    attempts: int
    actor: str | None
    seconds: float | None
    prompt_tokens: int | None
    cached_tokens: int | None
    generated_tokens: int | None
    reason: str | None


@dataclass(frozen=True)
class RunStatus:
    """How far a run is.

    Attributes
    ----------
    n_waiting, n_running, n_done, n_failed : questions, of `n_questions` in all.
    n_trajectories, n_positions, n_probes, n_hit_limit, n_unextracted : of the questions that are done: trajectories,
        positions, probes, trajectories cut off by the thinking limit, probes from which no answer could be read.
    thinking_tokens : of the trajectories, the measure of L(n).
    seconds, prompt_tokens, generated_tokens : what the questions took, one worker's time.
    tokens_per_second : generated tokens by those seconds, of one worker; None until a question is done.
    prefix_share : the share of prompt tokens that the prefix cache served, where the engine says; else None.
    seconds_left : until the run is done at this pace with the workers that live; None where nothing is known yet, or
        nobody works on it.
    """

    id: str
    name: str
    title: str
    model: str
    state: str
    priority: int
    protocol: dict[str, Any]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    failure_reason: str | None
    snapshot: str | None
    n_questions: int
    n_waiting: int
    n_running: int
    n_done: int
    n_failed: int
    n_trajectories: int
    n_positions: int
    n_probes: int
    n_hit_limit: int
    n_unextracted: int
    thinking_tokens: int
    seconds: float
    prompt_tokens: int
    cached_tokens: int | None
    generated_tokens: int
    tokens_per_second: float | None
    prefix_share: float | None
    seconds_left: float | None
    workers: tuple[WorkerStatus, ...]
    reasons: tuple[FailureReason, ...]


@dataclass(frozen=True)
class _Counts:
    """Sums over the questions of a run."""

    n_of: dict[str, int]
    seconds: float
    prompt_tokens: int
    generated_tokens: int
    # Of the questions whose engine says what its cache served.
    told_prompt_tokens: int
    cached_tokens: int | None


def get_status(session: Session, run: models.ProbeRun, *, config: Config) -> RunStatus:
    """Return how far a run is."""
    counts = _count_items(session, run)
    trajectories = _count_trajectories(session, run)
    workers = _list_workers(session, run, silence_seconds=config.heartbeat_timeout_seconds)
    n_left = counts.n_of["waiting"] + counts.n_of["running"]
    n_done = counts.n_of["done"]
    is_moving = run.state == ProbeRunState.RUNNING and n_done > 0 and len(workers) > 0
    seconds_left = n_left * counts.seconds / n_done / len(workers) if is_moving else None
    if n_left == 0:
        seconds_left = None
    return RunStatus(
        id=run.id,
        name=run.name,
        title=run.title,
        model=run.model,
        state=run.state,
        priority=run.priority,
        protocol=dict(run.protocol),
        created_at=run.created_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        failure_reason=run.failure_reason,
        snapshot=_find_snapshot_name(session, run),
        n_questions=run.n_questions,
        n_waiting=counts.n_of["waiting"],
        n_running=counts.n_of["running"],
        n_done=n_done,
        n_failed=counts.n_of["failed"],
        **trajectories,
        n_probes=trajectories["n_positions"] * int(run.protocol["n_probes"]),
        seconds=counts.seconds,
        prompt_tokens=counts.prompt_tokens,
        cached_tokens=counts.cached_tokens,
        generated_tokens=counts.generated_tokens,
        tokens_per_second=counts.generated_tokens / counts.seconds if counts.seconds > 0 else None,
        prefix_share=(
            None
            if counts.cached_tokens is None or counts.told_prompt_tokens == 0
            else counts.cached_tokens / counts.told_prompt_tokens
        ),
        seconds_left=seconds_left,
        workers=workers,
        reasons=_list_reasons(session, run),
    )


def list_items(session: Session, run: models.ProbeRun) -> tuple[ItemStatus, ...]:
    """Return the questions of a run in their order, with what each took."""
    item = models.ProbeItem
    query = select(item).where(item.probe_run_id == run.id).order_by(item.idx)
    return tuple(
        ItemStatus(
            benchmark=found.benchmark,
            question_id=found.question_id,
            split=found.split,
            state=found.state,
            attempts=found.attempts,
            actor=found.actor,
            seconds=found.seconds,
            prompt_tokens=found.prompt_tokens,
            cached_tokens=found.cached_tokens,
            generated_tokens=found.generated_tokens,
            reason=found.reason,
        )
        for found in session.scalars(query)
    )


def estimate_run(
    session: Session,
    run: models.ProbeRun,
    *,
    thinking_tokens: float | None = None,
    answer_tokens: float | None = None,
    tokens_per_second: float | None = None,
    n_workers: int = 1,
) -> Estimate:
    """Return what a run takes: from its finished questions if there are any, unless lengths are given; else by limits.

    A throughput that is not given is that of the finished questions.
    """
    protocol = read_protocol(run.protocol)
    counts = _count_items(session, run)
    n_done = counts.n_of["done"]
    if tokens_per_second is None and counts.seconds > 0:
        tokens_per_second = counts.generated_tokens / counts.seconds
    by_length = estimate_from_lengths(
        protocol,
        n_questions=run.n_questions,
        thinking_tokens=thinking_tokens,
        answer_tokens=answer_tokens,
        tokens_per_second=tokens_per_second,
        n_workers=n_workers,
    )
    if n_done == 0 or thinking_tokens is not None or answer_tokens is not None:
        return by_length
    found = _count_trajectories(session, run)
    scale = run.n_questions / n_done
    thought = round(found["thinking_tokens"] * scale)
    n_positions = round(found["n_positions"] * scale)
    spent = round(counts.generated_tokens * scale)
    seconds = None if tokens_per_second is None else spent / tokens_per_second
    n_probes = n_positions * protocol.n_probes
    # Answers and probes are not told apart when they are counted; they are shared out by how many there are.
    n_answers = by_length.n_trajectories
    forced = round(max(spent - thought, 0) * n_probes / (n_probes + n_answers))
    return replace(
        by_length,
        basis="finished questions",
        n_positions=n_positions,
        n_probes=n_probes,
        thinking_tokens=thought,
        answer_tokens=max(spent - thought, 0) - forced,
        probe_tokens=forced,
        seconds=seconds,
        elapsed_seconds=None if seconds is None else seconds / n_workers,
    )


def status_document(status: RunStatus) -> dict[str, Any]:
    """Return a status as a plain document, times in ISO 8601."""
    document: dict[str, Any] = _write_times(asdict(status))
    return document


def _write_times(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, dict):
        return {key: _write_times(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_write_times(inner) for inner in value]
    return value


def _count_items(session: Session, run: models.ProbeRun) -> _Counts:
    item = models.ProbeItem
    by_state = select(item.state, func.count()).where(item.probe_run_id == run.id).group_by(item.state)
    n_of = dict.fromkeys(models.PROBE_ITEM_STATES, 0) | {state: int(n) for state, n in session.execute(by_state)}
    sums = select(
        func.coalesce(func.sum(item.seconds), 0.0),
        func.coalesce(func.sum(item.prompt_tokens), 0),
        func.coalesce(func.sum(item.generated_tokens), 0),
        func.coalesce(func.sum(item.prompt_tokens).filter(item.cached_tokens.is_not(None)), 0),
        func.sum(item.cached_tokens),
    ).where(item.probe_run_id == run.id)
    seconds, prompt, generated, told, cached = session.execute(sums).one()
    return _Counts(
        n_of=n_of,
        seconds=float(seconds or 0),
        prompt_tokens=int(prompt or 0),
        generated_tokens=int(generated or 0),
        told_prompt_tokens=int(told or 0),
        cached_tokens=None if cached is None else int(cached),
    )


def _count_trajectories(session: Session, run: models.ProbeRun) -> dict[str, int]:
    item, trajectory = models.ProbeItem, models.ProbeTrajectory
    # L(n) is the last of a short array; the tokens themselves are a long one, which is stored elsewhere.
    length = trajectory.retained_tokens[func.cardinality(trajectory.retained_tokens)]
    query = (
        select(
            func.count(),
            func.sum(func.cardinality(trajectory.retained_tokens)),
            func.sum(cast(trajectory.hit_limit, Integer)),
            func.sum(trajectory.n_unextracted),
            func.sum(length),
        )
        .join(item, item.id == trajectory.probe_item_id)
        .where(item.probe_run_id == run.id)
    )
    names = ("n_trajectories", "n_positions", "n_hit_limit", "n_unextracted", "thinking_tokens")
    return {name: int(n or 0) for name, n in zip(names, session.execute(query).one(), strict=True)}


def _list_workers(session: Session, run: models.ProbeRun, *, silence_seconds: float) -> tuple[WorkerStatus, ...]:
    worker, item = models.ProbeWorker, models.ProbeItem
    silence = func.make_interval(0, 0, 0, 0, 0, 0, silence_seconds)
    query = (
        select(worker.actor, worker.seen_at, item.benchmark, item.question_id, item.started_at)
        .outerjoin(item, (item.actor == worker.actor) & (item.probe_run_id == run.id) & (item.state == "running"))
        .where(worker.engine_key == run.engine_key, worker.seen_at > func.clock_timestamp() - silence)
        .order_by(worker.actor)
    )
    return tuple(WorkerStatus(*found) for found in session.execute(query))


def _list_reasons(session: Session, run: models.ProbeRun) -> tuple[FailureReason, ...]:
    item = models.ProbeItem
    n_failed = func.count().filter(item.state == "failed")
    query = (
        select(item.reason, func.count(), n_failed)
        .where(item.probe_run_id == run.id, item.reason.is_not(None))
        .group_by(item.reason)
        .order_by(n_failed.desc(), func.count().desc(), item.reason)
        .limit(MAX_REASONS)
    )
    return tuple(FailureReason(str(reason), n, failed) for reason, n, failed in session.execute(query))


def _find_snapshot_name(session: Session, run: models.ProbeRun) -> str | None:
    if run.snapshot_id is None:
        return None
    return session.scalar(select(models.Snapshot.name).where(models.Snapshot.id == run.snapshot_id))
