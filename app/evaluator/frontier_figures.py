"""What one mean frontier is like: where it matches full thinking, where and how high it ends, and its area."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from app.evaluator.curves import Curve, find_beta_match, find_beta_sat, max_accuracy, mean_area
from app.evaluator.reference import CellReference


@dataclass(frozen=True)
class FrontierFigures:
    """Figures of the mean frontier of some cells, fractions in 0..1.

    Attributes
    ----------
    endpoint_accuracy : A_full, the mean of the cells' accuracies at the end of thinking.
    beta_match : the least relative budget at which the frontier reaches it, or None if it never does.
    max_accuracy : the frontier at the full budget. beta_sat : the least budget at which it is there.
    area, uninformed_area : under the mean frontier and under the mean uninformed reference.
    """

    endpoint_accuracy: float
    beta_match: float | None
    max_accuracy: float
    beta_sat: float
    area: float
    uninformed_area: float


def summarise_frontier(references: Sequence[CellReference]) -> FrontierFigures:
    """Return the figures of the mean frontier of some cells under one strategy, all from exact fractions.

    Notes
    -----
    Section 3, equation 7. O(points of all cells).
    """
    curves: list[Curve] = [reference.frontier.curve for reference in references]
    full = [Fraction(reference.frontier.full_correct, reference.frontier.total_probes) for reference in references]
    full_accuracy = sum(full, start=Fraction(0)) / len(full)
    beta_match = find_beta_match(curves, full_accuracy)
    return FrontierFigures(
        endpoint_accuracy=float(full_accuracy),
        beta_match=None if beta_match is None else float(beta_match),
        max_accuracy=float(max_accuracy(curves)),
        beta_sat=float(find_beta_sat(curves)),
        area=float(mean_area(curves)),
        uninformed_area=float(mean_area([reference.uninformed for reference in references])),
    )
