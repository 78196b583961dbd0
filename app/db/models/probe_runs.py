"""Probe runs: question sets, the questions of a run as jobs, and what was measured of each."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSON, REAL
from sqlalchemy.orm import Mapped, mapped_column, relationship

from app.db.models.declarative import (
    SLUG_PATTERN,
    SPLIT_NAMES,
    Base,
    is_sha256,
    one_of,
    primary_key,
    reference,
)
from app.db.models.submissions import new_submission_id

PROBE_RUN_STATES = ("created", "running", "paused", "cancelled", "finished", "assembled", "failed")
PROBE_ITEM_STATES = ("waiting", "running", "done", "failed")


class QuestionSet(Base):
    """A set of questions with its header, known by the hash of its content."""

    __tablename__ = "question_sets"
    __table_args__ = (
        UniqueConstraint("sha256"),
        is_sha256("sha256"),
        CheckConstraint("n_questions >= 1", name="n_questions"),
    )

    id: Mapped[int] = primary_key()
    benchmark: Mapped[str]
    sha256: Mapped[str]
    # json here and below keeps the order of the keys and the text of every number.
    header: Mapped[dict[str, Any]] = mapped_column(JSON)
    n_questions: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class QuestionSetItem(Base):
    """One question of a set."""

    __tablename__ = "question_set_items"
    __table_args__ = (
        UniqueConstraint("question_set_id", "idx"),
        UniqueConstraint("question_set_id", "question_id"),
        one_of("split", SPLIT_NAMES, name="split"),
        CheckConstraint("idx >= 0", name="idx"),
    )

    id: Mapped[int] = primary_key()
    question_set_id: Mapped[int] = reference("question_sets.id")
    idx: Mapped[int]
    question_id: Mapped[str]
    split: Mapped[str]
    document: Mapped[dict[str, Any]] = mapped_column(JSON)


class ModelProfile(Base):
    """A model profile that somebody registered, beside those that are shipped."""

    __tablename__ = "model_profiles"
    __table_args__ = (UniqueConstraint("name"), Index(None, "account_id"))

    id: Mapped[int] = primary_key()
    name: Mapped[str]
    document: Mapped[dict[str, Any]] = mapped_column(JSON)
    account_id: Mapped[int | None] = mapped_column(BigInteger, ForeignKey("accounts.id"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class ProbeRun(Base):
    """A job that measures one model on question sets; its name is that of the snapshot to be.

    `engine_key` is the same for runs that one loaded engine can serve, and names their queue.
    """

    __tablename__ = "probe_runs"
    __table_args__ = (
        UniqueConstraint("name"),
        Index(None, "snapshot_id"),
        Index(None, "account_id"),
        CheckConstraint("id ~ '^[A-Za-z0-9_-]{12}$'", name="id"),
        CheckConstraint(f"name ~ '{SLUG_PATTERN}'", name="name"),
        CheckConstraint("engine_key ~ '^[0-9a-f]{16}$'", name="engine_key"),
        CheckConstraint("n_questions >= 1", name="n_questions"),
        one_of("state", PROBE_RUN_STATES, name="state"),
        CheckConstraint("state IN ('created', 'cancelled') OR started_at IS NOT NULL", name="started_at"),
        CheckConstraint(
            "(state IN ('cancelled', 'finished', 'assembled', 'failed')) = (finished_at IS NOT NULL)",
            name="finished_at",
        ),
        CheckConstraint("(state = 'failed') = (failure_reason IS NOT NULL)", name="failure_reason"),
        CheckConstraint("(state = 'assembled') = (snapshot_id IS NOT NULL)", name="snapshot_id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_submission_id)
    name: Mapped[str]
    title: Mapped[str]
    model: Mapped[str]
    engine_key: Mapped[str]
    profile: Mapped[dict[str, Any]] = mapped_column(JSON)
    protocol: Mapped[dict[str, Any]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(server_default="created")
    priority: Mapped[int] = mapped_column(server_default=text("0"))
    n_questions: Mapped[int]
    account_id: Mapped[int | None] = mapped_column(BigInteger, ForeignKey("accounts.id"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    failure_reason: Mapped[str | None]
    snapshot_id: Mapped[int | None] = mapped_column(BigInteger, ForeignKey("snapshots.id"))

    items: Mapped[list[ProbeItem]] = relationship(
        lazy="raise", order_by="ProbeItem.idx", back_populates="run", passive_deletes="all"
    )
    events: Mapped[list[ProbeRunEvent]] = relationship(
        lazy="raise", order_by="ProbeRunEvent.id", back_populates="run", passive_deletes="all"
    )


class ProbeRunEvent(Base):
    """A change of a run's state or priority: who, when and why. Rows are only ever added, which a trigger holds."""

    __tablename__ = "probe_run_events"
    __table_args__ = (
        one_of("from_state", PROBE_RUN_STATES, name="from_state"),
        one_of("to_state", PROBE_RUN_STATES, name="to_state"),
        CheckConstraint("actor <> ''", name="actor"),
        Index(None, "probe_run_id"),
    )

    id: Mapped[int] = primary_key()
    probe_run_id: Mapped[str] = mapped_column(ForeignKey("probe_runs.id"))
    from_state: Mapped[str | None]
    to_state: Mapped[str]
    actor: Mapped[str]
    reason: Mapped[str | None]
    # Not now(), which stands still inside a transaction that writes several events.
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())

    run: Mapped[ProbeRun] = relationship(lazy="raise", back_populates="events")


