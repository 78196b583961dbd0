"""Fixtures shared by the whole suite."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import Engine
from sqlalchemy.engine import make_url
from sqlalchemy.orm import Session

from app.db.embedded import start_embedded, stop_embedded
from app.db.migrations import upgrade_database
from app.db.session import conninfo, make_engine
from app.files.snapshot import Snapshot, build_snapshot

# The tests with real vLLM run where it is installed: `make test-worker` makes such an environment.
collect_ignore = [] if find_spec("vllm") else ["vllm"]

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared"


@pytest.fixture(scope="session")
def real_snapshot() -> Path:
    """The folder of a real measured snapshot that lies beside the repository, not in it."""
    folder = SHARED / "data" / "thought-anchors-math"
    if not folder.is_dir():
        pytest.skip(
            "the real snapshot is not here: it lies outside the repository, in ../shared/data/thought-anchors-math"
        )
    return folder


@pytest.fixture(scope="session")
def reference_tables() -> Path:
    """The folder of the published tables as JSON, which lies beside the repository, not in it."""
    folder = SHARED / "reference"
    if not folder.is_dir():
        pytest.skip("the published tables are not here: they lie outside the repository, in ../shared/reference")
    return folder


SERVERS_VARIABLE = "OTBOARD_TEST_SERVERS"
# A server that lives for one run of the suite has nothing to lose in a power cut.
THROW_AWAY = ("fsync=off", "full_page_writes=off", "synchronous_commit=off", "max_wal_size=256MB")


def pytest_configure(config: pytest.Config) -> None:
    """Make one folder for the servers of this run; the processes of pytest-xdist inherit its name.

    It is not one of pytest's own temporary folders: whenever another run begins, pytest closes those to other users,
    and as root PostgreSQL runs as another user.
    """
    if not hasattr(config, "workerinput"):
        os.environ[SERVERS_VARIABLE] = tempfile.mkdtemp(prefix="otboard-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the folder of the run's servers, which have all been stopped."""
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ.pop(SERVERS_VARIABLE), ignore_errors=True)


@pytest.fixture(scope="session")
def servers_folder() -> Path:
    """A folder in which embedded servers can run, whatever user the tests run as."""
    return Path(os.environ[SERVERS_VARIABLE])


@pytest.fixture(scope="session")
def server_url(servers_folder: Path) -> Iterator[str]:
    """A PostgreSQL server: the one in the environment, else an embedded one that all processes of this run share."""
    configured = os.environ.get("OTBOARD_TEST_DATABASE_URL") or os.environ.get("OTBOARD_DATABASE_URL")
    if configured:
        yield configured
        return
    yield start_embedded(servers_folder / "shared", options=THROW_AWAY)
    stop_embedded(servers_folder / "shared")


@pytest.fixture(scope="session")
def template_database(server_url: str) -> Iterator[str]:
    """The name of a database with every migration run, from which others are cloned; nothing stays connected to it."""
    name = _create_database(server_url)
    engine = make_engine(_database_url(server_url, name))
    try:
        upgrade_database(engine)
    finally:
        engine.dispose()
    yield name
    _drop_database(server_url, name)


@pytest.fixture(scope="session")
def database_url(server_url: str, template_database: str) -> Iterator[str]:
    """A migrated database for the tests of this process that leave nothing in it."""
    name = _create_database(server_url, template=template_database)
    yield _database_url(server_url, name)
    _drop_database(server_url, name)


@pytest.fixture(scope="session")
def engine(database_url: str) -> Iterator[Engine]:
    """An engine on `database_url`; what is written through it by way of `session` is rolled back."""
    engine = make_engine(database_url)
    yield engine
    engine.dispose()


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    """A session inside a transaction that is rolled back after the test; its own commits are savepoints."""
    with engine.connect() as connection:
        transaction = connection.begin()
        with Session(connection, join_transaction_mode="create_savepoint", expire_on_commit=False) as session:
            yield session
        transaction.rollback()


@pytest.fixture(scope="module")
def module_database(server_url: str, template_database: str) -> Iterator[str]:
    """A migrated database for the tests of one module, which see what each other committed."""
    name = _create_database(server_url, template=template_database)
    yield _database_url(server_url, name)
    _drop_database(server_url, name)


