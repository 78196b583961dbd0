"""Which of several curves make up their common frontier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.plots.steps import Steps, sample_steps


def find_leading(curves: Sequence[Steps]) -> list[bool]:
    """Return of each curve whether at some budget up to the full one no other is above it.

    All start at the same point without thinking, so a budget counts only where the curve lies above its own beginning.
    Curves none of which rises lead all of them.

    Examples
    --------
    The first is higher up to half of the tokens, the second from there on; the third lies below one or the other.

    >>> from app.plots.steps import ReducedSteps
    >>> def curve(beta, accuracy): return ReducedSteps(np.array(beta), np.array(accuracy))
    >>> low, high = curve([0.0, 0.2], [0.1, 0.4]), curve([0.0, 0.5], [0.1, 0.7])
    >>> find_leading([low, high, curve([0.0, 0.3], [0.1, 0.3])])
    [True, True, False]
    """
    if not curves:
        return []
    budgets = np.unique(np.concatenate([curve.beta[curve.beta <= 1] for curve in curves]))
    values = np.stack([sample_steps(curve, budgets) for curve in curves])
    rises = values > values[:, :1]
    if not rises.any():
        return [True] * len(curves)
    leads: list[bool] = (rises & (values == values.max(axis=0))).any(axis=1).tolist()
    return leads
