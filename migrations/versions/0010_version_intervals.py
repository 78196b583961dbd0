"""Say of every stored interval in which way it follows from the replicates.

Those that are there are literal percentiles (version 1). They count as missing from now on, and jobs make them anew.

Revision ID: 0010
Revises: 0009
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("board_intervals", sa.Column("version", sa.Text(), server_default=sa.text("'1'"), nullable=False))
    op.alter_column("board_intervals", "version", server_default=None)


def downgrade() -> None:
    """Remove intervals of later versions, which an earlier program could not tell apart, and the column."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DELETE FROM board_intervals WHERE version <> '1'")
    op.drop_column("board_intervals", "version")
