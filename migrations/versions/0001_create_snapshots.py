"""Create the tables of snapshots and what is computed from them.

Revision ID: 0001
Revises:
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

MEASUREMENT_TABLES = ("snapshot_models", "snapshot_benchmarks", "questions", "trajectories")
FIGURE_TABLES = ("cell_frontiers", "board_frontiers", "snapshot_figures")

# A strictly increasing array is what one CHECK has to see, and SQL has no operator for it. An empty array is none.
IS_STRICTLY_INCREASING = """
CREATE FUNCTION is_strictly_increasing(numbers integer[]) RETURNS boolean
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE AS $$
DECLARE
    number integer;
    previous integer;
BEGIN
    FOREACH number IN ARRAY numbers LOOP
        IF number IS NULL OR number <= previous THEN
            RETURN false;
        END IF;
        previous := number;
    END LOOP;
    RETURN previous IS NOT NULL;
END
$$
"""

# Locking the snapshot's row makes a change wait for a freeze that is under way, and the other way round: otherwise a
# row could slip in between the look and the commit. A row moved to another snapshot concerns both.
REFUSE_FROZEN_ROWS = """
CREATE FUNCTION refuse_change_of_frozen_rows() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    found record;
BEGIN
    FOR found IN SELECT name, state FROM snapshots WHERE id IN (OLD.snapshot_id, NEW.snapshot_id) FOR SHARE LOOP
        IF found.state = 'frozen' THEN
            RAISE EXCEPTION 'snapshot % is frozen: % may not change', found.name, TG_TABLE_NAME
                USING ERRCODE = 'restrict_violation', CONSTRAINT = 'snapshot_is_frozen';
        END IF;
    END LOOP;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END
$$
"""

# New rows come by the ten thousand, so they are looked at once a statement: an import is a quarter faster than with a
# look at each.
REFUSE_NEW_FROZEN_ROWS = """
CREATE FUNCTION refuse_new_frozen_rows() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    found record;
BEGIN
    FOR found IN SELECT name, state FROM snapshots WHERE id IN (SELECT snapshot_id FROM added) FOR SHARE LOOP
        IF found.state = 'frozen' THEN
            RAISE EXCEPTION 'snapshot % is frozen: % may not grow', found.name, TG_TABLE_NAME
                USING ERRCODE = 'restrict_violation', CONSTRAINT = 'snapshot_is_frozen';
        END IF;
    END LOOP;
    RETURN NULL;
END
$$
"""

REFUSE_FROZEN_SNAPSHOT = """
CREATE FUNCTION refuse_change_of_frozen_snapshot() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.state = 'frozen' THEN
        RAISE EXCEPTION 'snapshot % is frozen: it may not change', OLD.name
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'snapshot_is_frozen';
    END IF;
    IF TG_OP = 'DELETE' THEN
        RETURN OLD;
    END IF;
    RETURN NEW;
END
$$
"""

REFUSE_TRUNCATE = """
CREATE FUNCTION refuse_truncate_of_frozen() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM snapshots WHERE state = 'frozen') THEN
        RAISE EXCEPTION 'there is a frozen snapshot: % may not be emptied', TG_TABLE_NAME
            USING ERRCODE = 'restrict_violation', CONSTRAINT = 'snapshot_is_frozen';
    END IF;
    RETURN NULL;
END
$$
"""


def upgrade() -> None:
    """Create tables and the triggers that keep a frozen snapshot as it is."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(IS_STRICTLY_INCREASING)
    _create_measurements()
    _create_figures()
    _create_triggers()


