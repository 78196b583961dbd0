"""Snapshots go in whole or not at all, come out as they were, and cannot change once frozen."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from sqlalchemy import func, select, text
from sqlalchemy.orm import Session

from app.db import models
from app.files.snapshot import Snapshot, build_snapshot, make_public, read_snapshot
from app.services import snapshots
from app.services.measurements import labels_hidden

TABLES = (models.Snapshot, models.SnapshotModel, models.SnapshotBenchmark, models.Question, models.Trajectory)
MakeSnapshot = Callable[..., Snapshot]


@pytest.fixture
def odd_snapshot() -> Snapshot:
    """A snapshot with every optional column, odd texts, and names whose order depends on who sorts them."""
    names = ["a", "B", "_", "é", "Z", "10", "9", "ß 中"]
    prompt = 'tab\there, line\nbreak\r\n, back\\slash \\N, "quoted", {brace}, \u2028 and \U0001f600'
    questions = [
        {
            "benchmark": "maths",
            "question_id": name,
            "split": ("train", "validation", "test")[idx % 3],
            "prompt": prompt if idx % 2 else None,
            "reference_answer": "" if idx == 1 else str(idx),
            "difficulty": idx - 3 if idx else None,
        }
        for idx, name in enumerate(names)
    ]
    trajectories = [
        {
            "model": model,
            "benchmark": "maths",
            "question_id": name,
            "trajectory": 0,
            "thinking_tokens": 0 if idx == 0 else 3 + idx,
            "original_correct": (True, False, None)[idx % 3],
            "direct_correct": (None, True, False)[idx % 3],
            "retained_tokens": [0] if idx == 0 else [0, 2, 3 + idx],
            "correct_probes": [1] if idx == 0 else [0, 2, 1],
            "end_margin": [float("nan")] if idx == 0 else [0.1, float("inf"), -1e-45],
            "token_ids": [] if idx == 0 else [2**31 - 1, 0, *range(1 + idx)],
            "block_tokens": None if idx == 3 else [] if idx == 0 else [2, 1 + idx],
            "probe_answers": None
            if idx == 4
            else [["x\\n", None]]
            if idx == 0
            else [["", "a"], ["π", None], ['"', "\t"]],
            "step_logprob": [] if idx == 0 else [0.0, -1 / 3],
        }
        for model in ("model/one", "model two")
        for idx, name in enumerate(names)
    ]
    manifest = {
        "format": "stp-snapshot/1",
        "name": "odd",
        "title": "Odd “texts”",
        "kind": "measured",
        "created": "2026-01-02",
        "probes_per_position": 2,
        "trajectories_per_question": 1,
        # jsonb would rewrite these numbers, and the content hash covers them.
        "generator": {"seed": 10**30, "scale": 1e16, "share": 0.1, "tiny": 1e-7, "deep": {"b": [1.0, None], "a": {}}},
        "models": [{"name": "model/one", "sampling": {"temperature": 0.6}}, {"name": "model two"}],
        "benchmarks": [{"name": "maths"}, {"name": "unused"}],
    }
    return build_snapshot(manifest, pa.Table.from_pylist(questions), pa.Table.from_pylist(trajectories))


def count_rows(session: Session) -> list[int]:
    return [session.scalar(select(func.count()).select_from(table)) or 0 for table in TABLES]


def list_jobs(session: Session) -> list[dict[str, Any]]:
    return list(session.scalars(text("SELECT args FROM procrastinate_jobs WHERE status = 'todo' ORDER BY id")))


def test_round_trip(session: Session, odd_snapshot: Snapshot) -> None:
    stored = snapshots.import_snapshot(session, odd_snapshot)
    assert (stored.sha256, stored.state, stored.n_questions, stored.n_trajectories) == (
        odd_snapshot.sha256,
        "imported",
        8,
        16,
    )
    exported = snapshots.export_snapshot(session, "odd")
    assert exported.sha256 == odd_snapshot.sha256
    # As text, since NaN is not equal to itself.
    assert str(exported.questions.to_pylist()) == str(odd_snapshot.questions.to_pylist())
    assert str(exported.trajectories.to_pylist()) == str(odd_snapshot.trajectories.to_pylist())
    assert exported.manifest.raw["created"] == "2026-01-02"
    assert exported.manifest.models == ("model/one", "model two")


def test_real_snapshot_round_trip(session: Session, real_snapshot: Path) -> None:
    snapshot = read_snapshot(real_snapshot)
    snapshots.import_snapshot(session, snapshot)
    assert snapshots.export_snapshot(session, snapshot.manifest.name).sha256 == snapshot.sha256


def test_progress_reaches_the_number_of_trajectories(session: Session, board_snapshot: Snapshot) -> None:
    seen: list[tuple[int, int]] = []
    snapshots.import_snapshot(session, board_snapshot, progress=lambda what, done, total: seen.append((done, total)))
    total = board_snapshot.trajectories.num_rows
    assert seen[0] == (0, total)
    assert seen[-1] == (total, total)
    assert seen == sorted(seen)


def test_same_snapshot_twice(session: Session, board_snapshot: Snapshot) -> None:
    snapshots.import_snapshot(session, board_snapshot)
    before = count_rows(session)
    with pytest.raises(snapshots.SnapshotExistsError, match="with the same content"):
        snapshots.import_snapshot(session, board_snapshot)
    assert count_rows(session) == before


def test_other_content_under_the_same_name(session: Session, make_board_snapshot: MakeSnapshot) -> None:
    first, second = make_board_snapshot(seed=1), make_board_snapshot(seed=2)
    assert first.sha256 != second.sha256
    snapshots.import_snapshot(session, first)
    with pytest.raises(snapshots.SnapshotExistsError, match=second.sha256):
        snapshots.import_snapshot(session, second)
    assert snapshots.export_snapshot(session, "small").sha256 == first.sha256


def test_nothing_is_half_imported(session: Session, board_snapshot: Snapshot) -> None:
    before = count_rows(session)

    def stop(what: str, done: int, total: int) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), session.begin_nested():
        snapshots.import_snapshot(session, board_snapshot, progress=stop)
    assert count_rows(session) == before


def test_order_is_by_code_point(session: Session, odd_snapshot: Snapshot, tmp_path: Path) -> None:
    """A database's own order of texts depends on its locale; the order of units in a file must not."""
    stored = snapshots.import_snapshot(session, odd_snapshot)
    measurements = snapshots.load_measurements(session, stored, data_dir=tmp_path)
    assert measurements.cells[0].question_ids == ("10", "9", "B", "Z", "_", "a", "ß 中", "é")
    assert [(cell.model, cell.benchmark) for cell in measurements.cells] == [
        ("model/one", "maths"),
        ("model two", "maths"),
    ]


