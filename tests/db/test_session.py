"""Database URLs as people write them, and what is said when nothing answers."""

from __future__ import annotations

import socket
import uuid
from datetime import timedelta

import psycopg
import pytest
from sqlalchemy import create_engine, func, select
from sqlalchemy.orm import Session

from app.config import ConfigError
from app.db.session import check_connection, conninfo, make_engine, normalise_url, session_factory
from app.errors import UnreachableError


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_urls_are_normalised(scheme: str) -> None:
    url = normalise_url(f"{scheme}://me:pa%20ss@host:5433/db?sslmode=require")
    expected = "postgresql+psycopg://me:pa ss@host:5433/db?sslmode=require"
    assert url.render_as_string(hide_password=False) == expected


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite:///x", "postgresql+asyncpg://host/db", "nonsense", "//x"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="OTBOARD_DATABASE_URL"):
        normalise_url(url)


def test_password_is_not_repeated_in_the_message() -> None:
    with pytest.raises(ConfigError) as refused:
        normalise_url("postgres//me:secret@host/db")
    assert "secret" not in str(refused.value)


def test_conninfo_keeps_blanks_and_signs() -> None:
    """A socket's folder may have a blank, which a URL's query writes as "+" and libpq would take for a plus."""
    url = normalise_url("postgresql://me:p%2Bw%20d@/db").update_query_dict({"host": "/a b+c'd"})
    read = psycopg.conninfo.conninfo_to_dict(conninfo(url.render_as_string(hide_password=False)))
    assert read == {"user": "me", "password": "p+w d", "dbname": "db", "host": "/a b+c'd"}


def test_nothing_answers() -> None:
    with socket.socket() as taken:
        # Bound but not listening: nobody else can take the port, and connecting to it is refused.
        taken.bind(("127.0.0.1", 0))
        url = f"postgresql://me:secret@127.0.0.1:{taken.getsockname()[1]}/db"
        engine = make_engine(url)
        try:
            with pytest.raises(UnreachableError, match="cannot be reached") as refused:
                check_connection(engine)
        finally:
            engine.dispose()
    assert "secret" not in refused.value.detail


def test_missing_database(server_url: str) -> None:
    engine = make_engine(normalise_url(server_url).set(database="no_such_db").render_as_string(hide_password=False))
    try:
        with pytest.raises(UnreachableError, match="no_such_db"):
            check_connection(engine)
    finally:
        engine.dispose()


def test_database_of_another_encoding(server_url: str) -> None:
    """Debian makes its cluster with SQL_ASCII where no locale is set: lengths and sorting of texts go wrong there."""
    name = f"otboard_test_{uuid.uuid4().hex}"
    with psycopg.connect(conninfo(server_url), autocommit=True) as connection:
        options = "TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
        connection.execute(f"CREATE DATABASE {name} {options}")
        engine = make_engine(normalise_url(server_url).set(database=name).render_as_string(hide_password=False))
        try:
            with pytest.raises(UnreachableError, match="SQL_ASCII"):
                check_connection(engine)
        finally:
            engine.dispose()
            connection.execute(f"DROP DATABASE {name}")


def test_connections_speak_utc(server_url: str) -> None:
    """The zone of the server or of the role must not shift what is shown."""
    engine = make_engine(server_url)
    try:
        check_connection(engine)
        with session_factory(engine)() as session:
            now = session.scalar(select(func.now()))
    finally:
        engine.dispose()
    assert now is not None
    assert now.utcoffset() == timedelta(0)


def test_sessions_of_tests_are_rolled_back(session: Session) -> None:
    """What the `session` fixture promises to every other test."""
    assert isinstance(session.get_bind().engine.url, type(create_engine("postgresql+psycopg://").url))
    session.commit()
    assert session.connection().in_nested_transaction()
