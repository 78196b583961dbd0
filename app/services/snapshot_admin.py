"""What organisers do with a snapshot before it is frozen: hide splits, freeze it, or remove it."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import StateError
from app.files import snapshot as files
from app.services.audit import record_audit
from app.services.snapshots import UnknownSnapshotError, export_snapshot, freeze_snapshot, get_snapshot


class SnapshotFrozenError(StateError):
    """A frozen snapshot can neither be changed nor removed."""

    code = "snapshot_frozen"
    title = "The snapshot is frozen"


class SnapshotInUseError(StateError):
    """Something refers to the snapshot that would be left without it."""

    code = "snapshot_in_use"
    title = "The snapshot is in use"


def set_hidden_splits(session: Session, name: str, splits: Sequence[str], *, actor: str) -> models.Snapshot:
    """Say whose labels are hidden, before the snapshot is frozen; its hash changes, since the manifest is part of it.

    Raises
    ------
    SnapshotFrozenError : it is frozen, or it is a public export, whose labels are not there.
    SnapshotError : no such split.
    """
    stored = _lock_unfrozen(session, name)
    if stored.manifest.get("full_sha256"):
        raise SnapshotFrozenError(f"Snapshot {name} is a public export: which of its splits are hidden is settled.")
    exported = export_snapshot(session, name)
    hidden = list(dict.fromkeys(splits))
    raw = {key: value for key, value in exported.manifest.raw.items() if key not in ("files", "hidden_splits")}
    changed = files.build_snapshot({**raw, "hidden_splits": hidden}, exported.questions, exported.trajectories)
    before = stored.manifest.get("hidden_splits") or []
    stored.manifest = {key: value for key, value in changed.manifest.raw.items() if key != "files"}
    stored.sha256 = changed.sha256
    session.flush()
    record_audit(
        session,
        actor=actor,
        action="set_hidden_splits",
        subject=f"snapshot {name}",
        details={"before": before, "after": hidden, "sha256": changed.sha256},
    )
    return stored


def freeze_for_good(session: Session, name: str, *, actor: str) -> models.Snapshot:
    """Freeze a snapshot and record it; a frozen one is returned as it is."""
    was_frozen = get_snapshot(session, name).is_frozen
    stored = freeze_snapshot(session, name)
    if not was_frozen:
        details = {"sha256": stored.sha256, "hidden_splits": stored.manifest.get("hidden_splits") or []}
        record_audit(session, actor=actor, action="freeze_snapshot", subject=f"snapshot {name}", details=details)
    return stored


def remove_snapshot(session: Session, name: str, *, actor: str) -> None:
    """Remove a snapshot that is not frozen, with its measurements.

    Raises
    ------
    SnapshotFrozenError : it is frozen: boards, scores and receipts may refer to it.
    SnapshotInUseError : a probe run was assembled into it.
    """
    stored = _lock_unfrozen(session, name)
    run = session.scalar(select(models.ProbeRun.name).where(models.ProbeRun.snapshot_id == stored.id).limit(1))
    if run is not None:
        raise SnapshotInUseError(f"Snapshot {name} was made of probe run {run}, which refers to it.")
    sha256, n_trajectories = stored.sha256, stored.n_trajectories
    session.execute(delete(models.Snapshot).where(models.Snapshot.id == stored.id))
    details = {"sha256": sha256, "n_trajectories": n_trajectories}
    record_audit(session, actor=actor, action="remove_snapshot", subject=f"snapshot {name}", details=details)


def _lock_unfrozen(session: Session, name: str) -> models.Snapshot:
    query = select(models.Snapshot).where(models.Snapshot.name == name).with_for_update()
    stored = session.scalar(query.execution_options(populate_existing=True))
    if stored is None:
        raise UnknownSnapshotError(f"There is no snapshot {name!r}.")
    if stored.is_frozen:
        raise SnapshotFrozenError(f"Snapshot {name} is frozen; it can neither be changed nor removed.")
    return stored
