"""The option `--bootstrap` of the offline commands: the same intervals everywhere, kept for the next command."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.evaluator.frontier import solve_frontiers
from app.evaluator.intervals import summarise_intervals
from app.evaluator.reference import build_references
from app.evaluator.replicate_frontiers import compute_replicates
from app.evaluator.strategies import Strategy
from app.files.snapshot import load_measurements, read_snapshot

N = 40


@pytest.fixture
def run_json(run, tmp_path: Path) -> Callable[..., Any]:
    """A function that runs a command with a data folder of the test's own and returns its JSON."""

    def invoke(*arguments: object) -> Any:
        result = run(*arguments, "--format", "json", env={"OTBOARD_DATA": str(tmp_path / "data")})
        assert (result.exit_code, result.stderr) == (0, "")
        return json.loads(result.stdout)

    return invoke


def test_overthinking_and_frontier_have_the_evaluator_s_intervals(run_json, snapshot_path: Path):
    """The test split has 21 questions of math and 3 of logic, so logic has no intervals of its own."""
    measurements = load_measurements(read_snapshot(snapshot_path), "test")
    references = [r for s in Strategy for r in build_references(measurements, s, solve_frontiers(measurements))]
    intervals = summarise_intervals(measurements, compute_replicates(measurements, range(N)), references)
    boards = {(board.model, board.benchmark): board for board in intervals.boards}
    document = run_json("overthinking", snapshot_path, "--split", "test", "--bootstrap", N)
    assert document["bootstrap"] == {"n_replicates": N, "seed": 20260721}
    for cell in document["cells"]:
        found = cell["intervals"]["overthinking_ratio"]
        if cell["benchmark"] == "logic":
            assert found is None
            assert cell["interval_reasons"]["overthinking_ratio"] == "too_few_questions"
            continue
        expected = boards[cell["model"], "math"].figures.intervals["overthinking_ratio"]
        assert expected is not None
        assert found == [expected.low, expected.high]
        assert found[0] <= cell["overthinking_ratio"] <= found[1]
    whole = boards[None, None]
    assert document["macro"]["intervals"]["accuracy_degradation"] == list(
        vars(whole.figures.intervals["accuracy_degradation"]).values()
    )
    assert document["by_benchmark"]["logic"]["intervals"]["overthinking_ratio"] is None
    frontier = run_json("frontier", snapshot_path, "--split", "test", "--bootstrap", N)
    for curve, expected_curve in zip(frontier["macro"], whole.frontiers, strict=True):
        assert curve["intervals"]["max_accuracy"] == list(
            vars(expected_curve.figures.intervals["max_accuracy"]).values()
        )
        assert expected_curve.low is not None
        band = curve["accuracy_intervals"]
        assert band["low"] == expected_curve.low.tolist()
        assert all(
            low <= at <= high for low, at, high in zip(band["low"], curve["accuracy"], band["high"], strict=True)
        )
        for name, interval in curve["intervals"].items():
            assert interval[0] <= curve[name] <= interval[1]


def test_a_frontier_of_some_cells_has_these_cells_intervals(run_json, snapshot_path: Path):
    shared = ("--split", "test", "--bootstrap", N)
    whole = run_json("frontier", snapshot_path, *shared)
    one = run_json("frontier", snapshot_path, *shared, "--model", "beta", "--benchmark", "math")
    assert one["cells"] == [c for c in whole["cells"] if (c["model"], c["benchmark"]) == ("beta", "math")]
    for curve, cell in zip(one["macro"], one["cells"], strict=True):
        assert curve["intervals"] == cell["intervals"]
    of_model = run_json("frontier", snapshot_path, *shared, "--model", "beta")
    assert of_model["macro"][0]["intervals"] != whole["macro"][0]["intervals"]


def test_a_score_has_intervals_on_its_boards(run_json, run, snapshot_path: Path, tmp_path: Path):
    actions = tmp_path / "uninformed.parquet"
    strategy = ("--strategy", "fixed_budget", "--split", "test")
    run("baseline", snapshot_path, "uninformed", *strategy, "-o", actions)
    plain = run_json("score", snapshot_path, actions, *strategy)
    document = run_json("score", snapshot_path, actions, *strategy, "--bootstrap", N)
    assert plain["summary"]["intervals"] is None
    low, high = document["summary"]["intervals"]["area"]
    assert low <= document["summary"]["area"] <= high
    without = [{**board, "intervals": None} for board in document["boards"]]
    assert without == plain["boards"]


def test_replicates_are_kept_and_not_computed_again(run_json, snapshot_path: Path, tmp_path: Path):
    arguments = ("overthinking", snapshot_path, "--split", "test", "--bootstrap", N)
    first = run_json(*arguments)
    folder = tmp_path / "data" / "replicates"
    kept = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
    assert kept
    assert run_json(*arguments) == first
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == kept


def test_tables_have_the_ends_of_intervals_where_there_are_any(run, snapshot_path: Path, tmp_path: Path):
    env = {"OTBOARD_DATA": str(tmp_path / "data")}
    arguments = ("overthinking", snapshot_path, "--format", "csv", "--split")
    rows = list(csv.DictReader(io.StringIO(run(*arguments, "test", "--bootstrap", N, env=env).stdout)))
    assert float(rows[0]["overthinking_ratio_low"]) <= float(rows[0]["overthinking_ratio"])
    assert [row["benchmark"] for row in rows if not row["overthinking_ratio_low"]] == ["logic", "logic"]
    few = csv.DictReader(io.StringIO(run(*arguments, "train", "--bootstrap", N, env=env).stdout))
    plain = csv.DictReader(io.StringIO(run(*arguments, "train").stdout))
    assert few.fieldnames == plain.fieldnames


def test_the_report_has_the_intervals_of_the_commands(run_json, snapshot_path: Path, tmp_path: Path):
    run_json("analyse", snapshot_path, "--split", "test", "--bootstrap", N, "-o", tmp_path / "report")
    document = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    plain = run_json("overthinking", snapshot_path, "--split", "test", "--bootstrap", N)
    boards = {(board["model"], board["benchmark"]): board for board in document["intervals"]["boards"]}
    assert document["intervals"]["n_replicates"] == N
    for cell in plain["cells"]:
        assert boards[cell["model"], cell["benchmark"]]["figures"] == cell["intervals"]
        assert boards[cell["model"], cell["benchmark"]]["reasons"] == cell["interval_reasons"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    low, high = boards["alpha", "math"]["figures"]["overthinking_ratio"]
    assert f"<td>[{100 * low:.1f}, {100 * high:.1f}]</td>" in page
    assert "Mean frontiers with pointwise 95 % intervals" in page
    assert "No intervals were computed" not in page
