"""The tables. What must hold is said as a named constraint; triggers are in the migrations."""

from __future__ import annotations

import secrets
import string
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    DateTime,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Identity,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSON, JSONB, REAL
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

SNAPSHOT_STATES = ("imported", "frozen")
SUBMISSION_STATES = (
    "received",
    "validating",
    "scoring",
    "scored",
    "withheld",
    "published",
    "rejected",
    "failed",
    "withdrawn",
)
STRATEGY_NAMES = ("dynamic_routing", "fixed_budget", "dynamic_early_exit")
SPLIT_NAMES = ("train", "validation", "test")
SLUG_PATTERN = "^[a-z0-9][a-z0-9._-]*$"
SUBMISSION_ID_CHARACTERS = string.ascii_letters + string.digits


def _one_of(column: str, values: tuple[str, ...], *, name: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=name)


def _is_split_or_all() -> CheckConstraint:
    return _one_of("split", ("all", *SPLIT_NAMES), name="split")


def _is_strategy() -> CheckConstraint:
    return _one_of("strategy", STRATEGY_NAMES, name="strategy")


def _is_fraction(column: str) -> CheckConstraint:
    """NaN sorts above every number in PostgreSQL, so the upper bound refuses it too."""
    return CheckConstraint(f"{column} >= 0 AND {column} <= 1", name=column)


def _is_sha256(column: str) -> CheckConstraint:
    return CheckConstraint(f"{column} ~ '^[0-9a-f]{{64}}$'", name=column)


def new_submission_id() -> str:
    """Return twelve random letters and digits (71 bits): safe in a URL, and never taken for a command-line option."""
    return "".join(secrets.choice(SUBMISSION_ID_CHARACTERS) for _ in range(12))


