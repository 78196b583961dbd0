"""Small figures as pages show them: the picture's JSON, its title, and the same in a sentence and a table."""

from __future__ import annotations

from dataclasses import dataclass

import plotly.graph_objects as go

from app.plots.captions import Caption
from app.plots.frame import dump_figure
from app.plots.panels import DataTable, caption_figure, describe_figure, tabulate_figure

MAX_DIGITS = 4


@dataclass(frozen=True)
class KeyEntry:
    """An entry of a figure's key: a name, and the class that draws its mark."""

    name: str
    css_class: str


@dataclass(frozen=True)
class PanelView:
    """One small figure. `name` identifies it on the page, `sentence` is its alternative in words."""

    name: str
    download_name: str
    title: str
    sentence: str
    table: DataTable
    json: str
    is_wide: bool = False


def show_panel(
    figure: go.Figure,
    *,
    name: str,
    caption: Caption,
    download_name: str,
    sentence: str | None = None,
    table: DataTable | None = None,
    is_wide: bool = False,
) -> PanelView:
    """Return a figure as a page shows it; without a sentence or a table of its own they are read off its lines."""
    return PanelView(
        name=name,
        download_name=download_name,
        title=caption.title,
        sentence=sentence or describe_figure(figure, caption.title),
        table=table or tabulate_figure(figure),
        json=dump_figure(caption_figure(figure, caption)),
        is_wide=is_wide,
    )


def format_value(value: object) -> str:
    """Return a value of a figure's table: a dash for what is undefined, a true minus sign, no trailing zeros.

    Examples
    --------
    >>> format_value(-0.5), format_value(None), format_value(1234), format_value("b = 256"), format_value(1e-9)
    ('−0.5', '–', '1,234', 'b = 256', '0')
    """
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    text = f"{value:,.{MAX_DIGITS}f}".rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text.replace("-", "\N{MINUS SIGN}")
