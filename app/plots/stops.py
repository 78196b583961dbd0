"""One recorded trajectory with the position at which a setting stopped, and the oracle's at the same cost."""

from __future__ import annotations

import plotly.graph_objects as go

from app.evaluator.strategies import Strategy
from app.plots.palette import METHOD_STYLES, STRATEGY_TONES, Tone
from app.plots.report_figures import draw_curve
from app.plots.steps import FloatArray

STOP_TONE = METHOD_STYLES[3].tone
ORACLE_TONE = STRATEGY_TONES[Strategy.DYNAMIC_EARLY_EXIT]


def draw_stop(share: FloatArray, accuracy: FloatArray, *, reference: int, stop: int, oracle: int) -> go.Figure:
    """Draw P(k) of a trajectory with a star at k*, a cross where the setting stopped, a diamond where the oracle did.

    Parameters
    ----------
    share, accuracy : of the tokens kept and of the probes that are right, at every position, fractions.
    """
    figure = draw_curve(share, accuracy, reference)
    for position, name, symbol, tone in (
        (oracle, "oracle at the same cost", "diamond-open", ORACLE_TONE),
        (stop, "stopped here", "x", STOP_TONE),
    ):
        figure.add_trace(_mark(share, accuracy, position, name=name, symbol=symbol, tone=tone))
    return figure


def _mark(share: FloatArray, accuracy: FloatArray, position: int, *, name: str, symbol: str, tone: Tone) -> go.Scatter:
    return go.Scatter(
        x=[round(100 * float(share[position]), 2)],
        y=[round(100 * float(accuracy[position]), 2)],
        name=name,
        mode="markers",
        cliponaxis=False,
        marker={"symbol": symbol, "size": 11, "color": tone.light, "line": {"width": 2, "color": tone.light}},
        hovertemplate="%{fullData.name}: %{y:.0f}\u00a0% at %{x:.0f}\u00a0% of the tokens<extra></extra>",
    )
