"""The organiser's REST: marks, imports, snapshots before freezing, re-scoring, work, audit; and who may not."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from app.evaluator.scorers import SCORERS
from app.files.snapshot import Snapshot, write_snapshot
from app.services.rescoring_jobs import rescore_submission
from app.services.snapshot_imports import run_import
from tests.other_scorer import score_with_penalty

Caps = Callable[[int], bytes]
CONSOLE = "/api/v1/console"


def check_problem(answer: httpx.Response, status: int, code: str) -> Any:
    assert answer.status_code == status, answer.text
    assert answer.json()["code"] == code
    return answer.json()


def list_acts(board: Any) -> list[str]:
    return [entry["action"] for entry in board.me.get(f"{CONSOLE}/audit").json()["items"]]


ACTS = [
    ("GET", f"{CONSOLE}/submissions"),
    ("GET", f"{CONSOLE}/identical-uploads"),
    ("GET", f"{CONSOLE}/work"),
    ("GET", f"{CONSOLE}/audit"),
    ("GET", f"{CONSOLE}/allowances"),
    ("PUT", f"{CONSOLE}/allowances"),
    ("GET", f"{CONSOLE}/snapshot-imports"),
    ("POST", f"{CONSOLE}/snapshot-imports"),
    ("POST", f"{CONSOLE}/snapshot-imports/from-path"),
    ("GET", f"{CONSOLE}/snapshot-imports/1"),
    ("GET", f"{CONSOLE}/rescorings"),
    ("POST", f"{CONSOLE}/rescorings"),
    ("GET", f"{CONSOLE}/rescorings/1"),
    ("GET", f"{CONSOLE}/rescorings/1/preview"),
    ("POST", f"{CONSOLE}/rescorings/1/apply"),
    ("POST", f"{CONSOLE}/rescorings/1/retry"),
    ("POST", f"{CONSOLE}/rescorings/1/cancel"),
    ("PUT", "/api/v1/snapshots/small/hidden-splits"),
    ("POST", "/api/v1/snapshots/small/freeze"),
    ("DELETE", "/api/v1/snapshots/small"),
    *(
        ("POST", f"/api/v1/submissions/AAAAAAAAAAAA/{act}")
        for act in ("flag", "unflag", "verify", "unverify", "mark-baseline", "unmark-baseline")
    ),
    ("GET", "/api/v1/submissions/AAAAAAAAAAAA/identical-uploads"),
]


@pytest.mark.parametrize(("method", "path"), ACTS)
def test_members_and_strangers_may_not(shared_board: Any, method: str, path: str) -> None:
    check_problem(shared_board.reader.request(method, path), 401, "not_signed_in")
    check_problem(shared_board.stranger.request(method, path), 403, "forbidden")


def test_an_entry_is_flagged_and_marked(board: Any, make_caps: Caps) -> None:
    submission_id = board.publish(make_caps(200))
    path = f"/api/v1/submissions/{submission_id}"
    check_problem(board.me.post(f"{path}/flag", json={"reason": ""}), 422, "invalid_request")
    check_problem(board.me.post(f"{path}/flag", json={"reason": "  "}), 422, "invalid_reason")
    assert board.me.post(f"{path}/flag", json={"reason": "=reads labels"}).json()["flag_reason"] == "=reads labels"
    assert board.me.post(f"{path}/verify").json()["is_verified"]
    assert board.me.post(f"{path}/mark-baseline").json()["is_baseline"]
    address = "/api/v1/leaderboard?snapshot=small&split=test&strategy=fixed_budget"
    (row,) = board.reader.get(address).json()["rows"]
    assert (row["rank"], row["rank_reason"], row["flag_reason"]) == (None, "flagged", "=reads labels")
    assert (row["is_verified"], row["is_baseline"]) == (True, True)
    (line,) = csv.DictReader(io.StringIO(board.reader.get(f"{address}&format=csv").text))
    assert (line["flag_reason"], line["is_verified"], line["is_baseline"]) == ("'=reads labels", "true", "true")
    shown = board.reader.get(path).json()
    assert (shown["flag_reason"], shown["is_verified"], shown["is_baseline"]) == ("=reads labels", True, True)
    for act in ("unflag", "unverify", "unmark-baseline"):
        assert board.me.post(f"{path}/{act}").status_code == 200
    shown = board.reader.get(path).json()
    assert (shown["flag_reason"], shown["is_verified"], shown["is_baseline"]) == (None, False, False)
    acts = ["flag_submission", "verify_submission", "mark_baseline"]
    acts += ["unflag_submission", "unverify_submission", "unmark_baseline"]
    assert list_acts(board)[:6] == acts[::-1]
    for act in ("unflag", "verify", "unverify", "mark-baseline", "unmark-baseline"):
        check_problem(board.me.post(f"/api/v1/submissions/AAAAAAAAAAAA/{act}"), 404, "unknown_submission")
    body = {"reason": "x"}
    check_problem(board.me.post("/api/v1/submissions/AAAAAAAAAAAA/flag", json=body), 404, "unknown_submission")


def test_only_organisers_learn_of_identical_uploads(board: Any, make_caps: Caps) -> None:
    mine = board.submit(make_caps(200))
    assert board.me.get(f"{CONSOLE}/identical-uploads").json()["items"] == []
    theirs = board.send(make_caps(200), client=board.stranger).json()
    found = board.me.get(f"{CONSOLE}/identical-uploads").json()["items"]
    assert [(upload["submission_id"], upload["team"]) for upload in found] == [
        (mine, "local"),
        (theirs["id"], "others"),
    ]
    (other,) = board.me.get(f"/api/v1/submissions/{mine}/identical-uploads").json()["items"]
    assert other["submission_id"] == theirs["id"]
    assert mine not in board.stranger.get(f"/api/v1/submissions/{theirs['id']}").text
    check_problem(board.stranger.get(f"/api/v1/submissions/{mine}"), 404, "unknown_submission")
    path = "/api/v1/submissions/AAAAAAAAAAAA/identical-uploads"
    check_problem(board.me.get(path), 404, "unknown_submission")


def test_submissions_of_all_teams_by_state(board: Any, make_caps: Caps) -> None:
    published = board.publish(make_caps(200))
    theirs = board.send(make_caps(300), client=board.stranger).json()["id"]

    def ask(**filters: Any) -> list[str]:
        answer = board.me.get(f"{CONSOLE}/submissions", params=filters)
        assert answer.status_code == 200, answer.text
        return [item["id"] for item in answer.json()["items"]]

    assert ask() == [theirs, published]
    assert ask(state="received") == [theirs]
    assert ask(state="published", snapshot="small") == [published]
    assert ask(team="others") == [theirs]
    assert ask(snapshot="nowhere") == ask(flagged=True) == []
    page = board.me.get(f"{CONSOLE}/submissions?limit=1").json()
    assert ask(limit=1, cursor=page["next_cursor"]) == [published]
    check_problem(board.me.get(f"{CONSOLE}/submissions?cursor=x"), 422, "invalid_cursor")
    # An organiser may look at a draft of another team, and not publish it.
    assert board.me.get(f"/api/v1/submissions/{theirs}").json()["is_mine"] is False
    check_problem(board.me.post(f"/api/v1/submissions/{theirs}/publish"), 404, "unknown_submission")


def test_the_queue_and_dead_workers_are_seen(board: Any, make_caps: Caps) -> None:
    board.submit(make_caps(200))
    with board.sessions.begin() as session:
        for age in ("1 hour", "0"):
            session.execute(
                text("INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - cast(:age AS interval))"),
                {"age": age},
            )
        session.execute(
            text(
                "UPDATE procrastinate_jobs SET status = 'doing', worker_id ="
                " (SELECT min(id) FROM procrastinate_workers) WHERE task_name = 'prepare_snapshot'"
            )
        )
    work = board.me.get(f"{CONSOLE}/work").json()
    assert [worker["is_alive"] for worker in work["workers"]] == [True, False]
    dead = work["workers"][1]
    assert (dead["task"], dead["kind"]) == ("prepare_snapshot", "scoring")
    assert work["n_lost"] >= 1
    waiting = {(queue["task"], queue["status"]): queue for queue in work["queues"]}
    assert waiting["score_submission", "todo"]["n_jobs"] == 1
    assert waiting["score_submission", "todo"]["oldest_at"] is not None


def test_the_audit_log_is_filtered_and_safe_in_a_spreadsheet(board: Any, make_caps: Caps) -> None:
    submission_id = board.publish(make_caps(200))
    board.me.post(f"/api/v1/submissions/{submission_id}/verify")
    with board.sessions.begin() as session:
        session.execute(
            text("INSERT INTO audit_events (actor, action, subject) VALUES ('=cmd()', 'verify_submission', '+1')")
        )

    def ask(**filters: str) -> list[str]:
        answer = board.me.get(f"{CONSOLE}/audit", params=filters)
        assert answer.status_code == 200, answer.text
        return [entry["subject"] for entry in answer.json()["items"]]

    assert ask(action="verify_submission") == ["+1", f"submission {submission_id}"]
    assert ask(actor="local", subject=submission_id) == [f"submission {submission_id}"]
    assert ask(subject="%") == ask(since="2999-01-01T00:00:00Z") == ask(until="2000-01-01") == []
    page = board.me.get(f"{CONSOLE}/audit?limit=1").json()
    assert ask(limit="1", cursor=page["next_cursor"]) == [f"submission {submission_id}"]
    check_problem(board.me.get(f"{CONSOLE}/audit?cursor=WyJ4Il0"), 422, "invalid_cursor")
    answer = board.me.get(f"{CONSOLE}/audit?format=csv&action=verify_submission")
    assert answer.headers["content-type"].startswith("text/csv")
    first, second = csv.DictReader(io.StringIO(answer.text))
    assert (first["actor"], first["subject"]) == ("'=cmd()", "'+1")
    assert second["at"].endswith("Z")


def test_limits_are_set_and_taken_back(board: Any) -> None:
    body = {"snapshot": "small", "team": "others", "open_per_day": 3}
    assert board.me.put(f"{CONSOLE}/allowances", json=body).json()["open_per_day"] == 3
    answer = board.me.get(f"{CONSOLE}/allowances").json()
    assert [(one["team"], one["open_per_day"], one["hidden_total"]) for one in answer["items"]] == [("others", 3, None)]
    assert answer["defaults"]["hidden_per_day"] == 5
    assert board.me.put(f"{CONSOLE}/allowances", json={**body, "open_per_day": None}).json()["open_per_day"] is None
    assert board.me.get(f"{CONSOLE}/allowances").json()["items"] == []
    check_problem(board.me.put(f"{CONSOLE}/allowances", json={**body, "team": "nobody"}), 422, "invalid_limit")
    check_problem(board.me.put(f"{CONSOLE}/allowances", json={**body, "snapshot": "x"}), 404, "unknown_snapshot")
    check_problem(board.me.put(f"{CONSOLE}/allowances", json={**body, "open_per_day": -1}), 422, "invalid_request")
    assert list_acts(board)[:2] == ["set_allowance", "set_allowance"]


def zip_snapshot(snapshot: Snapshot, folder: Path) -> bytes:
    path = folder / f"{snapshot.manifest.name}.zip"
    write_snapshot(snapshot, path)
    return path.read_bytes()


def test_a_snapshot_from_its_upload_to_the_board(board: Any, make_board_snapshot: Any, tmp_path: Path) -> None:
    content = zip_snapshot(make_board_snapshot("fresh", seed=3), tmp_path)
    answer = board.me.post(f"{CONSOLE}/snapshot-imports", files={"file": ("fresh.zip", content)})
    assert answer.status_code == 202, answer.text
    address = answer.headers["location"]
    assert board.me.get(address).json()["state"] == "waiting"
    run_import(board.sessions, answer.json()["id"], config=board.config)
    found = board.me.get(address).json()
    assert (found["state"], found["snapshot"], found["problems"]) == ("imported", "fresh", [])
    run_import(board.sessions, answer.json()["id"], config=board.config)
    before = board.reader.get("/api/v1/snapshots/fresh").json()
    assert (before["state"], before["hidden_splits"]) == ("imported", [])
    hidden = board.me.put("/api/v1/snapshots/fresh/hidden-splits", json={"splits": ["test"]}).json()
    assert hidden["hidden_splits"] == ["test"]
    assert hidden["sha256"] != before["sha256"]
    check_problem(
        board.me.put("/api/v1/snapshots/fresh/hidden-splits", json={"splits": ["dev"]}), 422, "invalid_snapshot"
    )
    frozen = board.me.post("/api/v1/snapshots/fresh/freeze").json()
    assert (frozen["state"], frozen["sha256"]) == ("frozen", hidden["sha256"])
    assert board.me.post("/api/v1/snapshots/fresh/freeze").status_code == 200
    check_problem(board.me.put("/api/v1/snapshots/fresh/hidden-splits", json={"splits": []}), 409, "snapshot_frozen")
    check_problem(board.me.delete("/api/v1/snapshots/fresh"), 409, "snapshot_frozen")
    acts = ["begin_import", "import_snapshot", "set_hidden_splits", "freeze_snapshot"]
    assert list_acts(board)[:4] == acts[::-1]
    for path in ("hidden-splits", "freeze"):
        method = "PUT" if path == "hidden-splits" else "POST"
        answer = board.me.request(method, f"/api/v1/snapshots/nowhere/{path}", json={"splits": []})
        check_problem(answer, 404, "unknown_snapshot")


def test_every_fault_of_a_snapshot_is_listed_and_nothing_is_stored(
    board: Any, make_board_snapshot: Any, tmp_path: Path
) -> None:
    content = zip_snapshot(make_board_snapshot("broken", seed=3), tmp_path)
    broken = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as given, zipfile.ZipFile(broken, "w") as written:
        for member in given.infolist():
            data = given.read(member)
            written.writestr(member.filename, data[:-7] if member.filename.endswith("questions.parquet") else data)
    for upload in (broken.getvalue(), b"no zip"):
        answer = board.me.post(f"{CONSOLE}/snapshot-imports", files={"file": ("broken.zip", upload)})
        run_import(board.sessions, answer.json()["id"], config=board.config)
        found = board.me.get(answer.headers["location"]).json()
        assert found["state"] == "rejected"
        assert found["problems"]
    check_problem(board.reader.get("/api/v1/snapshots/broken"), 404, "unknown_snapshot")
    check_problem(board.me.post(f"{CONSOLE}/snapshot-imports", data={"x": "y"}), 400, "broken_upload")
    answer = board.me.post(f"{CONSOLE}/snapshot-imports", files={"other": ("a.zip", b"x")})
    check_problem(answer, 422, "missing_file")
    check_problem(board.me.get(f"{CONSOLE}/snapshot-imports/99"), 404, "unknown_import")
    assert len(board.me.get(f"{CONSOLE}/snapshot-imports").json()["items"]) == 2


def test_a_snapshot_from_a_path_is_removed_again(board: Any, make_board_snapshot: Any, tmp_path: Path) -> None:
    folder = tmp_path / "lying"
    write_snapshot(make_board_snapshot("lying", seed=4), folder)
    check_problem(board.me.post(f"{CONSOLE}/snapshot-imports/from-path", json={"path": "lying"}), 422, "invalid_path")
    for path, state in ((str(folder), "imported"), (str(folder), "rejected"), (str(tmp_path / "none"), "rejected")):
        found = board.me.post(f"{CONSOLE}/snapshot-imports/from-path", json={"path": path}).json()
        run_import(board.sessions, found["id"], config=board.config)
        assert board.me.get(f"{CONSOLE}/snapshot-imports/{found['id']}").json()["state"] == state
    assert board.me.delete("/api/v1/snapshots/lying").status_code == 204
    check_problem(board.reader.get("/api/v1/snapshots/lying"), 404, "unknown_snapshot")
    check_problem(board.me.delete("/api/v1/snapshots/lying"), 404, "unknown_snapshot")
    assert list_acts(board)[0] == "remove_snapshot"


def test_a_board_is_rescored_over_rest(board: Any, make_caps: Caps, monkeypatch: pytest.MonkeyPatch) -> None:
    submission_id = board.publish(make_caps(200))
    body = {"snapshot": "small"}
    check_problem(board.me.post(f"{CONSOLE}/rescorings", json=body), 409, "nothing_to_rescore")
    check_problem(board.me.post(f"{CONSOLE}/rescorings", json={"snapshot": "x"}), 404, "unknown_snapshot")
    monkeypatch.setitem(SCORERS, "2", score_with_penalty)
    board_path = "/api/v1/leaderboard?snapshot=small&split=test&strategy=fixed_budget"
    shown = board.reader.get(board_path).json()
    assert (shown["scorer_version"], shown["newer_scorer_version"], shown["n_waiting"]) == ("1", "2", 0)
    answer = board.me.post(f"{CONSOLE}/rescorings", json=body)
    assert answer.status_code == 201
    address = answer.headers["location"]
    check_problem(board.me.post(f"{CONSOLE}/rescorings", json=body), 409, "rescoring_state")
    check_problem(board.me.post(f"{address}/apply"), 409, "rescoring_state")
    rescore_submission(board.sessions, submission_id, config=board.config)
    assert board.me.get(address).json()["state"] == "ready"
    assert board.me.post(f"{address}/retry").json()["state"] == "ready"
    preview = board.me.get(f"{address}/preview").json()
    (row,) = preview["board"]["rows"]
    assert row["new"]["area"] == 0.9 * row["old"]["area"]
    assert preview["targets"][0]["n_figures_changed"] > 1
    check_problem(board.me.get(f"{address}/preview?split=train"), 404, "unknown_rescoring")
    check_problem(board.me.get(f"{address}/preview?model=gamma"), 404, "unknown_board")
    old_receipt = board.reader.get(f"/api/v1/submissions/{submission_id}/receipt").json()
    assert board.me.post(f"{address}/apply").json()["state"] == "applied"
    shown = board.reader.get(board_path).json()
    assert (shown["scorer_version"], shown["newer_scorer_version"]) == ("2", None)
    assert board.reader.get(f"{board_path}&scorer_version=1").json()["rows"][0]["area"] == row["old"]["area"]
    score = f"/api/v1/submissions/{submission_id}/score"
    assert board.reader.get(score).json()["scorer_version"] == "2"
    assert board.reader.get(f"{score}?scorer_version=1").json()["scorer_version"] == "1"
    check_problem(board.reader.get(f"{score}?scorer_version=3"), 409, "not_scored")
    receipt = f"/api/v1/submissions/{submission_id}/receipt"
    assert board.reader.get(receipt).json()["receipt"]["scorer_version"] == "2"
    assert board.reader.get(f"{receipt}?scorer_version=1").json() == old_receipt
    check_problem(board.me.post(f"{address}/cancel"), 409, "rescoring_state")
    check_problem(board.me.post(f"{address}/retry"), 409, "rescoring_state")
    assert len(board.me.get(f"{CONSOLE}/rescorings").json()["items"]) == 1
    for act in ("apply", "retry", "cancel"):
        check_problem(board.me.post(f"{CONSOLE}/rescorings/99/{act}"), 404, "unknown_rescoring")
    check_problem(board.me.get(f"{CONSOLE}/rescorings/99"), 404, "unknown_rescoring")
    check_problem(board.me.get(f"{CONSOLE}/rescorings/0"), 422, "invalid_request")
