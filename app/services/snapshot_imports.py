"""Importing a snapshot over the web: a zip or a path is noted, a job checks and imports it, and says what is wrong."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.errors import AppError, ContentError, NotFoundError, Problem, StateError
from app.files.snapshot import read_snapshot
from app.services import jobs
from app.services.audit import record_audit
from app.services.snapshots import import_snapshot
from app.services.uploads import StoredFile, upload_path

logger = logging.getLogger(__name__)

Sessions = sessionmaker[Session]
QUEUE_DEADLINE = timedelta(hours=12)
IMPORT_DEADLINE = timedelta(hours=2)
FIRST_RETRY = timedelta(seconds=5)
MOST_SHOWN = 50


class UnknownImportError(NotFoundError):
    """No import has this number."""

    code = "unknown_import"
    title = "No such import"


class InvalidPathError(ContentError):
    """A path on the server from which no snapshot can be imported."""

    code = "invalid_path"
    title = "The path cannot be used"


@dataclass(frozen=True)
class ImportStatus:
    """How far an import is.

    `state` is `waiting`, `importing`, `imported`, `rejected` (the snapshot's fault: `problems`) or `failed` (ours:
    `failure_reason`). `snapshot` is the name of the snapshot that it became.
    """

    id: int
    source: str
    state: str
    attempts: int
    snapshot: str | None
    problems: tuple[dict[str, Any], ...]
    failure_reason: str | None
    actor: str
    created_at: datetime
    finished_at: datetime | None

    @property
    def is_waiting(self) -> bool:
        """Whether a job still has to end this."""
        return self.state in ("waiting", "importing")


def begin_upload_import(session: Session, *, upload: StoredFile, filename: str, actor: str) -> ImportStatus:
    """Keep an uploaded zip and queue its import."""
    upload.keep()
    return _begin_import(session, source=filename, upload_sha256=upload.sha256, actor=actor)


def begin_path_import(session: Session, *, path: str, actor: str) -> ImportStatus:
    """Queue the import of a snapshot folder or zip that lies on the server; the worker must be able to read it.

    Raises
    ------
    InvalidPathError : not an absolute path.
    """
    if not path.isprintable() or not Path(path).is_absolute():
        raise InvalidPathError("Give the absolute path of a snapshot folder or zip on the server.")
    return _begin_import(session, source=path, upload_sha256=None, actor=actor)


def get_import(session: Session, import_id: int) -> ImportStatus:
    """Return how far an import is or raise `UnknownImportError`."""
    found = session.get(models.SnapshotImport, import_id, populate_existing=True)
    if found is None:
        raise UnknownImportError(f"There is no import {import_id}.")
    return _read(found)


def list_imports(session: Session) -> tuple[ImportStatus, ...]:
    """Return the newest imports, newest first."""
    table = models.SnapshotImport
    return tuple(_read(row) for row in session.scalars(select(table).order_by(table.id.desc()).limit(MOST_SHOWN)))


def run_import(sessions: Sessions, import_id: int, *, config: Config) -> None:
    """Check and import a snapshot, all of it or nothing; may be called again at any time and by any worker."""
    attempt = _take_up(sessions, import_id, config=config)
    if attempt is None:
        return
    path, number = attempt
    try:
        if not path.exists():
            raise InvalidPathError(f"There is nothing at {path.name} that the worker can read.")
        snapshot = read_snapshot(path)
        with sessions.begin() as session:
            found = _lock_held(session, import_id, number)
            if found is None:
                return
            stored = import_snapshot(session, snapshot)
            found.snapshot = stored.name
            _finish(found, state="imported")
            details = {"sha256": stored.sha256, "source": found.source}
            record_audit(
                session,
                actor=found.actor,
                action="import_snapshot",
                subject=f"snapshot {stored.name}",
                details=details,
            )
    except (ContentError, StateError) as exc:
        _reject(sessions, import_id, number, exc)
    except Exception as exc:
        logger.exception("attempt %d at import %d failed", number, import_id)
        reason = exc.detail if isinstance(exc, AppError) else f"the import failed on our side ({type(exc).__name__})"
        _give_back(sessions, import_id, number, config=config, reason=reason)


def reap_imports(session: Session, *, config: Config) -> int:
    """Move on every import whose deadline has passed, and return how many."""
    table = models.SnapshotImport
    query = select(table).where(table.deadline < datetime.now(UTC)).order_by(table.id).with_for_update(skip_locked=True)
    overdue = list(session.scalars(query))
    for found in overdue:
        if found.state == "waiting" or _retry_or_fail(found, config=config, reason="it took longer than allowed"):
            found.deadline = datetime.now(UTC) + QUEUE_DEADLINE
            jobs.defer_import(session, found.id)
    session.flush()
    return len(overdue)


def _begin_import(session: Session, *, source: str, upload_sha256: str | None, actor: str) -> ImportStatus:
    found = models.SnapshotImport(
        source=source, upload_sha256=upload_sha256, actor=actor, deadline=datetime.now(UTC) + QUEUE_DEADLINE
    )
    session.add(found)
    session.flush()
    jobs.defer_import(session, found.id)
    details = {"source": source, "sha256": upload_sha256}
    record_audit(session, actor=actor, action="begin_import", subject=f"import {found.id}", details=details)
    return get_import(session, found.id)


def _take_up(sessions: Sessions, import_id: int, *, config: Config) -> tuple[Path, int] | None:
    with sessions.begin() as session:
        found = session.get(models.SnapshotImport, import_id, with_for_update=True)
        if found is None or found.finished_at is not None:
            return None
        if found.state == "importing" and not _retry_or_fail(found, config=config, reason="its worker was lost"):
            return None
        found.state = "importing"
        found.attempts += 1
        found.deadline = datetime.now(UTC) + IMPORT_DEADLINE
        path = Path(found.source)
        if found.upload_sha256 is not None:
            path = upload_path(config.data_dir, found.upload_sha256)
            if path.is_file():
                # What no submission refers to is swept a day after it was last touched.
                os.utime(path)
        return path, found.attempts


def _reject(sessions: Sessions, import_id: int, number: int, error: AppError) -> None:
    with sessions.begin() as session:
        found = _lock_held(session, import_id, number)
        if found is not None:
            problems = error.problems or (Problem(code=error.code, message=error.detail),)
            found.problems = [problem.as_dict() for problem in problems]
            _finish(found, state="rejected")


def _give_back(sessions: Sessions, import_id: int, number: int, *, config: Config, reason: str) -> None:
    with sessions.begin() as session:
        found = _lock_held(session, import_id, number)
        if found is not None and _retry_or_fail(found, config=config, reason=reason):
            jobs.defer_import(session, import_id, delay=FIRST_RETRY * 2 ** (number - 1))


def _retry_or_fail(found: models.SnapshotImport, *, config: Config, reason: str) -> bool:
    """Let an import wait again and return True, or, where it has had all its attempts, let it fail."""
    if found.attempts < config.scoring_attempts:
        found.state, found.deadline = "waiting", datetime.now(UTC) + QUEUE_DEADLINE
        return True
    found.failure_reason = f"{reason} (after {found.attempts} attempts)"
    _finish(found, state="failed")
    return False


def _finish(found: models.SnapshotImport, *, state: str) -> None:
    found.state, found.deadline, found.finished_at = state, None, datetime.now(UTC)


def _lock_held(session: Session, import_id: int, number: int) -> models.SnapshotImport | None:
    """Lock the import, or return None where it moved on without this attempt."""
    found = session.get(models.SnapshotImport, import_id, with_for_update=True, populate_existing=True)
    is_held = found is not None and found.attempts == number and found.state == "importing"
    return found if is_held else None


def _read(row: models.SnapshotImport) -> ImportStatus:
    return ImportStatus(
        id=row.id,
        source=row.source,
        state=row.state,
        attempts=row.attempts,
        snapshot=row.snapshot,
        problems=tuple(row.problems),
        failure_reason=row.failure_reason,
        actor=row.actor,
        created_at=row.created_at,
        finished_at=row.finished_at,
    )
