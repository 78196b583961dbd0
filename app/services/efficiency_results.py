"""Efficiency results in the database: the sets that are shipped, filtered and sorted lists, CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, insert, or_, select, text
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.db import models
from app.files.csv_fields import format_field
from app.files.efficiency_results import (
    EfficiencyRow,
    Paradigm,
    ResultSource,
    compare_rows,
    hash_rows,
    list_shipped_sets,
)
from app.services.paging import InvalidCursorError, read_cursor, write_cursor

# Any number, the same for everyone who stores shipped sets: servers that start at once do it one after the other.
SHIPPED_LOCK = 7_207_260_722

SortKey = InstrumentedAttribute[Any]


class ResultSort(StrEnum):
    """What a list of results is sorted by; `source` is the order of the sets' names and of the rows in them."""

    SOURCE = "source"
    BENCHMARK = "benchmark"
    BACKBONE = "backbone"
    PARADIGM = "paradigm"
    METHOD = "method"
    ACCURACY = "accuracy"
    TOKENS = "tokens"
    E3 = "e3"
    E3_PRINTED = "e3_printed"


TEXT_SORTS = frozenset(
    {ResultSort.SOURCE, ResultSort.BENCHMARK, ResultSort.BACKBONE, ResultSort.PARADIGM, ResultSort.METHOD}
)


@dataclass(frozen=True)
class ResultFilter:
    """Which results are asked for; None is all."""

    set_name: str | None = None
    paradigm: Paradigm | None = None
    method: str | None = None
    backbone: str | None = None
    benchmark: str | None = None


@dataclass(frozen=True)
class ResultOrder:
    """How results are sorted; those without a value come last either way, ties in the order of their source."""

    sort: ResultSort = ResultSort.SOURCE
    is_descending: bool = False


@dataclass(frozen=True)
class ListedResult:
    """A result as pages, REST and CSV show it.

    Attributes
    ----------
    set : the name of the set it belongs to.
    tokens_share : tokens / base_tokens; None where the reference has none.
    e3 : computed; None with `e3_reason`. e3_printed : as its source prints it, to `e3_digits` decimals.
    agrees : whether the computed score rounds to the printed one; None where one is missing.
    """

    set: str
    benchmark: str
    paradigm: Paradigm
    method: str
    backbone: str
    accuracy: float
    tokens: float
    base_accuracy: float
    base_tokens: float
    tokens_share: float | None
    e3: float | None
    e3_reason: str | None
    e3_printed: float | None
    e3_digits: int | None
    agrees: bool | None
    citation: str
    url: str | None
    license_note: str


CSV_COLUMNS = tuple(field.name for field in fields(ListedResult))
FROM_ELSEWHERE = frozenset({"set", "tokens_share", "citation", "url", "license_note"})


@dataclass(frozen=True)
class ResultPage:
    """Some results, how many there are in all, and the cursor of the next page."""

    items: tuple[ListedResult, ...]
    n_total: int
    next_cursor: str | None


@dataclass(frozen=True)
class ListedSet:
    """A set with its source; `added_by` is None for one that is shipped."""

    name: str
    source: ResultSource
    sha256: str
    n_results: int
    is_shipped: bool
    added_by: str | None
    created_at: datetime


@dataclass(frozen=True)
class ResultChoices:
    """What the results can be filtered by: every value that occurs, in the order of its first source."""

    benchmarks: tuple[str, ...]
    backbones: tuple[str, ...]
    paradigms: tuple[Paradigm, ...]
    methods: tuple[str, ...]


def store_shipped_sets(session: Session) -> None:
    """Store the sets that come with the program; those of an earlier version that differ are replaced.

    Sets that organisers added stay as they are; where one has a shipped set's name or figures, it keeps its place.
    """
    session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": SHIPPED_LOCK})
    known = {row.name: row for row in session.scalars(select(models.EfficiencySet))}
    hashes = {row.sha256 for row in known.values() if not row.is_shipped}
    for shipped in list_shipped_sets():
        found, sha256 = known.get(shipped.name), hash_rows(shipped.rows)
        if sha256 in hashes or (found is not None and not found.is_shipped):
            continue
        if found is not None and found.sha256 == sha256:
            _write_source(found, shipped.source)
            continue
        if found is not None:
            session.delete(found)
            session.flush()
        insert_set(session, name=shipped.name, source=shipped.source, rows=shipped.rows, account_id=None)
    session.flush()


def insert_set(
    session: Session, *, name: str, source: ResultSource, rows: tuple[EfficiencyRow, ...], account_id: int | None
) -> models.EfficiencySet:
    """Store a set and its results, each with the score computed; None for an account means that it is shipped."""
    stored = models.EfficiencySet(
        name=name,
        sha256=hash_rows(rows),
        n_results=len(rows),
        is_shipped=account_id is None,
        account_id=account_id,
        **vars(source),
    )
    session.add(stored)
    session.flush()
    values = [
        {
            "set_id": stored.id,
            "idx": idx,
            **{name: value for name, value in vars(result.row).items() if name != "paradigm"},
            "paradigm": result.row.paradigm.value,
            **{name: value for name, value in vars(result).items() if name != "row"},
        }
        for idx, result in enumerate(compare_rows(rows))
    ]
    session.execute(insert(models.EfficiencyResult), values)
    return stored


