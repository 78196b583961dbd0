"""The figures of a report, small enough to stand side by side: curves, bins, ranges and scatter from plain arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.evaluator.strategies import Strategy
from app.plots.captions import STRATEGY_TITLES
from app.plots.frame import END_LABEL, FONT_FAMILY, escape_markup
from app.plots.labels import spread
from app.plots.palette import (
    GRID,
    INK,
    METHOD_STYLES,
    MUTED,
    PALE,
    PAPER,
    STRATEGY_TINTS,
    STRATEGY_TONES,
    LineStyle,
    list_dark_replacements,
    pick_method_style,
)
from app.plots.steps import FloatArray
from app.plots.traces import FrontierLines, draw_full_thinking, draw_markers, draw_oracle, draw_uninformed

PLAIN_STYLE = METHOD_STYLES[0]
_LETTER = 7
"""Pixels that a letter takes, give or take one, where a line carries its name at its end."""


@dataclass(frozen=True)
class Axis:
    """An axis: its title with the unit, the values it spans, and ticks with their texts where they are not numbers."""

    title: str
    low: float
    high: float
    ticks: Mapping[float, str] | None = None


@dataclass(frozen=True, eq=False)
class Series:
    """A named line; y is None where it is undefined, and the line is broken there. `hover` says a point in words."""

    name: str
    x: Sequence[float]
    y: Sequence[float | None]
    style: LineStyle
    hover: str = "%{fullData.name}: %{y:.1f} at %{x:.0f}"


@dataclass(frozen=True, eq=False)
class Band:
    """A pointwise interval around a frontier, fractions: low and high at budgets evenly spread over 0..1."""

    strategy: Strategy
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class Range:
    """A vertical range at one place of a panel, with the name it has when pointed at."""

    name: str
    x: float
    low: float
    high: float
    style: LineStyle


def draw_lines(series: Sequence[Series], *, x: Axis, y: Axis, level: float | None = None) -> go.Figure:
    """Draw lines in one panel, and a thin dashed horizontal at `level`.

    With several lines each carries its name at its right end.
    """
    traces = [
        go.Scatter(
            x=list(line.x),
            y=[None if value is None else round(value, 4) for value in line.y],
            name=escape_markup(line.name),
            mode="lines" if len(line.x) > 20 else "lines+markers",
            line={"color": line.style.tone.light, "width": 2, "dash": line.style.dash},
            marker={"symbol": line.style.symbol, "size": 6},
            hovertemplate=f"{line.hover}<extra></extra>",
        )
        for line in series
    ]
    shapes = [] if level is None else [_horizontal(level)]
    annotations = _name_ends(series, y) if len(series) > 1 else []
    longest = max(len(line.name) for line in series)
    return _figure(
        traces, x=x, y=y, annotations=annotations, shapes=shapes, right=16 + _LETTER * longest if annotations else 14
    )


def draw_histograms(series: Sequence[Series], *, x: Axis, y: Axis) -> go.Figure:
    """Draw distributions over bins as step lines; `x` of a series are the left edges of its bins."""
    traces = [
        go.Scatter(
            x=list(line.x),
            y=[None if value is None else round(value, 4) for value in line.y],
            name=escape_markup(line.name),
            mode="lines",
            line={"color": line.style.tone.light, "width": 1.5, "dash": line.style.dash, "shape": "hv"},
            hovertemplate=f"{line.hover}<extra></extra>",
        )
        for line in series
    ]
    return _figure(traces, x=x, y=y)


def draw_ranges(ranges: Sequence[Range], *, x: Axis, y: Axis) -> go.Figure:
    """Draw ranges as capped vertical bars around a dashed zero; a range without extent is a point."""
    traces = [
        go.Scatter(
            x=[bar.x, bar.x],
            y=[round(bar.low, 5), round(bar.high, 5)],
            name=escape_markup(bar.name),
            mode="lines+markers",
            line={"color": bar.style.tone.light, "width": 2, "dash": bar.style.dash},
            marker={"symbol": "line-ew", "size": 10, "line": {"width": 2, "color": bar.style.tone.light}},
            hovertemplate="%{fullData.name}: %{y:+.2f} points<extra></extra>",
        )
        for bar in ranges
    ]
    return _figure(traces, x=x, y=y, shapes=[_horizontal(0.0)])


def draw_curve(share: FloatArray, accuracy: FloatArray, reference: int) -> go.Figure:
    """Draw one recorded trajectory: accuracy against the share of its tokens, both in percent, a star at its best."""
    xs, ys = ([round(100 * value, 2) for value in values.tolist()] for values in (share, accuracy))
    line = go.Scatter(
        x=xs,
        y=ys,
        name="P(k)",
        mode="lines+markers" if len(xs) <= 60 else "lines",
        line={"color": INK.light, "width": 1.3},
        marker={"size": 4, "color": INK.light},
        customdata=list(range(len(xs))),
        hovertemplate="position %{customdata}: %{y:.0f}\u00a0% at %{x:.0f}\u00a0% of the tokens<extra></extra>",
    )
    star = go.Scatter(
        x=[xs[reference]],
        y=[ys[reference]],
        name="k*",
        mode="markers",
        cliponaxis=False,
        marker={"symbol": "star", "size": 12, "color": METHOD_STYLES[4].tone.light},
        hovertemplate="earliest maximum: %{y:.0f}\u00a0% at %{x:.0f}\u00a0% of the tokens<extra></extra>",
    )
    upright = {"type": "line", "x0": xs[reference], "x1": xs[reference], "y0": 0, "y1": 100}
    shapes = [{**upright, "line": {"color": PALE.light, "width": 1, "dash": "dot"}, "layer": "below"}]
    x = Axis("Share of its tokens (%)", -2, 102, dict.fromkeys((0, 50, 100), ""))
    return _figure([line, star], x=x, y=Axis("P(k) (%)", -4, 106, {0: "0", 50: "50", 100: "100"}), shapes=shapes)


def draw_frontier_panel(
    all_lines: Sequence[FrontierLines], *, low: float, high: float, bands: Sequence[Band] = ()
) -> go.Figure:
    """Draw several strategies' frontiers in one small panel, intervals as light bands; axes in percent."""
    traces: list[go.Scatter] = [trace for band in bands for trace in _draw_band(band)]
    traces.append(draw_full_thinking(all_lines[0].full_accuracy))
    for lines in all_lines:
        oracle = draw_oracle(lines, span=(high - low) / 100, is_log=False, is_tinted=False)
        oracle.name = STRATEGY_TITLES[lines.strategy]
        reference = draw_uninformed(lines, tone=STRATEGY_TONES[lines.strategy], is_log=False)
        reference.name = f"{STRATEGY_TITLES[lines.strategy]}, uninformed"
        traces += [reference, oracle]
    for lines in all_lines:
        traces += draw_markers(lines)
    x = Axis("Share of full-thinking tokens (%)", 0, 100, dict.fromkeys((0, 25, 50, 75, 100), ""))
    return _figure(traces, x=x, y=Axis("Accuracy (%)", low, high))


