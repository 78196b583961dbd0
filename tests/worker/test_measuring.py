"""A measuring worker on a real database with a scripted model: whole runs, models in turn, faults and signals."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.db.session import make_engine, session_factory
from app.files.profiles import Profile
from app.files.protocol import build_protocol
from app.services import jobs, probe_runs
from tests.scripted_model import ScriptedEngine, broken_engine, make_equipment, make_profile, make_questions
from worker import measuring
from worker.measuring import MeasuringWorker

RECORDS = """
SELECT i.benchmark, i.question_id, t.trajectory, t.token_ids, t.block_tokens, t.retained_tokens, t.correct_probes,
       t.end_margin, t.original_answer, t.original_correct, t.direct_answer, t.direct_correct, t.hit_limit,
       t.n_unextracted, t.answers, t.grader_version
FROM probe_trajectories t JOIN probe_items i ON i.id = t.probe_item_id JOIN probe_runs r ON r.id = i.probe_run_id
WHERE r.name = :name ORDER BY i.idx, t.trajectory
"""


class Laboratory:
    """A database of the test's own, and engines that are remembered."""

    def __init__(self, url: str, config: Config) -> None:
        self.url = url
        self.config = config
        self.database = make_engine(url)
        self.sessions: sessionmaker[Session] = session_factory(self.database)
        self.engines: list[tuple[str, ScriptedEngine]] = []
        self.prepare_engine: Callable[[ScriptedEngine], None] = lambda _: None

    def create(self, name: str, *, model: str = "scripted", seed_name: str | None = None, **options: Any) -> None:
        profile = make_profile(model)
        questions = options.pop("question_sets", None) or [make_questions(n_questions=3, direct_instruction="At once.")]
        priority = options.pop("priority", 0)
        chosen = {"step_tokens": 20, "n_trajectories": 2, "n_probes": 2, **options}
        with self.sessions.begin() as session:
            probe_runs.create_run(
                session,
                name,
                profile=profile,
                protocol=build_protocol(profile, seed_name=seed_name or "shared", **chosen),
                question_sets=questions,
                actor="ada",
                priority=priority,
            )
            probe_runs.start_run(session, name, actor="ada")

    def open_engine(self, profile: Profile) -> ScriptedEngine:
        engine = ScriptedEngine()
        self.prepare_engine(engine)
        self.engines.append((profile.name, engine))
        return engine

    def make_worker(self, *, model: str | None = None, actor: str = "worker here:1") -> MeasuringWorker:
        return MeasuringWorker(
            self.config,
            self.url,
            sessions=self.sessions,
            equipment=make_equipment(self.open_engine),
            actor=actor,
            model=model,
        )

    def state(self, name: str) -> str:
        with self.sessions() as session:
            return probe_runs.get_run(session, name).state

    def records(self, name: str) -> list[Any]:
        with self.sessions() as session:
            return [tuple(row) for row in session.execute(text(RECORDS), {"name": name})]

    def items(self, name: str) -> list[models.ProbeItem]:
        item, run = models.ProbeItem, models.ProbeRun
        with self.sessions() as session:
            query = select(item).join(run, run.id == item.probe_run_id).where(run.name == name).order_by(item.idx)
            return list(session.scalars(query))

    def ask(self, query: str) -> Any:
        with self.sessions.begin() as session:
            return session.scalar(text(query))


@pytest.fixture
def laboratory(committed_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Laboratory]:
    monkeypatch.setattr(measuring, "POLL_SECONDS", 0.05)
    made = Laboratory(committed_database, Config(data_dir=tmp_path, heartbeat_timeout_seconds=30))
    yield made
    made.database.dispose()


def test_a_whole_run_becomes_records(laboratory: Laboratory) -> None:
    laboratory.create("first")
    laboratory.make_worker().run(until_idle=True)
    assert laboratory.state("first") == "finished"
    records = laboratory.records("first")
    assert [(record.question_id, record.trajectory) for record in map(Record, records)] == [
        (f"q{question}", trajectory) for question in range(3) for trajectory in range(2)
    ]
    ((model, engine),) = laboratory.engines
    assert (model, engine.is_closed) == ("scripted", True)
    # Every request of the engine is accounted for, and nothing else.
    requests = [request for call in engine.calls for request in call]
    items = laboratory.items("first")
    assert sum(item.prompt_tokens or 0 for item in items) == sum(len(request.prompt) for request in requests)
    repeated = ScriptedEngine()
    generated = [done for call in engine.calls for done in repeated.generate(call)]
    assert sum(item.generated_tokens or 0 for item in items) == sum(
        len(done.tokens) + (done.stop_token is not None) for done in generated
    )
    assert all(item.worker and item.worker["scripted"] == "1" and item.worker["grader"] for item in items)
    # A slow queue may have issued a ticket twice; the second waits, and finds its question done.
    assert laboratory.ask("SELECT count(*) FROM procrastinate_jobs WHERE status <> 'todo'") == 0
    assert laboratory.ask("SELECT count(*) FROM probe_workers") == 0


