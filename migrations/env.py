"""Alembic's entry: runs the migrations on the connection it is given, else on the configured database."""

from __future__ import annotations

from typing import Any

from alembic import context
from sqlalchemy import Connection

from app.config import load_config
from app.db.embedded import open_database
from app.db.models import Base
from app.db.session import make_engine


def is_ours(name: str | None, kind: str, _parents: Any) -> bool:
    """Leave the queue library's tables out of comparisons: its own schema file makes them."""
    return not (kind == "table" and name is not None and name.startswith("procrastinate_"))


def run(connection: Connection) -> None:
    """Run on one connection, each migration in a transaction of its own."""
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_name=is_ours,
        compare_server_default=True,
        transaction_per_migration=True,
    )
    with context.begin_transaction():
        context.run_migrations()


def run_on_configured_database() -> None:
    """Connect as the environment says; this is the way of the `alembic` command."""
    config = load_config()
    with open_database(config) as url:
        engine = make_engine(url)
        try:
            with engine.connect() as connection:
                run(connection)
        finally:
            engine.dispose()


given = context.config.attributes.get("connection")
if context.is_offline_mode():
    raise SystemExit("migrations need a database: they look at what is there; offline SQL is not offered")
if given is None:
    run_on_configured_database()
else:
    run(given)
