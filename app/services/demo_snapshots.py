"""The demo's snapshots: those that are shipped with the program as files, and keeping one frozen in the database."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.orm import Session, sessionmaker

from app.errors import StateError
from app.evaluator.measurements import ALL_SPLITS
from app.files import snapshot as files
from app.services import snapshots

SHIPPED_FOLDER = Path(files.__file__).parent / "data" / "snapshots"
# The splits that a demo submits to, in this order, where a snapshot has questions in them.
SHOWN_SPLITS = ("test", "validation", ALL_SPLITS)

Sessions = sessionmaker[Session]


class ShippedSnapshotError(StateError):
    """The database has something else under the name of a snapshot that is shipped."""

    code = "shipped_snapshot_differs"
    title = "Another snapshot has the name of a shipped one"


def list_shipped(folder: Path = SHIPPED_FOLDER) -> list[Path]:
    """Return the files of the snapshots that are shipped, by name; a folder that is not there holds none."""
    return sorted(folder.glob("*.zip"))


def store_shipped(sessions: Sessions, path: Path) -> files.Snapshot:
    """Read a snapshot file, and make sure that the database has it, frozen.

    Raises
    ------
    SnapshotError : the file is no sound snapshot.
    ShippedSnapshotError, SnapshotExistsError : another snapshot has its name, or its content another name.
    """
    snapshot = files.read_snapshot(path)
    ensure_frozen(sessions, snapshot)
    return snapshot


def ensure_frozen(sessions: Sessions, snapshot: files.Snapshot) -> None:
    """Import and freeze a snapshot unless it is there; what was begun and not ended is taken up."""
    name = snapshot.manifest.name
    with sessions.begin() as session:
        stored = snapshots.find_snapshot(session, name)
        if stored is None:
            snapshots.import_snapshot(session, snapshot)
        elif stored.sha256 != snapshot.sha256:
            raise ShippedSnapshotError(
                f"The database has another snapshot named {name}, with the hash {stored.sha256}; the one that is "
                f"shipped has {snapshot.sha256}."
            )
    with sessions.begin() as session:
        if not snapshots.get_snapshot(session, name).is_frozen:
            snapshots.freeze_snapshot(session, name)


def list_shown_splits(snapshot: files.Snapshot) -> list[str]:
    """Return the splits of a snapshot that the demo submits to: those with questions whose labels are not hidden."""
    found = set(snapshot.questions.column("split").to_pylist())
    hidden = set(snapshot.manifest.hidden_splits)
    return [
        split
        for split in SHOWN_SPLITS
        if (not hidden if split == ALL_SPLITS else split in found and split not in hidden)
    ]


def can_fit(snapshot: files.Snapshot) -> bool:
    """Whether methods can be fitted on the training split: every benchmark has labelled questions there."""
    trained = {row["benchmark"] for row in snapshot.questions.to_pylist() if row["split"] == "train"}
    return trained == set(snapshot.questions.column("benchmark").to_pylist()) and (
        "train" not in snapshot.manifest.hidden_splits
    )
