"""Efficiency results over REST: JSON, CSV, filters, pages, errors, the number of queries."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from app.api.efficiency import EfficiencyResultPageOut, EfficiencySetsOut
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
