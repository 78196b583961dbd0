"""Let organisers mark submissions: flagged with a public reason, verified; methods: baselines.

Revision ID: 0007
Revises: 0006
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

FLAG_COLUMNS = ("flagged_at", "flag_reason", "is_verified")
FLAG_CHECKS = ("flag_reason", "flagged_at")


def upgrade() -> None:
    """Add the marks; nothing is marked yet."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("methods", sa.Column("is_baseline", sa.Boolean(), server_default=sa.text("false"), nullable=False))
    op.add_column(
        "submissions", sa.Column("is_verified", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    op.add_column("submissions", sa.Column("flag_reason", sa.Text(), nullable=True))
    op.add_column("submissions", sa.Column("flagged_at", sa.DateTime(timezone=True), nullable=True))
    op.create_check_constraint(op.f("ck_submissions_flag_reason"), "submissions", "flag_reason <> ''")
    op.create_check_constraint(
        op.f("ck_submissions_flagged_at"), "submissions", "(flag_reason IS NULL) = (flagged_at IS NULL)"
    )
    op.create_index("ix_submissions_actions_sha256", "submissions", ["actions_sha256"])


def downgrade() -> None:
    """Forget the marks."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("ix_submissions_actions_sha256", table_name="submissions")
    for name in FLAG_CHECKS:
        op.drop_constraint(op.f(f"ck_submissions_{name}"), "submissions")
    for name in FLAG_COLUMNS:
        op.drop_column("submissions", name)
    op.drop_column("methods", "is_baseline")
