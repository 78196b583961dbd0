"""A browser, and the real application on a free port with a small snapshot, its controls and two methods on it."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psycopg
import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from sqlalchemy import select
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session, sessionmaker

from app.baselines import build_baseline
from app.config import Config
from app.db import models
from app.db.session import conninfo, make_engine, session_factory
from app.evaluator.measurements import Measurements
from app.evaluator.strategies import ActionTable, CellActions, Strategy
from app.files.actions import write_actions
from app.files.snapshot import Snapshot, load_measurements
from app.main import create_app
from app.services import snapshots
from app.services.accounts import CONTROL_TEAM, Identity, ensure_account, ensure_local_account, find_account_by_token
from app.services.bootstrap import begin_bootstrap, run_slice
from app.services.efficiency_sets import store_shipped_sets
from app.services.intervals import resample_submission
from app.services.ranks import rank_boards
from app.services.scoring import score_submission
from app.services.submissions import accept_submission, publish_submission
from app.services.uploads import store_upload
from tests.browser import LAUNCH_ARGS, REMEDY, find_browser

DEE = Strategy.DYNAMIC_EARLY_EXIT


@dataclass
class Site:
    """A running application, and what a test needs to act on it from the other side."""

    url: str
    token: str
    config: Config
    sessions: sessionmaker[Session]
    author: Identity
    measurements: Measurements

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Ask for a page as a browser does, without following where it sends one on to."""
        headers = {"Accept": "text/html"} | options.pop("headers", {})
        return httpx.get(self.url + path, headers=headers, timeout=60, **options)

    def get_json(self, path: str, **options: Any) -> Any:
        """Ask the REST interface."""
        answer = httpx.get(f"{self.url}/api/v1{path}", timeout=60, **options)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def submit(
        self,
        content: ActionTable | bytes,
        *,
        method: str,
        account: Identity | None = None,
        strategy: Strategy = DEE,
        split: str = "test",
    ) -> str:
        """Submit an action file, given as a table or as its bytes, and return the submission."""
        path = self.config.data_dir / f"{uuid.uuid4().hex}.csv"
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            write_actions(path, content, self.measurements.select(split))
        with path.open("rb") as stream:
            upload = store_upload(stream, data_dir=self.config.data_dir, limit_bytes=10**9)
        with self.sessions.begin() as session:
            return accept_submission(
                session,
                account=account or self.author,
                snapshot_name="small",
                split=split,
                strategy=strategy,
                method_name=method,
                description=f"What {method} does.",
                upload=upload,
                filename="actions.csv",
            ).submission_id

    def score(self, submission_id: str) -> None:
        """Do what the scoring job does."""
        score_submission(self.sessions, submission_id, config=self.config, actor="worker")

    def publish(self, submission_id: str, *, account: Identity | None = None) -> None:
        """Publish a scored submission."""
        with self.sessions.begin() as session:
            publish_submission(session, submission_id, account=account or self.author)


# One browser a file, not a run: while Playwright is up, its event loop counts as running in this thread, and the tests
# of the job queue in other files, which run event loops of their own, would fail.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium; without one the test fails with the command that gets one."""
    executable = find_browser()
    if executable is None:
        pytest.fail(REMEDY)
    # A machine that runs the whole suite at once is slow; what never comes still fails.
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(LAUNCH_ARGS))
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page that was opened, and everything that went wrong or went elsewhere on it."""

    page: Page
    faults: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)


@pytest.fixture(scope="module")
def contexts(browser: Browser) -> Iterator[dict[Any, BrowserContext]]:
    """Browser contexts by what they emulate: tests share them, and with them the one copy of Plotly each keeps."""
    known: dict[Any, BrowserContext] = {}
    yield known
    for context in known.values():
        context.close()


@pytest.fixture
def visit(browser: Browser, contexts: dict[Any, BrowserContext], site: Site) -> Iterator[Callable[..., Visit]]:
    """A function that opens a page of the site; nobody is signed in, and who signs in takes a context of its own."""
    pages: list[Page] = []

    def open_page(
        path: str, *, width: int = 1280, scheme: Any = "light", has_scripts: bool = True, is_own: bool = False
    ) -> Visit:
        key = uuid.uuid4() if is_own else (width, scheme, has_scripts)
        if key not in contexts:
            contexts[key] = browser.new_context(
                viewport={"width": width, "height": 844}, color_scheme=scheme, java_script_enabled=has_scripts
            )
            contexts[key].set_default_timeout(60_000)
        visited = Visit(contexts[key].new_page())
        page = visited.page
        pages.append(page)
        page.on("console", lambda message: message.type == "error" and visited.faults.append(message.text))
        page.on("pageerror", lambda error: visited.faults.append(str(error)))
        page.on("request", lambda request: visited.hosts.add(request.url.split("/")[2]))
        page.goto(site.url + path)
        if has_scripts and page.locator(".plot").count():
            page.wait_for_selector(".plot .main-svg")
        return visited

    yield open_page
    for page in pages:
        page.close()


@pytest.fixture(scope="session")
def site(
    server_url: str,
    template_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    board_snapshot: Snapshot,
    make_board_snapshot: Callable[..., Snapshot],
) -> Iterator[Site]:
    """The application with a board: three controls and two methods, published on the test split of early exit.

    Beside it lie a snapshot whose test split is hidden and one that is not frozen. The tests share it, so what they add
    goes to another strategy or stays unpublished.
    """
    with _clone_database(server_url, template_database) as url:
        config = Config(data_dir=tmp_path_factory.mktemp("site"), database_url=url, bootstrap_replicates=100)
        engine = make_engine(url)
        sessions = session_factory(engine)
        with _serve(config) as address:
            seeded = _seed(address, config, sessions, board_snapshot, make_board_snapshot)
            yield seeded
        engine.dispose()


@pytest.fixture
def empty_site(committed_database: str, tmp_path: Path) -> Iterator[Site]:
    """The application as it is when it was just installed."""
    config = Config(data_dir=tmp_path, database_url=committed_database)
    engine = make_engine(committed_database)
    sessions = session_factory(engine)
    with sessions.begin() as session:
        token = ensure_local_account(session, config.data_dir)
        author = find_account_by_token(session, token)
    assert author is not None
    with _serve(config) as address:
        yield Site(address, token, config, sessions, author, Measurements("", "", "", "all", 1, 1, (), (), ()))
    engine.dispose()


@contextmanager
def _clone_database(server_url: str, template: str) -> Iterator[str]:
    """A database that lives as long as the run; `committed_database` lives as long as one test."""
    name = f"otboard_test_{uuid.uuid4().hex}"
    with psycopg.connect(conninfo(server_url), autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield make_url(server_url).set(database=name).render_as_string(hide_password=False)
    with psycopg.connect(conninfo(server_url), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _serve(config: Config) -> Iterator[str]:
    """Serve the application from a thread; requests wait at the open socket until it is ready."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    server = uvicorn.Server(uvicorn.Config(create_app(config), log_config=None, ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join()
    listener.close()


