"""The figure of a snapshot: what each strategy could reach at every budget."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from app.plots.captions import STRATEGY_TITLES, Caption, format_percent
from app.plots.frame import PLOT_HEIGHT, build_layout
from app.plots.palette import STRATEGY_TEXT_TONES, STRATEGY_TONES
from app.plots.traces import (
    FrontierLines,
    draw_full_thinking,
    draw_markers,
    draw_oracle,
    draw_uninformed,
    label_ends,
    label_full_thinking,
    span_accuracies,
)

FRONTIERS_KEY = (
    "◆ where the oracle reaches full-thinking accuracy (β_match), ● where it reaches its highest (β_sat), "
    "dotted: the uninformed reference."
)


def build_frontiers_figure(all_lines: Sequence[FrontierLines], *, caption: Caption, is_log: bool = False) -> go.Figure:
    """Draw the frontiers of several strategies on the same cells, each with its reference and its two markers."""
    low, high = span_accuracies(all_lines, [])
    full_accuracy = all_lines[0].full_accuracy
    traces = [draw_full_thinking(full_accuracy)]
    for lines in all_lines:
        oracle = draw_oracle(lines, span=(high - low) / 100, is_log=is_log, is_tinted=False)
        oracle.name = STRATEGY_TITLES[lines.strategy]
        reference = draw_uninformed(lines, tone=STRATEGY_TONES[lines.strategy], is_log=is_log)
        reference.name = f"{STRATEGY_TITLES[lines.strategy]}, uninformed"
        traces += [reference, oracle]
    for lines in all_lines:
        traces += draw_markers(lines)
    ends = [
        (STRATEGY_TITLES[lines.strategy], lines.max_accuracy, STRATEGY_TEXT_TONES[lines.strategy])
        for lines in all_lines
    ]
    annotations = [
        *label_ends(ends, low=low, high=high),
        label_full_thinking(all_lines, [], is_log=is_log, gap=15 * (high - low) / PLOT_HEIGHT),
    ]
    layout = build_layout(
        caption=caption, key=FRONTIERS_KEY, low=low, high=high, annotations=annotations, is_log=is_log
    )
    return go.Figure(data=traces, layout=layout)


def describe_frontier(lines: FrontierLines) -> str:
    """Return in one sentence where a strategy's frontier matches full thinking and where it ends."""
    title = STRATEGY_TITLES[lines.strategy]
    highest = f"reaches at most {format_percent(lines.max_accuracy)}, at {format_percent(lines.beta_sat)} of the tokens"
    if lines.beta_match is None:
        return f"{title} never matches full thinking and {highest}."
    return f"{title} matches full thinking at {format_percent(lines.beta_match)} of the tokens and {highest}."
