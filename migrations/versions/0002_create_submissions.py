"""Create the tables of accounts, submissions and scores, and the job queue.

Revision ID: 0002
Revises: 0001
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from procrastinate.schema import SchemaManager
from sqlalchemy.dialects import postgresql

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

TABLES = (
    "teams",
    "accounts",
    "api_tokens",
    "methods",
    "submissions",
    "submission_events",
    "scores",
    "board_scores",
)
STATES = "('received', 'validating', 'scoring', 'scored', 'withheld', 'published', 'rejected', 'failed', 'withdrawn')"
APPEND_ONLY_TABLES = ("submission_events", "scores", "board_scores")

REFUSE_CHANGE_OF_RECORDS = """
CREATE FUNCTION refuse_change_of_records() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of % are only ever added', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'append_only';
END
$$
"""

# Tables first: dropping them drops their triggers. The enumerations and the composite type go last, since functions
# take them as arguments.
DROP_QUEUE = """
DO $$
DECLARE
    found record;
BEGIN
    FOR found IN SELECT oid::regclass AS name FROM pg_class
        WHERE relkind = 'r' AND relname LIKE 'procrastinate\\_%' AND relnamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('DROP TABLE %s CASCADE', found.name);
    END LOOP;
    FOR found IN SELECT oid::regprocedure AS name FROM pg_proc
        WHERE proname LIKE 'procrastinate\\_%' AND pronamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('DROP FUNCTION %s', found.name);
    END LOOP;
    FOR found IN SELECT oid::regtype AS name FROM pg_type
        WHERE typtype IN ('c', 'e')
            AND typname LIKE 'procrastinate\\_%' AND typnamespace = current_schema()::regnamespace
    LOOP
        EXECUTE format('DROP TYPE %s', found.name);
    END LOOP;
END
$$
"""


def upgrade() -> None:
    """Create the tables, the queue, and the triggers that keep records as they were written."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    _create_accounts()
    _create_submissions()
    _create_scores()
    _create_triggers()
    _create_queue()


def downgrade() -> None:
    """Drop everything, submissions and scores included."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(DROP_QUEUE)
    for table in reversed(TABLES):
        op.drop_table(table)
    op.execute("DROP FUNCTION refuse_change_of_records")


def _create_queue() -> None:
    """Run the queue library's own schema file, over the driver: it has several statements and per cent signs."""
    connection = op.get_bind().connection.driver_connection
    assert connection is not None
    connection.execute(SchemaManager.get_schema())


def _create_triggers() -> None:
    op.execute(REFUSE_CHANGE_OF_RECORDS)
    for table in APPEND_ONLY_TABLES:
        op.execute(
            f"CREATE TRIGGER refuse_change BEFORE UPDATE OR DELETE ON {table}"
            " FOR EACH ROW EXECUTE FUNCTION refuse_change_of_records()"
        )
        op.execute(
            f"CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_records()"
        )


