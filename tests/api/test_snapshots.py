"""Snapshots over REST, and what is computed from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.api.schemas import FrontiersOut, OverthinkingOut, SnapshotDetailsOut
from app.evaluator.fast_frontier import solve_frontiers_fast
from app.evaluator.overthinking import summarise_overthinking
from app.evaluator.reference import build_references
from app.evaluator.strategies import Strategy
from app.files.documents import dump_json, frontier_document, overthinking_document
from app.files.snapshot import Snapshot, read_snapshot
from app.services.analyses import ANALYSES, run_slice
from app.services.snapshots import get_snapshot

PREFIX = "/api/v1/snapshots"


def check_problem(answer: Any, status: int, code: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == code


def test_snapshots_by_name(shared_board: Any) -> None:
    first = shared_board.reader.get(f"{PREFIX}?limit=2").json()
    assert [item["name"] for item in first["items"]] == ["loose", "secret"]
    second = shared_board.reader.get(PREFIX, params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [(item["name"], item["state"]) for item in second["items"]] == [("small", "frozen")]
    assert second["next_cursor"] is None
    assert second["items"][0]["splits"] == ["train", "validation", "test", "all"]
    assert first["items"][1]["hidden_splits"] == ["test"]
    check_problem(shared_board.reader.get(f"{PREFIX}?cursor=x"), 422, "invalid_cursor")
    check_problem(shared_board.reader.get(f"{PREFIX}?limit=1000"), 422, "invalid_request")


def test_one_snapshot(shared_board: Any, board_snapshot: Snapshot) -> None:
    answer = shared_board.reader.get(f"{PREFIX}/small")
    shown = SnapshotDetailsOut.model_validate(answer.json())
    assert (shown.sha256, shown.kind, shown.models) == (board_snapshot.sha256, "synthetic", ["alpha", "beta"])
    check_frozen(shared_board, f"{PREFIX}/small")
    assert "etag" not in shared_board.reader.get(f"{PREFIX}/loose").headers
    check_problem(shared_board.reader.get(f"{PREFIX}/nowhere"), 404, "unknown_snapshot")


@pytest.mark.parametrize("split", ["test", "all"])
def test_overthinking_is_the_offline_document(shared_board: Any, split: str) -> None:
    measurements = shared_board.measurements.select(split)
    expected = overthinking_document(summarise_overthinking(measurements), measurements)
    answer = shared_board.reader.get(f"{PREFIX}/small/overthinking?split={split}")
    assert answer.text == dump_json(expected)
    OverthinkingOut.model_validate(answer.json())
    check_frozen(shared_board, f"{PREFIX}/small/overthinking?split={split}")


@pytest.mark.parametrize("strategy", [None, *Strategy])
def test_frontiers_are_the_offline_document(shared_board: Any, strategy: Strategy | None) -> None:
    measurements = shared_board.measurements.select("test")
    chosen = [strategy] if strategy else list(Strategy)
    references = [
        reference
        for one in chosen
        for reference in build_references(measurements, one, solve_frontiers_fast(measurements, [one]))
    ]
    expected = frontier_document(references, measurements)
    path = f"{PREFIX}/small/frontiers?split=test" + (f"&strategy={strategy}" if strategy else "")
    for _ in ("computed", "kept"):
        assert json.loads(shared_board.reader.get(path).text) == expected
    FrontiersOut.model_validate(expected)
    check_frozen(shared_board, path)


def test_frontiers_of_chosen_cells(shared_board: Any) -> None:
    answer = shared_board.reader.get(
        f"{PREFIX}/small/frontiers?model=beta&benchmark=logic&strategy=dynamic_routing"
    ).json()
    assert [(cell["model"], cell["benchmark"]) for cell in answer["cells"]] == [("beta", "logic")]
    assert answer["macro"][0]["area"] == answer["cells"][0]["area"]
    check_problem(shared_board.reader.get(f"{PREFIX}/small/frontiers?model=gamma"), 404, "unknown_cell")


def test_a_question_s_curves(shared_board: Any, board_snapshot: Snapshot) -> None:
    query = {"benchmark": "math", "question_id": "math-test-03"}
    whole = shared_board.reader.get(f"{PREFIX}/small/trajectories", params=query).json()
    assert [(item["model"], item["trajectory"]) for item in whole["items"]] == [
        ("alpha", 0),
        ("alpha", 1),
        ("beta", 0),
        ("beta", 1),
    ]
    expected = [row for row in board_snapshot.trajectories.to_pylist() if row["question_id"] == "math-test-03"]
    assert [item["correct_probes"] for item in whole["items"]] == [row["correct_probes"] for row in expected]
    assert (whole["split"], whole["difficulty"], whole["probes_per_position"]) == ("test", 3, 4)
    first = shared_board.reader.get(f"{PREFIX}/small/trajectories", params={**query, "limit": 3}).json()
    rest = {**query, "limit": 3, "cursor": first["next_cursor"]}
    second = shared_board.reader.get(f"{PREFIX}/small/trajectories", params=rest).json()
    assert first["items"] + second["items"] == whole["items"]
    assert second["next_cursor"] is None


def test_curves_that_are_not_shown(shared_board: Any) -> None:
    def get(name: str, benchmark: str = "math", question_id: str = "math-test-03", **also: str) -> Any:
        query = {"benchmark": benchmark, "question_id": question_id, **also}
        return shared_board.reader.get(f"{PREFIX}/{name}/trajectories", params=query)

    check_problem(get("secret"), 403, "labels_hidden")
    assert get("secret", question_id="math-train-00").status_code == 200
    check_problem(get("loose"), 409, "snapshot_not_frozen")
    check_problem(get("small", question_id="nothing"), 404, "unknown_question")
    check_problem(get("small", benchmark="logic"), 404, "unknown_question")
    check_problem(get("small", cursor="x"), 422, "invalid_cursor")
    check_problem(shared_board.reader.get(f"{PREFIX}/small/trajectories"), 422, "invalid_request")


def test_analyses_are_listed_and_sent_once_a_job_has_computed_them(shared_board: Any) -> None:
    address = f"{PREFIX}/small/analyses"
    check_problem(shared_board.reader.get(f"{address}/diversity?split=validation"), 409, "analysis_not_ready")
    check_problem(shared_board.reader.get(f"{address}/magic"), 404, "unknown_analysis")
    check_problem(shared_board.reader.get(f"{address}/diversity?split=dev"), 422, "unknown_split")
    check_problem(shared_board.reader.get(f"{PREFIX}/loose/analyses"), 409, "snapshot_not_frozen")
    check_problem(shared_board.reader.get(f"{PREFIX}/nowhere/analyses/diversity"), 404, "unknown_snapshot")
    for path in ("analyses", "analyses/diversity", "analyses/examples?format=csv"):
        for split in ("test", "all"):
            answer = shared_board.reader.get(f"{PREFIX}/secret/{path}", params={"split": split})
            check_problem(answer, 403, "labels_hidden")
    with shared_board.sessions.begin() as session:
        snapshot_id = get_snapshot(session, "small").id
    for _ in ANALYSES:
        run_slice(shared_board.sessions, snapshot_id, split="train", config=shared_board.config)
    items = shared_board.reader.get(f"{address}?split=train").json()["items"]
    assert [item["kind"] for item in items if not item["is_ready"]] == ["intervals"]
    document = shared_board.reader.get(f"{address}/diversity?split=train").json()
    answer = shared_board.reader.get(f"{address}/diversity?split=train&format=csv")
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    macro = document["averages"]["overthinking_ratio"]["macro"]
    assert answer.text.splitlines()[-1].split(",")[2] == repr(macro)


@pytest.mark.parametrize("what", ["overthinking", "frontiers"])
def test_figures_that_are_not_shown(shared_board: Any, what: str) -> None:
    check_problem(shared_board.reader.get(f"{PREFIX}/loose/{what}"), 409, "snapshot_not_frozen")
    check_problem(shared_board.reader.get(f"{PREFIX}/secret/{what}?split=all"), 403, "labels_hidden")
    # Of a single hidden split they are told in steps.
    told = shared_board.reader.get(f"{PREFIX}/secret/{what}?split=test")
    assert '"quantum"' in told.text
    assert '"cost"' not in told.text
    assert shared_board.reader.get(f"{PREFIX}/secret/{what}?split=validation").status_code == 200
    check_problem(shared_board.reader.get(f"{PREFIX}/small/{what}?split=dev"), 422, "unknown_split")
    check_problem(shared_board.reader.get(f"{PREFIX}/nowhere/{what}"), 404, "unknown_snapshot")


def test_the_download_is_the_snapshot(shared_board: Any, board_snapshot: Snapshot, tmp_path: Path) -> None:
    answer = shared_board.reader.get(f"{PREFIX}/small/download")
    assert answer.headers["content-type"] == "application/zip"
    assert "small.zip" in answer.headers["content-disposition"]
    (tmp_path / "small.zip").write_bytes(answer.content)
    assert read_snapshot(tmp_path / "small.zip").sha256 == board_snapshot.sha256
    check_frozen(shared_board, f"{PREFIX}/small/download")
    check_problem(shared_board.reader.get(f"{PREFIX}/loose/download"), 409, "snapshot_not_frozen")


def test_the_download_hides_what_is_hidden(
    shared_board: Any, make_board_snapshot: Callable[..., Snapshot], tmp_path: Path
) -> None:
    """Elsewhere, per-case results of the hidden split were in a public file (kits19#38)."""
    (tmp_path / "secret.zip").write_bytes(shared_board.reader.get(f"{PREFIX}/secret/download").content)
    public = read_snapshot(tmp_path / "secret.zip")
    assert public.full_sha256 == make_board_snapshot("secret", seed=2, hidden_splits=["test"]).sha256
    hidden = [row for row in public.trajectories.to_pylist() if "-test-" in row["question_id"]]
    assert hidden
    assert {(str(row["correct_probes"]), row["original_correct"]) for row in hidden} == {("None", None)}
    shown = [row for row in public.trajectories.to_pylist() if "-train-" in row["question_id"]]
    assert all(row["correct_probes"] is not None for row in shown)


def check_frozen(shared_board: Any, path: str) -> None:
    first = shared_board.reader.get(path)
    etag = first.headers["etag"]
    assert etag.startswith('"')
    again = shared_board.reader.get(path, headers={"If-None-Match": etag})
    assert (again.status_code, again.content) == (304, b"")
    other = shared_board.reader.get(path, headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.content) == (200, first.content)
