"""Uploaded files: streamed to disk, kept under the SHA-256 of their bytes."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import hashlib
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import AppError, ContentError
from app.files.atomic import sync_path

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

CHUNK_BYTES = 1 << 20
ORPHAN_SECONDS = 24 * 3600
MAX_FIELDS = 32
MAX_FIELD_BYTES = 64 * 1024
NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})


class UploadTooLargeError(AppError):
    """The file is larger than this server accepts."""

    status = 413
    code = "upload_too_large"
    title = "The file is too large"


class BrokenUploadError(AppError):
    """The body is not a complete multipart form with one file."""

    status = 400
    code = "broken_upload"
    title = "The upload is incomplete or malformed"


class StorageFullError(AppError):
    """There is no room for the file on the server's disk."""

    status = 507
    code = "storage_full"
    title = "The server's disk is full"


class MissingFileError(ContentError):
    """A form without the file it is about."""

    code = "missing_file"
    title = "The form holds no file"


@dataclass(frozen=True)
class StoredFile:
    """A file received whole; it lies under `path` until `keep` moves it to its place or `discard` removes it."""

    sha256: str
    size: int
    path: Path
    data_dir: Path

    def keep(self) -> Path:
        """Move the file to its place under its hash and return that place; the same bytes are kept once.

        The time of an existing file is renewed, so that a sweep that runs before the row is committed leaves it alone.
        """
        place = upload_path(self.data_dir, self.sha256)
        if self.path == place:
            return place
        with _telling_full():
            place.parent.mkdir(parents=True, exist_ok=True)
            self.path.replace(place)
            os.utime(place)
            sync_path(place.parent)
        return place

    def discard(self) -> None:
        """Remove the file unless it was kept."""
        if self.path != upload_path(self.data_dir, self.sha256):
            self.path.unlink(missing_ok=True)


class UploadWriter:
    """Writes one upload to a locked file in the folder of incoming ones; whatever is not finished is removed.

    The lock lasts as long as the process, so that `sweep_incoming` can tell what a killed server left behind from what
    is being written at this moment.
    """

    def __init__(self, data_dir: Path, *, limit_bytes: int) -> None:
        self._data_dir = data_dir
        self._limit_bytes = limit_bytes
        self._digest = hashlib.sha256()
        with _telling_full():
            self._file = _open_incoming(data_dir)
        self._path = Path(self._file.name)
        self._full: StorageFullError | None = None
        self.size = 0
        self.excess = 0

    def write(self, chunk: bytes) -> None:
        """Append a chunk; one that passes the limit, and all that follow, are counted in `excess` and not stored.

        So are those for which the disk has no room: what was written makes room again at once, and `finish` tells.
        """
        if self._full or self.excess or self.size + len(chunk) > self._limit_bytes:
            self.excess += len(chunk)
            return
        try:
            with _telling_full():
                _write_whole(self._file, chunk)
        except StorageFullError as exc:
            self._full = exc
            self.excess += len(chunk)
            os.ftruncate(self._file.fileno(), 0)
            return
        self._digest.update(chunk)
        self.size += len(chunk)

    def finish(self) -> StoredFile:
        """Flush to disk and return the whole file.

        Raises `StorageFullError` where there was no room for it, `UploadTooLargeError` where it passed the limit.
        """
        if self._full:
            self.abandon()
            raise self._full
        if self.excess:
            self.abandon()
            raise UploadTooLargeError(f"The file is larger than the limit of {_format_bytes(self._limit_bytes)}.")
        with _telling_full():
            os.fsync(self._file.fileno())
        return StoredFile(self._digest.hexdigest(), self.size, self._path, self._data_dir)

    def abandon(self) -> None:
        """Remove what was written."""
        self._path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        """Close the file, which ends the lock."""
        self._file.close()


@dataclass
class ReceivedForm:
    """A multipart form: its text fields, and its file where it has one."""

    fields: dict[str, str] = field(default_factory=dict)
    filename: str = ""
    upload: StoredFile | None = None
    _writer: UploadWriter | None = None

    def require_upload(self, *, sha256: str | None = None) -> StoredFile:
        """Return the file or raise `MissingFileError`; `BrokenUploadError` where it lacks the hash it should have."""
        if self.upload is None:
            raise MissingFileError("Send the action file in the form field `file`.")
        if sha256 is not None and sha256 != self.upload.sha256:
            raise BrokenUploadError(
                "The file arrived with other bytes than `sha256` says; nothing was stored. Send it again."
            )
        return self.upload

    def close(self) -> None:
        """Remove the file unless it was kept."""
        if self.upload is not None:
            self.upload.discard()
        if self._writer is not None:
            self._writer.release()


