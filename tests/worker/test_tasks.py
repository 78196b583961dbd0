"""What the worker's tasks are called and what they take: the queue knows them by name only."""

from __future__ import annotations

import inspect
import subprocess
import sys

from sqlalchemy import text

from app.db.session import make_engine, session_factory
from app.services import jobs
from worker import measuring, tasks


def test_every_job_that_is_queued_has_a_task() -> None:
    # The task of measuring is in a module of its own, whose packages a scoring worker does not need.
    assert measuring.probe_question is jobs.queue.tasks[jobs.PROBE_QUESTION]
    registered = jobs.queue.tasks
    for name, arguments in (
        (jobs.SCORE_SUBMISSION, {"submission_id"}),
        (jobs.PREPARE_SNAPSHOT, {"snapshot_id", "split"}),
        (jobs.BOOTSTRAP_SPLIT, {"snapshot_id", "split"}),
        (jobs.RESAMPLE_SUBMISSION, {"submission_id"}),
        (jobs.RANK_BOARDS, {"snapshot_id", "split", "strategy"}),
        (jobs.REAP, {"timestamp"}),
        (jobs.PROBE_QUESTION, {"probe_run_id", "probe_item_id"}),
    ):
        task = registered[name]
        assert task.queue == name
        assert set(inspect.signature(task.func).parameters) - {"context"} == arguments


def test_a_worker_looks_first_after_what_dead_ones_left(committed_database: str) -> None:
    engine = make_engine(committed_database)
    sessions = session_factory(engine)
    tasks.defer_reaping(sessions)
    tasks.defer_reaping(sessions)
    with sessions.begin() as session:
        waiting = session.execute(text("SELECT task_name, priority FROM procrastinate_jobs")).all()
    engine.dispose()
    assert waiting == [(jobs.REAP, tasks.REAP_PRIORITY)]


def test_a_scoring_worker_needs_none_of_the_packages_that_measure() -> None:
    code = (
        "import sys, worker.main; "
        "assert set(sys.modules).isdisjoint({'tokenizers', 'transformers', 'math_verify', 'vllm', 'torch'})"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
