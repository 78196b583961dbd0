"""The embedded server: shared by processes, stopped with the last, and back after every kind of sudden death."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from app.config import Config
from app.db.embedded import EmbeddedServerError, database_url, open_database, start_embedded, stop_embedded
from app.db.session import conninfo

USER = """
import sys
from pathlib import Path
from app.db.embedded import start_embedded
print(start_embedded(Path(sys.argv[1]), options=["fsync=off"]), flush=True)
sys.stdin.read()
"""


@dataclass
class User:
    """Another process that uses the server until its standard input ends, or until it is killed."""

    process: subprocess.Popen[str]

    def read_url(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def leave(self) -> None:
        self.process.communicate(timeout=60)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture(scope="module")
def data_dir(servers_folder: Path) -> Iterator[Path]:
    """A folder whose name is too long for a socket and needs quoting everywhere."""
    folder = servers_folder / uuid.uuid4().hex / f'it\'s a $long "folder", {"x" * 60}'
    yield folder
    stop_embedded(folder)


@pytest.fixture
def fresh_dir(servers_folder: Path) -> Iterator[Path]:
    """A folder that no server was in yet."""
    folder = servers_folder / uuid.uuid4().hex
    folder.mkdir()
    yield folder
    stop_embedded(folder)


@pytest.fixture
def server(data_dir: Path) -> Iterator[str]:
    """The URL of the server in `data_dir`, which no process uses afterwards."""
    yield start_embedded(data_dir, options=["fsync=off"])
    stop_embedded(data_dir)


def start_user(data_dir: Path) -> User:
    arguments = [sys.executable, "-c", USER, str(data_dir)]
    return User(subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))


def read_server_pid(data_dir: Path) -> int:
    return int((data_dir / "postgres" / "postmaster.pid").read_text().splitlines()[0])


def is_running(data_dir: Path) -> bool:
    return (data_dir / "postgres" / "postmaster.pid").exists()


def query(url: str, statement: str) -> object:
    with psycopg.connect(conninfo(url)) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
    return row[0] if row else None


def test_start_twice_and_stop(data_dir: Path, server: str) -> None:
    assert start_embedded(data_dir) == server
    assert query(server, "SELECT current_database()") == "otboard"
    assert query(server, "SHOW server_encoding") == "UTF8"
    assert query(server, "SHOW listen_addresses") == ""
    stop_embedded(data_dir)
    assert not is_running(data_dir)
    stop_embedded(data_dir)


def test_only_the_owner_may_open_the_folder(data_dir: Path, server: str) -> None:
    assert (data_dir / "postgres").stat().st_mode & 0o077 == 0
    sockets = Path(str(query(server, "SHOW unix_socket_directories")).strip('"'))
    assert sockets.stat().st_mode & 0o077 == 0


def test_two_processes_at_once(fresh_dir: Path) -> None:
    """Both find an empty folder: one makes the server, the other waits and joins it."""
    first, second = start_user(fresh_dir), start_user(fresh_dir)
    assert first.read_url() == second.read_url() != ""
    pid = read_server_pid(fresh_dir)
    first.leave()
    assert read_server_pid(fresh_dir) == pid
    second.leave()
    assert not is_running(fresh_dir)


def test_killed_user_does_not_keep_the_server(data_dir: Path, server: str) -> None:
    """A count of users in a file would still name the killed one, and the server would run for ever."""
    killed = start_user(data_dir)
    assert killed.read_url() == server
    killed.kill()
    assert is_running(data_dir)
    stop_embedded(data_dir)
    assert not is_running(data_dir)


def test_server_outlives_its_killed_only_user(data_dir: Path) -> None:
    killed = start_user(data_dir)
    url = killed.read_url()
    pid = read_server_pid(data_dir)
    killed.kill()
    assert start_embedded(data_dir) == url
    assert read_server_pid(data_dir) == pid
    stop_embedded(data_dir)
    assert not is_running(data_dir)


def test_killed_server_is_started_again(data_dir: Path, server: str) -> None:
    query(server, "CREATE TABLE IF NOT EXISTS kept AS SELECT 42 AS number")
    pid = read_server_pid(data_dir)
    os.kill(pid, signal.SIGKILL)
    assert start_embedded(data_dir, options=["fsync=off"]) == server
    assert read_server_pid(data_dir) != pid
    assert query(server, "SELECT number FROM kept") == 42


def test_lock_file_that_names_another_program(data_dir: Path, server: str) -> None:
    """In a restarted container the server's old process number soon belongs to something else."""
    lock_file = data_dir / "postgres" / "postmaster.pid"
    content = lock_file.read_text()
    stop_embedded(data_dir)
    lock_file.write_text("\n".join([str(os.getpid()), *content.splitlines()[1:]]) + "\n")
    assert start_embedded(data_dir, options=["fsync=off"]) == server
    assert read_server_pid(data_dir) != os.getpid()


def test_forked_child_does_not_stop_the_server(data_dir: Path, server: str) -> None:
    """It inherits the lock of its parent, so to the kernel it looks like the last user."""
    child = os.fork()
    if child == 0:
        stop_embedded(data_dir)
        os._exit(0)
    os.waitpid(child, 0)
    assert query(server, "SELECT 1") == 1


def test_unfinished_folder_is_made_anew(fresh_dir: Path) -> None:
    draft = fresh_dir / "postgres.new"
    draft.mkdir()
    (draft / "PG_VERSION").write_text("half")
    url = start_embedded(fresh_dir, options=["fsync=off"])
    assert query(url, "SELECT 1") == 1
    assert not draft.exists()


def test_folder_of_an_unknown_version(fresh_dir: Path) -> None:
    (fresh_dir / "postgres").mkdir()
    (fresh_dir / "postgres" / "PG_VERSION").write_text("9\n")
    with pytest.raises(EmbeddedServerError, match="PostgreSQL 9"):
        start_embedded(fresh_dir)


def test_data_folder_that_cannot_be(fresh_dir: Path) -> None:
    (fresh_dir / "data").write_text("a file where the folder should be")
    with pytest.raises(EmbeddedServerError, match="cannot be used"):
        start_embedded(fresh_dir / "data")


def test_failure_says_what_the_server_said(data_dir: Path, server: str) -> None:
    stop_embedded(data_dir)
    with pytest.raises(EmbeddedServerError, match="no_such_parameter"):
        start_embedded(data_dir, options=["no_such_parameter=1"])
    assert start_embedded(data_dir, options=["fsync=off"]) == server


def test_configured_database_needs_no_server(tmp_path: Path) -> None:
    config = Config(data_dir=tmp_path / "data", database_url="postgresql://elsewhere/db")
    assert database_url(config) == "postgresql://elsewhere/db"
    with open_database(config) as url:
        assert url == "postgresql://elsewhere/db"
    assert not config.data_dir.exists()


def test_open_database_stops_what_it_started(data_dir: Path) -> None:
    with open_database(Config(data_dir=data_dir)) as url:
        assert query(url, "SELECT 1") == 1
    assert not is_running(data_dir)
