"""The board's state in its address: written short, read back the same, and every wrong part named."""

from __future__ import annotations

from datetime import date
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from app.evaluator.strategies import Strategy
from app.services.board_views import Baselines
from app.web.board_query import DEFAULT_COLUMNS, BoardQuery, By, InvalidViewError, parse_board_query

FULL = BoardQuery(
    snapshot="s & t",
    split="test",
    strategy=Strategy.FIXED_BUDGET,
    model="a/b",
    benchmark="=x",
    axis="log",
    by=By.MODEL,
    lines="frontier",
    intervals=True,
    columns=("gap", "best_e3"),
    sort="-area",
    q="ä+b&c",
    verified=True,
    code=True,
    baselines=Baselines.ONLY,
    since=date(2026, 1, 2),
    until=date(2026, 3, 4),
    pin=("abc", "def"),
    open=("abc",),
    page=3,
    rows="all",
    scorer_version="2",
)


def _read(address: str) -> BoardQuery:
    return parse_board_query(parse_qs(urlsplit(address).query))


def test_every_part_of_a_view_stands_in_its_address() -> None:
    assert all(getattr(FULL, name) != getattr(BoardQuery(), name) for name in vars(FULL))
    assert _read(FULL.address()) == FULL


def test_what_is_as_usual_is_left_out() -> None:
    assert BoardQuery().address() == "/?strategy=dynamic_early_exit"
    assert BoardQuery("s", pin=("a", "b")).address("/x") == "/x?snapshot=s&strategy=dynamic_early_exit&pin=a,b"
    assert FULL.address(**vars(BoardQuery())) == BoardQuery().address()


def test_forms_send_empty_fields_and_one_parameter_several_times() -> None:
    read = parse_board_query(
        {"snapshot": [""], "pin": ["a", "b,c", "a"], "columns": ["best_e3", "area"], "q": ["x", "y"], "utm": ["1"]}
    )
    assert read == BoardQuery(pin=("a", "b", "c"), columns=("area", "best_e3"), q="y")
    assert parse_board_query({"columns": [""]}).columns == DEFAULT_COLUMNS


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("strategy", "guessing", "is not one of dynamic_routing"),
        ("axis", "round", "linear, log"),
        ("columns", "area,height", "'height' is not one of"),
        ("sort", "luck", "'luck' is not one of rank"),
        ("since", "yesterday", "is not a day, as in 2026-07-21"),
        ("page", "0", "is not the number of a page"),
        ("page", "1" * 40, "is not the number of a page"),
        ("page", "-1", "is not the number of a page"),
        ("verified", "maybe", "is not one of 0, 1"),
        ("pin", "a,b,c,d,e,f,g", "at most 6"),
        ("snapshot", "a\x00b", "cannot be shown"),
        ("q", "x" * 201, "at most 200"),
        ("open", "a\nb", "cannot be shown"),
    ],
)
def test_values_that_mean_nothing_are_named(name: str, value: str, said: str) -> None:
    with pytest.raises(InvalidViewError) as caught:
        parse_board_query({name: [value]})
    assert said in caught.value.detail
    assert [problem.column for problem in caught.value.problems] == [name]


def test_all_that_is_wrong_is_told_at_once() -> None:
    wrong: dict[str, Any] = {"axis": ["round"], "page": ["x"], "sort": ["luck"]}
    with pytest.raises(InvalidViewError) as caught:
        parse_board_query(wrong)
    assert [problem.column for problem in caught.value.problems] == ["axis", "sort", "page"]
