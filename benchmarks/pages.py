"""Times the board's page with many published submissions, on a real server and in a real browser.

    python -m benchmarks.pages                            # 500 submissions
    python -m benchmarks.pages --submissions 50 --format json

A database is filled through the services: everything is submitted, scored, resampled, ranked and published as jobs and
requests do it. Then a server is started and asked by clients on the same machine, first one after the other with
addresses that are new each time, so that no answer is kept, then by several at once with one address. At last Chromium
opens the page and its own performance entries are read. It exits 1 where an answer is not a page with all its rows.
Seconds are of the clock on the wall.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import LiteralString

import httpx
import numpy as np
from playwright.sync_api import Page, sync_playwright
from sqlalchemy import text
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db.session import make_engine, session_factory
from app.evaluator.measurements import Measurements
from app.evaluator.strategies import ActionTable, CellActions, Strategy
from app.files.actions import write_actions
from app.files.snapshot import load_measurements
from app.files.synthetic import draw_snapshot
from app.services.accounts import ensure_account
from app.services.bootstrap import begin_bootstrap, run_slice
from app.services.intervals import resample_submission
from app.services.ranks import rank_boards
from app.services.scoring import score_submission
from app.services.snapshots import get_snapshot, prepare_split
from app.services.submissions import accept_submission, publish_submission
from app.services.uploads import store_upload
from app.web.board_page import ROWS_PER_PAGE
from benchmarks.servers import Plant, run_plant, wait_until
from tests.browser import LAUNCH_ARGS, find_browser

SPLIT = "test"
STRATEGY = Strategy.DYNAMIC_EARLY_EXIT
SCALE = 0.03
SEED = 20260721
REPLICATES = 100
N_SETTINGS = 8
ROUNDS = 5
WAITING_JOBS: LiteralString = "SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
ENVIRONMENT = {"OTBOARD_BOOTSTRAP_REPLICATES": str(REPLICATES), "OTBOARD_LOG_LEVEL": "WARNING"}
READ_ENTRIES = """() => ["first-contentful-paint", "otboard:drawn"].map(
  (name) => performance.getEntriesByName(name)[0].startTime)"""


@dataclass(frozen=True)
class Figures:
    """What a run measured: milliseconds, but for numbers, bytes and requests a second.

    `fresh` answers are computed, `kept` ones come from the cache of public pages.
    """

    submissions: int
    cores: int
    html_bytes: int
    html_bytes_sent: int
    fresh_page_p50: float
    fresh_page_p95: float
    fresh_json_p50: float
    fresh_json_p95: float
    kept_page_p95: float
    kept_pages_per_second: float
    kept_json_per_second: float
    first_contentful_paint: float
    plot_drawn: float


def fill(plant: Plant, measurements: Measurements, *, n_submissions: int) -> None:
    """Submit, score, publish and rank everything, as requests and jobs do."""
    config = Config(data_dir=plant.data_dir, database_url=plant.url, bootstrap_replicates=REPLICATES)
    engine = make_engine(plant.url)
    sessions = session_factory(engine)
    with sessions() as session:
        snapshot = get_snapshot(session, measurements.snapshot)
    prepare_split(sessions, snapshot.id, split=SPLIT, data_dir=config.data_dir)
    with sessions.begin() as session:
        begin_bootstrap(session, snapshot, split=SPLIT, config=config)
    run_slice(sessions, snapshot.id, split=SPLIT, config=config)
    for number in range(n_submissions):
        _publish_one(sessions, config, measurements, number)
    while rank_boards(sessions, snapshot.id, split=SPLIT, strategy=STRATEGY):
        continue
    with sessions.begin() as session:
        # All that these jobs are for has been done; looking at each would keep the worker busy for minutes.
        session.execute(text("TRUNCATE procrastinate_jobs CASCADE"))
    engine.dispose()


def _publish_one(sessions: sessionmaker[Session], config: Config, measurements: Measurements, number: int) -> None:
    split = measurements.select(SPLIT)
    path = config.data_dir / "made.parquet"
    write_actions(path, draw_actions(split, number), split)
    with sessions.begin() as session, path.open("rb") as stream:
        account = ensure_account(session, name="author", team="authors", is_control=False)
        submission_id = accept_submission(
            session,
            account=account,
            snapshot_name=measurements.snapshot,
            split=SPLIT,
            strategy=STRATEGY,
            method_name=f"early exit at an entropy below a threshold, variant {number}",
            description="A stopping position drawn around a share of the steps.",
            upload=store_upload(stream, data_dir=config.data_dir, limit_bytes=10**9),
            filename="actions.parquet",
        ).submission_id
    score_submission(sessions, submission_id, config=config, actor="worker")
    resample_submission(sessions, submission_id, config=config)
    with sessions.begin() as session:
        publish_submission(session, submission_id, account=account)


def draw_actions(split: Measurements, number: int) -> ActionTable:
    """Return positions around some shares of the steps, the closer to them the higher the submission's number."""
    rng = np.random.default_rng([SEED, number])
    shares = np.linspace(0.05, 0.95, N_SETTINGS)[:, None]
    width = 2 + number / 10
    cells = []
    for cell in split.cells:
        drawn = rng.beta(width * shares, width * (1 - shares), (N_SETTINGS, cell.n_trajectories))
        positions = np.minimum((drawn * (cell.n_steps + 1)).astype(np.int64), cell.n_steps)
        cells.append(CellActions(np.ones(N_SETTINGS, dtype=np.bool_), positions))
    labels = tuple(str(setting) for setting in range(1, N_SETTINGS + 1))
    return ActionTable(STRATEGY, labels, tuple(cells))