def draw_scatter(groups: Mapping[str, Sequence[tuple[str, float, float]]], *, x: Axis, y: Axis) -> go.Figure:
    """Draw points (name, x, y) in groups, each group in its own shape and colour."""
    traces = []
    for idx, (name, points) in enumerate(groups.items()):
        style = pick_method_style(idx)
        traces.append(
            go.Scatter(
                x=[round(point[1], 3) for point in points],
                y=[round(point[2], 3) for point in points],
                text=[escape_markup(point[0]) for point in points],
                name=escape_markup(name),
                mode="markers",
                cliponaxis=False,
                marker={"symbol": style.symbol, "size": 9, "color": style.tone.light},
                hovertemplate="%{text}, %{fullData.name}: OR %{x:.1f}\u00a0%, AD %{y:.1f} points<extra></extra>",
            )
        )
    return _figure(traces, x=x, y=y)


def span_values(values: Sequence[float | None], *, zero: bool = False) -> tuple[float, float]:
    """Return an axis that holds these values with a little room; from 0 on where `zero` is asked for.

    Examples
    --------
    >>> span_values([10.0, None, 20.0], zero=True)
    (0.0, 21.0)
    """
    known = [value for value in values if value is not None] or [0.0]
    low, high = min(known), max(known)
    room = 0.05 * (high - (min(low, 0.0) if zero else low)) or 0.5
    return (min(low, 0.0) if zero else low - room), high + room


