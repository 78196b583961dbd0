"""Real servers and workers as processes that can be killed, on a small snapshot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db.session import make_engine, session_factory
from app.evaluator.strategies import Strategy
from app.files.snapshot import Snapshot
from app.services import snapshots
from app.services.accounts import Identity, ensure_account
from app.services.submissions import accept_submission
from app.services.uploads import store_upload

DEADLINE_SECONDS = 240.0
# The command `otboard` without its script, which is not there where the package was not installed.
RUN_COMMAND = "from app.cli import main; main()"


@dataclass
class Site:
    """A database, a data folder and the processes that work on them."""

    config: Config
    engine: Engine
    sessions: sessionmaker[Session]
    account: Identity
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a process of ours with this site's configuration."""
        environment = {
            **os.environ,
            "OTBOARD_DATA": str(self.config.data_dir),
            "OTBOARD_DATABASE_URL": str(self.config.database_url),
            "OTBOARD_HEARTBEAT_TIMEOUT_SECONDS": "1",
            "OTBOARD_BOOTSTRAP_REPLICATES": "40",
        }
        with (self.config.data_dir / f"stderr-{len(self.processes)}").open("w") as errors:
            process = subprocess.Popen(
                [sys.executable, *command],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.processes.append(process)
        return process

    def start_command(self, *arguments: str) -> subprocess.Popen[str]:
        """Start an `otboard` command."""
        return self.start("-c", RUN_COMMAND, *arguments)

    def start_worker(self, *options: str) -> subprocess.Popen[str]:
        """Start a scoring worker."""
        return self.start("-m", "worker.main", *options)

    def start_server(self) -> tuple[subprocess.Popen[str], str, str]:
        """Start `otboard serve` on a free port and return the process, its address and the token."""
        process = self.start_command("serve", "--port", "0")
        assert process.stdout is not None
        told: dict[str, str] = {}
        for line in process.stdout:
            word, _, value = line.strip().partition(" ")
            told[word] = value.strip()
            if "Token" in told:
                return process, told["OTBoard"], told["Token"]
        raise AssertionError(self.read_errors())

    def read_errors(self) -> str:
        """Return what the processes wrote to standard error."""
        return "\n".join(path.read_text() for path in sorted(self.config.data_dir.glob("stderr-*")))

    def submit(self, content: bytes, *, method: str = "method") -> str:
        """Put a submission into the queue, as the server does."""
        path = self.config.data_dir / "given.csv"
        path.write_bytes(content)
        with path.open("rb") as stream:
            upload = store_upload(stream, data_dir=self.config.data_dir, limit_bytes=10**9)
        with self.sessions.begin() as session:
            accepted = accept_submission(
                session,
                account=self.account,
                snapshot_name="small",
                split="test",
                strategy=Strategy.FIXED_BUDGET,
                method_name=method,
                description=None,
                upload=upload,
                filename="given.csv",
            )
        return accepted.submission_id

    def ask(self, query: str, **parameters: Any) -> Any:
        """Return the one value of a query."""
        with self.sessions.begin() as session:
            return session.scalar(text(query), parameters)

    def state(self, submission_id: str) -> str:
        """Return a submission's state."""
        return str(self.ask("SELECT state FROM submissions WHERE id = :id", id=submission_id))

    @contextmanager
    def hold(self, statement: str, **parameters: Any) -> Iterator[None]:
        """Hold the locks that a statement takes for as long as the block lasts."""
        with self.engine.connect() as connection, connection.begin():
            connection.execute(text(statement), parameters)
            yield

    def someone_waits(self) -> bool:
        """Whether a process of ours waits for a lock that somebody holds."""
        query = (
            "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() "
            "AND wait_event_type = 'Lock' AND pid <> pg_backend_pid())"
        )
        return bool(self.ask(query))


@pytest.fixture
def site(committed_database: str, tmp_path: Path, board_snapshot: Snapshot) -> Iterator[Site]:
    """A database with the small snapshot, frozen; every process that was started is gone afterwards."""
    engine = make_engine(committed_database)
    sessions = session_factory(engine)
    with sessions.begin() as session:
        snapshots.import_snapshot(session, board_snapshot)
        snapshots.freeze_snapshot(session, "small")
        account = ensure_account(session, name="ada", team="engines", is_control=False)
    made = Site(Config(data_dir=tmp_path, database_url=committed_database), engine, sessions, account)
    yield made
    for process in made.processes:
        process.kill()
        process.communicate()
    engine.dispose()


@pytest.fixture
def wait_until() -> Callable[[Callable[[], bool]], None]:
    """A function that returns once a condition holds, and fails when it does not come to hold."""

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come to hold"
            time.sleep(0.05)

    return wait


@pytest.fixture
def kill() -> Callable[[subprocess.Popen[str]], None]:
    """A function that kills a process as a full machine or a power cut does: it gets no chance to tidy up."""

    def kill_nine(process: subprocess.Popen[str]) -> None:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()

    return kill_nine


def write_caps(cap: int) -> bytes:
    """Write a fixed-budget file of one cap for every question of the test split."""
    lines = ["model,benchmark,question_id,action"]
    for model in ("alpha", "beta"):
        for benchmark, count in (("math", 21), ("logic", 3)):
            lines += [f"{model},{benchmark},{benchmark}-test-{n:02d},{cap}" for n in range(count)]
    return "\n".join(lines).encode()


@pytest.fixture
def make_caps() -> Callable[[int], bytes]:
    """A function that writes a fixed-budget file of one cap for every question of the test split."""
    return write_caps
