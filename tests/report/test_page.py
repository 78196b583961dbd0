"""A report's page: complete without any other file or host, figures as the document has them, texts escaped."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import pyarrow as pa
import pytest

from app.files.snapshot import Snapshot, build_snapshot
from app.plots.captions import SYNTHETIC_NOTICE
from app.report import analyse_snapshot
from app.report_html import render_report


class _Page(HTMLParser):
    """Collects what a page loads, its tables as rows of texts by caption, and the JSON of its figures."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.figures: list[Any] = []
        self._into = ""
        self._caption = ""
        self._rows: list[list[str]] = []
        self._is_json = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what is loaded and where text goes."""
        values = dict(attrs)
        address = values.get("src") or values.get("href") or ""
        if not address.startswith(("#", "data:")) and address:
            self.loads.append(address)
        self._is_json = values.get("type") == "application/json"
        if tag == "table":
            self._caption, self._rows = "", []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")
        if tag in ("caption", "td", "th"):
            self._into = tag

    def handle_data(self, data: str) -> None:
        """Add to the cell, caption or figure that is open."""
        if self._is_json:
            self.figures.append(json.loads(data))
            self._is_json = False
        elif self._into == "caption":
            self._caption += data
        elif self._into:
            self._rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        """Keep a finished table."""
        if tag == "table":
            self.tables[self._caption] = self._rows
        if tag == self._into:
            self._into = ""


@pytest.fixture(scope="module")
def small_page(small_report: dict[str, Any]) -> str:
    """The page of the small snapshot."""
    return render_report(small_report)


def test_the_page_loads_nothing_and_says_that_it_is_synthetic(small_page: str):
    page = _Page(small_page)
    assert page.loads == []
    assert SYNTHETIC_NOTICE in small_page
    assert small_page.count("plotly.js v") == 1
    style = small_page[small_page.index("<style>") : small_page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style


def test_a_measured_snapshot_has_no_banner(real_report: dict[str, Any]):
    assert SYNTHETIC_NOTICE not in render_report(real_report)


def test_tables_hold_the_document_s_figures_in_percent(real_report: dict[str, Any]):
    tables = _Page(render_report(real_report)).tables
    # 0.7034 and 0.4420 of the first model, 0.6199 and 0.3305 of the second, then their means.
    assert tables["AD in points, OR in percent"][2:] == [
        ["DeepSeek-R1-Distill-Qwen-14B", "44.2", "70.3"],
        ["DeepSeek-R1-Distill-Llama-8B", "33.1", "62.0"],
        ["Average", "38.6", "66.2"],
    ]
    assert tables["Accuracy in percent, thinking tokens"][2] == ["DeepSeek-R1-Distill-Qwen-14B", "50.0", "3,668"]
    direct = tables["Accuracy without thinking in percent"]
    assert [row[2] for row in direct[2:]] == ["–", "–", "–"]
    frontiers = tables["Frontiers in percent, means over cells"]
    assert ["Dynamic early exit", "DeepSeek-R1-Distill-Qwen-14B", "50.0", "0.0", "94.2", "28.6", "93.0"] in [
        row[:7] for row in frontiers
    ]


def test_every_section_names_its_counterpart_and_has_a_sentence(small_page: str):
    sections = re.findall(r'<section id="([a-z-]+)">(.*?)</section>', small_page, flags=re.DOTALL)
    assert [name for name, _ in sections] == [
        "overthinking",
        "baseline",
        "intervals",
        "local-changes",
        "frontiers",
        "direct-answers",
        "thinning",
        "diversity",
        "examples",
        "question",
        "step-lengths",
        "traces",
        "efficiency",
    ]
    for name, text in sections:
        assert len(re.findall(r"<p>[^<]{20,}", text)) >= 1, name
        assert re.search(r'<p class="counterpart">(In the paper: [^<]+|Not in the paper)\.</p>', text), name
    named = re.findall(r"In the paper: ([^<]+)\.</p>", small_page)
    for wanted in ("Table 1", "Table 3", "Tables 4, 5 and 6", "Table 7", *(f"Figure {n}" for n in (2, 6, 7, 8, 9))):
        assert any(wanted in text for text in named), wanted
    assert "Figures 3 and 5" in named


def test_figures_are_the_document_s(real_report: dict[str, Any]):
    figures = _Page(render_report(real_report)).figures
    question = real_report["examples"]["question"]["curves"]
    drawn = [f for f in figures if f["data"][0]["name"] == "P(k)"][-len(question) :]
    for figure, curve in zip(drawn, question, strict=True):
        line, star = figure["data"]
        assert line["y"] == pytest.approx([100 * c / 100 for c in curve["correct_probes"]])
        assert line["x"][-1] == 100
        assert star["y"] == [max(line["y"])]
        assert star["x"] == [line["x"][curve["reference"]]]
    [frontiers] = [f for f in figures if any(trace["name"] == "Dynamic early exit" for trace in f["data"])][:1]
    [line] = [trace for trace in frontiers["data"] if trace["name"] == "Dynamic early exit"]
    assert line["y"][-1] == pytest.approx(100 * real_report["frontiers"]["macro"][2]["max_accuracy"], abs=0.001)


def test_names_and_titles_cannot_become_markup(make_board_snapshot: Callable[..., Snapshot]):
    title = "</script><script>alert(1)</script> & <b>"
    snapshot = make_board_snapshot(title=title)
    document = analyse_snapshot(snapshot, split="test", progress=lambda what, share: None)
    document = json.loads(json.dumps(document).replace("alpha", "<img src=x onerror=alert(1)>"))
    text = render_report(document)
    assert "<script>alert" not in text
    assert "<img" not in text
    assert "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;" in text
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_what_is_undefined_is_left_out_of_the_figures(small_report: dict[str, Any]):
    """No averages, difficulties or example shapes, and nothing that matches: there are fewer figures, but some."""
    document = copy.deepcopy(small_report)
    document["overthinking"]["macro"] = None
    document["traces"]["by_difficulty"] = []
    document["thinning"]["trajectories"] = document["thinning"]["trajectories"][:1]
    for shape in document["examples"]["shapes"]:
        shape["curves"] = []
    for curve in document["frontiers"]["boards"] + document["frontiers"]["macro"]:
        curve["beta_match"] = None
    for change in document["local_changes"]["bins"]:
        change["negative_per_positive"] = None
    text = render_report(document)
    assert "No trajectory has this shape." in text
    assert "never matches full thinking" in text
    assert "NaN" not in text[: text.index("plotly.js v")]
    assert 0 < len(_Page(text).figures) < len(_Page(render_report(small_report)).figures)


def test_a_snapshot_without_any_thinking_has_a_report():
    """One probe, one trajectory per question, no step anywhere, one model, one benchmark: nothing divides by zero."""
    manifest = {
        "format": "stp-snapshot/1",
        "name": "empty",
        "title": "Nothing was thought",
        "kind": "measured",
        "probes_per_position": 1,
        "trajectories_per_question": 1,
        "models": [{"name": "m"}],
        "benchmarks": [{"name": "b", "title": "B"}, {"name": "unused", "title": "Unused"}],
    }
    questions = [{"benchmark": "b", "question_id": f"q{i}", "split": "test"} for i in range(3)]
    trajectories = [
        {
            "model": "m",
            "benchmark": "b",
            "question_id": f"q{i}",
            "trajectory": 0,
            "thinking_tokens": 0,
            "retained_tokens": [0],
            "correct_probes": [i % 2],
        }
        for i in range(3)
    ]
    tables = (pa.Table.from_pylist(rows) for rows in (questions, trajectories))
    document = analyse_snapshot(build_snapshot(manifest, *tables), split="all", progress=lambda what, share: None)
    assert document["frontiers"]["efficiency"][0]["reason"] is not None
    assert document["traces"]["reasons"]["rfcs"] == "no_trajectory_with_a_step_ends_right"
    assert document["diversity"]["reason"] == "one_trajectory_per_question"
    assert document["step_lengths"]["partitions"][0]["models"]["m"]["reason"] == "no_step"
    text = render_report(document)
    assert "There is one trajectory per question, so no two can differ." in text
    assert _Page(text).figures


def test_every_colour_of_a_figure_has_one_for_dark_pages(small_page: str):
    for figure in _Page(small_page).figures:
        replacements = figure["layout"].pop("meta")["dark"]
        used = set(re.findall(r'"(#[0-9a-fA-F]{6}|rgba?\([^"]+\))"', json.dumps(figure)))
        assert used <= set(replacements)
        assert "#1f252c" in used
