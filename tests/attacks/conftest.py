"""Two worlds that differ in the labels of one unit a cell and in nothing else, on one server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from sqlalchemy import select

from app.db import models
from app.files.snapshot import Snapshot, build_snapshot, load_measurements
from app.services import snapshots
from app.services.allowance import set_limits
from tests.api.conftest import Board, _serve_board

WORLDS = ("world-right", "world-wrong")
CELLS = {"tiny": 5, "small": 36, "large": 500}
MODEL = "alpha"
R = M = 2


def build_world(name: str, *, right: bool) -> Snapshot:
    """Return a snapshot whose first question of each benchmark is answered rightly throughout, or wrongly."""
    rng = np.random.default_rng(17)
    questions: list[dict[str, Any]] = []
    trajectories: list[dict[str, Any]] = []
    for benchmark, count in CELLS.items():
        for number in range(count):
            question_id = f"{benchmark}-{number:03d}"
            questions.append({"benchmark": benchmark, "question_id": question_id, "split": "test"})
            for trajectory in range(R):
                retained = np.concatenate([[0], np.cumsum(rng.integers(20, 200, 3))])
                correct = np.minimum(M, np.sort(rng.integers(0, M + 1, 4)))
                if number == 0:
                    correct = np.full(4, M if right else 0)
                trajectories.append(
                    {
                        "model": MODEL,
                        "benchmark": benchmark,
                        "question_id": question_id,
                        "trajectory": trajectory,
                        "thinking_tokens": int(retained[-1]),
                        "original_correct": bool(correct[-1]),
                        "retained_tokens": retained.tolist(),
                        "correct_probes": correct.tolist(),
                    }
                )
    described = {
        "format": "stp-snapshot/1",
        "name": name,
        "title": "A world",
        "kind": "synthetic",
        "probes_per_position": M,
        "trajectories_per_question": R,
        "models": [{"name": MODEL}],
        "benchmarks": [{"name": benchmark, "title": benchmark} for benchmark in CELLS],
        "hidden_splits": ["test"],
    }
    return build_snapshot(described, pa.Table.from_pylist(questions), pa.Table.from_pylist(trajectories))


@pytest.fixture(scope="module")
def worlds(server_url: str, template_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Board]:
    """A server with both worlds, frozen and prepared, on which a team may submit without end."""
    made = [build_world(name, right=name == WORLDS[0]) for name in WORLDS]
    with _serve_board(server_url, template_database, tmp_path_factory.mktemp("worlds"), snapshot=made[0]) as served:
        for snapshot in made:
            with served.sessions.begin() as session:
                snapshots.import_snapshot(session, snapshot)
                stored = snapshots.freeze_snapshot(session, snapshot.manifest.name)
                set_limits(session, stored, team_id=None, limits={"hidden_per_day": 10**6, "hidden_total": 10**6})
                snapshot_id = stored.id
            snapshots.prepare_split(served.sessions, snapshot_id, split="test", data_dir=served.config.data_dir)
        with served.sessions.begin() as session:
            assert len(session.scalars(select(models.Snapshot.id)).all()) == len(WORLDS)
        assert load_measurements(made[0]).sha256 != load_measurements(made[1]).sha256
        yield served
