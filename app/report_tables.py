"""HTML tables of a report's figures: models by benchmarks with their averages, and plain lists."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from app.plots.captions import format_hundredths
from app.report_values import Document

Key = tuple[str | None, str | None]
Figures = dict[Key, Mapping[str, Any]]
UNDEFINED = "–"
AVERAGE = "Average"


@dataclass(frozen=True)
class Column:
    """A figure of a table: its heading with the unit, its name in the document, and how it is written."""

    heading: str
    name: str
    write: Callable[[Any], str]


def write_percent(value: float | None) -> str:
    """Return a fraction as percent without the sign, which the heading has.

    Examples
    --------
    >>> write_percent(0.6434), write_percent(None)
    ('64.3', '–')
    """
    return UNDEFINED if value is None else format_hundredths(value)


def write_count(value: float | None) -> str:
    """Return a number rounded to an integer, with commas."""
    return UNDEFINED if value is None else f"{value:,.0f}"


def write_number(value: float | None) -> str:
    """Return a number with two digits after the point and a true minus sign."""
    return UNDEFINED if value is None else f"{value:.2f}".replace("-", "\N{MINUS SIGN}")


def write_interval(value: Sequence[float] | None) -> str:
    """Return an interval of fractions in percent.

    Examples
    --------
    >>> write_interval([0.3006, 0.3896])
    '[30.1, 39.0]'
    """
    return UNDEFINED if value is None else f"[{format_hundredths(value[0])}, {format_hundredths(value[1])}]"


def index_figures(section: Document) -> Figures:
    """Return a section's figures by (model, benchmark); None stands for the average over them."""
    found: Figures = {(c["model"], c["benchmark"]): c.get("figures", c) for c in section["cells"]}
    if "averages" not in section:
        found |= {(name, None): figures or {} for name, figures in section["by_model"].items()}
        found |= {(None, name): figures or {} for name, figures in section["by_benchmark"].items()}
        return {**found, (None, None): section["macro"] or {}}
    averages = section["averages"]
    for place, by_name in (("by_model", True), ("by_benchmark", False)):
        for name in next(iter(averages.values()))[place]:
            key = (name, None) if by_name else (None, name)
            found[key] = {figure: average[place][name] for figure, average in averages.items()}
    found[None, None] = {figure: average["macro"] for figure, average in averages.items()}
    return found


def build_grid(document: Document, figures: Figures, columns: Sequence[Column], *, caption: str) -> str:
    """Return a table of models by benchmarks, with averages where there is more than one of them."""
    benchmarks: list[str | None] = list(document["benchmarks"])
    models: list[str | None] = list(document["models"])
    if len(benchmarks) > 1:
        benchmarks.append(None)
    if len(models) > 1:
        models.append(None)
    several = len(columns) > 1
    head = '<tr><th scope="col"' + (' rowspan="2"' if several else "") + ">Model</th>"
    head += "".join(_heading(name or AVERAGE, len(columns)) for name in benchmarks) + "</tr>"
    if several:
        head += "<tr>" + "".join(_heading(column.heading, 1) for _ in benchmarks for column in columns) + "</tr>"
    body = [
        _row(
            model or AVERAGE,
            [column.write(figures.get((model, b), {}).get(column.name)) for b in benchmarks for column in columns],
            is_average=model is None,
        )
        for model in models
    ]
    unit = "" if several else f" {escape(columns[0].heading)}."
    return _frame(head, body, caption=f"{escape(caption)}{unit}")


def build_list(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    caption: str,
    n_texts: int = 1,
    summary: Sequence[str] = (),
) -> str:
    """Return a table with a row for each list of texts, and one that sums them up.

    The first `n_texts` columns are words, the others numbers.
    """
    titles = (_heading(heading, 1, is_text=idx < n_texts) for idx, heading in enumerate(headings))
    body = [_row(row[0], row[1:], n_texts=n_texts - 1) for row in rows]
    if summary:
        body.append(_row(summary[0], summary[1:], is_average=True))
    return _frame(f"<tr>{''.join(titles)}</tr>", body, caption=escape(caption))


def _heading(text: str, span: int, *, is_text: bool = False) -> str:
    kind = f' colspan="{span}" class="group"' if span > 1 else ' class="text"' if is_text else ""
    return f'<th scope="col"{kind}>{escape(text)}</th>'


def _row(name: str, cells: Sequence[str], *, is_average: bool = False, n_texts: int = 0) -> str:
    kind = ' class="average"' if is_average else ""
    texts = "".join(f'<td class="text">{escape(cell)}</td>' for cell in cells[:n_texts])
    numbers = "".join(f"<td>{escape(cell)}</td>" for cell in cells[n_texts:])
    return f'<tr{kind}><th scope="row">{escape(name)}</th>{texts}{numbers}</tr>'


def _frame(head: str, body: Sequence[str], *, caption: str) -> str:
    return (
        f'<div class="frame" tabindex="0"><table><caption>{caption}</caption>'
        f"<thead>{head}</thead><tbody>{''.join(body)}</tbody></table></div>"
    )
