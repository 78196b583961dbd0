"""The commands that need neither server nor database: their documents, tables, CSV and exit statuses."""

from __future__ import annotations

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from app.evaluator.strategies import Strategy
from app.files.snapshot import read_snapshot

STRATEGIES = [str(strategy) for strategy in Strategy]


def _read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_overthinking_of_the_real_snapshot_has_the_stated_figures(run, real_snapshot: Path):
    result = run("overthinking", real_snapshot, "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    found = {
        cell["model"]: (
            round(cell["overthinking_ratio"], 4),
            round(cell["accuracy_degradation"], 4),
            cell["mean_thinking_tokens"],
            cell["questions"],
            cell["trajectories"],
        )
        for cell in document["cells"]
    }
    assert found == {
        "DeepSeek-R1-Distill-Qwen-14B": (0.7034, 0.4420, 3668.5, 10, 20),
        "DeepSeek-R1-Distill-Llama-8B": (0.6199, 0.3305, 3278.75, 10, 20),
    }
    assert document["macro"]["mean_thinking_tokens"] == (3668.5 + 3278.75) / 2


def test_frontier_of_the_real_snapshot_has_the_stated_figures(run, real_snapshot: Path):
    document = json.loads(run("frontier", real_snapshot, "--format", "json").stdout)
    found = {
        (cell["model"][-3:].strip("-"), cell["strategy"]): (
            cell["max_accuracy"],
            round(cell["beta_sat"], 4),
            round(cell["area"], 4),
            len(cell["cost"]),
        )
        for cell in document["cells"]
    }
    assert found == {
        ("14B", "dynamic_routing"): (0.751, 0.1624, 0.7482, 2),
        ("14B", "fixed_budget"): (0.8835, 0.2845, 0.8771, 203),
        ("14B", "dynamic_early_exit"): (0.942, 0.2860, 0.9296, 360),
        ("8B", "dynamic_routing"): (0.663, 0.2811, 0.6480, 6),
        ("8B", "fixed_budget"): (0.7435, 0.5202, 0.7259, 260),
        ("8B", "dynamic_early_exit"): (0.8305, 0.4403, 0.8074, 416),
    }
    assert [macro["strategy"] for macro in document["macro"]] == STRATEGIES


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_oracle_s_own_file_realises_the_potential(run, real_snapshot: Path, strategy: str, tmp_path: Path):
    """Its gap is exactly 0 at each of its 256 settings in each cell; its realised potential is from 0.99 to 1."""
    actions = tmp_path / "oracle.parquet"
    assert run("baseline", real_snapshot, "oracle", "--strategy", strategy, "-o", actions).exit_code == 0
    scored = run("score", real_snapshot, actions, "--strategy", strategy, "--format", "json")
    document = json.loads(scored.stdout)
    assert len(document["settings"]) == 256
    assert {cell["gap"] for setting in document["settings"] for cell in setting["cells"]} == {0.0}
    assert {setting["gap"] for setting in document["settings"]} == {0.0}
    assert all(0.99 <= board["realised_potential"] <= 1 for board in document["boards"])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_uninformed_file_realises_nothing(run, real_snapshot: Path, strategy: str, tmp_path: Path):
    actions = tmp_path / "uninformed.csv.gz"
    run("baseline", real_snapshot, "uninformed", "--strategy", strategy, "-o", actions)
    document = json.loads(run("score", real_snapshot, actions, "--strategy", strategy, "--format", "json").stdout)
    realised = [b["realised_potential"] for b in document["boards"] if b["realised_potential"] is not None]
    assert realised
    assert max(realised) <= 0


def test_json_csv_and_table_hold_the_same_figures(run, snapshot_path: Path):
    document = json.loads(run("overthinking", snapshot_path, "--split", "test", "--format", "json").stdout)
    rows = _read_csv(run("overthinking", snapshot_path, "--split", "test", "--format", "csv").stdout)
    assert len(rows) == 5
    for cell, row in zip([*document["cells"], document["macro"]], rows, strict=True):
        assert float(row["overthinking_ratio"]) == cell["overthinking_ratio"]
        assert row["model"] == cell.get("model", "")
    table = run("overthinking", snapshot_path, "--split", "test").stdout
    assert table.splitlines()[0].strip() == "small (synthetic), split test"
    assert f"{document['macro']['overthinking_ratio']:.4f}" in table.splitlines()[-1]
    assert table.splitlines()[-1].split()[:2] == ["all", "all"]