def _create_accounts() -> None:
    op.create_table(
        "teams",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("is_control", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("name <> ''", name=op.f("ck_teams_name")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_teams")),
        sa.UniqueConstraint("name", name=op.f("uq_teams_name")),
    )
    op.create_table(
        "accounts",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("team_id", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("name <> ''", name=op.f("ck_accounts_name")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_accounts_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_accounts")),
        sa.UniqueConstraint("name", name=op.f("uq_accounts_name")),
    )
    op.create_index(op.f("ix_accounts_team_id"), "accounts", ["team_id"], unique=False)
    op.create_table(
        "api_tokens",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("token_sha256", sa.Text(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("last_used_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("token_sha256 ~ '^[0-9a-f]{64}$'", name=op.f("ck_api_tokens_token_sha256")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_api_tokens_account_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_api_tokens")),
        sa.UniqueConstraint("token_sha256", name=op.f("uq_api_tokens_token_sha256")),
    )
    op.create_index(op.f("ix_api_tokens_account_id"), "api_tokens", ["account_id"], unique=False)
    op.create_table(
        "methods",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("team_id", sa.BigInteger(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("description", sa.Text(), nullable=True),
        sa.Column("is_control", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("name <> '' AND length(name) <= 200", name=op.f("ck_methods_name")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_methods_team_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_methods")),
        sa.UniqueConstraint("team_id", "id", name=op.f("uq_methods_team_id_id")),
        sa.UniqueConstraint("team_id", "name", name=op.f("uq_methods_team_id_name")),
    )


def _create_submissions() -> None:
    op.create_table(
        "submissions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("team_id", sa.BigInteger(), nullable=False),
        sa.Column("method_id", sa.BigInteger(), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("snapshot_id", sa.BigInteger(), nullable=False),
        sa.Column("split", sa.Text(), nullable=False),
        sa.Column("strategy", sa.Text(), nullable=False),
        sa.Column("actions_sha256", sa.Text(), nullable=False),
        sa.Column("actions_bytes", sa.BigInteger(), nullable=False),
        sa.Column("filename", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), server_default="received", nullable=False),
        sa.Column("is_current", sa.Boolean(), server_default=sa.text("false"), nullable=False),
        sa.Column(
            "problems", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'::jsonb"), nullable=False
        ),
        sa.Column(
            "warnings", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'[]'::jsonb"), nullable=False
        ),
        sa.Column("failure_reason", sa.Text(), nullable=True),
        sa.Column("n_settings", sa.Integer(), nullable=True),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("deadline", sa.DateTime(timezone=True), nullable=True),
        sa.Column("progress", sa.REAL(), nullable=True),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("scored_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("published_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("NOT is_current OR state = 'published'", name=op.f("ck_submissions_current_is_published")),
        sa.CheckConstraint("actions_sha256 ~ '^[0-9a-f]{64}$'", name=op.f("ck_submissions_actions_sha256")),
        sa.CheckConstraint("id ~ '^[A-Za-z0-9_-]{12}$'", name=op.f("ck_submissions_id")),
        sa.CheckConstraint("split IN ('all', 'train', 'validation', 'test')", name=op.f("ck_submissions_split")),
        sa.CheckConstraint(
            "state <> 'failed' OR failure_reason IS NOT NULL", name=op.f("ck_submissions_failure_reason")
        ),
        sa.CheckConstraint(
            "state <> 'published' OR published_at IS NOT NULL", name=op.f("ck_submissions_published_at")
        ),
        sa.CheckConstraint(
            f"state IN {STATES}",
            name=op.f("ck_submissions_state"),
        ),
        sa.CheckConstraint(
            "state NOT IN ('scored', 'published') OR scored_at IS NOT NULL", name=op.f("ck_submissions_scored_at")
        ),
        sa.CheckConstraint(
            "strategy IN ('dynamic_routing', 'fixed_budget', 'dynamic_early_exit')",
            name=op.f("ck_submissions_strategy"),
        ),
        sa.CheckConstraint("actions_bytes >= 0", name=op.f("ck_submissions_actions_bytes")),
        sa.CheckConstraint("attempts >= 0", name=op.f("ck_submissions_attempts")),
        sa.CheckConstraint("n_settings >= 1", name=op.f("ck_submissions_n_settings")),
        sa.CheckConstraint("progress >= 0 AND progress <= 1", name=op.f("ck_submissions_progress")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_submissions_account_id")),
        sa.ForeignKeyConstraint(["snapshot_id"], ["snapshots.id"], name=op.f("fk_submissions_snapshot_id")),
        sa.ForeignKeyConstraint(
            ["team_id", "method_id"], ["methods.team_id", "methods.id"], name=op.f("fk_submissions_team_id_method_id")
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submissions")),
        sa.UniqueConstraint(
            "team_id", "snapshot_id", "split", "strategy", "actions_sha256", name="uq_submissions_same_bytes"
        ),
    )
    op.create_index("ix_submissions_account_id", "submissions", ["account_id"], unique=False)
    op.create_index("ix_submissions_board", "submissions", ["snapshot_id", "split", "strategy", "state"], unique=False)
    op.create_index(
        "ix_submissions_deadline",
        "submissions",
        ["deadline"],
        unique=False,
        postgresql_where=sa.text("deadline IS NOT NULL"),
    )
    op.create_index("ix_submissions_method_id", "submissions", ["method_id"], unique=False)
    op.create_index(
        "uq_submissions_current",
        "submissions",
        ["method_id", "snapshot_id", "split", "strategy"],
        unique=True,
        postgresql_where=sa.text("is_current"),
    )
    op.create_table(
        "submission_events",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("from_state", sa.Text(), nullable=True),
        sa.Column("to_state", sa.Text(), nullable=False),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("at", sa.DateTime(timezone=True), server_default=sa.text("clock_timestamp()"), nullable=False),
        sa.CheckConstraint("actor <> ''", name=op.f("ck_submission_events_actor")),
        sa.CheckConstraint(
            f"from_state IN {STATES}",
            name=op.f("ck_submission_events_from_state"),
        ),
        sa.CheckConstraint(
            f"to_state IN {STATES}",
            name=op.f("ck_submission_events_to_state"),
        ),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name=op.f("fk_submission_events_submission_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_submission_events")),
    )
    op.create_index(op.f("ix_submission_events_submission_id"), "submission_events", ["submission_id"], unique=False)


def _create_scores() -> None:
    op.create_table(
        "scores",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("submission_id", sa.Text(), nullable=False),
        sa.Column("scorer_version", sa.Text(), nullable=False),
        sa.Column("document", postgresql.JSON(astext_type=sa.Text()), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["submission_id"], ["submissions.id"], name=op.f("fk_scores_submission_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_scores")),
        sa.UniqueConstraint("submission_id", "scorer_version", name=op.f("uq_scores_submission_id_scorer_version")),
    )
    op.create_table(
        "board_scores",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.Column("score_id", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.Text(), nullable=True),
        sa.Column("benchmark", sa.Text(), nullable=True),
        sa.Column("n_settings", sa.Integer(), nullable=False),
        sa.Column("n_cells", sa.Integer(), nullable=False),
        sa.Column("min_questions", sa.Integer(), nullable=False),
        sa.Column("realised_potential", sa.Double(), nullable=True),
        sa.Column("area", sa.Double(), nullable=False),
        sa.Column("uninformed_area", sa.Double(), nullable=False),
        sa.Column("oracle_area", sa.Double(), nullable=False),
        sa.Column("gap", sa.Double(), nullable=False),
        sa.Column("max_accuracy", sa.Double(), nullable=False),
        sa.Column("beta_match", sa.Double(), nullable=True),
        sa.Column("tokens_saved", sa.Double(), nullable=True),
        sa.Column("accuracy_25", sa.Double(), nullable=False),
        sa.Column("accuracy_50", sa.Double(), nullable=False),
        sa.Column("accuracy_75", sa.Double(), nullable=False),
        sa.Column("best_e3", sa.Double(), nullable=True),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("curve_beta", postgresql.ARRAY(sa.Double()), nullable=False),
        sa.Column("curve_accuracy", postgresql.ARRAY(sa.Double()), nullable=False),
        sa.CheckConstraint("best_e3 >= 0 AND best_e3 < 'Infinity'", name=op.f("ck_board_scores_best_e3")),
        sa.CheckConstraint("accuracy_25 >= 0 AND accuracy_25 <= 1", name=op.f("ck_board_scores_accuracy_25")),
        sa.CheckConstraint("accuracy_50 >= 0 AND accuracy_50 <= 1", name=op.f("ck_board_scores_accuracy_50")),
        sa.CheckConstraint("accuracy_75 >= 0 AND accuracy_75 <= 1", name=op.f("ck_board_scores_accuracy_75")),
        sa.CheckConstraint("area >= 0 AND area <= 1", name=op.f("ck_board_scores_area")),
        sa.CheckConstraint("beta_match >= 0 AND beta_match <= 1", name=op.f("ck_board_scores_beta_match")),
        sa.CheckConstraint(
            "cardinality(curve_beta) = cardinality(curve_accuracy)", name=op.f("ck_board_scores_curve_length")
        ),
        sa.CheckConstraint("gap >= -1 AND gap <= 1", name=op.f("ck_board_scores_gap")),
        sa.CheckConstraint("max_accuracy >= 0 AND max_accuracy <= 1", name=op.f("ck_board_scores_max_accuracy")),
        sa.CheckConstraint(
            "n_settings >= 1 AND n_cells >= 1 AND min_questions >= 1", name=op.f("ck_board_scores_counts")
        ),
        sa.CheckConstraint("oracle_area >= 0 AND oracle_area <= 1", name=op.f("ck_board_scores_oracle_area")),
        sa.CheckConstraint("realised_potential <= 1", name=op.f("ck_board_scores_realised_potential")),
        sa.CheckConstraint("realised_potential IS NOT NULL OR reason IS NOT NULL", name=op.f("ck_board_scores_reason")),
        sa.CheckConstraint("tokens_saved >= 0 AND tokens_saved <= 1", name=op.f("ck_board_scores_tokens_saved")),
        sa.CheckConstraint(
            "uninformed_area >= 0 AND uninformed_area <= 1", name=op.f("ck_board_scores_uninformed_area")
        ),
        sa.ForeignKeyConstraint(["score_id"], ["scores.id"], name=op.f("fk_board_scores_score_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_board_scores")),
    )
    op.create_index(
        "uq_board_scores_board",
        "board_scores",
        ["score_id", sa.literal_column("coalesce(model, '')"), sa.literal_column("coalesce(benchmark, '')")],
        unique=True,
    )
