"""Store what a team says about a method and a submission: version, links, hardware, and until when it is anonymous.

Revision ID: 0011
Revises: 0010
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None

COLUMNS: dict[str, dict[str, sa.types.TypeEngine[Any]]] = {
    "methods": {
        "paper_url": sa.Text(),
        "code_url": sa.Text(),
        "anonymous_until": sa.DateTime(timezone=True),
    },
    "submissions": {"version": sa.Text(), "hardware": sa.Text()},
}
CHECKS = {
    "methods": {
        "paper_url": "paper_url ~ '^https?://[^[:space:]]+$' AND length(paper_url) <= 500",
        "code_url": "code_url ~ '^https?://[^[:space:]]+$' AND length(code_url) <= 500",
    },
    "submissions": {
        "version": "version <> '' AND length(version) <= 50",
        "hardware": "hardware <> '' AND length(hardware) <= 500",
    },
}


def upgrade() -> None:
    """Add the columns, which are empty for what is there."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table, columns in COLUMNS.items():
        for name, kind in columns.items():
            op.add_column(table, sa.Column(name, kind, nullable=True))
        for name, check in CHECKS[table].items():
            op.create_check_constraint(op.f(f"ck_{table}_{name}"), table, check)


def downgrade() -> None:
    """Drop the columns, and with them the checks."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table, columns in COLUMNS.items():
        for name in columns:
            op.drop_column(table, name)
