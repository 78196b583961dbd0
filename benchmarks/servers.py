"""Real servers with their workers on a database of their own: what a load or a test of faults is run against."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString

import psycopg
from sqlalchemy.orm import Session

from app.db.embedded import start_embedded, stop_embedded
from app.db.migrations import upgrade_database
from app.db.session import conninfo, make_engine
from app.files.snapshot import Snapshot
from app.services import snapshots

PATIENCE_SECONDS = 420.0
# The command `otboard` without its script, which is not there where the package was not installed.
RUN_COMMAND = "from app.cli import main; main()"
DATABASE_OPTIONS = ("fsync=off", "max_wal_size=256MB")


@dataclass
class Server:
    """An `otboard serve` with its own worker."""

    process: subprocess.Popen[str]
    address: str
    token: str

    def kill(self) -> None:
        """End the server as a crash does, and close what it was read through."""
        with self.process:
            self.process.kill()


@dataclass
class Plant:
    """A database server, a data folder and several web servers on them."""

    folder: Path
    environment: Mapping[str, str]
    servers: list[Server] = field(default_factory=list)
    url: str = ""

    @property
    def data_dir(self) -> Path:
        """Return the data folder that the servers share."""
        return self.folder / "data"

    def start_database(self) -> None:
        """Start the database server, or start it again."""
        self.url = start_embedded(self.folder / "database", options=DATABASE_OPTIONS)

    def crash_database(self) -> None:
        """End the database server as a crash does, and start it again: every connection breaks."""
        pid = int((self.folder / "database" / "postgres" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGQUIT)
        wait_until(lambda: not _is_running(pid))
        self.start_database()

    def start_server(self) -> Server:
        """Start a web server with a worker on a free port."""
        environment = {
            **os.environ,
            **self.environment,
            "OTBOARD_DATA": str(self.data_dir),
            "OTBOARD_DATABASE_URL": self.url,
        }
        command = [sys.executable, "-c", RUN_COMMAND, "serve", "--port", "0"]
        log = self.folder / "log"
        with log.open("a") as errors:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        told: dict[str, str] = {}
        for line in process.stdout:
            word, _, value = line.strip().partition(" ")
            told[word] = value.strip()
            if "Token" in told:
                return Server(process, told["OTBoard"], told["Token"])
        raise RuntimeError(f"the server did not start: {log.read_text()[-2000:]}")

    def ask(self, query: LiteralString) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with psycopg.connect(conninfo(self.url), autocommit=True) as connection:
            return connection.execute(query).fetchall()

    def count(self, query: LiteralString) -> int | None:
        """Return the one number of a query, or None while the database is away."""
        try:
            return int(self.ask(query)[0][0])
        except psycopg.OperationalError:
            return None


@contextmanager
def run_plant(folder: Path, snapshot: Snapshot, *, n_servers: int, environment: Mapping[str, str]) -> Iterator[Plant]:
    """Start everything, with the snapshot frozen, for the length of a block."""
    plant = Plant(folder, environment)
    plant.data_dir.mkdir()
    plant.start_database()
    try:
        engine = make_engine(plant.url)
        upgrade_database(engine)
        with Session(engine) as session, session.begin():
            snapshots.import_snapshot(session, snapshot)
            snapshots.freeze_snapshot(session, snapshot.manifest.name)
        engine.dispose()
        plant.servers = [plant.start_server() for _ in range(n_servers)]
        yield plant
    finally:
        for server in plant.servers:
            server.kill()
        stop_embedded(folder / "database")


def wait_until(condition: Callable[[], bool], *, seconds: float = PATIENCE_SECONDS) -> None:
    """Return once a condition holds; raise `TimeoutError` when it does not come to hold."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("what was waited for did not come")
        time.sleep(0.1)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state != "Z"
