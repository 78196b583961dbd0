"""Parts and orders of a board: which rows are shown, and that no rank is touched."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from app.evaluator.strategies import Strategy
from app.services.board_views import SORT_KEYS, SORTS, Baselines, RowChoice, choose_rows
from app.services.leaderboard import BoardRow, Leaderboard
from tests.services.test_leaderboard import ROW


def _row(method: str, potential: float | None, **changes: Any) -> BoardRow:
    return replace(ROW, method=method, submission_id=method, realised_potential=potential, **changes)


ROWS = (
    _row("oracle", 1.0, is_control=True, area=0.9, gap=0.0),
    _row("Brake", 0.5, rank=1, last_rank=2, is_verified=True, area=0.6, best_e3=1.2, team="zeta"),
    _row("ship", 0.4, rank=1, last_rank=2, code_url="https://example.org", area=0.7, team="Alpha"),
    _row(
        "old",
        0.1,
        rank=3,
        last_rank=3,
        is_baseline=True,
        area=0.7,
        published_at=datetime(2025, 1, 31, 23, 30, tzinfo=UTC),
    ),
    _row("none", None, rank_reason="no_potential", area=0.5),
)
BOARD = Leaderboard("s", "0" * 64, "measured", "test", Strategy.FIXED_BUDGET, None, None, "1", False, ROWS)


def _choose(**choice: Any) -> list[str]:
    return [row.method for row in choose_rows(BOARD, RowChoice(**choice)).rows]


@pytest.mark.parametrize(
    ("choice", "shown"),
    [
        ({}, ["oracle", "Brake", "ship", "old", "none"]),
        ({"search": "bRA"}, ["Brake"]),
        ({"search": "ALPHA"}, ["ship"]),
        ({"search": "%"}, []),
        ({"verified": True}, ["Brake"]),
        ({"open_code": True}, ["ship"]),
        ({"baselines": Baselines.HIDDEN}, ["Brake", "ship", "none"]),
        ({"baselines": Baselines.ONLY}, ["oracle", "old"]),
        ({"until": date(2025, 1, 31)}, ["old"]),
        ({"since": date(2025, 2, 1)}, ["oracle", "Brake", "ship", "none"]),
        ({"since": date(2025, 1, 31), "until": date(2025, 1, 31)}, ["old"]),
    ],
)
def test_a_choice_of_rows(choice: dict[str, Any], shown: list[str]) -> None:
    assert _choose(**choice) == shown


@pytest.mark.parametrize(
    ("sort", "shown"),
    [
        ("rank", ["oracle", "Brake", "ship", "old", "none"]),
        ("-rank", ["none", "old", "ship", "Brake", "oracle"]),
        # Equal areas keep the board's order either way.
        ("area", ["oracle", "ship", "old", "Brake", "none"]),
        ("-area", ["none", "Brake", "ship", "old", "oracle"]),
        ("method", ["Brake", "none", "old", "oracle", "ship"]),
        # What is undefined comes last either way: n/a was once ranked first (codabench#1284).
        ("realised_potential", ["oracle", "Brake", "ship", "old", "none"]),
        ("-realised_potential", ["old", "ship", "Brake", "oracle", "none"]),
        ("best_e3", ["Brake", "oracle", "ship", "old", "none"]),
    ],
)
def test_an_order(sort: str, shown: list[str]) -> None:
    assert _choose(sort=sort) == shown


@pytest.mark.parametrize("sort", SORTS)
def test_no_order_and_no_choice_changes_a_row(sort: str) -> None:
    by_id = {row.submission_id: row for row in ROWS}
    found = choose_rows(BOARD, RowChoice(sort=sort)).rows
    assert len(found) == len(ROWS)
    assert all(row == by_id[row.submission_id] for row in found)


def test_rows_can_be_sorted_by_what_they_have() -> None:
    assert all(hasattr(ROW, name) for name in SORT_KEYS)
