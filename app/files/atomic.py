"""Writing a file or a folder whole or not at all."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.errors import AppError, StateError


class OutputExistsError(StateError):
    """The place to write to is taken."""

    code = "output_exists"
    title = "The output exists already"


class OutputFailedError(AppError):
    """The output could not be written."""

    code = "output_failed"
    title = "The output could not be written"


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`; on success it becomes `path`, which must not exist, else it is removed.

    The name of `path` ends the temporary name too, so that a writer that goes by the suffix sees it.
    """
    _refuse_existing(path)
    with replaced_file(path) as temporary:
        yield temporary
        _refuse_existing(path)


@contextmanager
def replaced_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file beside `path`; on success it replaces `path` in one step, else it is removed.

    Raises
    ------
    OutputFailedError : the folder does not exist or cannot be written, or the disk is full.
    """
    with _failures_named(path):
        folder = Path(tempfile.mkdtemp(prefix=".tmp-", dir=path.parent))
    try:
        temporary = folder / path.name
        with _failures_named(path):
            yield temporary
            sync_path(temporary)
            temporary.replace(path)
            sync_path(path.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_once(path: Path, content: bytes, *, mode: int) -> None:
    """Write a file that is not there yet, whole or not at all; where another process was first, its file stays.

    Raises
    ------
    OSError : the folder cannot be written, or the disk is full.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as written:
            written.write(content)
            written.flush()
            os.fsync(written.fileno())
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink(missing_ok=True)
    sync_path(path.parent)


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `path`; on success it becomes `path`, which must not exist."""
    _refuse_existing(path)
    with _failures_named(path):
        parent = Path(tempfile.mkdtemp(prefix=".tmp-", dir=path.parent))
    try:
        temporary = parent / path.name
        with _failures_named(path):
            temporary.mkdir()
            yield temporary
            for item in temporary.iterdir():
                sync_path(item)
            sync_path(temporary)
            _refuse_existing(path)
            temporary.rename(path)
            sync_path(path.parent)
    finally:
        shutil.rmtree(parent, ignore_errors=True)


@contextmanager
def _failures_named(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise OutputFailedError(f"cannot write {path}: {exc.strerror or exc}") from exc


def _refuse_existing(path: Path) -> None:
    if path.exists() or path.is_symlink():
        raise OutputExistsError(f"{path} exists already")


def sync_path(path: Path) -> None:
    """Have a file or a folder on the disk before this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
