"""Reports of the small synthetic snapshot and of the real one, made once for all tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.files.snapshot import Snapshot, read_snapshot
from app.report import analyse_snapshot


def _ignore(what: str, share: float) -> None:
    """Take progress that nobody looks at."""


@pytest.fixture(scope="session")
def small_report(board_snapshot: Snapshot) -> dict[str, Any]:
    """The document of the small snapshot, all splits."""
    return analyse_snapshot(board_snapshot, split="all", progress=_ignore)


@pytest.fixture(scope="session")
def real_report(real_snapshot: Path) -> dict[str, Any]:
    """The document of the real snapshot."""
    return analyse_snapshot(read_snapshot(real_snapshot), split="all", progress=_ignore)
