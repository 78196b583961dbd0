"""95 % intervals in a figure: a light band around a whole curve, whiskers where an interval is known at points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from app.plots.captions import format_percent
from app.plots.palette import Tone
from app.plots.steps import LOG_START, FloatArray

# How far beside its budget a whisker stands, in percent of the tokens, so that those of several methods stay apart.
WHISKER_SHIFT = 0.5


@dataclass(frozen=True, eq=False)
class Band:
    """The pointwise interval of a curve: accuracies as fractions at rising relative budgets."""

    beta: FloatArray
    low: FloatArray
    high: FloatArray


@dataclass(frozen=True)
class Whisker:
    """The interval of a curve's accuracy at one relative budget, all fractions."""

    beta: float
    low: float
    high: float


def draw_band(band: Band, *, name: str, tint: Tone, is_log: bool) -> go.Scatter:
    """Draw a band as one filled outline: along its lower end and back along its upper one."""
    beta = np.maximum(band.beta, LOG_START) if is_log else band.beta
    return go.Scatter(
        x=_round(np.concatenate([beta, beta[::-1]])),
        y=_round(np.concatenate([band.low, band.high[::-1]])),
        name=name,
        mode="lines",
        fill="toself",
        fillcolor=tint.light,
        line={"width": 0},
        hoverinfo="skip",
    )


def draw_whiskers(whiskers: Sequence[Whisker], *, name: str, tone: Tone, place: int) -> go.Scatter:
    """Draw whiskers as one line with gaps; `place` numbers the method, whose whiskers stand beside those before it."""
    x: list[float | None] = []
    y: list[float | None] = []
    text: list[str | None] = []
    for whisker in whiskers:
        at = round(100 * whisker.beta + WHISKER_SHIFT * place, 3)
        told = f"95\N{NO-BREAK SPACE}% interval at {format_percent(whisker.beta, 0)} of the tokens: "
        told += f"{format_percent(whisker.low)} to {format_percent(whisker.high)}"
        x += [at, at, None]
        y += [round(100 * whisker.low, 3), round(100 * whisker.high, 3), None]
        text += [told, told, None]
    return go.Scatter(
        x=x,
        y=y,
        text=text,
        name=name,
        mode="lines",
        line={"color": tone.light, "width": 1},
        opacity=0.6,
        hovertemplate="%{fullData.name}, %{text}<extra></extra>",
    )


def _round(fractions: FloatArray) -> list[float]:
    return [round(value, 3) for value in (100 * fractions).tolist()]
