"""A disk that is full while a file comes in: said in words, and nothing of the file is left."""

from __future__ import annotations

import asyncio
import io
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from app.services.uploads import (
    StorageFullError,
    UploadTooLargeError,
    incoming_dir,
    receive_form,
    store_upload,
    upload_path,
)
from tests.small_disk import mount_small_disk

LIMIT = 50_000_000
MEBIBYTE = 2**20
HEAD = b'--b\r\nContent-Disposition: form-data; name="file"; filename="actions.csv"\r\n\r\n'
TAIL = b"\r\n--b--\r\n"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A data folder with room for two mebibytes."""
    with mount_small_disk(tmp_path / "disk", kibibytes=2048) as folder:
        yield folder


def list_files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def fill(use_some: Callable[[], None]) -> None:
    """Use up a disk until it has no room left."""
    with pytest.raises(OSError, match="No space"):
        deque((use_some() for _ in itertools.count()), maxlen=0)


def extend(file: Path) -> None:
    with file.open("ab", buffering=0) as opened:
        opened.write(b"x" * 65536)


def receive(n_bytes: int, data_dir: Path, *, limit: int = LIMIT) -> list[int]:
    """Receive a form whose file has so many bytes; return how many bytes of it were taken from the client."""
    taken = [0]

    async def chunks() -> AsyncIterator[bytes]:
        yield HEAD
        for _ in range(n_bytes // 65536):
            taken[0] += 65536
            yield b"x" * 65536
        yield TAIL

    async def go() -> None:
        content_type = "multipart/form-data; boundary=b"
        form = await receive_form(chunks(), content_type=content_type, data_dir=data_dir, limit_bytes=limit)
        form.close()

    try:
        asyncio.run(go())
    finally:
        assert list_files(data_dir) == []
    return taken


def test_a_file_that_finds_no_room_is_refused_and_leaves_nothing(small_disk: Path) -> None:
    with pytest.raises(StorageFullError, match="disk is full"):
        receive(8 * MEBIBYTE, small_disk)
    # What it had taken up is free again.
    assert receive(MEBIBYTE, small_disk) == [MEBIBYTE]


def test_the_client_is_heard_out_before_it_is_told(small_disk: Path) -> None:
    """A client that sends first and listens later would get a broken connection instead of the reason."""
    with pytest.raises(StorageFullError):
        receive(8 * MEBIBYTE, small_disk)
    # But not for ever: past twice the limit it is cut off.
    with pytest.raises((StorageFullError, UploadTooLargeError)):
        receive(64 * MEBIBYTE, small_disk, limit=4 * MEBIBYTE)


def test_a_disk_without_room_for_the_first_byte(small_disk: Path) -> None:
    incoming_dir(small_disk).mkdir(parents=True)
    filler = small_disk / "filler"
    filler.write_bytes(b"")
    fill(lambda: extend(filler))
    with pytest.raises(StorageFullError):
        store_upload(io.BytesIO(b"abc"), data_dir=small_disk, limit_bytes=LIMIT)
    assert list_files(small_disk) == [filler]
    filler.unlink()
    stored = store_upload(io.BytesIO(b"abc"), data_dir=small_disk, limit_bytes=LIMIT)
    assert list_files(small_disk) == [upload_path(small_disk, stored.sha256)]


def test_a_disk_without_room_for_another_file(tmp_path: Path) -> None:
    """Disks run out of entries too, not of bytes alone."""
    with mount_small_disk(tmp_path / "disk", kibibytes=1024, entries=20) as folder:
        incoming_dir(folder).mkdir(parents=True)
        names = (folder / f"entry-{number}" for number in itertools.count())
        fill(lambda: next(names).mkdir())
        with pytest.raises(StorageFullError):
            receive(MEBIBYTE // 2, folder)
