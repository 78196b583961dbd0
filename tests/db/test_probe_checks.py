"""The tables of probe runs refuse what cannot be true."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert, select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db import models
from tests.measured_runs import create_run, make_run

TRAJECTORY = {
    "trajectory": 7,
    "token_ids": [5, 6, 7],
    "block_tokens": [1, 2],
    "retained_tokens": [0, 3],
    "correct_probes": [0, 4],
    "end_margin": [0.5, float("inf")],
    "original_answer": None,
    "original_correct": False,
    "direct_answer": None,
    "direct_correct": None,
    "hit_limit": False,
    "n_unextracted": 0,
    "answers": b"",
    "grader_version": "1",
}


@pytest.fixture
def item_id(session: Session) -> int:
    """A question that is measured."""
    run = make_run(session)
    return session.scalars(select(models.ProbeItem.id).where(models.ProbeItem.probe_run_id == run.id).limit(1)).one()


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"token_ids": [], "block_tokens": [], "retained_tokens": [0], "correct_probes": [0], "end_margin": [1.0]},
        {"end_margin": None, "direct_answer": "4", "direct_correct": True},
    ],
    ids=["plain", "empty trajectory", "optional columns"],
)
def test_sound_trajectories_are_taken(session: Session, item_id: int, values: dict[str, Any]) -> None:
    session.execute(insert(models.ProbeTrajectory).values({**TRAJECTORY, **values, "probe_item_id": item_id}))


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ({"trajectory": 0}, "uq_probe_trajectories_probe_item_id_trajectory"),
        ({"trajectory": -1}, "ck_probe_trajectories_trajectory"),
        ({"retained_tokens": [0, 2]}, "ck_probe_trajectories_token_ids"),
        (
            {"retained_tokens": [0, 0, 3], "correct_probes": [0, 0, 4], "end_margin": None},
            "ck_probe_trajectories_retained_tokens_increase",
        ),
        ({"retained_tokens": [1, 3]}, "ck_probe_trajectories_retained_tokens_start"),
        ({"correct_probes": [0, 4, 4]}, "ck_probe_trajectories_correct_probes_length"),
        ({"correct_probes": [0, -1]}, "ck_probe_trajectories_correct_probes"),
        ({"end_margin": [0.5]}, "ck_probe_trajectories_end_margin_length"),
        ({"block_tokens": [0, 3]}, "ck_probe_trajectories_block_tokens"),
        ({"n_unextracted": -1}, "ck_probe_trajectories_n_unextracted"),
        ({"direct_correct": True}, "ck_probe_trajectories_direct"),
    ],
)
def test_unsound_trajectories_are_refused(
    session: Session, item_id: int, values: dict[str, Any], constraint: str
) -> None:
    with pytest.raises(IntegrityError) as caught:
        session.execute(insert(models.ProbeTrajectory).values({**TRAJECTORY, **values, "probe_item_id": item_id}))
    assert caught.value.orig is not None
    assert caught.value.orig.diag.constraint_name == constraint  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ({"state": "running"}, "ck_probe_items_lease"),
        ({"actor": "somebody"}, "ck_probe_items_lease"),
        ({"state": "done", "finished_at": text("now()")}, "ck_probe_items_accounting"),
        ({"seconds": 1.0}, "ck_probe_items_accounting"),
        ({"state": "failed", "reason": "r"}, "ck_probe_items_finished_at"),
        ({"state": "failed", "finished_at": text("now()")}, "ck_probe_items_reason"),
        ({"state": "lost"}, "ck_probe_items_state"),
        ({"split": "all"}, "ck_probe_items_split"),
        ({"attempts": -1}, "ck_probe_items_attempts"),
    ],
)
def test_questions_that_cannot_be_are_refused(session: Session, values: dict[str, Any], constraint: str) -> None:
    run = create_run(session)
    with pytest.raises(IntegrityError) as caught:
        session.execute(update(models.ProbeItem).where(models.ProbeItem.probe_run_id == run.id).values(**values))
    assert caught.value.orig is not None
    assert caught.value.orig.diag.constraint_name == constraint  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "constraint"),
    [
        ({"state": "finished"}, "ck_probe_runs_finished_at"),
        ({"finished_at": text("now()")}, "ck_probe_runs_finished_at"),
        ({"state": "failed", "finished_at": text("now()")}, "ck_probe_runs_failure_reason"),
        ({"state": "assembled", "finished_at": text("now()")}, "ck_probe_runs_snapshot_id"),
        ({"started_at": None}, "ck_probe_runs_started_at"),
        ({"name": "Not A Slug"}, "ck_probe_runs_name"),
        ({"n_questions": 0}, "ck_probe_runs_n_questions"),
        ({"engine_key": "x"}, "ck_probe_runs_engine_key"),
    ],
)
def test_runs_that_cannot_be_are_refused(session: Session, values: dict[str, Any], constraint: str) -> None:
    run = create_run(session)
    with pytest.raises(IntegrityError) as caught:
        session.execute(update(models.ProbeRun).where(models.ProbeRun.id == run.id).values(**values))
    assert caught.value.orig is not None
    assert caught.value.orig.diag.constraint_name == constraint  # type: ignore[attr-defined]


def test_a_question_is_in_a_run_once(session: Session) -> None:
    run = create_run(session)
    first = session.scalars(select(models.ProbeItem).where(models.ProbeItem.probe_run_id == run.id).limit(1)).one()
    copied = {
        name: getattr(first, name)
        for name in ("probe_run_id", "question_set_id", "benchmark", "question_id", "split", "document")
    }
    with pytest.raises(IntegrityError, match="uq_probe_items_probe_run_id_benchmark_question_id"):
        session.execute(insert(models.ProbeItem).values(**copied, idx=99))
