"""What all accuracy-against-budget figures share: axes, fonts, margins, the text of an exported picture."""

from __future__ import annotations

import json
import math
import textwrap
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from app.plots.captions import Caption
from app.plots.palette import GRID, INK, MUTED, PAPER, Tone, list_dark_replacements
from app.plots.steps import LOG_START

FONT_FAMILY = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif'
HEIGHT = 460
TOP, BOTTOM, LEFT, RIGHT = 30, 52, 46, 186
PLOT_HEIGHT = HEIGHT - TOP - BOTTOM
END_LABEL_GAP = 17  # pixels between the labels at line ends

EXPORT_LINE_CHARACTERS = 125  # a figure's text knows no other way to wrap
# The name by which the page's script finds the labels at line ends, for which a phone has no room.
END_LABEL = "end-label"


def build_layout(
    *,
    caption: Caption,
    key: str,
    low: float,
    high: float,
    annotations: Sequence[dict[str, Any]],
    is_log: bool,
    x_title: str = "Share of full-thinking tokens (%)",
    y_title: str = "Accuracy (%)",
) -> go.Layout:
    """Return the layout of a figure whose y axis spans `low` to `high` percent, its x axis 0 to 100.

    `key` explains the markers; like the title it is part of the exported picture, and text beside the figure on a page.
    `meta` tells the page's script the dark page's colours, and the margin that an exported picture's title takes.
    """
    axis = {
        "title": {
            "text": x_title,
            "standoff": 10,
            "font": {"size": 13, "color": MUTED.light},
        },
        "showgrid": False,
        "zeroline": False,
        "ticks": "outside",
        "ticklen": 4,
        "linecolor": GRID.light,
        "tickcolor": GRID.light,
        "fixedrange": True,
    }
    if is_log:
        axis |= {"type": "log", "range": [math.log10(100 * LOG_START), 2], "tickvals": [0.1, 0.3, 1, 3, 10, 30, 100]}
    else:
        axis |= {"range": [0, 100], "tickvals": [0, 20, 40, 60, 80, 100]}
    subtitle = textwrap.wrap(f"{caption.subtitle} {key}", EXPORT_LINE_CHARACTERS)
    return go.Layout(
        template=go.layout.Template(),  # None would bring the library's own, 7 kB of colours
        autosize=True,
        title={
            "text": escape_markup(caption.title),
            "subtitle": {"text": "<br>".join(map(escape_markup, subtitle)), "font": {"color": MUTED.light}},
            "x": 0,
            "xanchor": "left",
            "y": 1,
            "yanchor": "top",
            "pad": {"t": 18, "l": 10},
        },
        font={"family": FONT_FAMILY, "size": 13, "color": INK.light},
        margin={"t": TOP, "b": BOTTOM, "l": LEFT, "r": RIGHT},
        paper_bgcolor=PAPER.light,
        plot_bgcolor=PAPER.light,
        showlegend=False,
        hovermode="closest",
        hoverlabel={"bgcolor": PAPER.light, "bordercolor": GRID.light, "font": {"color": INK.light}},
        xaxis=axis,
        yaxis={"range": [low, high], "gridcolor": GRID.light, "zeroline": False, "ticks": "", "fixedrange": True},
        annotations=[_name_y_axis(y_title), *annotations],
        meta={"dark": list_dark_replacements(), "export_top": TOP + 52 + 18 * len(subtitle)},
    )


def _name_y_axis(title: str) -> dict[str, Any]:
    return {
        "text": title,
        "xref": "paper",
        "yref": "paper",
        "x": 0,
        "y": 1,
        "xshift": -LEFT + 6,
        "yshift": 8,
        "xanchor": "left",
        "yanchor": "bottom",
        "showarrow": False,
        "font": {"color": MUTED.light},
    }


def build_end_label(text: str, height: float, tone: Tone) -> dict[str, Any]:
    """Return the label at the right end of a line, `height` in percent of accuracy."""
    return {
        "name": END_LABEL,
        "text": escape_markup(text),
        "xref": "paper",
        "x": 1,
        "y": round(height, 3),
        "xshift": 6,
        "xanchor": "left",
        "yanchor": "middle",
        "showarrow": False,
        "font": {"color": tone.light},
    }


def escape_markup(text: str) -> str:
    """Plotly reads a little markup in text; a method may be named `a<b`."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def dump_figure(figure: go.Figure) -> str:
    """Return the figure as JSON that may stand inside a script element: no `<`, no NaN."""
    return json.dumps(figure.to_plotly_json(), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
