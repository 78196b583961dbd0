"""Writing a file or a folder whole or not at all."""

from __future__ import annotations

import os
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
            _sync(temporary)
            temporary.replace(path)
            _sync(path.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


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
                _sync(item)
            _sync(temporary)
            _refuse_existing(path)
            temporary.rename(path)
            _sync(path.parent)
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


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