class Record:
    """Names for the columns that tests look at."""

    def __init__(self, row: Any) -> None:
        self.question_id, self.trajectory = row[1], row[2]


def test_measuring_again_gives_the_same_records(laboratory: Laboratory) -> None:
    for name in ("first", "second"):
        laboratory.create(name)
    laboratory.create("other-seeds", seed_name="other")
    laboratory.make_worker().run(until_idle=True)
    first, second, other = (laboratory.records(name) for name in ("first", "second", "other-seeds"))
    assert len(first) == 6
    assert first == second != other


def test_a_model_is_loaded_once(laboratory: Laboratory) -> None:
    laboratory.create("one", model="alpha")
    laboratory.create("two", model="beta")
    laboratory.create("three", model="alpha")
    laboratory.make_worker().run(until_idle=True)
    assert [name for name, _ in laboratory.engines] == ["alpha", "beta"]
    assert {laboratory.state(name) for name in ("one", "two", "three")} == {"finished"}


def test_a_more_urgent_run_goes_first_also_with_another_model(laboratory: Laboratory) -> None:
    """It is created while the first question of the other one is measured."""
    laboratory.create("usual", model="alpha")

    def prepare_once(engine: ScriptedEngine) -> None:
        laboratory.prepare_engine = lambda _: None
        laboratory.create("urgent", model="beta", priority=5)

    laboratory.prepare_engine = prepare_once
    laboratory.make_worker().run(until_idle=True)
    assert [name for name, _ in laboratory.engines] == ["alpha", "beta", "alpha"]
    alpha, beta = laboratory.items("usual"), laboratory.items("urgent")
    assert max(item.finished_at for item in beta if item.finished_at) < min(
        item.finished_at for item in alpha if item.finished_at
    )


def test_a_worker_for_one_model_leaves_others_alone(laboratory: Laboratory) -> None:
    laboratory.create("one", model="alpha")
    laboratory.create("two", model="beta")
    laboratory.make_worker(model="beta").run(until_idle=True)
    assert (laboratory.state("one"), laboratory.state("two")) == ("running", "finished")
    assert {item.state for item in laboratory.items("one")} == {"waiting"}


def test_a_fault_is_noted_and_the_engine_loaded_anew(laboratory: Laboratory) -> None:
    laboratory.create("first")

    def break_first(engine: ScriptedEngine) -> None:
        if not laboratory.engines:
            engine.faults.append(broken_engine())

    laboratory.prepare_engine = break_first
    # The question that failed is not tried again before ten seconds have passed, so the worker is told to stop.
    run_until(laboratory.make_worker(), lambda: laboratory.items("first")[2].state == "done")
    failed, *others = laboratory.items("first")
    assert (failed.state, failed.failures) == ("waiting", 1)
    assert failed.reason == "the engine ran out of memory (after 1 attempt)"
    assert {item.state for item in others} == {"done"}
    (_, first), (_, second) = laboratory.engines
    assert (first.is_closed, second.is_closed) == (True, True)


def run_until(worker: MeasuringWorker, condition: Callable[[], bool]) -> None:
    """Run a worker until a condition holds, which is looked at whenever it looks for work."""
    choose = worker._choose

    def look() -> Any:
        if condition():
            os.kill(os.getpid(), signal.SIGTERM)
        return choose()

    worker._choose = look  # type: ignore[method-assign]
    worker.run()


def test_the_first_signal_lets_the_question_be_finished(laboratory: Laboratory) -> None:
    laboratory.create("first")
    worker = laboratory.make_worker()
    laboratory.prepare_engine = lambda engine: send_at_call(engine, 2, heard=[worker._stopping])
    worker.run()
    assert [item.state for item in laboratory.items("first")] == ["done", "waiting", "waiting"]
    assert laboratory.ask("SELECT count(*) FROM procrastinate_jobs WHERE status = 'doing'") == 0


def test_the_second_signal_puts_the_question_down(laboratory: Laboratory) -> None:
    laboratory.create("first")
    worker = laboratory.make_worker()
    heard = [worker._stopping, worker._heart.must_drop]
    laboratory.prepare_engine = lambda engine: send_at_call(engine, 2, heard=heard)
    worker.run()
    first = laboratory.items("first")[0]
    assert (first.state, first.failures, first.losses, first.reason) == ("waiting", 0, 0, None)
    # Another worker goes on with all three.
    laboratory.prepare_engine = lambda engine: None
    laboratory.make_worker().run(until_idle=True)
    assert laboratory.state("first") == "finished"


