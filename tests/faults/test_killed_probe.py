"""Measuring workers that are killed in the middle of a question, and several at once: the records are the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from app.files.protocol import build_protocol
from app.services import probe_runs
from tests.scripted_model import make_profile, make_questions

Wait = Callable[[Callable[[], bool]], None]

REPOSITORY = Path(__file__).resolve().parents[2]
WORKER = f"import sys; sys.path.insert(0, {str(REPOSITORY)!r}); from tests.scripted_model import main; main()"
N_QUESTIONS = 8
RECORDS = """
SELECT i.question_id, t.trajectory, t.token_ids, t.block_tokens, t.retained_tokens, t.correct_probes, t.end_margin,
       t.original_answer, t.direct_answer, t.hit_limit, t.n_unextracted, t.answers
FROM probe_trajectories t JOIN probe_items i ON i.id = t.probe_item_id JOIN probe_runs r ON r.id = i.probe_run_id
WHERE r.name = :name ORDER BY i.idx, t.trajectory
"""
COUNT = """
SELECT count(*) FROM probe_items i JOIN probe_runs r ON r.id = i.probe_run_id WHERE r.name = :name AND i.state = :state
"""
# Records cannot be written while this is held; they can be read.
HOLD = "LOCK TABLE probe_trajectories IN SHARE MODE"


@pytest.fixture
def create(site: Any) -> Callable[[str], None]:
    """A function that creates and starts a run; all runs have the same seeds."""

    def make(name: str) -> None:
        profile = make_profile()
        with site.sessions.begin() as session:
            probe_runs.create_run(
                session,
                name,
                profile=profile,
                protocol=build_protocol(profile, seed_name="shared", step_tokens=20, n_trajectories=2, n_probes=2),
                question_sets=[make_questions(n_questions=N_QUESTIONS)],
                actor="ada",
            )
            probe_runs.start_run(session, name, actor="ada")

    return make


def start_worker(site: Any, *options: str) -> Any:
    return site.start("-c", WORKER, *options)


def count(site: Any, name: str, state: str) -> int:
    return int(site.ask(COUNT, name=name, state=state))


def state(site: Any, name: str) -> str:
    return str(site.ask("SELECT state FROM probe_runs WHERE name = :name", name=name))


def records(site: Any, name: str) -> list[Any]:
    with site.sessions() as session:
        return [tuple(row) for row in session.execute(text(RECORDS), {"name": name})]


def test_killed_twice_and_resumed(site: Any, wait_until: Wait, kill: Any, create: Callable[[str], None]) -> None:
    create("killed")
    # Three calls a question: thinking, answers, probes. This one hangs in the probes of its third question.
    first = start_worker(site, "--hangs-at", "9")
    wait_until(lambda: count(site, "killed", "done") == 2 and count(site, "killed", "running") == 1)
    kill(first)
    with site.hold(HOLD):
        # The second one has measured the question that the first one lost, and is killed while it writes.
        second = start_worker(site)
        wait_until(site.someone_waits)
        kill(second)
    assert count(site, "killed", "done") == 2
    create("undisturbed")
    third = start_worker(site, "--until-idle")
    assert third.wait() == 0, site.read_errors()
    assert (state(site, "killed"), state(site, "undisturbed")) == ("finished", "finished")
    assert len(records(site, "killed")) == 2 * N_QUESTIONS
    assert records(site, "killed") == records(site, "undisturbed")


def test_two_workers_share_a_run(site: Any, wait_until: Wait, create: Callable[[str], None]) -> None:
    create("shared")
    with site.hold(HOLD):
        workers = [start_worker(site, "--until-idle") for _ in range(2)]
        wait_until(lambda: count(site, "shared", "running") == 2)
    assert [worker.wait() for worker in workers] == [0, 0], site.read_errors()
    assert state(site, "shared") == "finished"
    actors = site.ask("SELECT count(DISTINCT worker->>'actor') FROM probe_items")
    assert actors == 2
    create("alone")
    assert start_worker(site, "--until-idle").wait() == 0, site.read_errors()
    assert records(site, "shared") == records(site, "alone")


def test_a_worker_that_is_told_to_stop_finishes_its_question(
    site: Any, wait_until: Wait, create: Callable[[str], None]
) -> None:
    create("stopped")
    with site.hold(HOLD):
        worker = start_worker(site)
        wait_until(site.someone_waits)
        worker.terminate()
    assert worker.wait() == 0, site.read_errors()
    assert count(site, "stopped", "done") == 1
    assert count(site, "stopped", "running") == 0
    assert site.ask("SELECT count(*) FROM probe_workers") == 0
