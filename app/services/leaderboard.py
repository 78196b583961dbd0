"""The board: one ranking query behind page, REST, CSV and badge."""

from __future__ import annotations

import csv
import io
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from sqlalchemy import ColumnElement, RowMapping, Select, and_, func, select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import NotFoundError
from app.evaluator.centring import INTERVAL_VERSION
from app.evaluator.curves import StepSeries
from app.evaluator.measurements import ALL_SPLITS
from app.evaluator.scorers import current_scorer_version
from app.evaluator.scoring import NO_POTENTIAL
from app.evaluator.strategies import Strategy
from app.files.csv_fields import format_field
from app.services.accounts import Identity
from app.services.anonymity import is_anonymous, shown_link, shown_team
from app.services.board_versions import get_board_version
from app.services.question_counts import count_questions
from app.services.release import (
    RELEASE_COLUMNS,
    are_labels_told,
    is_held,
    list_board_series,
    release_rows,
    require_told_version,
)
from app.services.snapshots import get_snapshot, list_splits
from app.services.successors import find_successor

MIN_RANKED_QUESTIONS = 20


class UnknownBoardError(NotFoundError):
    """No such split, model or benchmark on this snapshot."""

    code = "unknown_board"
    title = "No such board"


@dataclass(frozen=True)
class BoardRow:
    """One method on a board: its current published submission, else its latest published one.

    `rank` is None with a `rank_reason`: `control` (the oracle, the constants, random settings), `flagged` (an organiser
    says in `flag_reason` what is wrong), `too_few_questions` (every cell of the board has fewer than 20),
    `no_potential` (realised potential is undefined there). Methods that share a rank take up the places from `rank` to
    `last_rank`. The ends of the 95 % interval are None until there is one, and where there is none. A baseline is
    ranked like any other method.
    """

    rank: int | None
    last_rank: int | None
    rank_reason: str | None
    submission_id: str
    method: str
    version: str | None
    team: str
    is_anonymous: bool
    is_control: bool
    is_baseline: bool
    is_verified: bool
    flag_reason: str | None
    code_url: str | None
    strategy: Strategy
    n_settings: int
    realised_potential: float | None
    realised_potential_low: float | None
    realised_potential_high: float | None
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
    """All rows of one board, best first.

    Ranks are those of paired differences that a job has stored. Where it has not yet, for just these rows, they are
    provisional: by point estimate. `superseded_by` names the snapshot that takes the place of this one. All rows have
    one `scorer_version`; where the server now scores with another one, `newer_scorer_version` names that, and
    `n_waiting` is the number of methods that are published and have a score of that version only.
    """

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
    superseded_by: str | None = None
    newer_scorer_version: str | None = None
    n_waiting: int = 0


COMPUTED_FIELDS = ("rank_reason", "strategy")
SHOWN_COLUMNS = (*(f.name for f in fields(BoardRow) if f.name not in COMPUTED_FIELDS), "n_ranked")
FOUND_FIELDS = tuple(f.name for f in fields(BoardRow) if f.name not in (*COMPUTED_FIELDS, "rank", "last_rank"))


def get_leaderboard(
    session: Session,
    *,
    snapshot: str,
    split: str,
    strategy: Strategy,
    model: str | None,
    benchmark: str | None,
    scorer_version: str | None = None,
    reader: Identity | None = None,
    now: datetime | None = None,
) -> Leaderboard:
    """Return the board of a snapshot, split and strategy: whole, of one model, of one benchmark, or of one cell.

    Its scorer version is the one that the boards show unless another one is asked for, which a hidden split refuses.

    Order: realised potential as it is told (full precision on open splits), highest first; where there is none, after
    those, by area; ties by earlier submission. A team that is anonymous `now` is named to itself and to organisers
    only.
    """
    row = get_snapshot(session, snapshot)
    shown = get_board_version(session, row.id, split=split, strategy=strategy)
    require_told_version(row, split, asked=scorer_version, shown=shown)
    return load_leaderboard(
        session,
        row,
        split=split,
        strategy=strategy,
        model=model,
        benchmark=benchmark,
        version=scorer_version or shown,
        reader=reader,
        now=now,
    )