def send_at_call(engine: ScriptedEngine, number: int, *, heard: Sequence[threading.Event]) -> None:
    """Let a call of an engine send signals to this process, as an operator might, each once the last was heard."""
    generate = engine.generate

    def send(requests: Any, *, progress: Any = None) -> Any:
        if len(engine.calls) == number:
            for event in heard:
                os.kill(os.getpid(), signal.SIGTERM)
                assert event.wait(60)
        return generate(requests, progress=progress)

    engine.generate = send  # type: ignore[method-assign]


def test_a_question_of_a_cancelled_run_is_put_down(laboratory: Laboratory) -> None:
    laboratory.create("first")
    worker = laboratory.make_worker()

    def cancel(engine: ScriptedEngine) -> None:
        generate = engine.generate

        def cancel_first(requests: Any, *, progress: Any = None) -> Any:
            if len(engine.calls) == 1:
                with laboratory.sessions.begin() as session:
                    probe_runs.cancel_run(session, "first", actor="ada")
                # What the heart does every ten seconds.
                worker._heart._beat()
            return generate(requests, progress=progress)

        engine.generate = cancel_first  # type: ignore[method-assign]

    laboratory.prepare_engine = cancel
    worker.run(until_idle=True)
    assert laboratory.state("first") == "cancelled"
    assert laboratory.records("first") == []
    ((_, engine),) = laboratory.engines
    assert len(engine.calls) == 2


def test_a_question_without_a_job_is_found(laboratory: Laboratory) -> None:
    laboratory.create("first")
    laboratory.ask("DELETE FROM procrastinate_jobs WHERE id = (SELECT min(id) FROM procrastinate_jobs) RETURNING id")
    laboratory.make_worker().run(until_idle=True)
    assert laboratory.state("first") == "finished"


def test_a_restart_of_the_database_loses_nothing(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    """All connections end while a question is measured: those of the worker's sessions, and those of its queue."""
    monkeypatch.setattr(measuring, "OUTAGE_SECONDS", 0.05)
    laboratory.create("first")
    end_all = (
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )

    def end_connections(engine: ScriptedEngine) -> None:
        generate = engine.generate

        def ask(requests: Any, *, progress: Any = None) -> Any:
            if len(engine.calls) == 5:
                assert laboratory.ask(end_all) > 1
            return generate(requests, progress=progress)

        engine.generate = ask  # type: ignore[method-assign]

    laboratory.prepare_engine = end_connections
    laboratory.make_worker().run(until_idle=True)
    assert laboratory.state("first") == "finished"
    assert len(laboratory.records("first")) == 6
    assert len(laboratory.engines) == 1


def test_scoring_workers_leave_questions_alone(laboratory: Laboratory) -> None:
    laboratory.create("first")
    context = {"config": laboratory.config, "sessions": laboratory.sessions}
    jobs.run_worker(laboratory.config, laboratory.url, context=context, wait=False)
    assert {item.state for item in laboratory.items("first")} == {"waiting"}
    with laboratory.sessions() as session:
        assert not jobs.is_ahead(session, priority=-100)


def test_a_measuring_worker_is_no_scoring_worker(laboratory: Laboratory) -> None:
    laboratory.create("first")
    seen = []

    def look(engine: ScriptedEngine) -> None:
        generate = engine.generate

        def ask(requests: Any, *, progress: Any = None) -> Any:
            with laboratory.sessions() as session:
                seen.append(jobs.has_live_worker(session, timeout_seconds=60))
            return generate(requests, progress=progress)

        engine.generate = ask  # type: ignore[method-assign]

    laboratory.prepare_engine = look
    laboratory.make_worker().run(until_idle=True)
    assert set(seen) == {False}


def test_code_is_refused_before_anything_is_generated(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Where there is no sandbox to run programs in; hours of generation would be lost otherwise."""
    from app.files.questions import CodeTest, Question, build_question_set

    monkeypatch.setenv("PATH", str(tmp_path))
    header = {
        "format": "otboard-questions/1",
        "benchmark": "programs",
        "title": "Programs",
        "license": "CC0-1.0",
        "source": "written for a test",
        "kind": "code",
        "instruction": "Write a program.",
    }
    tests = (CodeTest("1\n", "1\n"),)
    question = Question("programs", "p1", "test", "Print 1 + 0.", "", "code", tests=tests)
    laboratory.create("programs", question_sets=[build_question_set(header, [question])])
    (item,) = laboratory.items("programs")
    worker = laboratory.make_worker()
    run_until(worker, lambda: laboratory.items("programs")[0].failures == 1)
    (item,) = laboratory.items("programs")
    ((_, engine),) = laboratory.engines
    assert engine.calls == []
    assert item.reason is not None
    assert "bubblewrap" in item.reason
