"""A whole probe run with real vLLM, up to the board: killed and resumed, repeated, and on a server."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine as Database
from sqlalchemy import text
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db.session import make_engine, session_factory
from app.evaluator.strategies import Strategy
from app.files.profiles import Profile, build_profile
from app.files.protocol import build_protocol
from app.files.questions import Question, QuestionSet, build_question_set
from app.services import assembling, frontiers, leaderboard, probe_runs, snapshots, submissions
from app.services.accounts import ensure_account
from app.services.uploads import store_upload
from worker.engine import VllmEngine
from worker.equipment import local_equipment
from worker.generation import Completion, Request
from worker.main import run_scoring_worker
from worker.measuring import Equipment, run_probe_worker

N_QUESTIONS = 4
DEADLINE_SECONDS = 400.0
RUN_COMMAND = "from app.cli import main; main()"
RECORDS = """
SELECT i.question_id, t.trajectory, t.token_ids, t.block_tokens, t.retained_tokens, t.correct_probes, t.end_margin,
       t.original_answer, t.original_correct, t.direct_answer, t.direct_correct, t.hit_limit, t.n_unextracted, t.answers
FROM probe_trajectories t JOIN probe_items i ON i.id = t.probe_item_id JOIN probe_runs r ON r.id = i.probe_run_id
WHERE r.name = :name ORDER BY i.idx, t.trajectory
"""
COUNT_ITEMS = """
SELECT count(*) FROM probe_items i JOIN probe_runs r ON r.id = i.probe_run_id WHERE r.name = :name AND i.state = :state
"""


class KeptEngine:
    """The engine that other tests use as well: a worker that is done does not close it."""

    def __init__(self, engine: VllmEngine) -> None:
        self._engine = engine

    def generate(
        self, requests: Sequence[Request], *, progress: Callable[[int], None] | None = None
    ) -> list[Completion]:
        return self._engine.generate(requests, progress=progress)

    def measure_end_margins(self, prompts: Sequence[tuple[int, ...]], *, end_token: int) -> list[float]:
        return self._engine.measure_end_margins(prompts, end_token=end_token)

    def describe(self) -> dict[str, str]:
        return self._engine.describe()

    def close(self) -> None:
        pass


@dataclass
class Laboratory:
    """A database, the tiny model's profile, and the processes that measure."""

    config: Config
    database: Database
    sessions: sessionmaker[Session]
    profile: Profile
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def create(self, name: str) -> None:
        protocol = build_protocol(self.profile, seed_name="shared", step_tokens=24, n_trajectories=2, n_probes=3)
        with self.sessions.begin() as session:
            probe_runs.create_run(
                session, name, profile=self.profile, protocol=protocol, question_sets=[make_questions()], actor="ada"
            )
            probe_runs.start_run(session, name, actor="ada")

    def start_worker(self, *options: str) -> subprocess.Popen[bytes]:
        """Start `otboard worker probe` as a process of its own."""
        environment = {
            **os.environ,
            "OTBOARD_DATA": str(self.config.data_dir),
            "OTBOARD_DATABASE_URL": str(self.config.database_url),
            "OTBOARD_HEARTBEAT_TIMEOUT_SECONDS": str(self.config.heartbeat_timeout_seconds),
        }
        command = [sys.executable, "-c", RUN_COMMAND, "worker", "probe", "--until-idle", *options]
        with (self.config.data_dir / f"worker-{len(self.processes)}").open("wb") as log:
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
        self.processes.append(process)
        return process

    def work_here(self, engine: VllmEngine) -> None:
        """Measure in this process, with the engine that the other tests use."""
        usual = local_equipment()
        equipment = Equipment(
            open_engine=lambda _: KeptEngine(engine), open_prompts=usual.open_prompts, open_grader=usual.open_grader
        )
        run_probe_worker(self.config, equipment=equipment, until_idle=True)

    def wait_until(self, condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
        """Return once a condition holds; fail, with what the workers said, where it cannot come to hold any more."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not condition():
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail("\n".join(path.read_text()[-3000:] for path in self.config.data_dir.glob("worker-*")))
            time.sleep(0.05)

    def count(self, name: str, state: str) -> int:
        with self.sessions() as session:
            return int(session.execute(text(COUNT_ITEMS), {"name": name, "state": state}).scalar_one())

    def records(self, name: str) -> list[tuple[Any, ...]]:
        with self.sessions() as session:
            return [tuple(row) for row in session.execute(text(RECORDS), {"name": name})]

    def state(self, name: str) -> str:
        with self.sessions() as session:
            return probe_runs.get_run(session, name).state


def make_questions() -> QuestionSet:
    """Sums, of which a model of random weights solves none but by chance."""
    header = {
        "format": "otboard-questions/1",
        "benchmark": "sums",
        "title": "Sums",
        "license": "CC0-1.0",
        "source": "written for a test",
        "kind": "mathematics",
        "instruction": "Give the result.",
    }
    questions = [
        Question("sums", f"q{n}", "test", f"What is {n} + {n + 7}?", str(2 * n + 7), "mathematics")
        for n in range(N_QUESTIONS)
    ]
    return build_question_set(header, questions)


@pytest.fixture
def laboratory(committed_database: str, tiny_model: Path, tmp_path: Path) -> Iterator[Laboratory]:
    profile = build_profile(
        {
            "format": "otboard-profile/1",
            "name": "tiny",
            "repository": str(tiny_model),
            "license": "CC0-1.0",
            "uses_chat_template": True,
            "thinking_start": "<think>\n",
            "thinking_start_place": "prompt",
            "thinking_end": "</think>",
            "answer_opening": "\n\n",
            "sampling": {"temperature": 1.0},
            "thinking_token_limit": 160,
            "answer_token_limit": 12,
            "probe_token_limit": 12,
            "engine": {"dtype": "float32", "max_model_len": 1024, "enforce_eager": True},
        }
    )
    config = Config(
        data_dir=tmp_path, database_url=committed_database, heartbeat_timeout_seconds=10, bootstrap_replicates=20
    )
    database = make_engine(committed_database)
    made = Laboratory(config, database, session_factory(database), profile)
    yield made
    for process in made.processes:
        process.kill()
        process.wait()
    database.dispose()


def submit_oracle(laboratory: Laboratory, name: str) -> None:
    """Publish the oracle's early exits on a snapshot, scored by a worker."""
    from app.baselines.oracle import build_actions
    from app.evaluator.measurements import Measurements
    from app.files.actions import write_actions
    from app.files.snapshot import load_measurements

    with laboratory.sessions() as session:
        exported = snapshots.export_snapshot(session, name)
    measurements: Measurements = load_measurements(exported)
    path = laboratory.config.data_dir / "oracle.csv"
    write_actions(path, build_actions(measurements, Strategy.DYNAMIC_EARLY_EXIT), measurements)
    with path.open("rb") as stream:
        upload = store_upload(stream, data_dir=laboratory.config.data_dir, limit_bytes=10**8)
    with laboratory.sessions.begin() as session:
        account = ensure_account(session, name="ada", team="engines", is_control=False)
        accepted = submissions.accept_submission(
            session,
            account=account,
            snapshot_name=name,
            split="test",
            strategy=Strategy.DYNAMIC_EARLY_EXIT,
            method_name="oracle",
            description=None,
            upload=upload,
            filename="oracle.csv",
        )
    run_scoring_worker(laboratory.config, until_idle=True)
    with laboratory.sessions.begin() as session:
        submissions.publish_submission(session, accepted.submission_id, account=account)


def check_board(laboratory: Laboratory, name: str) -> None:
    """Assemble a run, freeze the snapshot, and find its frontiers and a submission on its board."""
    with laboratory.sessions.begin() as session:
        assembling.assemble_runs(session, [name], assembly=assembling.Assembly(name=name), actor="ada")
        snapshots.freeze_snapshot(session, name)
    run_scoring_worker(laboratory.config, until_idle=True)
    submit_oracle(laboratory, name)
    with laboratory.sessions() as session:
        snapshot = snapshots.get_snapshot(session, name)
        boards = frontiers.list_board_frontiers(session, snapshot, split="test")
        assert {board.strategy for board in boards} == {str(strategy) for strategy in Strategy}
        board = leaderboard.get_leaderboard(
            session, snapshot=name, split="test", strategy=Strategy.DYNAMIC_EARLY_EXIT, model=None, benchmark=None
        )
        assert [(row.method, row.gap) for row in board.rows if not row.is_control] == [("oracle", 0.0)]


def check_records(laboratory: Laboratory, name: str) -> None:
    """What was measured has the form that the snapshot needs, and steps to choose among."""
    records = laboratory.records(name)
    assert [(row[0], row[1]) for row in records] == [(f"q{n}", r) for n in range(N_QUESTIONS) for r in range(2)]
    positions = [len(row[4]) for row in records]
    assert max(positions) > 3
    for _, _, tokens, blocks, retained, correct, margins, *_ in records:
        assert sum(blocks) == len(tokens) == retained[-1]
        assert len(retained) == len(correct) == len(margins)
        assert all(0 <= count <= 3 for count in correct)


def test_a_run_that_is_killed_twice_becomes_a_board_and_a_second_run_gives_the_same_records(
    laboratory: Laboratory, vllm_engine: VllmEngine
) -> None:
    laboratory.create("killed")
    for n_done in (1, 2):
        worker = laboratory.start_worker()
        laboratory.wait_until(
            lambda n=n_done: laboratory.count("killed", "done") >= n and laboratory.count("killed", "running") == 1,  # type: ignore[misc]
            worker,
        )
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        # The question in flight is lost, and nothing of it was written.
        assert len(laboratory.records("killed")) == 2 * laboratory.count("killed", "done") < 2 * N_QUESTIONS
    last = laboratory.start_worker()
    laboratory.wait_until(lambda: laboratory.state("killed") == "finished", last)
    assert last.wait(60) == 0
    check_records(laboratory, "killed")
    laboratory.create("again")
    laboratory.work_here(vllm_engine)
    assert laboratory.records("again") == laboratory.records("killed")
    with laboratory.sessions() as session:
        cached, asked = session.execute(text("SELECT sum(cached_tokens), sum(prompt_tokens) FROM probe_items")).one()
    assert 0 < cached < asked
    check_board(laboratory, "killed")


def test_a_run_on_a_server_becomes_a_board(laboratory: Laboratory, vllm_url: str) -> None:
    laboratory.create("served")
    worker = laboratory.start_worker("--server", vllm_url, "--model", "tiny")
    laboratory.wait_until(lambda: laboratory.state("served") == "finished", worker)
    assert worker.wait(60) == 0
    check_records(laboratory, "served")
    check_board(laboratory, "served")
