"""The lines, points and labels that accuracy-against-budget figures are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.evaluator.strategies import Strategy
from app.plots.bands import Band, Whisker
from app.plots.captions import format_hundredths, format_percent
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
PALE_COLUMNS = (500, 250, 125, 60, 30)
MOST_PALE_POINTS = 9000
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
    band : the oracle's 95 % interval, None where there is none or it is not to be drawn.
    """

    strategy: Strategy
    oracle: Steps
    uninformed_beta: FloatArray
    uninformed_accuracy: FloatArray
    full_accuracy: float
    beta_match: float | None
    max_accuracy: float
    beta_sat: float
    band: Band | None = None


@dataclass(frozen=True)
class OperatingPoint:
    """One setting of a method in one cell: relative budget and accuracy as fractions.

    `mean_tokens` are what it keeps of a trajectory, `gap` what the oracle is right more often at the same cost.
    """

    setting: str
    beta: float
    accuracy: float
    mean_tokens: float | None = None
    gap: float | None = None


@dataclass(frozen=True, eq=False)
class MethodLine:
    """A method's curve; `points` only on a board of one cell, whose frontier bounds every one of them.

    `key` is the submission, by which the page's script finds the row of a line and the line of a row. `whiskers` are
    intervals of the curve at some budgets, where they are to be drawn.
    """

    name: str
    steps: Steps
    style: LineStyle
    points: tuple[OperatingPoint, ...] = ()
    key: str = ""
    whiskers: tuple[Whisker, ...] = ()

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
    values += [end for method in methods for whisker in method.whiskers for end in (whisker.low, whisker.high)]
    values += [float(end) for lines in all_lines if lines.band for end in (lines.band.low.min(), lines.band.high.max())]
    low, high = 100 * min(values), 100 * max(values)
    room = max(0.05 * (high - low), 0.5)
    return max(low - room, -1.0), min(high + room, 101.0)


def draw_oracle(lines: FrontierLines, *, span: float, is_log: bool, is_tinted: bool, columns: int = 1000) -> go.Scatter:
    """Draw the frontier; tinted, it fills the area down to the trace before it."""
    strategy = lines.strategy
    tint: dict[str, Any] = {"fill": "tonexty", "fillcolor": STRATEGY_TINTS[strategy].light} if is_tinted else {}
    return go.Scatter(
        **_draw_steps(lines.oracle, span=span, is_log=is_log, columns=columns),
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


def draw_method(method: MethodLine, oracle: Steps, *, span: float, is_log: bool, columns: int = 1000) -> go.Scatter:
    """Draw a method's step curve in its style; hovering it tells how far the oracle is above it."""
    drawn = _draw_steps(method.steps, span=span, is_log=is_log, columns=columns)
    at = np.minimum(np.array(drawn["x"]) / 100, 1.0)
    # A drawn oracle has the budgets of a grid, between which the exact one may be a little higher.
    gaps = np.maximum(sample_steps(oracle, at) - np.array(drawn["y"]) / 100, 0.0)
    drawn["hovertemplate"] = _HOVER.replace("<extra>", _HOVER_GAP)
    return go.Scatter(
        **drawn,
        customdata=[round(gap, 1) for gap in (100 * gaps).tolist()],
        name=escape_markup(method.name),
        meta={"row": method.key},
        line={
            "color": method.style.tone.light,
            "width": 1.2 if method.is_pale else 2,
            "dash": method.style.dash,
            "shape": "hv",
        },
    )


def choose_columns(methods: Sequence[MethodLine]) -> int:
    """Return on how many columns the pale lines are drawn: half of the others', fewer where they are very many.

    They are the background. However many there are, together they hold about as many points as the figure can bear.
    """
    pale = [len(method.steps.beta) for method in methods if method.is_pale]
    columns = PALE_COLUMNS[0]
    for columns in PALE_COLUMNS:
        if sum(min(n, columns) for n in pale) <= MOST_PALE_POINTS:
            break
    return columns


def draw_points(method: MethodLine) -> go.Scatter:
    """Draw a method's operating points in its shape, each named by its setting."""
    return go.Scatter(
        x=[round(100 * point.beta, 3) for point in method.points],
        y=[round(100 * point.accuracy, 3) for point in method.points],
        text=[escape_markup(point.setting) for point in method.points],
        customdata=[_describe_cost(point) for point in method.points],
        name=escape_markup(method.name),
        meta={"row": method.key},
        mode="markers",
        cliponaxis=False,
        marker={"symbol": method.style.symbol, "size": 7, "color": method.style.tone.light},
        hovertemplate=_HOVER.replace(":", ", setting %{text}:", 1).replace("<extra>", "%{customdata}<extra>"),
    )


def _describe_cost(point: OperatingPoint) -> str:
    tokens = "" if point.mean_tokens is None else f" ({point.mean_tokens:,.0f} a trajectory)"
    gap = "" if point.gap is None else f", {format_hundredths(point.gap)} points below the oracle"
    return f"{tokens}{gap}"


def draw_markers(lines: FrontierLines, *, size: int = 11) -> list[go.Scatter]:
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
                "size": size,
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
_HOVER_GAP = ", %{customdata:.1f} points below the oracle<extra>"


def _draw_steps(steps: Steps, *, span: float, is_log: bool, columns: int = 1000) -> dict[str, Any]:
    height = PLOT_HEIGHT * columns // 1000
    reduced = reduce_steps(steps, height_accuracy=span, width=columns, height=height, is_log=is_log)
    beta = reduced.beta
    if is_log and beta[0] == 0:
        # A logarithmic axis has no zero: the first step begins off its left end instead.
        beta = np.concatenate([[1e-4], beta[1:]])
    x = _percent_of_log(beta) if is_log else _percent(beta)
    return {"x": x, "y": _percent(reduced.accuracy), "mode": "lines", "hovertemplate": _HOVER}


def _percent(fractions: FloatArray) -> list[float]:
    return [round(value, 3) for value in (100 * fractions).tolist()]


def _percent_of_log(fractions: FloatArray) -> list[float]:
    """As many digits everywhere on a logarithmic axis: three decimals would move a step at its beginning by a pixel."""
    return [float(f"{value:.4g}") for value in (100 * fractions).tolist()]


def _drop_straight(beta: FloatArray, accuracy: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Leave out the points of a polyline that lie on the straight line between their neighbours."""
    if len(beta) < 3:
        return beta, accuracy
    left, right = np.diff(beta)[:-1], np.diff(beta)[1:]
    turn = np.diff(accuracy)[:-1] * right - np.diff(accuracy)[1:] * left
    kept = np.concatenate([[True], np.abs(turn) > 1e-12, [True]])
    return beta[kept], accuracy[kept]
