"""What the commands need of the database."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from app.config import load_config
from app.db import models
from app.db.embedded import open_database
from app.db.migrations import upgrade_database
from app.db.session import make_engine, session_factory
from app.errors import UnreachableError
from app.services.snapshots import list_splits


@contextmanager
def open_session() -> Iterator[Session]:
    """Yield a session on the configured database, migrated; what was done in it is committed at the end.

    The embedded server is started if it does not run, and stopped if nobody else uses it.
    """
    config = load_config()
    try:
        with open_database(config) as url:
            engine = make_engine(url)
            try:
                upgrade_database(engine)
                with session_factory(engine).begin() as session:
                    yield session
            finally:
                engine.dispose()
    except (OperationalError, psycopg.OperationalError) as exc:
        reason = str(getattr(exc, "orig", None) or exc).strip().splitlines()[0]
        raise UnreachableError(f"the database cannot be used: {reason}") from exc


def describe_snapshot(session: Session, stored: models.Snapshot) -> dict[str, Any]:
    """Return what is known of a stored snapshot without its measurements."""
    return {
        "name": stored.name,
        "title": stored.title,
        "kind": stored.kind,
        "state": stored.state,
        "sha256": stored.sha256,
        "probes_per_position": stored.probes_per_position,
        "trajectories_per_question": stored.trajectories_per_question,
        "n_questions": stored.n_questions,
        "n_trajectories": stored.n_trajectories,
        "splits": list_splits(session, stored),
        "hidden_splits": stored.manifest.get("hidden_splits") or [],
    }
