"""What the worker's tasks are called and what they take: the queue knows them by name only."""

from __future__ import annotations

import inspect

from sqlalchemy import text

from app.db.session import make_engine, session_factory
from app.services import jobs
from worker import tasks


def test_every_job_that_is_queued_has_a_task() -> None:
    registered = jobs.queue.tasks
    for name, arguments in (
        (jobs.SCORE_SUBMISSION, {"submission_id"}),
        (jobs.PREPARE_SNAPSHOT, {"snapshot_id", "split"}),
        (jobs.BOOTSTRAP_SPLIT, {"snapshot_id", "split"}),
        (jobs.RESAMPLE_SUBMISSION, {"submission_id"}),
        (jobs.RANK_BOARDS, {"snapshot_id", "split", "strategy"}),
        (jobs.REAP, {"timestamp"}),
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