@pytest.fixture
def committed_database(server_url: str, template_database: str) -> Iterator[str]:
    """The URL of a migrated database of this test's own: commits are real, and two connections see each other."""
    name = _create_database(server_url, template=template_database)
    yield _database_url(server_url, name)
    _drop_database(server_url, name)


@pytest.fixture
def empty_database(server_url: str) -> Iterator[str]:
    """The URL of a database of this test's own without any table."""
    name = _create_database(server_url)
    yield _database_url(server_url, name)
    _drop_database(server_url, name)


def _create_database(server_url: str, *, template: str = "template0") -> str:
    name = f"otboard_test_{uuid.uuid4().hex}"
    with psycopg.connect(conninfo(server_url), autocommit=True) as connection:
        # A server whose cluster was made without a locale has another encoding.
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template} ENCODING 'UTF8'")
    return name


def _drop_database(server_url: str, name: str) -> None:
    with psycopg.connect(conninfo(server_url), autocommit=True) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _database_url(server_url: str, name: str) -> str:
    return make_url(server_url).set(database=name).render_as_string(hide_password=False)


# Questions by benchmark and split; `math` is large enough for ranks in its test split, `logic` is not.
BOARD_QUESTIONS = {"math": {"train": 3, "validation": 4, "test": 21}, "logic": {"train": 2, "validation": 2, "test": 3}}
BOARD_MODELS = ("alpha", "beta")


@pytest.fixture(scope="session")
def make_board_snapshot() -> Callable[..., Snapshot]:
    """A function that makes a small snapshot to be served: 2 models, 2 benchmarks, all splits, R = 2, M = 4."""
    return _make_board_snapshot


@pytest.fixture(scope="session")
def board_snapshot() -> Snapshot:
    """The snapshot of `make_board_snapshot` under the name `small`."""
    return _make_board_snapshot()


def _make_board_snapshot(name: str = "small", *, seed: int = 7, **manifest: Any) -> Snapshot:
    rng = np.random.default_rng(seed)
    questions = [
        {
            "benchmark": benchmark,
            "question_id": f"{benchmark}-{split}-{number:02d}",
            "split": split,
            "difficulty": number,
        }
        for benchmark, splits in BOARD_QUESTIONS.items()
        for split, count in splits.items()
        for number in range(count)
    ]
    trajectories = [
        _draw_trajectory(rng, model, question, number)
        for model in BOARD_MODELS
        for question in questions
        for number in range(2)
    ]
    described = {
        "format": "stp-snapshot/1",
        "name": name,
        "title": f"The {name} snapshot",
        "kind": "synthetic",
        "probes_per_position": 4,
        "trajectories_per_question": 2,
        "models": [{"name": model} for model in BOARD_MODELS],
        "benchmarks": [{"name": benchmark, "title": benchmark.title()} for benchmark in BOARD_QUESTIONS],
        **manifest,
    }
    return build_snapshot(described, pa.Table.from_pylist(questions), pa.Table.from_pylist(trajectories))


def _draw_trajectory(rng: np.random.Generator, model: str, question: dict[str, Any], number: int) -> dict[str, Any]:
    """Draw a curve that mostly rises: 1 to 6 steps of 20 to 200 tokens, 4 probes a position."""
    n_steps = int(rng.integers(1, 7))
    retained = np.concatenate([[0], np.cumsum(rng.integers(20, 200, n_steps))])
    chance = np.clip(0.2 + 0.6 * retained / retained[-1] - 0.02 * question["difficulty"], 0.05, 0.95)
    correct = rng.binomial(4, chance)
    return {
        "model": model,
        "benchmark": question["benchmark"],
        "question_id": question["question_id"],
        "trajectory": number,
        "thinking_tokens": int(retained[-1]),
        "original_correct": bool(2 * correct[-1] > 4),
        "retained_tokens": retained.tolist(),
        "correct_probes": correct.tolist(),
        "end_margin": rng.normal(size=n_steps + 1).astype(np.float32).tolist(),
    }
