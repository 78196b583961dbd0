"""Efficiency results as lists: filtered, sorted, in pages, as CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from app.db import models
from app.files.csv_fields import format_field
from app.files.efficiency_results import Paradigm
from app.services.paging import InvalidCursorError, read_cursor, write_cursor

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
class ResultChoices:
    """What the results can be filtered by: every value that occurs, in the order of its first source."""

    benchmarks: tuple[str, ...]
    backbones: tuple[str, ...]
    paradigms: tuple[Paradigm, ...]
    methods: tuple[str, ...]


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
