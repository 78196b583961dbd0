"""Give accounts roles, teams members, tokens scopes; create sign-ins, one-time links and the audit log.

Whoever is in a team becomes its owner; a team of one is that one's own. Tokens that exist could do everything and still
can.

Revision ID: 0008
Revises: 0007
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

NOW = sa.text("now()")
CLOCK = sa.text("clock_timestamp()")
TABLES = ("team_members", "sign_ins", "sign_in_attempts", "one_time_links", "account_identities", "audit_events")
LOGS = ("submission_events", "probe_run_events")

# The one change that a log allows: the name of an account that was deleted gives way to a number.
REFUSE_CHANGE_BUT_ERASURE = """
CREATE FUNCTION refuse_change_but_erasure() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND NEW.actor ~ '^deleted account [0-9]+$'
        AND to_jsonb(NEW) - 'actor' = to_jsonb(OLD) - 'actor' THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'rows of % are only ever added', TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation', CONSTRAINT = 'append_only';
END
$$
"""

FILL = (
    "INSERT INTO team_members (team_id, account_id, role, created_at)"
    " SELECT team_id, id, 'owner', created_at FROM accounts",
    "UPDATE teams SET kind = 'personal' WHERE NOT is_control"
    " AND (SELECT count(*) FROM accounts WHERE accounts.team_id = teams.id) = 1",
    "UPDATE accounts SET role = 'operator' WHERE name = 'local'",
    "UPDATE api_tokens SET scopes = '{read,submit,organise,operate}'",
)


def upgrade() -> None:
    """Add the columns and tables, and fill them for the accounts that exist."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    _add_columns()
    _create_members()
    _create_sign_ins()
    _create_links()
    _create_audit_log()
    for statement in FILL:
        op.execute(statement)


