"""Reading the audit log: filtered, page by page, and as CSV."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from app.db import models
from app.files.csv_fields import format_field
from app.services.paging import InvalidCursorError, read_cursor, write_cursor

MOST_NUMBER = 2**63 - 1
CSV_COLUMNS = ("id", "at", "actor", "action", "subject", "details")
CSV_ROWS_AT_ONCE = 1000


@dataclass(frozen=True)
class AuditFilter:
    """Which acts: by whom, of what kind, to what (a part of the subject), from when on and until when; None is all."""

    actor: str | None = None
    action: str | None = None
    subject: str | None = None
    since: datetime | None = None
    until: datetime | None = None


@dataclass(frozen=True)
class AuditEntry:
    """An act: who did what to what, when."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    details: dict[str, Any]


@dataclass(frozen=True)
class AuditPage:
    """Some acts, newest first, and the cursor of the next page."""

    items: tuple[AuditEntry, ...]
    next_cursor: str | None


def list_audit(session: Session, chosen: AuditFilter, *, limit: int = 50, cursor: str | None = None) -> AuditPage:
    """Return the acts of a filter, newest first."""
    table = models.AuditEvent
    query = _select(chosen)
    if cursor is not None:
        query = query.where(table.id < _read_number(cursor))
    items = [_read(row) for row in session.scalars(query.limit(limit + 1))]
    shown = tuple(items[:limit])
    return AuditPage(shown, write_cursor((str(shown[-1].id),)) if len(items) > limit else None)


def list_actions(session: Session) -> tuple[str, ...]:
    """Return the kinds of acts that the log has, by name."""
    action = models.AuditEvent.action
    return tuple(session.scalars(select(action).distinct().order_by(action)))


def format_audit_csv(session: Session, chosen: AuditFilter) -> Iterator[str]:
    """Yield the acts of a filter as CSV, newest first, a thousand rows at a time.

    Text that a spreadsheet would run as a formula is preceded by an apostrophe; the details are JSON.
    """
    yield _write_rows([CSV_COLUMNS])
    cursor: str | None = None
    while True:
        page = list_audit(session, chosen, limit=CSV_ROWS_AT_ONCE, cursor=cursor)
        yield _write_rows([[format_field(value) for value in _list_fields(entry)] for entry in page.items])
        cursor = page.next_cursor
        if cursor is None:
            return


def _select(chosen: AuditFilter) -> Select[models.AuditEvent]:
    table = models.AuditEvent
    query = select(table).order_by(table.id.desc())
    if chosen.actor is not None:
        query = query.where(table.actor == chosen.actor)
    if chosen.action is not None:
        query = query.where(table.action == chosen.action)
    if chosen.subject is not None:
        query = query.where(table.subject.contains(chosen.subject, autoescape=True))
    if chosen.since is not None:
        query = query.where(table.at >= chosen.since)
    if chosen.until is not None:
        query = query.where(table.at < chosen.until)
    return query


def _read_number(cursor: str) -> int:
    (number,) = read_cursor(cursor, n_parts=1)
    if not number.isascii() or not number.isdigit() or int(number) > MOST_NUMBER:
        raise InvalidCursorError("Use the `next_cursor` of the page before.")
    return int(number)


def _read(row: models.AuditEvent) -> AuditEntry:
    return AuditEntry(row.id, row.at, row.actor, row.action, row.subject, row.details)


def _list_fields(entry: AuditEntry) -> tuple[object, ...]:
    details = json.dumps(entry.details, ensure_ascii=False, sort_keys=True) if entry.details else None
    return entry.id, entry.at, entry.actor, entry.action, entry.subject, details


def _write_rows(rows: Any) -> str:
    written = io.StringIO()
    csv.writer(written, lineterminator="\r\n").writerows(rows)
    return written.getvalue()
