"""The curves of one question: what a method would have seen at each position, and what each position was worth."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select, tuple_
from sqlalchemy.orm import Session

from app.db import models
from app.errors import NotFoundError
from app.services.paging import InvalidCursorError, read_cursor, write_cursor
from app.services.release import require_told_labels


class UnknownQuestionError(NotFoundError):
    """The snapshot's benchmark has no such question."""

    code = "unknown_question"
    title = "No such question"


@dataclass(frozen=True)
class TrajectoryCurves:
    """One trajectory: L(k) and C(k) at every position."""

    model: str
    trajectory: int
    thinking_tokens: int
    original_correct: bool | None
    retained_tokens: list[int]
    correct_probes: list[int]
    end_margin: list[float] | None


@dataclass(frozen=True)
class QuestionCurves:
    """A page of the trajectories of one question, by model in the manifest's order, then by number."""

    snapshot: str
    benchmark: str
    question_id: str
    split: str
    difficulty: int | None
    probes_per_position: int
    items: tuple[TrajectoryCurves, ...]
    next_cursor: str | None


def list_trajectories(
    session: Session,
    snapshot: models.Snapshot,
    *,
    benchmark: str,
    question_id: str,
    limit: int = 50,
    cursor: str | None = None,
) -> QuestionCurves:
    """Return the trajectories of a question whose labels are not hidden."""
    question = _get_question(session, snapshot, benchmark=benchmark, question_id=question_id)
    require_told_labels(snapshot, question.split, what=f"there are no curves of question {question_id!r}")
    model, trajectory = models.SnapshotModel, models.Trajectory
    query = (
        select(model.idx, model.name, trajectory)
        .join(model, model.id == trajectory.model_id)
        .where(trajectory.question_pk == question.id)
        .order_by(model.idx, trajectory.trajectory)
        .limit(limit + 1)
    )
    if cursor is not None:
        query = query.where(tuple_(model.idx, trajectory.trajectory) > _read_place(cursor))
    found = list(session.execute(query))
    shown = found[:limit]
    last = (str(shown[-1][0]), str(shown[-1][2].trajectory)) if len(found) > limit else None
    return QuestionCurves(
        snapshot=snapshot.name,
        benchmark=benchmark,
        question_id=question_id,
        split=question.split,
        difficulty=question.difficulty,
        probes_per_position=snapshot.probes_per_position,
        items=tuple(_read_curves(name, row) for _, name, row in shown),
        next_cursor=write_cursor(last) if last else None,
    )


def _get_question(session: Session, snapshot: models.Snapshot, *, benchmark: str, question_id: str) -> models.Question:
    query = (
        select(models.Question)
        .join(models.SnapshotBenchmark, models.SnapshotBenchmark.id == models.Question.benchmark_id)
        .where(
            models.Question.snapshot_id == snapshot.id,
            models.SnapshotBenchmark.name == benchmark,
            models.Question.question_id == question_id,
        )
    )
    found = session.scalar(query)
    if found is None:
        raise UnknownQuestionError(f"Benchmark {benchmark!r} of {snapshot.name} has no question {question_id!r}.")
    return found


def _read_place(cursor: str) -> tuple[int, int]:
    idx, number = read_cursor(cursor, n_parts=2)
    if not (idx.isascii() and idx.isdecimal() and number.isascii() and number.isdecimal()):
        raise InvalidCursorError("Use the `next_cursor` of the page before.")
    return int(idx), int(number)


def _read_curves(model: str, row: models.Trajectory) -> TrajectoryCurves:
    assert row.correct_probes is not None, "only hidden splits have trajectories without labels"
    return TrajectoryCurves(
        model=model,
        trajectory=row.trajectory,
        thinking_tokens=row.thinking_tokens,
        original_correct=row.original_correct,
        retained_tokens=row.retained_tokens,
        correct_probes=row.correct_probes,
        end_margin=row.end_margin,
    )
