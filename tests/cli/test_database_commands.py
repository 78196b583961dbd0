"""Snapshots in and out of a real database by command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from app.files.snapshot import Snapshot, read_snapshot, write_snapshot

Run = Callable[..., Result]


@pytest.fixture
def run_there(run: Run, committed_database: str, tmp_path: Path) -> Run:
    """Runs commands against a database of this test's own."""
    env = {"OTBOARD_DATABASE_URL": committed_database, "OTBOARD_DATA": str(tmp_path / "data")}
    return lambda *arguments: run(*arguments, env=env)


def test_a_snapshot_is_imported_listed_frozen_and_exported(
    run_there: Run, make_board_snapshot: Callable[..., Snapshot], tmp_path: Path
):
    snapshot = make_board_snapshot(hidden_splits=["test"])
    write_snapshot(snapshot, tmp_path / "in.zip")
    imported = run_there("snapshot", "import", tmp_path / "in.zip", "--format", "json")
    assert imported.exit_code == 0, imported.stderr
    document = json.loads(imported.stdout)
    assert (document["name"], document["state"], document["sha256"]) == ("small", "imported", snapshot.sha256)
    assert document["hidden_splits"] == ["test"]
    frozen = run_there("snapshot", "freeze", "small", "--format", "json")
    assert json.loads(frozen.stdout)["state"] == "frozen"
    listed = json.loads(run_there("snapshot", "list", "--format", "json").stdout)
    assert [(entry["name"], entry["state"]) for entry in listed] == [("small", "frozen")]
    assert "small" in run_there("snapshot", "list").stdout
    exported = run_there("snapshot", "export", "small", tmp_path / "out")
    assert exported.exit_code == 0, exported.stderr
    assert read_snapshot(tmp_path / "out").sha256 == snapshot.sha256
    public = run_there("snapshot", "export", "small", tmp_path / "public.zip", "--public", "--format", "json")
    assert json.loads(public.stdout)["full_sha256"] == snapshot.sha256
    read = read_snapshot(tmp_path / "public.zip")
    assert (read.full_sha256, read.sha256 == snapshot.sha256) == (snapshot.sha256, False)


def test_a_faulty_snapshot_imports_nothing(run_there: Run, snapshot_path: Path, tmp_path: Path):
    broken = tmp_path / "broken"
    broken.mkdir()
    for item in snapshot_path.iterdir():
        (broken / item.name).write_bytes(item.read_bytes())
    manifest = json.loads((broken / "manifest.json").read_text())
    manifest.update(probes_per_position=1, trajectories_per_question=3, kind="guessed")
    manifest["models"].append({"name": "gamma"})
    (broken / "manifest.json").write_text(json.dumps(manifest))
    result = run_there("snapshot", "import", broken, "--format", "json")
    assert result.exit_code == 1
    codes = {problem["code"]: problem["count"] for problem in json.loads(result.stdout)["problems"]}
    assert set(codes) == {"bad_kind", "correct_probes_out_of_range", "missing_trajectory"}
    # 35 questions lack one trajectory of two models and all three of the third.
    assert codes["missing_trajectory"] == 35 * (2 * 1 + 3)
    assert json.loads(run_there("snapshot", "list", "--format", "json").stdout) == []


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("freeze", "absent"), "unknown_snapshot"),
        (("export", "absent", "OUT"), "unknown_snapshot"),
        (("import", "SNAPSHOT"), "snapshot_exists"),
        (("export", "small", "SNAPSHOT"), "output_exists"),
    ],
)
def test_what_the_database_refuses_ends_with_1(run_there: Run, snapshot_path: Path, tmp_path: Path, arguments, code):
    assert run_there("snapshot", "import", snapshot_path).exit_code == 0
    places = {"SNAPSHOT": snapshot_path, "OUT": tmp_path / "out"}
    result = run_there("snapshot", *(places.get(a, a) for a in arguments), "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)["code"]) == (1, code)
    assert not (tmp_path / "out").exists()


def test_an_import_shows_only_its_result_on_standard_output(run_there: Run, snapshot_path: Path):
    result = run_there("snapshot", "import", snapshot_path, "--format", "json")
    assert json.loads(result.stdout)["n_trajectories"] == 140
    assert result.stderr == ""


@pytest.mark.parametrize("command", [("snapshot", "list"), ("worker", "score", "--until-idle")])
def test_an_unreachable_database_ends_with_3(run: Run, tmp_path: Path, command):
    # Port 1 is reserved; nothing listens there.
    env = {"OTBOARD_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none", "OTBOARD_DATA": str(tmp_path)}
    result = run(*command, env=env)
    assert (result.exit_code, result.stdout) == (3, "")
    assert "unreachable" in result.stderr
    if command[0] == "snapshot":
        as_json = run(*command, "--format", "json", env=env)
        assert (as_json.exit_code, json.loads(as_json.stdout)["code"]) == (3, "unreachable")


def test_a_database_url_that_is_none_ends_with_1(run: Run, tmp_path: Path):
    env = {"OTBOARD_DATABASE_URL": "mysql://x", "OTBOARD_DATA": str(tmp_path)}
    result = run("snapshot", "list", env=env)
    assert result.exit_code == 1
    assert "invalid_config" in result.stderr


def test_splits_are_hidden_and_a_snapshot_is_removed_until_it_is_frozen(run_there: Run, snapshot_path: Path):
    as_json = ("--format", "json")
    imported = json.loads(run_there("snapshot", "import", snapshot_path, *as_json).stdout)
    hidden = run_there("snapshot", "hide", "small", "test", "validation", *as_json)
    assert hidden.exit_code == 0, hidden.stderr
    document = json.loads(hidden.stdout)
    assert set(document["hidden_splits"]) == {"test", "validation"}
    assert document["sha256"] != imported["sha256"]
    assert "validation" in run_there("snapshot", "hide", "small", "validation").stdout
    # None named: nothing is hidden any more, and the snapshot is the one that was imported.
    shown = json.loads(run_there("snapshot", "hide", "small", *as_json).stdout)
    assert (shown["hidden_splits"], shown["sha256"]) == ([], imported["sha256"])
    for arguments, code in (
        (("hide", "small", "everything"), "invalid_snapshot"),
        (("hide", "absent", "test"), "unknown_snapshot"),
        (("remove", "absent"), "unknown_snapshot"),
    ):
        result = run_there("snapshot", *arguments, *as_json)
        assert (result.exit_code, json.loads(result.stdout)["code"]) == (1, code)
    removed = run_there("snapshot", "remove", "small", *as_json)
    assert (removed.exit_code, json.loads(removed.stdout)["name"]) == (0, "small")
    assert json.loads(run_there("snapshot", "list", *as_json).stdout) == []
    assert run_there("snapshot", "import", snapshot_path).exit_code == 0
    assert run_there("snapshot", "freeze", "small").exit_code == 0
    for arguments in (("hide", "small", "test"), ("remove", "small")):
        result = run_there("snapshot", *arguments, *as_json)
        assert (result.exit_code, json.loads(result.stdout)["code"]) == (1, "snapshot_frozen")