def downgrade() -> None:
    """Drop the tables and columns; accounts, teams and tokens stay as they were before them."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for log in LOGS:
        _guard(log, "refuse_change_of_records")
    for table in reversed(TABLES):
        op.drop_table(table)
    op.execute("DROP FUNCTION refuse_change_but_erasure")
    op.drop_column("api_tokens", "scopes")
    op.drop_index("uq_accounts_email", "accounts")
    for column in ("role", "email", "password_hash", "deleted_at"):
        op.drop_column("accounts", column)
    op.drop_column("teams", "kind")


def _key() -> sa.Column[Any]:
    return sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False)


def _moment(name: str, default: sa.TextClause | None = None, *, nullable: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.DateTime(timezone=True), server_default=default, nullable=nullable)


def _add_columns() -> None:
    op.add_column("teams", sa.Column("kind", sa.Text(), server_default="shared", nullable=False))
    op.create_check_constraint(op.f("ck_teams_kind"), "teams", "kind IN ('personal', 'shared')")
    op.add_column("accounts", sa.Column("role", sa.Text(), server_default="member", nullable=False))
    op.add_column("accounts", sa.Column("email", sa.Text(), nullable=True))
    op.add_column("accounts", sa.Column("password_hash", sa.Text(), nullable=True))
    op.add_column("accounts", _moment("deleted_at", nullable=True))
    op.create_check_constraint(op.f("ck_accounts_role"), "accounts", "role IN ('member', 'organiser', 'operator')")
    op.create_check_constraint(
        op.f("ck_accounts_erased"),
        "accounts",
        "deleted_at IS NULL OR (role = 'member' AND email IS NULL AND password_hash IS NULL)",
    )
    op.create_index("uq_accounts_email", "accounts", [sa.text("lower(email)")], unique=True)
    scopes: sa.Column[Any] = sa.Column(
        "scopes", postgresql.ARRAY(sa.Text()), server_default="{read,submit}", nullable=False
    )
    op.add_column("api_tokens", scopes)
    op.create_check_constraint(
        op.f("ck_api_tokens_scopes"),
        "api_tokens",
        "cardinality(scopes) >= 1 AND scopes <@ '{read,submit,organise,operate}'::text[]",
    )


def _create_members() -> None:
    op.create_table(
        "team_members",
        sa.Column("team_id", sa.BigInteger(), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("role", sa.Text(), server_default="member", nullable=False),
        _moment("created_at", NOW),
        sa.CheckConstraint("role IN ('owner', 'member')", name=op.f("ck_team_members_role")),
        sa.ForeignKeyConstraint(["account_id"], ["accounts.id"], name=op.f("fk_team_members_account_id")),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_team_members_team_id")),
        sa.PrimaryKeyConstraint("team_id", "account_id", name=op.f("pk_team_members")),
    )
    op.create_index(op.f("ix_team_members_account_id"), "team_members", ["account_id"], unique=False)


def _create_sign_ins() -> None:
    op.create_table(
        "sign_ins",
        _key(),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("key_sha256", sa.Text(), nullable=False),
        sa.Column("browser", sa.Text(), nullable=False),
        _moment("created_at", NOW),
        _moment("last_used_at", NOW),
        _moment("expires_at"),
        sa.CheckConstraint("key_sha256 ~ '^[0-9a-f]{64}$'", name=op.f("ck_sign_ins_key_sha256")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_sign_ins_account_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sign_ins")),
        sa.UniqueConstraint("key_sha256", name=op.f("uq_sign_ins_key_sha256")),
    )
    op.create_index(op.f("ix_sign_ins_account_id"), "sign_ins", ["account_id"], unique=False)
    op.create_table(
        "sign_in_attempts",
        _key(),
        sa.Column("account_sha256", sa.Text(), nullable=False),
        sa.Column("address_sha256", sa.Text(), nullable=False),
        _moment("at", CLOCK),
        sa.CheckConstraint("account_sha256 ~ '^[0-9a-f]{64}$'", name=op.f("ck_sign_in_attempts_account_sha256")),
        sa.CheckConstraint("address_sha256 ~ '^[0-9a-f]{64}$'", name=op.f("ck_sign_in_attempts_address_sha256")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_sign_in_attempts")),
    )
    for columns in (["account_sha256", "at"], ["address_sha256", "at"], ["at"]):
        op.create_index(op.f(f"ix_sign_in_attempts_{'_'.join(columns)}"), "sign_in_attempts", columns, unique=False)


def _create_links() -> None:
    op.create_table(
        "one_time_links",
        _key(),
        sa.Column("purpose", sa.Text(), nullable=False),
        sa.Column("code_sha256", sa.Text(), nullable=False),
        sa.Column("account_id", sa.BigInteger(), nullable=True),
        sa.Column("team_id", sa.BigInteger(), nullable=True),
        sa.Column("details", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        _moment("created_at", NOW),
        _moment("expires_at"),
        _moment("used_at", nullable=True),
        sa.CheckConstraint("code_sha256 ~ '^[0-9a-f]{64}$'", name=op.f("ck_one_time_links_code_sha256")),
        sa.CheckConstraint(
            "purpose IN ('sign_in', 'reset', 'sign_up', 'join_team', 'email')", name=op.f("ck_one_time_links_purpose")
        ),
        sa.CheckConstraint(
            "(purpose = 'sign_up') = (account_id IS NULL AND team_id IS NULL)", name=op.f("ck_one_time_links_subject")
        ),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_one_time_links_account_id"), ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["team_id"], ["teams.id"], name=op.f("fk_one_time_links_team_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_one_time_links")),
        sa.UniqueConstraint("code_sha256", name=op.f("uq_one_time_links_code_sha256")),
    )
    op.create_index(op.f("ix_one_time_links_account_id"), "one_time_links", ["account_id"], unique=False)
    op.create_index(op.f("ix_one_time_links_team_id"), "one_time_links", ["team_id"], unique=False)
    op.create_table(
        "account_identities",
        _key(),
        sa.Column("account_id", sa.BigInteger(), nullable=False),
        sa.Column("issuer", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        _moment("created_at", NOW),
        sa.CheckConstraint("issuer <> '' AND subject <> ''", name=op.f("ck_account_identities_named")),
        sa.ForeignKeyConstraint(
            ["account_id"], ["accounts.id"], name=op.f("fk_account_identities_account_id"), ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_account_identities")),
        sa.UniqueConstraint("issuer", "subject", name=op.f("uq_account_identities_issuer_subject")),
    )
    op.create_index(op.f("ix_account_identities_account_id"), "account_identities", ["account_id"], unique=False)


def _create_audit_log() -> None:
    op.create_table(
        "audit_events",
        _key(),
        sa.Column("actor", sa.Text(), nullable=False),
        sa.Column("action", sa.Text(), nullable=False),
        sa.Column("subject", sa.Text(), nullable=False),
        sa.Column("details", postgresql.JSONB(), server_default=sa.text("'{}'::jsonb"), nullable=False),
        _moment("at", CLOCK),
        sa.CheckConstraint("action <> ''", name=op.f("ck_audit_events_action")),
        sa.CheckConstraint("actor <> ''", name=op.f("ck_audit_events_actor")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_audit_events")),
    )
    op.create_index(op.f("ix_audit_events_at"), "audit_events", ["at"], unique=False)
    op.create_index(op.f("ix_audit_events_actor"), "audit_events", ["actor"], unique=False)
    op.execute(REFUSE_CHANGE_BUT_ERASURE)
    op.execute(
        "CREATE TRIGGER refuse_truncate BEFORE TRUNCATE ON audit_events"
        " FOR EACH STATEMENT EXECUTE FUNCTION refuse_change_of_records()"
    )
    for log in ("audit_events", *LOGS):
        _guard(log, "refuse_change_but_erasure")


def _guard(log: str, function: str) -> None:
    op.execute(f"DROP TRIGGER IF EXISTS refuse_change ON {log}")
    op.execute(
        f"CREATE TRIGGER refuse_change BEFORE UPDATE OR DELETE ON {log} FOR EACH ROW EXECUTE FUNCTION {function}()"
    )
