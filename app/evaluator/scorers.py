"""The scorers that this program has, by version."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from app.evaluator.measurements import Measurements
from app.evaluator.reference import CellReference
from app.evaluator.scoring import SCORER_VERSION, Score, score_actions
from app.evaluator.strategies import ActionTable

Scorer = Callable[[Measurements, ActionTable, Sequence[CellReference]], Score]

SCORERS: dict[str, Scorer] = {SCORER_VERSION: score_actions}
"""By version, oldest first; the last one is in force. A release whose figures differ takes the place of the one here:
scores of older versions are kept, and made by the program that had them."""


def current_scorer_version() -> str:
    """Return the version of the scorer in force: what is scored now gets this version.

    Examples
    --------
    >>> current_scorer_version() == SCORER_VERSION
    True
    """
    return next(reversed(SCORERS))


def score_currently(measurements: Measurements, table: ActionTable, references: Sequence[CellReference]) -> Score:
    """Score the actions of a file with the scorer in force; see `score_actions`."""
    return SCORERS[current_scorer_version()](measurements, table, references)
