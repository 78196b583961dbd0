"""A job appears with its row or not at all, is worked off once, and comes back when its worker dies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from procrastinate import PsycopgConnector
from sqlalchemy import Engine, text
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db.session import conninfo, make_engine, session_factory
from app.evaluator.strategies import Strategy
from app.files.snapshot import Snapshot
from app.services import jobs, snapshots
from worker.tasks import make_context


@pytest.fixture
def own_engine(committed_database: str) -> Iterator[Engine]:
    """An engine on a database of this test's own."""
    engine = make_engine(committed_database)
    yield engine
    engine.dispose()


@pytest.fixture
def own_sessions(own_engine: Engine) -> sessionmaker[Session]:
    """Sessions whose commits are real."""
    return session_factory(own_engine)


def list_jobs(session: Session, columns: str = "task_name, args") -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.execute(text(f"SELECT {columns} FROM procrastinate_jobs ORDER BY id"))]


def test_job_is_committed_with_its_row(own_sessions: sessionmaker[Session]) -> None:
    with own_sessions.begin() as session, own_sessions() as other:
        jobs.defer_scoring(session, "abcdefghijkl")
        assert list_jobs(other) == []
    with own_sessions() as session:
        assert list_jobs(session) == [("score_submission", {"submission_id": "abcdefghijkl"})]


def test_job_vanishes_with_its_row(own_sessions: sessionmaker[Session]) -> None:
    with own_sessions() as session:
        jobs.defer_scoring(session, "abcdefghijkl")
        assert len(list_jobs(session)) == 1
        session.rollback()
        assert list_jobs(session) == []


def test_numbers_are_those_of_the_queue(session: Session) -> None:
    first, second = (jobs.defer_scoring(session, name) for name in ("abcdefghijkl", "mnopqrstuvwx"))
    assert list_jobs(session, "id") == [(first,), (second,)]


def test_preparation_goes_ahead_of_scoring(session: Session) -> None:
    jobs.defer_scoring(session, "abcdefghijkl")
    jobs.defer_preparation(session, 7, split="test")
    assert list_jobs(session, "task_name, args, priority") == [
        ("score_submission", {"submission_id": "abcdefghijkl"}, 0),
        ("prepare_snapshot", {"snapshot_id": 7, "split": "test"}, 10),
    ]


def test_delayed_job(session: Session) -> None:
    jobs.defer_scoring(session, "abcdefghijkl", delay=timedelta(hours=1))
    jobs.defer_scoring(session, "mnopqrstuvwx")
    assert list_jobs(session, "scheduled_at > now() + interval '59 minutes'") == [(True,), (None,)]


def test_worker_prepares_what_was_frozen(
    committed_database: str, own_sessions: sessionmaker[Session], board_snapshot: Snapshot, tmp_path: Path
) -> None:
    config = Config(data_dir=tmp_path, database_url=committed_database)
    with own_sessions.begin() as session:
        snapshots.import_snapshot(session, board_snapshot)
        stored = snapshots.freeze_snapshot(session, "small")
    jobs.run_worker(config, committed_database, context=make_context(config, own_sessions), wait=False)
    with own_sessions() as session:
        assert list_jobs(session) == []
        for split in ("train", "validation", "test", "all"):
            boards = snapshots.list_board_frontiers(session, stored, split=split)
            assert {board.strategy for board in boards} == set(Strategy)
            assert len(boards) == 27


@pytest.mark.parametrize(("silence", "is_alive"), [(5, True), (60, False)])
def test_live_worker(session: Session, silence: int, is_alive: bool) -> None:
    assert not jobs.has_live_worker(session, timeout_seconds=30)
    add = "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - make_interval(secs => :silence))"
    session.execute(text(add), {"silence": silence})
    assert jobs.has_live_worker(session, timeout_seconds=30) is is_alive


def retry_stalled(url: str, timeout_seconds: float) -> int:
    async def run() -> int:
        async with jobs.queue.open_async():
            return await jobs.retry_stalled_jobs(timeout_seconds)

    with jobs.queue.replace_connector(PsycopgConnector(conninfo=conninfo(url), min_size=1, max_size=1)):
        return asyncio.run(run())


def test_jobs_of_silent_workers_come_back(committed_database: str, own_sessions: sessionmaker[Session]) -> None:
    """Three jobs are being done: by a worker that lives, by one that fell silent, by one that is forgotten already."""
    with own_sessions.begin() as session:
        for name in ("aaaaaaaaaaaa", "bbbbbbbbbbbb", "cccccccccccc", "dddddddddddd"):
            jobs.defer_scoring(session, name)
        add = (
            "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - make_interval(secs => :s)) RETURNING id"
        )
        living, silent = (session.scalar(text(add), {"s": seconds}) for seconds in (1, 100))
        for worker in (living, silent, None):
            session.execute(text("SELECT procrastinate_fetch_job_v2(NULL, :worker)"), {"worker": worker})
    assert retry_stalled(committed_database, 30) == 2
    with own_sessions() as session:
        assert list_jobs(session, "args->>'submission_id', status::text, attempts") == [
            ("aaaaaaaaaaaa", "doing", 0),
            ("bbbbbbbbbbbb", "todo", 1),
            ("cccccccccccc", "todo", 1),
            ("dddddddddddd", "todo", 0),
        ]
    assert retry_stalled(committed_database, 30) == 0
