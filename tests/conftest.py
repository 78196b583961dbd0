"""Fixtures shared by the whole suite."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED = REPOSITORY.parent / "shared"


@pytest.fixture(scope="session")
def real_snapshot() -> Path:
    """The folder of a real measured snapshot that lies beside the repository, not in it."""
    folder = SHARED / "data" / "thought-anchors-math"
    if not folder.is_dir():
        pytest.skip("the real snapshot is not here: it lies outside the repository, in ../shared/data/thought-anchors-math")
    return folder


@pytest.fixture(scope="session")
def reference_tables() -> Path:
    """The folder of the published tables as JSON, which lies beside the repository, not in it."""
    folder = SHARED / "reference"
    if not folder.is_dir():
        pytest.skip("the published tables are not here: they lie outside the repository, in ../shared/reference")
    return folder