class Base(DeclarativeBase):
    """Declarative base with a name for every constraint."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012  (SQLAlchemy reads it from the class)
        int: Integer,
        str: Text,
        float: Double,
        datetime: DateTime(timezone=True),
        dict[str, Any]: JSONB,
        list[dict[str, Any]]: JSONB,
        list[int]: ARRAY(BigInteger),
        list[float]: ARRAY(Double),
    }


def _primary_key() -> Mapped[int]:
    return mapped_column(BigInteger, Identity(always=True), primary_key=True)


def _reference(target: str, *, on_delete: str | None = None) -> Mapped[int]:
    return mapped_column(BigInteger, ForeignKey(target, ondelete=on_delete))


class Snapshot(Base):
    """An imported set of measurements; once frozen, triggers refuse every change of it and of its rows."""

    __tablename__ = "snapshots"
    __table_args__ = (
        UniqueConstraint("name"),
        UniqueConstraint("sha256"),
        CheckConstraint(f"name ~ '{SLUG_PATTERN}'", name="name"),
        _one_of("kind", ("measured", "synthetic"), name="kind"),
        _one_of("state", SNAPSHOT_STATES, name="state"),
        _is_sha256("sha256"),
        CheckConstraint("probes_per_position >= 1", name="probes_per_position"),
        CheckConstraint("trajectories_per_question >= 1", name="trajectories_per_question"),
        CheckConstraint("n_questions >= 0 AND n_trajectories >= 0", name="counts"),
        CheckConstraint("(state = 'frozen') = (frozen_at IS NOT NULL)", name="frozen_at"),
    )

    id: Mapped[int] = _primary_key()
    name: Mapped[str]
    title: Mapped[str]
    kind: Mapped[str]
    sha256: Mapped[str]
    # json, not jsonb: jsonb rewrites numbers (1e16 becomes an integer), and the content hash covers the manifest.
    manifest: Mapped[dict[str, Any]] = mapped_column(JSON)
    probes_per_position: Mapped[int]
    trajectories_per_question: Mapped[int]
    n_questions: Mapped[int]
    n_trajectories: Mapped[int]
    state: Mapped[str] = mapped_column(server_default="imported")
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    frozen_at: Mapped[datetime | None]

    models: Mapped[list[SnapshotModel]] = relationship(
        lazy="raise", order_by="SnapshotModel.idx", passive_deletes="all", back_populates="snapshot"
    )
    benchmarks: Mapped[list[SnapshotBenchmark]] = relationship(
        lazy="raise", order_by="SnapshotBenchmark.idx", passive_deletes="all", back_populates="snapshot"
    )

    @property
    def is_frozen(self) -> bool:
        """Whether the snapshot can no longer change."""
        return self.state == "frozen"

    @property
    def full_sha256(self) -> str:
        """The hash that boards, scores and receipts refer to: of the full snapshot where this is its public export."""
        return str(self.manifest.get("full_sha256") or self.sha256)


class SnapshotModel(Base):
    """A model of a snapshot, `idx` being its place in the manifest."""

    __tablename__ = "snapshot_models"
    __table_args__ = (
        UniqueConstraint("snapshot_id", "name"),
        UniqueConstraint("snapshot_id", "idx"),
        UniqueConstraint("snapshot_id", "id"),
        CheckConstraint("idx >= 0", name="idx"),
    )

    id: Mapped[int] = _primary_key()
    snapshot_id: Mapped[int] = _reference("snapshots.id", on_delete="CASCADE")
    idx: Mapped[int]
    name: Mapped[str]

    snapshot: Mapped[Snapshot] = relationship(lazy="raise", back_populates="models")


class SnapshotBenchmark(Base):
    """A benchmark of a snapshot, `idx` being its place in the manifest."""

    __tablename__ = "snapshot_benchmarks"
    __table_args__ = (
        UniqueConstraint("snapshot_id", "name"),
        UniqueConstraint("snapshot_id", "idx"),
        UniqueConstraint("snapshot_id", "id"),
        CheckConstraint("idx >= 0", name="idx"),
    )

    id: Mapped[int] = _primary_key()
    snapshot_id: Mapped[int] = _reference("snapshots.id", on_delete="CASCADE")
    idx: Mapped[int]
    name: Mapped[str]
    title: Mapped[str | None]

    snapshot: Mapped[Snapshot] = relationship(lazy="raise", back_populates="benchmarks")


class Question(Base):
    """A question of a snapshot."""

    __tablename__ = "questions"
    __table_args__ = (
        UniqueConstraint("benchmark_id", "question_id"),
        UniqueConstraint("snapshot_id", "id"),
        # Two columns, so that a question cannot name the benchmark of another snapshot.
        ForeignKeyConstraint(
            ["snapshot_id", "benchmark_id"],
            ["snapshot_benchmarks.snapshot_id", "snapshot_benchmarks.id"],
            ondelete="CASCADE",
        ),
        _one_of("split", SPLIT_NAMES, name="split"),
        Index(None, "snapshot_id", "benchmark_id"),
    )

    id: Mapped[int] = _primary_key()
    snapshot_id: Mapped[int] = mapped_column(BigInteger)
    benchmark_id: Mapped[int] = mapped_column(BigInteger)
    question_id: Mapped[str]
    split: Mapped[str]
    prompt: Mapped[str | None]
    reference_answer: Mapped[str | None]
    difficulty: Mapped[int | None]


class Trajectory(Base):
    """One trajectory with its positions: L(k) in `retained_tokens`, C(k) in `correct_probes` (NULL where hidden)."""

    __tablename__ = "trajectories"
    __table_args__ = (
        UniqueConstraint("model_id", "question_pk", "trajectory"),
        ForeignKeyConstraint(
            ["snapshot_id", "model_id"],
            ["snapshot_models.snapshot_id", "snapshot_models.id"],
            ondelete="CASCADE",
        ),
        ForeignKeyConstraint(
            ["snapshot_id", "question_pk"], ["questions.snapshot_id", "questions.id"], ondelete="CASCADE"
        ),
        Index(None, "question_pk"),
        CheckConstraint("trajectory >= 0", name="trajectory"),
        CheckConstraint("is_strictly_increasing(retained_tokens)", name="retained_tokens_increase"),
        CheckConstraint("retained_tokens[1] = 0", name="retained_tokens_start"),
        CheckConstraint("retained_tokens[cardinality(retained_tokens)] = thinking_tokens", name="thinking_tokens"),
        CheckConstraint(
            "0 <= ALL (correct_probes) AND array_position(correct_probes, NULL) IS NULL", name="correct_probes"
        ),
        CheckConstraint("cardinality(correct_probes) = cardinality(retained_tokens)", name="correct_probes_length"),
        CheckConstraint("cardinality(end_margin) = cardinality(retained_tokens)", name="end_margin_length"),
        CheckConstraint("cardinality(step_logprob) = cardinality(retained_tokens) - 1", name="step_logprob_length"),
        CheckConstraint("cardinality(token_ids) = thinking_tokens", name="token_ids_length"),
        CheckConstraint("0 <= ALL (token_ids)", name="token_ids"),
        CheckConstraint("0 < ALL (block_tokens)", name="block_tokens"),
    )

    id: Mapped[int] = _primary_key()
    snapshot_id: Mapped[int] = mapped_column(BigInteger)
    model_id: Mapped[int] = mapped_column(BigInteger)
    question_pk: Mapped[int] = mapped_column(BigInteger)
    trajectory: Mapped[int]
    thinking_tokens: Mapped[int]
    original_correct: Mapped[bool | None]
    direct_correct: Mapped[bool | None]
    retained_tokens: Mapped[list[int]] = mapped_column(ARRAY(Integer))
    correct_probes: Mapped[list[int] | None] = mapped_column(ARRAY(Integer))
    end_margin: Mapped[list[float] | None] = mapped_column(ARRAY(REAL))
    token_ids: Mapped[list[int] | None] = mapped_column(ARRAY(Integer))
    block_tokens: Mapped[list[int] | None] = mapped_column(ARRAY(Integer))
    # json is stored as it is sent: nothing asks inside it, so there is no use in taking it apart.
    probe_answers: Mapped[list[Any] | None] = mapped_column(JSON(none_as_null=True))
    step_logprob: Mapped[list[float] | None] = mapped_column(ARRAY(REAL))


class CellFrontier(Base):
    """The exact frontier and the uninformed reference of one cell, computed once and reused."""

    __tablename__ = "cell_frontiers"
    __table_args__ = (
        UniqueConstraint(
            "snapshot_id",
            "split",
            "strategy",
            "model",
            "benchmark",
            "evaluator_version",
            name="uq_cell_frontiers_cell",
        ),
        _is_split_or_all(),
        _is_strategy(),
        CheckConstraint("cardinality(cost) = cardinality(correct)", name="frontier_length"),
        CheckConstraint("cardinality(uninformed_cost) = cardinality(uninformed_correct)", name="uninformed_length"),
        CheckConstraint("total_thinking_tokens >= 0 AND total_probes > 0", name="totals"),
        _is_fraction("beta_match"),
        _is_fraction("max_accuracy"),
        _is_fraction("beta_sat"),
        _is_fraction("area"),
        _is_fraction("uninformed_area"),
    )

    id: Mapped[int] = _primary_key()
    snapshot_id: Mapped[int] = _reference("snapshots.id", on_delete="CASCADE")
    split: Mapped[str]
    strategy: Mapped[str]
    model: Mapped[str]
    benchmark: Mapped[str]
    cost: Mapped[list[int]]
    correct: Mapped[list[int]]
    total_thinking_tokens: Mapped[int] = mapped_column(BigInteger)
    total_probes: Mapped[int] = mapped_column(BigInteger)
    full_correct: Mapped[int] = mapped_column(BigInteger)
    uninformed_cost: Mapped[list[int]]
    uninformed_correct: Mapped[list[int]]
    beta_match: Mapped[float | None]
    max_accuracy: Mapped[float]
    beta_sat: Mapped[float]
    area: Mapped[float]
    uninformed_area: Mapped[float]
    evaluator_version: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class BoardFrontier(Base):
    """The macro frontier of one board (a cell, a model, a benchmark, or the whole snapshot where both are NULL)."""

    __tablename__ = "board_frontiers"
    __table_args__ = (
        # NULLs count as different in a plain unique constraint before PostgreSQL 15, so the index spells them out.
        Index(
            "uq_board_frontiers_board",
            "snapshot_id",
            "split",
            "strategy",
            text("coalesce(model, '')"),
            text("coalesce(benchmark, '')"),
            "evaluator_version",
            unique=True,
        ),
        _is_split_or_all(),
        _is_strategy(),
        CheckConstraint("n_cells >= 1 AND min_questions >= 1", name="counts"),
        CheckConstraint("cardinality(grid_accuracy) = cardinality(uninformed_grid)", name="grid_length"),
        _is_fraction("full_accuracy"),
        _is_fraction("beta_match"),
        _is_fraction("max_accuracy"),
        _is_fraction("beta_sat"),
        _is_fraction("area"),
        _is_fraction("uninformed_area"),
    )

    id: Mapped[int] = _primary_key()
    snapshot_id: Mapped[int] = _reference("snapshots.id", on_delete="CASCADE")
    split: Mapped[str]
    strategy: Mapped[str]
    model: Mapped[str | None]
    benchmark: Mapped[str | None]
    n_cells: Mapped[int]
    min_questions: Mapped[int]
    full_accuracy: Mapped[float]
    beta_match: Mapped[float | None]
    max_accuracy: Mapped[float]
    beta_sat: Mapped[float]
    area: Mapped[float]
    uninformed_area: Mapped[float]
    grid_accuracy: Mapped[list[float]]
    uninformed_grid: Mapped[list[float]]
    evaluator_version: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class SnapshotFigure(Base):
    """A document computed once from a snapshot's measurements, such as the overthinking figures of a split."""

    __tablename__ = "snapshot_figures"
    __table_args__ = (
        UniqueConstraint("snapshot_id", "split", "kind", "evaluator_version", name="uq_snapshot_figures_kind"),
        _is_split_or_all(),
    )

    id: Mapped[int] = _primary_key()
    snapshot_id: Mapped[int] = _reference("snapshots.id", on_delete="CASCADE")
    split: Mapped[str]
    kind: Mapped[str]
    # json keeps the order of the keys, which is the order in which the document shows them.
    document: Mapped[dict[str, Any]] = mapped_column(JSON)
    evaluator_version: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Team(Base):
    """A team; the one with `is_control` owns the published controls."""

    __tablename__ = "teams"
    __table_args__ = (UniqueConstraint("name"), CheckConstraint("name <> ''", name="name"))

    id: Mapped[int] = _primary_key()
    name: Mapped[str]
    is_control: Mapped[bool] = mapped_column(server_default=text("false"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Account(Base):
    """Someone who may act, as a member of one team."""

    __tablename__ = "accounts"
    __table_args__ = (
        UniqueConstraint("name"),
        CheckConstraint("name <> ''", name="name"),
        Index(None, "team_id"),
    )

    id: Mapped[int] = _primary_key()
    name: Mapped[str]
    team_id: Mapped[int] = _reference("teams.id")
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())

    team: Mapped[Team] = relationship(lazy="raise")


class ApiToken(Base):
    """A bearer token, known here only by its hash."""

    __tablename__ = "api_tokens"
    __table_args__ = (
        UniqueConstraint("token_sha256"),
        _is_sha256("token_sha256"),
        Index(None, "account_id"),
    )

    id: Mapped[int] = _primary_key()
    account_id: Mapped[int] = _reference("accounts.id", on_delete="CASCADE")
    name: Mapped[str]
    token_sha256: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    last_used_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]

    account: Mapped[Account] = relationship(lazy="raise")


