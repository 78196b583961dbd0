"""The board: one ranking query behind page, REST, CSV and badge."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from typing import Any

import numpy as np
from sqlalchemy import Select, and_, func, select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import NotFoundError
from app.evaluator.curves import StepSeries
from app.evaluator.measurements import ALL_SPLITS
from app.evaluator.scoring import SCORER_VERSION
from app.evaluator.strategies import Strategy
from app.files.csv_fields import format_field
from app.services.snapshots import get_snapshot, list_splits

MIN_RANKED_QUESTIONS = 20


class UnknownBoardError(NotFoundError):
    """No such split, model or benchmark on this snapshot."""

    code = "unknown_board"
    title = "No such board"


@dataclass(frozen=True)
class BoardRow:
    """One method on a board: its current published submission, else its latest published one.

    `rank` is None with a `rank_reason`: `control` (the oracle, the constants, random settings), `too_few_questions`
    (every cell of the board has fewer than 20), `no_potential` (realised potential is undefined there).
    """

    rank: int | None
    rank_reason: str | None
    submission_id: str
    method: str
    team: str
    is_control: bool
    strategy: Strategy
    n_settings: int
    realised_potential: float | None
    area: float
    uninformed_area: float
    oracle_area: float
    gap: float
    max_accuracy: float
    beta_match: float | None
    tokens_saved: float | None
    accuracy_25: float
    accuracy_50: float
    accuracy_75: float
    best_e3: float | None
    reason: str | None
    scorer_version: str
    actions_sha256: str
    published_at: datetime


@dataclass(frozen=True)
class Leaderboard:
    """All rows of one board, best first. Ranks are by point estimate, hence provisional, until intervals exist."""

    snapshot: str
    snapshot_sha256: str
    kind: str
    split: str
    strategy: Strategy
    model: str | None
    benchmark: str | None
    scorer_version: str
    ranks_are_provisional: bool
    rows: tuple[BoardRow, ...]


def get_leaderboard(
    session: Session, *, snapshot: str, split: str, strategy: Strategy, model: str | None, benchmark: str | None
) -> Leaderboard:
    """Return the board of a snapshot, split and strategy: whole, of one model, of one benchmark, or of one cell.

    Order: realised potential, full precision, highest first; where it is undefined, after those, by area; ties by
    earlier publication.
    """
    row = get_snapshot(session, snapshot)
    _check_board(session, row, split=split, model=model, benchmark=benchmark)
    query = _board_query(row.id, split=split, strategy=strategy, model=model, benchmark=benchmark)
    rows = tuple(_read_row(found, strategy) for found in session.execute(query).mappings())
    questions = _most_questions(session, row.id, split=split, benchmark=benchmark)
    return Leaderboard(
        snapshot=row.name,
        snapshot_sha256=row.full_sha256,
        kind=row.kind,
        split=split,
        strategy=strategy,
        model=model,
        benchmark=benchmark,
        scorer_version=SCORER_VERSION,
        ranks_are_provisional=True,
        rows=assign_ranks(rows, most_questions=questions),
    )


def list_board_curves(session: Session, leaderboard: Leaderboard) -> dict[str, StepSeries]:
    """Return the method curve of every row on the board, by submission."""
    query = (
        select(models.Score.submission_id, models.BoardScore.curve_beta, models.BoardScore.curve_accuracy)
        .join(models.BoardScore, models.BoardScore.score_id == models.Score.id)
        .where(
            models.Score.submission_id.in_([row.submission_id for row in leaderboard.rows]),
            models.Score.scorer_version == leaderboard.scorer_version,
            models.BoardScore.model.is_not_distinct_from(leaderboard.model),
            models.BoardScore.benchmark.is_not_distinct_from(leaderboard.benchmark),
        )
    )
    return {
        submission_id: StepSeries(beta=np.array(beta), accuracy=np.array(accuracy))
        for submission_id, beta, accuracy in session.execute(query)
    }


def assign_ranks(rows: Sequence[BoardRow], *, most_questions: int) -> tuple[BoardRow, ...]:
    """Give each row its rank: 1 + the number of ranked methods with a strictly larger realised potential.

    Equal figures share a rank. Controls and rows without a realised potential have none, and none has one on a board
    whose largest cell has fewer than 20 questions. `rows` come best first.
    """
    ranked: list[BoardRow] = []
    n_ahead, n_seen, last = 0, 0, None
    for row in rows:
        reason = _find_rank_reason(row, most_questions=most_questions)
        if reason is not None:
            ranked.append(replace(row, rank=None, rank_reason=reason))
            continue
        if row.realised_potential != last:
            n_ahead, last = n_seen, row.realised_potential
        n_seen += 1
        ranked.append(replace(row, rank=n_ahead + 1, rank_reason=None))
    return tuple(ranked)


CSV_COLUMNS = (
    "rank",
    "rank_reason",
    "method",
    "team",
    "is_control",
    "n_settings",
    "realised_potential",
    "area",
    "uninformed_area",
    "oracle_area",
    "gap",
    "max_accuracy",
    "beta_match",
    "tokens_saved",
    "accuracy_25",
    "accuracy_50",
    "accuracy_75",
    "best_e3",
    "reason",
    "published_at",
    "submission_id",
    "actions_sha256",
)
BOARD_COLUMNS = ("snapshot", "snapshot_sha256", "kind", "split", "strategy", "model", "benchmark", "scorer_version")


def format_csv(leaderboard: Leaderboard) -> str:
    """Return the board as CSV: the digits of the JSON, an empty field for an undefined value.

    Text that a spreadsheet would run as a formula is preceded by an apostrophe.
    """
    board = [format_field(getattr(leaderboard, name)) for name in BOARD_COLUMNS]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    writer.writerow([*CSV_COLUMNS, *BOARD_COLUMNS])
    for row in leaderboard.rows:
        writer.writerow([*(format_field(getattr(row, name)) for name in CSV_COLUMNS), *board])
    return written.getvalue()


def _find_rank_reason(row: BoardRow, *, most_questions: int) -> str | None:
    if row.is_control:
        return "control"
    if most_questions < MIN_RANKED_QUESTIONS:
        return "too_few_questions"
    return "no_potential" if row.realised_potential is None else None


def _board_query(
    snapshot_id: int, *, split: str, strategy: Strategy, model: str | None, benchmark: str | None
) -> Select[Any]:
    submission, score, board = models.Submission, models.Score, models.BoardScore
    # The submission that stands for its method: the current one, else the latest published.
    place = func.row_number().over(
        partition_by=submission.method_id,
        order_by=(
            submission.is_current.desc(),
            submission.published_at.desc(),
            submission.created_at.desc(),
            submission.id,
        ),
    )
    candidates = (
        select(
            board,
            submission.id.label("submission_id"),
            submission.actions_sha256,
            submission.published_at,
            submission.created_at.label("submitted_at"),
            models.Method.name.label("method"),
            (models.Method.is_control | models.Team.is_control).label("is_control"),
            models.Team.name.label("team"),
            score.scorer_version,
            place.label("place"),
        )
        .join(score, and_(score.id == board.score_id, score.scorer_version == SCORER_VERSION))
        .join(submission, submission.id == score.submission_id)
        .join(models.Method, models.Method.id == submission.method_id)
        .join(models.Team, models.Team.id == models.Method.team_id)
        .where(
            submission.snapshot_id == snapshot_id,
            submission.split == split,
            submission.strategy == strategy.value,
            submission.state == "published",
            board.model.is_not_distinct_from(model),
            board.benchmark.is_not_distinct_from(benchmark),
        )
        .subquery()
    )
    shown = [f.name for f in fields(BoardRow) if f.name in candidates.c]
    return (
        select(*(candidates.c[name] for name in shown))
        .where(candidates.c.place == 1)
        .order_by(
            candidates.c.realised_potential.desc().nulls_last(),
            candidates.c.area.desc(),
            candidates.c.submitted_at,
            candidates.c.submission_id,
        )
    )


def _read_row(found: Any, strategy: Strategy) -> BoardRow:
    computed: dict[str, Any] = {"rank": None, "rank_reason": None, "strategy": strategy}
    return BoardRow(**computed, **{f.name: found[f.name] for f in fields(BoardRow) if f.name not in computed})


def _check_board(
    session: Session, snapshot: models.Snapshot, *, split: str, model: str | None, benchmark: str | None
) -> None:
    if split not in list_splits(session, snapshot):
        raise UnknownBoardError(f"Snapshot {snapshot.name} has no question in a split {split!r}.")
    named: Iterable[tuple[str, str | None, type[models.SnapshotModel | models.SnapshotBenchmark]]] = (
        ("model", model, models.SnapshotModel),
        ("benchmark", benchmark, models.SnapshotBenchmark),
    )
    for word, name, table in named:
        if name is None:
            continue
        known = select(table.id).where(table.snapshot_id == snapshot.id, table.name == name)
        if session.scalar(known) is None:
            raise UnknownBoardError(f"Snapshot {snapshot.name} has no {word} {name!r}.")


def _most_questions(session: Session, snapshot_id: int, *, split: str, benchmark: str | None) -> int:
    """Return the questions of the board's largest cell: a cell has the questions of its benchmark in the split."""
    question, table = models.Question, models.SnapshotBenchmark
    counts = (
        select(func.count().label("n"))
        .select_from(question)
        .join(table, table.id == question.benchmark_id)
        .where(question.snapshot_id == snapshot_id)
        .group_by(question.benchmark_id)
    )
    if split != ALL_SPLITS:
        counts = counts.where(question.split == split)
    if benchmark is not None:
        counts = counts.where(table.name == benchmark)
    return int(session.scalar(select(func.max(counts.subquery().c.n))) or 0)
