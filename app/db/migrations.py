"""Bringing a database to the newest version of the tables, and telling whether it is there."""

from __future__ import annotations

from alembic import command
from alembic.config import Config as AlembicConfig
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, text

from app.config import resource_dir
from app.db.session import check_connection

# Any number, the same for everyone who migrates: two processes that start at once do it one after the other.
MIGRATION_LOCK = 7_207_260_721


def alembic_config(connection: Connection | None = None) -> AlembicConfig:
    """Return Alembic's configuration for the migrations of this installation, to run on the connection given."""
    config = AlembicConfig()
    config.set_main_option("script_location", str(resource_dir("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def upgrade_database(engine: Engine, *, revision: str = "head") -> None:
    """Run the migrations that the database lacks.

    Raises
    ------
    UnreachableError : the database does not answer or is too old.
    """
    check_connection(engine)
    with engine.connect() as connection:
        connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": MIGRATION_LOCK})
        connection.commit()
        try:
            command.upgrade(alembic_config(connection), revision)
        finally:
            connection.rollback()
            connection.execute(text("SELECT pg_advisory_unlock(:key)"), {"key": MIGRATION_LOCK})
            connection.commit()


def is_up_to_date(connection: Connection) -> bool:
    """Whether the database has every migration of this installation."""
    newest = ScriptDirectory.from_config(alembic_config()).get_current_head()
    return MigrationContext.configure(connection).get_current_revision() == newest
