"""Engines and sessions: one engine a process, one session a request or job."""

from __future__ import annotations

from psycopg.conninfo import make_conninfo
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, OperationalError
from sqlalchemy.orm import Session, sessionmaker

from app.config import ConfigError
from app.errors import UnreachableError

MINIMUM_SERVER_VERSION = 140000


def normalise_url(url: str) -> URL:
    """Return the URL with the psycopg driver named; ``postgres://`` and ``postgresql://`` are both accepted.

    Raises
    ------
    ConfigError : not a URL, or not one of PostgreSQL.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as exc:
        # The text is not repeated: it may hold a password.
        raise ConfigError("OTBOARD_DATABASE_URL is not a database URL; use postgresql://user@host:5432/name") from exc
    if parsed.drivername not in ("postgres", "postgresql", "postgresql+psycopg"):
        raise ConfigError(f"OTBOARD_DATABASE_URL begins with {parsed.drivername}://; only PostgreSQL is supported")
    return parsed.set(drivername="postgresql+psycopg")


def conninfo(url: str) -> str:
    """Return the URL as libpq and psycopg read it, password included.

    Keywords and values, not a URL again: libpq does not read "+" as a space, which is how SQLAlchemy writes one.
    """
    parsed = normalise_url(url)
    place = parsed.translate_connect_args(username="user", database="dbname")
    return make_conninfo("", **place, **{name: ",".join(values) for name, values in parsed.normalized_query.items()})


def make_engine(url: str, *, pool_size: int = 10) -> Engine:
    """Create an engine whose connections speak UTC; nothing is connected yet."""
    return create_engine(
        normalise_url(url),
        pool_size=pool_size,
        max_overflow=0,
        pool_pre_ping=True,
        # The values of a statement that failed are not repeated in its error, which is logged.
        hide_parameters=True,
        connect_args={
            "options": "-c timezone=UTC",
            "client_encoding": "utf8",
            "application_name": "otboard",
            "connect_timeout": 10,
        },
    )


def session_factory(engine: Engine) -> sessionmaker[Session]:
    """Return the factory of sessions; objects stay readable after the one commit of a request or job."""
    return sessionmaker(engine, expire_on_commit=False)


def check_connection(engine: Engine) -> None:
    """Connect once and look at the server's version and the database's encoding.

    Raises
    ------
    UnreachableError : nothing answers, the login or database is refused, the server is older than 14, or the database
        cannot hold every text.
    """
    place = engine.url.render_as_string(hide_password=True)
    query = text("SELECT current_setting('server_version_num')::int, current_setting('server_encoding')")
    try:
        with engine.connect() as connection:
            version, encoding = connection.execute(query).one()
    except OperationalError as exc:
        reason = str(exc.orig).strip().splitlines()[0] if exc.orig else "no answer"
        raise UnreachableError(f"the database {place} cannot be reached: {reason}") from exc
    if version < MINIMUM_SERVER_VERSION:
        raise UnreachableError(f"the database {place} is PostgreSQL {version // 10000}; 14 or later is needed")
    if encoding != "UTF8":
        raise UnreachableError(
            f"the database {place} has the encoding {encoding}; create one with ENCODING 'UTF8' TEMPLATE template0"
        )
