"""Which scorer version a board shows, and the re-scorings that change it."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.models.declarative import Base, is_split_or_all, is_strategy, one_of, primary_key, reference

RESCORING_STATES = ("running", "ready", "applied", "cancelled")
RESCORING_ITEM_STATES = ("waiting", "scoring", "done", "failed")


class BoardVersion(Base):
    """The one scorer version that all boards of a snapshot, split and strategy show, from the first publication on."""

    __tablename__ = "board_versions"
    __table_args__ = (is_split_or_all(), is_strategy())

    snapshot_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("snapshots.id"), primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    strategy: Mapped[str] = mapped_column(primary_key=True)
    scorer_version: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class Rescoring(Base):
    """New scores for boards of a snapshot, by the scorer of `to_version`; applied as a whole, or cancelled."""

    __tablename__ = "rescorings"
    __table_args__ = (
        one_of("state", RESCORING_STATES, name="state"),
        CheckConstraint("actor <> ''", name="actor"),
        CheckConstraint(
            "(state IN ('applied', 'cancelled')) = (ended_at IS NOT NULL) AND (ended_at IS NULL) = (ended_by IS NULL)",
            name="ended_at",
        ),
        Index("uq_rescorings_open", "snapshot_id", unique=True, postgresql_where=text("state IN ('running', 'ready')")),
    )

    id: Mapped[int] = primary_key()
    snapshot_id: Mapped[int] = reference("snapshots.id")
    to_version: Mapped[str]
    state: Mapped[str] = mapped_column(server_default="running")
    actor: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    ended_by: Mapped[str | None]
    ended_at: Mapped[datetime | None]


class RescoringBoard(Base):
    """A split and strategy that a re-scoring is about, and the version its boards showed when it began."""

    __tablename__ = "rescoring_boards"
    __table_args__ = (is_split_or_all(), is_strategy())

    rescoring_id: Mapped[int] = mapped_column(BigInteger, ForeignKey("rescorings.id"), primary_key=True)
    split: Mapped[str] = mapped_column(primary_key=True)
    strategy: Mapped[str] = mapped_column(primary_key=True)
    from_version: Mapped[str]


class RescoringItem(Base):
    """One submission of a re-scoring; `deadline` is when somebody looks after it."""

    __tablename__ = "rescoring_items"
    __table_args__ = (
        UniqueConstraint("rescoring_id", "submission_id", name="uq_rescoring_items_submission"),
        one_of("state", RESCORING_ITEM_STATES, name="state"),
        CheckConstraint("attempts >= 0", name="attempts"),
        CheckConstraint("state <> 'failed' OR failure_reason IS NOT NULL", name="failure_reason"),
        CheckConstraint("(state IN ('done', 'failed')) = (finished_at IS NOT NULL)", name="finished_at"),
        Index("ix_rescoring_items_submission_id", "submission_id"),
        Index("ix_rescoring_items_deadline", "deadline", postgresql_where=text("deadline IS NOT NULL")),
    )

    id: Mapped[int] = primary_key()
    rescoring_id: Mapped[int] = reference("rescorings.id")
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    state: Mapped[str] = mapped_column(server_default="waiting")
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    deadline: Mapped[datetime | None]
    failure_reason: Mapped[str | None]
    finished_at: Mapped[datetime | None]
