"""The figures themselves: what is drawn, with which values, and that they stay small."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from app.evaluator.strategies import Strategy
from app.plots.board import build_board_figure, describe_markers
from app.plots.captions import SYNTHETIC_NOTICE, Caption, describe_data
from app.plots.frame import END_LABEL, dump_figure
from app.plots.frontiers import build_frontiers_figure, describe_frontier
from app.plots.palette import METHOD_STYLES, STRATEGY_TONES, list_dark_replacements, pick_method_style
from app.plots.steps import ReducedSteps
from app.plots.traces import FrontierLines, MethodLine, OperatingPoint

CAPTION = Caption("What is seen", "On which data.")
GRID = np.linspace(0.0, 1.0, 1001)


def _make_lines(strategy: Strategy = Strategy.DYNAMIC_EARLY_EXIT, *, top: float = 0.8) -> FrontierLines:
    """The oracle rises at 10 % and, to its highest, at 40 % of the tokens; the reference is straight."""
    return FrontierLines(
        strategy=strategy,
        oracle=ReducedSteps(np.array([0.0, 0.1, 0.4]), np.array([0.3, 0.6, top])),
        uninformed_beta=np.array([0.0, 0.5, 1.0]),
        uninformed_accuracy=np.array([0.3, 0.45, 0.6]),
        full_accuracy=0.6,
        beta_match=0.1,
        max_accuracy=top,
        beta_sat=0.4,
    )


def _make_method(name: str = "ThinkBrake", *, idx: int = 0, **changes: Any) -> MethodLine:
    steps = ReducedSteps(np.array([0.0, 0.5]), np.array([0.3, 0.55]))
    return MethodLine(name, steps, pick_method_style(idx), **changes)


def _find_trace(figure: go.Figure, name: str, mode: str = "lines") -> go.Scatter:
    return next(trace for trace in figure.data if trace.name == name and trace.mode == mode)


def test_the_board_draws_the_oracle_as_steps_in_its_strategys_colour() -> None:
    figure = build_board_figure(_make_lines(), [_make_method()], caption=CAPTION)
    oracle = _find_trace(figure, "Oracle")
    assert list(oracle.x) == [0.0, 10.0, 40.0, 100.0]
    assert list(oracle.y) == [30.0, 60.0, 80.0, 80.0]
    assert oracle.line.shape == "hv"
    assert oracle.line.color == STRATEGY_TONES[Strategy.DYNAMIC_EARLY_EXIT].light
    # The tint reaches down to the trace just before, which is the reference.
    assert oracle.fill == "tonexty"
    assert figure.data[list(figure.data).index(oracle) - 1].name == "Uninformed reference"


def test_the_reference_is_dotted_and_straight_between_its_vertices() -> None:
    figure = build_board_figure(_make_lines(), [], caption=CAPTION)
    reference = _find_trace(figure, "Uninformed reference")
    # The vertex in the middle of a straight line is left out.
    assert list(reference.x) == [0.0, 100.0]
    assert list(reference.y) == [30.0, 60.0]
    assert reference.line.dash == "dot"
    assert reference.line.shape is None


def test_full_thinking_is_a_dashed_line_with_its_label_on_it() -> None:
    figure = build_board_figure(_make_lines(), [], caption=CAPTION)
    assert set(_find_trace(figure, "Full thinking").y) == {60.0}
    label = next(a for a in figure.layout.annotations if a.text.startswith("Full thinking"))
    assert label.text == "Full thinking 60.0\u00a0%"
    assert label.y == 60.0
    assert label.yanchor == "bottom"


def test_the_label_of_full_thinking_lies_under_its_line_where_curves_crowd_above() -> None:
    """Two frontiers a little above the line once ran through the label, which stood on it whatever there was."""
    oracle = ReducedSteps(np.array([0.0, 0.05]), np.array([0.3, 0.61]))
    lines = [replace(_make_lines(strategy, top=0.61), oracle=oracle) for strategy in Strategy]
    figure = build_frontiers_figure(lines, caption=CAPTION)
    label = next(a for a in figure.layout.annotations if a.text.startswith("Full thinking"))
    assert (label.y, label.yanchor) == (60.0, "top")
    # The reference comes close from below at the right end.
    assert 5.0 <= label.x <= 60.0


def test_beta_match_is_a_diamond_and_beta_sat_a_circle_on_the_oracle() -> None:
    figure = build_board_figure(_make_lines(), [], caption=CAPTION)
    match, sat = (_find_trace(figure, name, "markers") for name in ("β_match", "β_sat"))
    assert (match.marker.symbol, list(match.x), list(match.y)) == ("diamond", [10.0], [60.0])
    assert (sat.marker.symbol, list(sat.x), list(sat.y)) == ("circle", [40.0], [80.0])


def test_an_oracle_below_full_thinking_has_no_diamond_and_says_so() -> None:
    lines = replace(_make_lines(top=0.55), beta_match=None, full_accuracy=0.6)
    figure = build_board_figure(lines, [], caption=CAPTION)
    assert "β_match" not in [trace.name for trace in figure.data]
    assert "never reaches full-thinking accuracy" in describe_markers(lines)
    assert "never matches full thinking" in describe_frontier(lines)


def test_methods_are_steps_in_their_own_dashes_and_the_first_lies_on_top() -> None:
    methods = [_make_method("first"), _make_method("second", idx=1), _make_method("other", idx=99)]
    figure = build_board_figure(_make_lines(), methods, caption=CAPTION)
    drawn = [trace.name for trace in figure.data]
    assert drawn.index("other") < drawn.index("Oracle") < drawn.index("second") < drawn.index("first")
    assert _find_trace(figure, "first").line.shape == "hv"
    dashes = [_find_trace(figure, name).line.dash for name in ("first", "second")]
    assert dashes == [METHOD_STYLES[0].dash, METHOD_STYLES[1].dash]
    labels = [a.text for a in figure.layout.annotations if a.name == END_LABEL]
    assert labels == ["Oracle", "Uninformed reference", "first", "second"]


def test_operating_points_are_drawn_where_a_method_brings_them() -> None:
    points = (OperatingPoint("0.5", 0.25, 0.4), OperatingPoint("1", 0.5, 0.55))
    figure = build_board_figure(_make_lines(), [_make_method(points=points), _make_method("bare")], caption=CAPTION)
    drawn = _find_trace(figure, "ThinkBrake", "markers")
    assert (list(drawn.x), list(drawn.y), list(drawn.text)) == ([25.0, 50.0], [40.0, 55.0], ["0.5", "1"])
    assert [trace.name for trace in figure.data if trace.mode == "markers"].count("bare") == 0


def test_a_logarithmic_axis_has_no_zero() -> None:
    figure = build_board_figure(_make_lines(), [_make_method()], caption=CAPTION, is_log=True)
    assert figure.layout.xaxis.type == "log"
    assert all(min(trace.x) > 0 for trace in figure.data)
    # The straight reference bends there, so it is drawn in many places.
    reference = _find_trace(figure, "Uninformed reference")
    assert len(reference.x) > 100
    assert reference.y[-1] == 60.0


def test_a_snapshots_figure_has_all_strategies_on_the_same_axes() -> None:
    tops = {Strategy.DYNAMIC_ROUTING: 0.65, Strategy.FIXED_BUDGET: 0.7, Strategy.DYNAMIC_EARLY_EXIT: 0.8}
    figure = build_frontiers_figure([_make_lines(s, top=top) for s, top in tops.items()], caption=CAPTION)
    for title, strategy in zip(("Dynamic routing", "Fixed budget", "Dynamic early exit"), tops, strict=True):
        assert _find_trace(figure, title).line.color == STRATEGY_TONES[strategy].light
        assert _find_trace(figure, f"{title}, uninformed").line.dash == "dot"
    assert [trace.name for trace in figure.data].count("β_sat") == 3
    low, high = figure.layout.yaxis.range
    assert low < 30 < 80 < high


def test_a_name_cannot_bring_markup_or_close_the_script_element() -> None:
    name = "</script><b>loud</b> & more"
    figure = build_board_figure(_make_lines(), [_make_method(name)], caption=Caption(name, name))
    text = dump_figure(figure)
    assert "<" not in text
    assert _find_trace(figure, "&lt;/script&gt;&lt;b&gt;loud&lt;/b&gt; &amp; more")
    assert json.loads(text)["layout"]["title"]["text"].startswith("&lt;/script&gt;")


def test_an_exported_figure_says_that_it_is_synthetic() -> None:
    subtitle = describe_data(snapshot="s", split="test", place="1 cell", n_questions=1, kind="synthetic")
    figure = build_board_figure(_make_lines(), [], caption=Caption("Title", subtitle))
    shown = figure.layout.title.subtitle.text.replace("<br>", " ")
    assert SYNTHETIC_NOTICE in shown
    assert "1 question." in shown
    assert SYNTHETIC_NOTICE not in describe_data(snapshot="s", split="all", place="p", n_questions=2, kind="measured")


def test_every_light_colour_of_a_figure_has_a_dark_one() -> None:
    figure = build_board_figure(_make_lines(), [_make_method(), _make_method("other", idx=99)], caption=CAPTION)
    known = list_dark_replacements()
    drawn = json.loads(dump_figure(figure))
    del drawn["layout"]["meta"]
    found = {value for value in _list_texts(drawn) if value.startswith(("#", "rgba("))}
    assert found
    assert found <= set(known)


@pytest.mark.parametrize("n_methods", [12, 60])
def test_a_figure_at_the_papers_scale_stays_under_300_kilobytes(n_methods: int) -> None:
    # 24 cells of 256 settings each have up to 6,144 steps on the mean curve.
    rng = np.random.default_rng(7)
    lines = replace(
        _make_lines(),
        oracle=ReducedSteps(GRID, 0.3 + 0.5 * GRID**0.3),
        uninformed_beta=GRID,
        uninformed_accuracy=0.3 + 0.3 * GRID**0.6,
    )
    methods = [
        replace(
            _make_method(f"method {i}", idx=i),
            steps=ReducedSteps(
                np.concatenate([[0.0], np.sort(rng.uniform(size=6143))]), 0.3 + 0.4 * np.sort(rng.uniform(size=6144))
            ),
        )
        for i in range(n_methods)
    ]
    figure = build_board_figure(lines, methods, caption=CAPTION)
    assert len(dump_figure(figure)) < 300_000


def _list_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _list_texts(item)]
    return [text for item in value for text in _list_texts(item)] if isinstance(value, list) else []