def test_frontier_prints_points_or_a_grid(run, snapshot_path: Path):
    chosen = ("--strategy", "fixed_budget", "--model", "alpha", "--benchmark", "math")
    document = json.loads(run("frontier", snapshot_path, *chosen, "--format", "json").stdout)
    (cell,) = document["cells"]
    points = _read_csv(run("frontier", snapshot_path, *chosen, "--format", "csv").stdout)
    assert [(int(p["cost"]), int(p["correct"])) for p in points] == list(
        zip(cell["cost"], cell["correct"], strict=True)
    )
    assert float(points[-1]["accuracy"]) == cell["max_accuracy"]
    assert float(points[-1]["beta"]) == cell["beta_sat"]
    grid = _read_csv(run("frontier", snapshot_path, *chosen, "--grid", 8, "--format", "csv").stdout)
    assert [float(row["beta"]) for row in grid] == [i / 8 for i in range(9)] * 2
    assert float(grid[8]["accuracy"]) == cell["max_accuracy"]
    table = run("frontier", snapshot_path, "--grid", 2).stdout.splitlines()
    assert table[1].split() == ["beta", *STRATEGIES]
    assert [line.split()[0] for line in table[2:]] == ["0.0000", "0.5000", "1.0000"]
    assert len(run("frontier", snapshot_path).stdout.splitlines()) == 2 + 4 * 3 + 3


def test_the_macro_frontier_is_that_of_the_selected_cells(run, snapshot_path: Path):
    whole = json.loads(run("frontier", snapshot_path, "--strategy", "dynamic_routing", "--format", "json").stdout)
    one = json.loads(
        run("frontier", snapshot_path, "--strategy", "dynamic_routing", "--model", "beta", "--format", "json").stdout
    )
    of_beta = [cell for cell in whole["cells"] if cell["model"] == "beta"]
    assert one["cells"] == of_beta
    assert one["macro"][0]["area"] == pytest.approx(sum(cell["area"] for cell in of_beta) / 2, rel=1e-15)


def test_score_lists_boards_settings_or_cells(run, snapshot_path: Path, tmp_path: Path):
    actions = tmp_path / "random.csv"
    target = ("--strategy", "dynamic_routing", "--split", "test")
    run("baseline", snapshot_path, "random", *target, "-o", actions, "--seed", 3)
    document = json.loads(run("score", snapshot_path, actions, *target, "--format", "json").stdout)
    assert document["actions_sha256"] == hashlib.sha256(actions.read_bytes()).hexdigest()
    boards = _read_csv(run("score", snapshot_path, actions, *target, "--format", "csv").stdout)
    assert len(boards) == len(document["boards"]) == 9
    assert float(boards[0]["area"]) == document["summary"]["area"]
    assert (boards[0]["model"], boards[0]["benchmark"]) == ("", "")
    settings = _read_csv(run("score", snapshot_path, actions, *target, "--rows", "settings", "--format", "csv").stdout)
    assert [row["setting"] for row in settings] == [s["setting"] for s in document["settings"]]
    assert [float(row["gap"]) for row in settings] == [s["gap"] for s in document["settings"]]
    cells = _read_csv(run("score", snapshot_path, actions, *target, "--rows", "cells", "--format", "csv").stdout)
    assert len(cells) == 256 * 4
    assert {row["on_curve"] for row in cells} == {"true", "false"}


def test_the_seed_decides_the_random_file(run, snapshot_path: Path, tmp_path: Path):
    def write(name: str, seed: int) -> bytes:
        target = ("--strategy", "fixed_budget", "--seed", seed, "-o", tmp_path / name)
        assert run("baseline", snapshot_path, "random", *target).exit_code == 0
        return (tmp_path / name).read_bytes()

    assert write("a.csv", 1) == write("b.csv", 1) != write("c.csv", 2)