def load_leaderboard(
    session: Session,
    row: models.Snapshot,
    *,
    split: str,
    strategy: Strategy,
    model: str | None,
    benchmark: str | None,
    version: str,
    reader: Identity | None = None,
    now: datetime | None = None,
) -> Leaderboard:
    """Return the board as `get_leaderboard` does, of whatever version: an organiser looks at one that is not shown."""
    _check_board(session, row, split=split, model=model, benchmark=benchmark)
    query = select_standing(
        row.id,
        models.BoardScore.model.is_not_distinct_from(model),
        models.BoardScore.benchmark.is_not_distinct_from(benchmark),
        split=split,
        strategy=strategy,
        scorer_version=version,
        columns=(*SHOWN_COLUMNS, *(() if are_labels_told(row, split) else RELEASE_COLUMNS)),
        reader=reader,
        now=now,
    )
    found = session.execute(query).mappings().all()
    questions = find_most_questions(count_questions(session, row), split=split, benchmark=benchmark)
    exact = [_read_row(one, strategy) for one in found]
    released = release_rows(session, row, exact, found, split=split, strategy=strategy)
    rows = assign_ranks(released, most_questions=questions)
    ranked = take_stored_ranks(rows, {one["submission_id"]: read_rank(one) for one in found})
    newer = None if version == current_scorer_version() else current_scorer_version()
    return Leaderboard(
        snapshot=row.name,
        snapshot_sha256=row.full_sha256,
        kind=row.kind,
        split=split,
        strategy=strategy,
        model=model,
        benchmark=benchmark,
        scorer_version=version,
        ranks_are_provisional=ranked is None,
        rows=rows if ranked is None else ranked,
        superseded_by=find_successor(session, row),
        newer_scorer_version=newer,
        n_waiting=0
        if newer is None
        else _count_waiting(session, row.id, split=split, strategy=strategy, shown=version),
    )


def list_board_curves(session: Session, leaderboard: Leaderboard) -> dict[str, StepSeries]:
    """Return the method curve of every row on the board as it may be told, by submission.

    The rows may be those of a wider board: what is held back on this one, or too small here, is left out.
    """
    query = (
        select(models.Score.submission_id, models.BoardScore, models.Snapshot)
        .join(models.BoardScore, models.BoardScore.score_id == models.Score.id)
        .join(models.Submission, models.Submission.id == models.Score.submission_id)
        .join(models.Snapshot, models.Snapshot.id == models.Submission.snapshot_id)
        .where(
            models.Score.submission_id.in_([row.submission_id for row in leaderboard.rows]),
            models.Score.scorer_version == leaderboard.scorer_version,
            models.BoardScore.model.is_not_distinct_from(leaderboard.model),
            models.BoardScore.benchmark.is_not_distinct_from(leaderboard.benchmark),
            ~is_held(models.Submission, models.BoardScore),
        )
    )
    rows = session.execute(query).all()
    if not rows:
        return {}
    found = [(submission_id, row) for submission_id, row, _ in rows]
    return list_board_series(rows[0].Snapshot, found, split=leaderboard.split, strategy=leaderboard.strategy)