def downgrade() -> None:
    """Drop everything, measurements included."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in (*FIGURE_TABLES, *reversed(MEASUREMENT_TABLES), "snapshots"):
        op.drop_table(table)
    for function in (
        "refuse_truncate_of_frozen",
        "refuse_change_of_frozen_snapshot",
        "refuse_change_of_frozen_rows",
        "refuse_new_frozen_rows",
        "is_strictly_increasing",
    ):
        op.execute(f"DROP FUNCTION {function}")


def _create_triggers() -> None:
    for function in (REFUSE_FROZEN_ROWS, REFUSE_NEW_FROZEN_ROWS, REFUSE_FROZEN_SNAPSHOT, REFUSE_TRUNCATE):
        op.execute(function)
    op.execute(
        "CREATE TRIGGER refuse_change BEFORE UPDATE OR DELETE ON snapshots"
        " FOR EACH ROW EXECUTE FUNCTION refuse_change_of_frozen_snapshot()"
    )
    for table in MEASUREMENT_TABLES:
        op.execute(
            f"CREATE TRIGGER refuse_change BEFORE UPDATE OR DELETE ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change_of_frozen_rows()"
        )
        op.execute(
            f"CREATE TRIGGER refuse_insert AFTER INSERT ON {table} REFERENCING NEW TABLE AS added"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_new_frozen_rows()"
        )
    for table in ("snapshots", *MEASUREMENT_TABLES):
        op.execute(
            f"CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_truncate_of_frozen()"
        )


def _create_measurements() -> None:
    op.create_table(
        "snapshots",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("manifest", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("probes_per_position", sa.Integer(), nullable=False),
        sa.Column("trajectories_per_question", sa.Integer(), nullable=False),
        sa.Column("n_questions", sa.Integer(), nullable=False),
        sa.Column("n_trajectories", sa.Integer(), nullable=False),
        sa.Column("state", sa.Text(), server_default="imported", nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("frozen_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("(state = 'frozen') = (frozen_at IS NOT NULL)", name=op.f("ck_snapshots_frozen_at")),
        sa.CheckConstraint("kind IN ('measured', 'synthetic')", name=op.f("ck_snapshots_kind")),
        sa.CheckConstraint("name ~ '^[a-z0-9][a-z0-9._-]*$'", name=op.f("ck_snapshots_name")),
        sa.CheckConstraint("sha256 ~ '^[0-9a-f]{64}$'", name=op.f("ck_snapshots_sha256")),
        sa.CheckConstraint("state IN ('imported', 'frozen')", name=op.f("ck_snapshots_state")),
        sa.CheckConstraint("n_questions >= 0 AND n_trajectories >= 0", name=op.f("ck_snapshots_counts")),
        sa.CheckConstraint("probes_per_position >= 1", name=op.f("ck_snapshots_probes_per_position")),
        sa.CheckConstraint("trajectories_per_question >= 1", name=op.f("ck_snapshots_trajectories_per_question")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_snapshots")),
        sa.UniqueConstraint("name", name=op.f("uq_snapshots_name")),
        sa.UniqueConstraint("sha256", name=op.f("uq_snapshots_sha256")),
    )
    op.create_table(
        "snapshot_models",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.CheckConstraint("idx >= 0", name=op.f("ck_snapshot_models_idx")),
        sa.ForeignKeyConstraint(
            ["snapshot_id"], ["snapshots.id"], name=op.f("fk_snapshot_models_snapshot_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_snapshot_models")),
        sa.UniqueConstraint("snapshot_id", "id", name=op.f("uq_snapshot_models_snapshot_id_id")),
        sa.UniqueConstraint("snapshot_id", "idx", name=op.f("uq_snapshot_models_snapshot_id_idx")),
        sa.UniqueConstraint("snapshot_id", "name", name=op.f("uq_snapshot_models_snapshot_id_name")),
    )
    op.create_table(
        "snapshot_benchmarks",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("idx", sa.Integer(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("title", sa.Text(), nullable=True),
        sa.CheckConstraint("idx >= 0", name=op.f("ck_snapshot_benchmarks_idx")),
        sa.ForeignKeyConstraint(
            ["snapshot_id"], ["snapshots.id"], name=op.f("fk_snapshot_benchmarks_snapshot_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_snapshot_benchmarks")),
        sa.UniqueConstraint("snapshot_id", "id", name=op.f("uq_snapshot_benchmarks_snapshot_id_id")),
        sa.UniqueConstraint("snapshot_id", "idx", name=op.f("uq_snapshot_benchmarks_snapshot_id_idx")),
        sa.UniqueConstraint("snapshot_id", "name", name=op.f("uq_snapshot_benchmarks_snapshot_id_name")),
    )
    op.create_table(
        "questions",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("benchmark_id", sa.BigInteger(), nullable=False),
        sa.Column("question_id", sa.Text(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("prompt", sa.Text(), nullable=True),
        sa.Column("reference_answer", sa.Text(), nullable=True),
        sa.Column("difficulty", sa.Integer(), nullable=True),
        sa.CheckConstraint("split IN ('train', 'validation', 'test')", name=op.f("ck_questions_split")),
        sa.ForeignKeyConstraint(
            ["snapshot_id", "benchmark_id"],
            ["snapshot_benchmarks.snapshot_id", "snapshot_benchmarks.id"],
            name=op.f("fk_questions_snapshot_id_benchmark_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_questions")),
        sa.UniqueConstraint("benchmark_id", "question_id", name=op.f("uq_questions_benchmark_id_question_id")),
        sa.UniqueConstraint("snapshot_id", "id", name=op.f("uq_questions_snapshot_id_id")),
    )
    op.create_index(
        op.f("ix_questions_snapshot_id_benchmark_id"), "questions", ["snapshot_id", "benchmark_id"], unique=False
    )
    op.create_table(
        "trajectories",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("model_id", sa.BigInteger(), nullable=False),
        sa.Column("question_pk", sa.BigInteger(), nullable=False),
        sa.Column("trajectory", sa.Integer(), nullable=False),
        sa.Column("thinking_tokens", sa.Integer(), nullable=False),
        sa.Column("original_correct", sa.Boolean(), nullable=True),
        sa.Column("direct_correct", sa.Boolean(), nullable=True),
        sa.Column("retained_tokens", postgresql.ARRAY(sa.Integer()), nullable=False),
        sa.Column("correct_probes", postgresql.ARRAY(sa.Integer()), nullable=True),
        sa.Column("end_margin", postgresql.ARRAY(sa.REAL()), nullable=True),
        sa.Column("token_ids", postgresql.ARRAY(sa.Integer()), nullable=True),
        sa.Column("block_tokens", postgresql.ARRAY(sa.Integer()), nullable=True),
        sa.Column("probe_answers", postgresql.JSON(none_as_null=True, astext_type=sa.Text()), nullable=True),
        sa.Column("step_logprob", postgresql.ARRAY(sa.REAL()), nullable=True),
        sa.CheckConstraint("0 < ALL (block_tokens)", name=op.f("ck_trajectories_block_tokens")),
        sa.CheckConstraint(
            "0 <= ALL (correct_probes) AND array_position(correct_probes, NULL) IS NULL",
            name=op.f("ck_trajectories_correct_probes"),
        ),
        sa.CheckConstraint("0 <= ALL (token_ids)", name=op.f("ck_trajectories_token_ids")),
        sa.CheckConstraint(
            "cardinality(correct_probes) = cardinality(retained_tokens)",
            name=op.f("ck_trajectories_correct_probes_length"),
        ),
        sa.CheckConstraint(
            "cardinality(end_margin) = cardinality(retained_tokens)", name=op.f("ck_trajectories_end_margin_length")
        ),
        sa.CheckConstraint(
            "is_strictly_increasing(retained_tokens)", name=op.f("ck_trajectories_retained_tokens_increase")
        ),
        sa.CheckConstraint(
            "cardinality(step_logprob) = cardinality(retained_tokens) - 1",
            name=op.f("ck_trajectories_step_logprob_length"),
        ),
        sa.CheckConstraint("cardinality(token_ids) = thinking_tokens", name=op.f("ck_trajectories_token_ids_length")),
        sa.CheckConstraint("retained_tokens[1] = 0", name=op.f("ck_trajectories_retained_tokens_start")),
        sa.CheckConstraint(
            "retained_tokens[cardinality(retained_tokens)] = thinking_tokens",
            name=op.f("ck_trajectories_thinking_tokens"),
        ),
        sa.CheckConstraint("trajectory >= 0", name=op.f("ck_trajectories_trajectory")),
        sa.ForeignKeyConstraint(
            ["snapshot_id", "model_id"],
            ["snapshot_models.snapshot_id", "snapshot_models.id"],
            name=op.f("fk_trajectories_snapshot_id_model_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["snapshot_id", "question_pk"],
            ["questions.snapshot_id", "questions.id"],
            name=op.f("fk_trajectories_snapshot_id_question_pk"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_trajectories")),
        sa.UniqueConstraint(
            "model_id", "question_pk", "trajectory", name=op.f("uq_trajectories_model_id_question_pk_trajectory")
        ),
    )
    op.create_index(op.f("ix_trajectories_question_pk"), "trajectories", ["question_pk"], unique=False)


def _create_figures() -> None:
    op.create_table(
        "cell_frontiers",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("benchmark", sa.Text(), nullable=False),
        sa.Column("cost", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("correct", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("total_thinking_tokens", sa.BigInteger(), nullable=False),
        sa.Column("total_probes", sa.BigInteger(), nullable=False),
        sa.Column("full_correct", sa.BigInteger(), nullable=False),
        sa.Column("uninformed_cost", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("uninformed_correct", postgresql.ARRAY(sa.BigInteger()), nullable=False),
        sa.Column("beta_match", sa.Double(), nullable=True),
        sa.Column("max_accuracy", sa.Double(), nullable=False),
        sa.Column("beta_sat", sa.Double(), nullable=False),
        sa.Column("area", sa.Double(), nullable=False),
        sa.Column("uninformed_area", sa.Double(), nullable=False),
        sa.Column("evaluator_version", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("split IN ('all', 'train', 'validation', 'test')", name=op.f("ck_cell_frontiers_split")),
        sa.CheckConstraint(
            "strategy IN ('dynamic_routing', 'fixed_budget', 'dynamic_early_exit')",
            name=op.f("ck_cell_frontiers_strategy"),
        ),
        sa.CheckConstraint("area >= 0 AND area <= 1", name=op.f("ck_cell_frontiers_area")),
        sa.CheckConstraint("beta_match >= 0 AND beta_match <= 1", name=op.f("ck_cell_frontiers_beta_match")),
        sa.CheckConstraint("beta_sat >= 0 AND beta_sat <= 1", name=op.f("ck_cell_frontiers_beta_sat")),
        sa.CheckConstraint("cardinality(cost) = cardinality(correct)", name=op.f("ck_cell_frontiers_frontier_length")),
        sa.CheckConstraint(
            "cardinality(uninformed_cost) = cardinality(uninformed_correct)",
            name=op.f("ck_cell_frontiers_uninformed_length"),
        ),
        sa.CheckConstraint("max_accuracy >= 0 AND max_accuracy <= 1", name=op.f("ck_cell_frontiers_max_accuracy")),
        sa.CheckConstraint("total_thinking_tokens >= 0 AND total_probes > 0", name=op.f("ck_cell_frontiers_totals")),
        sa.CheckConstraint(
            "uninformed_area >= 0 AND uninformed_area <= 1", name=op.f("ck_cell_frontiers_uninformed_area")
        ),
        sa.ForeignKeyConstraint(
            ["snapshot_id"], ["snapshots.id"], name=op.f("fk_cell_frontiers_snapshot_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_cell_frontiers")),
        sa.UniqueConstraint(
            "snapshot_id", "split", "strategy", "model", "benchmark", "evaluator_version", name="uq_cell_frontiers_cell"
        ),
    )
    op.create_table(
        "board_frontiers",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("benchmark", sa.Text(), nullable=True),
        sa.Column("n_cells", sa.Integer(), nullable=False),
        sa.Column("min_questions", sa.Integer(), nullable=False),
        sa.Column("full_accuracy", sa.Double(), nullable=False),
        sa.Column("beta_match", sa.Double(), nullable=True),
        sa.Column("max_accuracy", sa.Double(), nullable=False),
        sa.Column("beta_sat", sa.Double(), nullable=False),
        sa.Column("area", sa.Double(), nullable=False),
        sa.Column("uninformed_area", sa.Double(), nullable=False),
        sa.Column("grid_accuracy", postgresql.ARRAY(sa.Double()), nullable=False),
        sa.Column("uninformed_grid", postgresql.ARRAY(sa.Double()), nullable=False),
        sa.Column("evaluator_version", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("split IN ('all', 'train', 'validation', 'test')", name=op.f("ck_board_frontiers_split")),
        sa.CheckConstraint(
            "strategy IN ('dynamic_routing', 'fixed_budget', 'dynamic_early_exit')",
            name=op.f("ck_board_frontiers_strategy"),
        ),
        sa.CheckConstraint("area >= 0 AND area <= 1", name=op.f("ck_board_frontiers_area")),
        sa.CheckConstraint("beta_match >= 0 AND beta_match <= 1", name=op.f("ck_board_frontiers_beta_match")),
        sa.CheckConstraint("beta_sat >= 0 AND beta_sat <= 1", name=op.f("ck_board_frontiers_beta_sat")),
        sa.CheckConstraint(
            "cardinality(grid_accuracy) = cardinality(uninformed_grid)", name=op.f("ck_board_frontiers_grid_length")
        ),
        sa.CheckConstraint("full_accuracy >= 0 AND full_accuracy <= 1", name=op.f("ck_board_frontiers_full_accuracy")),
        sa.CheckConstraint("max_accuracy >= 0 AND max_accuracy <= 1", name=op.f("ck_board_frontiers_max_accuracy")),
        sa.CheckConstraint("n_cells >= 1 AND min_questions >= 1", name=op.f("ck_board_frontiers_counts")),
        sa.CheckConstraint(
            "uninformed_area >= 0 AND uninformed_area <= 1", name=op.f("ck_board_frontiers_uninformed_area")
        ),
        sa.ForeignKeyConstraint(
            ["snapshot_id"], ["snapshots.id"], name=op.f("fk_board_frontiers_snapshot_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_board_frontiers")),
    )
    op.create_index(
        "uq_board_frontiers_board",
        "board_frontiers",
        [
            "snapshot_id",
            "split",
            "strategy",
            sa.literal_column("coalesce(model, '')"),
            sa.literal_column("coalesce(benchmark, '')"),
            "evaluator_version",
        ],
        unique=True,
    )
    op.create_table(
        "snapshot_figures",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("evaluator_version", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("split IN ('all', 'train', 'validation', 'test')", name=op.f("ck_snapshot_figures_split")),
        sa.ForeignKeyConstraint(
            ["snapshot_id"], ["snapshots.id"], name=op.f("fk_snapshot_figures_snapshot_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_snapshot_figures")),
        sa.UniqueConstraint("snapshot_id", "split", "kind", "evaluator_version", name="uq_snapshot_figures_kind"),
    )
