"""Uploads: streamed, limited, kept under their hash, and gone without a trace where they broke off."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from app.services.uploads import (
    BrokenUploadError,
    MissingFileError,
    ReceivedForm,
    UploadTooLargeError,
    UploadWriter,
    clean_filename,
    incoming_dir,
    receive_form,
    remove_orphans,
    store_upload,
    sweep_incoming,
    upload_path,
)

BOUNDARY = "x7b"
CONTENT_TYPE = f"multipart/form-data; boundary={BOUNDARY}"
LIMIT = 1_000_000


def make_body(content: bytes, *, filename: str = "actions.csv", fields: dict[str, str] | None = None) -> bytes:
    parts = [
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in (fields or {}).items()
    ]
    disposition = f'Content-Disposition: form-data; name="file"; filename="{filename}"'
    head = f"--{BOUNDARY}\r\n{disposition}\r\nContent-Type: text/csv\r\n\r\n".encode()
    return b"".join(parts) + head + content + f"\r\n--{BOUNDARY}--\r\n".encode()


def receive(body: bytes, data_dir: Path, *, limit: int = LIMIT, chunk: int = 1000) -> ReceivedForm:
    async def chunks() -> AsyncIterator[bytes]:
        for start in range(0, len(body), chunk):
            yield body[start : start + chunk]

    return asyncio.run(receive_form(chunks(), content_type=CONTENT_TYPE, data_dir=data_dir, limit_bytes=limit))


def list_files(data_dir: Path) -> list[Path]:
    return [path for path in data_dir.rglob("*") if path.is_file()]


@pytest.mark.parametrize("chunk", [1, 7, 1000, 10_000_000])
def test_a_form_is_read_whatever_the_chunks(tmp_path: Path, chunk: int) -> None:
    content = b"a\r\n--x7\r\n" * 50 + bytes(range(256))
    form = receive(make_body(content, fields={"split": "test", "method": "größer"}), tmp_path, chunk=chunk)
    assert form.fields == {"split": "test", "method": "größer"}
    assert form.filename == "actions.csv"
    upload = form.require_upload()
    assert (upload.sha256, upload.size) == (hashlib.sha256(content).hexdigest(), len(content))
    assert upload.path.read_bytes() == content
    form.close()
    assert list_files(tmp_path) == []


def test_a_kept_file_lies_under_its_hash_and_stays(tmp_path: Path) -> None:
    form = receive(make_body(b"one"), tmp_path)
    place = form.require_upload().keep()
    form.close()
    assert place == upload_path(tmp_path, hashlib.sha256(b"one").hexdigest())
    assert list_files(tmp_path) == [place]
    assert place.read_bytes() == b"one"


def test_the_same_bytes_are_kept_once(tmp_path: Path) -> None:
    for _ in range(2):
        form = receive(make_body(b"same"), tmp_path)
        form.require_upload().keep()
        form.close()
    assert len(list_files(tmp_path)) == 1


@pytest.mark.parametrize("size", [LIMIT + 1, 3 * LIMIT])
def test_past_the_limit_nothing_is_left(tmp_path: Path, size: int) -> None:
    """The body declares no length here, so the limit holds while the bytes come in."""
    with pytest.raises(UploadTooLargeError, match="larger than the limit"):
        receive(make_body(b"x" * size), tmp_path, chunk=65536)
    assert list_files(tmp_path) == []


def test_exactly_the_limit_is_allowed(tmp_path: Path) -> None:
    form = receive(make_body(b"x" * LIMIT), tmp_path, chunk=65536)
    assert form.require_upload().size == LIMIT
    form.close()


def test_an_endless_body_is_given_up(tmp_path: Path) -> None:
    """A body without end is read to twice the limit and no further."""
    read = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal read
        yield make_body(b"")[: -len(f"\r\n--{BOUNDARY}--\r\n")]
        while True:
            read += 65536
            yield b"x" * 65536

    with pytest.raises(UploadTooLargeError):
        asyncio.run(receive_form(chunks(), content_type=CONTENT_TYPE, data_dir=tmp_path, limit_bytes=LIMIT))
    assert LIMIT < read < 5 * LIMIT
    assert list_files(tmp_path) == []


def test_a_body_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BrokenUploadError, match="ended before"):
        receive(make_body(b"x" * 5000)[:3000], tmp_path)
    assert list_files(tmp_path) == []


def test_a_client_that_goes_away_leaves_nothing(tmp_path: Path) -> None:
    class GoneError(Exception):
        pass

    async def chunks() -> AsyncIterator[bytes]:
        yield make_body(b"x" * 5000)[:3000]
        raise GoneError

    with pytest.raises(GoneError):
        asyncio.run(receive_form(chunks(), content_type=CONTENT_TYPE, data_dir=tmp_path, limit_bytes=LIMIT))
    assert list_files(tmp_path) == []


@pytest.mark.parametrize(
    "content_type", ["", "application/json", "multipart/form-data", "multipart/form-data; boundary="]
)
def test_other_content_types_are_refused(tmp_path: Path, content_type: str) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"{}"

    with pytest.raises(BrokenUploadError):
        asyncio.run(receive_form(chunks(), content_type=content_type, data_dir=tmp_path, limit_bytes=LIMIT))


def test_garbage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenUploadError):
        receive(b"this is no form at all", tmp_path)
    assert list_files(tmp_path) == []


def test_a_form_without_a_file_says_so(tmp_path: Path) -> None:
    """A browser sends an empty file name where nobody chose a file."""
    form = receive(make_body(b"", filename=""), tmp_path)
    with pytest.raises(MissingFileError):
        form.require_upload()
    assert list_files(tmp_path) == []


def test_two_files_and_endless_fields_are_refused(tmp_path: Path) -> None:
    one = make_body(b"one")
    with pytest.raises(BrokenUploadError, match="one file"):
        receive(one[: -len(f"--{BOUNDARY}--\r\n")] + make_body(b"two"), tmp_path)
    with pytest.raises(BrokenUploadError, match="longer than"):
        receive(make_body(b"", fields={"method": "x" * 100_000}), tmp_path)
    with pytest.raises(BrokenUploadError, match="more than"):
        receive(make_body(b"", fields={f"f{i}": "" for i in range(100)}), tmp_path)
    assert list_files(tmp_path) == []


def test_a_stream_is_stored(tmp_path: Path) -> None:
    stored = store_upload(io.BytesIO(b"abc"), data_dir=tmp_path, limit_bytes=3)
    assert stored.path == upload_path(tmp_path, stored.sha256)
    assert list_files(tmp_path) == [stored.path]
    stored.discard()
    assert stored.path.exists()
    with pytest.raises(UploadTooLargeError):
        store_upload(io.BytesIO(b"abcd"), data_dir=tmp_path, limit_bytes=3)
    assert list_files(tmp_path) == [stored.path]


def test_a_sweep_takes_what_was_left_and_not_what_is_being_written(tmp_path: Path) -> None:
    incoming_dir(tmp_path).mkdir(parents=True)
    (incoming_dir(tmp_path) / "left-behind").write_bytes(b"half of it")
    writer = UploadWriter(tmp_path, limit_bytes=LIMIT)
    writer.write(b"still coming")
    assert sweep_incoming(tmp_path) == 1
    assert writer.finish().path.read_bytes() == b"still coming"
    writer.abandon()
    assert list_files(tmp_path) == []


def test_a_file_without_a_row_is_removed_after_a_day(session: Session, tmp_path: Path) -> None:
    fresh = store_upload(io.BytesIO(b"fresh"), data_dir=tmp_path, limit_bytes=LIMIT)
    old = store_upload(io.BytesIO(b"old"), data_dir=tmp_path, limit_bytes=LIMIT)
    long_ago = time.time() - 2 * 24 * 3600
    os.utime(old.path, (long_ago, long_ago))
    assert remove_orphans(session, data_dir=tmp_path) == 1
    assert list_files(tmp_path) == [fresh.path]


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("actions.csv", "actions.csv"),
        ("C:\\Users\\me\\actions.csv", "actions.csv"),
        ("../../etc/passwd", "passwd"),
        ("a\x00b\nc.csv", "abc.csv"),
        ("", "actions"),
        ("x" * 300 + ".parquet", "x" * 192 + ".parquet"),
    ],
)
def test_a_file_name_is_cut_to_what_is_harmless(given: str, kept: str) -> None:
    """A very long file name once froze a page elsewhere (codabench#1444); the suffix has to stay."""
    assert clean_filename(given) == kept
