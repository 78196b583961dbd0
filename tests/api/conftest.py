"""The application on a database of its own, a client for each kind of caller, and action files to send."""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import uvicorn
from fastapi import FastAPI
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session, sessionmaker

from app.baselines import build_baseline
from app.config import Config
from app.db import models
from app.db.session import conninfo, make_engine, session_factory
from app.evaluator.measurements import Measurements
from app.evaluator.strategies import Strategy
from app.files.actions import write_actions
from app.files.snapshot import Snapshot, load_measurements
from app.main import create_app
from app.services import snapshots
from app.services.accounts import ensure_account, ensure_local_account, hash_token
from app.services.efficiency_sets import store_shipped_sets
from app.services.scoring import score_submission

STRANGER_TOKEN = "otb_stranger"


@dataclass
class Board:
    """A running application with a snapshot on it, its clients, and the means to score."""

    app: FastAPI
    config: Config
    sessions: sessionmaker[Session]
    measurements: Measurements
    me: httpx.Client
    stranger: httpx.Client
    reader: httpx.Client
    token: str

    def write(
        self, baseline: str = "random", *, strategy: Strategy = Strategy.FIXED_BUDGET, split: str = "test"
    ) -> bytes:
        """Return a baseline's action file."""
        path = self.config.data_dir / "baseline.csv"
        table = build_baseline(baseline, self.measurements, strategy=strategy, split=split)
        write_actions(path, table, self.measurements.select(split))
        return path.read_bytes()

    def send(
        self, content: bytes, *, client: httpx.Client | None = None, path: str = "submissions", **fields: str
    ) -> Any:
        """Send an action file as a form and return the response."""
        form = {"snapshot": "small", "split": "test", "strategy": "fixed_budget", **fields}
        if path == "submissions":
            form.setdefault("method", "method")
        return (client or self.me).post(f"/api/v1/{path}", data=form, files={"file": ("actions.csv", content)})

    def submit(self, content: bytes, **fields: str) -> str:
        """Submit an action file and return the submission's id."""
        answer = self.send(content, **fields)
        assert answer.status_code in (200, 202), answer.text
        return str(answer.json()["id"])

    def score(self, submission_id: str) -> None:
        """Do what the worker does."""
        score_submission(self.sessions, submission_id, config=self.config, actor="worker")

    def publish(self, content: bytes, **fields: str) -> str:
        """Submit, score and publish an action file."""
        submission_id = self.submit(content, **fields)
        self.score(submission_id)
        answer = self.me.post(f"/api/v1/submissions/{submission_id}/publish")
        assert answer.status_code == 200, answer.text
        return submission_id


@pytest.fixture(scope="session")
def board_database(server_url: str, template_database: str, board_snapshot: Snapshot) -> Iterator[str]:
    """The name of a database with the small snapshot, frozen, and a stranger's account; each test clones it."""
    name = f"otboard_board_{uuid.uuid4().hex}"
    _run_sql(server_url, f"CREATE DATABASE {name} TEMPLATE {template_database}")
    engine = make_engine(make_url(server_url).set(database=name).render_as_string(hide_password=False))
    with session_factory(engine).begin() as session:
        snapshots.import_snapshot(session, board_snapshot)
        snapshots.freeze_snapshot(session, "small")
        store_shipped_sets(session)
        stranger = ensure_account(session, name="bob", team="others", is_control=False)
        session.add(models.ApiToken(account_id=stranger.id, name="t", token_sha256=hash_token(STRANGER_TOKEN)))
    engine.dispose()
    yield name
    _run_sql(server_url, f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def board(server_url: str, board_database: str, tmp_path: Path, board_snapshot: Snapshot) -> Iterator[Board]:
    """The application with the small snapshot, frozen, and the local account, on a database of this test's own."""
    with _serve_board(server_url, board_database, tmp_path, snapshot=board_snapshot) as served:
        yield served


@pytest.fixture(scope="module")
def shared_board(
    server_url: str,
    board_database: str,
    tmp_path_factory: pytest.TempPathFactory,
    board_snapshot: Snapshot,
    make_board_snapshot: Callable[..., Snapshot],
) -> Iterator[Board]:
    """The same for the tests of a module that only read, with two snapshots more.

    `loose` is not frozen; `secret` is, and hides the labels of its test split.
    """
    folder = tmp_path_factory.mktemp("shared")
    with _serve_board(server_url, board_database, folder, snapshot=board_snapshot) as served:
        with served.sessions.begin() as session:
            snapshots.import_snapshot(session, make_board_snapshot("loose", seed=1))
            snapshots.import_snapshot(session, make_board_snapshot("secret", seed=2, hidden_splits=["test"]))
            snapshots.freeze_snapshot(session, "secret")
        yield served


@contextmanager
def _serve_board(server_url: str, template: str, data_dir: Path, *, snapshot: Snapshot) -> Iterator[Board]:
    name = f"otboard_test_{uuid.uuid4().hex}"
    _run_sql(server_url, f"CREATE DATABASE {name} TEMPLATE {template}")
    url = make_url(server_url).set(database=name).render_as_string(hide_password=False)
    config = Config(data_dir=data_dir, database_url=url, upload_limit_bytes=1_000_000)
    app = create_app(config)
    sessions: sessionmaker[Session] = app.state.sessions
    with sessions.begin() as session:
        token = ensure_local_account(session, config.data_dir)
    with _run(app) as address, ExitStack() as clients:

        def connect(**headers: str) -> httpx.Client:
            return clients.enter_context(httpx.Client(base_url=address, headers=headers, trust_env=False, timeout=60))

        yield Board(
            app=app,
            config=config,
            sessions=sessions,
            measurements=load_measurements(snapshot),
            me=connect(Authorization=f"Bearer {token}"),
            stranger=connect(Authorization=f"Bearer {STRANGER_TOKEN}"),
            reader=connect(),
            token=token,
        )
    _run_sql(server_url, f"DROP DATABASE {name} WITH (FORCE)")


def _run_sql(server_url: str, statement: str) -> None:
    with psycopg.connect(conninfo(server_url), autocommit=True) as connection:
        connection.execute(statement)


@contextmanager
def _run(app: FastAPI) -> Iterator[str]:
    """Run the application behind a real web server in a thread and yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def make_caps() -> Callable[..., bytes]:
    """A function that writes a fixed-budget file of one cap for every question of the test split."""

    def make(cap: int) -> bytes:
        lines = ["model,benchmark,question_id,action"]
        for model in ("alpha", "beta"):
            for benchmark, count in (("math", 21), ("logic", 3)):
                lines += [f"{model},{benchmark},{benchmark}-test-{n:02d},{cap}" for n in range(count)]
        return "\n".join(lines).encode()

    return make
