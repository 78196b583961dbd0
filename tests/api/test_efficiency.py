"""Efficiency results over REST: JSON, CSV, filters, pages, errors, the number of queries."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest
from sqlalchemy import func, select

from app.api.efficiency import EfficiencyResultPageOut, EfficiencySetsOut
from app.db import models
from tests.api.test_board import count_queries

PATH = "/api/v1/efficiency-results"


def test_json_and_csv_agree_to_the_digit(shared_board: Any) -> None:
    page = shared_board.reader.get(PATH, params={"limit": 200}).json()
    assert len(EfficiencyResultPageOut.model_validate(page).items) == page["n_total"] == 160
    lines = list(csv.DictReader(io.StringIO(shared_board.reader.get(f"{PATH}?format=csv").text)))
    assert len(lines) == 160
    for item, line in zip(page["items"], lines, strict=True):
        assert set(item) == set(line)
        for name, value in item.items():
            told = line[name]
            if isinstance(value, bool):
                assert told == str(value).lower(), name
            elif isinstance(value, int | float):
                assert float(told) == value, name
            else:
                assert told == (value or ""), name


def test_csv_where_it_is_asked_for(shared_board: Any) -> None:
    by_header = shared_board.reader.get(PATH, headers={"Accept": "text/csv"})
    assert by_header.headers["content-type"] == "text/csv; charset=utf-8"
    assert 'filename="efficiency-results.csv"' in by_header.headers["content-disposition"]
    assert by_header.text == shared_board.reader.get(f"{PATH}?format=csv").text


def test_filters_and_order(shared_board: Any) -> None:
    asked = {"benchmark": "GSM8K", "backbone": "Qwen2.5-7B-Instruct", "sort": "e3", "order": "descending"}
    found = shared_board.reader.get(PATH, params=asked).json()["items"]
    assert [item["method"] for item in found] == [
        "Soft Thinking",
        "CoT",
        "TokenSkip",
        "O1-Pruner",
        "SoT",
        "SloT",
        "CoD",
    ]
    assert {item["base_tokens"] for item in found} == {292.86}
    (one,) = shared_board.reader.get(PATH, params={**asked, "paradigm": "post_hoc_refinement"}).json()["items"]
    assert (one["method"], one["e3_printed"], one["agrees"]) == ("TokenSkip", 0.84, True)
    assert shared_board.reader.get(PATH, params={"set": "none"}).json() == {
        "items": [],
        "n_total": 0,
        "next_cursor": None,
    }


def test_pages(shared_board: Any) -> None:
    first = shared_board.reader.get(PATH, params={"limit": 100}).json()
    second = shared_board.reader.get(PATH, params={"limit": 100, "cursor": first["next_cursor"]}).json()
    assert (len(second["items"]), second["next_cursor"]) == (60, None)
    assert shared_board.reader.get(PATH, params={"limit": 200}).json()["items"] == first["items"] + second["items"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ("cursor=abc", "invalid_cursor"),
        ("limit=0", "invalid_request"),
        ("sort=colour", "invalid_request"),
        ("order=up", "invalid_request"),
        ("paradigm=magic", "invalid_request"),
        ("format=xml", "invalid_request"),
    ],
)
def test_what_cannot_be_asked(shared_board: Any, asked: str, code: str) -> None:
    answer = shared_board.reader.get(f"{PATH}?{asked}")
    assert (answer.status_code, answer.json()["code"]) == (422, code)


def test_sets(shared_board: Any) -> None:
    answer = shared_board.reader.get(f"{PATH}/sets").json()
    (found,) = EfficiencySetsOut.model_validate(answer).items
    assert (found.name, found.is_shipped, found.source.url) == (
        "effireason-bench",
        True,
        "https://arxiv.org/abs/2511.10201",
    )


def test_queries_do_not_grow_with_the_list(shared_board: Any) -> None:
    counts = []
    for limit in (1, 200):
        with count_queries(shared_board) as statements:
            shared_board.reader.get(PATH, params={"limit": limit})
        counts.append(len(statements))
    assert counts == [2, 2]


FIELDS = {"name": "ours", "title": "Ours", "citation": "Us, 2026.", "license_note": "Ours to give."}
GOOD = (
    b"benchmark,paradigm,method,backbone,accuracy,tokens,e3\n"
    b"sums,reference,CoT,tiny,0.5,100,\nsums,other,terse,tiny,0.5,50,1.33\n"
)


def add(board: Any, content: bytes = GOOD, *, client: Any = None, **fields: str) -> Any:
    files = {"file": ("results.csv", content)}
    return (client or board.me).post(PATH, data={**FIELDS, **fields}, files=files)


def count_sets(board: Any) -> int:
    return len(board.reader.get(f"{PATH}/sets").json()["items"])


def test_an_organiser_adds_a_set_and_removes_it(board: Any) -> None:
    answer = add(board, url="https://example.org/paper")
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == "/api/v1/efficiency-results?set=ours"
    found = answer.json()
    assert (found["n_results"], found["is_shipped"], found["added_by"]) == (2, False, "local")
    items = board.reader.get(answer.headers["location"]).json()["items"]
    assert [(item["method"], item["agrees"], item["url"]) for item in items] == [
        ("CoT", None, "https://example.org/paper"),
        ("terse", True, "https://example.org/paper"),
    ]
    assert board.reader.get(PATH).json()["n_total"] == 162
    assert board.me.delete(f"{PATH}/sets/ours").status_code == 204
    assert board.reader.get(PATH).json()["n_total"] == 160
    with board.sessions.begin() as session:
        events = session.scalars(select(models.AuditEvent).order_by(models.AuditEvent.id)).all()
        acts = [(event.actor, event.action, event.subject, event.details["n_results"]) for event in events]
    assert acts == [("local", "add_efficiency_set", "set ours", 2), ("local", "remove_efficiency_set", "set ours", 2)]


def test_the_same_content_again_is_the_set_that_exists(board: Any) -> None:
    first = add(board)
    again = add(board, GOOD.replace(b"\n", b"\r\n"))
    assert (again.status_code, again.json()) == (200, first.json())
    for change, content in (({"name": "other"}, GOOD), ({"title": "Else"}, GOOD), ({}, GOOD.replace(b"50", b"51"))):
        answer = add(board, content, **change)
        assert (answer.status_code, answer.json()["code"]) == (409, "efficiency_set_exists")
    assert count_sets(board) == 2
    with board.sessions.begin() as session:
        assert session.scalar(select(func.count()).select_from(models.AuditEvent)) == 1


def test_problems_of_fields_and_file_are_told_at_once(board: Any) -> None:
    body = GOOD + b"sums,other,terse,tiny,2,x,\n"
    answer = add(board, body, name="No Slug", citation=" ", url="javascript:alert(1)", colour="red")
    assert (answer.status_code, answer.json()["code"]) == (422, "invalid_efficiency_results")
    found = [(problem["code"], problem["row"], problem["column"]) for problem in answer.json()["problems"]]
    assert found == [
        ("unknown_field", None, "colour"),
        ("bad_field", None, "name"),
        ("missing_field", None, "citation"),
        ("bad_field", None, "url"),
        ("accuracy_out_of_range", 4, "accuracy"),
        ("not_a_number", 4, "tokens"),
    ]
    assert count_sets(board) == 1
    assert list((board.config.data_dir / "uploads").glob("[0-9a-f][0-9a-f]/*")) == []


def test_what_is_refused(board: Any) -> None:
    for answer, status, code in (
        (add(board, client=board.reader), 401, "not_signed_in"),
        (add(board, client=board.stranger), 403, "forbidden"),
        (board.me.post(PATH, data=FIELDS), 400, "broken_upload"),
        (board.me.post(PATH, data=FIELDS, files={"other": ("x.csv", GOOD)}), 422, "missing_file"),
        (add(board, b"x" * 1_000_001), 413, "upload_too_large"),
        (board.me.delete(f"{PATH}/sets/nowhere"), 404, "unknown_efficiency_set"),
        (board.me.delete(f"{PATH}/sets/effireason-bench"), 409, "shipped_efficiency_set"),
        (board.stranger.delete(f"{PATH}/sets/effireason-bench"), 403, "forbidden"),
        (board.reader.delete(f"{PATH}/sets/effireason-bench"), 401, "not_signed_in"),
    ):
        assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert count_sets(board) == 1
