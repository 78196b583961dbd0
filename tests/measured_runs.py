"""Probe runs as if a worker had measured them, out of plain arithmetic: no model, no engine."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.config import Config
from app.db import models
from app.files.profiles import Profile, build_profile
from app.files.protocol import build_protocol
from app.files.questions import Question, QuestionSet, build_question_set
from app.services import probe_items, probe_runs
from app.services.probe_records import Accounting, QuestionRecord, TrajectoryRecord

SPLITS = ("train", "validation", "test")
ACTOR = "worker here:1"
GRADER_VERSION = "1"
CONFIG = Config(data_dir=Path("nowhere"))


@dataclass(frozen=True)
class Verdict:
    """What the grader of these tests says of an answer."""

    correct: bool
    extracted: str | None


def grade(question: Question, answers: Sequence[str]) -> list[Verdict]:
    """An answer is right if it ends with the reference; of one without a digit nothing can be read."""
    return [
        Verdict(answer.endswith(question.reference_answer), answer if any(map(str.isdigit, answer)) else None)
        for answer in answers
    ]


def make_profile(model: str = "tiny", **changes: Any) -> Profile:
    """A profile of a model that does not exist."""
    document = {
        "format": "otboard-profile/1",
        "name": model,
        "repository": f"models/{model}",
        "license": "Apache-2.0",
        "uses_chat_template": False,
        "thinking_start": "<think>",
        "thinking_end": "</think>",
        "sampling": {"temperature": 0.6, "top_p": 0.95},
        "thinking_token_limit": 64,
    }
    return build_profile({**document, **changes})


def make_questions(benchmark: str = "sums", *, n_questions: int = 6, offset: int = 0) -> QuestionSet:
    """Sums with their results, spread over the splits."""
    header = {
        "format": "otboard-questions/1",
        "benchmark": benchmark,
        "title": f"The {benchmark}",
        "license": "CC0-1.0",
        "source": "written for a test",
        "kind": "mathematics",
        "instruction": "Give the result.",
    }
    questions = [
        Question(
            benchmark=benchmark,
            question_id=f"q{number}",
            split=SPLITS[number % 3],
            prompt=f"What is {number} + {number + offset}?",
            reference_answer=str(2 * number + offset),
            kind="mathematics",
            difficulty=number,
        )
        for number in range(n_questions)
    ]
    return build_question_set(header, questions)


def create_run(
    session: Session,
    name: str = "measured",
    *,
    model: str = "tiny",
    question_sets: Sequence[QuestionSet] = (),
    profile: Profile | None = None,
    **protocol: int | None,
) -> models.ProbeRun:
    """A run that was created and started, none of its questions measured yet."""
    profile = profile or make_profile(model)
    chosen = {"step_tokens": 8, "n_trajectories": 2, "n_probes": 4, **protocol}
    probe_runs.create_run(
        session,
        name,
        profile=profile,
        protocol=build_protocol(profile, seed_name=name, **chosen),
        question_sets=question_sets or [make_questions()],
        actor="ada",
        title=f"Run {name}",
    )
    return probe_runs.start_run(session, name, actor="ada")


def measure_items(session: Session, run: models.ProbeRun, *, n_items: int | None = None, actor: str = ACTOR) -> None:
    """Do what a worker does with the next questions of a run, with all of them where no number is given."""
    item = models.ProbeItem
    query = select(item.id).where(item.probe_run_id == run.id, item.state == "waiting").order_by(item.idx)
    for item_id in session.scalars(query.limit(n_items)).all():
        lease = probe_items.lease_item(session, item_id, actor=actor, config=CONFIG)
        assert lease is not None
        probe_items.record_question(session, lease, make_record(lease))
    session.flush()
    session.expire_all()


def make_run(session: Session, name: str = "measured", **options: Any) -> models.ProbeRun:
    """A finished run."""
    run = create_run(session, name, **options)
    measure_items(session, run)
    return run


def fail_item(session: Session, run: models.ProbeRun, *, reason: str = "the engine ran out of memory") -> None:
    """Let a worker fail with the next question until nobody tries it again."""
    item = models.ProbeItem
    query = select(item.id).where(item.probe_run_id == run.id, item.state == "waiting").order_by(item.idx).limit(1)
    item_id = session.scalars(query).one()
    for _ in range(probe_items.MAX_FAILURES):
        held = session.get_one(item, item_id)
        held.retry_at = None
        session.flush()
        lease = probe_items.lease_item(session, item_id, actor=ACTOR, config=CONFIG)
        assert lease is not None
        probe_items.fail_item(session, lease, reason=reason)
    session.expire_all()


def make_record(lease: probe_items.Lease) -> QuestionRecord:
    """What a worker would have measured of a question: the same whenever it is asked."""
    trajectories = tuple(make_trajectory(lease, number) for number in range(lease.protocol.n_trajectories))
    n_generated = sum(len(trajectory.token_ids) for trajectory in trajectories)
    return QuestionRecord(
        trajectories=trajectories,
        accounting=Accounting(seconds=2.0, prompt_tokens=1000, cached_tokens=900, generated_tokens=n_generated + 40),
        worker={"engine": "none 1.0", "otboard": "0.1.0"},
        grader_version=GRADER_VERSION,
    )


def make_trajectory(lease: probe_items.Lease, number: int) -> TrajectoryRecord:
    """A trajectory that is right more and more often, and at its end less so."""
    key = f"{lease.profile.name}/{lease.question.benchmark}/{lease.question.question_id}/{number}"
    digest = hashlib.sha256(key.encode()).digest()
    n_steps = 1 + digest[0] % 4
    retained = (0, *(lease.protocol.step_tokens * step + digest[1] % 3 for step in range(1, n_steps + 1)))
    answers = tuple(
        tuple(answer_at(lease, k, probe, key=digest) for probe in range(lease.protocol.n_probes))
        for k in range(n_steps + 1)
    )
    verdicts = [grade(lease.question, texts) for texts in answers]
    original = f"so it is {lease.question.reference_answer}" if digest[2] % 2 else None
    return TrajectoryRecord(
        trajectory=number,
        token_ids=tuple(range(100, 100 + retained[-1])),
        block_tokens=tuple(after - before for before, after in pairwise(retained)),
        retained_tokens=retained,
        correct_probes=tuple(sum(verdict.correct for verdict in of_one) for of_one in verdicts),
        end_margin=tuple(1.5 - k for k in range(n_steps + 1)),
        original_answer=original,
        original_correct=original is not None,
        direct_answer=None,
        direct_correct=None,
        hit_limit=original is None,
        n_unextracted=sum(verdict.extracted is None for of_one in verdicts for verdict in of_one),
        answers=answers,
    )


def answer_at(lease: probe_items.Lease, position: int, probe: int, *, key: bytes) -> str:
    """The answer of one probe: right, wrong or unreadable."""
    drawn = key[(3 + 7 * position + probe) % len(key)] % 8
    if drawn == 0:
        return "I do not know"
    right = lease.question.reference_answer
    return f"the answer is {right}" if drawn <= 1 + 2 * position else f"the answer is {right}0"


def age(session: Session, run: models.ProbeRun, *, seconds: float) -> None:
    """Let a run have begun some time ago."""
    assert run.started_at is not None
    run.started_at -= timedelta(seconds=seconds)
    session.flush()