class Method(Base):
    """A named method of a team; its submissions compete as one row of a board."""

    __tablename__ = "methods"
    __table_args__ = (
        UniqueConstraint("team_id", "name"),
        UniqueConstraint("team_id", "id"),
        CheckConstraint("name <> '' AND length(name) <= 200", name="name"),
    )

    id: Mapped[int] = _primary_key()
    team_id: Mapped[int] = _reference("teams.id")
    name: Mapped[str]
    description: Mapped[str | None]
    is_control: Mapped[bool] = mapped_column(server_default=text("false"))
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())

    team: Mapped[Team] = relationship(lazy="raise")


class Submission(Base):
    """One uploaded action file of a method for one split of one snapshot and one strategy."""

    __tablename__ = "submissions"
    __table_args__ = (
        # The same bytes by the same team for the same target are one submission.
        UniqueConstraint(
            "team_id", "snapshot_id", "split", "strategy", "actions_sha256", name="uq_submissions_same_bytes"
        ),
        # Two columns, so that the team is always the method's own.
        ForeignKeyConstraint(["team_id", "method_id"], ["methods.team_id", "methods.id"]),
        Index(
            "uq_submissions_current",
            "method_id",
            "snapshot_id",
            "split",
            "strategy",
            unique=True,
            postgresql_where=text("is_current"),
        ),
        Index("ix_submissions_board", "snapshot_id", "split", "strategy", "state"),
        Index("ix_submissions_method_id", "method_id"),
        Index("ix_submissions_account_id", "account_id"),
        Index("ix_submissions_deadline", "deadline", postgresql_where=text("deadline IS NOT NULL")),
        CheckConstraint("id ~ '^[A-Za-z0-9_-]{12}$'", name="id"),
        _is_split_or_all(),
        _is_strategy(),
        _one_of("state", SUBMISSION_STATES, name="state"),
        _is_sha256("actions_sha256"),
        CheckConstraint("actions_bytes >= 0", name="actions_bytes"),
        CheckConstraint("n_settings >= 1", name="n_settings"),
        CheckConstraint("attempts >= 0", name="attempts"),
        _is_fraction("progress"),
        CheckConstraint("NOT is_current OR state = 'published'", name="current_is_published"),
        CheckConstraint("state <> 'published' OR published_at IS NOT NULL", name="published_at"),
        CheckConstraint("state NOT IN ('scored', 'published') OR scored_at IS NOT NULL", name="scored_at"),
        CheckConstraint("state <> 'failed' OR failure_reason IS NOT NULL", name="failure_reason"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_submission_id)
    team_id: Mapped[int] = mapped_column(BigInteger)
    method_id: Mapped[int] = mapped_column(BigInteger)
    account_id: Mapped[int] = _reference("accounts.id")
    snapshot_id: Mapped[int] = _reference("snapshots.id")
    split: Mapped[str]
    strategy: Mapped[str]
    actions_sha256: Mapped[str]
    actions_bytes: Mapped[int] = mapped_column(BigInteger)
    filename: Mapped[str]
    state: Mapped[str] = mapped_column(server_default="received")
    is_current: Mapped[bool] = mapped_column(server_default=text("false"))
    problems: Mapped[list[dict[str, Any]]] = mapped_column(server_default=text("'[]'::jsonb"))
    warnings: Mapped[list[dict[str, Any]]] = mapped_column(server_default=text("'[]'::jsonb"))
    failure_reason: Mapped[str | None]
    n_settings: Mapped[int | None]
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    deadline: Mapped[datetime | None]
    progress: Mapped[float | None] = mapped_column(REAL)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    scored_at: Mapped[datetime | None]
    published_at: Mapped[datetime | None]

    method: Mapped[Method] = relationship(lazy="raise", foreign_keys=[team_id, method_id])
    account: Mapped[Account] = relationship(lazy="raise")
    snapshot: Mapped[Snapshot] = relationship(lazy="raise")
    events: Mapped[list[SubmissionEvent]] = relationship(
        lazy="raise", order_by="SubmissionEvent.id", back_populates="submission", passive_deletes="all"
    )
    scores: Mapped[list[Score]] = relationship(
        lazy="raise", order_by="Score.id", back_populates="submission", passive_deletes="all"
    )


class SubmissionEvent(Base):
    """A change of state: who, when and why. Rows are only ever added, which a trigger holds."""

    __tablename__ = "submission_events"
    __table_args__ = (
        _one_of("from_state", SUBMISSION_STATES, name="from_state"),
        _one_of("to_state", SUBMISSION_STATES, name="to_state"),
        CheckConstraint("actor <> ''", name="actor"),
        Index(None, "submission_id"),
    )

    id: Mapped[int] = _primary_key()
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    from_state: Mapped[str | None]
    to_state: Mapped[str]
    actor: Mapped[str]
    reason: Mapped[str | None]
    # Not now(), which stands still inside a transaction that writes several events.
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())

    submission: Mapped[Submission] = relationship(lazy="raise", back_populates="events")


