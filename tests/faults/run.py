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
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx

from app.files.snapshot import Snapshot
from benchmarks.servers import PATIENCE_SECONDS, Plant, run_plant, wait_until

N_CLIENTS = 4
N_SERVERS = 2
ENVIRONMENT = {
    "OTBOARD_HEARTBEAT_TIMEOUT_SECONDS": "1",
    "OTBOARD_BOOTSTRAP_REPLICATES": "10",
    # Faults here are ours, and many; the number of attempts is tested elsewhere.
    "OTBOARD_SCORING_ATTEMPTS": "50",
}


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


def kill_worker(plant: Plant, rng: random.Random) -> str:
    """Kill the worker of one of the servers."""
    server = rng.choice(plant.servers)
    listing = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    wait_until(lambda: bool(listing.read_text().split()))
    for pid in listing.read_text().split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    return "a worker killed"


def kill_server(plant: Plant, rng: random.Random) -> str:
    """Kill one of the servers, and start another in its place."""
    place = rng.randrange(len(plant.servers))
    plant.servers[place].kill()
    plant.servers[place] = plant.start_server()
    return "a server killed"


def crash_database(plant: Plant, _: random.Random) -> str:
    """Crash the database."""
    plant.crash_database()
    return "the database crashed"


FAULTS: Sequence[Callable[[Plant, random.Random], str]] = (kill_worker, crash_database, kill_server)


def run(folder: Path, snapshot: Snapshot, files: Sequence[bytes], *, n_rounds: int, seed: int) -> dict[str, Any]:
    """Upload the files, each twice, while faults come one after the other; return figures, or raise what went wrong."""
    rng = random.Random(seed)
    started = time.monotonic()
    with (
        run_plant(folder, snapshot, n_servers=N_SERVERS, environment=ENVIRONMENT) as plant,
        ThreadPoolExecutor(N_CLIENTS + 1) as threads,
    ):
        disturbing = threads.submit(disturb, plant, rng, n_rounds=n_rounds)
        uploading = [threads.submit(upload, plant, content, rng=random.Random(content)) for content in [*files, *files]]
        uploaded = [one.result() for one in uploading]
        faults = disturbing.result()
        wait_until(lambda: plant.count("SELECT count(*) FROM submissions WHERE state <> 'scored'") == 0)
        figures = _inspect(plant, files, uploaded)
    return {**figures, "faults": faults, "seconds": round(time.monotonic() - started, 1)}


def disturb(plant: Plant, rng: random.Random, *, n_rounds: int) -> list[str]:
    """Bring about one fault after the other, a second apart, and return what they were."""
    happened = []
    for number in range(n_rounds):
        time.sleep(1.0)
        happened.append(FAULTS[number % len(FAULTS)](plant, rng))
    return happened


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
    uploads = plant.data_dir / "uploads"
    kept = [path for path in uploads.rglob("*") if path.is_file() and path.parent.name != "incoming"]
    assert len(kept) == half, "a file was lost, or one without a submission was kept"
    return {"submissions": half, "uploads": len(uploaded), "most_attempts": attempts}


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
