"""Cursors of paged lists: opaque to clients, the last row's sort key inside."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from datetime import datetime

from app.errors import AppError


class InvalidCursorError(AppError):
    """A paging cursor that this server did not hand out."""

    status = 422
    code = "invalid_cursor"
    title = "The cursor is not one of this server's"


def write_cursor(key: Sequence[str]) -> str:
    """Return the cursor that continues after the row with this sort key.

    Examples
    --------
    >>> read_cursor(write_cursor(["2026-01-01", "é"]), n_parts=2)
    ('2026-01-01', 'é')
    """
    return base64.urlsafe_b64encode(json.dumps(list(key)).encode()).decode().rstrip("=")


def read_cursor(cursor: str, *, n_parts: int) -> tuple[str, ...]:
    """Return the sort key inside a cursor; raises `InvalidCursorError` for anything else."""
    try:
        key = json.loads(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError) as exc:
        raise InvalidCursorError("Use the `next_cursor` of the page before.") from exc
    if not isinstance(key, list) or len(key) != n_parts or not all(isinstance(part, str) for part in key):
        raise InvalidCursorError("Use the `next_cursor` of the page before.")
    return tuple(key)


def parse_moment(text: str) -> datetime:
    """Return the time inside a cursor's key."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as exc:
        raise InvalidCursorError("Use the `next_cursor` of the page before.") from exc
    if moment.tzinfo is None:
        raise InvalidCursorError("Use the `next_cursor` of the page before.")
    return moment
