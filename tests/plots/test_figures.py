"""The figures themselves: what is drawn, with which values, and that they stay small."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from app.evaluator.strategies import Strategy
from app.plots.bands import Band, Whisker
from app.plots.board import build_board_figure, describe_markers
from app.plots.captions import SYNTHETIC_NOTICE, Caption, describe_data
from app.plots.frame import END_LABEL, PLOT_HEIGHT, dump_figure
from app.plots.frontiers import build_frontiers_figure, describe_frontier
from app.plots.multiples import PANEL_TITLE, Panel, build_multiples_figure
from app.plots.palette import METHOD_STYLES, STRATEGY_TONES, list_dark_replacements, pick_method_style
from app.plots.steps import LOG_START, ReducedSteps, sample_steps
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


def test_hovering_tells_how_far_the_oracle_is_above() -> None:
    """At half of the tokens the method is right 55 % of the time and the oracle 80 %."""
    figure = build_board_figure(_make_lines(), [_make_method(key="abc")], caption=CAPTION)
    drawn = _find_trace(figure, "ThinkBrake")
    assert (list(drawn.x), list(drawn.customdata)) == ([0.0, 50.0, 100.0], [0.0, 25.0, 25.0])
    assert "points below the oracle" in drawn.hovertemplate
    # By it the page's script finds the line's row.
    assert drawn.meta == {"row": "abc"}


def test_an_operating_point_names_its_tokens_and_gap() -> None:
    points = (OperatingPoint("a<b", 0.25, 0.4, mean_tokens=1234.4, gap=0.019), OperatingPoint("1", 0.5, 0.55))
    drawn = _find_trace(
        build_board_figure(_make_lines(), [_make_method(points=points)], caption=CAPTION), "ThinkBrake", "markers"
    )
    assert list(drawn.text) == ["a&lt;b", "1"]
    assert list(drawn.customdata) == [" (1,234 a trajectory), 1.9 points below the oracle", ""]


def test_intervals_lie_below_the_lines() -> None:
    beta = np.array([0.0, 0.5, 1.0])
    lines = replace(_make_lines(), band=Band(beta, np.array([0.25, 0.7, 0.7]), np.array([0.35, 0.85, 0.9])))
    method = _make_method(whiskers=(Whisker(0.25, 0.2, 0.4), Whisker(0.5, 0.5, 0.6)))
    figure = build_board_figure(lines, [method, _make_method("bare", idx=1)], caption=CAPTION)
    band, whiskers = figure.data[:2]
    assert list(band.x) == [0, 50, 100, 100, 50, 0]
    assert list(band.y) == [25, 70, 70, 90, 85, 35]
    assert (list(whiskers.x), list(whiskers.y)) == ([25, 25, None, 50, 50, None], [20, 40, None, 50, 60, None])
    assert "20.0\xa0% to 40.0\xa0%" in whiskers.text[0]
    low, high = figure.layout.yaxis.range
    assert low < 20 < 90 < high
    drawn = build_board_figure(lines, [method], caption=CAPTION, is_log=True).data[0]
    assert min(drawn.x) == 100 * LOG_START


def test_panels_share_axes_styles_and_one_legend() -> None:
    panels = [
        Panel(f"model {i}", _make_lines(top=top), (_make_method(), _make_method("control", idx=99)))
        for i, top in enumerate((0.65, 0.7, 0.8, 0.75, 0.66))
    ]
    figure = build_multiples_figure(panels, caption=CAPTION)
    drawn = json.loads(dump_figure(figure))
    axes = [drawn["layout"][f"yaxis{'' if i == 0 else i + 1}"] for i in range(5)]
    assert len({json.dumps(axis["range"]) for axis in axes}) == 1
    domains = [
        (*axis["domain"], *drawn["layout"][f"xaxis{n}"]["domain"])
        for axis, n in zip(axes, ("", 2, 3, 4, 5), strict=True)
    ]
    assert len(set(domains)) == 5
    lines = [trace for trace in drawn["data"] if trace["name"] == "ThinkBrake"]
    assert [trace["xaxis"] for trace in lines] == ["x", "x2", "x3", "x4", "x5"]
    assert len({json.dumps(trace["line"]) for trace in lines}) == 1
    assert [trace["showlegend"] for trace in lines] == [True, False, False, False, False]
    titles = [a["text"] for a in drawn["layout"]["annotations"] if a["name"] == PANEL_TITLE]
    assert titles == [panel.title for panel in panels]
    assert len(drawn["layout"]["meta"]["narrow_places"]) == 5


def test_a_frontier_of_hundreds_of_thousands_of_points_is_drawn_where_it_was() -> None:
    """As at the paper's scale, 92,448 trajectories: no step moves by more than a pixel, on either axis."""
    rng = np.random.default_rng(3)
    beta = np.unique(np.concatenate([[0.0], rng.beta(0.4, 1.5, 200_000), 10 ** rng.uniform(-3, 0, 200_000)]))
    full = ReducedSteps(beta, 0.3 + 0.5 * np.sort(rng.beta(0.3, 0.6, len(beta))))
    lines = replace(_make_lines(), oracle=full, max_accuracy=float(full.accuracy[-1]))
    for is_log in (False, True):
        figure = build_board_figure(lines, [_make_method()], caption=CAPTION, is_log=is_log)
        assert len(dump_figure(figure)) < 300_000
        drawn = _find_trace(figure, "Oracle")
        pixels = np.linspace(1, 999, 3993)  # a thousand pixels for the axis
        # What stands at a pixel is what the whole frontier has within a pixel of it, to a pixel up or down.
        left, at, right = (
            (10 ** (3 * (p / 1000 - 1)) if is_log else p / 1000) for p in (pixels - 1, pixels, pixels + 1)
        )
        shown = sample_steps(ReducedSteps(np.array(drawn.x) / 100, np.array(drawn.y) / 100), at)
        low, high = figure.layout.yaxis.range
        pixel = (high - low) / 100 / PLOT_HEIGHT
        assert (shown >= sample_steps(full, left) - pixel).all()
        assert (shown <= sample_steps(full, right) + pixel).all()


def _list_texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in _list_texts(item)]
    return [text for item in value for text in _list_texts(item)] if isinstance(value, list) else []
