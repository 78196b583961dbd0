"""A scoring worker killed at any point loses nothing and doubles nothing: another one finishes its job."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import text

Wait = Callable[[Callable[[], bool]], None]

# Where the worker stands still, by a lock that the test holds, and how far it got by then.
POINTS = {
    "before its first word": ("SELECT FROM submissions WHERE id = :id FOR UPDATE", "received"),
    "while it computes": ("LOCK TABLE cell_frontiers IN ACCESS EXCLUSIVE MODE", "scoring"),
    "while it writes the score": ("LOCK TABLE scores IN SHARE MODE", "scoring"),
    "between score and state": ("LOCK TABLE board_scores IN SHARE MODE", "scoring"),
}


@pytest.mark.parametrize("point", POINTS)
def test_another_worker_finishes(site: Any, make_caps: Any, wait_until: Wait, kill: Any, point: str) -> None:
    statement, state = POINTS[point]
    with site.sessions.begin() as session:
        # Frontiers are not computed ahead here, so that the worker stops inside the scoring job.
        session.execute(text("DELETE FROM procrastinate_jobs WHERE task_name = 'prepare_snapshot'"))
    submission_id = site.submit(make_caps(200))
    parameters = {"id": submission_id} if ":id" in statement else {}
    with site.hold(statement, **parameters):
        first = site.start_worker()
        wait_until(lambda: site.someone_waits() and site.state(submission_id) == state)
        kill(first)
    assert site.state(submission_id) == state
    assert site.ask("SELECT count(*) FROM scores") == 0
    second = site.start_worker()
    wait_until(lambda: site.state(submission_id) == "scored")
    assert site.ask("SELECT count(*) FROM scores WHERE submission_id = :id", id=submission_id) == 1
    assert site.ask("SELECT count(*) FROM board_scores") == 9
    attempts = 1 if state == "received" else 2
    assert site.ask("SELECT attempts FROM submissions") == attempts
    wait_until(lambda: site.ask("SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'score_submission'") == 0)
    second.send_signal(signal.SIGTERM)
    assert second.wait() == 0


def test_killed_after_the_score_but_before_the_job_is_done(
    site: Any, make_caps: Any, wait_until: Wait, kill: Any
) -> None:
    submission_id = site.submit(make_caps(200))
    job = "SELECT FROM procrastinate_jobs WHERE args->>'submission_id' = :id AND status = 'doing' FOR UPDATE"
    doing = "SELECT count(*) FROM procrastinate_jobs WHERE args->>'submission_id' = :id AND status = 'doing'"
    with site.hold("LOCK TABLE scores IN SHARE MODE"):
        first = site.start_worker()
        wait_until(lambda: site.state(submission_id) == "scoring" and site.ask(doing, id=submission_id) == 1)
        held = site.engine.connect()
        held.execute(text(job), {"id": submission_id})
    wait_until(lambda: site.state(submission_id) == "scored" and site.someone_waits())
    kill(first)
    held.close()
    site.start_worker()
    wait_until(lambda: site.ask("SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'score_submission'") == 0)
    assert site.state(submission_id) == "scored"
    assert site.ask("SELECT count(*) FROM scores") == 1
    assert site.ask("SELECT attempts FROM submissions") == 1


def test_two_workers_share_the_queue(site: Any, make_caps: Any, wait_until: Wait) -> None:
    submitted = [site.submit(make_caps(cap), method=f"m{cap}") for cap in range(8)]
    for _ in range(2):
        site.start_worker()
    wait_until(lambda: all(site.state(submission_id) == "scored" for submission_id in submitted))
    assert site.ask("SELECT count(*) FROM scores") == 8
    assert site.ask("SELECT count(DISTINCT submission_id) FROM scores") == 8
    assert site.ask("SELECT max(attempts) FROM submissions") == 1


def test_a_worker_stops_when_the_queue_is_empty_or_its_parent_ends(site: Any, make_caps: Any, wait_until: Wait) -> None:
    submission_id = site.submit(make_caps(200))
    assert site.start_worker("--until-idle").wait() == 0
    assert site.state(submission_id) == "scored"
    child = site.start_worker("--stop-with-parent")
    wait_until(lambda: site.ask("SELECT count(*) FROM procrastinate_workers") > 0)
    child.stdin.close()
    child.stdin = None
    assert child.wait() == 0


def test_several_processes_stop_together(site: Any, make_caps: Any, wait_until: Wait) -> None:
    submission_id = site.submit(make_caps(200))
    many = site.start_command("worker", "score", "--concurrency", "2")
    wait_until(lambda: site.state(submission_id) == "scored")
    wait_until(lambda: site.ask("SELECT count(*) FROM procrastinate_workers") == 2)
    os.kill(many.pid, signal.SIGTERM)
    assert many.wait() == 0
    wait_until(lambda: site.ask("SELECT count(*) FROM procrastinate_workers") == 0)
