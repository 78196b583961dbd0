"""Create what the release policy of hidden splits keeps: allowance limits, boards held back, when a file was charged.

Revision ID: 0006
Revises: 0005
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

LIMITS = ("hidden_per_day", "hidden_total", "open_per_day", "rejected_per_day")


def upgrade() -> None:
    """Create the tables and the column; what was submitted before counts from the time it came."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "allowance_limits",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("team_id", sa.BigInteger(), nullable=True),
        *(sa.Column(name, sa.Integer(), nullable=True) for name in LIMITS),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint(
            "hidden_per_day >= 0 AND hidden_total >= 0 AND open_per_day >= 0 AND rejected_per_day >= 0",
            name=op.f("ck_allowance_limits_limits"),
        ),
        sa.ForeignKeyConstraint(
            ["snapshot_id"], ["snapshots.id"], name=op.f("fk_allowance_limits_snapshot_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["team_id"], ["teams.id"], name=op.f("fk_allowance_limits_team_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_allowance_limits")),
    )
    op.create_index(
        "uq_allowance_limits_target", "allowance_limits", ["snapshot_id", sa.text("coalesce(team_id, 0)")], unique=True
    )
    op.create_index(op.f("ix_allowance_limits_team_id"), "allowance_limits", ["team_id"])
    op.create_table(
        "held_boards",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("benchmark", sa.Text(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name=op.f("fk_held_boards_submission_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_held_boards")),
    )
    op.create_index(
        "uq_held_boards_board",
        "held_boards",
        ["submission_id", sa.text("coalesce(model, '')"), sa.text("coalesce(benchmark, '')")],
        unique=True,
    )
    op.add_column(
        "submissions",
        sa.Column("charged_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
    )
    op.add_column("submissions", sa.Column("withheld_at", sa.DateTime(timezone=True), nullable=True))
    op.execute("UPDATE submissions SET charged_at = created_at")


def downgrade() -> None:
    """Drop the tables and the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("submissions", "withheld_at")
    op.drop_column("submissions", "charged_at")
    op.drop_table("held_boards")
    op.drop_table("allowance_limits")