def upload_path(data_dir: Path, sha256: str) -> Path:
    """Return where the file with this hash lies."""
    return data_dir / "uploads" / sha256[:2] / sha256


def incoming_dir(data_dir: Path) -> Path:
    """Return the folder of uploads that are being received."""
    return data_dir / "uploads" / "incoming"


def store_upload(stream: BinaryIO, *, data_dir: Path, limit_bytes: int) -> StoredFile:
    """Store a stream under its hash; nothing is left where it breaks off or is too large."""
    writer = UploadWriter(data_dir, limit_bytes=limit_bytes)
    try:
        while chunk := stream.read(CHUNK_BYTES):
            writer.write(chunk)
            if writer.excess:
                break
        received = writer.finish()
        return StoredFile(received.sha256, received.size, received.keep(), data_dir)
    except BaseException:
        writer.abandon()
        raise
    finally:
        writer.release()


async def receive_form(
    chunks: AsyncIterator[bytes], *, content_type: str, data_dir: Path, limit_bytes: int
) -> ReceivedForm:
    """Read a multipart form from a request's body, its file straight to disk.

    Memory holds at most about a megabyte of the body whatever it declares. Past the limit the rest is read and thrown
    away, as much again as the limit, so that a client that sends first and listens later gets the answer and not
    a broken connection.
    """
    reception = _Reception(content_type, data_dir=data_dir, limit_bytes=limit_bytes)
    try:
        async for chunk in chunks:
            reception.feed(chunk)
            if len(reception.pending) >= CHUNK_BYTES:
                await asyncio.to_thread(reception.flush)
            if reception.hopeless:
                break
        return await asyncio.to_thread(reception.finish)
    except BaseException:
        reception.abandon()
        raise


