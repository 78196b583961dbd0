"""Create the tables of bootstrap replicates, intervals and ranks.

Revision ID: 0003
Revises: 0002
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = ("split_replicates", "board_intervals", "board_ranks")


def upgrade() -> None:
    """Create the tables."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    _create_replicates()
    _create_intervals()
    _create_ranks()


def downgrade() -> None:
    """Drop intervals and ranks, which can be computed again."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_replicates() -> None:
    op.create_table(
        "split_replicates",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("n_replicates", sa.Integer(), nullable=False),
        sa.Column("n_done", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("seed", sa.BigInteger(), nullable=False),
        sa.Column("evaluator_version", sa.Text(), nullable=False),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("split IN ('all', 'train', 'validation', 'test')", name=op.f("ck_split_replicates_split")),
        sa.CheckConstraint(
            "n_replicates >= 1 AND n_done >= 0 AND n_done <= n_replicates", name=op.f("ck_split_replicates_counts")
        ),
        sa.CheckConstraint(
            "(n_done = n_replicates) = (finished_at IS NOT NULL)", name=op.f("ck_split_replicates_finished_at")
        ),
        sa.ForeignKeyConstraint(
            ["snapshot_id"], ["snapshots.id"], name=op.f("fk_split_replicates_snapshot_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_split_replicates")),
        sa.UniqueConstraint("snapshot_id", "split", "evaluator_version", name="uq_split_replicates_split"),
    )


def _create_intervals() -> None:
    op.create_table(
        "board_intervals",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("board_score_id", sa.BigInteger(), nullable=False),
        sa.Column("n_replicates", sa.Integer(), nullable=False),
        sa.Column("intervals", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("realised_potential_low", sa.Double(), nullable=True),
        sa.Column("realised_potential_high", sa.Double(), nullable=True),
        sa.Column("replicates", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("n_replicates >= 1", name=op.f("ck_board_intervals_n_replicates")),
        sa.CheckConstraint(
            "(realised_potential_low IS NULL) = (realised_potential_high IS NULL)",
            name=op.f("ck_board_intervals_both_ends"),
        ),
        sa.CheckConstraint(
            "realised_potential_low <= realised_potential_high AND realised_potential_high < 'Infinity'",
            name=op.f("ck_board_intervals_order"),
        ),
        sa.CheckConstraint(
            "octet_length(replicates) = 8 * n_replicates", name=op.f("ck_board_intervals_replicates_length")
        ),
        sa.ForeignKeyConstraint(
            ["board_score_id"], ["board_scores.id"], name=op.f("fk_board_intervals_board_score_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_board_intervals")),
        sa.UniqueConstraint("board_score_id", name=op.f("uq_board_intervals_board_score_id")),
    )
    # Float64 figures of resampling do not compress; trying takes time only.
    op.execute("ALTER TABLE board_intervals ALTER COLUMN replicates SET STORAGE EXTERNAL")


def _create_ranks() -> None:
    op.create_table(
        "board_ranks",
        sa.Column("board_score_id", sa.BigInteger(), nullable=False),
        sa.Column("rank", sa.Integer(), nullable=False),
        sa.Column("last_rank", sa.Integer(), nullable=False),
        sa.Column("n_ranked", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "rank >= 1 AND last_rank >= rank AND n_ranked >= last_rank", name=op.f("ck_board_ranks_ranks")
        ),
        sa.ForeignKeyConstraint(["board_score_id"], ["board_scores.id"], name=op.f("fk_board_ranks_board_score_id")),
        sa.PrimaryKeyConstraint("board_score_id", name=op.f("pk_board_ranks")),
    )