def ask_in_turn(client: httpx.Client, path: str, *, n_requests: int) -> list[float]:
    """Return the milliseconds of requests one after the other, each with an address that no other one has."""
    found = []
    for number in range(n_requests):
        started = time.perf_counter()
        check(client.get(f"{path}&_={time.time_ns()}-{number}"))
        found.append(1000 * (time.perf_counter() - started))
    return found


def ask_at_once(address: str, path: str, *, n_requests: int, n_clients: int) -> tuple[list[float], float]:
    """Return the milliseconds of requests for one address by several clients, and how many were answered a second.

    The clients share the processor with the server, so they do as little as can be: a connection each, kept open.
    """

    def ask(number: int) -> list[float]:
        found = []
        with closing(HTTPConnection(address.removeprefix("http://"), timeout=60)) as client:
            for _ in range(n_requests // n_clients):
                begun = time.perf_counter()
                client.request("GET", path, headers={"Accept-Encoding": "gzip"})
                answer = client.getresponse()
                answer.read()
                found.append(1000 * (time.perf_counter() - begun))
                if answer.status != httpx.codes.OK:
                    sys.exit(f"{path} answered {answer.status}")
        return found

    check(httpx.get(address + path, timeout=60))
    started = time.perf_counter()
    with ThreadPoolExecutor(n_clients) as pool:
        found = [one for part in pool.map(ask, range(n_clients)) for one in part]
    return found, len(found) / (time.perf_counter() - started)


def check(answer: httpx.Response) -> None:
    """Exit unless an answer is what was asked for."""
    if answer.status_code != httpx.codes.OK:
        sys.exit(f"{answer.request.url} answered {answer.status_code}")


def look(page: Page, address: str) -> tuple[float, float]:
    """Return the median milliseconds until a page with a warm cache shows something, and until its plot is drawn."""
    found = []
    for _ in range(ROUNDS + 1):
        page.goto(address)
        page.wait_for_function('performance.getEntriesByName("otboard:drawn").length > 0')
        found.append(page.evaluate(READ_ENTRIES))
    paint, drawn = np.median(found[1:], axis=0)
    return float(paint), float(drawn)


def browse(address: str) -> tuple[float, float]:
    """Look at a page in Chromium."""
    found = find_browser()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(LAUNCH_ARGS))
        try:
            return look(browser.new_page(viewport={"width": 1280, "height": 900}), address)
        finally:
            browser.close()


