"""Create the tables of probe runs: question sets, runs, their questions as jobs, and what was measured.

Revision ID: 0005
Revises: 0004
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

TABLES = (
    "question_sets",
    "question_set_items",
    "model_profiles",
    "probe_runs",
    "probe_run_events",
    "probe_items",
    "probe_trajectories",
    "probe_workers",
)


def upgrade() -> None:
    """Create the tables."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    _create_questions()
    _create_runs()
    _create_items()
    _create_trajectories()
    _create_workers()
    op.execute(
        "CREATE TRIGGER refuse_change BEFORE UPDATE OR DELETE ON probe_run_events"
        " FOR EACH ROW EXECUTE FUNCTION refuse_change_of_records()"
    )
    op.execute(
        "CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON probe_run_events"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_records()"
    )
    # Compressed already.
    op.execute("ALTER TABLE probe_trajectories ALTER COLUMN answers SET STORAGE EXTERNAL")


def downgrade() -> None:
    """Drop everything, measurements that no snapshot holds included."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in reversed(TABLES):
        op.drop_table(table)


def _create_questions() -> None:
    op.create_table(
        "question_sets",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("benchmark", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("header", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("n_questions", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name=op.f("ck_question_sets_sha256")),
        sa.CheckConstraint("n_questions >= 1", name=op.f("ck_question_sets_n_questions")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_question_sets")),
        sa.UniqueConstraint("sha256", name=op.f("uq_question_sets_sha256")),
    )
    op.create_table(
        "question_set_items",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("question_set_id", sa.BigInteger(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.CheckConstraint("split IN ('train', 'validation', 'test')", name=op.f("ck_question_set_items_split")),
        sa.CheckConstraint("idx >= 0", name=op.f("ck_question_set_items_idx")),
        sa.ForeignKeyConstraint(
            ["question_set_id"], ["question_sets.id"], name=op.f("fk_question_set_items_question_set_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_question_set_items")),
        sa.UniqueConstraint("question_set_id", "idx", name=op.f("uq_question_set_items_question_set_id_idx")),
        sa.UniqueConstraint(
            "question_set_id", "question_id", name=op.f("uq_question_set_items_question_set_id_question_id")
        ),
    )


def _create_runs() -> None:
    op.create_table(
        "model_profiles",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_model_profiles_account_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_model_profiles")),
        sa.UniqueConstraint("name", name=op.f("uq_model_profiles_name")),
    )
    op.create_index(op.f("ix_model_profiles_account_id"), "model_profiles", ["account_id"], unique=False)
    op.create_table(
        "probe_runs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("engine_key", sa.Text(), nullable=False),
        sa.Column("profile", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("protocol", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("state", sa.Text(), server_default="created", nullable=False),
        sa.Column("priority", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("n_questions", sa.Integer(), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("(state = 'assembled') = (snapshot_id IS NOT NULL)", name=op.f("ck_probe_runs_snapshot_id")),
        sa.CheckConstraint(
            "(state = 'failed') = (failure_reason IS NOT NULL)", name=op.f("ck_probe_runs_failure_reason")
        ),
        sa.CheckConstraint(
            "(state IN ('cancelled', 'finished', 'assembled', 'failed')) = (finished_at IS NOT NULL)",
            name=op.f("ck_probe_runs_finished_at"),
        ),
        sa.CheckConstraint("engine_key ~ '^[0-9a-f]{16}$'", name=op.f("ck_probe_runs_engine_key")),
        sa.CheckConstraint("id ~ '^[A-Za-z0-9_-]{12}$'", name=op.f("ck_probe_runs_id")),
        sa.CheckConstraint("name ~ '^[a-z0-9][a-z0-9._-]*$'", name=op.f("ck_probe_runs_name")),
        sa.CheckConstraint(
            "state IN ('created', 'cancelled') OR started_at IS NOT NULL", name=op.f("ck_probe_runs_started_at")
        ),
        sa.CheckConstraint(
            "state IN ('created', 'running', 'paused', 'cancelled', 'finished', 'assembled', 'failed')",
            name=op.f("ck_probe_runs_state"),
        ),
        sa.CheckConstraint("n_questions >= 1", name=op.f("ck_probe_runs_n_questions")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_probe_runs_account_id")),
        sa.ForeignKeyConstraint(["snapshot_id"], ["snapshots.id"], name=op.f("fk_probe_runs_snapshot_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_probe_runs")),
        sa.UniqueConstraint("name", name=op.f("uq_probe_runs_name")),
    )
    op.create_index(op.f("ix_probe_runs_account_id"), "probe_runs", ["account_id"], unique=False)
    op.create_index(op.f("ix_probe_runs_snapshot_id"), "probe_runs", ["snapshot_id"], unique=False)
    op.create_table(
        "probe_run_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("probe_run_id", sa.Text(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=True),
        sa.Column("to_state", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.CheckConstraint("actor <> ''", name=op.f("ck_probe_run_events_actor")),
        sa.CheckConstraint(
            "from_state IN ('created', 'running', 'paused', 'cancelled', 'finished', 'assembled', 'failed')",
            name=op.f("ck_probe_run_events_from_state"),
        ),
        sa.CheckConstraint(
            "to_state IN ('created', 'running', 'paused', 'cancelled', 'finished', 'assembled', 'failed')",
            name=op.f("ck_probe_run_events_to_state"),
        ),
        sa.ForeignKeyConstraint(["probe_run_id"], ["probe_runs.id"], name=op.f("fk_probe_run_events_probe_run_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_probe_run_events")),
    )
    op.create_index(op.f("ix_probe_run_events_probe_run_id"), "probe_run_events", ["probe_run_id"], unique=False)


def _create_items() -> None:
    op.create_table(
        "probe_items",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("probe_run_id", sa.Text(), nullable=False),
        sa.Column("question_set_id", sa.BigInteger(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("benchmark", sa.Text(), nullable=False),
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("state", sa.Text(), server_default="waiting", nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("failures", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("losses", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("actor", sa.Text(), nullable=True),
        sa.Column("lease_until", sa.DateTime(timezone=True), nullable=True),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retry_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("finished_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("seconds", sa.Double(), nullable=True),
        sa.Column("prompt_tokens", sa.BigInteger(), nullable=True),
        sa.Column("cached_tokens", sa.BigInteger(), nullable=True),
        sa.Column("generated_tokens", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("worker", postgresql.JSON(astext_type=sa.Text()), nullable=True),
        sa.CheckConstraint(
            "(state IN ('done', 'failed')) = (finished_at IS NOT NULL)", name=op.f("ck_probe_items_finished_at")
        ),
        sa.CheckConstraint(
            "num_nulls(actor, lease_until, deadline) = CASE WHEN state = 'running' THEN 0 ELSE 3 END",
            name=op.f("ck_probe_items_lease"),
        ),
        sa.CheckConstraint(
            "num_nulls(seconds, prompt_tokens, generated_tokens, worker) = CASE WHEN state = 'done' THEN 0 ELSE 4 END",
            name=op.f("ck_probe_items_accounting"),
        ),
        sa.CheckConstraint("retry_at IS NULL OR state = 'waiting'", name=op.f("ck_probe_items_retry_at")),
        sa.CheckConstraint("seconds >= 0 AND seconds < 'Infinity'", name=op.f("ck_probe_items_seconds")),
        sa.CheckConstraint("split IN ('train', 'validation', 'test')", name=op.f("ck_probe_items_split")),
        sa.CheckConstraint("state <> 'failed' OR reason IS NOT NULL", name=op.f("ck_probe_items_reason")),
        sa.CheckConstraint("state IN ('waiting', 'running', 'done', 'failed')", name=op.f("ck_probe_items_state")),
        sa.CheckConstraint("attempts >= 0 AND failures >= 0 AND losses >= 0", name=op.f("ck_probe_items_attempts")),
        sa.CheckConstraint(
            "cached_tokens >= 0 AND cached_tokens <= prompt_tokens", name=op.f("ck_probe_items_cached_tokens")
        ),
        sa.CheckConstraint("idx >= 0", name=op.f("ck_probe_items_idx")),
        sa.CheckConstraint("prompt_tokens >= 0 AND generated_tokens >= 0", name=op.f("ck_probe_items_tokens")),
        sa.ForeignKeyConstraint(["probe_run_id"], ["probe_runs.id"], name=op.f("fk_probe_items_probe_run_id")),
        sa.ForeignKeyConstraint(["question_set_id"], ["question_sets.id"], name=op.f("fk_probe_items_question_set_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_probe_items")),
        sa.UniqueConstraint(
            "probe_run_id", "benchmark", "question_id", name=op.f("uq_probe_items_probe_run_id_benchmark_question_id")
        ),
        sa.UniqueConstraint("probe_run_id", "idx", name=op.f("uq_probe_items_probe_run_id_idx")),
    )
    op.create_index(
        op.f("ix_probe_items_lease_until"),
        "probe_items",
        ["lease_until"],
        unique=False,
        postgresql_where=sa.text("lease_until IS NOT NULL"),
    )
    op.create_index(op.f("ix_probe_items_probe_run_id_state"), "probe_items", ["probe_run_id", "state"], unique=False)
    op.create_index(op.f("ix_probe_items_question_set_id"), "probe_items", ["question_set_id"], unique=False)


def _create_trajectories() -> None:
    op.create_table(
        "probe_trajectories",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("probe_item_id", sa.BigInteger(), nullable=False),
        sa.Column("trajectory", sa.Integer(), nullable=False),
        sa.Column("token_ids", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("block_tokens", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("retained_tokens", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("correct_probes", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("end_margin", postgresql.ARRAY(sa.REAL()), nullable=True),
        sa.Column("original_answer", sa.Text(), nullable=True),
        sa.Column("original_correct", sa.Boolean(), nullable=False),
        sa.Column("direct_answer", sa.Text(), nullable=True),
        sa.Column("direct_correct", sa.Boolean(), nullable=True),
        sa.Column("hit_limit", sa.Boolean(), nullable=False),
        sa.Column("n_unextracted", sa.Integer(), nullable=False),
        sa.Column("answers", sa.LargeBinary(), nullable=False),
        sa.Column("grader_version", sa.Text(), nullable=False),
        sa.CheckConstraint(
            "(direct_answer IS NULL) <= (direct_correct IS NULL)", name=op.f("ck_probe_trajectories_direct")
        ),
        sa.CheckConstraint("0 < ALL (block_tokens)", name=op.f("ck_probe_trajectories_block_tokens")),
        sa.CheckConstraint(
            "0 <= ALL (correct_probes) AND array_position(correct_probes, NULL) IS NULL",
            name=op.f("ck_probe_trajectories_correct_probes"),
        ),
        sa.CheckConstraint(
            "cardinality(correct_probes) = cardinality(retained_tokens)",
            name=op.f("ck_probe_trajectories_correct_probes_length"),
        ),
        sa.CheckConstraint(
            "cardinality(end_margin) = cardinality(retained_tokens)",
            name=op.f("ck_probe_trajectories_end_margin_length"),
        ),
        sa.CheckConstraint(
            "is_strictly_increasing(retained_tokens)", name=op.f("ck_probe_trajectories_retained_tokens_increase")
        ),
        sa.CheckConstraint("n_unextracted >= 0", name=op.f("ck_probe_trajectories_n_unextracted")),
        sa.CheckConstraint("retained_tokens[1] = 0", name=op.f("ck_probe_trajectories_retained_tokens_start")),
        sa.CheckConstraint(
            "retained_tokens[cardinality(retained_tokens)] = cardinality(token_ids)",
            name=op.f("ck_probe_trajectories_token_ids"),
        ),
        sa.CheckConstraint("trajectory >= 0", name=op.f("ck_probe_trajectories_trajectory")),
        sa.ForeignKeyConstraint(
            ["probe_item_id"], ["probe_items.id"], name=op.f("fk_probe_trajectories_probe_item_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_probe_trajectories")),
        sa.UniqueConstraint("probe_item_id", "trajectory", name=op.f("uq_probe_trajectories_probe_item_id_trajectory")),
    )


def _create_workers() -> None:
    op.create_table(
        "probe_workers",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("engine_key", sa.Text(), nullable=False),
        sa.Column("versions", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("queue_worker_id", sa.BigInteger(), nullable=True),
        sa.Column("started_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("actor <> ''", name=op.f("ck_probe_workers_actor")),
        sa.CheckConstraint("engine_key ~ '^[0-9a-f]{16}$'", name=op.f("ck_probe_workers_engine_key")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_probe_workers")),
        sa.UniqueConstraint("actor", name=op.f("uq_probe_workers_actor")),
    )
