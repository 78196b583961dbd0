"""A probe run as a request describes it: the model by name, questions inline or by the hash of a stored set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import Problem
from app.files.problems import MAX_EXAMPLES
from app.files.protocol import build_protocol
from app.files.question_documents import build_set_from_document
from app.files.questions import QuestionError, QuestionSet, build_question, build_question_set
from app.services import probe_runs
from app.services.accounts import Identity


@dataclass(frozen=True)
class RunRequest:
    """What a run is to measure, and how; what is None is the profile's or the paper's.

    A question set is `{"sha256"}` of one that is stored, or `{"header", "questions"}`, as in a question file.
    """

    name: str
    model: str
    question_sets: Sequence[Mapping[str, Any]]
    title: str | None = None
    priority: int = 0
    seed_name: str | None = None
    protocol: Mapping[str, int | None] = field(default_factory=dict)


def create_requested_run(session: Session, request: RunRequest, *, account: Identity) -> models.ProbeRun:
    """Create a run, not started yet.

    Raises
    ------
    UnknownModelError : the model has no profile.
    QuestionError : question sets with faults, of all sets, or a hash that no stored set has.
    ProtocolError, ProbeRunContentError : values that cannot be used.
    ProbeRunExistsError : the name is taken.
    """
    profile = probe_runs.find_model_profile(session, request.model)
    question_sets = load_question_sets(session, request.question_sets)
    protocol = build_protocol(profile, seed_name=request.seed_name or request.name, **request.protocol)
    return probe_runs.create_run(
        session,
        request.name,
        profile=profile,
        protocol=protocol,
        question_sets=question_sets,
        actor=account.name,
        account_id=account.id,
        title=request.title,
        priority=request.priority,
    )


def load_question_sets(session: Session, given: Sequence[Mapping[str, Any]]) -> list[QuestionSet]:
    """Return question sets, stored ones by their hash; the faults of all of them are listed together."""
    loaded: list[QuestionSet] = []
    problems: list[Problem] = []
    totals: Counter[str] = Counter()
    for place, document in enumerate(given, start=1):
        try:
            sha256 = document.get("sha256")
            loaded.append(build_set_from_document(document) if sha256 is None else _load_stored(session, sha256))
        except QuestionError as exc:
            totals.update({problem.code: problem.count for problem in exc.problems})
            problems += [
                replace(problem, message=f"question set {place}: {problem.message}") for problem in exc.problems
            ]
    if problems:
        shown = [replace(problem, count=totals[problem.code]) for problem in problems[:MAX_EXAMPLES]]
        raise QuestionError("the question sets have problems", problems=shown)
    return loaded


def _load_stored(session: Session, sha256: str) -> QuestionSet:
    stored = session.scalar(select(models.QuestionSet).where(models.QuestionSet.sha256 == sha256))
    if stored is None:
        problem = Problem("unknown_question_set", f"no stored question set has the hash {sha256}", column="sha256")
        raise QuestionError(problem.message, problems=[problem])
    item = models.QuestionSetItem
    documents = session.scalars(select(item.document).where(item.question_set_id == stored.id).order_by(item.idx))
    return build_question_set(stored.header, [build_question(document) for document in documents])
