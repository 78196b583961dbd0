"""What the plot of a board draws of its submissions besides their figures: curves, and points on a single cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from sqlalchemy import column, func, select, true
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.centring import INTERVAL_VERSION
from app.evaluator.curves import Curve, FloatArray, StepSeries
from app.evaluator.measurements import IntArray
from app.evaluator.strategies import Strategy
from app.plots.bands import Whisker
from app.plots.traces import OperatingPoint
from app.services.frontiers import EVALUATOR_VERSION, get_references
from app.services.measurements import is_closed
from app.services.release import (
    ReleasedFrontier,
    list_open,
    release_board_curve,
    release_frontier,
    require_told_labels,
)

# On a plot a thousand pixels wide and three decades long, a step then moves by less than two pixels.
LOG_BUDGETS_PER_DECADE = 200
MILLION = 1_000_000


@dataclass(frozen=True)
class BoardKey:
    """Which board of a submission's snapshot and split: None is all; a model and a benchmark together are one cell."""

    model: str | None
    benchmark: str | None

    @property
    def is_cell(self) -> bool:
        """Whether the board has one cell only."""
        return self.model is not None and self.benchmark is not None


WHOLE = BoardKey(model=None, benchmark=None)


def list_frontiers(
    session: Session, snapshot: models.Snapshot, *, split: str, board: BoardKey
) -> dict[Strategy, ReleasedFrontier]:
    """Return the frontiers of one board by strategy as they may be shown; none while they are computed.

    A row holds two curves of a thousand points, so only those of this board are read.
    """
    table = models.BoardFrontier
    query = select(table).where(
        table.snapshot_id == snapshot.id,
        table.split == split,
        table.evaluator_version == EVALUATOR_VERSION,
        table.model.is_not_distinct_from(board.model),
        table.benchmark.is_not_distinct_from(board.benchmark),
    )
    if is_closed(snapshot, split):
        return {}
    released = [release_frontier(snapshot, row) for row in session.scalars(query)]
    stored = {Strategy(row.strategy): row for row in released if row is not None}
    return {strategy: stored[strategy] for strategy in Strategy if strategy in stored}


def find_board_curve(
    session: Session, submission_id: str, *, board: BoardKey, scorer_version: str
) -> StepSeries | None:
    """Return a submission's curve on a board, or None where it is not scored or does not stand there."""
    query = (
        select(models.BoardScore)
        .join(models.Score, models.Score.id == models.BoardScore.score_id)
        .where(
            models.Score.submission_id == submission_id,
            models.Score.scorer_version == scorer_version,
            models.BoardScore.model.is_not_distinct_from(board.model),
            models.BoardScore.benchmark.is_not_distinct_from(board.benchmark),
        )
    )
    found = session.scalars(query).one_or_none()
    return None if found is None else release_board_curve(session, submission_id, found)


def sample_oracle(
    session: Session, snapshot: models.Snapshot, *, split: str, strategy: Strategy, board: BoardKey, data_dir: Path
) -> StepSeries:
    """Return a board's exact frontier at budgets that lie evenly on a logarithmic axis, and at no thinking.

    The stored frontier has even budgets, whose steps a logarithmic axis would widen at its beginning until the
    oracle seemed to lie below its own submission. Raises as `get_references`, and `HiddenLabelsError`.
    """
    require_told_labels(snapshot, split, what="its frontiers are told at even budgets only")
    references = get_references(session, snapshot, split=split, strategy=strategy, data_dir=data_dir)
    curves = [
        reference.frontier.curve
        for reference in references
        if board.model in (None, reference.frontier.model) and board.benchmark in (None, reference.frontier.benchmark)
    ]
    exponents = np.arange(-3 * LOG_BUDGETS_PER_DECADE, 1) / LOG_BUDGETS_PER_DECADE
    millionths = np.concatenate([[0], np.rint(MILLION * 10.0**exponents)]).astype(np.int64)
    accuracies = np.mean([_accuracy_at_millionths(curve, millionths) for curve in curves], axis=0)
    return StepSeries(millionths / MILLION, accuracies)


def _accuracy_at_millionths(curve: Curve, millionths: IntArray) -> FloatArray:
    """Return a cell's accuracies at relative budgets in millionths; costs are compared as integers."""
    budgets = millionths * curve.total_thinking_tokens // MILLION
    idx = np.searchsorted(curve.cost, budgets, side="right") - 1
    return np.asarray(curve.correct[idx] / curve.total_probes, dtype=np.float64)


def list_operating_points(
    session: Session, submission_ids: Sequence[str], *, board: BoardKey, scorer_version: str
) -> dict[str, tuple[OperatingPoint, ...]]:
    """Return the operating points of submissions on a board of one cell, in the order of their settings.

    On any other board there are none: a setting's mean point may spend different shares of the tokens in different
    cells, and so lie above a frontier that may not. Of hidden splits no settings are told.
    """
    submission_ids = list_open(session, submission_ids)
    if not board.is_cell or not submission_ids:
        return {}
    found: dict[str, list[OperatingPoint]] = defaultdict(list)
    settings = func.json_array_elements(models.Score.document["settings"]).table_valued(column("value", JSON))
    cells = func.json_array_elements(settings.c.value["cells"]).table_valued(column("value", JSON))
    cell = cells.c.value
    query = (
        select(models.Score.submission_id, settings.c.value["setting"].as_string(), cell)
        .select_from(models.Score)
        .join(settings, true())
        .join(cells, true())
        .where(
            models.Score.submission_id.in_(submission_ids),
            models.Score.scorer_version == scorer_version,
            cell["model"].as_string() == board.model,
            cell["benchmark"].as_string() == board.benchmark,
        )
    )
    for submission_id, setting, point in session.execute(query):
        figures = (point["beta"], point["accuracy"], point["mean_tokens"], point["gap"])
        found[submission_id].append(OperatingPoint(setting, *figures))
    return {submission_id: tuple(points) for submission_id, points in found.items()}


WHISKER_BUDGETS = {"0.25": 0.25, "0.5": 0.5, "0.75": 0.75}


def list_whiskers(
    session: Session, submission_ids: Sequence[str], *, board: BoardKey, scorer_version: str
) -> dict[str, tuple[Whisker, ...]]:
    """Return the stored intervals of the accuracies at a quarter, half and three quarters of the tokens.

    Of hidden splits there are none.
    """
    score, of, interval = models.Score, models.BoardScore, models.BoardInterval
    query = (
        select(score.submission_id, interval.intervals)
        .join(of, of.score_id == score.id)
        .join(interval, interval.board_score_id == of.id)
        .where(
            score.submission_id.in_(list_open(session, submission_ids)),
            score.scorer_version == scorer_version,
            interval.version == INTERVAL_VERSION,
            of.model.is_not_distinct_from(board.model),
            of.benchmark.is_not_distinct_from(board.benchmark),
        )
    )
    budgets = WHISKER_BUDGETS.items()
    return {
        submission_id: tuple(Whisker(budget, *ends) for name, budget in budgets if (ends := found["accuracy_at"][name]))
        for submission_id, found in session.execute(query)
    }