class Score(Base):
    """The score document of a submission under one scorer version. Rows are only ever added."""

    __tablename__ = "scores"
    __table_args__ = (UniqueConstraint("submission_id", "scorer_version"),)

    id: Mapped[int] = _primary_key()
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    scorer_version: Mapped[str]
    # json keeps the text of every number and the order of the keys, so that page, REST and command print the same.
    document: Mapped[dict[str, Any]] = mapped_column(JSON)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())

    submission: Mapped[Submission] = relationship(lazy="raise", back_populates="scores")
    boards: Mapped[list[BoardScore]] = relationship(
        lazy="raise", order_by="BoardScore.id", back_populates="score", passive_deletes="all"
    )


class BoardScore(Base):
    """A score's figures on one board, and the submission's curve there. Rows are only ever added."""

    __tablename__ = "board_scores"
    __table_args__ = (
        Index(
            "uq_board_scores_board",
            "score_id",
            text("coalesce(model, '')"),
            text("coalesce(benchmark, '')"),
            unique=True,
        ),
        CheckConstraint("n_settings >= 1 AND n_cells >= 1 AND min_questions >= 1", name="counts"),
        CheckConstraint("realised_potential <= 1", name="realised_potential"),
        CheckConstraint("gap >= -1 AND gap <= 1", name="gap"),
        CheckConstraint("best_e3 >= 0 AND best_e3 < 'Infinity'", name="best_e3"),
        CheckConstraint("cardinality(curve_beta) = cardinality(curve_accuracy)", name="curve_length"),
        CheckConstraint("realised_potential IS NOT NULL OR reason IS NOT NULL", name="reason"),
        _is_fraction("area"),
        _is_fraction("uninformed_area"),
        _is_fraction("oracle_area"),
        _is_fraction("max_accuracy"),
        _is_fraction("beta_match"),
        _is_fraction("tokens_saved"),
        _is_fraction("accuracy_25"),
        _is_fraction("accuracy_50"),
        _is_fraction("accuracy_75"),
    )

    id: Mapped[int] = _primary_key()
    score_id: Mapped[int] = _reference("scores.id")
    model: Mapped[str | None]
    benchmark: Mapped[str | None]
    n_settings: Mapped[int]
    n_cells: Mapped[int]
    min_questions: Mapped[int]
    realised_potential: Mapped[float | None]
    area: Mapped[float]
    uninformed_area: Mapped[float]
    oracle_area: Mapped[float]
    gap: Mapped[float]
    max_accuracy: Mapped[float]
    beta_match: Mapped[float | None]
    # Stored, not taken from beta_match: 1 - beta_match is rounded once from the exact figure, as in the document.
    tokens_saved: Mapped[float | None]
    accuracy_25: Mapped[float]
    accuracy_50: Mapped[float]
    accuracy_75: Mapped[float]
    best_e3: Mapped[float | None]
    reason: Mapped[str | None]
    curve_beta: Mapped[list[float]]
    curve_accuracy: Mapped[list[float]]

    score: Mapped[Score] = relationship(lazy="raise", back_populates="boards")


