"""The public documents: exact keys of the contract, exact integers, null for what is undefined."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from app.errors import ContentError, Problem
from app.evaluator.efficiency import measure_efficiency
from app.evaluator.fast_frontier import solve_frontiers_fast
from app.evaluator.frontier import solve_frontiers
from app.evaluator.measurements import Measurements, build_cell
from app.evaluator.overthinking import summarise_overthinking
from app.evaluator.reference import build_references
from app.evaluator.scoring import score_actions
from app.evaluator.strategies import ActionTable, CellActions, Strategy
from app.files import documents
from app.files.snapshot import load_measurements, read_snapshot

CELL_FIGURES = {
    "mean_thinking_tokens",
    "full_thinking_accuracy",
    "zero_step_accuracy",
    "endpoint_accuracy",
    "overthinking_ratio",
    "accuracy_degradation",
}


@pytest.fixture
def measurements() -> Measurements:
    """Two cells of one model. In math, stopping at 10 of 30 tokens has all 4 probes right; aime never improves."""
    math_cell = build_cell("m", "math", [("q", "test", [[(0, 1), (10, 4), (30, 2)]])], 4)
    aime_cell = build_cell("m", "aime", [("q", "test", [[(0, 3), (20, 1)]])], 4)
    return Measurements("s", "0" * 64, "synthetic", "all", 4, 1, ("m",), ("math", "aime"), (math_cell, aime_cell))


def test_overthinking_document_has_the_contract_s_keys_and_figures(measurements):
    document = documents.overthinking_document(summarise_overthinking(measurements), measurements)
    assert (document["snapshot"], document["split"], document["kind"]) == ("s", "all", "synthetic")
    assert [set(cell) for cell in document["cells"]] == [
        {"model", "benchmark", "questions", "trajectories", *CELL_FIGURES}
    ] * 2
    assert set(document["macro"]) == CELL_FIGURES
    # math: k* = 1, OR = 1 - 10/30, AD = (4 - 2)/4; aime: k* = 0, OR = 1, AD = (3 - 1)/4.
    assert document["cells"][0]["overthinking_ratio"] == 20 / 30
    assert document["macro"]["accuracy_degradation"] == 0.5
    assert document["macro"]["mean_thinking_tokens"] == 25
    assert document["macro"]["full_thinking_accuracy"] is None
    assert document["by_benchmark"]["aime"]["overthinking_ratio"] == 1
    assert document["by_model"]["m"] == document["macro"]


def test_frontier_document_has_exact_integers_and_the_mean_curve(measurements):
    early_exit = Strategy.DYNAMIC_EARLY_EXIT
    references = build_references(measurements, early_exit, solve_frontiers(measurements, [early_exit]))
    document = documents.frontier_document(references, measurements, grid_intervals=4)
    first, second = document["cells"]
    assert {key: first[key] for key in ("model", "benchmark", "strategy", "cost", "correct")} == {
        "model": "m",
        "benchmark": "math",
        "strategy": "dynamic_early_exit",
        "cost": [0, 10],
        "correct": [1, 4],
    }
    # Full thinking has 2 of 4 right, which the frontier reaches at 10 of 30 tokens.
    assert (first["beta_match"], first["beta_sat"], first["max_accuracy"]) == (1 / 3, 1 / 3, 1.0)
    assert first["area"] == (10 * 1 + 20 * 4) / (30 * 4)
    assert (first["total_thinking_tokens"], first["total_probes"]) == (30, 4)
    assert (second["cost"], second["correct"], second["beta_match"]) == ([0], [3], 0)
    (macro,) = document["macro"]
    assert macro["strategy"] == "dynamic_early_exit"
    assert macro["grid"] == [0, 0.25, 0.5, 0.75, 1]
    # (1/4 + 3/4) / 2 below a third of the budget, (4/4 + 3/4) / 2 from there on.
    assert macro["accuracy"] == [0.5, 0.5, 0.875, 0.875, 0.875]
    assert macro["max_accuracy"] == 0.875
    # A_full is (2/4 + 1/4) / 2 = 0.375, below the mean curve's start.
    assert (macro["endpoint_accuracy"], macro["beta_match"], macro["beta_sat"]) == (0.375, 0, 1 / 3)
    assert all(isinstance(value, int) for cell in document["cells"] for value in cell["cost"] + cell["correct"])


def test_frontier_document_has_the_certificate(measurements):
    early_exit = Strategy.DYNAMIC_EARLY_EXIT
    references = build_references(measurements, early_exit, solve_frontiers_fast(measurements, [early_exit]))
    first, second = documents.frontier_document(references, measurements)["cells"]
    certificate = first["certificate"]
    # One chunk, from nothing to 10 tokens. Were there a point that is missing, it would have 2 probes or more below
    # 10 tokens, where the bound is 4.
    assert (certificate["cost"], certificate["correct"]) == ([0, 10], [1, 4])
    assert certificate["needed"] == pytest.approx([2])
    assert certificate["band"][0] >= certificate["needed"][0]
    # Without a choice there is one point, and no chunk.
    assert second["certificate"] == {"cost": [0], "correct": [3], "band": [], "needed": []}
    # The textbook program has none and needs none.
    textbook = build_references(measurements, early_exit, solve_frontiers(measurements, [early_exit]))
    assert [cell["certificate"] for cell in documents.frontier_document(textbook, measurements)["cells"]] == [None] * 2


def test_frontier_document_keeps_strategies_apart(measurements):
    references = [
        reference
        for strategy in Strategy
        for reference in build_references(measurements, strategy, solve_frontiers(measurements, [strategy]))
    ]
    document = documents.frontier_document(references, measurements)
    assert [macro["strategy"] for macro in document["macro"]] == [str(strategy) for strategy in Strategy]
    assert [len(macro["grid"]) for macro in document["macro"]] == [101] * 3
    for routing, budget, early in zip(*(macro["accuracy"] for macro in document["macro"]), strict=True):
        assert routing <= budget <= early


def test_score_document_has_the_contract_s_keys(measurements):
    strategy = Strategy.DYNAMIC_ROUTING
    references = build_references(measurements, strategy, solve_frontiers(measurements, [strategy]))
    both, first_only = np.array([True, True]), np.array([True, False])
    table = ActionTable(
        strategy,
        ("0", "1"),
        (CellActions(both, np.array([[0], [1]])), CellActions(first_only, np.array([[0], [0]]))),
    )
    warning = Problem("looks_like_routing", "all caps are 0 or 1")
    score = score_actions(measurements, table, references)
    document = documents.score_document(score, actions_sha256="a" * 64, warnings=[warning])
    contract = {"snapshot", "split", "strategy", "scorer_version", "actions_sha256", "warnings", "settings", "boards"}
    assert contract | {"summary"} <= set(document)
    assert document["strategy"] == "dynamic_routing"
    assert document["warnings"] == [warning.as_dict()]
    figures = {"beta", "accuracy", "gap", "early_loss", "late_loss", "wasted", "forgone", "e3"}
    complete, partial = document["settings"]
    assert {"setting", "cells", *figures} <= set(complete)
    assert complete["accuracy"] == (1 / 4 + 3 / 4) / 2
    assert {partial[key] for key in figures} == {None}
    assert len(partial["cells"]) == 1
    cell_keys = {"model", "benchmark", "mean_tokens", "accuracy", "gap", "early_loss", "late_loss", "on_curve"}
    assert cell_keys | {"wasted", "forgone", "e3"} <= set(partial["cells"][0])
    board_keys = {"model", "benchmark", "n_settings", "realised_potential", "area", "uninformed_area", "oracle_area"}
    board_keys |= {"max_accuracy", "beta_match", "accuracy_at", "best_e3", "reason", "intervals"}
    assert all(board_keys <= set(board) for board in document["boards"])
    assert [(b["model"], b["benchmark"]) for b in document["boards"]] == [
        (None, None),
        ("m", None),
        (None, "math"),
        (None, "aime"),
        ("m", "math"),
        ("m", "aime"),
    ]
    assert document["summary"] == document["boards"][0]
    assert set(document["summary"]["accuracy_at"]) == {"0.25", "0.5", "0.75"}
    assert json.loads(documents.dump_json(document)) == document


def test_a_score_without_all_cells_has_no_summary(measurements):
    strategy = Strategy.DYNAMIC_ROUTING
    references = build_references(measurements, strategy, solve_frontiers(measurements, [strategy]))
    covered, absent = np.array([True]), np.array([False])
    table = ActionTable(strategy, ("x",), (CellActions(covered, np.array([[0]])), CellActions(absent, np.array([[0]]))))
    document = documents.score_document(score_actions(measurements, table, references), actions_sha256="", warnings=[])
    assert (document["summary"], document["summary_reason"]) == (None, "not_all_cells_covered")
    assert [(b["model"], b["benchmark"]) for b in document["boards"]] == [(None, "math"), ("m", "math")]


def test_efficiency_document_says_why_a_figure_is_null():
    document = documents.efficiency_document(measure_efficiency(0.9, 10.0, base_accuracy=1.0, base_tokens=100.0))
    assert (document["e3"], document["e3_reason"]) == (None, "base_accuracy_is_0_or_1")
    assert document["aes_weights"] == {"tokens": 1.0, "gain": 3.0, "loss": 5.0}


def test_error_document_lists_the_problems():
    error = ContentError("two things", problems=[Problem("a_code", "message", row=2, column="c", count=7)])
    assert documents.error_document(error) == {
        "title": "The content has problems",
        "status": 422,
        "detail": "two things",
        "code": "invalid_content",
        "problems": [{"code": "a_code", "message": "message", "row": 2, "column": "c", "unit": None, "count": 7}],
    }


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_json_never_holds_what_json_does_not_have(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        documents.dump_json({"figure": number})


def test_json_keeps_every_digit_and_letter():
    text = documents.dump_json({"area": 0.1 + 0.2, "name": "é\u2028"})
    assert json.loads(text) == {"area": 0.30000000000000004, "name": "é\u2028"}
    assert "é" in text


def test_documents_of_the_real_snapshot_have_the_published_figures(real_snapshot: Path):
    """The figures stated for this snapshot: OR, AD, tokens; ceilings, saturations, areas and points per strategy."""
    measurements = load_measurements(read_snapshot(real_snapshot))
    overthinking = documents.overthinking_document(summarise_overthinking(measurements), measurements)
    found = [
        (round(c["overthinking_ratio"], 4), round(c["accuracy_degradation"], 4), c["mean_thinking_tokens"])
        for c in overthinking["cells"]
    ]
    assert found == [(0.7034, 0.4420, 3668.5), (0.6199, 0.3305, 3278.75)]
    references = [
        reference
        for strategy in Strategy
        for reference in build_references(measurements, strategy, solve_frontiers(measurements, [strategy]))
    ]
    cells = documents.frontier_document(references, measurements)["cells"]
    large, small = [[c for c in cells if c["model"].endswith(name)] for name in ("14B", "8B")]
    assert [c["max_accuracy"] for c in large] == [0.751, 0.8835, 0.942]
    assert [round(c["beta_sat"], 4) for c in large] == [0.1624, 0.2845, 0.2860]
    assert [round(c["area"], 4) for c in large] == [0.7482, 0.8771, 0.9296]
    assert [len(c["cost"]) for c in large] == [2, 203, 360]
    assert [c["max_accuracy"] for c in small] == [0.663, 0.7435, 0.8305]
    assert [round(c["beta_sat"], 4) for c in small] == [0.2811, 0.5202, 0.4403]
    assert [round(c["area"], 3 if i == 0 else 4) for i, c in enumerate(small)] == [0.648, 0.7259, 0.8074]
    assert [len(c["cost"]) for c in small] == [6, 260, 416]
