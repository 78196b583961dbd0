"""How many questions a snapshot has, by benchmark and split."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.db import models


def count_questions(session: Session, snapshot: models.Snapshot) -> dict[tuple[str, str], int]:
    """Return the number of questions of each benchmark in each split; pairs without a question are left out."""
    question, benchmark = models.Question, models.SnapshotBenchmark
    query = (
        select(benchmark.name, question.split, func.count())
        .join(benchmark, benchmark.id == question.benchmark_id)
        .where(question.snapshot_id == snapshot.id)
        .group_by(benchmark.name, question.split)
    )
    return {(name, split): int(n) for name, split, n in session.execute(query)}
