"""What a re-scoring would change: figures and ranks of every board, the old beside the new."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.evaluator.strategies import Strategy
from app.services.accounts import Identity
from app.services.leaderboard import BoardRow, Leaderboard, load_leaderboard, select_standing
from app.services.release import FIGURE_COLUMNS, release_standing
from app.services.rescoring import RescoredBoard, RescoringStatus, UnknownRescoringError, get_rescoring
from app.services.snapshots import get_snapshot

COMPARED_FIGURES = (
    "realised_potential",
    "area",
    "gap",
    "max_accuracy",
    "beta_match",
    "tokens_saved",
    "accuracy_25",
    "accuracy_50",
    "accuracy_75",
    "best_e3",
)
MOST_LARGEST = 10
BoardKey = tuple[str | None, str | None]
Figures = dict[tuple[BoardKey, str], Any]


@dataclass(frozen=True)
class FigureChange:
    """How a method's realised potential changes on one board; None where it has none there."""

    split: str
    strategy: Strategy
    model: str | None
    benchmark: str | None
    submission_id: str
    method: str
    team: str
    old: float | None
    new: float | None


@dataclass(frozen=True)
class TargetChanges:
    """What changes on all boards of a split and strategy.

    `n_rows` rows stand there by the old version or by the new one; of those `n_figures_changed` have another figure,
    `n_added` stand there by the new version only (they were published meanwhile), `n_removed` by the old one only.
    """

    split: str
    strategy: Strategy
    from_version: str
    n_rows: int
    n_figures_changed: int
    n_added: int
    n_removed: int


@dataclass(frozen=True)
class RowChange:
    """A method's row by the old version and by the new one, either None where it does not stand."""

    old: BoardRow | None
    new: BoardRow | None
    changed: tuple[str, ...]

    @property
    def shown(self) -> BoardRow:
        """The newer of the rows there are."""
        row = self.new or self.old
        assert row is not None
        return row


@dataclass(frozen=True)
class BoardPreview:
    """One board by both versions, in the order of the new one. Ranks are those stored, else provisional."""

    split: str
    strategy: Strategy
    model: str | None
    benchmark: str | None
    old: Leaderboard
    new: Leaderboard
    rows: tuple[RowChange, ...]
    n_ranks_changed: int
    n_figures_changed: int


@dataclass(frozen=True)
class Preview:
    """What a re-scoring would change: counts for every split and strategy, the largest changes, one board in full."""

    rescoring: RescoringStatus
    targets: tuple[TargetChanges, ...]
    largest: tuple[FigureChange, ...]
    board: BoardPreview


def preview_rescoring(
    session: Session,
    rescoring_id: int,
    *,
    split: str | None = None,
    strategy: Strategy | None = None,
    model: str | None = None,
    benchmark: str | None = None,
    reader: Identity | None = None,
) -> Preview:
    """Return what a re-scoring changes, as far as its scores are made; `split` and `strategy` choose the board in full.

    Teams that are anonymous for now are named to `reader` where that is an organiser.

    Raises
    ------
    UnknownRescoringError : no such re-scoring, or it is not about boards of that split and strategy.
    """
    rescoring = get_rescoring(session, rescoring_id)
    shown = _choose(rescoring, split=split, strategy=strategy)
    targets, changes = [], []
    for board in rescoring.boards:
        old = _load_figures(session, rescoring, board, version=board.from_version, reader=reader)
        new = _load_figures(session, rescoring, board, version=rescoring.to_version, reader=reader)
        targets.append(_count_changes(board, old, new))
        changes += list(_list_changes(board, old, new))
    return Preview(
        rescoring=rescoring,
        targets=tuple(targets),
        largest=tuple(heapq.nlargest(MOST_LARGEST, changes, key=_size)),
        board=_compare_board(session, rescoring, shown, model=model, benchmark=benchmark, reader=reader),
    )


