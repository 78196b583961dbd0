"""The figure of one board: the oracle above, the uninformed reference below, every method between them."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from app.plots.bands import draw_band, draw_whiskers
from app.plots.captions import Caption, format_percent
from app.plots.frame import PLOT_HEIGHT, build_layout, escape_markup
from app.plots.labels import shorten
from app.plots.palette import MUTED, REFERENCE, STRATEGY_TEXT_TONES, STRATEGY_TINTS
from app.plots.traces import (
    FrontierLines,
    MethodLine,
    choose_columns,
    draw_full_thinking,
    draw_markers,
    draw_method,
    draw_oracle,
    draw_points,
    draw_uninformed,
    label_ends,
    label_full_thinking,
    span_accuracies,
)


def build_board_figure(
    lines: FrontierLines, methods: Sequence[MethodLine], *, caption: Caption, is_log: bool = False
) -> go.Figure:
    """Draw the board: the first method lies above the others, the pale ones below everything."""
    low, high = span_accuracies([lines], methods)
    span = (high - low) / 100
    vivid = [method for method in methods if not method.is_pale]
    pale = choose_columns(methods)

    def draw(method: MethodLine, columns: int) -> go.Scatter:
        return draw_method(method, lines.oracle, span=span, is_log=is_log, columns=columns)

    traces = [
        *draw_bands(lines, vivid, is_log=is_log),
        *(draw(method, pale) for method in methods if method.is_pale),
        draw_uninformed(lines, tone=REFERENCE, is_log=is_log),
        draw_oracle(lines, span=span, is_log=is_log, is_tinted=True),
        draw_full_thinking(lines.full_accuracy),
        *(draw(method, 1000) for method in reversed(vivid)),
        *(draw_points(method) for method in reversed(vivid) if method.points),
        *draw_markers(lines),
    ]
    ends = [
        ("Oracle", lines.max_accuracy, STRATEGY_TEXT_TONES[lines.strategy]),
        ("Uninformed reference", float(lines.uninformed_accuracy[-1]), MUTED),
        *((shorten(method.name), float(method.steps.accuracy[-1]), method.style.tone) for method in vivid),
    ]
    curves = [method.steps for method in methods]
    annotations = [
        *label_ends(ends, low=low, high=high),
        label_full_thinking([lines], curves, is_log=is_log, gap=15 * (high - low) / PLOT_HEIGHT),
    ]
    layout = build_layout(
        caption=caption, key=describe_markers(lines), low=low, high=high, annotations=annotations, is_log=is_log
    )
    return go.Figure(data=traces, layout=layout)


def draw_bands(lines: FrontierLines, methods: Sequence[MethodLine], *, is_log: bool) -> list[go.Scatter]:
    """Draw the intervals that are to be drawn, below everything else: the oracle's band, the methods' whiskers."""
    drawn = []
    if lines.band is not None:
        tint = STRATEGY_TINTS[lines.strategy]
        drawn.append(draw_band(lines.band, name="Oracle, 95 % interval", tint=tint, is_log=is_log))
    for place, method in enumerate(methods):
        if method.whiskers:
            name = escape_markup(method.name)
            drawn.append(draw_whiskers(method.whiskers, name=name, tone=method.style.tone, place=place))
    return drawn


def describe_markers(lines: FrontierLines) -> str:
    """Return the key of the two markers on the oracle's line, in words.

    Where the oracle never reaches full-thinking accuracy there is no diamond, and the key says so.
    """
    highest = (
        f"● its highest accuracy, {format_percent(lines.max_accuracy)}, "
        f"at {format_percent(lines.beta_sat)} of the tokens (β_sat)."
    )
    if lines.beta_match is None:
        return f"The oracle never reaches full-thinking accuracy; {highest}"
    return (
        f"◆ The oracle reaches full-thinking accuracy at {format_percent(lines.beta_match)} of the tokens (β_match), "
        f"{highest}"
    )
