"""Note every change of what boards show, so that answers about them can be kept until then.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

SHOWN_TABLES = (
    "snapshots",
    "snapshot_models",
    "snapshot_benchmarks",
    "questions",
    "cell_frontiers",
    "board_frontiers",
    "teams",
    "methods",
    "submissions",
    "scores",
    "board_scores",
    "board_intervals",
    "board_ranks",
    "board_versions",
    "held_boards",
)
# Only inserts, so that nobody waits for anybody. Old rows go now and then, all that are seen and not locked.
NOTE_CHANGE = """
CREATE FUNCTION note_shown_change() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
  number bigint;
BEGIN
  INSERT INTO shown_changes DEFAULT VALUES RETURNING id INTO number;
  IF number % 1000 = 0 THEN
    DELETE FROM shown_changes WHERE id IN (
      SELECT id FROM shown_changes WHERE id < number - 1000 FOR UPDATE SKIP LOCKED
    );
  END IF;
  RETURN NULL;
END
$$
"""


def upgrade() -> None:
    """Create the table, and the triggers that fill it: a row a statement, and a row for each one that is updated."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "shown_changes",
        sa.Column("id", sa.BigInteger(), sa.Identity(always=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_shown_changes")),
    )
    op.execute(NOTE_CHANGE)
    for table in SHOWN_TABLES:
        op.execute(
            f"CREATE TRIGGER note_change AFTER INSERT OR DELETE ON {table}"
            " FOR EACH STATEMENT EXECUTE FUNCTION note_shown_change()"
        )
        op.execute(
            f"CREATE TRIGGER note_update AFTER UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION note_shown_change()"
        )


def downgrade() -> None:
    """Drop the triggers and the table."""
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in SHOWN_TABLES:
        op.execute(f"DROP TRIGGER note_change ON {table}")
        op.execute(f"DROP TRIGGER note_update ON {table}")
    op.execute("DROP FUNCTION note_shown_change")
    op.drop_table("shown_changes")