def _seed(
    address: str,
    config: Config,
    sessions: sessionmaker[Session],
    small: Snapshot,
    make_snapshot: Callable[..., Snapshot],
) -> Site:
    hidden = make_snapshot("hidden", seed=8, kind="measured", hidden_splits=["test"])
    with sessions.begin() as session:
        token = ensure_local_account(session, config.data_dir)
        author = find_account_by_token(session, token)
        controls = ensure_account(session, name=CONTROL_TEAM, team=CONTROL_TEAM, is_control=True)
        store_shipped_sets(session)
        snapshots.import_snapshot(session, make_snapshot("unfrozen", seed=9))
        snapshots.import_snapshot(session, hidden)
        snapshots.freeze_snapshot(session, "hidden")
        snapshots.import_snapshot(session, small)
        stored = snapshots.freeze_snapshot(session, "small")
    for split in ("test", "all"):
        snapshots.prepare_split(sessions, stored.id, split=split, data_dir=config.data_dir)
    assert author is not None
    site = Site(address, token, config, sessions, author, load_measurements(small))
    tables = {name: _build_control(site, name) for name in ("oracle", "uninformed", "random")}
    for name, table in tables.items():
        submission_id = site.submit(table, method=name, account=controls)
        site.score(submission_id)
        site.publish(submission_id, account=controls)
    for name, table in {"Half <oracle> & co": _take(tables["oracle"], 8), "patience": _stop_after(site)}.items():
        submission_id = site.submit(table, method=name)
        site.score(submission_id)
        site.publish(submission_id)
    _rank(sessions, config, stored)
    return site


def _rank(sessions: sessionmaker[Session], config: Config, snapshot: models.Snapshot) -> None:
    """Do what the jobs do: bootstrap the test split, store the intervals of its submissions, rank its boards."""
    with sessions.begin() as session:
        begin_bootstrap(session, snapshot, split="test", config=config)
        submission_ids = session.scalars(select(models.Submission.id)).all()
    run_slice(sessions, snapshot.id, split="test", config=config)
    for submission_id in submission_ids:
        resample_submission(sessions, submission_id, config=config)
    # After each board it gives way to the jobs of what was scored here without them.
    while rank_boards(sessions, snapshot.id, split="test", strategy=DEE):
        continue


def _build_control(site: Site, name: str) -> ActionTable:
    return build_baseline(name, site.measurements, strategy=DEE, split="test")


def _take(table: ActionTable, n_settings: int) -> ActionTable:
    """Some evenly spread settings of a table, which on the oracle's make a method that is good but not the best."""
    chosen = np.linspace(0, len(table.settings) - 1, n_settings).astype(int)
    cells = tuple(CellActions(cell.covered[chosen], cell.actions[chosen]) for cell in table.cells)
    return replace(table, settings=tuple(table.settings[i] for i in chosen), cells=cells)


def _stop_after(site: Site) -> ActionTable:
    """Stop after 1, 2 or 3 steps, whatever the trajectory."""
    cells = tuple(
        CellActions(np.ones(3, dtype=np.bool_), np.minimum(cell.n_steps, np.arange(1, 4)[:, None]).astype(np.int64))
        for cell in site.measurements.select("test").cells
    )
    return ActionTable(DEE, ("1", "2", "3"), cells)
