"""The lines, points and labels that accuracy-against-budget figures are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.evaluator.strategies import Strategy
from app.plots.captions import format_percent
from app.plots.frame import END_LABEL_GAP, PLOT_HEIGHT, build_end_label, escape_markup
from app.plots.labels import find_clear_place, spread
from app.plots.palette import (
    CONTROL_STYLE,
    MUTED,
    PAPER,
    STRATEGY_TINTS,
    STRATEGY_TONES,
    LineStyle,
    Tone,
)
from app.plots.steps import LOG_START, FloatArray, Steps, reduce_steps, sample_steps

FULL_THINKING_LABEL = "full-thinking-label"
_PLACES = np.linspace(0.0, 1.0, 101)
# Percents of the width that the full-thinking line's label takes on a narrow and on a wide screen.
_LABEL_SPANS = (30, 16)


@dataclass(frozen=True, eq=False)
class FrontierLines:
    """What is drawn of a strategy on one board, budgets and accuracies as fractions.

    Attributes
    ----------
    oracle : the (macro) frontier, a step curve.
    uninformed_beta, uninformed_accuracy : vertices of the uninformed reference, straight between them.
    full_accuracy : probe accuracy of full thinking.
    beta_match : least budget at which the oracle reaches `full_accuracy`, None where it never does.
    max_accuracy, beta_sat : the oracle's highest accuracy, and the least budget that reaches it.
    """

    strategy: Strategy
    oracle: Steps
    uninformed_beta: FloatArray
    uninformed_accuracy: FloatArray
    full_accuracy: float
    beta_match: float | None
    max_accuracy: float
    beta_sat: float


@dataclass(frozen=True)
class OperatingPoint:
    """One setting of a method in one cell: relative budget and accuracy as fractions."""

    setting: str
    beta: float
    accuracy: float


@dataclass(frozen=True, eq=False)
class MethodLine:
    """A method's curve; `points` only on a board of one cell, whose frontier bounds every one of them."""

    name: str
    steps: Steps
    style: LineStyle
    points: tuple[OperatingPoint, ...] = ()

    @property
    def is_pale(self) -> bool:
        """Whether the method stays in the background, without a label."""
        return self.style is CONTROL_STYLE


def span_accuracies(all_lines: Sequence[FrontierLines], methods: Sequence[MethodLine]) -> tuple[float, float]:
    """Return the lowest and highest accuracy to show, in percent, with a little room on either side."""
    values = [value for lines in all_lines for value in (lines.full_accuracy, lines.max_accuracy)]
    values += [
        float(array.min()) for lines in all_lines for array in (lines.oracle.accuracy, lines.uninformed_accuracy)
    ]
    values += [float(method.steps.accuracy[0]) for method in methods]
    values += [point.accuracy for method in methods for point in method.points]
    low, high = 100 * min(values), 100 * max(values)
    room = max(0.05 * (high - low), 0.5)
    return max(low - room, -1.0), min(high + room, 101.0)


def draw_oracle(lines: FrontierLines, *, span: float, is_log: bool, is_tinted: bool) -> go.Scatter:
    """Draw the frontier; tinted, it fills the area down to the trace before it."""
    strategy = lines.strategy
    tint: dict[str, Any] = {"fill": "tonexty", "fillcolor": STRATEGY_TINTS[strategy].light} if is_tinted else {}
    return go.Scatter(
        **_draw_steps(lines.oracle, span=span, is_log=is_log),
        name="Oracle",
        line={"color": STRATEGY_TONES[strategy].light, "width": 2.5, "shape": "hv"},
        **tint,
    )


def draw_uninformed(lines: FrontierLines, *, tone: Tone, is_log: bool) -> go.Scatter:
    """Draw the uninformed reference as a dotted line through its vertices, which a logarithmic axis bends."""
    beta, accuracy = _drop_straight(lines.uninformed_beta, lines.uninformed_accuracy)
    if is_log:
        places = np.geomspace(LOG_START, 1.0, 301)
        beta, accuracy = places, np.interp(places, beta, accuracy)
    return go.Scatter(
        x=_percent(beta),
        y=_percent(accuracy),
        name="Uninformed reference",
        mode="lines",
        line={"color": tone.light, "width": 1.5, "dash": "dot"},
        hovertemplate=_HOVER,
    )


def draw_full_thinking(full_accuracy: float) -> go.Scatter:
    """Draw full-thinking accuracy as a thin dashed line over the whole width."""
    level = round(100 * full_accuracy, 3)
    return go.Scatter(
        x=[0.01, 100],
        y=[level, level],
        name="Full thinking",
        mode="lines",
        line={"color": MUTED.light, "width": 1, "dash": "6px,4px"},
        hoverinfo="skip",
    )


def draw_method(method: MethodLine, *, span: float, is_log: bool) -> go.Scatter:
    """Draw a method's step curve in its style."""
    # Pale lines are the background, and may be many: they get a half of the columns.
    columns, width = (500, 1.2) if method.is_pale else (1000, 2)
    return go.Scatter(
        **_draw_steps(method.steps, span=span, is_log=is_log, columns=columns),
        name=escape_markup(method.name),
        line={"color": method.style.tone.light, "width": width, "dash": method.style.dash, "shape": "hv"},
    )


