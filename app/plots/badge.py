"""Badges: a small picture with a word and a figure, to be shown on other sites."""

from __future__ import annotations

from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

HEIGHT = 20
PADDING = 7
FONT = "Verdana, 'DejaVu Sans', Geneva, sans-serif"
LABEL_GROUND = "#3c454e"
NARROW, WIDE = "fijlrtI.,:;|!'()[] 1-–·", "mwMWQ%@—"
NARROW_PIXELS, USUAL_PIXELS, WIDE_PIXELS = 4.6, 7.0, 10.4


@dataclass(frozen=True)
class Badge:
    """What a badge says: a label, a message on a ground of this colour, and both at length for those who hear it."""

    label: str
    message: str
    ground: str
    title: str


def measure_text(text: str) -> int:
    """Return about how many pixels a text of 11 pixels is wide; it is then drawn exactly as wide.

    Examples
    --------
    >>> measure_text("OTBoard"), measure_text("")
    (47, 0)
    """
    pixels = 0.0
    for character in text:
        pixels += NARROW_PIXELS if character in NARROW else WIDE_PIXELS if character in WIDE else USUAL_PIXELS
    return round(pixels)


def draw_badge(badge: Badge) -> str:
    """Return the badge as SVG. Nothing in its texts can be read as markup.

    Examples
    --------
    >>> "a &lt;b&gt;" in draw_badge(Badge("a <b>", "1", "#000000", "t"))
    True
    """
    left, right = (measure_text(text) + 2 * PADDING for text in (badge.label, badge.message))
    width = left + right
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{HEIGHT}" role="img" '
        f"aria-label={quoteattr(badge.title)}>"
        f"<title>{escape(badge.title)}</title>"
        f'<clipPath id="r"><rect width="{width}" height="{HEIGHT}" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="{HEIGHT}" fill="{LABEL_GROUND}"/>'
        f'<rect x="{left}" width="{right}" height="{HEIGHT}" fill={quoteattr(badge.ground)}/></g>'
        f'<g fill="#ffffff" font-family="{FONT}" font-size="11">'
        f"{_draw_text(badge.label, PADDING)}{_draw_text(badge.message, left + PADDING)}</g></svg>\n"
    )


def _draw_text(text: str, x: int) -> str:
    return f'<text x="{x}" y="14" textLength="{measure_text(text)}">{escape(text)}</text>'