class ProbeItem(Base):
    """One question of a run, which is one job.

    A worker that has it in hand holds a lease, which it renews while it lives and loses at the deadline at the latest.
    `attempts` counts how often it was handed out, `failures` the attempts that ended in an error, `losses` those whose
    worker fell silent.
    """

    __tablename__ = "probe_items"
    __table_args__ = (
        UniqueConstraint("probe_run_id", "idx"),
        UniqueConstraint("probe_run_id", "benchmark", "question_id"),
        Index(None, "question_set_id"),
        Index(None, "probe_run_id", "state"),
        Index(None, "lease_until", postgresql_where=text("lease_until IS NOT NULL")),
        one_of("split", SPLIT_NAMES, name="split"),
        one_of("state", PROBE_ITEM_STATES, name="state"),
        CheckConstraint("idx >= 0", name="idx"),
        CheckConstraint("attempts >= 0 AND failures >= 0 AND losses >= 0", name="attempts"),
        CheckConstraint(
            "num_nulls(actor, lease_until, deadline) = CASE WHEN state = 'running' THEN 0 ELSE 3 END", name="lease"
        ),
        CheckConstraint("retry_at IS NULL OR state = 'waiting'", name="retry_at"),
        CheckConstraint("(state IN ('done', 'failed')) = (finished_at IS NOT NULL)", name="finished_at"),
        CheckConstraint("state <> 'failed' OR reason IS NOT NULL", name="reason"),
        CheckConstraint(
            "num_nulls(seconds, prompt_tokens, generated_tokens, worker) = CASE WHEN state = 'done' THEN 0 ELSE 4 END",
            name="accounting",
        ),
        CheckConstraint("seconds >= 0 AND seconds < 'Infinity'", name="seconds"),
        CheckConstraint("prompt_tokens >= 0 AND generated_tokens >= 0", name="tokens"),
        CheckConstraint("cached_tokens >= 0 AND cached_tokens <= prompt_tokens", name="cached_tokens"),
    )

    id: Mapped[int] = primary_key()
    probe_run_id: Mapped[str] = mapped_column(ForeignKey("probe_runs.id"))
    question_set_id: Mapped[int] = reference("question_sets.id")
    idx: Mapped[int]
    benchmark: Mapped[str]
    question_id: Mapped[str]
    split: Mapped[str]
    document: Mapped[dict[str, Any]] = mapped_column(JSON)
    state: Mapped[str] = mapped_column(server_default="waiting")
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    failures: Mapped[int] = mapped_column(server_default=text("0"))
    losses: Mapped[int] = mapped_column(server_default=text("0"))
    actor: Mapped[str | None]
    lease_until: Mapped[datetime | None]
    deadline: Mapped[datetime | None]
    retry_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    seconds: Mapped[float | None]
    prompt_tokens: Mapped[int | None] = mapped_column(BigInteger)
    # NULL where the engine does not say how much its prefix cache served.
    cached_tokens: Mapped[int | None] = mapped_column(BigInteger)
    generated_tokens: Mapped[int | None] = mapped_column(BigInteger)
    reason: Mapped[str | None]
    # Versions and choices of the engine and the grader that measured it; the worker's name among them.
    worker: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))

    run: Mapped[ProbeRun] = relationship(lazy="raise", back_populates="items")
    question_set: Mapped[QuestionSet] = relationship(lazy="raise")
    trajectories: Mapped[list[ProbeTrajectory]] = relationship(
        lazy="raise", order_by="ProbeTrajectory.trajectory", back_populates="item", passive_deletes="all"
    )


