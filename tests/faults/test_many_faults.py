"""Two web servers with a worker each, while workers and servers are killed and the database crashes."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from app.files.snapshot import Snapshot
from tests.faults.conftest import write_caps
from tests.faults.run import run


def test_every_submission_ends_scored_once(board_snapshot: Snapshot) -> None:
    # Not pytest's own folder: as root the database runs as another user, to whom that one is closed.
    folder = Path(tempfile.mkdtemp(prefix="otboard-faults-"))
    try:
        figures = run(folder, board_snapshot, [write_caps(cap) for cap in range(6)], n_rounds=3, seed=1)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert (figures["submissions"], figures["uploads"]) == (6, 12)
    assert {"a worker killed", "a server killed", "the database crashed"} <= set(figures["faults"])
