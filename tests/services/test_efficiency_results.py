"""Efficiency results in the database: what is shipped, filters, order, pages."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import func, insert, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db import models
from app.files.efficiency_results import Paradigm, ResultSource, list_shipped_sets, parse_results
from app.services import efficiency_sets as service
from app.services.accounts import Identity
from app.services.efficiency_results import (
    ResultFilter,
    ResultOrder,
    ResultSort,
    list_choices,
    list_results,
)
from app.services.efficiency_sets import insert_set, list_sets, store_shipped_sets
from app.services.paging import InvalidCursorError

SOURCE = ResultSource("Ours", "Ours, 2026.", None, "Ours to give.")
ROWS = parse_results(
    b"benchmark,paradigm,method,backbone,accuracy,tokens,e3\n"
    b"sums,reference,CoT,tiny,1,100,\nsums,other,a,tiny,0.5,50,\nsums,other,b,tiny,0.25,50,\n"
)


def count(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(models.EfficiencyResult)) or 0


def test_shipped_sets_are_stored_once(session: Session) -> None:
    store_shipped_sets(session)
    ids = session.scalars(select(models.EfficiencySet.id)).all()
    store_shipped_sets(session)
    assert session.scalars(select(models.EfficiencySet.id)).all() == ids
    assert count(session) == 160
    (found,) = list_sets(session)
    assert (found.name, found.n_results, found.is_shipped, found.added_by) == ("effireason-bench", 160, True, None)


def test_a_new_version_replaces_shipped_figures_and_sources(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    store_shipped_sets(session)
    (shipped,) = list_shipped_sets()
    newer = replace(shipped, rows=shipped.rows[:6], source=replace(shipped.source, title="Corrected"))
    for current, n_results in ((replace(shipped, source=newer.source), 160), (newer, 6)):
        monkeypatch.setattr(service, "list_shipped_sets", lambda current=current: (current,))
        store_shipped_sets(session)
        session.expire_all()
        assert [(found.source.title, found.n_results) for found in list_sets(session)] == [("Corrected", n_results)]
        assert count(session) == n_results


def test_organisers_sets_stay_as_they_are(session: Session, author: Identity) -> None:
    insert_set(session, name="effireason-bench", source=SOURCE, rows=ROWS, account_id=author.id)
    store_shipped_sets(session)
    assert [(found.name, found.n_results, found.added_by) for found in list_sets(session)] == [
        ("effireason-bench", 3, "ada")
    ]


def test_filters(session: Session, author: Identity) -> None:
    store_shipped_sets(session)
    insert_set(session, name="ours", source=SOURCE, rows=ROWS, account_id=author.id)
    for wanted, expected in (
        (ResultFilter(), 163),
        (ResultFilter(set_name="ours"), 3),
        (ResultFilter(paradigm=Paradigm.POST_HOC_REFINEMENT), 24),
        (ResultFilter(method="CoD", benchmark="LogiQA"), 6),
        (ResultFilter(backbone="tiny", set_name="effireason-bench"), 0),
    ):
        page = list_results(session, wanted, limit=1)
        assert page.n_total == expected
        assert len(page.items) == min(expected, 1)
    choices = list_choices(session)
    assert choices.benchmarks == ("GSM8K", "MATH500", "CommonsenseQA", "LogiQA", "sums")
    assert choices.paradigms == tuple(Paradigm)


@pytest.mark.parametrize("sort", list(ResultSort))
@pytest.mark.parametrize("is_descending", [False, True])
def test_pages_put_together_are_the_whole_list(
    session: Session, author: Identity, sort: ResultSort, is_descending: bool
) -> None:
    """n/a ranked first (codabench#1284): what has no value comes last in both directions, ties as in the source."""
    store_shipped_sets(session)
    insert_set(session, name="ours", source=SOURCE, rows=ROWS, account_id=author.id)
    order = ResultOrder(sort, is_descending=is_descending)
    whole = list_results(session, ResultFilter(), order=order, limit=None)
    assert (whole.next_cursor, len(whole.items)) == (None, 163)
    paged, cursor = [], None
    while True:
        page = list_results(session, ResultFilter(), order=order, limit=23, cursor=cursor)
        paged += page.items
        cursor = page.next_cursor
        if cursor is None:
            break
    assert tuple(paged) == whole.items
    if sort in (ResultSort.E3, ResultSort.E3_PRINTED, ResultSort.ACCURACY, ResultSort.TOKENS):
        values = [getattr(item, sort.value) for item in whole.items]
        known = [value for value in values if value is not None]
        assert known == sorted(known, reverse=is_descending)
        assert values[: len(known)] == known


def test_a_cursor_of_another_order_is_refused(session: Session) -> None:
    store_shipped_sets(session)
    cursor = list_results(session, ResultFilter(), limit=5).next_cursor
    for order in (ResultOrder(ResultSort.E3), ResultOrder(is_descending=True)):
        with pytest.raises(InvalidCursorError):
            list_results(session, ResultFilter(), order=order, limit=5, cursor=cursor)


SET = {
    "name": "s",
    "title": "t",
    "citation": "c",
    "url": None,
    "license_note": "l",
    "sha256": "a" * 64,
    "n_results": 1,
    "is_shipped": True,
    "account_id": None,
}
RESULT = {
    "idx": 0,
    "benchmark": "b",
    "paradigm": "other",
    "method": "m",
    "backbone": "x",
    "accuracy": 0.5,
    "tokens": 5.0,
    "base_accuracy": 0.5,
    "base_tokens": 5.0,
    "e3": 1.0,
    "e3_reason": None,
    "e3_printed": None,
    "e3_digits": None,
    "agrees": None,
}


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ({"name": "No Slug"}, "name"),
        ({"name": "s" * 65}, "name"),
        ({"citation": ""}, "source"),
        ({"url": "javascript:alert(1)"}, "url"),
        ({"n_results": 0}, "n_results"),
        ({"is_shipped": False}, "account"),
        ({"sha256": "A" * 64}, "sha256"),
    ],
)
def test_impossible_sets(session: Session, values: dict[str, object], constraint: str) -> None:
    with pytest.raises(IntegrityError, match=f"ck_efficiency_sets_{constraint}"), session.begin_nested():
        session.execute(insert(models.EfficiencySet).values({**SET, **values}))


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ({"paradigm": "magic"}, "ck_efficiency_results_paradigm"),
        ({"method": ""}, "ck_efficiency_results_names"),
        ({"idx": -1}, "ck_efficiency_results_idx"),
        ({"accuracy": float("nan")}, "ck_efficiency_results_accuracy"),
        ({"base_accuracy": 1.5}, "ck_efficiency_results_base_accuracy"),
        ({"tokens": float("nan")}, "ck_efficiency_results_tokens"),
        ({"base_tokens": float("inf")}, "ck_efficiency_results_base_tokens"),
        ({"e3": -1.0}, "ck_efficiency_results_e3"),
        ({"e3": None}, "ck_efficiency_results_e3_reason"),
        ({"e3_printed": float("nan"), "e3_digits": 2, "agrees": False}, "ck_efficiency_results_e3_printed"),
        ({"e3_digits": 2}, "ck_efficiency_results_e3_digits"),
        ({"agrees": True}, "ck_efficiency_results_agrees"),
    ],
)
def test_impossible_results(session: Session, values: dict[str, object], constraint: str) -> None:
    set_id = session.scalar(insert(models.EfficiencySet).values(SET).returning(models.EfficiencySet.id))
    with pytest.raises(IntegrityError) as refused, session.begin_nested():
        session.execute(insert(models.EfficiencyResult).values({**RESULT, "set_id": set_id, **values}))
    assert refused.value.orig is not None
    assert refused.value.orig.diag.constraint_name == constraint  # type: ignore[attr-defined]


def test_names_in_the_tables_are_those_of_the_files() -> None:
    assert tuple(paradigm.value for paradigm in Paradigm) == models.PARADIGM_NAMES
