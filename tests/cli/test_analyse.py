"""The command `analyse`: the files it writes, what it prints, what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


def test_it_writes_the_figures_of_the_other_commands(run, snapshot_path: Path, tmp_path: Path):
    result = run("analyse", snapshot_path, "--split", "test", "-o", tmp_path / "report", "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    printed = json.loads(result.stdout)
    document = json.loads(Path(printed["json"]).read_text(encoding="utf-8"))
    assert Path(printed["json"]) == tmp_path / "report.json"
    plain = json.loads(run("overthinking", snapshot_path, "--split", "test", "--format", "json").stdout)
    assert document["overthinking"]["cells"] == plain["cells"]
    assert document["overthinking"]["macro"] == plain["macro"] == printed["overthinking"]
    frontier = json.loads(run("frontier", snapshot_path, "--split", "test", "--format", "json").stdout)
    assert document["frontiers"]["cells"] == frontier["cells"]
    assert document["frontiers"]["macro"] == frontier["macro"]
    header = ("snapshot", "snapshot_sha256", "kind", "split")
    assert {key: document[key] for key in header} == {key: frontier[key] for key in header}


def test_it_replaces_nothing_unless_told_to(run, snapshot_path: Path, tmp_path: Path):
    taken = tmp_path / "report.html"
    taken.write_text("mine", encoding="utf-8")
    refused = run("analyse", snapshot_path, "--split", "test", "-o", tmp_path / "report.json")
    assert refused.exit_code == 1
    assert "output_exists" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
    assert taken.read_text(encoding="utf-8") == "mine"
    assert run("analyse", snapshot_path, "--split", "test", "-o", tmp_path / "report.json", "--force").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json"]


@pytest.mark.parametrize(
    ("split", "code"), [("test", "labels_hidden"), ("all", "labels_hidden"), ("best", "unknown_split")]
)
def test_it_writes_nothing_where_it_cannot_analyse(run, public_path: Path, tmp_path: Path, split: str, code: str):
    result = run("analyse", public_path, "--split", split, "-o", tmp_path / "report", "--format", "json")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["code"] == code
    assert list(tmp_path.iterdir()) == []
