"""What the plot of a board draws of its submissions besides their figures: curves, and points on a single cell."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from sqlalchemy import column, func, select, true
from sqlalchemy.dialects.postgresql import JSON
from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.curves import StepSeries, mean_accuracy_at
from app.evaluator.scoring import SCORER_VERSION
from app.evaluator.strategies import Strategy
from app.plots.traces import OperatingPoint
from app.services.frontiers import get_references

# On a plot a thousand pixels wide and three decades long, a step then moves by less than two pixels.
LOG_BUDGETS_PER_DECADE = 200


@dataclass(frozen=True)
class BoardKey:
    """Which board of a submission's snapshot and split: None is all; a model and a benchmark together are one cell."""

    model: str | None
    benchmark: str | None

    @property
    def is_cell(self) -> bool:
        """Whether the board has one cell only."""
        return self.model is not None and self.benchmark is not None


def find_board_curve(session: Session, submission_id: str, *, board: BoardKey) -> StepSeries | None:
    """Return a submission's curve on a board, or None where it is not scored or does not stand there."""
    query = (
        select(models.BoardScore.curve_beta, models.BoardScore.curve_accuracy)
        .join(models.Score, models.Score.id == models.BoardScore.score_id)
        .where(
            models.Score.submission_id == submission_id,
            models.Score.scorer_version == SCORER_VERSION,
            models.BoardScore.model.is_not_distinct_from(board.model),
            models.BoardScore.benchmark.is_not_distinct_from(board.benchmark),
        )
    )
    found = session.execute(query).one_or_none()
    return None if found is None else StepSeries(np.array(found[0]), np.array(found[1]))


def sample_oracle(
    session: Session, snapshot: models.Snapshot, *, split: str, strategy: Strategy, board: BoardKey, data_dir: Path
) -> StepSeries:
    """Return a board's exact frontier at budgets that lie evenly on a logarithmic axis, and at no thinking.

    The stored frontier has even budgets, whose steps a logarithmic axis would widen at its beginning until the
    oracle seemed to lie below its own submission. Raises as `get_references`.
    """
    references = get_references(session, snapshot, split=split, strategy=strategy, data_dir=data_dir)
    curves = [
        reference.frontier.curve
        for reference in references
        if board.model in (None, reference.frontier.model) and board.benchmark in (None, reference.frontier.benchmark)
    ]
    exponents = range(-3 * LOG_BUDGETS_PER_DECADE, 1)
    budgets = [Fraction(0), *(Fraction(10 ** (i / LOG_BUDGETS_PER_DECADE)).limit_denominator(10**6) for i in exponents)]
    accuracies = [float(mean_accuracy_at(curves, budget)) for budget in budgets]
    return StepSeries(np.array([float(budget) for budget in budgets]), np.array(accuracies))


def list_operating_points(
    session: Session, submission_ids: Sequence[str], *, board: BoardKey
) -> dict[str, tuple[OperatingPoint, ...]]:
    """Return the operating points of submissions on a board of one cell, in the order of their settings.

    On any other board there are none: a setting's mean point may spend different shares of the tokens in different
    cells, and so lie above a frontier that may not.
    """
    if not board.is_cell:
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
            models.Score.scorer_version == SCORER_VERSION,
            cell["model"].as_string() == board.model,
            cell["benchmark"].as_string() == board.benchmark,
        )
    )
    for submission_id, setting, point in session.execute(query):
        found[submission_id].append(OperatingPoint(setting, point["beta"], point["accuracy"]))
    return {submission_id: tuple(points) for submission_id, points in found.items()}
