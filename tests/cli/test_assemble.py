"""Finished runs become snapshots by command, and stored answers are graded again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from app.db.session import make_engine, session_factory
from tests.measured_runs import create_run, make_run

Run = Callable[..., Result]


@pytest.fixture
def run_there(run: Run, committed_database: str, tmp_path: Path) -> Run:
    """Runs commands against a database of this test's own, with a run that is finished and one that is not."""
    engine = make_engine(committed_database)
    with session_factory(engine).begin() as session:
        make_run(session, "measured")
        create_run(session, "half", model="small")
    engine.dispose()
    env = {"OTBOARD_DATABASE_URL": committed_database, "OTBOARD_DATA": str(tmp_path / "data")}
    return lambda *arguments: run("probe-run", *arguments, env=env)


def read(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_a_run_is_assembled_frozen_and_graded_again(run_there: Run) -> None:
    first = read(run_there("assemble", "measured", "--freeze", "--license", "CC0-1.0", "--format", "json"))
    assert (first["name"], first["state"], first["supersedes"]) == ("measured", "frozen", [])
    assert (first["n_questions"], first["n_trajectories"]) == (6, 12)
    told = read(run_there("regrade", "measured", "--dry-run", "--processes", "1", "--format", "json"))
    assert (told["written"], told["n_questions"], told["n_trajectories"]) == (False, 6, 12)
    written = read(run_there("regrade", "measured", "--processes", "1", "--format", "json"))
    assert written == {**told, "written": True}
    second = read(run_there("assemble", "measured", "--name", "again", "--hide", "test", "--format", "json"))
    assert (second["state"], second["supersedes"], second["hidden_splits"]) == ("imported", ["measured"], ["test"])
    assert read(run_there("status", "measured", "--format", "json"))["snapshot"] == "again"
    table = run_there("regrade", "measured", "--dry-run", "--processes", "1")
    assert "n_changes" in table.stdout


def test_what_cannot_be_assembled_ends_with_1(run_there: Run) -> None:
    result = run_there("assemble", "measured", "half", "--name", "both")
    assert result.exit_code == 1
    assert "run_not_finished" in result.stderr
    assert "question_not_measured" in result.stderr
    assert "tiny" not in result.stderr
    assert run_there("regrade", "half").exit_code == 1
    assert run_there("assemble", "measured", "half").exit_code == 2