def draw_points(method: MethodLine) -> go.Scatter:
    """Draw a method's operating points in its shape, each named by its setting."""
    return go.Scatter(
        x=[round(100 * point.beta, 3) for point in method.points],
        y=[round(100 * point.accuracy, 3) for point in method.points],
        text=[escape_markup(point.setting) for point in method.points],
        name=escape_markup(method.name),
        mode="markers",
        cliponaxis=False,
        marker={"symbol": method.style.symbol, "size": 7, "color": method.style.tone.light},
        hovertemplate=_HOVER.replace(":", ", setting %{text}:", 1),
    )


def draw_markers(lines: FrontierLines) -> list[go.Scatter]:
    """Draw β_match as a diamond and β_sat as a circle on the frontier."""
    places = [("β_sat", "circle", lines.beta_sat, lines.max_accuracy)]
    if lines.beta_match is not None:
        reached = float(sample_steps(lines.oracle, np.array([lines.beta_match]))[0])
        places.insert(0, ("β_match", "diamond", lines.beta_match, max(reached, lines.full_accuracy)))
    return [
        go.Scatter(
            x=[round(100 * beta, 3)],
            y=[round(100 * accuracy, 3)],
            name=name,
            mode="markers",
            cliponaxis=False,
            marker={
                "symbol": symbol,
                "size": 11,
                "color": STRATEGY_TONES[lines.strategy].light,
                "line": {"color": PAPER.light, "width": 1.5},
            },
            hovertemplate=_HOVER,
        )
        for name, symbol, beta, accuracy in places
    ]


def label_ends(ends: Sequence[tuple[str, float, Tone]], *, low: float, high: float) -> list[dict[str, Any]]:
    """Return labels at the right ends of lines of these accuracies (fractions), moved apart where they overlap."""
    gap = END_LABEL_GAP * (high - low) / PLOT_HEIGHT
    heights = spread([100 * height for _, height, _ in ends], gap=gap, low=low, high=high)
    return [build_end_label(text, height, tone) for (text, _, tone), height in zip(ends, heights, strict=True)]


def label_full_thinking(
    lines: Sequence[FrontierLines], methods: Sequence[Steps], *, is_log: bool, gap: float
) -> dict[str, Any]:
    """Return the full-thinking line's label where no curve runs through it, or else where it is farthest from them.

    On the line rather than under it, and where there is room for it on a narrow screen rather than on a wide one only.
    """
    places = 10.0 ** (-3 * (1 - _PLACES)) if is_log else _PLACES
    heights = [100 * sample_steps(curve, places) for curve in (*(line.oracle for line in lines), *methods)]
    heights += [100 * np.interp(places, line.uninformed_beta, line.uninformed_accuracy) for line in lines]
    level = 100 * lines[0].full_accuracy
    options = [
        (*find_clear_place(heights, level + shift, span=span), anchor)
        for span in _LABEL_SPANS
        for anchor, shift in (("bottom", gap / 2), ("top", -gap / 2))
    ]
    clear = (option for option in options if option[1] >= gap / 2)
    start, _, anchor = next(clear, max(options, key=lambda option: option[1]))
    x = 100 * float(places[start])
    return {
        "text": f"Full thinking {format_percent(lines[0].full_accuracy)}",
        "x": float(np.log10(max(x, 0.1))) if is_log else x,
        "y": round(level, 3),
        "xshift": 4,
        "xanchor": "left",
        "yanchor": anchor,
        "showarrow": False,
        "name": FULL_THINKING_LABEL,
        "font": {"color": MUTED.light, "size": 12},
    }


_HOVER = "%{fullData.name}: %{y:.1f}\u00a0% at %{x:.1f}\u00a0% of the tokens<extra></extra>"


def _draw_steps(steps: Steps, *, span: float, is_log: bool, columns: int = 1000) -> dict[str, Any]:
    height = PLOT_HEIGHT * columns // 1000
    reduced = reduce_steps(steps, height_accuracy=span, width=columns, height=height, is_log=is_log)
    beta = reduced.beta
    if is_log and beta[0] == 0:
        # A logarithmic axis has no zero: the first step begins off its left end instead.
        beta = np.concatenate([[1e-4], beta[1:]])
    return {"x": _percent(beta), "y": _percent(reduced.accuracy), "mode": "lines", "hovertemplate": _HOVER}


def _percent(fractions: FloatArray) -> list[float]:
    return [round(value, 3) for value in (100 * fractions).tolist()]


def _drop_straight(beta: FloatArray, accuracy: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Leave out the points of a polyline that lie on the straight line between their neighbours."""
    if len(beta) < 3:
        return beta, accuracy
    left, right = np.diff(beta)[:-1], np.diff(beta)[1:]
    turn = np.diff(accuracy)[:-1] * right - np.diff(accuracy)[1:] * left
    kept = np.concatenate([[True], np.abs(turn) > 1e-12, [True]])
    return beta[kept], accuracy[kept]
