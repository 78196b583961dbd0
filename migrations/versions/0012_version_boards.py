"""Let every board name the scorer version it shows, and keep track of re-scorings.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

SPLITS = "split IN ('all', 'train', 'validation', 'test')"
STRATEGIES = "strategy IN ('dynamic_routing', 'fixed_budget', 'dynamic_early_exit')"
RESCORING_STATES = "state IN ('running', 'ready', 'applied', 'cancelled')"
ITEM_STATES = "state IN ('waiting', 'scoring', 'done', 'failed')"

# A board on which something is published keeps the version that it has shown until now.
PIN_BOARDS = """
INSERT INTO board_versions (snapshot_id, split, strategy, scorer_version)
SELECT DISTINCT ON (s.snapshot_id, s.split, s.strategy) s.snapshot_id, s.split, s.strategy, c.scorer_version
FROM submissions s JOIN scores c ON c.submission_id = s.id
WHERE s.published_at IS NOT NULL
ORDER BY s.snapshot_id, s.split, s.strategy, c.id DESC
"""


def upgrade() -> None:
    """Create the tables; boards show the version that they showed before."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("scores", sa.Column("evaluator_version", sa.Text(), nullable=True))
    _create_board_versions()
    _create_rescorings()
    _create_items()
    op.execute(PIN_BOARDS)


def downgrade() -> None:
    """Drop the tables; scores of every version stay."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in ("rescoring_items", "rescoring_boards", "rescorings", "board_versions"):
        op.drop_table(table)
    op.drop_column("scores", "evaluator_version")


def _create_board_versions() -> None:
    op.create_table(
        "board_versions",
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("scorer_version", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(SPLITS, name=op.f("ck_board_versions_split")),
        sa.CheckConstraint(STRATEGIES, name=op.f("ck_board_versions_strategy")),
        sa.ForeignKeyConstraint(["snapshot_id"], ["snapshots.id"], name=op.f("fk_board_versions_snapshot_id")),
        sa.PrimaryKeyConstraint("snapshot_id", "split", "strategy", name=op.f("pk_board_versions")),
    )


def _create_rescorings() -> None:
    op.create_table(
        "rescorings",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("to_version", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="running", nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("ended_by", sa.Text(), nullable=True),
        sa.Column("ended_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(RESCORING_STATES, name=op.f("ck_rescorings_state")),
        sa.CheckConstraint("actor <> ''", name=op.f("ck_rescorings_actor")),
        sa.CheckConstraint(
            "(state IN ('applied', 'cancelled')) = (ended_at IS NOT NULL) AND (ended_at IS NULL) = (ended_by IS NULL)",
            name=op.f("ck_rescorings_ended_at"),
        ),
        sa.ForeignKeyConstraint(["snapshot_id"], ["snapshots.id"], name=op.f("fk_rescorings_snapshot_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rescorings")),
    )
    op.create_index(
        "uq_rescorings_open",
        "rescorings",
        ["snapshot_id"],
        unique=True,
        postgresql_where=sa.text("state IN ('running', 'ready')"),
    )
    op.create_table(
        "rescoring_boards",
        sa.Column("rescoring_id", sa.BigInteger(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("from_version", sa.Text(), nullable=False),
        sa.CheckConstraint(SPLITS, name=op.f("ck_rescoring_boards_split")),
        sa.CheckConstraint(STRATEGIES, name=op.f("ck_rescoring_boards_strategy")),
        sa.ForeignKeyConstraint(["rescoring_id"], ["rescorings.id"], name=op.f("fk_rescoring_boards_rescoring_id")),
        sa.PrimaryKeyConstraint("rescoring_id", "split", "strategy", name=op.f("pk_rescoring_boards")),
    )


def _create_items() -> None:
    op.create_table(
        "rescoring_items",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("rescoring_id", sa.BigInteger(), nullable=False),
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="waiting", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(ITEM_STATES, name=op.f("ck_rescoring_items_state")),
        sa.CheckConstraint("attempts >= 0", name=op.f("ck_rescoring_items_attempts")),
        sa.CheckConstraint(
            "state <> 'failed' OR failure_reason IS NOT NULL", name=op.f("ck_rescoring_items_failure_reason")
        ),
        sa.CheckConstraint(
            "(state IN ('done', 'failed')) = (finished_at IS NOT NULL)", name=op.f("ck_rescoring_items_finished_at")
        ),
        sa.ForeignKeyConstraint(["rescoring_id"], ["rescorings.id"], name=op.f("fk_rescoring_items_rescoring_id")),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name=op.f("fk_rescoring_items_submission_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_rescoring_items")),
        sa.UniqueConstraint("rescoring_id", "submission_id", name="uq_rescoring_items_submission"),
    )
    op.create_index("ix_rescoring_items_submission_id", "rescoring_items", ["submission_id"])
    op.create_index(
        "ix_rescoring_items_deadline", "rescoring_items", ["deadline"], postgresql_where=sa.text("deadline IS NOT NULL")
    )