def _draw_band(band: Band) -> list[go.Scatter]:
    """Draw an interval between two invisible lines, straight between the budgets at which it is known."""
    beta = np.linspace(0.0, 100.0, len(band.low)).round(3).tolist()
    shared: dict[str, Any] = {"x": beta, "mode": "lines", "hoverinfo": "skip"}
    invisible = {"width": 0, "color": STRATEGY_TONES[band.strategy].light}
    low, high = ((100 * values).round(3).tolist() for values in (band.low, band.high))
    return [
        go.Scatter(y=low, line=invisible, **shared),
        go.Scatter(y=high, line=invisible, fill="tonexty", fillcolor=STRATEGY_TINTS[band.strategy].light, **shared),
    ]


def _figure(
    traces: Sequence[go.Scatter],
    *,
    x: Axis,
    y: Axis,
    annotations: Sequence[dict[str, Any]] = (),
    shapes: Sequence[dict[str, Any]] = (),
    right: int = 14,
) -> go.Figure:
    name = {**_note(y.title), "xref": "paper", "yref": "paper", "x": 0, "y": 1, "xshift": -38, "yshift": 6}
    layout = go.Layout(
        template=go.layout.Template(),  # None would bring the library's own, 7 kB of colours
        autosize=True,
        font={"family": FONT_FAMILY, "size": 12, "color": INK.light},
        margin={"t": 30, "b": 44, "l": 44, "r": right},
        paper_bgcolor=PAPER.light,
        plot_bgcolor=PAPER.light,
        showlegend=False,
        hovermode="closest",
        hoverlabel={"bgcolor": PAPER.light, "bordercolor": GRID.light, "font": {"color": INK.light}},
        xaxis={
            "title": {"text": x.title, "standoff": 8, "font": {"size": 12, "color": MUTED.light}},
            "showgrid": False,
            "ticks": "outside",
            "ticklen": 4,
            "linecolor": GRID.light,
            "tickcolor": GRID.light,
            **_scale(x),
        },
        yaxis={"gridcolor": GRID.light, "ticks": "", **_scale(y)},
        annotations=[{**name, "xanchor": "left", "yanchor": "bottom"}, *annotations],
        shapes=list(shapes),
        meta={"dark": list_dark_replacements()},
    )
    return go.Figure(data=list(traces), layout=layout)


def _scale(axis: Axis) -> dict[str, Any]:
    scale: dict[str, Any] = {"range": [axis.low, axis.high], "zeroline": False, "fixedrange": True, "nticks": 6}
    if axis.ticks:
        texts = [text or f"{value:g}" for value, text in axis.ticks.items()]
        scale |= {"tickvals": list(axis.ticks), "ticktext": texts}
    return scale


def _name_ends(series: Sequence[Series], y: Axis) -> list[dict[str, Any]]:
    """Name each line at its last defined value, moved apart where they would overlap in a panel 180 pixels high."""
    last = [next((value for value in reversed(line.y) if value is not None), y.low) for line in series]
    gap = 14 * (y.high - y.low) / 180
    heights = spread(last, gap=gap, low=y.low, high=y.high)
    return [
        {
            **_note(line.name),
            "name": END_LABEL,
            "xref": "paper",
            "x": 1,
            "y": round(height, 4),
            "xshift": 5,
            "xanchor": "left",
            "yanchor": "middle",
            "font": {"color": line.style.tone.light, "size": 12},
        }
        for line, height in zip(series, heights, strict=True)
    ]


def _note(text: str) -> dict[str, Any]:
    return {"text": escape_markup(text), "showarrow": False, "font": {"color": MUTED.light, "size": 12}}


def _horizontal(level: float) -> dict[str, Any]:
    line = {"color": MUTED.light, "width": 1, "dash": "6px,4px"}
    return {
        "type": "line",
        "xref": "x domain",
        "x0": 0,
        "x1": 1,
        "y0": level,
        "y1": level,
        "line": line,
        "layer": "below",
    }
