"""Step curves for the eye: fewer points, no visible step moved; and values of a step curve at given budgets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

LOG_START = 1e-3  # where a logarithmic budget axis begins


class Steps(Protocol):
    """A right-continuous step curve: relative budgets (0 first, rising) and the accuracy from each of them on."""

    @property
    def beta(self) -> FloatArray:
        """Relative budgets in [0, 1]."""

    @property
    def accuracy(self) -> FloatArray:
        """Accuracies in [0, 1], rising."""


@dataclass(frozen=True, eq=False)
class ReducedSteps:
    """A step curve with the points a plot needs."""

    beta: FloatArray
    accuracy: FloatArray


def reduce_steps(
    steps: Steps, *, height_accuracy: float, width: int = 1000, height: int = 500, is_log: bool = False
) -> ReducedSteps:
    """Drop points of a step curve without moving any step by more than half a pixel; end the curve at budget 1.

    The first point stays. Of the points whose accuracy lies in one half-pixel level the first stays; of those that
    remain in one half-pixel column the last stays, moved nowhere. So at every budget the reduced curve has an accuracy
    that the full one takes within half a pixel to the left or right, to half a pixel up or down.

    Parameters
    ----------
    steps : the curve; points past budget 1 are left out.
    height_accuracy : the accuracies the plot's height spans, > 0.
    width, height : the plot's size in pixels.
    is_log : whether budgets are drawn on a logarithmic axis that begins at `LOG_START`.
    """
    inside = steps.beta <= 1.0
    beta, accuracy = steps.beta[inside], steps.accuracy[inside]
    levels = np.floor((accuracy - accuracy[0]) / height_accuracy * 2 * height)
    kept = np.flatnonzero(np.diff(levels, prepend=-1.0) > 0)
    if kept[-1] != len(beta) - 1:
        kept = np.append(kept, len(beta) - 1)
    columns = np.floor(_place(beta[kept], is_log=is_log) * 2 * width)
    last_in_column = np.diff(columns, append=np.inf) > 0
    last_in_column[0] = True
    kept = kept[last_in_column]
    if beta[kept[-1]] == 1.0:
        return ReducedSteps(beta[kept], accuracy[kept])
    return ReducedSteps(np.append(beta[kept], 1.0), np.append(accuracy[kept], accuracy[-1]))


def _place(beta: FloatArray, *, is_log: bool) -> FloatArray:
    """Return where budgets lie on the axis, as a share of its length."""
    if not is_log:
        return beta
    return np.asarray(1.0 - np.log10(np.maximum(beta, LOG_START)) / np.log10(LOG_START), dtype=np.float64)


def sample_steps(steps: Steps, budgets: FloatArray) -> FloatArray:
    """Return the curve's accuracy at these relative budgets: the value of its last step at or before each.

    Examples
    --------
    >>> sample_steps(ReducedSteps(np.array([0.0, 0.5]), np.array([0.1, 0.9])), np.array([0.0, 0.49, 0.5, 1.0])).tolist()
    [0.1, 0.1, 0.9, 0.9]
    """
    idx = np.searchsorted(steps.beta, budgets, side="right") - 1
    return np.asarray(steps.accuracy[np.maximum(idx, 0)], dtype=np.float64)
