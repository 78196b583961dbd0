"""Names beside the points of a scatter plot, each on the side where it covers least."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CHARACTER_PIXELS = 7.0
LINE_PIXELS = 15.0
MARK_PIXELS = 6.0
# How far a name's anchor is moved from its point, and which end of the name is put there.
SIDES = ((9, 0, "left", "middle"), (-9, 0, "right", "middle"), (0, 8, "center", "bottom"), (0, -8, "center", "top"))


@dataclass(frozen=True)
class LabelSide:
    """Where a name stands: its shift from the point in pixels, and the anchors of the text."""

    x_shift: int
    y_shift: int
    x_anchor: str
    y_anchor: str


Box = tuple[float, float, float, float]


def choose_sides(
    places: Sequence[tuple[float, float]], names: Sequence[str], *, width: float, height: float
) -> list[LabelSide]:
    """Choose for each point in turn the first side of its mark where its name covers least.

    Parameters
    ----------
    places : of the points, in pixels from the lower left corner of the plot.
    names : the texts, one a point.
    width, height : of the plot in pixels; what leaves it counts as covered.

    Examples
    --------
    The second name would run into the third mark on its right.

    >>> sides = choose_sides([(10, 50), (100, 50), (120, 50)], ["a", "bcd", "e"], width=300, height=100)
    >>> [side.x_anchor for side in sides]
    ['left', 'right', 'left']
    """
    marks = [(x - MARK_PIXELS, y - MARK_PIXELS, x + MARK_PIXELS, y + MARK_PIXELS) for x, y in places]
    taken: list[Box] = []
    chosen = []
    for idx, (place, name) in enumerate(zip(places, names, strict=True)):
        others = [*marks[:idx], *marks[idx + 1 :], *taken]
        options = [(side, _box(place, name, side)) for side in (LabelSide(*side) for side in SIDES)]
        side, box = min(options, key=lambda option: _covered(option[1], others, width=width, height=height))
        taken.append(box)
        chosen.append(side)
    return chosen


def _box(place: tuple[float, float], name: str, side: LabelSide) -> Box:
    long = CHARACTER_PIXELS * len(name)
    left = place[0] + side.x_shift - {"left": 0.0, "center": long / 2, "right": long}[side.x_anchor]
    low = place[1] + side.y_shift - {"bottom": 0.0, "middle": LINE_PIXELS / 2, "top": LINE_PIXELS}[side.y_anchor]
    return left, low, left + long, low + LINE_PIXELS


def _covered(box: Box, others: Sequence[Box], *, width: float, height: float) -> float:
    outside = (box[2] - box[0]) * (box[3] - box[1]) - _overlap(box, (0.0, 0.0, width, height))
    return outside + sum(_overlap(box, other) for other in others)


def _overlap(one: Box, other: Box) -> float:
    across = min(one[2], other[2]) - max(one[0], other[0])
    up = min(one[3], other[3]) - max(one[1], other[1])
    return max(across, 0.0) * max(up, 0.0)
