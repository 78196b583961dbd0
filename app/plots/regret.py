"""Where a submission loses, over its settings: accuracy by stopping early and late, tokens wasted and forgone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from app.plots.frame import FONT_FAMILY, escape_markup
from app.plots.palette import GRID, INK, METHOD_STYLES, MUTED, PAPER, Tone, list_dark_replacements

EARLY, LATE = METHOD_STYLES[3].tone, METHOD_STYLES[2].tone
MAX_TICKS = 12


@dataclass(frozen=True)
class Part:
    """One part of every bar: its name, values in percent, colour, and hatching so that colour is not needed."""

    name: str
    values: Sequence[float]
    tone: Tone
    hatching: str
    hover: str


def build_regret_figure(settings: Sequence[str], *, early: Sequence[float], late: Sequence[float]) -> go.Figure:
    """Return stacked bars of the accuracy lost before and after each trajectory's own best position, in points."""
    parts = (
        Part("Stopped early", early, EARLY, "", "%{fullData.name}: %{y:.2f} points"),
        Part("Stopped late", late, LATE, "/", "%{fullData.name}: %{y:.2f} points"),
    )
    return _draw(settings, parts, y_title="Accuracy lost (points)")


def build_tokens_figure(settings: Sequence[str], *, wasted: Sequence[float], forgone: Sequence[float]) -> go.Figure:
    """Return bars of tokens kept past the best position, upwards, and of tokens up to it not kept, downwards."""
    parts = (
        Part("Wasted", wasted, LATE, "/", "%{fullData.name}: %{customdata:.2f}\u00a0% of the tokens"),
        Part(
            "Forgone",
            [-value for value in forgone],
            EARLY,
            "",
            "%{fullData.name}: %{customdata:.2f}\u00a0% of the tokens",
        ),
    )
    return _draw(settings, parts, y_title="Tokens (%): ↑ wasted, ↓ forgone")


def _draw(settings: Sequence[str], parts: Sequence[Part], *, y_title: str) -> go.Figure:
    names = [escape_markup(setting) for setting in settings]
    traces = [
        go.Bar(
            x=list(range(len(names))),
            y=[round(value, 4) for value in part.values],
            customdata=[round(abs(value), 4) for value in part.values],
            text=names,
            textposition="none",
            name=part.name,
            marker={"color": part.tone.light, "line": {"width": 0}, "pattern": _hatch(part)},
            hovertemplate=f"setting %{{text}}<br>{part.hover}<extra></extra>",
        )
        for part in parts
    ]
    return go.Figure(data=traces, layout=_lay_out(names, y_title))


def _hatch(part: Part) -> dict[str, Any] | None:
    if not part.hatching:
        return None
    return {"shape": part.hatching, "size": 5, "solidity": 0.35, "fgcolor": PAPER.light}


def _lay_out(names: Sequence[str], y_title: str) -> go.Layout:
    step = max(1, -(-len(names) // MAX_TICKS))
    shown = list(range(0, len(names), step))
    note = {"text": y_title, "xref": "paper", "yref": "paper", "x": 0, "y": 1, "xshift": -44, "yshift": 6}
    return go.Layout(
        template=go.layout.Template(),  # None would bring the library's own, 7 kB of colours
        autosize=True,
        barmode="relative",
        bargap=0.25 if len(names) <= 40 else 0,
        font={"family": FONT_FAMILY, "size": 12, "color": INK.light},
        margin={"t": 34, "b": 54, "l": 50, "r": 14},
        paper_bgcolor=PAPER.light,
        plot_bgcolor=PAPER.light,
        showlegend=False,
        hovermode="closest",
        hoverlabel={"bgcolor": PAPER.light, "bordercolor": GRID.light, "font": {"color": INK.light}},
        xaxis={
            "title": {"text": "Setting", "standoff": 8, "font": {"size": 12, "color": MUTED.light}},
            "range": [-0.6, len(names) - 0.4],
            "tickvals": shown,
            "ticktext": [_shorten(names[i]) for i in shown],
            "showgrid": False,
            "zeroline": False,
            "fixedrange": True,
            "linecolor": GRID.light,
        },
        yaxis={
            "gridcolor": GRID.light,
            "zeroline": True,
            "zerolinecolor": MUTED.light,
            "zerolinewidth": 1,
            "fixedrange": True,
            "nticks": 6,
            "rangemode": "tozero",
        },
        annotations=[
            {
                **note,
                "xanchor": "left",
                "yanchor": "bottom",
                "showarrow": False,
                "font": {"color": MUTED.light, "size": 12},
            }
        ],
        meta={"dark": list_dark_replacements()},
    )


def _shorten(name: str) -> str:
    return name if len(name) <= 12 else f"{name[:11]}…"
