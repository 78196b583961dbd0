"""What the release policy keeps: how much teams may submit, and boards that are held back."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.models.declarative import Base, primary_key, reference


class AllowanceLimit(Base):
    """How much a team may submit on a snapshot, or every team where `team_id` is NULL; NULL limits are not set here."""

    __tablename__ = "allowance_limits"
    __table_args__ = (
        Index("uq_allowance_limits_target", "snapshot_id", text("coalesce(team_id, 0)"), unique=True),
        Index(None, "team_id"),
        CheckConstraint(
            "hidden_per_day >= 0 AND hidden_total >= 0 AND open_per_day >= 0 AND rejected_per_day >= 0", name="limits"
        ),
    )

    id: Mapped[int] = primary_key()
    snapshot_id: Mapped[int] = reference("snapshots.id", on_delete="CASCADE")
    team_id: Mapped[int | None] = mapped_column(BigInteger, ForeignKey("teams.id", ondelete="CASCADE"))
    hidden_per_day: Mapped[int | None]
    hidden_total: Mapped[int | None]
    open_per_day: Mapped[int | None]
    rejected_per_day: Mapped[int | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())


class HeldBoard(Base):
    """A board of a submission that is not told: the file is too close there to what has been told before."""

    __tablename__ = "held_boards"
    __table_args__ = (
        Index(
            "uq_held_boards_board",
            "submission_id",
            text("coalesce(model, '')"),
            text("coalesce(benchmark, '')"),
            unique=True,
        ),
    )

    id: Mapped[int] = primary_key()
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    model: Mapped[str | None]
    benchmark: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