def test_unknown_name(session: Session) -> None:
    assert snapshots.find_snapshot(session, "nowhere") is None
    for act in (snapshots.get_snapshot, snapshots.export_snapshot, snapshots.freeze_snapshot):
        with pytest.raises(snapshots.UnknownSnapshotError, match="nowhere"):
            act(session, "nowhere")


def test_list_newest_first(session: Session, make_board_snapshot: MakeSnapshot) -> None:
    for name in ("one", "two"):
        snapshots.import_snapshot(session, make_board_snapshot(name))
    assert [stored.name for stored in snapshots.list_snapshots(session)] == ["two", "one"]


def test_splits_and_hidden_labels(session: Session, make_board_snapshot: MakeSnapshot) -> None:
    stored = snapshots.import_snapshot(session, make_board_snapshot(hidden_splits=["test"]))
    assert snapshots.list_splits(session, stored) == ["train", "validation", "test", "all"]
    hidden = {split: labels_hidden(stored, split) for split in ("train", "validation", "test", "all")}
    assert hidden == {"train": False, "validation": False, "test": True, "all": True}


def test_splits_without_questions_are_left_out(session: Session, odd_snapshot: Snapshot) -> None:
    questions = odd_snapshot.questions
    tested = questions.set_column(2, "split", pa.array(["test"] * questions.num_rows))
    stored = snapshots.import_snapshot(
        session, build_snapshot(odd_snapshot.manifest.raw, tested, odd_snapshot.trajectories)
    )
    assert snapshots.list_splits(session, stored) == ["test", "all"]
    assert not labels_hidden(stored, "all")


def test_freeze(session: Session, board_snapshot: Snapshot) -> None:
    snapshots.import_snapshot(session, board_snapshot)
    assert list_jobs(session) == []
    stored = snapshots.freeze_snapshot(session, "small")
    assert stored.is_frozen
    assert stored.frozen_at is not None
    assert stored.frozen_at.utcoffset() == timedelta(0)
    queued = [{"split": split, "snapshot_id": stored.id} for split in ("test", "all", "validation", "train")]
    assert list_jobs(session) == queued
    frozen_at = stored.frozen_at
    assert snapshots.freeze_snapshot(session, "small").frozen_at == frozen_at
    assert list_jobs(session) == queued


def test_all_splits_are_not_prepared_where_one_is_hidden(session: Session, make_board_snapshot: MakeSnapshot) -> None:
    """Less the open splits they would be the hidden one; a public export has no labels of a hidden split."""
    snapshots.import_snapshot(session, make_board_snapshot(hidden_splits=["test"]))
    snapshots.freeze_snapshot(session, "small")
    assert [job["split"] for job in list_jobs(session)] == ["test", "validation", "train"]


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE questions SET prompt = 'another one' WHERE id = (SELECT min(id) FROM questions)",
        'UPDATE snapshots SET manifest = \'{"name": "small"}\'',
        "DELETE FROM trajectories WHERE id = (SELECT min(id) FROM trajectories)",
    ],
)
def test_changed_rows_are_not_frozen(session: Session, board_snapshot: Snapshot, change: str) -> None:
    """The hash on boards and receipts must be that of what is scored."""
    stored = snapshots.import_snapshot(session, board_snapshot)
    session.execute(text(change))
    session.refresh(stored)
    for act in (snapshots.export_snapshot, snapshots.freeze_snapshot):
        with pytest.raises(snapshots.SnapshotChangedError, match=stored.sha256):
            act(session, "small")
    session.refresh(stored)
    assert not stored.is_frozen


def test_public_export(session: Session, make_board_snapshot: MakeSnapshot) -> None:
    snapshot = make_board_snapshot(hidden_splits=["test"])
    snapshots.import_snapshot(session, snapshot)
    public = make_public(snapshots.export_snapshot(session, "small"))
    assert public.full_sha256 == snapshot.sha256 != public.sha256
    # 24 questions of the test split, 2 models, 2 trajectories.
    assert public.trajectories["correct_probes"].null_count == 24 * 2 * 2


def test_public_export_is_imported_as_such(session: Session, make_board_snapshot: MakeSnapshot, tmp_path: Path) -> None:
    snapshot = make_board_snapshot(hidden_splits=["test"])
    stored = snapshots.import_snapshot(session, make_public(snapshot))
    assert stored.sha256 != stored.full_sha256 == snapshot.sha256
    measurements = snapshots.load_measurements(session, stored, data_dir=tmp_path)
    assert measurements.sha256 == snapshot.sha256
    assert not measurements.has_labels
    assert measurements.select("train").has_labels
    assert snapshots.export_snapshot(session, "small").full_sha256 == snapshot.sha256
