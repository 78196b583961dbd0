"""What a frozen snapshot is asked for again and again: documents and downloads, made once and kept in the cache."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from sqlalchemy.orm import Session

from app.db import models
from app.errors import NotFoundError
from app.evaluator.reference import CellReference
from app.evaluator.scorers import current_scorer_version
from app.evaluator.strategies import Strategy
from app.files.atomic import replaced_file
from app.files.documents import dump_json, frontier_document
from app.files.snapshot import UnknownSplitError, make_public, write_snapshot
from app.services import snapshots
from app.services.release import release_frontiers, require_told_labels
from app.services.snapshots import SnapshotNotFrozenError
from app.services.submissions import HiddenLabelsError

PROGRAM_VERSION = version("otboard")


class UnknownCellError(NotFoundError):
    """The snapshot has no such model or benchmark in this split."""

    code = "unknown_cell"
    title = "No such model or benchmark"


@dataclass(frozen=True)
class FrontierQuery:
    """Which frontiers are asked for; None means all."""

    split: str
    strategy: Strategy | None
    model: str | None
    benchmark: str | None

    @property
    def key(self) -> tuple[str, ...]:
        """What tells this query from every other one."""
        return (self.split, self.strategy or "", self.model or "", self.benchmark or "")


def get_released_snapshot(session: Session, name: str, *, split: str | None = None) -> models.Snapshot:
    """Return a frozen snapshot; with a `split`, one that exists there and whose labels may be looked at."""
    snapshot = snapshots.get_snapshot(session, name)
    if not snapshot.is_frozen:
        raise SnapshotNotFrozenError(f"Snapshot {name} is not frozen yet.")
    if split is not None:
        splits = snapshots.list_splits(session, snapshot)
        if split not in splits:
            raise UnknownSplitError(f"Snapshot {name} has no split {split!r}; it has {', '.join(splits)}.")
        require_told_labels(snapshot, split, what="nothing that rests on them is told")
    return snapshot


def get_told_snapshot(session: Session, name: str, *, split: str) -> models.Snapshot:
    """Return a frozen snapshot whose split has figures that may be told, coarsely where its labels are hidden."""
    snapshot = get_released_snapshot(session, name)
    splits = snapshots.list_splits(session, snapshot)
    if split not in splits:
        raise UnknownSplitError(f"Snapshot {name} has no split {split!r}; it has {', '.join(splits)}.")
    if snapshots.is_closed(snapshot, split):
        raise HiddenLabelsError(f"The labels of split {split!r} of snapshot {name} are hidden.")
    return snapshot


def get_overthinking_text(session: Session, snapshot: models.Snapshot, *, split: str, data_dir: Path) -> str:
    """Return the overthinking document as JSON text."""
    return dump_json(snapshots.get_overthinking(session, snapshot, split=split, data_dir=data_dir))


def get_frontiers_text(session: Session, snapshot: models.Snapshot, query: FrontierQuery, *, data_dir: Path) -> str:
    """Return the frontier document as JSON text: what `otboard frontier` prints, where labels are open."""
    place = _cache_path(data_dir, snapshot, "frontiers", *query.key, suffix=".json")
    if place.is_file():
        return place.read_text(encoding="utf-8")
    strategies = tuple(Strategy) if query.strategy is None else (query.strategy,)
    references: list[CellReference] = []
    for strategy in strategies:
        references += snapshots.get_references(
            session, snapshot, split=query.split, strategy=strategy, data_dir=data_dir
        )
    chosen = [
        reference
        for reference in references
        if query.model in (None, reference.frontier.model) and query.benchmark in (None, reference.frontier.benchmark)
    ]
    if not chosen:
        raise UnknownCellError(f"Snapshot {snapshot.name} has no such model and benchmark in split {query.split}.")
    measurements = snapshots.load_measurements(session, snapshot, data_dir=data_dir).select(query.split)
    text = dump_json(release_frontiers(snapshot, frontier_document(chosen, measurements)))
    with replaced_file(place) as draft:
        draft.write_text(text, encoding="utf-8")
    return text


def ensure_download(session: Session, snapshot: models.Snapshot, *, data_dir: Path) -> Path:
    """Return the snapshot as a zip without hidden labels, written on the first call."""
    place = _cache_path(data_dir, snapshot, "download", suffix=".zip")
    if not place.is_file():
        exported = make_public(snapshots.export_snapshot(session, snapshot.name))
        with replaced_file(place) as draft:
            write_snapshot(exported, draft)
    return place


def _cache_path(data_dir: Path, snapshot: models.Snapshot, *parts: str, suffix: str) -> Path:
    """Return the place of a thing made from a snapshot; another version of the program makes it anew."""
    folder = data_dir / "cache" / "documents"
    folder.mkdir(parents=True, exist_ok=True)
    key = "/".join((snapshot.sha256, *parts, current_scorer_version(), PROGRAM_VERSION))
    return folder / (hashlib.sha256(key.encode()).hexdigest() + suffix)