def test_a_baseline_never_overwrites_unless_told(run, snapshot_path: Path, tmp_path: Path):
    output = tmp_path / "out.csv"
    output.write_text("precious")
    arguments = ("baseline", snapshot_path, "uninformed", "--strategy", "dynamic_routing", "-o", output)
    refused = run(*arguments)
    assert refused.exit_code == 1
    assert "output_exists" in refused.stderr
    assert "--force" in refused.stderr
    assert output.read_text() == "precious"
    assert run(*arguments, "--force").exit_code == 0
    assert output.read_text().startswith("model,")
    assert [path.name for path in tmp_path.iterdir()] == ["out.csv"]


@pytest.mark.parametrize(("output", "code"), [("nowhere/out.csv", "output_failed"), ("out.txt", "unknown_suffix")])
def test_a_baseline_that_cannot_be_written_is_named(run, snapshot_path: Path, tmp_path: Path, output, code):
    arguments = ("baseline", snapshot_path, "random", "--strategy", "fixed_budget", "-o", tmp_path / output)
    result = run(*arguments, "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)["code"]) == (1, code)
    assert list(tmp_path.iterdir()) == []


def test_example_methods_are_baselines_of_their_strategy(run, snapshot_path: Path, tmp_path: Path):
    unknown = run("baseline", snapshot_path, "x", "--strategy", "dynamic_early_exit", "-o", tmp_path / "a.csv")
    assert unknown.exit_code == 2
    names = [word.strip(",;") for word in unknown.stderr.replace("│", " ").split() if word.startswith("example-")]
    assert names
    for name in names:
        target = ("--strategy", "dynamic_early_exit", "--split", "validation")
        output = tmp_path / f"{name}.parquet"
        assert run("baseline", snapshot_path, name, *target, "-o", output).exit_code == 0
        assert run("check", snapshot_path, output, *target).exit_code == 0


def test_check_says_what_a_sound_file_holds(run, snapshot_path: Path, tmp_path: Path):
    actions = tmp_path / "caps.csv"
    snapshot = read_snapshot(snapshot_path)
    questions = snapshot.questions.to_pylist()
    rows = [f"alpha,{q['benchmark']},{q['question_id']},1\n" for q in questions if q["split"] == "test"]
    actions.write_text("model,benchmark,question_id,action\n" + "".join(rows))
    target = ("--strategy", "fixed_budget", "--split", "test")
    document = json.loads(run("check", snapshot_path, actions, *target, "--format", "json").stdout)
    assert document["n_rows"] == 24
    assert (document["n_settings"], document["settings"]) == (1, ["default"])
    assert (document["n_cells_covered"], document["n_cells"]) == (2, 4)
    assert [warning["code"] for warning in document["warnings"]] == ["looks_like_routing"]
    table = run("check", snapshot_path, actions, *target)
    assert "looks_like_routing" in table.stderr
    assert "n_cells_covered" in table.stdout
    scored = run("score", snapshot_path, actions, *target)
    assert scored.exit_code == 0
    assert "no setting covers some cell" in scored.stderr


def test_a_file_with_problems_lists_them_and_ends_with_1(run, snapshot_path: Path, tmp_path: Path):
    actions = tmp_path / "bad.csv"
    actions.write_text("model,benchmark,question_id,action\nalpha,math,math-test-00,2\nalpho,math,math-test-01,1\n")
    for command in ("check", "score"):
        target = (command, snapshot_path, actions, "--strategy", "dynamic_routing", "--split", "test")
        result = run(*target)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "action_out_of_range" in result.stderr
        as_json = run(*target, "--format", "json")
        document = json.loads(as_json.stdout)
        assert (as_json.exit_code, as_json.stderr) == (1, "")
        assert document["code"] == "invalid_action_file"
        problems = {problem["code"]: problem for problem in document["problems"]}
        assert problems["action_out_of_range"]["row"] == 2
        assert problems["unknown_model"]["row"] == 3
        as_csv = run(*target, "--format", "csv")
        assert (as_csv.exit_code, as_csv.stdout) == (1, "")


def test_more_problems_than_are_shown_are_counted(run, snapshot_path: Path, tmp_path: Path):
    actions = tmp_path / "bad.csv"
    rows = "".join(f"alpha,math,math-test-00,{n}\n" for n in range(2, 302))
    actions.write_text("model,benchmark,question_id,action\n" + rows)
    result = run("check", snapshot_path, actions, "--strategy", "dynamic_routing", "--split", "test")
    assert "300 in all" in result.stderr


def test_what_a_file_holds_cannot_steer_the_terminal(run, snapshot_path: Path, tmp_path: Path):
    actions = tmp_path / "bad.csv"
    actions.write_text("model,benchmark,question_id,action\n\x1b[2Jalpha,math,[red]x[/red],1\n")
    result = run("check", snapshot_path, actions, "--strategy", "dynamic_routing")
    assert result.exit_code == 1
    assert "\x1b" not in result.stderr
    assert "[red]x[/red]" in result.stderr


def test_a_hidden_split_can_be_checked_but_not_scored(run, public_path: Path, tmp_path: Path):
    target = ("--strategy", "dynamic_routing", "--split", "test")
    few = tmp_path / "few.csv"
    assert run("baseline", public_path, "uninformed", *target, "-o", few).exit_code == 0
    assert run("check", public_path, few, *target).exit_code == 0
    many = tmp_path / "many.csv"
    assert run("baseline", public_path, "random", *target, "-o", many).exit_code == 0
    limited = run("check", public_path, many, *target, "--format", "json")
    assert [p["code"] for p in json.loads(limited.stdout)["problems"]] == ["too_many_settings"]
    for arguments in (
        ("score", public_path, few, *target),
        ("baseline", public_path, "oracle", *target, "-o", tmp_path / "oracle.csv"),
        ("overthinking", public_path, "--split", "test"),
        ("overthinking", public_path),
        ("frontier", public_path, "--split", "test"),
    ):
        result = run(*arguments, "--format", "json")
        assert (result.exit_code, json.loads(result.stdout)["code"]) == (1, "labels_hidden"), arguments
    assert run("overthinking", public_path, "--split", "validation").exit_code == 0


def test_verify_prints_the_identity_or_every_fault(run, snapshot_path: Path, tmp_path: Path):
    document = json.loads(run("snapshot", "verify", snapshot_path, "--format", "json").stdout)
    assert document["sha256"] == read_snapshot(snapshot_path).sha256
    assert (document["n_questions"], document["problems"]) == (35, [])
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "manifest.json").write_text('{"format": "stp-snapshot/9"}')
    result = run("snapshot", "verify", broken, "--format", "json")
    assert result.exit_code == 1
    codes = {problem["code"]: problem["count"] for problem in json.loads(result.stdout)["problems"]}
    assert codes == {"missing_key": 8, "bad_format": 1, "missing_file": 2}
    table = run("snapshot", "verify", broken)
    assert (table.exit_code, table.stdout) == (1, "")
    assert "probes_per_position" in table.stderr


