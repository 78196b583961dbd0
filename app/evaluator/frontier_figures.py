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

    Examples
    --------
    One trajectory of 100 tokens, right at 1, 4 and 2 of 4 probes after 0, 40 and 100 of them: 40 % of the tokens reach
    full thinking's 2 of 4 and all there is, and the area is 0.4 x 1/4 + 0.6 x 4/4.

    >>> from app.evaluator.frontier import solve_frontiers
    >>> from app.evaluator.measurements import Measurements, build_cell
    >>> from app.evaluator.reference import build_references
    >>> from app.evaluator.strategies import Strategy
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (40, 4), (100, 2)]])], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    >>> early_exit = Strategy.DYNAMIC_EARLY_EXIT
    >>> figures = summarise_frontier(build_references(measurements, early_exit, solve_frontiers(measurements)))
    >>> figures.endpoint_accuracy, figures.beta_match, figures.max_accuracy, figures.beta_sat, figures.area
    (0.5, 0.4, 1.0, 0.4, 0.7)
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
