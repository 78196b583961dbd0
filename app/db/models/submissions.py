"""Methods, submissions and their scores."""

from __future__ import annotations

import secrets
import string
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    UniqueConstraint,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSON, REAL
from sqlalchemy.orm import Mapped, mapped_column, relationship

from app.db.models.accounts import Account, Team
from app.db.models.declarative import (
    Base,
    is_fraction,
    is_sha256,
    is_split_or_all,
    is_strategy,
    is_web_address,
    one_of,
    primary_key,
    reference,
)
from app.db.models.snapshots import Snapshot

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
SUBMISSION_ID_CHARACTERS = string.ascii_letters + string.digits


def new_submission_id() -> str:
    """Return twelve random letters and digits (71 bits): safe in a URL, and never taken for a command-line option."""
    return "".join(secrets.choice(SUBMISSION_ID_CHARACTERS) for _ in range(12))


class Method(Base):
    """A named method of a team; its submissions compete as one row of a board."""

    __tablename__ = "methods"
    __table_args__ = (
        UniqueConstraint("team_id", "name"),
        UniqueConstraint("team_id", "id"),
        CheckConstraint("name <> '' AND length(name) <= 200", name="name"),
        is_web_address("paper_url"),
        is_web_address("code_url"),
    )

    id: Mapped[int] = primary_key()
    team_id: Mapped[int] = reference("teams.id")
    name: Mapped[str]
    description: Mapped[str | None]
    paper_url: Mapped[str | None]
    code_url: Mapped[str | None]
    # Until then nobody but the team and the organisers learns whose method it is.
    anonymous_until: Mapped[datetime | None]
    is_control: Mapped[bool] = mapped_column(server_default=text("false"))
    # Marked by an organiser: shown as a baseline, and ranked like any other method, unlike a control.
    is_baseline: Mapped[bool] = mapped_column(server_default=text("false"))
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
        # Identical uploads of several teams are found by it.
        Index("ix_submissions_actions_sha256", "actions_sha256"),
        Index("ix_submissions_deadline", "deadline", postgresql_where=text("deadline IS NOT NULL")),
        CheckConstraint("id ~ '^[A-Za-z0-9_-]{12}$'", name="id"),
        is_split_or_all(),
        is_strategy(),
        one_of("state", SUBMISSION_STATES, name="state"),
        is_sha256("actions_sha256"),
        CheckConstraint("actions_bytes >= 0", name="actions_bytes"),
        CheckConstraint("version <> '' AND length(version) <= 50", name="version"),
        CheckConstraint("hardware <> '' AND length(hardware) <= 500", name="hardware"),
        CheckConstraint("n_settings >= 1", name="n_settings"),
        CheckConstraint("attempts >= 0", name="attempts"),
        is_fraction("progress"),
        CheckConstraint("NOT is_current OR state = 'published'", name="current_is_published"),
        CheckConstraint("state <> 'published' OR published_at IS NOT NULL", name="published_at"),
        CheckConstraint("state NOT IN ('scored', 'published') OR scored_at IS NOT NULL", name="scored_at"),
        CheckConstraint("state <> 'failed' OR failure_reason IS NOT NULL", name="failure_reason"),
        CheckConstraint("flag_reason <> ''", name="flag_reason"),
        CheckConstraint("(flag_reason IS NULL) = (flagged_at IS NULL)", name="flagged_at"),
    )

    id: Mapped[str] = mapped_column(primary_key=True, default=new_submission_id)
    team_id: Mapped[int] = mapped_column(BigInteger)
    method_id: Mapped[int] = mapped_column(BigInteger)
    account_id: Mapped[int] = reference("accounts.id")
    snapshot_id: Mapped[int] = reference("snapshots.id")
    split: Mapped[str]
    strategy: Mapped[str]
    actions_sha256: Mapped[str]
    actions_bytes: Mapped[int] = mapped_column(BigInteger)
    filename: Mapped[str]
    version: Mapped[str | None]
    hardware: Mapped[str | None]
    state: Mapped[str] = mapped_column(server_default="received")
    is_current: Mapped[bool] = mapped_column(server_default=text("false"))
    is_verified: Mapped[bool] = mapped_column(server_default=text("false"))
    flag_reason: Mapped[str | None]
    flagged_at: Mapped[datetime | None]
    problems: Mapped[list[dict[str, Any]]] = mapped_column(server_default=text("'[]'::jsonb"))
    warnings: Mapped[list[dict[str, Any]]] = mapped_column(server_default=text("'[]'::jsonb"))
    failure_reason: Mapped[str | None]
    n_settings: Mapped[int | None]
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    deadline: Mapped[datetime | None]
    progress: Mapped[float | None] = mapped_column(REAL)
    created_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # When it was accepted, or tried again after a failure of ours: from then on it counts towards the allowance.
    charged_at: Mapped[datetime] = mapped_column(server_default=func.now())
    # From its scoring on until it is told; `scored_at` is then the time of its release.
    withheld_at: Mapped[datetime | None]
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
        one_of("from_state", SUBMISSION_STATES, name="from_state"),
        one_of("to_state", SUBMISSION_STATES, name="to_state"),
        CheckConstraint("actor <> ''", name="actor"),
        Index(None, "submission_id"),
    )

    id: Mapped[int] = primary_key()
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

    id: Mapped[int] = primary_key()
    submission_id: Mapped[str] = mapped_column(ForeignKey("submissions.id"))
    scorer_version: Mapped[str]
    # Of the frontiers it was scored against; NULL of a score that an earlier version stored.
    evaluator_version: Mapped[str | None]
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
        is_fraction("area"),
        is_fraction("uninformed_area"),
        is_fraction("oracle_area"),
        is_fraction("max_accuracy"),
        is_fraction("beta_match"),
        is_fraction("tokens_saved"),
        is_fraction("accuracy_25"),
        is_fraction("accuracy_50"),
        is_fraction("accuracy_75"),
    )

    id: Mapped[int] = primary_key()
    score_id: Mapped[int] = reference("scores.id")
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
