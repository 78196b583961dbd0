"""Create the table of snapshots that are handed in over the web.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create the table."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "snapshot_imports",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("upload_sha256", sa.Text(), nullable=True),
        sa.Column("state", sa.Text(), server_default="waiting", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=True),
        sa.Column("snapshot", sa.Text(), nullable=True),
        sa.Column(
            "problems", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'::jsonb"), nullable=False
        ),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint(
            "state IN ('waiting', 'importing', 'imported', 'rejected', 'failed')",
            name=op.f("ck_snapshot_imports_state"),
        ),
        sa.CheckConstraint("actor <> ''", name=op.f("ck_snapshot_imports_actor")),
        sa.CheckConstraint("attempts >= 0", name=op.f("ck_snapshot_imports_attempts")),
        sa.CheckConstraint(
            "state <> 'failed' OR failure_reason IS NOT NULL", name=op.f("ck_snapshot_imports_failure_reason")
        ),
        sa.CheckConstraint(
            "(state IN ('imported', 'rejected', 'failed')) = (finished_at IS NOT NULL)",
            name=op.f("ck_snapshot_imports_finished_at"),
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_snapshot_imports")),
    )
    op.create_index(
        "ix_snapshot_imports_deadline",
        "snapshot_imports",
        ["deadline"],
        postgresql_where=sa.text("deadline IS NOT NULL"),
    )


def downgrade() -> None:
    """Drop the table; imported snapshots stay."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("snapshot_imports")