def test_synthesize_writes_a_marked_snapshot_once(run, tmp_path: Path):
    path = tmp_path / "small.zip"
    arguments = ("synthesize", path, "--scale", "0.01", "--seed", 5, "--format", "json")
    document = json.loads(run(*arguments).stdout)
    assert document["kind"] == "synthetic"
    assert document["sha256"] == read_snapshot(path).sha256
    again = run(*arguments)
    assert (again.exit_code, json.loads(again.stdout)["code"]) == (1, "output_exists")


def test_efficiency_prints_both_scores(run):
    arguments = ("efficiency", "--accuracy", 0.9, "--tokens", 100, "--base-accuracy", 0.8, "--base-tokens", 200)
    document = json.loads(run(*arguments, "--format", "json").stdout)
    # 1 / (0.8 * (0.1/0.9) * (0.8/0.2) + 0.2 * 0.5) and 1 * 0.5 + 3 * 0.125
    assert document["e3"] == pytest.approx(1 / (0.8 * (0.1 / 0.9) * 4 + 0.2 * 0.5), rel=1e-12)
    assert document["aes"] == pytest.approx(0.875, rel=1e-12)
    rows = {row["field"]: row["value"] for row in _read_csv(run(*arguments, "--format", "csv").stdout)}
    assert float(rows["e3"]) == document["e3"]
    # rho = 1 and w = 1/4 weigh the odds ratio 9/4 and the token ratio 2: 9/16 + 3/2.
    changed = json.loads(run(*arguments, "--rho", 1, "--weight", 0.25, "--format", "json").stdout)
    assert changed["e3"] == pytest.approx(33 / 16, rel=1e-12)
    assert (changed["rho"], changed["weight"], document["weight"]) == (1.0, 0.25, 0.8)


