"""The colours and line styles of every figure, each colour with the one that replaces it on a dark page."""

from __future__ import annotations

from dataclasses import dataclass

from app.evaluator.strategies import Strategy


@dataclass(frozen=True)
class Tone:
    """A colour on a light page and the one that stands for it on a dark page."""

    light: str
    dark: str


INK = Tone("#1f252c", "#e4e7ea")
MUTED = Tone("#5b6570", "#9aa4ae")
PALE = Tone("#a9b1ba", "#5d6771")
GRID = Tone("#e3e6ea", "#2b3138")
REFERENCE = Tone("#77818c", "#8b959f")
PAPER = Tone("#ffffff", "#14171a")

# Okabe and Ito's colours, kept on every page; the tints fill the area between the oracle and the reference.
STRATEGY_TONES = {
    Strategy.DYNAMIC_ROUTING: Tone("#0072B2", "#4FA9E6"),
    Strategy.FIXED_BUDGET: Tone("#D55E00", "#F0894A"),
    Strategy.DYNAMIC_EARLY_EXIT: Tone("#009E73", "#2FBF94"),
}
# Text needs more contrast on white than a line does.
STRATEGY_TEXT_TONES = {
    Strategy.DYNAMIC_ROUTING: Tone("#00649D", "#6BB8EC"),
    Strategy.FIXED_BUDGET: Tone("#A84A00", "#F39A63"),
    Strategy.DYNAMIC_EARLY_EXIT: Tone("#00714F", "#3FCBA0"),
}
STRATEGY_TINTS = {
    Strategy.DYNAMIC_ROUTING: Tone("rgba(0,114,178,0.09)", "rgba(79,169,230,0.13)"),
    Strategy.FIXED_BUDGET: Tone("rgba(213,94,0,0.09)", "rgba(240,137,74,0.13)"),
    Strategy.DYNAMIC_EARLY_EXIT: Tone("rgba(0,158,115,0.09)", "rgba(47,191,148,0.13)"),
}


@dataclass(frozen=True)
class LineStyle:
    """How one method is drawn: dashes and shape tell methods apart first, the colour second.

    `dash` is a length list in pixels, or "solid"; it is what both the figure and the table's swatch draw.
    """

    dash: str
    symbol: str
    tone: Tone


METHOD_STYLES = (
    LineStyle("solid", "circle", INK),
    LineStyle("7px,3px", "square", Tone("#8A3B7C", "#D890C8")),
    LineStyle("2px,2px", "triangle-up", Tone("#8A6100", "#D9A93B")),
    LineStyle("9px,3px,2px,3px", "diamond", Tone("#2F4B9B", "#93A9F0")),
    LineStyle("12px,4px", "cross", Tone("#9C2F36", "#EE8C8C")),
    LineStyle("4px,2px,1px,2px,1px,2px", "triangle-down", Tone("#4A5A1A", "#A9BF62")),
)
CONTROL_STYLE = LineStyle("solid", "circle-open", PALE)


def pick_method_style(idx: int) -> LineStyle:
    """Return the style of the board's method number `idx` (0 first); past the last style all are drawn pale."""
    return METHOD_STYLES[idx] if idx < len(METHOD_STYLES) else CONTROL_STYLE


def list_dark_replacements() -> dict[str, str]:
    """Return every light colour a figure may hold with the dark page's one."""
    tones = [INK, MUTED, PALE, GRID, REFERENCE, PAPER, *(style.tone for style in METHOD_STYLES)]
    for group in (STRATEGY_TONES, STRATEGY_TEXT_TONES, STRATEGY_TINTS):
        tones.extend(group.values())
    return {tone.light: tone.dark for tone in tones}