def assign_ranks(rows: Sequence[BoardRow], *, most_questions: int) -> tuple[BoardRow, ...]:
    """Give each row a provisional rank: 1 + the number of ranked methods with a strictly larger realised potential.

    Equal figures share a rank. Controls, flagged rows and those without a realised potential have none, and none has
    one on a board whose largest cell has fewer than 20 questions. `rows` come best first.
    """
    reasons = [_explain_no_rank(row, most_questions=most_questions) for row in rows]
    potentials = [row.realised_potential for row, reason in zip(rows, reasons, strict=True) if reason is None]
    n_sharing = Counter(potentials)
    # Best first, so that whoever is ahead stands before the first of this figure.
    n_ahead = {potential: idx for idx, potential in reversed(list(enumerate(potentials)))}
    ranked: list[BoardRow] = []
    for row, reason in zip(rows, reasons, strict=True):
        if reason is not None:
            ranked.append(replace(row, rank=None, last_rank=None, rank_reason=reason))
            continue
        ahead = n_ahead[row.realised_potential]
        last = ahead + n_sharing[row.realised_potential]
        ranked.append(replace(row, rank=ahead + 1, last_rank=last, rank_reason=None))
    return tuple(ranked)


def _explain_no_rank(row: BoardRow, *, most_questions: int) -> str | None:
    """Return why a row takes no rank: without a realised potential, why it has none."""
    reason = find_rank_reason(row, most_questions=most_questions)
    return row.reason or reason if reason == NO_POTENTIAL else reason


def find_most_questions(counts: Mapping[tuple[str, str], int], *, split: str, benchmark: str | None) -> int:
    """Return the questions of a board's largest cell: a cell has the questions of its benchmark in the split.

    `counts` are the questions of each benchmark in each split.
    """
    totals: dict[str, int] = defaultdict(int)
    for (name, of_split), n_questions in counts.items():
        if split in (ALL_SPLITS, of_split) and benchmark in (None, name):
            totals[name] += n_questions
    return max(totals.values(), default=0)


@dataclass(frozen=True)
class StoredRank:
    """A rank by paired differences, and among how many methods it was found."""

    rank: int
    last_rank: int
    n_ranked: int


def read_rank(found: RowMapping) -> StoredRank | None:
    """Return the stored rank in a row of the ranking query, or None."""
    if found["rank"] is None:
        return None
    return StoredRank(found["rank"], found["last_rank"], found["n_ranked"])


def take_stored_ranks(rows: Sequence[BoardRow], stored: Mapping[str, StoredRank | None]) -> tuple[BoardRow, ...] | None:
    """Return the rows by their stored ranks, within one in the order they had; None unless those are of these rows.

    They are when every row that has a rank at all has a stored one, found among as many methods: one that was published
    or withdrawn since makes them stale.
    """
    places = [idx for idx, row in enumerate(rows) if row.rank is not None]
    ranked: list[BoardRow] = []
    for row in (rows[idx] for idx in places):
        known = stored.get(row.submission_id)
        if known is None or known.n_ranked != len(places):
            return None
        ranked.append(replace(row, rank=known.rank, last_rank=known.last_rank))
    ranked.sort(key=lambda row: row.rank or 0)
    shown = list(rows)
    # Rows without a rank stay where they are.
    for idx, row in zip(places, ranked, strict=True):
        shown[idx] = row
    return tuple(shown)


