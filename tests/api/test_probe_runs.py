"""Models and probe runs over REST: each way it goes well, each error it declares, the number of queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from app.api.bodies import MAX_BODY_BYTES
from app.files.profiles import list_profiles, profile_document
from app.files.questions import header_document, question_document
from app.services import probe_items, probe_runs
from app.services.assembling import Assembly, assemble_runs
from tests.measured_runs import create_run, fail_item, make_profile, make_questions, make_run, measure_items
from tests.signing_in import session_cookie

RUNS = "/api/v1/probe-runs"
MODELS = "/api/v1/models"


def check_problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body: dict[str, Any] = answer.json()
    assert (body["status"], body["code"]) == (status, code)
    return body


@contextmanager
def count_queries(board: Any) -> Iterator[list[str]]:
    statements: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        statements.append(statement)

    engine = board.sessions.kw["bind"]
    event.listen(engine, "before_cursor_execute", note)
    yield statements
    event.remove(engine, "before_cursor_execute", note)


def make_body(name: str = "measured", **changes: Any) -> dict[str, Any]:
    """A request for a run of a registered model on inline questions."""
    questions = make_questions()
    lines = [question_document(question) for question in questions.questions]
    return {
        "name": name,
        "model": "tiny",
        "question_sets": [{"header": header_document(questions), "questions": lines}],
        "protocol": {"step_tokens": 8, "n_trajectories": 2, "n_probes": 4},
        **changes,
    }


def register(board: Any, model: str = "tiny", **changes: Any) -> httpx.Response:
    answer: httpx.Response = board.me.post(MODELS, json=profile_document(make_profile(model, **changes)))
    assert answer.status_code in (200, 201), answer.text
    return answer


def test_shipped_and_registered_models(board: Any) -> None:
    shipped = [profile.name for profile in list_profiles()]
    first = board.me.get(MODELS).json()
    assert [item["name"] for item in first["items"]] == sorted(shipped)
    assert all(item["is_builtin"] and item["registered_at"] is None for item in first["items"])
    answer = register(board)
    assert (answer.status_code, answer.headers["location"]) == (201, f"{MODELS}/tiny")
    shown = board.me.get(answer.headers["location"]).json()
    assert shown == answer.json()
    assert (shown["repository"], shown["license"], shown["is_builtin"]) == ("models/tiny", "Apache-2.0", False)
    assert shown["profile"] == profile_document(make_profile())
    assert sorted([*shipped, "tiny"]) == [item["name"] for item in board.me.get(MODELS).json()["items"]]


def test_a_profile_is_replaced_under_its_name(board: Any) -> None:
    register(board)
    again = register(board, thinking_token_limit=128)
    assert (again.status_code, again.json()["profile"]["thinking_token_limit"]) == (200, 128)
    shipped = list_profiles()[0].name
    own = register(board, shipped)
    assert own.status_code == 201
    items = {item["name"]: item for item in board.me.get(MODELS).json()["items"]}
    assert (items[shipped]["is_builtin"], items[shipped]["repository"]) == (False, f"models/{shipped}")


def test_pages_of_models(board: Any) -> None:
    register(board, "a/model with a slash")
    names: list[str] = []
    cursor = None
    while True:
        page = board.me.get(MODELS, params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        assert len(page["items"]) <= 3
        names += [item["name"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert names == sorted(["a/model with a slash", *(profile.name for profile in list_profiles())])
    assert board.me.get(f"{MODELS}/a/model%20with%20a%20slash").json()["name"] == "a/model with a slash"
    check_problem(board.me.get(MODELS, params={"cursor": "nonsense"}), 422, "invalid_cursor")


def test_every_fault_of_a_profile_is_listed(board: Any) -> None:
    body = {**profile_document(make_profile()), "thinking_end": "", "temprature": 1, "thinking_token_limit": 0}
    problems = check_problem(board.me.post(MODELS, json=body), 422, "bad_profile")["problems"]
    assert {"thinking_end", "temprature", "thinking_token_limit"} <= {problem["column"] for problem in problems}
    check_problem(board.me.post(MODELS, json=[]), 422, "invalid_request")
    check_problem(board.me.get(f"{MODELS}/nobody"), 404, "unknown_profile")


def test_a_run_from_its_creation_to_its_end(board: Any) -> None:
    register(board)
    answer = board.me.post(RUNS, json=make_body(title="Sums by tiny"))
    assert answer.status_code == 201, answer.text
    created = answer.json()
    address = answer.headers["location"]
    assert address == f"{RUNS}/{created['id']}"
    assert (created["state"], created["n_questions"], created["n_waiting"]) == ("running", 6, 6)
    assert (created["title"], created["model"], created["seconds_left"]) == ("Sums by tiny", "tiny", None)
    assert created["protocol"] == {
        "step_tokens": 8,
        "n_trajectories": 2,
        "n_probes": 4,
        "thinking_token_limit": 64,
        "answer_token_limit": make_profile().answer_token_limit,
        "probe_token_limit": make_profile().probe_token_limit,
        "seed_name": "measured",
        "question_seconds": 21600,
    }
    assert board.me.post(f"{address}/pause", json={"reason": "the GPU is needed"}).json()["state"] == "paused"
    assert board.me.post(f"{address}/pause").json()["state"] == "paused"
    assert board.me.post(f"{address}/resume").json()["state"] == "running"
    with board.sessions.begin() as session:
        run = probe_runs.get_run(session, created["id"])
        measure_items(session, run, n_items=4)
    shown = board.me.get(f"{RUNS}/measured").json()
    assert (shown["n_done"], shown["n_waiting"], shown["n_trajectories"]) == (4, 2, 8)
    assert (shown["seconds"], shown["prefix_share"]) == (8.0, 0.9)
    assert shown["tokens_per_second"] == shown["generated_tokens"] / 8
    assert board.me.post(f"{address}/cancel", json={"reason": "enough"}).json()["state"] == "cancelled"
    assert board.me.post(f"{address}/cancel").json()["n_done"] == 4
    events = board.me.get(f"{address}/events").json()["items"]
    assert [event["to_state"] for event in events] == ["created", "running", "paused", "running", "cancelled"]
    assert [event["reason"] for event in events][2:] == ["the GPU is needed", None, "enough"]
    assert {event["actor"] for event in events} == {"local"}


def test_a_run_that_is_not_started_yet(board: Any) -> None:
    register(board)
    answer = board.me.post(RUNS, json=make_body(start=False, priority=5))
    assert (answer.json()["state"], answer.json()["priority"]) == ("created", 5)
    assert board.me.post(f"{RUNS}/measured/resume").json()["state"] == "running"


def test_a_stored_question_set_by_its_hash(board: Any) -> None:
    register(board)
    board.me.post(RUNS, json=make_body())
    sha256 = make_questions().sha256
    answer = board.me.post(RUNS, json=make_body("again", question_sets=[{"sha256": sha256}]))
    assert (answer.status_code, answer.json()["n_questions"]) == (201, 6)
    unknown = board.me.post(RUNS, json=make_body("third", question_sets=[{"sha256": "0" * 64}]))
    (problem,) = check_problem(unknown, 422, "bad_questions")["problems"]
    assert problem["code"] == "unknown_question_set"


def test_failed_questions_are_shown_with_their_reasons(board: Any) -> None:
    with board.sessions.begin() as session:
        run = create_run(session)
        fail_item(session, run)
        measure_items(session, run)
    shown = board.me.get(f"{RUNS}/measured").json()
    assert (shown["state"], shown["n_failed"], shown["n_done"]) == ("failed", 1, 5)
    (failed,) = shown["failed_questions"]
    assert (failed["benchmark"], failed["question_id"], failed["attempts"]) == ("sums", "q0", 3)
    assert "the engine ran out of memory" in failed["reason"]
    assert "the engine ran out of memory" in shown["failure_reason"]
    assert board.me.post(f"{RUNS}/measured/resume").json()["n_waiting"] == 1


def test_workers_and_time_left(board: Any) -> None:
    with board.sessions.begin() as session:
        run = create_run(session)
        measure_items(session, run, n_items=3)
        versions = {"engine": "none 1.0"}
        probe_items.announce_worker(
            session, "worker here:1", model="tiny", engine_key=run.engine_key, versions=versions
        )
    shown = board.me.get(f"{RUNS}/measured").json()
    assert [worker["actor"] for worker in shown["workers"]] == ["worker here:1"]
    # Two seconds a question, three are left, one worker.
    assert shown["seconds_left"] == 6.0


def test_pages_of_runs(board: Any) -> None:
    with board.sessions.begin() as session:
        make_run(session, "one")
        assemble_runs(session, ["one"], assembly=Assembly("snapshot-of-one"), actor="ada")
    for name in ("two", "three"):
        with board.sessions.begin() as session:
            create_run(session, name)
    first = board.me.get(f"{RUNS}?limit=2").json()
    second = board.me.get(RUNS, params={"limit": 2, "cursor": first["next_cursor"]}).json()
    assert [item["name"] for item in first["items"] + second["items"]] == ["three", "two", "one"]
    assert second["next_cursor"] is None
    one = second["items"][0]
    assert (one["state"], one["snapshot"], one["n_done"], one["n_questions"]) == ("assembled", "snapshot-of-one", 6, 6)
    assert one["tokens_per_second"] > 0
    assert first["items"][0]["tokens_per_second"] is None
    check_problem(board.me.get(RUNS, params={"cursor": "nonsense"}), 422, "invalid_cursor")


def test_lists_take_the_same_number_of_queries_whatever_their_length(board: Any) -> None:
    def measure() -> list[int]:
        counts = []
        for path in (RUNS, MODELS):
            with count_queries(board) as statements:
                assert board.me.get(path).status_code == 200
            counts.append(len(statements))
        return counts

    register(board)
    with board.sessions.begin() as session:
        create_run(session, "one")
    measure()
    few = measure()
    for name in ("two", "three", "four"):
        register(board, name)
        with board.sessions.begin() as session:
            make_run(session, name, model=name)
    assert measure() == few
    assert max(few) <= 4


def test_everything_needs_an_account(board: Any) -> None:
    with board.sessions.begin() as session:
        create_run(session)
    for method, path in (
        ("GET", MODELS),
        ("POST", MODELS),
        ("GET", f"{MODELS}/generic"),
        ("GET", RUNS),
        ("POST", RUNS),
        ("GET", f"{RUNS}/measured"),
        ("GET", f"{RUNS}/measured/events"),
        ("POST", f"{RUNS}/measured/pause"),
        ("POST", f"{RUNS}/measured/resume"),
        ("POST", f"{RUNS}/measured/cancel"),
    ):
        check_problem(board.reader.request(method, path), 401, "not_signed_in")


def test_a_cookie_changes_nothing_from_another_site(board: Any) -> None:
    board.reader.cookies.update(session_cookie(board.sessions, board.config))
    headers = {"Sec-Fetch-Site": "cross-site"}
    for path in (RUNS, MODELS, f"{RUNS}/measured/pause", f"{RUNS}/measured/resume", f"{RUNS}/measured/cancel"):
        check_problem(board.reader.post(path, headers=headers, json={}), 403, "cross_site_request")


def test_runs_that_are_not_there(board: Any) -> None:
    for path in ("", "/events"):
        check_problem(board.me.get(f"{RUNS}/nowhere{path}"), 404, "unknown_probe_run")
    for action in ("pause", "resume", "cancel"):
        check_problem(board.me.post(f"{RUNS}/nowhere/{action}"), 404, "unknown_probe_run")


def test_states_that_do_not_allow_it(board: Any) -> None:
    with board.sessions.begin() as session:
        make_run(session)
    for action in ("pause", "resume", "cancel"):
        check_problem(board.me.post(f"{RUNS}/measured/{action}"), 409, "probe_run_state")
    register(board)
    check_problem(board.me.post(RUNS, json=make_body()), 409, "probe_run_exists")
    check_problem(board.me.post(RUNS, json=make_body("small")), 409, "probe_run_exists")


@pytest.mark.parametrize("action", ["pause", "cancel"])
def test_a_reason_that_is_too_long(board: Any, action: str) -> None:
    with board.sessions.begin() as session:
        create_run(session)
    check_problem(board.me.post(f"{RUNS}/measured/{action}", json={"reason": "x" * 501}), 422, "invalid_request")


@pytest.mark.parametrize(
    ("changes", "code", "column"),
    [
        ({"model": "nobody"}, "unknown_model_profile", None),
        ({"name": "Not a slug"}, "bad_probe_run", "name"),
        ({"priority": 10**9}, "bad_probe_run", None),
        ({"protocol": {"n_probes": 0}}, "bad_protocol", "n_probes"),
        ({"question_sets": []}, "invalid_request", "question_sets"),
        ({"question_sets": [{}]}, "bad_questions", "header"),
        ({"typo": 1}, "invalid_request", "typo"),
        ({"name": None}, "invalid_request", "name"),
    ],
)
def test_what_cannot_be_measured(board: Any, changes: dict[str, Any], code: str, column: str | None) -> None:
    register(board)
    problems = check_problem(board.me.post(RUNS, json=make_body(**changes)), 422, code).get("problems", [])
    assert column is None or column in {problem["column"] for problem in problems}
    assert board.me.get(RUNS).json()["items"] == []


def test_faults_of_all_question_sets_are_listed(board: Any) -> None:
    register(board)
    body = make_body()
    (good,) = body["question_sets"]
    first = {**good, "questions": [{**question, "split": "dev"} for question in good["questions"]]}
    second = {"header": good["header"], "questions": [{**good["questions"][0], "split": "dev", "promt": "x"}]}
    answer = board.me.post(RUNS, json={**body, "question_sets": [first, second]})
    problems = check_problem(answer, 422, "bad_questions")["problems"]
    splits = [problem for problem in problems if problem["column"] == "split"]
    assert [(problem["row"], problem["count"]) for problem in splits] == [*((n, 7) for n in range(1, 7)), (1, 7)]
    assert problems[-1]["message"].startswith("question set 2: ")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"name": NaN}', b'{"name": "a", "name": "b"}', b"\xff{}"])
def test_bodies_that_are_no_object(board: Any, content: bytes) -> None:
    check_problem(board.me.post(RUNS, content=content), 400, "invalid_json")


def test_a_body_that_is_too_large(board: Any) -> None:
    check_problem(board.me.post(RUNS, content=b" " * (MAX_BODY_BYTES + 1)), 413, "upload_too_large")


def test_the_openapi_document_describes_them(board: Any) -> None:
    paths = board.reader.get("/api/v1/openapi.json").json()["paths"]
    for path, method in (
        (MODELS, "get"),
        (MODELS, "post"),
        (f"{MODELS}/{{name}}", "get"),
        (RUNS, "get"),
        (RUNS, "post"),
        (f"{RUNS}/{{run}}", "get"),
        (f"{RUNS}/{{run}}/events", "get"),
        (f"{RUNS}/{{run}}/pause", "post"),
        (f"{RUNS}/{{run}}/resume", "post"),
        (f"{RUNS}/{{run}}/cancel", "post"),
    ):
        assert method in paths[path], path
    schema = paths[RUNS]["post"]["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["name", "model", "question_sets"]
    assert "sha256" in schema["properties"]["question_sets"]["items"]["properties"]
    assert "$ref" not in str(schema)
