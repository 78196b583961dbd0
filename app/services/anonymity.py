"""Whose method it is: hidden until the date its team chose, by one rule that every query takes.

Nothing is ever revealed by a job: each query compares the date with the time it is asked at. The team itself and the
organisers always see the name.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import PurePath

from sqlalchemy import ColumnElement, and_, case, false, func, null
from sqlalchemy.orm import InstrumentedAttribute

from app.db import models
from app.services.accounts import Identity

ANONYMOUS = "anonymous"
# What acts in the server's name, and so tells nobody who the team is.
SERVER_ACTOR = re.compile(r"system|worker [^ ]+:\d+")
KNOWN_SUFFIXES = frozenset({".csv", ".jsonl", ".parquet", ".gz", ".zst"})
MAX_SUFFIXES = 2


def is_anonymous(now: datetime) -> ColumnElement[bool]:
    """Whether a method's team is hidden from others at this time."""
    return func.coalesce(models.Method.anonymous_until > now, false())


def hides_team(reader: Identity | None, *, now: datetime) -> ColumnElement[bool]:
    """Whether a method's team is hidden from this reader."""
    if reader is None:
        return is_anonymous(now)
    if reader.is_organiser:
        return false()
    return and_(is_anonymous(now), models.Method.team_id.not_in(reader.team_ids))


def shown_team(reader: Identity | None, *, now: datetime) -> ColumnElement[str]:
    """The name of a method's team, or `anonymous`; the query joins both tables."""
    return case((hides_team(reader, now=now), ANONYMOUS), else_=models.Team.name)


def shown_link(
    link: InstrumentedAttribute[str | None], reader: Identity | None, *, now: datetime
) -> ColumnElement[str | None]:
    """A link that may name the team: none where the team is hidden."""
    return case((hides_team(reader, now=now), null()), else_=link)


def hide_actor(actor: str) -> str:
    """Return the actor of an event as readers see it from whom the team is hidden."""
    return actor if SERVER_ACTOR.fullmatch(actor) else ANONYMOUS


def hide_filename(filename: str) -> str:
    """Return a file's name without what its author called it; the suffixes say how it is read."""
    suffixes = [suffix for suffix in PurePath(filename.lower()).suffixes[-MAX_SUFFIXES:] if suffix in KNOWN_SUFFIXES]
    return f"actions{''.join(suffixes)}"