CSV_COLUMNS = (
    "rank",
    "last_rank",
    "rank_reason",
    "method",
    "version",
    "team",
    "is_anonymous",
    "is_control",
    "is_baseline",
    "is_verified",
    "flag_reason",
    "code_url",
    "n_settings",
    "realised_potential",
    "realised_potential_low",
    "realised_potential_high",
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
BOARD_COLUMNS = (
    "snapshot",
    "snapshot_sha256",
    "kind",
    "split",
    "strategy",
    "model",
    "benchmark",
    "scorer_version",
    "ranks_are_provisional",
    "superseded_by",
    "newer_scorer_version",
    "n_waiting",
)


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


class Standing(Protocol):
    """What decides whether a row takes a rank at all: a row of the board, or of the ranking query."""

    @property
    def is_control(self) -> bool: ...
    @property
    def flag_reason(self) -> str | None: ...
    @property
    def realised_potential(self) -> float | None: ...


def find_rank_reason(row: Standing, *, most_questions: int) -> str | None:
    """Return why a row takes no rank on a board whose largest cell has so many questions, or None where it does."""
    if row.is_control:
        return "control"
    if row.flag_reason is not None:
        return "flagged"
    if most_questions < MIN_RANKED_QUESTIONS:
        return "too_few_questions"
    return NO_POTENTIAL if row.realised_potential is None else None


def select_standing(
    snapshot_id: int,
    *conditions: ColumnElement[bool],
    split: str,
    strategy: Strategy,
    scorer_version: str,
    columns: Collection[str],
    reader: Identity | None = None,
    now: datetime | None = None,
) -> Select[Any]:
    """Return the ranking query: the rows of the boards that meet the conditions, one a method, best first.

    Only scores of one version are compared; a submission without a score of it does not stand, nor does one on a board
    that is held back. The submission that stands for its method on a board is the current one, else the latest
    published there. Teams are named as `reader` may see them at the time `now`.
    """
    now = now or datetime.now(UTC)
    submission, score, board = models.Submission, models.Score, models.BoardScore
    interval, rank = models.BoardInterval, models.BoardRank
    place = func.row_number().over(
        partition_by=(submission.method_id, board.model, board.benchmark),
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
            board.id.label("board_score_id"),
            submission.id.label("submission_id"),
            submission.actions_sha256,
            submission.is_verified,
            submission.flag_reason,
            submission.published_at,
            submission.created_at.label("submitted_at"),
            models.Method.name.label("method"),
            (models.Method.is_control | models.Team.is_control).label("is_control"),
            models.Method.is_baseline,
            shown_link(models.Method.code_url, reader, now=now).label("code_url"),
            shown_team(reader, now=now).label("team"),
            is_anonymous(now).label("is_anonymous"),
            submission.version,
            score.scorer_version,
            interval.id.label("interval_id"),
            interval.realised_potential_low,
            interval.realised_potential_high,
            rank.rank,
            rank.last_rank,
            rank.n_ranked,
            place.label("place"),
        )
        .join(score, and_(score.id == board.score_id, score.scorer_version == scorer_version))
        .join(submission, submission.id == score.submission_id)
        .join(models.Method, models.Method.id == submission.method_id)
        .join(models.Team, models.Team.id == models.Method.team_id)
        .outerjoin(interval, and_(interval.board_score_id == board.id, interval.version == INTERVAL_VERSION))
        .outerjoin(rank, rank.board_score_id == board.id)
        .where(
            submission.snapshot_id == snapshot_id,
            submission.split == split,
            submission.strategy == strategy.value,
            submission.state == "published",
            ~is_held(submission, board),
            *conditions,
        )
        .subquery()
    )
    return (
        select(*(candidates.c[name] for name in columns))
        .where(candidates.c.place == 1)
        .order_by(
            candidates.c.realised_potential.desc().nulls_last(),
            candidates.c.area.desc(),
            candidates.c.submitted_at,
            candidates.c.submission_id,
        )
    )


def _count_waiting(session: Session, snapshot_id: int, *, split: str, strategy: Strategy, shown: str) -> int:
    """Return how many methods have something published and nothing of it scored by the version shown."""
    submission, score = models.Submission, models.Score
    published = (
        submission.snapshot_id == snapshot_id,
        submission.split == split,
        submission.strategy == strategy.value,
        submission.state == "published",
    )
    standing = (
        select(submission.method_id)
        .join(score, score.submission_id == submission.id)
        .where(*published, score.scorer_version == shown)
    )
    query = select(func.count(submission.method_id.distinct())).where(*published, submission.method_id.not_in(standing))
    return int(session.scalar(query) or 0)


def _read_row(found: Any, strategy: Strategy) -> BoardRow:
    computed: dict[str, Any] = {"rank": None, "last_rank": None, "rank_reason": None, "strategy": strategy}
    return BoardRow(**computed, **{name: found[name] for name in FOUND_FIELDS})


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
