"""How long steps are: their distribution, their mean and how many are far longer than aimed at."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from app.evaluator.measurements import Cell, IntArray, Measurements

BIN_TOKENS = 32
LONG_STEP_TOKENS = 1024
NO_STEP = "no_step"


@dataclass(frozen=True, eq=False)
class StepLengths:
    """Lengths of a set of steps, each step with equal weight.

    Attributes
    ----------
    n_steps, total_tokens : how many steps, and their tokens.
    mean_tokens : the second over the first; None without a step.
    n_long : steps of `long_tokens` or more.
    long_share : these among all, in 0..1; None without a step.
    long_tokens, bin_tokens : where long steps begin, and the width of a bin.
    counts : int64, long_tokens / bin_tokens entries; the i-th is the number of steps with
        ``i * bin_tokens <= tokens < (i + 1) * bin_tokens``. Together with `n_long` they add up to `n_steps`.
    reason : why the mean and the share are None, if they are.
    """

    n_steps: int
    total_tokens: int
    mean_tokens: float | None
    n_long: int
    long_share: float | None
    long_tokens: int
    bin_tokens: int
    counts: IntArray
    reason: str | None


def list_step_lengths(cell: Cell) -> IntArray:
    """Return L(k) - L(k - 1) of every step of a cell, int64, by trajectory and position. O(positions).

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (256, 4)], [(0, 0), (100, 2), (300, 1)]])], 4)
    >>> list_step_lengths(cell).tolist()
    [256, 100, 200]
    """
    ends_step = np.ones(cell.retained_tokens.size, dtype=np.bool_)
    ends_step[cell.first_idx] = False
    return np.diff(cell.retained_tokens, prepend=0)[ends_step].astype(np.int64)


def summarise_step_lengths(
    lengths: ArrayLike, *, bin_tokens: int = BIN_TOKENS, long_tokens: int = LONG_STEP_TOKENS
) -> StepLengths:
    """Return the distribution of step lengths, their mean and the share of long ones.

    Parameters
    ----------
    lengths : integers, tokens of each step, at least 1: of `list_step_lengths`, or of a `Partition`.
    bin_tokens : width of the bins, at least 1.
    long_tokens : from which length on a step is long; a multiple of `bin_tokens`.

    Raises
    ------
    ValueError : a step without a token, or bins that do not end where long steps begin.

    Notes
    -----
    Appendix D.1, figure 9. Lengths of other partitions come from `merge_partition`. O(steps).

    Examples
    --------
    >>> figures = summarise_step_lengths([10, 31, 32, 63, 1024], bin_tokens=32, long_tokens=64)
    >>> figures.counts.tolist(), figures.n_long, figures.long_share, figures.mean_tokens
    ([2, 2], 1, 0.2, 232.0)
    """
    tokens = np.asarray(lengths, dtype=np.int64)
    if bin_tokens < 1 or long_tokens < 1 or long_tokens % bin_tokens:
        raise ValueError(f"bins of {bin_tokens} tokens do not end at {long_tokens}")
    if tokens.size and tokens.min() < 1:
        raise ValueError("every step has at least one token")
    n_steps, total = tokens.size, int(tokens.sum())
    short = tokens[tokens < long_tokens]
    n_long = n_steps - short.size
    return StepLengths(
        n_steps=n_steps,
        total_tokens=total,
        mean_tokens=total / n_steps if n_steps else None,
        n_long=n_long,
        long_share=n_long / n_steps if n_steps else None,
        long_tokens=long_tokens,
        bin_tokens=bin_tokens,
        counts=np.bincount(short // bin_tokens, minlength=long_tokens // bin_tokens),
        reason=None if n_steps else NO_STEP,
    )


def summarise_model_steps(
    measurements: Measurements, *, bin_tokens: int = BIN_TOKENS, long_tokens: int = LONG_STEP_TOKENS
) -> dict[str, StepLengths]:
    """Return the figures of each model, over all steps of its cells with equal weight. Labels are not needed."""
    lengths = {
        model: [list_step_lengths(cell) for cell in measurements.cells if cell.model == model]
        for model in measurements.models
    }
    return {
        model: summarise_step_lengths(
            np.concatenate(of_model) if of_model else (), bin_tokens=bin_tokens, long_tokens=long_tokens
        )
        for model, of_model in lengths.items()
    }
