"""Uploads against real servers while workers and servers are killed and the database is restarted.

Run as ``python -m tests.faults.run --submissions 200 --rounds 10``: prints one JSON line with figures, and exits 1 with
what was lost, doubled or scored wrongly. The suite runs a small one. What it holds up against: every submission ends
scored once, with the score that the same file has anywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import psycopg
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from app.db.embedded import start_embedded, stop_embedded
from app.db.migrations import upgrade_database
from app.db.session import conninfo, make_engine
from app.files.snapshot import Snapshot
from app.services import snapshots

N_CLIENTS = 4
N_SERVERS = 2
PATIENCE_SECONDS = 420.0
RUN_COMMAND = "from app.cli import main; main()"
ENVIRONMENT = {
    "OTBOARD_HEARTBEAT_TIMEOUT_SECONDS": "1",
    "OTBOARD_BOOTSTRAP_REPLICATES": "10",
    # Faults here are ours, and many; the number of attempts is tested elsewhere.
    "OTBOARD_SCORING_ATTEMPTS": "50",
}


@dataclass
class Server:
    """An `otboard serve` with its own worker."""

    process: subprocess.Popen[str]
    address: str
    token: str


@dataclass
class Plant:
    """A database server, a data folder and several web servers on them."""

    folder: Path
    servers: list[Server] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Return the database's address."""
        return (self.folder / "url").read_text()

    def start_database(self) -> None:
        """Start the database server, or start it again."""
        url = start_embedded(self.folder / "database", options=("fsync=off", "max_wal_size=128MB"))
        (self.folder / "url").write_text(make_url(url).render_as_string(hide_password=False))

    def crash_database(self) -> None:
        """End the database server as a crash does, and start it again: every connection breaks."""
        pid = int((self.folder / "database" / "postgres" / "postmaster.pid").read_text().splitlines()[0])
        os.kill(pid, signal.SIGQUIT)
        _wait_until(lambda: not _is_running(pid))
        self.start_database()

    def start_server(self) -> Server:
        """Start a web server with a worker."""
        environment = {
            **os.environ,
            **ENVIRONMENT,
            "OTBOARD_DATA": str(self.folder / "data"),
            "OTBOARD_DATABASE_URL": self.url,
        }
        command = [sys.executable, "-c", RUN_COMMAND, "serve", "--port", "0"]
        with (self.folder / "log").open("a") as log:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        told: dict[str, str] = {}
        for line in process.stdout:
            word, _, value = line.strip().partition(" ")
            told[word] = value.strip()
            if "Token" in told:
                return Server(process, told["OTBoard"], told["Token"])
        raise RuntimeError((self.folder / "log").read_text()[-2000:])

    def ask(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with psycopg.connect(conninfo(self.url), autocommit=True) as connection:
            return connection.execute(query).fetchall()  # type: ignore[call-overload, no-any-return]


@contextmanager
def run_plant(folder: Path, snapshot: Snapshot) -> Iterator[Plant]:
    """Start everything, with the snapshot frozen, for the length of a block."""
    plant = Plant(folder)
    (folder / "data").mkdir()
    plant.start_database()
    engine = make_engine(plant.url)
    upgrade_database(engine)
    with Session(engine) as session, session.begin():
        snapshots.import_snapshot(session, snapshot)
        snapshots.freeze_snapshot(session, snapshot.manifest.name)
    engine.dispose()
    try:
        plant.servers = [plant.start_server() for _ in range(N_SERVERS)]
        yield plant
    finally:
        for server in plant.servers:
            server.process.kill()
            server.process.wait()
        stop_embedded(folder / "database")


def upload(plant: Plant, content: bytes, *, rng: random.Random) -> str:
    """Upload a file to any of the servers, again and again until one takes it; return the submission."""
    form = {"snapshot": "small", "split": "test", "strategy": "fixed_budget", "method": "caps"}
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        server = rng.choice(plant.servers)
        with suppress(httpx.HTTPError):
            answer = httpx.post(
                f"{server.address}/api/v1/submissions",
                data=form,
                files={"file": ("caps.csv", content)},
                headers={"Authorization": f"Bearer {server.token}"},
                timeout=30,
            )
            if answer.status_code in (200, 202):
                return str(answer.json()["id"])
            # Nothing but our own trouble is a reason to try again.
            assert answer.status_code >= 500, answer.text
        time.sleep(0.2)
    raise TimeoutError("no server took the file")


def kill_worker(plant: Plant, rng: random.Random) -> None:
    """Kill the worker of one of the servers."""
    server = rng.choice(plant.servers)
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    for pid in _list_children(children):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            plant.faults.append("a worker killed")


def kill_server(plant: Plant, rng: random.Random) -> None:
    """Kill one of the servers, and start another in its place."""
    place = rng.randrange(len(plant.servers))
    plant.servers[place].process.kill()
    plant.servers[place].process.wait()
    plant.faults.append("a server killed")
    plant.servers[place] = plant.start_server()


def crash_database(plant: Plant, _: random.Random) -> None:
    """Crash the database."""
    plant.crash_database()
    plant.faults.append("the database crashed")


FAULTS: Sequence[Callable[[Plant, random.Random], None]] = (kill_worker, crash_database, kill_server)


def run(folder: Path, snapshot: Snapshot, files: Sequence[bytes], *, n_rounds: int, seed: int) -> dict[str, Any]:
    """Upload the files, each twice, while faults come one after the other; return figures, or raise what went wrong."""
    rng = random.Random(seed)
    started = time.monotonic()
    with run_plant(folder, snapshot) as plant:
        ended = threading.Event()

        def disturb() -> None:
            for number in range(n_rounds):
                ended.wait(1.0)
                FAULTS[number % len(FAULTS)](plant, rng)

        disturbing = threading.Thread(target=disturb)
        disturbing.start()
        with ThreadPoolExecutor(N_CLIENTS) as clients:
            pair = [*files, *files]
            uploaded = list(clients.map(lambda content: upload(plant, content, rng=random.Random(content)), pair))
        disturbing.join()
        check = "SELECT count(*) FROM submissions WHERE state <> 'scored'"
        _wait_until(lambda: _ask_calmly(plant, check) == 0)
        return {**_inspect(plant, files, uploaded), "seconds": round(time.monotonic() - started, 1)}


def _inspect(plant: Plant, files: Sequence[bytes], uploaded: Sequence[str]) -> dict[str, Any]:
    """Return figures of a run that is over, or raise what is wrong with its submissions."""
    half = len(files)
    assert uploaded[:half] == uploaded[half:], "the same bytes became two submissions"
    assert len(set(uploaded)) == half
    ((n_submissions, attempts),) = plant.ask("SELECT count(*), max(attempts) FROM submissions")
    assert n_submissions == half, "a submission was lost or doubled"
    ((n_scores, n_scored),) = plant.ask("SELECT count(*), count(DISTINCT submission_id) FROM scores")
    assert n_scores == n_scored == half, "a submission was scored twice or never"
    events = plant.ask("SELECT submission_id, to_state FROM submission_events ORDER BY id")
    scored = [submission_id for submission_id, state in events if state == "scored"]
    assert sorted(scored) == sorted(set(uploaded)), "a submission became scored more than once"
    uploads = plant.folder / "data" / "uploads"
    kept = [path for path in uploads.rglob("*") if path.is_file() and path.parent.name != "incoming"]
    assert len(kept) == half, "a file was lost, or one without a submission was kept"
    return {"submissions": half, "uploads": len(uploaded), "most_attempts": attempts, "faults": plant.faults}


def _ask_calmly(plant: Plant, query: str) -> Any:
    try:
        return plant.ask(query)[0][0]
    except psycopg.OperationalError:
        return None


def _list_children(listing: Path) -> list[int]:
    return [int(pid) for pid in listing.read_text().split()] if listing.exists() else []


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def _wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("what was waited for did not come")
        time.sleep(0.1)


def main() -> int:
    """Run it with the size that is asked for."""
    from tests.conftest import _make_board_snapshot
    from tests.faults.conftest import write_caps

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--submissions", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9, help="faults, one a second or so")
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    files = [write_caps(cap) for cap in range(chosen.submissions)]
    with tempfile.TemporaryDirectory(prefix="otboard-faults-") as folder:
        figures = run(Path(folder), _make_board_snapshot(), files, n_rounds=chosen.rounds, seed=chosen.seed)
    sys.stdout.write(json.dumps(figures) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
