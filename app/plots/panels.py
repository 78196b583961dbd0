"""A small figure's words and numbers, read off its own traces: what a page shows beside it, and a spreadsheet gets."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from app.plots.captions import Caption
from app.plots.frame import EXPORT_LINE_CHARACTERS, escape_markup
from app.plots.palette import MUTED

Value = str | float | int | None
MAX_TABLE_ROWS = 60


@dataclass(frozen=True)
class DataTable:
    """The numbers behind a figure; the first column names the row."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]


def tabulate_figure(figure: go.Figure) -> DataTable:
    """Return a figure's named lines as a table: one column a line where all have the same x, else one row a point.

    Long lines are thinned evenly to `MAX_TABLE_ROWS` points; their first and last ones stay.
    """
    lines = _list_lines(figure)
    x_title = read_axis_title(figure, "xaxis")
    y_title = read_axis_title(figure, "yaxis") or "Value"
    shared = len({tuple(line["x"]) for line in lines}) == 1
    if shared:
        kept = _thin(len(lines[0]["x"]))
        rows = tuple((_show(lines[0]["x"][i], figure), *(line["y"][i] for line in lines)) for i in kept)
        names = [line["name"] for line in lines]
        return DataTable((x_title, *(names if len(lines) > 1 else [y_title])), rows)
    points: list[tuple[Value, ...]] = [
        (line["name"], line["x"][i], line["y"][i]) for line in lines for i in _thin(len(line["x"]))
    ]
    return DataTable(("Line", x_title, y_title), tuple(points))


def describe_figure(figure: go.Figure, title: str) -> str:
    """Return a figure in a sentence or two: what each of its lines does from one end to the other."""
    lines = _list_lines(figure)
    ends = [words for line in lines[:8] if (words := _describe_line(line))]
    more = f" and {len(lines) - 8} more" if len(lines) > 8 else ""
    x_title = read_axis_title(figure, "xaxis")
    over = f" Over {x_title[0].lower()}{x_title[1:]}:" if x_title and ends else ""
    return f"{title.rstrip('.')}.{over} {'; '.join(ends)}{more}." if ends else f"{title.rstrip('.')}."


def caption_figure(figure: go.Figure, caption: Caption) -> go.Figure:
    """Put title and subtitle on a figure, as an exported picture shows them; a page writes them around the figure."""
    subtitle = textwrap.wrap(caption.subtitle, EXPORT_LINE_CHARACTERS)
    title = {
        "text": escape_markup(caption.title),
        "subtitle": {"text": "<br>".join(map(escape_markup, subtitle)), "font": {"color": MUTED.light}},
        "x": 0,
        "xanchor": "left",
        "y": 1,
        "yanchor": "top",
        "pad": {"t": 18, "l": 10},
    }
    meta = {**figure.layout.meta, "export_top": figure.layout.margin.t + 52 + 18 * len(subtitle)}
    return figure.update_layout(title=title, meta=meta)


def read_axis_title(figure: go.Figure, axis: str) -> str:
    """Return an axis' title, which a small figure has above its y axis as a note."""
    text = figure.layout[axis].title.text
    if text is None and axis == "yaxis" and figure.layout.annotations:
        text = figure.layout.annotations[0].text
    return _plain(text or "")


def _list_lines(figure: go.Figure) -> list[dict[str, Any]]:
    """Return the named traces; an interval's edges and other nameless ones are part of a line beside them."""
    return [
        {"name": _plain(trace.name), "x": list(trace.x), "y": list(trace.y)}
        for trace in figure.data
        if trace.name and trace.x is not None and len(trace.x)
    ]


def _describe_line(line: dict[str, Any]) -> str:
    known = [(x, y) for x, y in zip(line["x"], line["y"], strict=True) if y is not None]
    if not known:
        return ""
    (_, first), (_, last) = known[0], known[-1]
    if len(known) == 1 or first == last:
        return f"{line['name']} {first:g}"
    return f"{line['name']} from {first:g} to {last:g}"


def _thin(n: int) -> Sequence[int]:
    if n <= MAX_TABLE_ROWS:
        return range(n)
    return sorted({round(i * (n - 1) / (MAX_TABLE_ROWS - 1)) for i in range(MAX_TABLE_ROWS)})


def _show(x: Any, figure: go.Figure) -> Value:
    """Return a place on the x axis by the name that its tick has, where it has one."""
    axis = figure.layout.xaxis
    if axis.tickvals is not None and axis.ticktext is not None:
        named = dict(zip(axis.tickvals, axis.ticktext, strict=False))
        return str(named.get(x, x))
    value: Value = x
    return value


def _plain(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
