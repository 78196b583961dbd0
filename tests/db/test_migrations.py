"""The migrations lead from nothing to the tables that the models describe, and back."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.orm import Session

from app.db.migrations import alembic_config, is_up_to_date, upgrade_database
from app.db.models import SPLIT_NAMES, STRATEGY_NAMES, Base
from app.db.session import make_engine
from app.evaluator.measurements import SPLITS
from app.evaluator.strategies import Strategy

DEFINITIONS = """
SELECT conrelid::regclass::text AS table_name, conname AS name, pg_get_constraintdef(oid) AS definition
FROM pg_constraint WHERE connamespace = current_schema()::regnamespace AND conrelid <> 0 AND contype <> 'n'
UNION ALL SELECT tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema()
"""


def test_models_and_migrations_agree(engine: Engine) -> None:
    with engine.connect() as connection:
        command.check(alembic_config(connection))


def test_database_is_up_to_date(session: Session) -> None:
    assert is_up_to_date(session.connection())


def list_definitions(connection: Connection) -> set[tuple[str, str, str]]:
    found = connection.execute(text(DEFINITIONS))
    return {
        (table, name, definition)
        for table, name, definition in found
        if not table.startswith(("procrastinate_", "alembic_"))
    }


def test_checks_and_indexes_agree(engine: Engine, empty_database: str) -> None:
    """`alembic check` does not compare CHECKs, so the definitions of all constraints and indexes are compared here."""
    with engine.connect() as connection:
        migrated = list_definitions(connection)
    described_engine = make_engine(empty_database)
    try:
        with described_engine.connect() as connection:
            stand_in = "is_strictly_increasing(integer[]) RETURNS boolean IMMUTABLE LANGUAGE sql RETURN true"
            connection.execute(text(f"CREATE FUNCTION {stand_in}"))
            Base.metadata.create_all(connection)
            described = list_definitions(connection)
            connection.rollback()
    finally:
        described_engine.dispose()
    assert migrated == described
    assert len(migrated) > 100


def test_every_constraint_is_named_by_the_convention(session: Session) -> None:
    names = {name for _, name, _ in list_definitions(session.connection())}
    assert {name for name in names if not name.startswith(("pk_", "uq_", "fk_", "ck_", "ix_"))} == set()


def test_upgrade_downgrade_upgrade(empty_database: str) -> None:
    engine = make_engine(empty_database)
    try:
        upgrade_database(engine)
        with engine.connect() as connection:
            tables = set(inspect(connection).get_table_names())
            assert {"snapshots", "submissions", "procrastinate_jobs"} <= tables
            command.downgrade(alembic_config(connection), "base")
            # A downgrade to nothing leaves nothing of the queue's either: the next upgrade would trip over it.
            assert set(inspect(connection).get_table_names()) == {"alembic_version"}
            left = "SELECT count(*) FROM pg_proc WHERE pronamespace = current_schema()::regnamespace"
            assert connection.scalar(text(left)) == 0
            connection.rollback()
        upgrade_database(engine)
        # Once more changes nothing.
        upgrade_database(engine)
        with engine.connect() as connection:
            assert set(inspect(connection).get_table_names()) == tables
    finally:
        engine.dispose()


def test_every_migration_sets_a_lock_timeout() -> None:
    revisions = list(ScriptDirectory.from_config(alembic_config()).walk_revisions())
    assert len(revisions) >= 2
    for revision in revisions:
        assert Path(revision.path).read_text().count("SET LOCAL lock_timeout") == 2


def test_every_table_is_in_the_documentation() -> None:
    text = (Path(__file__).resolve().parents[2] / "docs" / "database.md").read_text(encoding="utf-8")
    assert [table.name for table in Base.metadata.sorted_tables if f"`{table.name}`" not in text] == []


def test_names_in_the_tables_are_those_of_the_evaluator() -> None:
    assert tuple(strategy.value for strategy in Strategy) == STRATEGY_NAMES
    assert SPLIT_NAMES == SPLITS
