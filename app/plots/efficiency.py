"""The figure of efficiency results: accuracy against tokens, shapes by paradigm, lines of equal E3."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.evaluator.efficiency import accuracy_at_e3
from app.plots.captions import Caption
from app.plots.frame import END_LABEL, PLOT_HEIGHT, build_layout, escape_markup
from app.plots.palette import METHOD_STYLES, MUTED, REFERENCE, LineStyle
from app.plots.point_labels import choose_sides

LEVELS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)
PLOT_WIDTH = 1080
RIGHT = 24
MIN_LEVEL_SHARE = 0.25
MAX_NAMED = 16
PARADIGM_TITLES = {
    "reference": "Reference",
    "reasoning_blueprint": "Reasoning blueprint",
    "dynamic_execution": "Dynamic execution",
    "post_hoc_refinement": "Post-hoc refinement",
    "other": "Other",
}
# Shapes tell paradigms apart first, colours second.
PARADIGM_STYLES: dict[str, LineStyle] = dict(zip(PARADIGM_TITLES, METHOD_STYLES, strict=False))
SHAPES = {"circle": "●", "square": "■", "triangle-up": "▲", "diamond": "◆", "cross": "✚"}


@dataclass(frozen=True)
class EfficiencyPoint:
    """One result: its method and place in words, its figures and those of its reference."""

    method: str
    place: str
    paradigm: str
    accuracy: float
    tokens: float
    base_accuracy: float
    base_tokens: float
    e3: float | None


@dataclass(frozen=True)
class _Axes:
    """The ends of both axes, in the units that are drawn."""

    left: float
    right: float
    low: float
    high: float
    is_log: bool

    def place(self, x: float, y: float) -> tuple[float, float]:
        """Return where a point lies, in pixels from the lower left corner."""
        ends = (math.log10(self.left), math.log10(self.right)) if self.is_log else (self.left, self.right)
        across = (math.log10(x) if self.is_log else x) - ends[0]
        share = across / (ends[1] - ends[0])
        return PLOT_WIDTH * share, PLOT_HEIGHT * (y - self.low) / (self.high - self.low)


def has_one_reference(points: Sequence[EfficiencyPoint]) -> bool:
    """Whether all results are compared with the same reference, so that accuracies and tokens share a scale."""
    return len({(point.place, point.base_accuracy, point.base_tokens) for point in points}) == 1


def build_efficiency_figure(points: Sequence[EfficiencyPoint], *, caption: Caption, is_log: bool = False) -> go.Figure:
    """Draw results. With one reference: accuracy against tokens, lines of equal E3, each result by its name.

    With several: the change of accuracy against the share of the reference's tokens, since E3 weighs them by each
    reference's own accuracy. A logarithmic axis leaves out results without tokens.
    """
    is_absolute = has_one_reference(points)
    drawn = [point for point in points if not is_log or point.tokens > 0]
    places = [_place(point, is_absolute=is_absolute) for point in drawn]
    axes = _span(places, is_log=is_log, is_absolute=is_absolute)
    annotations: list[dict[str, Any]] = []
    traces: list[go.Scatter] = []
    if is_absolute and drawn:
        traces, annotations = _draw_levels(drawn[0], axes)
    else:
        traces = [_draw_rule([100, 100], [axes.low, axes.high]), _draw_rule([axes.left, axes.right], [0, 0])]
    for paradigm in PARADIGM_TITLES:
        chosen = [i for i, point in enumerate(drawn) if point.paradigm == paradigm]
        if chosen:
            traces.append(
                _draw_points([drawn[i] for i in chosen], [places[i] for i in chosen], is_absolute=is_absolute)
            )
    if is_absolute and len(drawn) <= MAX_NAMED:
        annotations += _name_points(drawn, places, axes)
    return go.Figure(data=traces, layout=_lay_out(axes, caption, annotations, drawn, is_absolute=is_absolute))


def describe_shapes(points: Sequence[EfficiencyPoint]) -> str:
    """Return the key of the shapes that are drawn, in words.

    Examples
    --------
    >>> describe_shapes([EfficiencyPoint("CoT", "sums", "reference", 0.5, 9.0, 0.5, 9.0, 1.0)])
    '● reference.'
    """
    present = {point.paradigm for point in points}
    shown = [
        f"{SHAPES[PARADIGM_STYLES[name].symbol]} {title.lower()}"
        for name, title in PARADIGM_TITLES.items()
        if name in present
    ]
    return f"{', '.join(shown)}."


def _place(point: EfficiencyPoint, *, is_absolute: bool) -> tuple[float, float]:
    if is_absolute:
        return point.tokens, 100 * point.accuracy
    share = point.tokens / point.base_tokens if point.base_tokens else 1.0
    return 100 * share, 100 * (point.accuracy - point.base_accuracy)


def _span(places: Sequence[tuple[float, float]], *, is_log: bool, is_absolute: bool) -> _Axes:
    xs, ys = [x for x, _ in places] or [100.0], [y for _, y in places] or [0.0]
    if not is_absolute:
        xs, ys = [*xs, 100.0], [*ys, 0.0]
    room = max(0.08 * (max(ys) - min(ys)), 1.0)
    low, high = math.floor(min(ys) - room), math.ceil(max(ys) + room)
    if is_absolute:
        low, high = max(low, 0), min(high, 100)
    left = 0.8 * min(xs) if is_log else 0.0
    right = max(xs) * (1.25 if is_log else 1.08) or 1.0
    return _Axes(left, right, float(low), float(high), is_log)


def _draw_levels(point: EfficiencyPoint, axes: _Axes) -> tuple[list[go.Scatter], list[dict[str, Any]]]:
    """Draw the lines of equal E3 that cross the plot, each with its value where it leaves it."""
    traces: list[go.Scatter] = []
    labels: list[dict[str, Any]] = []
    if point.base_accuracy in (0.0, 1.0) or point.base_tokens == 0.0:
        return traces, labels
    start = axes.left if axes.is_log else 0.0
    spread = np.geomspace if axes.is_log else np.linspace
    tokens = [float(value) for value in spread(start, axes.right, 201)]
    for level in LEVELS:
        base = {"base_accuracy": point.base_accuracy, "base_tokens": point.base_tokens}
        heights = [accuracy_at_e3(level, value, **base) for value in tokens]
        line = [(x, 100 * y) for x, y in zip(tokens, heights, strict=True) if y and axes.low <= 100 * y <= axes.high]
        # What only grazes a corner of the plot has no room for its value.
        if len(line) >= MIN_LEVEL_SHARE * len(tokens):
            traces.append(_draw_rule([x for x, _ in line], [y for _, y in line]))
            labels.append(_label_level(level, line[0], axes))
    return traces, labels


def _draw_rule(xs: Sequence[float], ys: Sequence[float]) -> go.Scatter:
    return go.Scatter(
        x=[float(f"{x:.5g}") for x in xs],
        y=[round(y, 3) for y in ys],
        mode="lines",
        line={"color": REFERENCE.light, "width": 1, "dash": "2px,3px"},
        hoverinfo="skip",
    )


def _label_level(level: float, start: tuple[float, float], axes: _Axes) -> dict[str, Any]:
    """Name a line where it begins, at the left, where methods that keep no tokens at all would be."""
    return {
        "text": f"E³ {level:g}",
        "x": math.log10(start[0]) if axes.is_log else start[0],
        "y": round(start[1], 3),
        "xshift": 4,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": MUTED.light, "size": 12},
    }


def _draw_points(
    points: Sequence[EfficiencyPoint], places: Sequence[tuple[float, float]], *, is_absolute: bool
) -> go.Scatter:
    style = PARADIGM_STYLES[points[0].paradigm]
    unit = (
        "%{y:.1f}\u00a0% at %{x:.1f} tokens"
        if is_absolute
        else "%{y:+.1f}\u00a0points at %{x:.1f}\u00a0% of the tokens"
    )
    return go.Scatter(
        x=[round(x, 4) for x, _ in places],
        y=[round(y, 4) for _, y in places],
        text=[_name(point) for point in points],
        name=PARADIGM_TITLES[points[0].paradigm],
        mode="markers",
        cliponaxis=False,
        marker={"symbol": style.symbol, "size": 10 if is_absolute else 8, "color": style.tone.light, "opacity": 0.9},
        hovertemplate=f"%{{text}}: {unit}<extra></extra>",
    )


def _name(point: EfficiencyPoint) -> str:
    score = "no E³" if point.e3 is None else f"E³ {point.e3:.2f}"
    return escape_markup(f"{point.method}, {point.place}, {score}")


def _name_points(
    points: Sequence[EfficiencyPoint], places: Sequence[tuple[float, float]], axes: _Axes
) -> list[dict[str, Any]]:
    sides = choose_sides(
        [axes.place(x, y) for x, y in places], [p.method for p in points], width=PLOT_WIDTH, height=PLOT_HEIGHT
    )
    return [
        {
            "name": END_LABEL,
            "text": escape_markup(point.method),
            "x": math.log10(x) if axes.is_log else round(x, 4),
            "y": round(y, 4),
            "xshift": side.x_shift,
            "yshift": side.y_shift,
            "xanchor": side.x_anchor,
            "yanchor": side.y_anchor,
            "showarrow": False,
            "font": {"color": PARADIGM_STYLES[point.paradigm].tone.light},
        }
        for point, (x, y), side in zip(points, places, sides, strict=True)
    ]


def _lay_out(
    axes: _Axes,
    caption: Caption,
    annotations: Sequence[dict[str, Any]],
    points: Sequence[EfficiencyPoint],
    *,
    is_absolute: bool,
) -> go.Layout:
    layout = build_layout(
        caption=caption,
        key=describe_shapes(points),
        low=axes.low,
        high=axes.high,
        annotations=annotations,
        is_log=axes.is_log,
        x_title="Mean output tokens" if is_absolute else "Tokens as a share of the reference’s (%)",
        y_title="Accuracy (%)" if is_absolute else "Accuracy against the reference (points)",
    )
    ends = [math.log10(axes.left), math.log10(axes.right)] if axes.is_log else [axes.left, axes.right]
    layout.xaxis.update(range=ends, tickvals=None)
    layout.margin.update(r=RIGHT)
    return layout
