"""Running commands in this process, and a snapshot on disk for them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from app.cli import app
from app.files.snapshot import Snapshot, make_public, write_snapshot

Run = Callable[..., Result]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs `otboard` with arguments; errors of the program itself are raised."""
    for name in ("OTBOARD_TOKEN", "OTBOARD_DATABASE_URL", "OTBOARD_DATA"):
        monkeypatch.delenv(name, raising=False)
    runner = CliRunner()

    def invoke(*arguments: object, env: dict[str, str] | None = None) -> Result:
        return runner.invoke(app, [str(a) for a in arguments], env=env, prog_name="otboard", catch_exceptions=False)

    return invoke


@pytest.fixture(autouse=True)
def _keep_logging() -> Iterator[None]:
    """Take back what a command set up to log to the standard error of its run, which is closed by then."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(scope="session")
def snapshot_path(board_snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small snapshot as a folder."""
    path = tmp_path_factory.mktemp("snapshots") / "small"
    write_snapshot(board_snapshot, path)
    return path


@pytest.fixture(scope="session")
def public_path(make_board_snapshot: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The public export, as a zip, of the small snapshot with a hidden test split."""
    path = tmp_path_factory.mktemp("snapshots") / "public.zip"
    write_snapshot(make_public(make_board_snapshot(hidden_splits=["test"])), path)
    return path
