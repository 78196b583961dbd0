"""Sets of efficiency results: those that are shipped, and those that organisers add and remove."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, select, text
from sqlalchemy.orm import Session

from app.db import models
from app.errors import NotFoundError, Problem, StateError
from app.files.efficiency_results import (
    EfficiencyRow,
    InvalidEfficiencyResultsError,
    ResultSource,
    compare_rows,
    hash_rows,
    list_shipped_sets,
    parse_results,
)
from app.services.accounts import Identity
from app.services.audit import record_audit

# Any number, the same for everyone who stores shipped sets: servers that start at once do it one after the other.
SHIPPED_LOCK = 7_207_260_722

SET_NAME = re.compile("[a-z0-9][a-z0-9._-]{0,63}")
URL = re.compile(r"https?://[^\s\x00-\x1f]+")
FIELD_LIMITS = {"title": 200, "citation": 1000, "url": 500, "license_note": 500}
OPTIONAL_FIELDS = frozenset({"url"})
MAX_FILE_BYTES = 4 * 2**20


class UnknownEfficiencySetError(NotFoundError):
    """No set of efficiency results has this name."""

    code = "unknown_efficiency_set"
    title = "No such set of results"


class EfficiencySetExistsError(StateError):
    """Another set has the name, or the figures, of one that is to be added."""

    code = "efficiency_set_exists"
    title = "The set exists already"


class ShippedEfficiencySetError(StateError):
    """A set that comes with the program cannot be removed: the next start would store it again."""

    code = "shipped_efficiency_set"
    title = "The set comes with the program"


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
class AddedSet:
    """A set that was sent, and whether it is new: the same content again is the set that exists."""

    set: ListedSet
    created: bool


@dataclass(frozen=True)
class SetDescription:
    """What a set is called and where it comes from."""

    name: str
    source: ResultSource


def add_set(session: Session, fields: Mapping[str, str], content: bytes, *, organiser: Identity) -> AddedSet:
    """Store a set from the fields `name`, `title`, `citation`, `license_note`, `url` and a CSV file: all or nothing.

    The same fields and figures again change nothing.

    Raises
    ------
    InvalidEfficiencyResultsError : with every fault of the fields and of the file.
    EfficiencySetExistsError : the name stands for other results, or the figures stand under another name or source.
    """
    session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": SHIPPED_LOCK})
    described, rows = _read_set(fields, content)
    row = models.EfficiencySet
    query = select(row).where((row.name == described.name) | (row.sha256 == hash_rows(rows)))
    for found in session.scalars(query):
        shown = show_set(found, added_by=_name_account(session, found.account_id))
        if found.sha256 != hash_rows(rows):
            raise EfficiencySetExistsError(f"The set {found.name} holds other results; choose another name.")
        if (found.name, shown.source) != (described.name, described.source):
            raise EfficiencySetExistsError(f"The same figures are the set {found.name} already.")
        return AddedSet(shown, created=False)
    stored = insert_set(session, name=described.name, source=described.source, rows=rows, account_id=organiser.id)
    details = {"sha256": stored.sha256, "n_results": stored.n_results}
    record_audit(
        session, actor=organiser.name, action="add_efficiency_set", subject=f"set {stored.name}", details=details
    )
    session.refresh(stored)
    return AddedSet(show_set(stored, added_by=organiser.name), created=True)


def remove_set(session: Session, name: str, *, organiser: Identity) -> None:
    """Remove a set that an organiser added, with its results."""
    found = session.scalar(select(models.EfficiencySet).where(models.EfficiencySet.name == name).with_for_update())
    if found is None:
        raise UnknownEfficiencySetError(f"There is no set {name!r}.")
    if found.is_shipped:
        raise ShippedEfficiencySetError(f"The set {name} comes with the program and stays.")
    details = {"sha256": found.sha256, "n_results": found.n_results, "title": found.title}
    record_audit(session, actor=organiser.name, action="remove_efficiency_set", subject=f"set {name}", details=details)
    session.delete(found)
    session.flush()


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


def list_sets(session: Session) -> tuple[ListedSet, ...]:
    """Return every set by name: one query."""
    row, account = models.EfficiencySet, models.Account
    query = select(row, account.name).outerjoin(account, account.id == row.account_id).order_by(row.name)
    return tuple(show_set(found, added_by=name) for found, name in session.execute(query))


def show_set(row: models.EfficiencySet, *, added_by: str | None) -> ListedSet:
    """Return a stored set as lists show it."""
    source = ResultSource(row.title, row.citation, row.url, row.license_note)
    return ListedSet(row.name, source, row.sha256, row.n_results, row.is_shipped, added_by, row.created_at)


def _write_source(row: models.EfficiencySet, source: ResultSource) -> None:
    for name, value in vars(source).items():
        setattr(row, name, value)


def _name_account(session: Session, account_id: int | None) -> str | None:
    return session.scalar(select(models.Account.name).where(models.Account.id == account_id))


def _read_set(fields: Mapping[str, str], content: bytes) -> tuple[SetDescription, tuple[EfficiencyRow, ...]]:
    """Read the fields and the file, and tell the faults of both at once."""
    given = {name: " ".join(value.split()) for name, value in fields.items()}
    problems = _check_fields(given)
    rows: tuple[EfficiencyRow, ...] = ()
    try:
        rows = parse_results(content)
    except InvalidEfficiencyResultsError as exc:
        problems += exc.problems
    if problems:
        count = len({problem.code: problem for problem in problems})
        raise InvalidEfficiencyResultsError(
            f"The set has problems of {count} kind{'' if count == 1 else 's'}; nothing was stored.", problems=problems
        )
    source = ResultSource(given["title"], given["citation"], given.get("url") or None, given["license_note"])
    return SetDescription(given["name"], source), rows


def _check_fields(given: Mapping[str, str]) -> list[Problem]:
    """Return what is wrong with a set's fields."""
    found = [
        Problem("unknown_field", f"the field {name!r} is not known", column=name)
        for name in given
        if name not in FIELD_LIMITS and name != "name"
    ]
    if not SET_NAME.fullmatch(given.get("name", "")):
        message = "a set's name is 1 to 64 lower-case letters, digits, dots, hyphens and underscores"
        found.append(Problem("bad_field", message, column="name"))
    for name, limit in FIELD_LIMITS.items():
        value = given.get(name, "")
        if not value and name not in OPTIONAL_FIELDS:
            found.append(Problem("missing_field", f"the field {name} is missing", column=name))
        elif len(value) > limit or not (value.isprintable() or not value):
            message = f"the field {name} is at most {limit} printable characters"
            found.append(Problem("bad_field", message, column=name))
    if (url := given.get("url")) and not URL.fullmatch(url):
        found.append(Problem("bad_field", "the field url is an address that begins with https://", column="url"))
    return [*found]
