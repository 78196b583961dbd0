"""The analyses of a split: computed by jobs one after the other, stored, and the same as the command writes."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.db.session import make_engine, session_factory
from app.files.snapshot import Snapshot
from app.report import analyse_snapshot
from app.report_csv import format_analysis_csv
from app.services import analyses, jobs, snapshots

Sessions = sessionmaker[Session]


@pytest.fixture
def stored(committed_database: str, tmp_path: Path, board_snapshot: Snapshot) -> Any:
    """A frozen snapshot in a database of the test's own."""
    engine = make_engine(committed_database)
    sessions = session_factory(engine)
    with sessions.begin() as session:
        snapshots.import_snapshot(session, board_snapshot)
        snapshot_id = snapshots.freeze_snapshot(session, "small").id
    config = Config(data_dir=tmp_path, database_url=committed_database)
    yield sessions, snapshot_id, config
    engine.dispose()


def _run(sessions: Sessions, snapshot_id: int, config: Config) -> None:
    """Run slices until nothing is missing; the jobs of the bootstrap wait ahead, so each slice does one analysis."""
    for _ in analyses.ANALYSES:
        analyses.run_slice(sessions, snapshot_id, split="test", config=config)


def test_stored_analyses_are_those_of_the_command(stored: Any, board_snapshot: Snapshot) -> None:
    sessions, snapshot_id, config = stored
    _run(sessions, snapshot_id, config)
    expected = analyse_snapshot(board_snapshot, split="test", progress=lambda *_: None)
    with sessions.begin() as session:
        snapshot = session.get_one(models.Snapshot, snapshot_id)
        found = analyses.list_analyses(session, snapshot, split="test")
        state = analyses.find_state(session, snapshot, split="test")
    # Intervals wait for the bootstrap, which has not begun.
    assert list(found) == [kind for kind in analyses.ANALYSES if kind != "intervals"]
    assert (state.n_done, state.n_kinds, state.is_failed) == (len(found), len(found) + 1, False)
    for kind, document in found.items():
        section = {"points": expected["frontiers"]["efficiency"]} if kind == "efficiency" else expected[kind]
        assert document == json.loads(json.dumps(section)), kind


def test_a_slice_gives_way_to_other_jobs_and_queues_what_is_left(stored: Any) -> None:
    sessions, snapshot_id, config = stored
    analyses.run_slice(sessions, snapshot_id, split="test", config=config)
    with sessions.begin() as session:
        snapshot = session.get_one(models.Snapshot, snapshot_id)
        # The preparation of the splits waits since the snapshot was frozen.
        assert len(analyses.list_analyses(session, snapshot, split="test")) == 1
        assert jobs.is_analysis_queued(session, snapshot_id, split="test", statuses=("todo",))


def test_missing_analyses_are_queued_once_and_failed_ones_stay(stored: Any) -> None:
    sessions, snapshot_id, _ = stored
    count = text("SELECT count(*) FROM procrastinate_jobs WHERE task_name = 'analyse_split'")
    with sessions.begin() as session:
        analyses.begin_missing(session)
        analyses.begin_missing(session)
        n_queued = session.scalar(count)
        assert n_queued == len(snapshots.list_splits(session, snapshots.get_snapshot(session, "small")))
        session.execute(text("UPDATE procrastinate_jobs SET status = 'failed' WHERE task_name = 'analyse_split'"))
        analyses.begin_missing(session)
        assert session.scalar(count) == n_queued
        snapshot = session.get_one(models.Snapshot, snapshot_id)
        assert analyses.find_state(session, snapshot, split="test").is_failed


def test_a_hidden_split_is_neither_queued_nor_shown(
    session: Session, make_board_snapshot: Callable[..., Snapshot]
) -> None:
    snapshots.import_snapshot(session, make_board_snapshot("secret", seed=2, hidden_splits=["test"]))
    snapshot = snapshots.freeze_snapshot(session, "secret")
    analyses.begin_missing(session)
    queued = session.scalars(
        text("SELECT args->>'split' FROM procrastinate_jobs WHERE task_name = 'analyse_split'")
    ).all()
    assert sorted(queued) == ["train", "validation"]
    # Even a document that got there somehow stays where it is.
    session.add(
        models.SnapshotFigure(
            snapshot_id=snapshot.id, split="test", kind="analysis:thinning", document={}, evaluator_version="1"
        )
    )
    session.flush()
    assert analyses.list_analyses(session, snapshot, split="test") == {}


def test_every_analysis_has_a_table(board_snapshot: Snapshot) -> None:
    document = analyse_snapshot(board_snapshot, split="test", progress=lambda *_: None)
    document["efficiency"] = {"points": document["frontiers"]["efficiency"]}
    document["intervals"] = {
        "boards": [{"model": "alpha", "benchmark": None, "figures": {"area": [0.1, 0.2], "gap": None}, "frontiers": []}]
    }
    rows = {
        kind: list(csv.DictReader(io.StringIO(format_analysis_csv(kind, document[kind])))) for kind in analyses.ANALYSES
    }
    cell = document["overthinking"]["cells"][0]
    first = rows["overthinking"][0]
    assert (first["model"], first["benchmark"]) == (cell["model"], cell["benchmark"])
    assert first["overthinking_ratio"] == repr(cell["overthinking_ratio"])
    assert rows["overthinking"][-1]["model"] == ""
    assert rows["direct_answers"][0]["direct_accuracy"] == ""
    assert [row["probes"] for row in rows["thinning"]][:4] == ["1", "2", "3", "4"]
    curves = [
        *document["examples"]["question"]["curves"],
        *(c for s in document["examples"]["shapes"] for c in s["curves"]),
    ]
    assert len(rows["examples"]) == sum(len(curve["retained_tokens"]) for curve in curves)
    assert {row["low"] for row in rows["intervals"]} == {"0.1", ""}
    assert all(rows.values())
