"""Create the tables of efficiency results: sets with one source each, and their results.

Revision ID: 0009
Revises: 0008
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

PARADIGMS = "'reference', 'reasoning_blueprint', 'dynamic_execution', 'post_hoc_refinement', 'other'"


def upgrade() -> None:
    """Create the tables; the sets that are shipped are stored when the server starts."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    _create_sets()
    _create_results()


def downgrade() -> None:
    """Drop all results, those that organisers added included."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("efficiency_results")
    op.drop_table("efficiency_sets")


def _create_sets() -> None:
    def check(condition: str, name: str) -> sa.CheckConstraint:
        return sa.CheckConstraint(condition, name=op.f(f"ck_efficiency_sets_{name}"))

    op.create_table(
        "efficiency_sets",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("citation", sa.Text(), nullable=False),
        sa.Column("url", sa.Text(), nullable=True),
        sa.Column("license_note", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("n_results", sa.Integer(), nullable=False),
        sa.Column("is_shipped", sa.Boolean(), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        check("sha256 ~ '^[0-9a-f]{64}$'", "sha256"),
        check("name ~ '^[a-z0-9][a-z0-9._-]*$' AND char_length(name) <= 64", "name"),
        check("title <> '' AND citation <> '' AND license_note <> ''", "source"),
        check("url ~ '^https?://'", "url"),
        check("n_results >= 1", "n_results"),
        check("is_shipped = (account_id IS NULL)", "account"),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_efficiency_sets_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_efficiency_sets")),
        sa.UniqueConstraint("name", name=op.f("uq_efficiency_sets_name")),
        sa.UniqueConstraint("sha256", name=op.f("uq_efficiency_sets_sha256")),
    )


def _create_results() -> None:
    def check(condition: str, name: str) -> sa.CheckConstraint:
        return sa.CheckConstraint(condition, name=op.f(f"ck_efficiency_results_{name}"))

    op.create_table(
        "efficiency_results",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("set_id", sa.BigInteger(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("benchmark", sa.Text(), nullable=False),
        sa.Column("paradigm", sa.Text(), nullable=False),
        sa.Column("method", sa.Text(), nullable=False),
        sa.Column("backbone", sa.Text(), nullable=False),
        sa.Column("accuracy", sa.Double(), nullable=False),
        sa.Column("tokens", sa.Double(), nullable=False),
        sa.Column("base_accuracy", sa.Double(), nullable=False),
        sa.Column("base_tokens", sa.Double(), nullable=False),
        sa.Column("e3", sa.Double(), nullable=True),
        sa.Column("e3_reason", sa.Text(), nullable=True),
        sa.Column("e3_printed", sa.Double(), nullable=True),
        sa.Column("e3_digits", sa.SmallInteger(), nullable=True),
        sa.Column("agrees", sa.Boolean(), nullable=True),
        check(f"paradigm IN ({PARADIGMS})", "paradigm"),
        check("benchmark <> '' AND method <> '' AND backbone <> ''", "names"),
        check("idx >= 0", "idx"),
        check("accuracy >= 0 AND accuracy <= 1", "accuracy"),
        check("base_accuracy >= 0 AND base_accuracy <= 1", "base_accuracy"),
        check("tokens >= 0 AND tokens < 'Infinity'", "tokens"),
        check("base_tokens >= 0 AND base_tokens < 'Infinity'", "base_tokens"),
        check("e3 >= 0 AND e3 < 'Infinity'", "e3"),
        check("(e3 IS NULL) = (e3_reason IS NOT NULL)", "e3_reason"),
        check("e3_printed >= 0 AND e3_printed < 'Infinity' AND e3_digits >= 0", "e3_printed"),
        check("(e3_printed IS NULL) = (e3_digits IS NULL)", "e3_digits"),
        check("(agrees IS NULL) = (e3 IS NULL OR e3_printed IS NULL)", "agrees"),
        sa.ForeignKeyConstraint(
            ["set_id"], ["efficiency_sets.id"], name=op.f("fk_efficiency_results_set_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_efficiency_results")),
        sa.UniqueConstraint("set_id", "benchmark", "backbone", "method", name="uq_efficiency_results_method"),
        sa.UniqueConstraint("set_id", "idx", name="uq_efficiency_results_idx"),
    )
    op.create_index("ix_efficiency_results_place", "efficiency_results", ["benchmark", "backbone"])
