"""Uploads many submissions from many clients at once to a real server with its worker, and waits until all are scored.

    python benchmarks/uploads.py                          # 1,000 submissions by 20 clients
    python benchmarks/uploads.py --submissions 100 --format json

Every file is uploaded by two teams. It exits 1 where a submission was lost, doubled, not scored or scored twice, or
where the same file has two scores that differ. Seconds are of a clock on the wall, since server, worker and database
are processes of their own on the same machine as the clients.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

import httpx
import numpy as np
from sqlalchemy.orm import Session

from app.db import models
from app.db.session import make_engine
from app.evaluator.measurements import Measurements
from app.evaluator.strategies import Strategy
from app.files.snapshot import load_measurements
from app.files.synthetic import draw_snapshot
from app.services.accounts import ensure_account, hash_token
from benchmarks.servers import Plant, run_plant, wait_until

SPLIT = "validation"
SCALE = 0.02
OTHER_TOKEN = "otb_of_the_other_team"
ENVIRONMENT = {"OTBOARD_BOOTSTRAP_REPLICATES": "10", "OTBOARD_LOG_LEVEL": "WARNING"}


@dataclass(frozen=True)
class Figures:
    """What a run measured: counts, seconds, and the latency of an upload from its first byte to the answer."""

    submissions: int
    clients: int
    bytes_per_file: int
    upload_seconds: float
    uploads_per_second: float
    latency_p50_seconds: float
    latency_p95_seconds: float
    latency_max_seconds: float
    all_scored_seconds: float
    scored_per_second: float


def write_file(measurements: Measurements, cap: int) -> bytes:
    """Return a fixed-budget file with one cap for every question of the split."""
    lines = ["model,benchmark,question_id,action"]
    for cell in measurements.select(SPLIT).cells:
        lines += [f"{cell.model},{cell.benchmark},{question},{cap}" for question in cell.question_ids]
    return "\n".join(lines).encode()


def add_team(plant: Plant) -> str:
    """Make a second team and return its token."""
    engine = make_engine(plant.url)
    with Session(engine) as session, session.begin():
        account = ensure_account(session, name="second", team="second", is_control=False)
        token = models.ApiToken(
            account_id=account.id, name="load", token_sha256=hash_token(OTHER_TOKEN), scopes=["read", "submit"]
        )
        session.add(token)
    engine.dispose()
    return OTHER_TOKEN


def upload(client: httpx.Client, snapshot: str, content: bytes, *, token: str, method: str) -> float:
    """Upload one file and return how many seconds that took."""
    form = {"snapshot": snapshot, "split": SPLIT, "strategy": Strategy.FIXED_BUDGET.value, "method": method}
    started = time.perf_counter()
    answer = client.post(
        "/api/v1/submissions",
        data=form,
        files={"file": ("caps.csv", content)},
        headers={"Authorization": f"Bearer {token}"},
    )
    answer.raise_for_status()
    return time.perf_counter() - started


def run(folder: Path, *, n_submissions: int, n_clients: int) -> Figures:
    """Upload everything, wait until it is scored, check it, and return the figures."""
    snapshot = draw_snapshot(scale=SCALE)
    measurements = load_measurements(snapshot)
    files = [write_file(measurements, 100 * number) for number in range(n_submissions // 2)]
    with run_plant(folder, snapshot, n_servers=1, environment=ENVIRONMENT) as plant:
        server = plant.servers[0]
        tokens = (server.token, add_team(plant))
        wait_until(
            lambda: plant.count("SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'prepare_snapshot'") == 0
        )
        tasks = [(content, token, f"cap {number}") for number, content in enumerate(files) for token in tokens]
        name = snapshot.manifest.name
        started = time.perf_counter()
        with (
            httpx.Client(
                base_url=server.address, timeout=120, limits=httpx.Limits(max_connections=n_clients)
            ) as client,
            ThreadPoolExecutor(n_clients) as pool,
        ):
            latencies = list(pool.map(lambda task: upload(client, name, task[0], token=task[1], method=task[2]), tasks))
        uploaded = time.perf_counter() - started
        wait_until(lambda: plant.count("SELECT count(*) FROM submissions WHERE state <> 'scored'") == 0, seconds=3600)
        scored = time.perf_counter() - started
        check(plant, n_submissions=len(tasks))
    return summarise(latencies, n_clients=n_clients, n_bytes=len(files[-1]), uploaded=uploaded, scored=scored)


def check(plant: Plant, *, n_submissions: int) -> None:
    """Exit unless every submission is there once, scored once, and the same file has the same score everywhere."""
    found = {
        "submissions": plant.count("SELECT count(*) FROM submissions"),
        "scored submissions": plant.count("SELECT count(DISTINCT submission_id) FROM scores"),
        "scores": plant.count("SELECT count(*) FROM scores"),
        "changes to scored": plant.count("SELECT count(*) FROM submission_events WHERE to_state = 'scored'"),
    }
    wrong = {name: number for name, number in found.items() if number != n_submissions}
    if wrong:
        sys.exit(f"{n_submissions} submissions were made, but there are {wrong}")
    differing = plant.count(
        "SELECT count(*) FROM (SELECT s.actions_sha256 FROM submissions s JOIN scores c ON c.submission_id = s.id"
        " GROUP BY s.actions_sha256 HAVING count(DISTINCT c.document::text) <> 1 OR count(*) <> 2) AS x"
    )
    if differing != 0:
        sys.exit(f"{differing} files have two scores that differ")


def summarise(latencies: Sequence[float], *, n_clients: int, n_bytes: int, uploaded: float, scored: float) -> Figures:
    """Return the figures of a run."""
    p50, p95 = np.percentile(latencies, [50, 95])
    return Figures(
        submissions=len(latencies),
        clients=n_clients,
        bytes_per_file=n_bytes,
        upload_seconds=round(uploaded, 1),
        uploads_per_second=round(len(latencies) / uploaded, 1),
        latency_p50_seconds=round(float(p50), 3),
        latency_p95_seconds=round(float(p95), 3),
        latency_max_seconds=round(max(latencies), 3),
        all_scored_seconds=round(scored, 1),
        scored_per_second=round(len(latencies) / scored, 1),
    )


def main() -> None:
    """Run it with the size that is asked for, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--submissions", type=int, default=1000, help="an even number: each file is sent by two teams")
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="otboard-load-") as folder:
        figures = asdict(run(Path(folder), n_submissions=chosen.submissions, n_clients=chosen.clients))
    if chosen.format == "json":
        sys.stdout.write(json.dumps(figures) + "\n")
    else:
        sys.stdout.writelines(f"{name.replace('_', ' ')}: {value:,}\n" for name, value in figures.items())


if __name__ == "__main__":
    main()
