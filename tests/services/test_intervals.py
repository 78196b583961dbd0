"""Intervals as jobs: in slices that give way, taken up where a killed one left off, the same as in one go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, text, update
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.evaluator import submission_intervals
from app.evaluator.centring import INTERVAL_VERSION
from app.evaluator.frontier import solve_frontiers
from app.evaluator.reference import build_references
from app.evaluator.replicate_frontiers import compute_replicates
from app.evaluator.resampled_settings import find_stops
from app.evaluator.scoring import score_actions
from app.evaluator.strategies import Strategy
from app.evaluator.submission_intervals import (
    list_estimates,
    prepare_submission,
    resample_rows,
    summarise_submission,
)
from app.files.actions import read_actions
from app.files.documents import intervals_document
from app.services import interval_parts, intervals, jobs
from app.services.accounts import Identity
from app.services.bootstrap import begin_bootstrap, begin_missing, run_slice
from app.services.intervals import resample_submission
from app.services.scoring import get_score
from app.services.submissions import withdraw_submission
from app.services.uploads import upload_path

N_REPLICATES = 100


@pytest.fixture
def config(config: Config) -> Config:
    """Few replicates."""
    return replace(config, bootstrap_replicates=N_REPLICATES)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three blocks: 40 replicates, 40, and 20."""
    monkeypatch.setattr(submission_intervals, "BLOCK", 40)


@pytest.fixture
def in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of one block."""
    monkeypatch.setattr(intervals, "SLICE_SECONDS", -1.0)


@pytest.fixture
def submission_id(
    session: Session,
    sessions: sessionmaker[Session],
    frozen: models.Snapshot,
    config: Config,
    desk: Any,
    author: Identity,
    make_caps: Callable[..., bytes],
) -> str:
    """A scored submission of a split whose replicates are there."""
    begin_bootstrap(session, frozen, split="test", config=config)
    session.commit()
    run_slice(sessions, frozen.id, split="test", config=config)
    # Two settings, so that the method's curve has something to choose from.
    content = make_caps(150) + b"\n" + make_caps(400, setting="two").split(b"\n", 1)[1]
    scored: str = desk.submit(author, content)
    desk.score(scored)
    clear_jobs(session)
    return scored


@pytest.fixture
def step(
    session: Session, sessions: sessionmaker[Session], config: Config, submission_id: str
) -> Callable[[], list[str]]:
    """A function that does what the job does, once, and returns the names of the parts it leaves."""

    def run() -> list[str]:
        session.commit()
        resample_submission(sessions, submission_id, config=config)
        session.expire_all()
        return list_parts(config, submission_id)

    return run


def list_parts(config: Config, submission_id: str) -> list[str]:
    return sorted(path.name for path in interval_parts.parts_folder(config.data_dir, submission_id).glob("*"))


def list_jobs(session: Session) -> list[tuple[Any, ...]]:
    query = text("SELECT task_name, priority FROM procrastinate_jobs ORDER BY id")
    return [tuple(row) for row in session.execute(query)]


def clear_jobs(session: Session) -> None:
    session.execute(text("DELETE FROM procrastinate_jobs"))
    session.commit()


def list_stored(session: Session) -> list[tuple[Any, ...]]:
    board, interval = models.BoardScore, models.BoardInterval
    query = (
        select(board.model, board.benchmark, interval.intervals, interval.replicates)
        .join(interval, interval.board_score_id == board.id)
        .order_by(board.id)
    )
    return [tuple(row) for row in session.execute(query)]


def compute_in_one_go(desk: Any, config: Config, submission_id: str) -> list[tuple[Any, ...]]:
    """Compute what is to be stored, all replicates at once, from the file."""
    measurements = desk.measurements.select("test")
    submission = desk.session.get(models.Submission, submission_id)
    path = upload_path(config.data_dir, submission.actions_sha256)
    table = read_actions(
        path, desk.measurements, strategy=Strategy.FIXED_BUDGET, split="test", filename="actions.csv"
    ).table
    replicates = compute_replicates(measurements, range(N_REPLICATES))
    prepared = prepare_submission(measurements, table.strategy, find_stops(measurements, table))
    values = resample_rows(prepared, replicates, range(N_REPLICATES))
    references = build_references(measurements, table.strategy, solve_frontiers(measurements))
    estimates = list_estimates(score_actions(measurements, table, references))
    boards = summarise_submission(prepared, replicates, values, estimates).boards
    return [
        (board.model, board.benchmark, document, board.values["realised_potential"].astype("<f8").tobytes())
        for board in boards
        if (document := intervals_document(board)) is not None
    ]


@pytest.mark.usefixtures("in_slices")
def test_slices_until_it_is_done_store_the_bytes_of_one_go(
    session: Session, step: Callable[[], list[str]], config: Config, desk: Any, submission_id: str
) -> None:
    waiting = [(jobs.RESAMPLE_SUBMISSION, jobs.RESAMPLING_PRIORITY)]
    first, second = "00000000-00000040.npy", "00000040-00000080.npy"
    assert step() == [first, "stops.npz"]
    assert list_jobs(session) == waiting
    clear_jobs(session)
    assert step() == [first, second, "stops.npz"]
    assert list_jobs(session) == waiting
    assert list_stored(session) == []
    clear_jobs(session)
    assert step() == []
    assert [name for name, _ in list_jobs(session)] == [jobs.RANK_BOARDS]
    stored = list_stored(session)
    assert stored == compute_in_one_go(desk, config, submission_id)
    # The whole board, two models, one benchmark and two cells; the others have three questions.
    assert len(stored) == 6
    assert step() == []
    assert list_stored(session) == stored


def test_a_waiting_job_ends_a_slice(session: Session, step: Callable[[], list[str]]) -> None:
    jobs.defer_scoring(session, "abcdefghijkl")
    assert len(step()) == 2
    clear_jobs(session)
    assert step() == []
    assert len(list_stored(session)) == 6


@pytest.mark.usefixtures("in_slices")
def test_what_a_killed_job_kept_is_not_computed_again(
    session: Session,
    step: Callable[[], list[str]],
    config: Config,
    desk: Any,
    submission_id: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was killed while it wrote its second part; the file is gone, which only its first slice needs."""
    step()
    folder = interval_parts.parts_folder(config.data_dir, submission_id)
    (folder / ".tmp-half").write_bytes(b"\x93NUMPY")
    expected = compute_in_one_go(desk, config, submission_id)
    submission = session.get_one(models.Submission, submission_id)
    upload_path(config.data_dir, submission.actions_sha256).unlink()
    # What is kept is taken as it is, so a figure that was changed is found again.
    part = folder / "00000000-00000040.npy"
    values = np.load(part)
    values[0, 0, 0] += 1.0
    np.save(part, values)
    monkeypatch.setattr(intervals, "SLICE_SECONDS", 60.0)
    clear_jobs(session)
    assert step() == []
    assert not folder.exists()
    potentials = [np.frombuffer(row[-1], "<f8") for row in list_stored(session)]
    changed = np.frombuffer(expected[0][-1], "<f8").copy()
    changed[0] += 1.0
    assert potentials[0].tolist() == changed.tolist()
    assert [row[-1] for row in list_stored(session)[1:]] == [row[-1] for row in expected[1:]]