def sweep_incoming(data_dir: Path) -> int:
    """Remove what killed servers left among the incoming uploads and return how many files that were."""
    swept = 0
    for path in _list_files(incoming_dir(data_dir)):
        with suppress(FileNotFoundError), path.open("rb") as leftover:
            try:
                fcntl.flock(leftover, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            path.unlink(missing_ok=True)
            swept += 1
    return swept


def remove_orphans(session: Session, *, data_dir: Path) -> int:
    """Remove kept files that no submission refers to, a day after they were last touched; return how many.

    A file is kept just before its row is committed; where that commit failed, the file is such an orphan.
    """
    before = time.time() - ORPHAN_SECONDS
    removed = 0
    for folder in sorted((data_dir / "uploads").glob("[0-9a-f][0-9a-f]")):
        old = {path.name: path for path in _list_files(folder) if path.stat().st_mtime < before}
        query = select(models.Submission.actions_sha256).where(models.Submission.actions_sha256.in_(old))
        known = set(session.scalars(query)) if old else set()
        for name in old.keys() - known:
            old[name].unlink(missing_ok=True)
            removed += 1
    return removed


class _Reception:
    """The state of one form that is being received: a push parser's callbacks and what they collected."""

    def __init__(self, content_type: str, *, data_dir: Path, limit_bytes: int) -> None:
        kind, options = parse_options_header(content_type)
        if kind != b"multipart/form-data" or not options.get(b"boundary"):
            raise BrokenUploadError("Send a form as multipart/form-data with the file in the field `file`.")
        self.pending = bytearray()
        self._data_dir = data_dir
        self._limit_bytes = limit_bytes
        self._form = ReceivedForm()
        self._writer: UploadWriter | None = None
        self._header_name = bytearray()
        self._header_value = bytearray()
        self._disposition = b""
        self._field_name = ""
        self._field_value = bytearray()
        self._in_file = False
        self._ended = False
        self._refusal: StorageFullError | None = None
        callbacks: MultipartCallbacks = {
            "on_part_begin": self._begin_part,
            "on_header_field": self._add_header_name,
            "on_header_value": self._add_header_value,
            "on_header_end": self._end_header,
            "on_headers_finished": self._end_headers,
            "on_part_data": self._add_data,
            "on_part_end": self._end_part,
            "on_end": self._end,
        }
        try:
            self._parser = MultipartParser(options[b"boundary"], callbacks)
        except FormParserError as exc:
            raise BrokenUploadError("The form's boundary is malformed.") from exc

    @property
    def hopeless(self) -> bool:
        """Whether so much came past the limit that reading on serves nobody."""
        return self._writer is not None and self._writer.excess > self._limit_bytes

    def feed(self, chunk: bytes) -> None:
        try:
            self._parser.write(chunk)
        except FormParserError as exc:
            raise BrokenUploadError("The form is malformed.") from exc

    def flush(self) -> None:
        if self._writer is not None and self.pending:
            self._writer.write(bytes(self.pending))
        self.pending.clear()

    def finish(self) -> ReceivedForm:
        self.flush()
        if self._refusal is not None:
            raise self._refusal
        if not self._ended and not self.hopeless:
            raise BrokenUploadError("The upload ended before the form did.")
        if self._writer is not None:
            self._form.upload = self._writer.finish()
            self._form._writer = self._writer
        return self._form

    def abandon(self) -> None:
        if self._writer is not None:
            self._writer.abandon()

    def _begin_part(self) -> None:
        self._disposition = b""
        self._field_value = bytearray()
        self._in_file = False

    def _add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header_name += data[start:end]

    def _add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._header_value += data[start:end]

    def _end_header(self) -> None:
        if self._header_name.lower() == b"content-disposition":
            self._disposition = bytes(self._header_value)
        self._header_name.clear()
        self._header_value.clear()

    def _end_headers(self) -> None:
        _, options = parse_options_header(self._disposition)
        self._field_name = options.get(b"name", b"").decode("utf-8", "replace")
        filename = options.get(b"filename")
        if self._field_name != "file" or filename is None:
            return
        # A browser sends an empty file field where nobody chose a file.
        self._in_file = True
        if self._writer is not None:
            raise BrokenUploadError("Send one file, in one field `file`.")
        if filename:
            self._form.filename = clean_filename(filename.decode("utf-8", "replace"))
            try:
                self._writer = UploadWriter(self._data_dir, limit_bytes=self._limit_bytes)
            except StorageFullError as exc:
                # Told at the end: a client that is still sending does not listen yet.
                self._refusal = exc

    def _add_data(self, data: bytes, start: int, end: int) -> None:
        if self._in_file:
            if self._writer is not None:
                self.pending += data[start:end]
            return
        self._field_value += data[start:end]
        if len(self._field_value) > MAX_FIELD_BYTES:
            raise BrokenUploadError(f"The field {self._field_name!r} is longer than {MAX_FIELD_BYTES} bytes.")

    def _end_part(self) -> None:
        if self._in_file:
            return
        if len(self._form.fields) >= MAX_FIELDS:
            raise BrokenUploadError(f"The form has more than {MAX_FIELDS} fields.")
        self._form.fields[self._field_name] = self._field_value.decode("utf-8", "replace")

    def _end(self) -> None:
        self._ended = True


def clean_filename(name: str) -> str:
    """Return the last part of a client's file name, without control characters, cut to 200 characters from the left.

    The suffix decides how the file is read, so it is the end that stays.
    """
    last = name.replace("\\", "/").rsplit("/", 1)[-1]
    printable = "".join(character for character in last if character.isprintable()).strip()
    return printable[-200:] or "actions"


def _open_incoming(data_dir: Path) -> FileIO:
    folder = incoming_dir(data_dir)
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        # Without a buffer what finds no room is known at once, and closing cannot fail.
        incoming = (folder / secrets.token_hex(16)).open("xb", buffering=0)
        fcntl.flock(incoming, fcntl.LOCK_EX)
        # A sweep between these two lines takes the file away before it is locked; then another one is made.
        if os.fstat(incoming.fileno()).st_nlink:
            return incoming
        incoming.close()


def _write_whole(file: FileIO, chunk: bytes) -> None:
    """Write all of a chunk: a file without a buffer may take a part of it at a time."""
    rest = memoryview(chunk)
    while rest:
        rest = rest[file.write(rest) :]


@contextmanager
def _telling_full() -> Iterator[None]:
    """Turn the system's word that there is no room left into ours."""
    try:
        yield
    except OSError as exc:
        if exc.errno not in NO_SPACE:
            raise
        message = "The server's disk is full, so nothing of the file was kept. Its operator has to make room first."
        raise StorageFullError(message) from exc


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file()) if folder.is_dir() else []


def _format_bytes(n_bytes: int) -> str:
    return f"{n_bytes / 2**20:.0f} MiB" if n_bytes >= 2**20 else f"{n_bytes} bytes"
