"""The Python client against a real server: every typed result, refusals, pauses, the download."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from app import client_results
from app.client import MAX_RETRIES, Client
from app.client_results import Account, UnexpectedAnswerError, read_result
from app.errors import ContentError, ForbiddenError, NotFoundError, StateError, TooManyRequestsError, UnreachableError
from app.files.atomic import OutputExistsError
from app.files.snapshot import read_snapshot

Caps = Callable[[int], bytes]


@pytest.fixture
def connect(board: Any) -> Callable[..., Client]:
    """A function that connects a client to the running server, with a token or with none."""
    address = str(board.reader.base_url)
    return lambda token=None: Client(address, token)


def test_boards_and_scores_are_those_of_rest(board: Any, connect: Any, make_caps: Caps) -> None:
    submission_id = board.publish(make_caps(200), method="caps")
    with connect() as reader:
        shown = reader.get_leaderboard("small", "fixed_budget", split="test")
        (row,) = shown.rows
        answer = board.reader.get("/api/v1/leaderboard?snapshot=small&split=test&strategy=fixed_budget").json()
        assert {name: getattr(row, name) for name in ("method", "area", "realised_potential", "rank")} == {
            name: answer["rows"][0][name] for name in ("method", "area", "realised_potential", "rank")
        }
        assert (shown.kind, shown.ranks_are_provisional) == (answer["kind"], True)
        score = reader.read_score(submission_id)
        document = reader.get_score(submission_id)
        assert score.summary is not None
        assert score.summary.area == document["summary"]["area"] == row.area
        assert [entry.accuracy for entry in score.settings] == [entry["accuracy"] for entry in document["settings"]]
        assert len(score.boards) == len(document["boards"])
        assert reader.get_submission(submission_id).state == "published"
        cell = reader.get_leaderboard("small", "fixed_budget", split="test", model="beta", benchmark="math")
        assert (cell.model, cell.benchmark) == ("beta", "math")


def test_ones_own_submissions(board: Any, connect: Any, make_caps: Caps) -> None:
    ids = [board.submit(make_caps(cap)) for cap in (1, 2)]
    with connect(board.token) as mine:
        assert mine.get_account().name == "local"
        assert [found.id for found in mine.list_submissions()] == ids[::-1]
        with pytest.raises(StateError) as refused:
            mine.publish(ids[0])
        assert refused.value.code == "wrong_state"
        board.score(ids[0])
        assert mine.publish(ids[0]).state == "published"


def test_snapshots_and_what_is_computed_from_them(board: Any, connect: Any, tmp_path: Path) -> None:
    with connect() as reader:
        (found,) = reader.list_snapshots()
        assert found == reader.get_snapshot("small")
        path = reader.download_snapshot("small", tmp_path / "small.zip")
        assert read_snapshot(path).sha256 == found.sha256
        with pytest.raises(OutputExistsError):
            reader.download_snapshot("small", path)
        frontiers = reader.get_frontiers("small", split="test", strategy="fixed_budget", model="beta")
        answer = board.reader.get(
            "/api/v1/snapshots/small/frontiers?split=test&strategy=fixed_budget&model=beta"
        ).json()
        assert [list(cell.cost) for cell in frontiers.cells] == [cell["cost"] for cell in answer["cells"]]
        overthinking = reader.get_overthinking("small", split="test")
        assert overthinking.cells[0].overthinking_ratio > 0
        assert overthinking.macro is not None


def test_lists_go_on_to_their_end(connect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.client.PAGE_ITEMS", 50)
    with connect() as reader:
        results = list(reader.list_efficiency_results())
        assert len({(found.benchmark, found.backbone, found.method) for found in results}) == 160
        (one,) = reader.list_efficiency_results(method="CoD", benchmark="GSM8K", backbone="Qwen2.5-7B-Instruct")
        assert (one.e3_printed, one.agrees, one.paradigm) == (0.21, True, "reasoning_blueprint")


def test_refusals_are_of_the_kind_of_their_status(board: Any, connect: Any, tmp_path: Path) -> None:
    with connect() as reader:
        for ask, kind, code in (
            (lambda: reader.get_snapshot("nowhere"), NotFoundError, "unknown_snapshot"),
            (lambda: reader.download_snapshot("nowhere", tmp_path / "x.zip"), NotFoundError, "unknown_snapshot"),
            (reader.get_account, ForbiddenError, "not_signed_in"),
            (lambda: reader.get_leaderboard("small", "guessing"), ContentError, "invalid_request"),
            (lambda: list(reader.list_submissions()), ForbiddenError, "not_signed_in"),
        ):
            with pytest.raises(kind) as refused:
                ask()
            assert refused.value.code == code
        assert not (tmp_path / "x.zip").exists()


def answer_in_turn(*answers: httpx.Response) -> tuple[Client, list[float]]:
    waited: list[float] = []
    left = list(answers)
    transport = httpx.MockTransport(lambda _: left.pop(0))
    return Client("http://board.test", transport=transport, pause=waited.append), waited


def busy(seconds: str) -> httpx.Response:
    body = {"code": "too_many_requests", "detail": "Slower."}
    return httpx.Response(429, json=body, headers={"Retry-After": seconds})


ME = httpx.Response(200, json={"name": "ada", "team": "engines"})


def test_a_server_that_is_asked_too_often_is_waited_for() -> None:
    client, waited = answer_in_turn(busy("3"), busy("1"), ME)
    assert client.get_account() == Account("ada", "engines")
    assert waited == [3, 1]


@pytest.mark.parametrize(("seconds", "n_answers"), [("3600", 1), ("1", MAX_RETRIES + 1), ("soon", 1)])
def test_a_pause_that_is_too_long_or_asked_for_too_often_is_an_error(seconds: str, n_answers: int) -> None:
    client, waited = answer_in_turn(*[busy(seconds)] * n_answers)
    with pytest.raises(TooManyRequestsError) as refused:
        client.get_account()
    assert refused.value.retry_after_seconds == (int(seconds) if seconds.isdecimal() else 0)
    assert len(waited) == n_answers - 1


def test_an_upload_is_not_sent_twice(tmp_path: Path) -> None:
    path = tmp_path / "actions.csv"
    path.write_text("x")
    client, waited = answer_in_turn(busy("1"))
    with pytest.raises(TooManyRequestsError):
        client.submit(path, fields={"snapshot": "s"})
    assert waited == []


@pytest.mark.parametrize("body", [{"name": "ada"}, {"name": 1, "team": "x"}, {"name": None, "team": "x"}])
def test_an_answer_of_another_shape_is_no_server_of_ours(body: dict[str, Any]) -> None:
    client, _ = answer_in_turn(httpx.Response(200, json=body))
    with pytest.raises(UnreachableError, match="not an OTBoard server"):
        client.get_account()


def test_what_a_download_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    def refuse(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("gone")

    client = Client("http://board.test", transport=httpx.MockTransport(refuse))
    with pytest.raises(UnreachableError):
        client.download_snapshot("small", tmp_path / "small.zip")
    assert list(tmp_path.iterdir()) == []


def test_results_are_read_by_their_types() -> None:
    assert doctest.testmod(client_results).failed == 0
    result = read_result(
        client_results.Setting, dict.fromkeys(client_results.Setting.__dataclass_fields__, 1) | {"setting": "a"}
    )
    assert (result.beta, type(result.beta)) == (1.0, float)
    for wrong in ({"beta": True}, {"beta": "0.5"}, {"setting": 3}):
        with pytest.raises(UnexpectedAnswerError):
            read_result(client_results.Setting, {**vars(result), **wrong})
