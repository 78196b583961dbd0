"""The board over REST: JSON and CSV, ranks, errors, the number of queries."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event, text

from app.api.schemas import LeaderboardOut
from app.evaluator.strategies import Strategy
from app.services.bootstrap import begin_bootstrap, run_slice
from app.services.intervals import resample_submission
from app.services.ranks import rank_boards
from app.services.snapshots import get_snapshot

Caps = Callable[[int], bytes]
PATH = "/api/v1/leaderboard?snapshot=small&split=test&strategy=fixed_budget"


@contextmanager
def count_queries(board: Any) -> Iterator[list[str]]:
    statements: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        statements.append(statement)

    engine = board.sessions.kw["bind"]
    event.listen(engine, "before_cursor_execute", note)
    yield statements
    event.remove(engine, "before_cursor_execute", note)


def test_json_csv_and_score_agree_to_the_digit(board: Any) -> None:
    """A score printed as text in one interface and as a number in another (kaggle-api#509)."""
    submission_id = board.publish(board.write("random"), method="chance")
    answer = board.reader.get(PATH)
    shown = LeaderboardOut.model_validate(answer.json())
    (row,) = answer.json()["rows"]
    assert (row["submission_id"], row["rank"], shown.ranks_are_provisional) == (submission_id, 1, True)
    (line,) = csv.DictReader(io.StringIO(board.reader.get(f"{PATH}&format=csv").text))
    summary = board.reader.get(f"/api/v1/submissions/{submission_id}/score").json()["summary"]
    for name, value in row.items():
        told = line[name]
        if isinstance(value, bool):
            assert told == str(value).lower(), name
        elif isinstance(value, int | float):
            assert told == repr(value), name
        else:
            assert told == (value or ""), name
    for name in set(row) & set(summary):
        assert row[name] == summary[name], name
    assert row["accuracy_25"] == summary["accuracy_at"]["0.25"]
    assert {"realised_potential", "area", "gap", "tokens_saved", "best_e3"} <= set(row) & set(summary)


def test_intervals_and_ranks_agree_to_the_digit(board: Any, make_caps: Caps) -> None:
    """They come after the score, so the score document is another one then, and its ETag says so."""
    config = replace(board.config, bootstrap_replicates=100)
    strategy = Strategy.FIXED_BUDGET
    ids = [board.publish(make_caps(cap), method=f"cap {cap}") for cap in (1, 300)]
    before = board.reader.get(f"/api/v1/submissions/{ids[0]}/score")
    assert before.json()["summary"]["intervals"] is None
    with board.sessions.begin() as session:
        snapshot = get_snapshot(session, "small")
        begin_bootstrap(session, snapshot, split="test", config=config)
    run_slice(board.sessions, snapshot.id, split="test", config=config)
    for submission_id in ids:
        resample_submission(board.sessions, submission_id, config=config)
    with board.sessions.begin() as session:
        # Ranking would give way to the jobs of what was scored here without them.
        session.execute(text("DELETE FROM procrastinate_jobs"))
    assert rank_boards(board.sessions, snapshot.id, split="test", strategy=strategy) == 6
    unchanged = {"If-None-Match": before.headers["etag"]}
    after = board.reader.get(f"/api/v1/submissions/{ids[0]}/score", headers=unchanged)
    assert after.status_code == 200
    shown = board.reader.get(PATH).json()
    assert shown["ranks_are_provisional"] is False
    table = csv.DictReader(io.StringIO(board.reader.get(f"{PATH}&format=csv").text))
    lines = {line["submission_id"]: line for line in table}
    for row in shown["rows"]:
        score = board.reader.get(f"/api/v1/submissions/{row['submission_id']}/score").json()
        ends = [row["realised_potential_low"], row["realised_potential_high"]]
        assert score["summary"]["intervals"]["realised_potential"] == ends
        line = lines[row["submission_id"]]
        assert [line["realised_potential_low"], line["realised_potential_high"]] == [repr(end) for end in ends]
        assert [line["rank"], line["last_rank"]] == [str(row["rank"]), str(row["last_rank"])]


def test_csv_where_it_is_asked_for(board: Any, make_caps: Caps) -> None:
    board.publish(make_caps(200))
    by_header = board.reader.get(PATH, headers={"Accept": "text/csv"})
    assert by_header.headers["content-type"] == "text/csv; charset=utf-8"
    assert by_header.text == board.reader.get(f"{PATH}&format=csv").text
    assert by_header.headers["vary"].startswith("Accept")
    as_json = board.reader.get(f"{PATH}&format=json", headers={"Accept": "text/csv"})
    assert as_json.headers["content-type"] == "application/json"


@pytest.mark.parametrize("board_of", ["", "&model=beta", "&benchmark=math", "&model=beta&benchmark=math"])
def test_every_board_has_the_document_s_figures(board: Any, make_caps: Caps, board_of: str) -> None:
    submission_id = board.publish(make_caps(200))
    answer = board.reader.get(PATH + board_of).json()
    document = board.reader.get(f"/api/v1/submissions/{submission_id}/score").json()
    key = (answer["model"], answer["benchmark"])
    figures = next(b for b in document["boards"] if (b["model"], b["benchmark"]) == key)
    (row,) = answer["rows"]
    assert row["area"] == figures["area"]
    assert row["realised_potential"] == figures["realised_potential"]


def test_boards_that_do_not_exist(board: Any) -> None:
    for change, status, code in (
        ("&model=gamma", 404, "unknown_board"),
        ("&benchmark=chess", 404, "unknown_board"),
        ("&format=xml", 422, "invalid_request"),
    ):
        answer = board.reader.get(PATH + change)
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    for path, status, code in (
        ("snapshot=nowhere&strategy=fixed_budget", 404, "unknown_snapshot"),
        ("snapshot=small&strategy=guessing", 422, "invalid_request"),
        ("snapshot=small&split=dev&strategy=fixed_budget", 404, "unknown_board"),
        ("strategy=fixed_budget", 422, "invalid_request"),
    ):
        answer = board.reader.get(f"/api/v1/leaderboard?{path}")
        assert (answer.status_code, answer.json()["code"]) == (status, code)


def test_methods_by_name(board: Any, make_caps: Caps) -> None:
    path = "/api/v1/methods/caps%2Fv1"
    assert board.reader.get(path).json()["code"] == "unknown_method"
    submission_id = board.submit(make_caps(200), method="caps/v1", description="One cap for all.")
    assert board.reader.get(path).status_code == 404
    mine = board.me.get(path).json()
    assert [item["id"] for item in mine["submissions"]] == [submission_id]
    board.score(submission_id)
    board.me.post(f"/api/v1/submissions/{submission_id}/publish")
    shown = board.reader.get(path).json()
    assert shown["methods"][0]["description"] == "One cap for all."
    assert [item["id"] for item in shown["submissions"]] == [submission_id]
    assert board.reader.get(f"{path}?cursor=x").json()["code"] == "invalid_cursor"


def test_who_am_i(board: Any) -> None:
    assert board.me.get("/api/v1/me").json() == {
        "name": "local",
        "team": "local",
        "is_control": False,
        "role": "operator",
        "scopes": ["read", "submit", "organise", "operate"],
        "teams": [{"kind": "personal", "name": "local", "role": "owner"}],
    }


def test_lists_take_the_same_number_of_queries_whatever_their_length(board: Any, make_caps: Caps) -> None:
    paths = (PATH, "/api/v1/submissions", "/api/v1/snapshots", "/api/v1/methods/method")

    def measure() -> list[int]:
        counts = []
        for path in paths:
            with count_queries(board) as statements:
                assert board.me.get(path).status_code == 200
            counts.append(len(statements))
        return counts

    board.publish(make_caps(100))
    measure()
    one = measure()
    for cap in (200, 300, 400):
        board.publish(make_caps(cap))
    assert measure() == one
    assert max(one) <= 8
