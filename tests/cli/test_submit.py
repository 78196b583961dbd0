"""The REST client and `otboard submit`: against a server in words, and against the real one with a real worker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy.orm import Session

from app import cli_submit, client
from app.client import Client, NoScoreError, RejectedError, ScoringFailedError
from app.config import Config
from app.db.session import make_engine
from app.errors import AppError, UnreachableError
from app.files.snapshot import Snapshot, hash_file
from app.main import create_app
from app.services import snapshots
from app.services.accounts import ensure_local_account
from worker.main import run_scoring_worker

FIELDS = {"snapshot": "small", "strategy": "dynamic_routing", "split": "test", "method": "a method"}
N_REPLICATES = 40
PROBLEM = {"code": "duplicate_unit", "message": "twice", "row": 3, "column": None, "unit": "a / b / c", "count": 9}


def _status(state: str, **more: Any) -> dict[str, Any]:
    return {"id": "abc", "state": state, "queue_place": None, "worker_alive": True, "progress": None, **more}


class Server:
    """Answers the requests it gets from a list, and remembers them."""

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def client(self) -> Client:
        return Client("http://board.test/", "otb_secret", transport=httpx.MockTransport(self))


def _json(body: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(status, json=body)


@pytest.fixture
def actions(tmp_path: Path) -> Path:
    """Some bytes to upload."""
    path = tmp_path / "actions.csv"
    path.write_bytes(b"model,benchmark,question_id,action\n" * 10_000)
    return path


def test_an_upload_is_one_streamed_multipart_request(actions: Path):
    server = Server(_json(_status("received", queue_place=2), 202))
    shares: list[float] = []
    with server.client() as board:
        submission = board.submit(actions, fields=FIELDS, progress=shares.append)
    (request,) = server.requests
    assert (request.method, request.url) == ("POST", "http://board.test/api/v1/submissions")
    assert request.headers["Authorization"] == "Bearer otb_secret"
    assert actions.read_bytes() in request.content
    for name, value in FIELDS.items():
        assert f'name="{name}"\r\n\r\n{value}\r\n'.encode() in request.content
    assert b'name="file"; filename="actions.csv"' in request.content
    assert (submission.id, submission.state, submission.queue_place) == ("abc", "received", 2)
    assert shares == sorted(shares)
    assert shares[-1] == 1


VALIDATION = {
    "actions_sha256": "0" * 64,
    "n_rows": 48,
    "n_settings": 1,
    "settings": ["default"],
    "n_cells_covered": 4,
    "n_cells": 4,
    "warnings": [PROBLEM],
}


def test_a_dry_run_is_typed_and_stores_nothing(actions: Path):
    server = Server(_json(VALIDATION))
    with server.client() as board:
        checked = board.validate(actions, fields=FIELDS)
    (request,) = server.requests
    assert (request.method, request.url.path) == ("POST", "/api/v1/validations")
    assert (checked.n_rows, checked.n_cells_covered, checked.document) == (48, 4, VALIDATION)
    assert [warning.as_dict() for warning in checked.warnings] == [PROBLEM]
    with Server(_json({"n_rows": 1})).client() as board, pytest.raises(UnreachableError, match="lacks"):
        board.validate(actions, fields=FIELDS)


def test_a_large_file_that_was_sent_is_not_sent_again(
    actions: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(cli_submit, "LARGE_BYTES", 1)
    target = {name: FIELDS[name] for name in ("snapshot", "strategy", "split")}
    known = _status("scored", method="another", **target)
    elsewhere = {**known, "snapshot": "other", "id": "xyz"}
    failed = {**known, "state": "failed"}
    for found, is_reused in (([elsewhere, known], True), ([elsewhere], False), ([failed], False)):
        sent = [] if is_reused else [_json(known, 202)]
        server = Server(_json({"items": found, "next_cursor": None}), *sent)
        monkeypatch.setattr(cli_submit, "Client", lambda *_, server=server: server.client())
        document = cli_submit.submit_actions(actions, server="x", token="t", fields=FIELDS, wait=False)
        assert document["id"] == "abc"
        assert server.requests[0].url.params["actions_sha256"] == hash_file(actions)
        assert len(server.requests) == 1 + len(sent)
    # What was sent under another name keeps it, and the command says so.
    assert "as method another" in capsys.readouterr().err


def test_publishing_and_withdrawing():
    server = Server(_json(_status("published")), _json(_status("withdrawn")))
    with server.client() as board:
        assert board.publish("abc").state == "published"
        assert board.withdraw("abc", reason="a mistake").state == "withdrawn"
    assert [request.url.path for request in server.requests] == [
        "/api/v1/submissions/abc/publish",
        "/api/v1/submissions/abc/withdraw",
    ]
    assert json.loads(server.requests[1].content) == {"reason": "a mistake"}


def test_waiting_follows_the_states_to_the_end():
    states = [_status("received", queue_place=1), _status("validating", progress=0.5), _status("scoring")]
    server = Server(*(_json(status) for status in [*states[1:], _status("scored")]))
    seen: list[str] = []
    pauses: list[float] = []
    with server.client() as board:
        first = client._read_status(states[0])
        last = board.wait(first, watch=lambda status: seen.append(status.state), pause=pauses.append)
    assert last.state == "scored"
    assert seen == ["received", "validating", "scoring", "scored"]
    assert pauses == [0.2, 0.5, 1.0]


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (_status("rejected", problems=[PROBLEM]), RejectedError, "problems in the file"),
        (_status("failed", failure_reason="out of disk"), ScoringFailedError, "out of disk"),
        (_status("withdrawn"), NoScoreError, "withdrawn"),
        (_status("withheld"), NoScoreError, "withheld"),
    ],
)
def test_an_end_without_a_score_is_an_error(body, error, words):
    with Server().client() as board, pytest.raises(error, match=words) as caught:
        board.wait(client._read_status(body), watch=lambda _: None)
    assert [p.as_dict() for p in caught.value.problems] == body.get("problems", [])


def test_a_server_that_restarts_while_we_wait_is_waited_for():
    down = httpx.ConnectError("refused")
    gateway = httpx.Response(502, text="<html>Bad gateway</html>")
    server = Server(
        *([down] * (client.POLL_ATTEMPTS - 1)), _json(_status("scoring")), gateway, _json(_status("scored"))
    )
    with server.client() as board:
        first = client._read_status(_status("received"))
        assert board.wait(first, watch=lambda _: None, pause=lambda _: None).state == "scored"


def test_a_server_that_stays_away_is_unreachable():
    server = Server(*([httpx.ConnectError("refused")] * client.POLL_ATTEMPTS))
    with server.client() as board, pytest.raises(UnreachableError, match="refused"):
        board.wait(client._read_status(_status("received")), watch=lambda _: None, pause=lambda _: None)
    assert server.answers == []


@pytest.mark.parametrize(
    "answer",
    [
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        httpx.Response(200, text="hello"),
        httpx.Response(200, json=["hello"]),
        httpx.Response(200, json={"hello": 1}),
        httpx.Response(301, headers={"Location": "https://elsewhere.test/"}),
        httpx.Response(404, text="not here"),
        httpx.Response(500, json={"error": "x"}),
        _json({"code": "unreachable", "detail": "no database"}, 503),
    ],
)
def test_what_is_no_answer_of_ours_counts_as_unreachable(answer):
    with Server(answer).client() as board, pytest.raises(UnreachableError):
        board.get_status("abc")


def test_a_refusal_keeps_its_code_status_and_problems():
    body = {"type": "x", "title": "Gone", "status": 409, "detail": "why", "code": "odd_state", "problems": [PROBLEM]}
    with Server(_json(body, 409)).client() as board, pytest.raises(AppError, match="why") as caught:
        board.get_score("abc")
    assert (caught.value.code, caught.value.status, caught.value.title) == ("odd_state", 409, "Gone")
    assert [problem.as_dict() for problem in caught.value.problems] == [PROBLEM]
    assert not isinstance(caught.value, UnreachableError)


@pytest.fixture
def board(
    committed_database: str, board_snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """The real server's application on a real database, in place of the network; a worker scores while we wait."""
    config = Config(data_dir=tmp_path / "data", database_url=committed_database, bootstrap_replicates=N_REPLICATES)
    config.data_dir.mkdir()
    engine = make_engine(committed_database)
    with Session(engine) as session, session.begin():
        snapshots.import_snapshot(session, board_snapshot)
        snapshots.freeze_snapshot(session, board_snapshot.manifest.name)
        token = ensure_local_account(session, config.data_dir)
    engine.dispose()
    application = create_app(config)

    async def ask(request: httpx.Request) -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(application)) as web:
            sent = httpx.Request(request.method, request.url, headers=request.headers, content=request.read())
            got = await web.send(sent)
            return httpx.Response(got.status_code, content=got.content)

    def answer(request: httpx.Request) -> httpx.Response:
        return asyncio.run(ask(request))

    class Wired(Client):
        def __init__(self, server: str, token: str) -> None:
            super().__init__(server, token, transport=httpx.MockTransport(answer))

        def wait(self, submission: Any, **keywords: Any) -> Any:
            return super().wait(submission, **keywords, pause=lambda _: run_scoring_worker(config, until_idle=True))

    monkeypatch.setattr(cli_submit, "Client", Wired)
    yield {"OTBOARD_TOKEN": token}
    application.state.sessions.kw["bind"].dispose()


