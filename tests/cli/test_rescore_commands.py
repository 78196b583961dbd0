"""`otboard admin rescore`, on a real database with a board of the version before."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session, sessionmaker
from typer.testing import Result

from app.config import Config
from app.db import models
from app.db.session import make_engine, session_factory
from app.evaluator.scorers import SCORERS
from app.evaluator.strategies import Strategy
from app.services import scoring
from app.services.accounts import ensure_account
from app.services.rescoring_jobs import rescore_submission
from app.services.submissions import accept_submission, publish_submission
from app.services.uploads import store_upload, upload_path
from tests.faults.conftest import write_caps
from tests.other_scorer import score_with_penalty

Run = Callable[..., Result]


@pytest.fixture
def config(committed_database: str, tmp_path: Path) -> Config:
    return Config(data_dir=tmp_path, database_url=committed_database, scoring_attempts=1)


@pytest.fixture
def run_there(run: Run, config: Config) -> Run:
    """Runs commands against a database of this test's own."""
    env = {"OTBOARD_DATABASE_URL": str(config.database_url), "OTBOARD_DATA": str(config.data_dir)}
    return lambda *arguments: run(*arguments, env=env)


@pytest.fixture
def sessions(config: Config) -> Iterator[sessionmaker[Session]]:
    engine = make_engine(str(config.database_url))
    yield session_factory(engine)
    engine.dispose()


@pytest.fixture
def published(
    run_there: Run, snapshot_path: Path, sessions: sessionmaker[Session], config: Config, tmp_path: Path
) -> list[str]:
    """Two methods on a board, scored by the first version."""
    assert run_there("snapshot", "import", snapshot_path).exit_code == 0
    assert run_there("snapshot", "freeze", "small").exit_code == 0
    ids = []
    for cap in (100, 200):
        path = tmp_path / "caps.csv"
        path.write_bytes(write_caps(cap))
        with path.open("rb") as stream:
            upload = store_upload(stream, data_dir=config.data_dir, limit_bytes=10**6)
        with sessions.begin() as session:
            account = ensure_account(session, name="ada", team="engines", is_control=False)
            submission_id = accept_submission(
                session,
                account=account,
                snapshot_name="small",
                split="test",
                strategy=Strategy.FIXED_BUDGET,
                method_name=f"m{cap}",
                description=None,
                upload=upload,
                filename="caps.csv",
            ).submission_id
        scoring.score_submission(sessions, submission_id, config=config, actor="worker")
        with sessions.begin() as session:
            publish_submission(session, submission_id, account=account)
        ids.append(submission_id)
    return ids


def read(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(result: Result) -> tuple[int, str]:
    return result.exit_code, json.loads(result.stdout)["code"]


def test_a_new_version_is_previewed_and_applied(
    run_there: Run,
    published: list[str],
    sessions: sessionmaker[Session],
    config: Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    as_json = ("--format", "json")
    start = ("admin", "rescore", "start", "small")
    assert refused(run_there(*start, *as_json)) == (1, "nothing_to_rescore")
    assert refused(run_there("admin", "rescore", "start", "absent", *as_json)) == (1, "unknown_snapshot")
    assert read(run_there("admin", "rescore", "status", *as_json)) == {"rescorings": [], "outdated_boards": []}
    monkeypatch.setitem(SCORERS, "2", score_with_penalty)
    (outdated,) = read(run_there("admin", "rescore", "status", *as_json))["outdated_boards"]
    assert (outdated["snapshot"], outdated["split"], outdated["strategy"]) == ("small", "test", "fixed_budget")
    assert refused(run_there(*start, "--split", "train", *as_json)) == (1, "nothing_to_rescore")
    started = read(run_there(*start, "--strategy", "fixed_budget", *as_json))
    assert (started["state"], started["n_waiting"], started["to_version"]) == ("running", 2, "2")
    assert started["actor"] == "command line"
    number = str(started["id"])
    assert refused(run_there(*start, *as_json)) == (1, "rescoring_state")
    assert refused(run_there("admin", "rescore", "apply", number, *as_json)) == (1, "rescoring_state")

    rescore_submission(sessions, published[0], config=config)
    # One whose file is gone cannot be scored again.
    with sessions.begin() as session:
        lost = session.get_one(models.Submission, published[1]).actions_sha256
    place = upload_path(config.data_dir, lost)
    content = place.read_bytes()
    place.unlink()
    rescore_submission(sessions, published[1], config=config)
    status = read(run_there("admin", "rescore", "status", number, *as_json))
    assert (status["state"], status["n_done"], status["n_failed"]) == ("ready", 1, 1)
    assert [failure["submission_id"] for failure in status["failed"]] == [published[1]]
    assert refused(run_there("admin", "rescore", "apply", number, *as_json)) == (1, "rescoring_state")
    assert read(run_there("admin", "rescore", "retry", number, *as_json))["n_waiting"] == 1
    place.write_bytes(content)
    rescore_submission(sessions, published[1], config=config)

    preview = read(run_there("admin", "rescore", "preview", number, "--split", "test", *as_json))
    assert [row["method"] for row in preview["board"]["rows"]] == ["m200", "m100"]
    for row in preview["board"]["rows"]:
        assert row["new_area"] == pytest.approx(0.9 * row["old_area"])
    assert preview["rescoring"]["created_at"].endswith("Z")
    assert "m100" in run_there("admin", "rescore", "preview", number).stdout
    applied = read(run_there("admin", "rescore", "apply", number, *as_json))
    assert (applied["state"], applied["ended_by"]) == ("applied", "command line")
    # Doing it again changes nothing; there is nothing left to cancel.
    assert read(run_there("admin", "rescore", "apply", number, *as_json))["ended_at"] == applied["ended_at"]
    assert refused(run_there("admin", "rescore", "cancel", number, *as_json)) == (1, "rescoring_state")
    assert read(run_there("admin", "rescore", "status", *as_json))["outdated_boards"] == []
    assert "applied" in run_there("admin", "rescore", "status").stdout


def test_a_rescoring_is_cancelled(run_there: Run, published: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCORERS, "2", score_with_penalty)
    number = str(read(run_there("admin", "rescore", "start", "small", "--format", "json"))["id"])
    assert "cancelled" in run_there("admin", "rescore", "cancel", number).stdout
    assert read(run_there("admin", "rescore", "cancel", number, "--format", "json"))["state"] == "cancelled"
    (outdated,) = read(run_there("admin", "rescore", "status", "--format", "json"))["outdated_boards"]
    assert outdated["from_version"] == "1"
    for command in ("status", "preview", "apply", "retry", "cancel"):
        absent = run_there("admin", "rescore", command, "999", "--format", "json")
        assert refused(absent) == (1, "unknown_rescoring")
        assert run_there("admin", "rescore", command, "none").exit_code == 2
