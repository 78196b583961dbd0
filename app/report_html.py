"""A report's page: one HTML file that asks no host for anything, with Plotly's script inside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files

from app.plots.captions import SYNTHETIC_NOTICE, format_percent
from app.plots.frame import dump_figure
from app.report_sections import Mark, PanelGroup, Section, list_sections
from app.report_tables import write_count
from app.report_values import Document

PAPER = "Constructing Pareto Frontiers of Optimal Reasoning Termination Methods for Overthinking in Reasoning Models"
# The outlines of the figures' symbols in a square of 12 pixels.
_SHAPES = {
    "circle": "M6 1a5 5 0 1 0 .01 0z",
    "square": "M1.5 1.5h9v9h-9z",
    "triangle-up": "M6 1l5.5 10h-11z",
    "diamond": "M6 0l6 6-6 6-6-6z",
    "cross": "M4 1h4v3h3v4h-3v3h-4v-3h-3v-4h3z",
    "triangle-down": "M6 11l5.5-10h-11z",
}
# A report asks no host for anything, whatever a snapshot's texts hold.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


def render_report(document: Document) -> str:
    """Return the page of a report's document."""
    return "".join(_render(document))


def _render(document: Document) -> Iterator[str]:
    sections = list_sections(document)
    title = f"{document['title']}: analysis"
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield f'<title>{escape(title)}</title>\n<link rel="icon" href="data:,">\n'
    yield f"<style>\n{_load('report.css')}</style>\n</head>\n<body>\n"
    if document["kind"] == "synthetic":
        yield f'<div class="banner" role="note">{SYNTHETIC_NOTICE}</div>\n'
    yield _render_header(document, sections)
    yield "<main>\n"
    count = 0
    for section in sections:
        text, count = _render_section(section, count)
        yield text
    yield f"</main>\n{_render_footer(document)}"
    yield f"<script>\n{_load_plotly()}\n</script>\n<script>\n{_load('report.js')}</script>\n</body>\n</html>\n"


def _render_header(document: Document, sections: Sequence[Section]) -> str:
    n_questions = sum(document["n_questions"].values())
    split = "all splits" if document["split"] == "all" else f"{document['split']} split"
    facts = (
        f"{escape(document['snapshot'])}, {split}: {_count(len(document['models']), 'model')}, "
        f"{_count(len(document['benchmarks']), 'benchmark')}, {_count(n_questions, 'question')}, "
        f"{_count(document['trajectories_per_question'], 'trajectory', 'trajectories')} each, "
        f"{_count(document['probes_per_position'], 'probe')} at every position. {document['kind'].capitalize()}."
    )
    links = "".join(f'<li><a href="#{s.anchor}">{escape(s.title)}</a></li>' for s in sections)
    return (
        f'<header>\n<h1>{escape(document["title"])}</h1>\n<p class="lead">{facts}</p>\n{_render_headline(document)}'
        f'<nav aria-label="Contents"><ol>{links}</ol></nav>\n'
        "<noscript><p>The figures need scripts; every table is here without.</p></noscript>\n</header>\n"
    )


def _render_headline(document: Document) -> str:
    macro = document["overthinking"]["macro"]
    if macro is None:
        return ""
    figures = [
        ("of the thinking comes after the best position (OR)", format_percent(macro["overthinking_ratio"])),
        ("lost by the end of thinking, in points (AD)", format_percent(macro["accuracy_degradation"]).split("\xa0")[0]),
        ("of the probes are right at the end", format_percent(macro["endpoint_accuracy"])),
        ("thinking tokens on average", write_count(macro["mean_thinking_tokens"])),
    ]
    items = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in figures)
    return f'<dl class="headline">{items}</dl>\n'


def _render_section(section: Section, count: int) -> tuple[str, int]:
    """Return a section, and how many figures there are up to its end."""
    parts = [f'<section id="{section.anchor}">\n<h2>{escape(section.title)}</h2>\n']
    parts += [f"<p>{mark_code(text)}</p>\n" for text in section.text]
    counterpart = "Not in the paper" if section.counterpart is None else f"In the paper: {section.counterpart}"
    parts.append(f'<p class="counterpart">{escape(counterpart)}.</p>\n')
    for part in section.parts:
        if isinstance(part, PanelGroup):
            parts.append(_render_group(part, count))
            count += len(part.panels)
        else:
            parts.append(f"{part}\n")
    return "".join([*parts, "</section>\n"]), count


def _render_group(group: PanelGroup, count: int) -> str:
    kind = "panels small" if group.is_small else "panels"
    figures = []
    for idx, panel in enumerate(group.panels, start=count):
        wide = " wide" if panel.is_wide else ""
        figures.append(
            f'<figure class="panel{wide}"><figcaption>{escape(panel.title)}</figcaption>'
            f'<div class="plot" data-figure="figure-{idx}"></div>'
            f'<script type="application/json" id="figure-{idx}">{dump_figure(panel.figure)}</script></figure>\n'
        )
    return f'{render_key(group.key)}<div class="{kind}">\n{"".join(figures)}</div>\n'


def render_key(key: Sequence[Mark]) -> str:
    """Return a figure's key as a list; empty where there is none."""
    items = "".join(f"<li>{_swatch(mark)}{escape(mark.name)}</li>" for mark in key)
    return f'<ul class="key">{items}</ul>\n' if key else ""


def _swatch(mark: Mark) -> str:
    """Return a mark as the figure draws it, once for a light and once for a dark page."""
    tones = (("light", mark.style.tone.light), ("dark", mark.style.tone.dark))
    if mark.is_point:
        points = _SHAPES.get(mark.style.symbol, _SHAPES["circle"])
        return "".join(
            f'<svg class="{scheme}" width="12" height="12" aria-hidden="true"><path d="{points}" fill="{tone}"/></svg>'
            for scheme, tone in tones
        )
    dash = "" if mark.style.dash == "solid" else f' stroke-dasharray="{mark.style.dash.replace("px", "")}"'
    return "".join(
        f'<svg class="{scheme}" width="26" height="8" aria-hidden="true"><path d="M0 4h26" stroke="{tone}" '
        f'stroke-width="2.5"{dash}/></svg>'
        for scheme, tone in tones
    )


def _render_footer(document: Document) -> str:
    return (
        f"<footer>\n<p>Figures are fractions of exact counts, shown in percent; the JSON document beside this page has "
        f"every digit, and the reason of every undefined figure (–). The paper: {PAPER}.</p>\n"
        f"<p>Snapshot {escape(document['snapshot'])}, SHA-256 <code>{document['snapshot_sha256']}</code>.</p>\n"
        "</footer>\n"
    )


def mark_code(text: str) -> str:
    """Return text for HTML, what stands between backticks as code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{piece}</code>" if idx % 2 else piece for idx, piece in enumerate(pieces))


def _count(number: int, one: str, several: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else several or one + 's'}"


def _load(name: str) -> str:
    return (files("app") / "report_page" / name).read_text(encoding="utf-8")


def _load_plotly() -> str:
    script = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    # Inside a script element only this could end it; in a script's texts the two spellings are the same.
    return script.replace("</script", "<\\/script")
