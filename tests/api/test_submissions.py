"""Submissions and validations over REST: each way it goes well, and each error it declares."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from app.api.schemas import ScoreOut
from app.services.losses import keep_stops
from app.services.uploads import incoming_dir, upload_path
from tests.signing_in import session_cookie

Caps = Callable[[int], bytes]


def check_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert (body["status"], body["code"]) == (status, code)
    assert body["title"]
    assert body["detail"]
    assert body["type"].endswith(code)
    return body


def test_a_submission_from_upload_to_publication(board: Any, make_caps: Caps) -> None:
    answer = board.send(make_caps(200), method="caps", description="One cap for all.")
    assert answer.status_code == 202
    submission_id = answer.json()["id"]
    address = answer.headers["location"]
    assert address == f"/api/v1/submissions/{submission_id}"
    shown = board.me.get(address).json()
    assert (shown["state"], shown["queue_place"], shown["worker_alive"]) == ("received", 1, False)
    assert (shown["method"], shown["team"], shown["snapshot"]) == ("caps", "local", "small")
    check_problem(board.me.get(f"{address}/score"), 409, "not_scored")
    board.score(submission_id)
    shown = board.me.get(address).json()
    assert (shown["state"], shown["queue_place"], shown["worker_alive"]) == ("scored", None, None)
    score = board.me.get(f"{address}/score")
    assert ScoreOut.model_validate(score.json()).actions_sha256 == shown["actions_sha256"]
    check_problem(board.reader.get(address), 404, "unknown_submission")
    assert board.me.post(f"{address}/publish").json()["state"] == "published"
    for path in ("", "/score", "/events", "/actions"):
        assert board.reader.get(address + path).status_code == 200
    events = board.reader.get(f"{address}/events").json()["items"]
    assert [event["to_state"] for event in events] == ["received", "validating", "scoring", "scored", "published"]
    assert all(event["at"].endswith("Z") for event in events)
    gone = board.me.post(f"{address}/withdraw", json={"reason": "wrong checkpoint"})
    assert gone.json()["state"] == "withdrawn"
    assert board.me.get(f"{address}/events").json()["items"][-1]["reason"] == "wrong checkpoint"
    # What was published stays as a tombstone; its figures and its file are the team's again.
    tombstone = board.reader.get(address).json()
    assert (tombstone["state"], tombstone["is_current"]) == ("withdrawn", False)
    assert board.reader.get(f"{address}/events").status_code == 200
    for path in ("score", "actions", "receipt"):
        check_problem(board.reader.get(f"{address}/{path}"), 410, "withdrawn")
        assert board.me.get(f"{address}/{path}").status_code == 200


def test_a_draft_that_is_withdrawn_leaves_nothing_to_others(board: Any, make_caps: Caps) -> None:
    submission_id = board.submit(make_caps(200))
    assert board.me.post(f"/api/v1/submissions/{submission_id}/withdraw").json()["state"] == "withdrawn"
    check_problem(board.reader.get(f"/api/v1/submissions/{submission_id}"), 404, "unknown_submission")


def test_the_same_bytes_again_are_the_same_submission(board: Any, make_caps: Caps) -> None:
    first = board.send(make_caps(200))
    again = board.send(make_caps(200))
    assert (first.status_code, again.status_code) == (202, 200)
    assert again.headers["location"] == first.headers["location"]
    assert again.json()["id"] == first.json()["id"]
    assert len(board.me.get("/api/v1/submissions").json()["items"]) == 1


def test_the_same_bytes_at_the_same_time_are_one_submission(board: Any, make_caps: Caps) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: board.send(make_caps(200)), range(4)))
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 202]
    assert len({answer.json()["id"] for answer in answers}) == 1
    with board.sessions.begin() as session:
        assert session.scalar(text("SELECT count(*) FROM submissions")) == 1
        jobs = session.scalar(text("SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'score_submission'"))
    assert jobs == 1


def test_a_rejected_file_lists_its_problems(board: Any, make_caps: Caps) -> None:
    content = make_caps(200).replace(b"alpha,math,math-test-00,200", b"alpha,math,math-test-0x,200", 1)
    submission_id = board.submit(content)
    board.score(submission_id)
    shown = board.me.get(f"/api/v1/submissions/{submission_id}").json()
    assert shown["state"] == "rejected"
    by_code = {problem["code"]: problem for problem in shown["problems"]}
    assert by_code["unknown_question"]["row"] == 2
    assert by_code["unknown_question"]["column"] == "question_id"


def test_the_uploaded_file_comes_back_as_it_was(board: Any, make_caps: Caps) -> None:
    submission_id = board.submit(make_caps(200))
    path = f"/api/v1/submissions/{submission_id}/actions"
    answer = board.me.get(path)
    assert answer.content == make_caps(200)
    assert "actions.csv" in answer.headers["content-disposition"]
    etag = answer.headers["etag"]
    assert board.me.get(path, headers={"If-None-Match": etag}).status_code == 304
    check_problem(board.stranger.get(path), 404, "unknown_submission")
    upload_path(board.config.data_dir, board.me.get(path[:-8]).json()["actions_sha256"]).unlink()
    check_problem(board.me.get(path), 404, "actions_gone")


def test_a_score_is_frozen(board: Any, make_caps: Caps) -> None:
    submission_id = board.publish(make_caps(200))
    path = f"/api/v1/submissions/{submission_id}/score"
    first = board.reader.get(path)
    etag = first.headers["etag"]
    assert etag.startswith('"')
    again = board.reader.get(path, headers={"If-None-Match": f'"other", {etag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert board.reader.get(path).content == first.content


def test_pages_of_my_submissions(board: Any, make_caps: Caps) -> None:
    mine = {board.submit(make_caps(cap)) for cap in range(3)}
    first = board.me.get("/api/v1/submissions?limit=2").json()
    second = board.me.get("/api/v1/submissions", params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert {item["id"] for item in first["items"] + second["items"]} == mine
    assert second["next_cursor"] is None
    for cursor in ("nonsense", "WyIxIl0", "é"):
        check_problem(board.me.get("/api/v1/submissions", params={"cursor": cursor}), 422, "invalid_cursor")
    check_problem(board.me.get("/api/v1/submissions?limit=0"), 422, "invalid_request")


def test_everything_of_mine_needs_a_token(board: Any, make_caps: Caps) -> None:
    submission_id = board.submit(make_caps(200))
    for method, path in (
        ("GET", "submissions"),
        ("POST", "submissions"),
        ("POST", "validations"),
        ("POST", f"submissions/{submission_id}/publish"),
        ("POST", f"submissions/{submission_id}/make-current"),
        ("POST", f"submissions/{submission_id}/withdraw"),
        ("POST", f"submissions/{submission_id}/retry"),
        ("GET", "me"),
    ):
        answer = board.reader.request(method, f"/api/v1/{path}")
        check_problem(answer, 401, "not_signed_in")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    wrong = {"Authorization": "Bearer otb_wrong"}
    check_problem(board.reader.get(f"/api/v1/submissions/{submission_id}", headers=wrong), 401, "not_signed_in")


def test_what_is_another_team_s(board: Any, make_caps: Caps) -> None:
    submission_id = board.publish(make_caps(200))
    for action in ("publish", "make-current", "withdraw", "retry"):
        check_problem(board.stranger.post(f"/api/v1/submissions/{submission_id}/{action}"), 403, "forbidden")
    for action in ("publish", "make-current", "withdraw", "retry"):
        check_problem(board.me.post(f"/api/v1/submissions/nothing/{action}"), 404, "unknown_submission")


def test_states_that_do_not_allow_it(board: Any, make_caps: Caps) -> None:
    submission_id = board.submit(make_caps(200))
    address = f"/api/v1/submissions/{submission_id}"
    check_problem(board.me.post(f"{address}/publish"), 409, "wrong_state")
    check_problem(board.me.post(f"{address}/make-current"), 409, "wrong_state")
    check_problem(board.me.post(f"{address}/retry"), 409, "wrong_state")
    check_problem(board.me.post(f"{address}/withdraw", json={"reason": 5}), 422, "invalid_request")


def test_choices_at_the_same_time_leave_one_current(board: Any, make_caps: Caps) -> None:
    ids = [board.publish(make_caps(cap)) for cap in (100, 200, 300)]
    with ThreadPoolExecutor(6) as pool:
        paths = [f"/api/v1/submissions/{submission_id}/make-current" for submission_id in ids * 4]
        answers = list(pool.map(board.me.post, paths))
    assert {answer.status_code for answer in answers} == {200}
    shown = [board.me.get(f"/api/v1/submissions/{submission_id}").json()["is_current"] for submission_id in ids]
    assert shown.count(True) == 1
    (row,) = board.reader.get("/api/v1/leaderboard?snapshot=small&split=test&strategy=fixed_budget").json()["rows"]
    assert row["submission_id"] == ids[shown.index(True)]


def test_a_failed_submission_can_be_tried_again(board: Any, make_caps: Caps) -> None:
    submission_id = board.submit(make_caps(200))
    with board.sessions.begin() as session:
        session.execute(text("UPDATE submissions SET state = 'failed', failure_reason = 'no space', attempts = 3"))
    address = f"/api/v1/submissions/{submission_id}"
    assert board.me.get(address).json()["failure_reason"] == "no space"
    assert board.me.post(f"{address}/retry").json()["state"] == "received"


@pytest.mark.parametrize("path", ["submissions", "validations"])
def test_targets_that_do_not_exist(board: Any, make_caps: Caps, path: str) -> None:
    check_problem(board.send(make_caps(1), path=path, snapshot="nowhere"), 404, "unknown_snapshot")
    check_problem(board.send(make_caps(1), path=path, split="dev"), 422, "unknown_split")
    body = check_problem(board.send(make_caps(1), path=path, strategy="guessing"), 422, "invalid_request")
    assert body["problems"][0]["column"] == "strategy"
    body = check_problem(board.send(make_caps(1), path=path, stratgy="fixed_budget"), 422, "invalid_request")
    assert body["problems"][0]["column"] == "stratgy"


@pytest.mark.parametrize("path", ["submissions", "validations"])
def test_snapshots_that_cannot_be_scored_on(shared_board: Any, make_caps: Caps, path: str) -> None:
    check_problem(shared_board.send(make_caps(1), path=path, snapshot="loose"), 409, "snapshot_not_frozen")
    check_problem(shared_board.send(make_caps(1), path=path, snapshot="secret", split="all"), 403, "labels_hidden")


@pytest.mark.parametrize("path", ["submissions", "validations"])
def test_forms_that_are_no_upload(board: Any, path: str) -> None:
    address = f"/api/v1/{path}"
    form = {"snapshot": "small", "split": "test", "strategy": "fixed_budget"}
    if path == "submissions":
        form["method"] = "method"
    check_problem(board.me.post(address, json=form), 400, "broken_upload")
    check_problem(board.me.post(address, data=form), 400, "broken_upload")
    no_file = [(name, (None, value)) for name, value in form.items()]
    check_problem(board.me.post(address, files=no_file), 422, "missing_file")
    body = check_problem(board.me.post(address, files={"file": ("a.csv", b"x")}), 422, "invalid_request")
    assert {"snapshot", "strategy"} <= {problem["column"] for problem in body["problems"]}
    assert list_uploads(board) == []


def test_a_file_past_the_limit(board: Any) -> None:
    check_problem(board.send(b"x" * 1_000_001), 413, "upload_too_large")
    assert list_uploads(board) == []


def test_a_file_past_the_limit_without_a_content_length(board: Any) -> None:
    def body() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
        for _ in range(20):
            yield b"x" * 100_000
        yield b"\r\n--b--\r\n"

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    check_problem(board.me.post("/api/v1/submissions", content=body(), headers=headers), 413, "upload_too_large")
    assert list_uploads(board) == []


def test_validations_store_nothing(board: Any, make_caps: Caps) -> None:
    good = board.send(make_caps(1), path="validations")
    assert good.status_code == 200
    shown = good.json()
    assert (shown["n_rows"], shown["n_settings"], shown["settings"]) == (48, 1, ["default"])
    assert [warning["code"] for warning in shown["warnings"]] == ["looks_like_routing"]
    bad = board.send(make_caps(1) + b"\nalpha,math,math-train-00,1", path="validations")
    problems = check_problem(bad, 422, "invalid_action_file")["problems"]
    assert [(p["code"], p["row"], p["count"]) for p in problems] == [("question_not_in_split", 50, 1)]
    assert board.me.get("/api/v1/submissions").json()["items"] == []
    assert list_uploads(board) == []


def test_a_refused_submission_leaves_no_file(board: Any, make_caps: Caps) -> None:
    check_problem(board.send(make_caps(1), snapshot="nowhere"), 404, "unknown_snapshot")
    assert list_uploads(board) == []


def test_a_cookie_changes_nothing_from_another_site(board: Any, make_caps: Caps) -> None:
    submission_id = board.publish(make_caps(200))
    address = f"/api/v1/submissions/{submission_id}"
    board.reader.cookies.update(session_cookie(board.sessions, board.config))
    assert board.reader.get("/api/v1/me").json()["name"] == "local"
    for headers in (
        {},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
    ):
        check_problem(board.reader.post(f"{address}/withdraw", headers=headers), 403, "cross_site_request")
    assert board.me.get(address).json()["state"] == "published"
    for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Origin": str(board.reader.base_url).rstrip("/")}):
        assert board.reader.post(f"{address}/withdraw", headers=headers).json()["state"] == "withdrawn"


def test_documents_have_no_number_that_json_lacks(board: Any, make_caps: Caps) -> None:
    """One NaN broke a whole feed elsewhere (vanguarstew#1734)."""
    submission_id = board.publish(make_caps(0))

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(board.reader.get(f"/api/v1/submissions/{submission_id}/score").text, parse_constant=refuse)


def list_uploads(board: Any) -> list[Any]:
    folder = incoming_dir(board.config.data_dir).parent
    return [path for path in folder.rglob("*") if path.is_file()]


def test_operating_points_are_those_of_the_score_on_every_board(board: Any) -> None:
    submission_id = board.publish(board.write())
    address = f"/api/v1/submissions/{submission_id}/operating-points"
    score = board.me.get(f"/api/v1/submissions/{submission_id}/score").json()
    names = ("beta", "accuracy", "gap", "early_loss", "late_loss", "wasted", "forgone", "e3")
    whole = board.reader.get(address).json()
    assert [row["setting"] for row in whole["rows"]] == [setting["setting"] for setting in score["settings"]]
    for row, setting in zip(whole["rows"], score["settings"], strict=True):
        assert {name: row[name] for name in names} == {name: setting[name] for name in names}
    cell = board.reader.get(address, params={"model": "alpha", "benchmark": "math"}).json()
    recorded = [
        next(c for c in setting["cells"] if (c["model"], c["benchmark"]) == ("alpha", "math"))
        for setting in score["settings"]
    ]
    assert [{n: r[n] for n in names} for r in cell["rows"]] == [{n: r[n] for n in names} for r in recorded]
    of_model = board.reader.get(address, params={"model": "alpha"}).json()["rows"][0]
    cells = [c for c in score["settings"][0]["cells"] if c["model"] == "alpha"]
    assert of_model["gap"] == pytest.approx(sum(c["gap"] for c in cells) / len(cells), rel=1e-12)
    # E3 of the mean point against the board's own full thinking, not a mean of the cells' values.
    assert of_model["e3"] is not None
    assert of_model["e3"] != pytest.approx(sum(c["e3"] for c in cells) / len(cells), rel=1e-6)


def test_operating_points_are_sorted_and_come_as_csv(board: Any) -> None:
    submission_id = board.publish(board.write())
    address = f"/api/v1/submissions/{submission_id}/operating-points"
    shown = board.reader.get(address, params={"sort": "accuracy", "order": "desc"}).json()["rows"]
    assert [row["accuracy"] for row in shown] == sorted((row["accuracy"] for row in shown), reverse=True)
    answer = board.reader.get(address, params={"sort": "accuracy", "order": "desc", "format": "csv"})
    assert answer.headers["content-type"] == "text/csv; charset=utf-8"
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.text)))
    # Every digit of the JSON.
    assert [(row["setting"], row["accuracy"]) for row in rows] == [
        (row["setting"], repr(row["accuracy"])) for row in shown
    ]


