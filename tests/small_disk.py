"""A disk that is soon full: a small file system in memory, mounted where a test wants it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def mount_small_disk(folder: Path, *, kibibytes: int, entries: int = 1000) -> Iterator[Path]:
    """Mount a file system of this size, for so many files and folders, for the length of a block.

    The test is skipped where that is refused.
    """
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("a small disk can be mounted as root only; run the suite as root to test a full one")
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={kibibytes}k,nr_inodes={entries}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"this machine lets nobody mount a small disk: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        # Whatever still has a file open there loses it later; the test's folder is free at once.
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
