"""Ranks by paired differences: computed by a job whenever something is published or withdrawn, and stored."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session, sessionmaker

from app.db import models
from app.evaluator.strategies import Strategy
from app.evaluator.told_intervals import ToldPotential
from app.services import jobs
from app.services.board_versions import get_board_version
from app.services.leaderboard import find_most_questions, find_rank_reason, select_standing
from app.services.question_counts import count_questions
from app.services.release import POTENTIAL_COLUMNS, find_told_potential, rank_methods

logger = logging.getLogger(__name__)

Sessions = sessionmaker[Session]
BoardNames = tuple[str | None, str | None]
COLUMNS = (
    "board_score_id",
    "model",
    "benchmark",
    "is_control",
    "flag_reason",
    "realised_potential",
    "interval_id",
    "rank",
    "n_ranked",
    *POTENTIAL_COLUMNS,
)


@dataclass(frozen=True)
class _Standing:
    """A method that takes a rank on a board, and what is stored of it there."""

    board_score_id: int
    interval_id: int | None
    n_ranked: int | None
    told: ToldPotential


def rank_boards(sessions: Sessions, snapshot_id: int, *, split: str, strategy: Strategy) -> int:
    """Store the ranks of every board of a split and strategy that lacks them, and return on how many boards.

    A board on which some method has no intervals yet keeps provisional ranks: the job comes again once it has. A board
    whose stored ranks are of the methods that stand there now is left as it is. Ranks of methods that stand there no
    longer are removed. Each board is stored by itself; where a job waits that goes ahead of this one, the rest is
    queued again. What is published meanwhile queues a job of its own. Boards of every scorer version are ranked, each
    by itself and the one shown first: those of a re-scoring can be seen before it is applied, and older ones stay.
    """
    with sessions.begin() as session:
        versions = _list_versions(session, snapshot_id, split=split, strategy=strategy)
        boards = {
            (version, *names): standing
            for version in versions
            for names, standing in _list_standing(
                session, snapshot_id, split=split, strategy=strategy, scorer_version=version
            ).items()
        }
        _remove_stale(session, snapshot_id, boards.values(), split=split, strategy=strategy)
    n_ranked = 0
    for standing in boards.values():
        is_current = all(one.n_ranked == len(standing) for one in standing)
        if is_current or any(one.interval_id is None for one in standing):
            continue
        with sessions.begin() as session:
            if n_ranked > 0 and jobs.is_ahead(session, priority=jobs.RANKING_PRIORITY):
                jobs.defer_ranking(session, snapshot_id, split=split, strategy=strategy)
                break
            n_ranked += _rank_board(session, standing)
    return n_ranked


def _list_versions(session: Session, snapshot_id: int, *, split: str, strategy: Strategy) -> list[str]:
    """Return the scorer versions of what is published, that which the boards show first."""
    submission, score = models.Submission, models.Score
    query = (
        select(score.scorer_version)
        .join(submission, submission.id == score.submission_id)
        .where(
            submission.snapshot_id == snapshot_id,
            submission.split == split,
            submission.strategy == strategy.value,
            submission.state == "published",
        )
        .distinct()
    )
    shown = get_board_version(session, snapshot_id, split=split, strategy=strategy)
    return sorted(session.scalars(query), key=lambda version: (version != shown, version))


def _list_standing(
    session: Session, snapshot_id: int, *, split: str, strategy: Strategy, scorer_version: str
) -> Mapping[BoardNames, list[_Standing]]:
    """Return the methods that take a rank, best first, by board."""
    snapshot = session.get_one(models.Snapshot, snapshot_id)
    counts = count_questions(session, snapshot)
    boards: dict[BoardNames, list[_Standing]] = defaultdict(list)
    query = select_standing(snapshot_id, split=split, strategy=strategy, scorer_version=scorer_version, columns=COLUMNS)
    for row in session.execute(query):
        questions = find_most_questions(counts, split=split, benchmark=row.benchmark)
        told = find_told_potential(snapshot, row, split=split, strategy=strategy)
        if told is None or find_rank_reason(row, most_questions=questions) is not None:
            continue
        standing = _Standing(row.board_score_id, row.interval_id, row.n_ranked, told)
        boards[row.model, row.benchmark].append(standing)
    return boards


def _remove_stale(
    session: Session,
    snapshot_id: int,
    boards: Iterable[Sequence[_Standing]],
    *,
    split: str,
    strategy: Strategy,
) -> None:
    """Remove ranks of submissions that were withdrawn or gave way to another one of their method."""
    submission, score, board = models.Submission, models.Score, models.BoardScore
    ranked = (
        select(board.id)
        .join(score, score.id == board.score_id)
        .join(submission, submission.id == score.submission_id)
        .join(models.BoardRank, models.BoardRank.board_score_id == board.id)
        .where(submission.snapshot_id == snapshot_id, submission.split == split, submission.strategy == strategy.value)
    )
    standing = {one.board_score_id for rows in boards for one in rows}
    stale = set(session.scalars(ranked)) - standing
    if stale:
        session.execute(delete(models.BoardRank).where(models.BoardRank.board_score_id.in_(stale)))


def _rank_board(session: Session, standing: Sequence[_Standing]) -> bool:
    """Rank the methods of one board, unless they were resampled with different numbers of replicates."""
    values = _load_replicates(session, [one.board_score_id for one in standing])
    if len({len(row) for row in values}) != 1:
        logger.warning("methods of one board have different numbers of replicates and cannot be compared")
        return False
    ranks = [int(rank) for rank in rank_methods([one.told for one in standing], values)]
    table = models.BoardRank
    ensured = insert(table).values(list(_describe_ranks(standing, ranks)))
    updated = {name: ensured.excluded[name] for name in ("rank", "last_rank", "n_ranked")}
    session.execute(
        ensured.on_conflict_do_update(index_elements=["board_score_id"], set_={**updated, "created_at": func.now()})
    )
    return True


def _describe_ranks(standing: Sequence[_Standing], ranks: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield the rows to store: the methods of a rank take up as many places as they are."""
    sharing = Counter(ranks)
    for one, rank in zip(standing, ranks, strict=True):
        yield {
            "board_score_id": one.board_score_id,
            "rank": rank,
            "last_rank": min(rank + sharing[rank] - 1, len(ranks)),
            "n_ranked": len(ranks),
        }


def _load_replicates(session: Session, board_score_ids: Sequence[int]) -> list[np.ndarray[Any, np.dtype[np.float64]]]:
    """Return the realised potential of each submission in every replicate, in the order asked for."""
    table = models.BoardInterval
    query = select(table.board_score_id, table.replicates).where(table.board_score_id.in_(board_score_ids))
    found = {key: np.frombuffer(stored, dtype="<f8") for key, stored in session.execute(query)}
    return [found[key] for key in board_score_ids]
