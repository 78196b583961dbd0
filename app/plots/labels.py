"""Where text goes in a figure: labels at line ends that do not overlap, and a clear place on a horizontal line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.plots.steps import FloatArray

MAX_LABEL_CHARACTERS = 22


def shorten(text: str) -> str:
    """Return the text with its middle left out where it is too long for a label: names differ at their ends.

    Examples
    --------
    >>> shorten("example-stop-at-end-margin"), shorten("ThinkBrake")
    ('example-sto…end-margin', 'ThinkBrake')
    """
    if len(text) <= MAX_LABEL_CHARACTERS:
        return text
    head = MAX_LABEL_CHARACTERS // 2
    return f"{text[:head].rstrip()}…{text[head + 1 - MAX_LABEL_CHARACTERS :].lstrip()}"


def spread(heights: Sequence[float], *, gap: float, low: float, high: float) -> list[float]:
    """Move labels apart until neighbours are `gap` apart, each as little as that takes; keep their order.

    Overlapping labels form a block centred on the mean of its labels' own heights; a block past an end of
    ``[low, high]`` is pushed back inside. Equal heights keep their order, the first one uppermost. Labels that cannot
    all fit keep their gap and leave the range at its lower end.

    Examples
    --------
    >>> spread([10.0, 10.0, 30.0], gap=4.0, low=0.0, high=40.0)
    [12.0, 8.0, 30.0]
    >>> spread([1.0, 0.0], gap=4.0, low=0.0, high=40.0)
    [4.0, 0.0]
    """
    order = sorted(range(len(heights)), key=lambda i: -heights[i])
    blocks: list[tuple[float, list[int]]] = []
    for i in order:
        block = (_fit(heights[i], n=1, gap=gap, low=low, high=high), [i])
        while blocks and _bottom(blocks[-1], gap) - gap < _top(block, gap):
            members = [*blocks.pop()[1], *block[1]]
            centre = float(np.mean([heights[m] for m in members]))
            block = (_fit(centre, n=len(members), gap=gap, low=low, high=high), members)
        blocks.append(block)
    placed = [0.0] * len(heights)
    for block in blocks:
        for rank, member in enumerate(block[1]):
            placed[member] = _top(block, gap) - rank * gap
    return placed


def _top(block: tuple[float, list[int]], gap: float) -> float:
    return block[0] + (len(block[1]) - 1) * gap / 2


def _bottom(block: tuple[float, list[int]], gap: float) -> float:
    return block[0] - (len(block[1]) - 1) * gap / 2


def _fit(centre: float, *, n: int, gap: float, low: float, high: float) -> float:
    half = (n - 1) * gap / 2
    return min(max(centre, low + half), high - half)


def find_clear_place(curves: Sequence[FloatArray], level: float, *, span: int) -> tuple[int, float]:
    """Return the start of the stretch of a horizontal line that is farthest from every curve, and how far it is.

    Parameters
    ----------
    curves : accuracies of each curve at the same evenly spaced places.
    level : the height of the text on the line.
    span : how many places the text covers.

    Returns
    -------
    The index of the text's first place, the leftmost of equally clear ones; the distance of the nearest curve there.

    Examples
    --------
    >>> find_clear_place([np.array([5.0, 5.0, 9.0, 9.0])], 5.0, span=2)
    (2, 4.0)
    """
    away = np.stack(curves) - level
    # A step from one side to the other passes through the text, however far off both of its ends are.
    crosses = away[:, :-1] * away[:, 1:] < 0
    distance = np.abs(away)
    distance[:, :-1][crosses] = 0
    distance[:, 1:][crosses] = 0
    nearest = distance.min(axis=0)
    clearance = np.lib.stride_tricks.sliding_window_view(nearest, span).min(axis=1)
    start = int(np.argmax(clearance))
    return start, float(clearance[start])
