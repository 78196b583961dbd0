"""Small multiples: the same figure for each model or each benchmark, all on the same axes."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from app.plots.board import draw_bands
from app.plots.captions import Caption
from app.plots.frame import build_layout, escape_markup
from app.plots.labels import shorten
from app.plots.palette import INK, REFERENCE
from app.plots.traces import (
    FrontierLines,
    MethodLine,
    draw_full_thinking,
    draw_markers,
    draw_method,
    draw_oracle,
    draw_uninformed,
    span_accuracies,
)

PANEL_TITLE = "panel-title"
PANEL_COLUMNS = 400  # pixels a panel is drawn for
WIDE_COLUMNS = 3
GAP, TITLE_PIXELS = 0.045, 26
TITLE_SHARE = 0.22  # of a row's height: the axis of the row above, and a panel's title
WIDE_ROW_PIXELS, NARROW_ROW_PIXELS = 250, 210
"""As the style sheet has it: the height of a row of panels on a wide page and on a phone."""
MULTIPLES_KEY = "◆ β_match, ● β_sat of the oracle (solid), dotted: the uninformed reference, dashed: full thinking."


@dataclass(frozen=True, eq=False)
class Panel:
    """One board among several of the same kind: its name, frontier and methods."""

    title: str
    lines: FrontierLines
    methods: tuple[MethodLine, ...]


def build_multiples_figure(panels: Sequence[Panel], *, caption: Caption, is_log: bool = False) -> go.Figure:
    """Draw one panel a board, with the same axes and the same style for a method everywhere.

    `meta` has the panels' places for a wide page, and for a phone's single column.
    """
    low, high = span_accuracies([panel.lines for panel in panels], [m for panel in panels for m in panel.methods])
    layout = build_layout(caption=caption, key=MULTIPLES_KEY, low=low, high=high, annotations=[], is_log=is_log)
    layout.margin.r, layout.margin.l, layout.margin.t = 14, 40, TITLE_PIXELS + 14
    n_columns = count_columns(len(panels))
    places = place_panels(len(panels), n_columns)
    layout.annotations = [title_panel(panel.title, place) for panel, place in zip(panels, places, strict=True)]
    traces = []
    for idx, panel in enumerate(panels):
        _add_axes(layout, idx, places[idx], is_bottom=idx + n_columns >= len(panels), is_left=idx % n_columns == 0)
        for trace in _draw_panel(panel, span=(high - low) / 100, is_log=is_log):
            trace.update(xaxis=f"x{idx + 1}", yaxis=f"y{idx + 1}", legendgroup=trace.name, showlegend=idx == 0)
            traces.append(trace)
    n_rows = math.ceil(len(panels) / n_columns)
    layout.meta = {
        **layout.meta,
        "narrow_places": place_panels(len(panels), 1),
        "export_height": layout.meta["export_top"] + n_rows * WIDE_ROW_PIXELS,
    }
    layout.legend = {"orientation": "h", "x": 0, "y": -0.12, "yanchor": "top"}
    return go.Figure(data=traces, layout=layout)


def count_columns(n_panels: int) -> int:
    """Return how many panels stand beside each other on a wide page."""
    return min(n_panels, 2) if n_panels in (1, 2, 4) else WIDE_COLUMNS


def place_panels(n_panels: int, n_columns: int) -> list[dict[str, list[float]]]:
    """Return where each panel lies in the plot, as shares of its width and height, row by row from the top.

    Examples
    --------
    >>> place_panels(2, 1)
    [{'x': [0.0, 1.0], 'y': [0.555, 1.0]}, {'x': [0.0, 1.0], 'y': [0.0, 0.445]}]
    """
    n_rows = math.ceil(n_panels / n_columns)
    width = (1 - GAP * (n_columns - 1)) / n_columns
    # Between rows there is a panel's title and the axis above it.
    room = TITLE_SHARE / n_rows
    height = (1 - room * (n_rows - 1)) / n_rows
    places = []
    for idx in range(n_panels):
        row, column = divmod(idx, n_columns)
        left, bottom = column * (width + GAP), 1 - row * (height + room) - height
        x = [round(left, 4), round(min(left + width, 1.0), 4)]
        y = [round(max(bottom, 0.0), 4), round(min(bottom + height, 1.0), 4)]
        places.append({"x": x, "y": y})
    return places


def title_panel(title: str, place: dict[str, list[float]]) -> dict[str, Any]:
    """Return a panel's title, above its left corner."""
    return {
        "name": PANEL_TITLE,
        "text": escape_markup(shorten(title)),
        "xref": "paper",
        "yref": "paper",
        "x": place["x"][0],
        "y": place["y"][1],
        "xanchor": "left",
        "yanchor": "bottom",
        "yshift": 4,
        "showarrow": False,
        "font": {"color": INK.light},
    }


def _add_axes(layout: go.Layout, idx: int, place: dict[str, list[float]], *, is_bottom: bool, is_left: bool) -> None:
    """Give a panel axes of its own, which are those of the first in another place."""
    number = "" if idx == 0 else str(idx + 1)
    x, y = (copy.deepcopy(layout[name].to_plotly_json()) for name in ("xaxis", "yaxis"))
    x |= {"domain": place["x"], "anchor": f"y{idx + 1}", "title": {"text": ""}}
    y |= {"domain": place["y"], "anchor": f"x{idx + 1}", "nticks": 4}
    if not x.get("type"):
        x["tickvals"] = [0, 50, 100]
    elif x["type"] == "log":
        x["tickvals"] = [0.1, 1, 10, 100]
    layout[f"xaxis{number}"], layout[f"yaxis{number}"] = x, y


def _draw_panel(panel: Panel, *, span: float, is_log: bool) -> list[go.Scatter]:
    lines = panel.lines
    vivid = [method for method in panel.methods if not method.is_pale]
    ordered = [*(method for method in panel.methods if method.is_pale), *reversed(vivid)]
    return [
        *draw_bands(lines, vivid, is_log=is_log),
        draw_uninformed(lines, tone=REFERENCE, is_log=is_log),
        draw_oracle(lines, span=span, is_log=is_log, is_tinted=True, columns=PANEL_COLUMNS),
        draw_full_thinking(lines.full_accuracy),
        *(draw_method(one, lines.oracle, span=span, is_log=is_log, columns=PANEL_COLUMNS) for one in ordered),
        *draw_markers(lines, size=8),
    ]
