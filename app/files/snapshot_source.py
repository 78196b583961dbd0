"""Where a snapshot's files come from: a folder, or a zip whose known members are copied out under our own names."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from app.files.manifest import MANIFEST_FILE, MAX_MANIFEST_BYTES, parse_json
from app.files.problems import ProblemCollector

MAX_UNZIPPED_BYTES = 64 * 2**30


@dataclass(frozen=True)
class SnapshotSource:
    """The snapshot's files by name, on disk; None where the source could not be opened, which is recorded already."""

    files: dict[str, Path] | None

    def read_manifest(self, problems: ProblemCollector) -> dict[str, Any] | None:
        """Return the manifest's JSON object, or None after recording why there is none."""
        path = self._find(MANIFEST_FILE, problems)
        if path is None:
            return None
        try:
            if path.stat().st_size > MAX_MANIFEST_BYTES:
                raise ValueError(f"it is larger than {MAX_MANIFEST_BYTES} bytes")
            manifest = parse_json(path.read_text(encoding="utf-8-sig"))
            if not isinstance(manifest, dict):
                raise ValueError("it is not a JSON object")
        except (OSError, ValueError) as exc:
            problems.add("unreadable_file", f"{MANIFEST_FILE} cannot be read: {exc}", column=MANIFEST_FILE)
            return None
        return manifest

    def read_table(self, name: str, problems: ProblemCollector) -> pa.Table | None:
        """Return a Parquet file's table, or None after recording why there is none."""
        path = self._find(name, problems)
        if path is None:
            return None
        try:
            # As bytes, because a name that is not in the locale's encoding has no other form that Arrow takes.
            with pa.OSFile(os.fsencode(path)) as stream, pq.ParquetFile(stream) as file:
                return file.read()
        except (pa.ArrowException, OSError, ValueError) as exc:
            reason = str(exc).splitlines()[0][:200] if str(exc) else type(exc).__name__
            problems.add("unreadable_file", f"{name} cannot be read as Parquet: {reason}", column=name)
            return None

    def check_hash(self, name: str, digest: object, problems: ProblemCollector) -> None:
        """Record where a file's bytes are not those the manifest states."""
        path = self._find(name, problems)
        if path is None or not isinstance(digest, str):
            return
        try:
            with path.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
        except OSError as exc:
            problems.add("unreadable_file", f"{name} cannot be read: {exc.strerror or exc}", column=name)
            return
        if found != digest:
            message = f"{name} has the SHA-256 {found}, the manifest states {digest}"
            problems.add("hash_mismatch", message, column=name)

    def _find(self, name: str, problems: ProblemCollector) -> Path | None:
        if self.files is None:
            return None
        path = self.files.get(name)
        if path is None and not problems.has("missing_file", column=name):
            problems.add("missing_file", f"there is no {name}", column=name)
        return path


@contextmanager
def open_source(path: Path, problems: ProblemCollector) -> Iterator[SnapshotSource]:
    """Yield the files of a snapshot folder or zip; what was unpacked is removed afterwards.

    A zip holds the files themselves or one folder with them. Members are copied under our own names, so no member
    can be written anywhere else; only what stands beside the manifest is unpacked.
    """
    with ExitStack() as stack:
        files: dict[str, Path] = {}
        try:
            if path.is_dir():
                files = {item.name: item for item in path.iterdir() if item.is_file()}
            elif path.is_file():
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="otboard-")))
                files = _unpack(path, folder)
            else:
                raise ValueError("there is no such file or folder")
        except (OSError, ValueError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as exc:
            reason = getattr(exc, "strerror", None) or exc
            problems.add("unreadable_file", f"{path} cannot be read as a snapshot folder or zip: {reason}")
            yield SnapshotSource(None)
            return
        yield SnapshotSource(files)


def _unpack(path: Path, folder: Path) -> dict[str, Path]:
    with zipfile.ZipFile(path) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        for member in members:
            if _is_unsafe(member.filename):
                raise ValueError(f"the zip has a member with an unsafe path: {member.filename!r}")
        root = _find_root(members)
        found = {
            PurePosixPath(member.filename).name: member
            for member in members
            if PurePosixPath(member.filename).parent == root
        }
        if sum(member.file_size for member in found.values()) > MAX_UNZIPPED_BYTES:
            raise ValueError(f"the zip unpacks to more than {MAX_UNZIPPED_BYTES} bytes")
        repeated = [name for name, count in Counter(m.filename for m in members).items() if count > 1]
        if repeated:
            raise ValueError(f"the zip has two members of the name {repeated[0]!r}")
        files: dict[str, Path] = {}
        for number, (name, member) in enumerate(sorted(found.items())):
            files[name] = folder / str(number)
            with archive.open(member) as source, files[name].open("wb") as target:
                shutil.copyfileobj(source, target, 2**20)
        return files


def _find_root(members: list[zipfile.ZipInfo]) -> PurePosixPath:
    """Return the folder inside the zip that holds the manifest: the top, or the one folder that has it."""
    roots = {PurePosixPath(m.filename).parent for m in members if PurePosixPath(m.filename).name == MANIFEST_FILE}
    if PurePosixPath() in roots or not roots:
        return PurePosixPath()
    if len(roots) > 1:
        raise ValueError(f"the zip has several folders with a {MANIFEST_FILE}")
    return roots.pop()


def _is_unsafe(name: str) -> bool:
    parts = PurePosixPath(name.replace("\\", "/")).parts
    return not parts or ".." in parts or parts[0].startswith("/") or ":" in parts[0] or "\x00" in name
