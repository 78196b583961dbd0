"""Store with every frontier the certificate that no point of it is missing.

Frontiers that are there already stay as they are: the textbook program solved them, which needs no certificate.

Revision ID: 0004
Revises: 0003
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

COLUMNS = {
    "certificate_cost": postgresql.ARRAY(sa.BigInteger()),
    "certificate_correct": postgresql.ARRAY(sa.BigInteger()),
    "certificate_band": postgresql.ARRAY(sa.Double()),
    "certificate_needed": postgresql.ARRAY(sa.Double()),
}
CHECKS = {
    "whole_certificate": (
        "num_nulls(certificate_cost, certificate_correct, certificate_band, certificate_needed) IN (0, 4)"
    ),
    "certificate_length": (
        "cardinality(certificate_cost) = cardinality(certificate_correct)"
        " AND cardinality(certificate_cost) = cardinality(certificate_band) + 1"
        " AND cardinality(certificate_band) = cardinality(certificate_needed)"
    ),
    "certificate_bands": (
        "'Infinity'::float8 > ALL (certificate_band) AND 'Infinity'::float8 > ALL (certificate_needed)"
        " AND 0 <= ALL (certificate_needed)"
    ),
}


def upgrade() -> None:
    """Add the columns."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for name, kind in COLUMNS.items():
        op.add_column("cell_frontiers", sa.Column(name, kind, nullable=True))
    for name, check in CHECKS.items():
        op.create_check_constraint(op.f(f"ck_cell_frontiers_{name}"), "cell_frontiers", check)


def downgrade() -> None:
    """Drop the columns, and with them the checks; the frontiers stay."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for name in COLUMNS:
        op.drop_column("cell_frontiers", name)