class ProbeTrajectory(Base):
    """One measured trajectory of a question, with the answers that were given at each position, for re-grading."""

    __tablename__ = "probe_trajectories"
    __table_args__ = (
        UniqueConstraint("probe_item_id", "trajectory"),
        CheckConstraint("trajectory >= 0", name="trajectory"),
        CheckConstraint("is_strictly_increasing(retained_tokens)", name="retained_tokens_increase"),
        CheckConstraint("retained_tokens[1] = 0", name="retained_tokens_start"),
        CheckConstraint("retained_tokens[cardinality(retained_tokens)] = cardinality(token_ids)", name="token_ids"),
        CheckConstraint(
            "0 <= ALL (correct_probes) AND array_position(correct_probes, NULL) IS NULL", name="correct_probes"
        ),
        CheckConstraint("cardinality(correct_probes) = cardinality(retained_tokens)", name="correct_probes_length"),
        CheckConstraint("cardinality(end_margin) = cardinality(retained_tokens)", name="end_margin_length"),
        CheckConstraint("0 < ALL (block_tokens)", name="block_tokens"),
        CheckConstraint("n_unextracted >= 0", name="n_unextracted"),
        CheckConstraint("(direct_answer IS NULL) <= (direct_correct IS NULL)", name="direct"),
    )

    id: Mapped[int] = primary_key()
    probe_item_id: Mapped[int] = reference("probe_items.id")
    trajectory: Mapped[int]
    token_ids: Mapped[list[int]] = mapped_column(ARRAY(Integer))
    block_tokens: Mapped[list[int]] = mapped_column(ARRAY(Integer))
    retained_tokens: Mapped[list[int]] = mapped_column(ARRAY(Integer))
    correct_probes: Mapped[list[int]] = mapped_column(ARRAY(Integer))
    end_margin: Mapped[list[float] | None] = mapped_column(ARRAY(REAL))
    # The answer that followed the thinking by itself; NULL, and wrong, where the limit was hit before there was one.
    original_answer: Mapped[str | None]
    original_correct: Mapped[bool]
    direct_answer: Mapped[str | None]
    direct_correct: Mapped[bool | None]
    hit_limit: Mapped[bool]
    n_unextracted: Mapped[int]
    # Per position the texts of its M answers, as JSON compressed with zstd.
    answers: Mapped[bytes] = mapped_column(LargeBinary)
    grader_version: Mapped[str]

    item: Mapped[ProbeItem] = relationship(lazy="raise", back_populates="trajectories")


class ProbeWorker(Base):
    """A worker that measures, and when it last gave a sign of life; `engine_key` says which runs it serves.

    `queue_worker_id` is what the queue library calls it while it works off jobs.
    """

    __tablename__ = "probe_workers"
    __table_args__ = (
        UniqueConstraint("actor"),
        CheckConstraint("actor <> ''", name="actor"),
        CheckConstraint("engine_key ~ '^[0-9a-f]{16}$'", name="engine_key"),
    )

    id: Mapped[int] = primary_key()
    actor: Mapped[str]
    model: Mapped[str]
    engine_key: Mapped[str]
    versions: Mapped[dict[str, Any]] = mapped_column(JSON)
    queue_worker_id: Mapped[int | None] = mapped_column(BigInteger)
    started_at: Mapped[datetime] = mapped_column(server_default=func.now())
    seen_at: Mapped[datetime] = mapped_column(server_default=func.now())