def test_a_submitted_file_gets_the_score_that_it_gets_offline(
    run: Callable[..., Any], board: dict[str, str], snapshot_path: Path, tmp_path: Path
):
    actions = tmp_path / "oracle.parquet"
    target = ("--strategy", "fixed_budget", "--split", "test")
    assert run("baseline", snapshot_path, "oracle", *target, "-o", actions).exit_code == 0
    command = ("submit", actions, "--server", "http://127.0.0.1", "--snapshot", "small", "--method", "caps", *target)
    submitted = run(*command, "--format", "json", env=board)
    assert submitted.exit_code == 0, submitted.stdout
    assert "submission " in submitted.stderr
    # The worker ran until it was idle, so the intervals are there too.
    offline = run("score", snapshot_path, actions, *target, "--bootstrap", str(N_REPLICATES), "--format", "json")
    assert submitted.stdout == offline.stdout
    again = run(*command, "--rows", "settings", "--format", "csv", env=board)
    assert len(again.stdout.splitlines()) == 257
    bad = tmp_path / "bad.csv"
    bad.write_text("model,benchmark,question_id,action\nalpha,math,math-test-00,-1\n")
    command = ("submit", bad, "--server", "http://127.0.0.1", "--snapshot", "small", "--method", "caps", *target)
    rejected = run(*command, "--format", "json", env=board)
    document = json.loads(rejected.stdout)
    assert (rejected.exit_code, document["code"]) == (1, "rejected")
    offline = run("check", snapshot_path, bad, *target, "--format", "json")
    assert document["problems"] == json.loads(offline.stdout)["problems"]
    stranger = run(*command, "--format", "json", env={"OTBOARD_TOKEN": "otb_wrong"})
    assert stranger.exit_code == 1
    assert json.loads(stranger.stdout)["status"] == 401


def test_a_server_that_is_not_there_ends_with_3(run: Callable[..., Any], actions: Path):
    # Port 1 is reserved; nothing listens there.
    target = ("--server", "http://127.0.0.1:1", "--snapshot", "s", "--strategy", "fixed_budget", "--method", "m")
    result = run("submit", actions, *target, "--format", "json", env={"OTBOARD_TOKEN": "otb_x"})
    assert (result.exit_code, json.loads(result.stdout)["code"]) == (3, "unreachable")


def test_a_file_that_is_not_there_is_named_before_anything_is_sent(run: Callable[..., Any], tmp_path: Path):
    target = ("--server", "http://127.0.0.1:1", "--snapshot", "s", "--strategy", "fixed_budget", "--method", "m")
    result = run("submit", tmp_path / "absent.csv", *target, env={"OTBOARD_TOKEN": "otb_x"})
    assert result.exit_code == 1
    assert "unreadable_file" in result.stderr