def _choose(rescoring: RescoringStatus, *, split: str | None, strategy: Strategy | None) -> RescoredBoard:
    for board in rescoring.boards:
        if split in (None, board.split) and strategy in (None, board.strategy):
            return board
    raise UnknownRescoringError(f"Re-scoring {rescoring.id} is not about split {split}, {strategy}.")


def _load_figures(
    session: Session, rescoring: RescoringStatus, board: RescoredBoard, *, version: str, reader: Identity | None
) -> Figures:
    """Return the figures of all boards of a split and strategy by board and submission, as they may be told."""
    snapshot = get_snapshot(session, rescoring.snapshot)
    columns = ("submission_id", "method", "team", *FIGURE_COLUMNS)
    query = select_standing(
        snapshot.id, split=board.split, strategy=board.strategy, scorer_version=version, columns=columns, reader=reader
    )
    found = session.execute(query).mappings().all()
    told = release_standing(session, snapshot, found, split=board.split, strategy=board.strategy)
    return {((row["model"], row["benchmark"]), row["submission_id"]): row for row in told}


def _count_changes(board: RescoredBoard, old: Figures, new: Figures) -> TargetChanges:
    both = old.keys() & new.keys()
    return TargetChanges(
        split=board.split,
        strategy=board.strategy,
        from_version=board.from_version,
        n_rows=len(old.keys() | new.keys()),
        n_figures_changed=sum(bool(_list_changed(old[key], new[key])) for key in both),
        n_added=len(new.keys() - old.keys()),
        n_removed=len(old.keys() - new.keys()),
    )


def _list_changed(old: Any, new: Any) -> tuple[str, ...]:
    return tuple(name for name in COMPARED_FIGURES if old[name] != new[name])


def _list_changes(board: RescoredBoard, old: Figures, new: Figures) -> Iterator[FigureChange]:
    for key in old.keys() & new.keys():
        (model, benchmark), submission_id = key
        before, after = old[key]["realised_potential"], new[key]["realised_potential"]
        if before != after:
            yield FigureChange(
                split=board.split,
                strategy=board.strategy,
                model=model,
                benchmark=benchmark,
                submission_id=submission_id,
                method=new[key]["method"],
                team=new[key]["team"],
                old=before,
                new=after,
            )


def _size(change: FigureChange) -> tuple[float, str, str, str]:
    """Order changes by size; a figure that comes or goes is larger than any other. Ties by name, for a fixed order."""
    size = float("inf") if change.old is None or change.new is None else abs(change.new - change.old)
    return size, change.submission_id, change.model or "", change.benchmark or ""


def _compare_board(
    session: Session,
    rescoring: RescoringStatus,
    board: RescoredBoard,
    *,
    model: str | None,
    benchmark: str | None,
    reader: Identity | None,
) -> BoardPreview:
    old, new = (
        load_leaderboard(
            session,
            get_snapshot(session, rescoring.snapshot),
            split=board.split,
            strategy=board.strategy,
            model=model,
            benchmark=benchmark,
            version=version,
            reader=reader,
        )
        for version in (board.from_version, rescoring.to_version)
    )
    rows = tuple(_pair_rows(old, new))
    return BoardPreview(
        split=board.split,
        strategy=board.strategy,
        model=model,
        benchmark=benchmark,
        old=old,
        new=new,
        rows=rows,
        n_ranks_changed=sum((_places(row.old) != _places(row.new)) for row in rows),
        n_figures_changed=sum(bool(row.changed) for row in rows),
    )


def _places(row: BoardRow | None) -> tuple[int | None, int | None]:
    return (None, None) if row is None else (row.rank, row.last_rank)


def _pair_rows(old: Leaderboard, new: Leaderboard) -> Iterator[RowChange]:
    """Yield the rows of both boards by submission: those of the new one in its order, then what is on the old only."""
    before = {row.submission_id: row for row in old.rows}
    for row in new.rows:
        known = before.pop(row.submission_id, None)
        changed = () if known is None else _list_changed(vars(known), vars(row))
        yield RowChange(known, row, changed)
    for row in before.values():
        yield RowChange(row, None, ())
