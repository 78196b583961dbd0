"""Snapshots that were handed in over the web and are imported by a job."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import CheckConstraint, Index, func, text
from sqlalchemy.orm import Mapped, mapped_column

from app.db.models.declarative import Base, one_of, primary_key

IMPORT_STATES = ("waiting", "importing", "imported", "rejected", "failed")


class SnapshotImport(Base):
    """A snapshot that a job checks and imports, from an uploaded zip or from a path on the server."""

    __tablename__ = "snapshot_imports"
    __table_args__ = (
        one_of("state", IMPORT_STATES, name="state"),
        CheckConstraint("actor <> ''", name="actor"),
        CheckConstraint("attempts >= 0", name="attempts"),
        CheckConstraint("state <> 'failed' OR failure_reason IS NOT NULL", name="failure_reason"),
        CheckConstraint(
            "(state IN ('imported', 'rejected', 'failed')) = (finished_at IS NOT NULL)", name="finished_at"
        ),
        Index("ix_snapshot_imports_deadline", "deadline", postgresql_where=text("deadline IS NOT NULL")),
    )

    id: Mapped[int] = primary_key()
    # What it is called for people: the zip's own name, or the path on the server.
    source: Mapped[str]
    # The zip's hash, under which it lies in the data folder until it is imported; NULL of a path on the server.
    upload_sha256: Mapped[str | None]
    state: Mapped[str] = mapped_column(server_default="waiting")
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    deadline: Mapped[datetime | None]
    snapshot: Mapped[str | None]
    problems: Mapped[list[dict[str, Any]]] = mapped_column(server_default=text("'[]'::jsonb"))
    failure_reason: Mapped[str | None]
    actor: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    finished_at: Mapped[datetime | None]