@pytest.mark.parametrize(
    "arguments",
    [
        ("overthinking",),
        ("overthinking", "SNAPSHOT", "--format", "yaml"),
        ("overthinking", "SNAPSHOT", "--nonsense"),
        ("nonsense",),
        ("score", "SNAPSHOT", "a.csv"),
        ("score", "SNAPSHOT", "a.csv", "--strategy", "routing"),
        ("score", "SNAPSHOT", "a.csv", "--strategy", "dynamic_routing", "--rows", "units"),
        ("frontier", "SNAPSHOT", "--grid", 0),
        ("efficiency", "--accuracy", 1.5, "--tokens", 1, "--base-accuracy", 0.5, "--base-tokens", 1),
        ("efficiency", "--accuracy", "nan", "--tokens", 1, "--base-accuracy", 0.5, "--base-tokens", 1),
        ("efficiency", "--accuracy", 0.5, "--tokens", "inf", "--base-accuracy", 0.5, "--base-tokens", 1),
        ("efficiency", "--accuracy", 0.5, "--tokens", 1, "--base-accuracy", 0.5, "--base-tokens", 1, "--weight", 1),
        ("efficiency", "--accuracy", 0.5, "--tokens", 1, "--base-accuracy", 0.5, "--base-tokens", 1, "--rho", "nan"),
        ("baseline", "SNAPSHOT", "orcale", "--strategy", "dynamic_routing", "-o", "never-written.csv"),
        ("serve", "--port", 70000),
        ("submit", "a.csv", "--server", "ftp://x", "--snapshot", "s", "--strategy", "dynamic_routing", "--method", "m"),
        (
            "submit",
            "a.csv",
            "--server",
            "http://x",
            "--snapshot",
            "s",
            "--strategy",
            "dynamic_routing",
            "--method",
            "m",
        ),
    ],
)
def test_wrong_usage_ends_with_2_and_prints_nothing_on_standard_output(run, snapshot_path: Path, arguments):
    result = run(*(snapshot_path if argument == "SNAPSHOT" else argument for argument in arguments))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("overthinking", "absent"), "invalid_snapshot"),
        (("overthinking", "SNAPSHOT", "--split", "tests"), "unknown_split"),
        (("frontier", "SNAPSHOT", "--model", "alphа"), "unknown_cell"),
        (("frontier", "SNAPSHOT", "--benchmark", "maths"), "unknown_cell"),
        (("check", "SNAPSHOT", "absent.csv", "--strategy", "dynamic_routing"), "unreadable_file"),
        (("check", "SNAPSHOT", "SNAPSHOT", "--strategy", "dynamic_routing"), "unreadable_file"),
        (("score", "SNAPSHOT", "absent.csv", "--strategy", "dynamic_routing", "--split", "x"), "unknown_split"),
        (("synthesize", "absent", "--scale", "-1"), "bad_synthesis"),
    ],
)
def test_what_cannot_be_used_ends_with_1_and_its_code(run, snapshot_path: Path, arguments: Any, code: str):
    chosen = [snapshot_path if argument == "SNAPSHOT" else argument for argument in arguments]
    result = run(*chosen, "--format", "json")
    assert (result.exit_code, result.stderr) == (1, "")
    assert json.loads(result.stdout)["code"] == code
    as_table = run(*chosen)
    assert (as_table.exit_code, as_table.stdout) == (1, "")
    assert code in as_table.stderr
