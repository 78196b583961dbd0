"""Probe runs by command: created, estimated, followed, paused, resumed, cancelled."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.engine import Engine
from typer.testing import Result

from app.db.session import make_engine, session_factory
from app.files.questions import write_questions
from app.services import probe_items, probe_runs
from tests.measured_runs import create_run, fail_item, make_questions, measure_items

Run = Callable[..., Result]

CREATE = ("--model", "SmolLM2-135M-Instruct", "--questions", "arithmetic-word-problems")


@pytest.fixture
def run_there(run: Run, committed_database: str, tmp_path: Path) -> Run:
    """Runs commands against a database of this test's own."""
    env = {"OTBOARD_DATABASE_URL": committed_database, "OTBOARD_DATA": str(tmp_path / "data")}
    return lambda *arguments: run(*arguments, env=env)


@pytest.fixture
def own_engine(committed_database: str) -> Any:
    engine = make_engine(committed_database)
    yield engine
    engine.dispose()


def read(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_a_run_from_its_creation_to_its_end(run_there: Run, tmp_path: Path) -> None:
    write_questions(tmp_path / "sums.jsonl", make_questions())
    protocol = ("--step-tokens", 32, "--trajectories", 2, "--probes", 3, "--thinking-limit", 100, "--probe-limit", 9)
    created = read(
        run_there(
            *("probe-run", "create", "mine", *CREATE, "--questions", tmp_path / "sums.jsonl", *protocol),
            *("--title", "Mine", "--priority", 2, "--hold", "--format", "json"),
        )
    )
    assert (created["state"], created["title"], created["priority"]) == ("created", "Mine", 2)
    assert created["n_questions"] == 66
    assert created["protocol"] == {
        "step_tokens": 32,
        "n_trajectories": 2,
        "n_probes": 3,
        "thinking_token_limit": 100,
        "answer_token_limit": 16,
        "probe_token_limit": 9,
        "seed_name": "mine",
        "question_seconds": 21600,
    }
    for command, state in (("resume", "running"), ("pause", "paused"), ("resume", "running"), ("cancel", "cancelled")):
        assert read(run_there("probe-run", command, "mine", "--format", "json"))["state"] == state
    listed = read(run_there("probe-run", "list", "--format", "json"))
    assert [entry["name"] for entry in listed["probe_runs"]] == ["mine"]
    assert "cancelled" in run_there("probe-run", "list").stdout
    refused = run_there("probe-run", "resume", "mine", "--format", "json")
    assert (refused.exit_code, json.loads(refused.stdout)["code"]) == (1, "probe_run_state")


def test_a_run_starts_when_it_is_created(run_there: Run) -> None:
    assert read(run_there("probe-run", "create", "mine", *CREATE, "--format", "json"))["state"] == "running"


def test_priority_may_be_negative(run_there: Run) -> None:
    read(run_there("probe-run", "create", "mine", *CREATE, "--format", "json"))
    assert read(run_there("probe-run", "priority", "mine", "--format", "json", "--", "-3"))["priority"] == -3


def test_status_tells_what_was_measured(run_there: Run, own_engine: Engine) -> None:
    with session_factory(own_engine).begin() as session:
        run = create_run(session, "mine")
        measure_items(session, run, n_items=2)
        fail_item(session, run, reason="the prompt is too long")
        probe_items.announce_worker(session, "worker a:1", model=run.model, engine_key=run.engine_key, versions={})
    document = read(run_there("probe-run", "status", "mine", "--questions", "--format", "json"))
    assert (document["n_done"], document["n_failed"], document["n_waiting"]) == (2, 1, 3)
    assert (document["prefix_share"], document["seconds_left"]) == (0.9, 6.0)
    assert [question["state"] for question in document["questions"]] == ["done", "done", "failed", *["waiting"] * 3]
    table = run_there("probe-run", "status", "mine").stdout
    assert "worker a:1 (between questions)" in table
    assert "the prompt is too long (after 3 attempts): 1" in table
    listed = run_there("probe-run", "status", "mine", "--questions", "--format", "csv").stdout.splitlines()
    assert listed[0].startswith("benchmark,question_id,split,state,attempts")
    assert listed[1].startswith("sums,q0,train,done,1")


def test_an_estimate_needs_no_database(run: Run, tmp_path: Path) -> None:
    env = {"OTBOARD_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/nothing"}
    options = ("--trajectories", 2, "--probes", 4, "--step-tokens", 64, "--tokens-per-second", 1000, "--workers", 2)
    document = read(run("probe-run", "estimate", *CREATE, *options, "--format", "json", env=env))
    # 256 tokens make at most 4 steps; 60 questions.
    assert (document["basis"], document["n_trajectories"], document["n_positions"]) == ("limits", 120, 600)
    assert document["generated_tokens"] == 120 * 256 + 120 * 16 + 2400 * 16
    assert document["elapsed_seconds"] == document["generated_tokens"] / 2000
    shorter = read(
        run(
            "probe-run",
            "estimate",
            *CREATE,
            *options,
            "--thinking-tokens",
            100,
            "--answer-tokens",
            10,
            "--format",
            "json",
        )
    )
    # 100 / 64 rounds to 2 steps.
    assert (shorter["basis"], shorter["n_positions"], shorter["thinking_tokens"]) == ("lengths", 360, 12_000)


def test_an_estimate_of_a_stored_run(run_there: Run, own_engine: Engine) -> None:
    with session_factory(own_engine).begin() as session:
        measure_items(session, create_run(session, "mine"), n_items=2)
    document = read(run_there("probe-run", "estimate", "mine", "--workers", 2, "--format", "json"))
    assert document["basis"] == "finished questions"
    assert document["elapsed_seconds"] == pytest.approx(document["seconds"] / 2)
    assert "finished questions" in run_there("probe-run", "estimate", "mine").stdout


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("status", "absent"), "unknown_probe_run"),
        (("pause", "absent"), "unknown_probe_run"),
        (("estimate", "absent"), "unknown_probe_run"),
        (("create", "x", "--model", "unheard-of", "--questions", "arithmetic-word-problems"), "unknown_model_profile"),
        (("create", "Bad Name", *CREATE), "bad_probe_run"),
        (("create", "x", *CREATE, "--probes", "0"), "bad_protocol"),
        (("create", "x", "--model", "generic", "--questions", "absent.jsonl"), "bad_questions"),
        (("create", "x", "--profile", "absent.yaml", "--questions", "arithmetic-word-problems"), "bad_profile"),
        (("create", "x", *CREATE, "--priority", "9999999"), "bad_probe_run"),
    ],
)
def test_errors_have_codes(run_there: Run, arguments: tuple[str, ...], code: str) -> None:
    result = run_there("probe-run", *arguments, "--format", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["code"] == code


@pytest.mark.parametrize(
    "arguments",
    [
        ("probe-run", "create", "x", "--questions", "arithmetic-word-problems"),
        ("probe-run", "create", "x", "--model", "generic"),
        ("probe-run", "create", "x", "--model", "generic", "--profile", "p.yaml", "--questions", "q.jsonl"),
        ("worker", "probe", "--server", "http://127.0.0.1:1"),
    ],
)
def test_wrong_usage(run_there: Run, arguments: tuple[str, ...]) -> None:
    assert run_there(*arguments).exit_code == 2


def test_a_worker_with_nothing_to_do_ends_when_idle(run_there: Run, own_engine: Engine) -> None:
    """It loads no engine before a question waits, so that this needs none."""
    result = run_there("worker", "probe", "--until-idle")
    assert result.exit_code == 0, result.stderr


def test_a_worker_whose_engine_cannot_be_loaded_says_why(run_there: Run, own_engine: Engine) -> None:
    with session_factory(own_engine).begin() as session:
        create_run(session, "mine")
    result = run_there("worker", "probe", "--until-idle")
    assert result.exit_code == 1
    assert "engine_failed" in result.stderr
    with session_factory(own_engine).begin() as session:
        assert probe_runs.get_run(session, "mine").state == "running"
        assert session.scalar(text("SELECT count(*) FROM probe_workers")) == 0