def list_results(
    session: Session,
    wanted: ResultFilter,
    *,
    order: ResultOrder | None = None,
    limit: int | None = 50,
    cursor: str | None = None,
) -> ResultPage:
    """Return results that meet a filter, sorted: two queries. Without a limit, all of them."""
    order = order or ResultOrder()
    key = _sort_key(order.sort)
    query = _select_results(wanted, key)
    total = session.scalar(select(func.count()).select_from(query.order_by(None).subquery())) or 0
    row = models.EfficiencyResult
    ascending = (key.desc() if order.is_descending else key.asc()).nulls_last()
    query = query.order_by(ascending, models.EfficiencySet.name, row.idx)
    if cursor is not None:
        query = query.where(_continue_after(cursor, key, order))
    if limit is not None:
        query = query.limit(limit + 1)
    found = session.execute(query).all()
    shown = found if limit is None else found[:limit]
    more = len(found) > len(shown)
    return ResultPage(
        items=tuple(_read(*line[:2]) for line in shown),
        n_total=total,
        next_cursor=_write_cursor(shown[-1], order) if more else None,
    )


def list_sets(session: Session) -> tuple[ListedSet, ...]:
    """Return every set by name: one query."""
    row, account = models.EfficiencySet, models.Account
    query = select(row, account.name).outerjoin(account, account.id == row.account_id).order_by(row.name)
    return tuple(show_set(found, added_by=name) for found, name in session.execute(query))


def show_set(row: models.EfficiencySet, *, added_by: str | None) -> ListedSet:
    """Return a stored set as lists show it."""
    source = ResultSource(row.title, row.citation, row.url, row.license_note)
    return ListedSet(row.name, source, row.sha256, row.n_results, row.is_shipped, added_by, row.created_at)


def list_choices(session: Session) -> ResultChoices:
    """Return what the results can be filtered by: one query."""
    row = models.EfficiencyResult
    query = (
        select(row.benchmark, row.backbone, row.paradigm, row.method)
        .join(models.EfficiencySet)
        .order_by(models.EfficiencySet.name, row.idx)
    )
    columns = [dict.fromkeys(column) for column in zip(*session.execute(query).all(), strict=True)] or [{}] * 4
    benchmarks, backbones, paradigms, methods = (tuple(column) for column in columns)
    shown = tuple(paradigm for paradigm in Paradigm if paradigm.value in paradigms)
    return ResultChoices(benchmarks, backbones, shown, methods)


def format_results_csv(page: ResultPage) -> str:
    """Return results as CSV: the digits of the JSON, an empty field for an undefined value."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    writer.writerow(CSV_COLUMNS)
    writer.writerows([format_field(getattr(item, name)) for name in CSV_COLUMNS] for item in page.items)
    return written.getvalue()


def _write_source(row: models.EfficiencySet, source: ResultSource) -> None:
    for name, value in vars(source).items():
        setattr(row, name, value)


def _sort_key(sort: ResultSort) -> SortKey:
    if sort is ResultSort.SOURCE:
        return models.EfficiencySet.name
    key: SortKey = getattr(models.EfficiencyResult, sort.value)
    return key


def _select_results(wanted: ResultFilter, key: SortKey) -> Select[models.EfficiencyResult, models.EfficiencySet, Any]:
    row, owner = models.EfficiencyResult, models.EfficiencySet
    query = select(row, owner, key).join(owner, owner.id == row.set_id)
    for name in ("paradigm", "method", "backbone", "benchmark"):
        if (value := getattr(wanted, name)) is not None:
            query = query.where(getattr(row, name) == str(value))
    return query if wanted.set_name is None else query.where(owner.name == wanted.set_name)


def _continue_after(cursor: str, key: SortKey, order: ResultOrder) -> ColumnElement[bool]:
    """Return the condition that a row comes after the one whose place is in the cursor, which is of the same order."""
    direction, kind, value, name, idx = read_cursor(cursor, n_parts=5)
    if direction != _name_order(order) or not idx.isdecimal():
        raise InvalidCursorError("Use the `next_cursor` of the page before, with the same `sort` and `order`.")
    owner, row = models.EfficiencySet, models.EfficiencyResult
    tied = or_(owner.name > name, and_(owner.name == name, row.idx > int(idx)))
    if kind == "null":
        return and_(key.is_(None), tied)
    last = value if order.sort in TEXT_SORTS else _read_number(value)
    beyond = key < last if order.is_descending else key > last
    return or_(beyond, key.is_(None), and_(key == last, tied))


def _write_cursor(line: Any, order: ResultOrder) -> str:
    row, owner, value = line
    return write_cursor(
        (_name_order(order), "null" if value is None else "value", str(value), owner.name, str(row.idx))
    )


def _name_order(order: ResultOrder) -> str:
    return f"{order.sort} {'descending' if order.is_descending else 'ascending'}"


def _read_number(text: str) -> float:
    try:
        return float(text)
    except ValueError as exc:
        raise InvalidCursorError("Use the `next_cursor` of the page before.") from exc


def _read(row: models.EfficiencyResult, owner: models.EfficiencySet) -> ListedResult:
    own = {column: getattr(row, column) for column in CSV_COLUMNS if column not in FROM_ELSEWHERE}
    return ListedResult(
        **{**own, "paradigm": Paradigm(row.paradigm)},
        set=owner.name,
        tokens_share=row.tokens / row.base_tokens if row.base_tokens else None,
        citation=owner.citation,
        url=owner.url,
        license_note=owner.license_note,
    )