def test_operating_points_that_do_not_exist_or_are_hidden(
    board: Any, make_caps: Caps, make_board_snapshot: Any
) -> None:
    from app.services import snapshots

    waiting = board.submit(make_caps(150))
    check_problem(board.me.get(f"/api/v1/submissions/{waiting}/operating-points"), 409, "not_scored")
    check_problem(board.reader.get(f"/api/v1/submissions/{waiting}/operating-points"), 404, "unknown_submission")
    submission_id = board.publish(make_caps(200))
    address = f"/api/v1/submissions/{submission_id}/operating-points"
    check_problem(board.me.get(address, params={"model": "gamma"}), 404, "unknown_cell")
    check_problem(board.me.get(address, params={"sort": "luck"}), 422, "invalid_request")
    with board.sessions.begin() as session:
        snapshots.import_snapshot(session, make_board_snapshot("secret", seed=2, hidden_splits=["test"]))
        snapshots.freeze_snapshot(session, "secret")
        session.execute(text("UPDATE submissions SET snapshot_id = (SELECT id FROM snapshots WHERE name = 'secret')"))
    check_problem(board.me.get(address), 403, "labels_hidden")
    check_problem(board.me.get(address.replace("operating-points", "losses?setting=one")), 403, "labels_hidden")


def test_the_questions_where_a_setting_loses_most(board: Any, make_caps: Caps) -> None:
    submission_id = board.publish(make_caps(120))
    address = f"/api/v1/submissions/{submission_id}/losses"
    setting = board.reader.get(f"/api/v1/submissions/{submission_id}/score").json()["settings"][0]["setting"]
    waiting = board.reader.get(address, params={"setting": setting})
    assert (waiting.status_code, waiting.content, waiting.headers["retry-after"]) == (202, b"", "5")
    with board.sessions.begin() as session:
        assert session.scalar(text("SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'keep_stops'")) == 1
    keep_stops(board.sessions, submission_id, config=board.config)
    shown = board.reader.get(address, params={"setting": setting, "model": "alpha", "limit": 4}).json()
    assert (shown["setting"], shown["model"], len(shown["questions"])) == (setting, "alpha", 4)
    assert {"position", "oracle_position", "reference", "lost_probes"} <= set(shown["questions"][0]["stops"][0])
    check_problem(board.reader.get(address, params={"setting": "none"}), 404, "unknown_setting")
    check_problem(board.reader.get(address, params={"setting": setting, "limit": 0}), 422, "invalid_request")
    check_problem(board.reader.get("/api/v1/submissions/AAAAAAAAAAAA/losses?setting=x"), 404, "unknown_submission")
    # What is left of a withdrawn submission has neither figures of settings nor of questions.
    board.me.post(f"/api/v1/submissions/{submission_id}/withdraw")
    for path in ("losses", "operating-points"):
        gone = board.reader.get(f"/api/v1/submissions/{submission_id}/{path}", params={"setting": setting})
        check_problem(gone, 410, "withdrawn")
