"""Snapshots, their measurements, and the frontiers and figures computed from them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKeyConstraint,
    Index,
    Integer,
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
    is_fraction,
    is_sha256,
    is_split_or_all,
    is_strategy,
    one_of,
    primary_key,
    reference,
)

SNAPSHOT_STATES = ("imported", "frozen")


class Snapshot(Base):
    """An imported set of measurements; once frozen, triggers refuse every change of it and of its rows."""

    __tablename__ = "snapshots"
    __table_args__ = (
        UniqueConstraint("name"),
        UniqueConstraint("sha256"),
        CheckConstraint(f"name ~ '{SLUG_PATTERN}'", name="name"),
        one_of("kind", ("measured", "synthetic"), name="kind"),
        one_of("state", SNAPSHOT_STATES, name="state"),
        is_sha256("sha256"),
        CheckConstraint("probes_per_position >= 1", name="probes_per_position"),
        CheckConstraint("trajectories_per_question >= 1", name="trajectories_per_question"),
        CheckConstraint("n_questions >= 0 AND n_trajectories >= 0", name="counts"),
        CheckConstraint("(state = 'frozen') = (frozen_at IS NOT NULL)", name="frozen_at"),
    )

    id: Mapped[int] = primary_key()
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

    id: Mapped[int] = primary_key()
    snapshot_id: Mapped[int] = reference("snapshots.id", on_delete="CASCADE")
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

    id: Mapped[int] = primary_key()
    snapshot_id: Mapped[int] = reference("snapshots.id", on_delete="CASCADE")
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
        one_of("split", SPLIT_NAMES, name="split"),
        Index(None, "snapshot_id", "benchmark_id"),
    )

    id: Mapped[int] = primary_key()
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

    id: Mapped[int] = primary_key()
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
        is_split_or_all(),
        is_strategy(),
        CheckConstraint("cardinality(cost) = cardinality(correct)", name="frontier_length"),
        CheckConstraint("cardinality(uninformed_cost) = cardinality(uninformed_correct)", name="uninformed_length"),
        CheckConstraint("total_thinking_tokens >= 0 AND total_probes > 0", name="totals"),
        CheckConstraint(
            "num_nulls(certificate_cost, certificate_correct, certificate_band, certificate_needed) IN (0, 4)",
            name="whole_certificate",
        ),
        CheckConstraint(
            "cardinality(certificate_cost) = cardinality(certificate_correct)"
            " AND cardinality(certificate_cost) = cardinality(certificate_band) + 1"
            " AND cardinality(certificate_band) = cardinality(certificate_needed)",
            name="certificate_length",
        ),
        CheckConstraint(
            "'Infinity'::float8 > ALL (certificate_band) AND 'Infinity'::float8 > ALL (certificate_needed)"
            " AND 0 <= ALL (certificate_needed)",
            name="certificate_bands",
        ),
        is_fraction("beta_match"),
        is_fraction("max_accuracy"),
        is_fraction("beta_sat"),
        is_fraction("area"),
        is_fraction("uninformed_area"),
    )

    id: Mapped[int] = primary_key()
    snapshot_id: Mapped[int] = reference("snapshots.id", on_delete="CASCADE")
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
    # What shows that no point of the frontier is missing; NULL where an earlier version stored it.
    certificate_cost: Mapped[list[int] | None]
    certificate_correct: Mapped[list[int] | None]
    certificate_band: Mapped[list[float] | None]
    certificate_needed: Mapped[list[float] | None]
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
        is_split_or_all(),
        is_strategy(),
        CheckConstraint("n_cells >= 1 AND min_questions >= 1", name="counts"),
        CheckConstraint("cardinality(grid_accuracy) = cardinality(uninformed_grid)", name="grid_length"),
        is_fraction("full_accuracy"),
        is_fraction("beta_match"),
        is_fraction("max_accuracy"),
        is_fraction("beta_sat"),
        is_fraction("area"),
        is_fraction("uninformed_area"),
    )

    id: Mapped[int] = primary_key()
    snapshot_id: Mapped[int] = reference("snapshots.id", on_delete="CASCADE")
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
        is_split_or_all(),
    )

    id: Mapped[int] = primary_key()
    snapshot_id: Mapped[int] = reference("snapshots.id", on_delete="CASCADE")
    split: Mapped[str]
    kind: Mapped[str]
    # json keeps the order of the keys, which is the order in which the document shows them.
    document: Mapped[dict[str, Any]] = mapped_column(JSON)
    evaluator_version: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
