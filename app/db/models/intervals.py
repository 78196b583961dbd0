"""Bootstrap replicates, and the intervals and ranks that are computed from them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    LargeBinary,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.orm import Mapped, mapped_column

from app.db.models.declarative import (
    Base,
    is_split_or_all,
    primary_key,
    reference,
)


class SplitReplicates(Base):
    """How far the bootstrap of a split has come; the replicates themselves lie in the data folder."""

    __tablename__ = "split_replicates"
    __table_args__ = (
        UniqueConstraint("snapshot_id", "split", "evaluator_version", name="uq_split_replicates_split"),
        is_split_or_all(),
        CheckConstraint("n_replicates >= 1 AND n_done >= 0 AND n_done <= n_replicates", name="counts"),
        CheckConstraint("(n_done = n_replicates) = (finished_at IS NOT NULL)", name="finished_at"),
    )

    id: Mapped[int] = primary_key()
    snapshot_id: Mapped[int] = reference("snapshots.id", on_delete="CASCADE")
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

    id: Mapped[int] = primary_key()
    board_score_id: Mapped[int] = reference("board_scores.id")
    # In which way the interval follows from the replicates; one of another version counts as missing.
    version: Mapped[str]
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
