"""The figure of efficiency results: what is drawn where, by hand."""

from __future__ import annotations

import doctest
import json
from typing import Any

import pytest

from app.evaluator.efficiency import accuracy_at_e3, e3
from app.plots import efficiency, point_labels
from app.plots.captions import Caption
from app.plots.efficiency import EfficiencyPoint, build_efficiency_figure, describe_shapes
from app.plots.frame import dump_figure
from app.plots.palette import list_dark_replacements

CAPTION = Caption("Title", "Subtitle")
REFERENCE = EfficiencyPoint("CoT", "sums, tiny", "reference", 0.5, 100.0, 0.5, 100.0, 1.0)
TERSE = EfficiencyPoint("a<b", "sums, tiny", "reasoning_blueprint", 0.4, 50.0, 0.5, 100.0, 1.0)
ELSEWHERE = EfficiencyPoint("CoT", "sums, large", "reference", 0.9, 40.0, 0.9, 40.0, 1.0)


def draw(*points: EfficiencyPoint, is_log: bool = False) -> Any:
    return json.loads(dump_figure(build_efficiency_figure(points, caption=CAPTION, is_log=is_log)))


def test_with_one_reference_accuracy_stands_against_tokens() -> None:
    figure = draw(REFERENCE, TERSE)
    marks = {trace["name"]: trace for trace in figure["data"] if trace["mode"] == "markers"}
    assert (marks["Reference"]["x"], marks["Reference"]["y"]) == ([100.0], [50.0])
    assert (marks["Reasoning blueprint"]["x"], marks["Reasoning blueprint"]["y"]) == ([50.0], [40.0])
    # Shapes tell paradigms apart, not colours alone.
    assert len({trace["marker"]["symbol"] for trace in marks.values()}) == 2
    names = [note["text"] for note in figure["layout"]["annotations"] if note.get("name") == "end-label"]
    assert names == ["CoT", "a&lt;b"]


def test_lines_join_points_of_equal_e3() -> None:
    figure = draw(REFERENCE, TERSE)
    levels = [note["text"] for note in figure["layout"]["annotations"] if note["text"].startswith("E³")]
    lines = [trace for trace in figure["data"] if trace["mode"] == "lines"]
    assert "E³ 1" in levels
    assert len(levels) == len(lines)
    for level, line in zip(levels, lines, strict=True):
        for x, y in list(zip(line["x"], line["y"], strict=True))[1:]:
            value = e3(y / 100, x, base_accuracy=0.5, base_tokens=100.0)
            assert value == pytest.approx(float(level.removeprefix("E³ ")), rel=1e-3)


def test_with_several_references_changes_stand_against_shares() -> None:
    figure = draw(REFERENCE, TERSE, ELSEWHERE)
    marks = {trace["name"]: trace for trace in figure["data"] if trace["mode"] == "markers"}
    # Half of the tokens, ten points less; both references at 100 % and 0.
    assert (marks["Reasoning blueprint"]["x"], marks["Reasoning blueprint"]["y"]) == ([50.0], [-10.0])
    assert (marks["Reference"]["x"], marks["Reference"]["y"]) == ([100.0, 100.0], [0.0, 0.0])
    assert not any(note["text"].startswith("E³") for note in figure["layout"]["annotations"])


def test_a_logarithmic_axis_leaves_out_results_without_tokens() -> None:
    none = EfficiencyPoint("none", "sums, tiny", "other", 0.1, 0.0, 0.5, 100.0, 0.1)
    figure = draw(REFERENCE, TERSE, none, is_log=True)
    assert figure["layout"]["xaxis"]["type"] == "log"
    assert {trace["name"] for trace in figure["data"] if trace["mode"] == "markers"} == {
        "Reference",
        "Reasoning blueprint",
    }
    assert [trace["name"] for trace in draw(none)["data"] if trace["mode"] == "markers"] == ["Other"]


def test_every_colour_has_one_for_dark_pages() -> None:
    tones = [style.tone for style in efficiency.PARADIGM_STYLES.values()]
    known = list_dark_replacements()
    assert all(known[tone.light] == tone.dark for tone in tones)
    assert set(efficiency.PARADIGM_STYLES) == set(efficiency.PARADIGM_TITLES)
    assert describe_shapes([TERSE, REFERENCE]) == "● reference, ■ reasoning blueprint."


@pytest.mark.parametrize("module", [efficiency, point_labels])
def test_examples(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0


def test_the_accuracy_at_a_score_by_hand() -> None:
    # A0 = 0.8: 1 / 0.5 - 0.2 * 0.5 = 1.9, times 0.2 / 0.64 = 0.59375, so A = 1 / 1.59375.
    assert accuracy_at_e3(0.5, 50.0, base_accuracy=0.8, base_tokens=100.0) == pytest.approx(1 / 1.59375, rel=1e-15)
    # At T = 400 a share of 0.5 * 4 = 2 is left of 1 / 1: more than any accuracy could make up for.
    assert accuracy_at_e3(1.0, 400.0, base_accuracy=0.5, base_tokens=100.0) is None
    assert accuracy_at_e3(1.0, 200.0, base_accuracy=0.5, base_tokens=100.0) == 1.0
    for wrong in ({"score": 0.0}, {"base_accuracy": 1.0}, {"base_tokens": 0.0}, {"tokens": -1.0}):
        with pytest.raises(ValueError, match=r"must be|baseline|lie"):
            accuracy_at_e3(**{"score": 1.0, "tokens": 1.0, "base_accuracy": 0.5, "base_tokens": 1.0, **wrong})