def measure(address: str, snapshot: str, *, n_submissions: int, n_requests: int, n_clients: int) -> Figures:
    """Ask a server whose database is filled."""
    view = f"snapshot={snapshot}&split={SPLIT}&strategy={STRATEGY}"
    page, rest = f"/?{view}", f"/api/v1/leaderboard?{view}"
    html = httpx.get(address + page, timeout=60)
    shown = httpx.get(address + rest, timeout=60).json()["rows"]
    if len(shown) != n_submissions or html.text.count('<tr class="row') != min(n_submissions, ROWS_PER_PAGE):
        sys.exit(f"{len(shown)} of {n_submissions} submissions stand on the board")
    with httpx.Client(base_url=address, timeout=60) as client:
        ask_in_turn(client, page, n_requests=5)
        pages = ask_in_turn(client, page, n_requests=n_requests)
        documents = ask_in_turn(client, rest, n_requests=n_requests)
    kept, pages_per_second = ask_at_once(address, page, n_requests=10 * n_requests, n_clients=n_clients)
    _, documents_per_second = ask_at_once(address, rest, n_requests=10 * n_requests, n_clients=n_clients)
    paint, drawn = browse(address + page)
    (page_p50, page_p95), (json_p50, json_p95) = (np.percentile(times, [50, 95]) for times in (pages, documents))
    return Figures(
        submissions=n_submissions,
        cores=os.cpu_count() or 1,
        html_bytes=len(html.content),
        html_bytes_sent=int(html.headers.get("Content-Length", len(html.content))),
        fresh_page_p50=round(float(page_p50), 1),
        fresh_page_p95=round(float(page_p95), 1),
        fresh_json_p50=round(float(json_p50), 1),
        fresh_json_p95=round(float(json_p95), 1),
        kept_page_p95=round(float(np.percentile(kept, 95)), 1),
        kept_pages_per_second=round(pages_per_second, 1),
        kept_json_per_second=round(documents_per_second, 1),
        first_contentful_paint=round(paint, 1),
        plot_drawn=round(drawn, 1),
    )


def run(folder: Path, *, n_submissions: int, n_requests: int, n_clients: int, scale: float) -> Figures:
    """Fill a database, start a server on it, and measure."""
    snapshot = draw_snapshot(scale=scale)
    with run_plant(folder, snapshot, n_servers=0, environment=ENVIRONMENT) as plant:
        fill(plant, load_measurements(snapshot), n_submissions=n_submissions)
        plant.servers.append(plant.start_server())
        wait_until(lambda: plant.count(WAITING_JOBS) == 0)
        return measure(
            plant.servers[0].address,
            snapshot.manifest.name,
            n_submissions=n_submissions,
            n_requests=n_requests,
            n_clients=n_clients,
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the measurement that the arguments ask for and print its figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--submissions", type=int, default=500)
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument(
        "--scale", type=float, default=SCALE, help="share of the paper's questions (default %(default)s)"
    )
    parser.add_argument("--format", choices=("json", "markdown"), default="markdown")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="otboard-pages-") as folder:
        figures = run(
            Path(folder),
            n_submissions=options.submissions,
            n_requests=options.requests,
            n_clients=options.clients,
            scale=options.scale,
        )
    print_figures(figures, options.format)
    return 0


def print_figures(figures: Figures, kind: str) -> None:
    """Print figures as one JSON document, or as the rows of a table."""
    if kind == "json":
        print(json.dumps(asdict(figures), indent=2))  # noqa: T201
        return
    print("| figure | value |\n| --- | --- |")  # noqa: T201
    for name, value in asdict(figures).items():
        print(f"| {name.replace('_', ' ')} | {value:,} |")  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
