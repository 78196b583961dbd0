"""The tables refuse what cannot be true."""

from __future__ import annotations

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db import models


@pytest.fixture
def snapshot(session: Session) -> models.Snapshot:
    stored = models.Snapshot(
        name="checks",
        title="Checks",
        kind="measured",
        sha256="e" * 64,
        manifest={},
        probes_per_position=4,
        trajectories_per_question=1,
        n_questions=1,
        n_trajectories=1,
    )
    session.add(stored)
    session.flush()
    return stored


@pytest.fixture
def trajectory(session: Session, snapshot: models.Snapshot) -> dict[str, object]:
    """The values of a sound trajectory, not stored yet."""
    model = models.SnapshotModel(snapshot_id=snapshot.id, idx=0, name="m")
    benchmark = models.SnapshotBenchmark(snapshot_id=snapshot.id, idx=0, name="b")
    session.add_all([model, benchmark])
    session.flush()
    question = models.Question(snapshot_id=snapshot.id, benchmark_id=benchmark.id, question_id="q", split="test")
    session.add(question)
    session.flush()
    return {
        "snapshot_id": snapshot.id,
        "model_id": model.id,
        "question_pk": question.id,
        "trajectory": 0,
        "thinking_tokens": 9,
        "retained_tokens": [0, 4, 9],
        "correct_probes": [0, 4, 2],
    }


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"correct_probes": None},
        {"retained_tokens": [0], "correct_probes": [1], "thinking_tokens": 0},
        {"end_margin": [0.5, float("nan"), float("-inf")], "block_tokens": [4, 5], "token_ids": [7] * 9},
    ],
    ids=["plain", "hidden labels", "empty trajectory", "optional columns"],
)
def test_sound_trajectories(session: Session, trajectory: dict[str, object], values: dict[str, object]) -> None:
    session.execute(insert(models.Trajectory).values({**trajectory, **values}))


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ({"retained_tokens": [1, 4, 9]}, "retained_tokens_start"),
        ({"retained_tokens": [0, 9, 9]}, "retained_tokens_increase"),
        ({"retained_tokens": [0, 10, 9]}, "retained_tokens_increase"),
        ({"retained_tokens": [0, None, 9]}, "retained_tokens_increase"),
        ({"retained_tokens": [], "correct_probes": None}, "retained_tokens_increase"),
        ({"thinking_tokens": 8}, "thinking_tokens"),
        ({"correct_probes": [0, -1, 2]}, "correct_probes"),
        ({"correct_probes": [0, None, 2]}, "correct_probes"),
        ({"correct_probes": [0, 1]}, "correct_probes_length"),
        ({"end_margin": [0.5]}, "end_margin_length"),
        ({"token_ids": [-1] * 9}, "token_ids"),
        ({"token_ids": [1] * 8}, "token_ids_length"),
        ({"step_logprob": [-0.5] * 3}, "step_logprob_length"),
        ({"block_tokens": [0]}, "block_tokens"),
        ({"trajectory": -1}, "trajectory"),
    ],
)
def test_impossible_trajectories(
    session: Session, trajectory: dict[str, object], values: dict[str, object], constraint: str
) -> None:
    with pytest.raises(IntegrityError) as refused, session.begin_nested():
        session.execute(insert(models.Trajectory).values({**trajectory, **values}))
    assert refused.value.orig is not None
    assert refused.value.orig.diag.constraint_name == f"ck_trajectories_{constraint}"  # type: ignore[attr-defined]


def test_question_of_another_snapshot(session: Session, trajectory: dict[str, object]) -> None:
    other = models.Snapshot(
        name="other",
        title="Other",
        kind="synthetic",
        sha256="f" * 64,
        manifest={},
        probes_per_position=4,
        trajectories_per_question=1,
        n_questions=0,
        n_trajectories=0,
    )
    session.add(other)
    session.flush()
    with pytest.raises(IntegrityError, match="fk_trajectories_snapshot_id"), session.begin_nested():
        session.execute(insert(models.Trajectory).values({**trajectory, "snapshot_id": other.id}))


FRONTIER = {
    "split": "test",
    "strategy": "fixed_budget",
    "model": None,
    "benchmark": None,
    "n_cells": 1,
    "min_questions": 1,
    "full_accuracy": 0.5,
    "beta_match": None,
    "max_accuracy": 0.5,
    "beta_sat": 1.0,
    "area": 0.5,
    "uninformed_area": 0.5,
    "grid_accuracy": [0.5],
    "uninformed_grid": [0.5],
    "evaluator_version": "1",
}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("area", float("nan")),
        ("area", 1.5),
        ("beta_match", -0.1),
        ("beta_sat", float("inf")),
        ("split", "dev"),
        ("strategy", "routing"),
        ("n_cells", 0),
    ],
)
def test_impossible_frontiers(session: Session, snapshot: models.Snapshot, column: str, value: object) -> None:
    """NaN sorts above every number in PostgreSQL; a CHECK with a lower bound alone lets it in."""
    with pytest.raises(IntegrityError, match=f"ck_board_frontiers_({column}|counts)"), session.begin_nested():
        session.execute(insert(models.BoardFrontier).values(snapshot_id=snapshot.id, **{**FRONTIER, column: value}))


def test_one_whole_board(session: Session, snapshot: models.Snapshot) -> None:
    """Two NULLs are different to a plain unique constraint, and there would be two boards of the whole snapshot."""
    session.execute(insert(models.BoardFrontier).values(snapshot_id=snapshot.id, **FRONTIER))
    with pytest.raises(IntegrityError, match="uq_board_frontiers_board"), session.begin_nested():
        session.execute(insert(models.BoardFrontier).values(snapshot_id=snapshot.id, **FRONTIER))


def test_submission_ids_are_safe_and_differ() -> None:
    ids = {models.new_submission_id() for _ in range(500)}
    assert len(ids) == 500
    assert all(len(name) == 12 and name.isalnum() and name.isascii() for name in ids)