class SplitReplicates(Base):
    """How far the bootstrap of a split has come; the replicates themselves lie in the data folder."""

    __tablename__ = "split_replicates"
    __table_args__ = (
        UniqueConstraint("snapshot_id", "split", "evaluator_version", name="uq_split_replicates_split"),
        _is_split_or_all(),
        CheckConstraint("n_replicates >= 1 AND n_done >= 0 AND n_done <= n_replicates", name="counts"),
        CheckConstraint("(n_done = n_replicates) = (finished_at IS NOT NULL)", name="finished_at"),
    )

    id: Mapped[int] = _primary_key()
    snapshot_id: Mapped[int] = _reference("snapshots.id", on_delete="CASCADE")
    split: Mapped[str]
    n_replicates: Mapped[int]
    n_done: Mapped[int] = mapped_column(server_default=text("0"))
    seed: Mapped[int] = mapped_column(BigInteger)
    evaluator_version: Mapped[str]
    failure_reason: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    finished_at: Mapped[datetime | None]


class BoardInterval(Base):
    """The 95 % intervals of a submission's figures on one board, and what ranks are computed from."""

    __tablename__ = "board_intervals"
    __table_args__ = (
        UniqueConstraint("board_score_id"),
        CheckConstraint("n_replicates >= 1", name="n_replicates"),
        CheckConstraint("(realised_potential_low IS NULL) = (realised_potential_high IS NULL)", name="both_ends"),
        CheckConstraint(
            "realised_potential_low <= realised_potential_high AND realised_potential_high < 'Infinity'", name="order"
        ),
        CheckConstraint("octet_length(replicates) = 8 * n_replicates", name="replicates_length"),
    )

    id: Mapped[int] = _primary_key()
    board_score_id: Mapped[int] = _reference("board_scores.id")
    n_replicates: Mapped[int]
    # json keeps the text of every number and the order of the keys, as in the score document.
    intervals: Mapped[dict[str, Any]] = mapped_column(JSON)
    realised_potential_low: Mapped[float | None]
    realised_potential_high: Mapped[float | None]
    # Realised potential in every replicate, little-endian float64, NaN where it is undefined.
    replicates: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class BoardRank(Base):
    """The rank of a published submission on one board, among `n_ranked` methods, shared up to `last_rank`."""

    __tablename__ = "board_ranks"
    __table_args__ = (CheckConstraint("rank >= 1 AND last_rank >= rank AND n_ranked >= last_rank", name="ranks"),)

    board_score_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("board_scores.id"), primary_key=True)
    rank: Mapped[int]
    last_rank: Mapped[int]
    n_ranked: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
