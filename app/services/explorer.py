"""Any recorded trajectory of a snapshot by its name: what the explorer of accuracy curves shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.measurements import SPLITS, build_cell
from app.report_examples import CurveExample, show_curve
from app.services.release import are_labels_told


@dataclass(frozen=True)
class ShownQuestion:
    """A question that may be looked at, with the trajectories of one model on it, in their order."""

    benchmark: str
    question_id: str
    split: str
    difficulty: int | None
    model: str
    curves: tuple[CurveExample, ...]


def list_open_questions(session: Session, snapshot: models.Snapshot, *, benchmark: str, split: str) -> tuple[str, ...]:
    """Return the questions of a benchmark in a split, or in all of them, whose labels are not hidden, by id."""
    open_splits = [known for known in SPLITS if are_labels_told(snapshot, known) and split in (known, "all")]
    query = (
        select(models.Question.question_id)
        .join(models.SnapshotBenchmark, models.SnapshotBenchmark.id == models.Question.benchmark_id)
        .where(
            models.Question.snapshot_id == snapshot.id,
            models.SnapshotBenchmark.name == benchmark,
            models.Question.split.in_(open_splits),
        )
    )
    return tuple(sorted(session.scalars(query)))


def find_question(
    session: Session, snapshot: models.Snapshot, *, model: str, benchmark: str, question_id: str
) -> ShownQuestion | None:
    """Return the trajectories of a model on a question; None where there are none, or their labels are hidden."""
    trajectory = models.Trajectory
    query = (
        select(models.Question.split, models.Question.difficulty, trajectory)
        .join(models.Question, models.Question.id == trajectory.question_pk)
        .join(models.SnapshotBenchmark, models.SnapshotBenchmark.id == models.Question.benchmark_id)
        .join(models.SnapshotModel, models.SnapshotModel.id == trajectory.model_id)
        .where(
            trajectory.snapshot_id == snapshot.id,
            models.SnapshotModel.name == model,
            models.SnapshotBenchmark.name == benchmark,
            models.Question.question_id == question_id,
        )
        .order_by(trajectory.trajectory)
    )
    found = session.execute(query).all()
    if not found or not are_labels_told(snapshot, found[0].split):
        return None
    rows = [row.Trajectory for row in found]
    return ShownQuestion(
        benchmark=benchmark,
        question_id=question_id,
        split=found[0].split,
        difficulty=found[0].difficulty,
        model=model,
        curves=_show_curves(rows, model, benchmark, question_id, found[0].split, snapshot.probes_per_position),
    )


def _show_curves(
    rows: Sequence[models.Trajectory], model: str, benchmark: str, question_id: str, split: str, n_probes: int
) -> tuple[CurveExample, ...]:
    points = [list(zip(row.retained_tokens, row.correct_probes or (), strict=True)) for row in rows]
    cell = build_cell(model, benchmark, [(question_id, split, points)], n_probes)
    return tuple(show_curve(cell, number) for number in range(len(rows)))