@pytest.mark.usefixtures("in_slices")
@pytest.mark.parametrize("name", ["stops.npz", "00000000-00000040.npy"])
def test_a_part_that_is_not_whole_is_made_again(
    session: Session, step: Callable[[], list[str]], config: Config, desk: Any, submission_id: str, name: str
) -> None:
    step()
    path: Path = interval_parts.parts_folder(config.data_dir, submission_id) / name
    path.write_bytes(path.read_bytes()[:100])
    for _ in range(3):
        clear_jobs(session)
        parts = step()
    assert parts == []
    assert list_stored(session) == compute_in_one_go(desk, config, submission_id)


@pytest.mark.usefixtures("in_slices")
def test_leftovers_are_swept_and_what_goes_on_is_not(
    session: Session, step: Callable[[], list[str]], config: Config, submission_id: str, author: Identity
) -> None:
    assert interval_parts.sweep_parts(session, data_dir=config.data_dir) == 0
    kept = step()
    folder = interval_parts.parts_folder(config.data_dir, submission_id)
    other_version = folder.with_name(f"{submission_id}.0.0")
    other_version.mkdir()
    assert interval_parts.sweep_parts(session, data_dir=config.data_dir) == 1
    assert not other_version.exists()
    assert list_parts(config, submission_id) == kept
    withdraw_submission(session, submission_id, account=author)
    assert interval_parts.sweep_parts(session, data_dir=config.data_dir) == 1
    assert not folder.exists()


def test_what_a_job_left_that_had_stored_all_is_swept(
    session: Session, step: Callable[[], list[str]], config: Config, submission_id: str
) -> None:
    """It was killed between the two."""
    assert step() == []
    folder = interval_parts.parts_folder(config.data_dir, submission_id)
    folder.mkdir()
    assert interval_parts.sweep_parts(session, data_dir=config.data_dir) == 1
    assert not folder.exists()


def test_intervals_made_in_another_way_are_made_anew(
    session: Session, step: Callable[[], list[str]], config: Config, submission_id: str, author: Identity
) -> None:
    """After an upgrade: literal percentiles are not shown, and the next look round queues what takes their place."""
    step()
    expected = list_stored(session)
    table = models.BoardInterval
    session.execute(update(table).values(version="1", intervals={"area": [0, 1]}, realised_potential_low=-1.0))
    clear_jobs(session)
    assert not get_score(session, submission_id, account=author).has_intervals
    begin_missing(session, config=config)
    begin_missing(session, config=config)
    waiting = [job for job in list_jobs(session) if job[0] == jobs.RESAMPLE_SUBMISSION]
    assert waiting == [(jobs.RESAMPLE_SUBMISSION, jobs.RESAMPLING_PRIORITY)]
    clear_jobs(session)
    step()
    assert list_stored(session) == expected
    assert set(session.scalars(select(table.version))) == {INTERVAL_VERSION}
    assert get_score(session, submission_id, account=author).has_intervals
    clear_jobs(session)
    begin_missing(session, config=config)
    assert jobs.RESAMPLE_SUBMISSION not in dict(list_jobs(session))
