"""The bootstrap as jobs: in slices, stored once, taken up where a killed one left off, behind everything else."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text, update
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.evaluator.replicate_store import count_stored, run_bootstrap
from app.services import bootstrap, jobs, snapshots
from app.services.bootstrap import BootstrapProgress, begin_bootstrap, begin_missing, find_progress, run_slice

N_REPLICATES = 250


@pytest.fixture
def config(config: Config) -> Config:
    """Few replicates, in more than one block."""
    return replace(config, bootstrap_replicates=N_REPLICATES)


@pytest.fixture
def step(
    sessions: sessionmaker[Session], frozen: models.Snapshot, config: Config, session: Session
) -> Callable[[], Any]:
    """A function that does what the job does, once, and returns how far the bootstrap has come."""

    def run() -> BootstrapProgress | None:
        session.commit()
        run_slice(sessions, frozen.id, split="test", config=config)
        session.expire_all()
        return find_progress(session, frozen.id, split="test")

    return run


@pytest.fixture
def in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slices of one block."""
    monkeypatch.setattr(bootstrap, "SLICE_SECONDS", -1.0)


def list_jobs(session: Session, name: str = jobs.BOOTSTRAP_SPLIT) -> list[tuple[Any, ...]]:
    query = text("SELECT args->>'split', priority FROM procrastinate_jobs WHERE task_name = :name ORDER BY id")
    return [tuple(row) for row in session.execute(query, {"name": name})]


def clear_jobs(session: Session) -> None:
    session.execute(text("DELETE FROM procrastinate_jobs"))


def test_begun_once_with_the_number_of_that_time(session: Session, frozen: models.Snapshot, config: Config) -> None:
    assert find_progress(session, frozen.id, split="test") is None
    for n_replicates in (N_REPLICATES, 7):
        begin_bootstrap(session, frozen, split="test", config=replace(config, bootstrap_replicates=n_replicates))
    assert find_progress(session, frozen.id, split="test") == BootstrapProgress(0, N_REPLICATES, None)
    assert list_jobs(session) == [("test", jobs.BOOTSTRAP_PRIORITY)]


def test_missing_ones_are_begun_for_every_split(session: Session, frozen: models.Snapshot, config: Config) -> None:
    """A snapshot that was frozen before there were bootstraps, and one whose job got lost."""
    begin_missing(session, config=config)
    assert {split for split, _ in list_jobs(session)} == {"train", "validation", "test", "all"}
    session.execute(text("DELETE FROM procrastinate_jobs WHERE args->>'split' = 'train'"))
    begin_missing(session, config=config)
    assert sorted(split for split, _ in list_jobs(session)) == ["all", "test", "train", "validation"]


def test_nothing_of_hidden_labels(session: Session, make_board_snapshot: Callable[..., Any], config: Config) -> None:
    hidden = make_board_snapshot("hidden", hidden_splits=["test"])
    snapshots.import_snapshot(session, hidden)
    stored = snapshots.freeze_snapshot(session, "hidden")
    # A single hidden split has ranks and intervals, told in steps; all splits together would give it away.
    begin_bootstrap(session, stored, split="all", config=config)
    assert find_progress(session, stored.id, split="all") is None


@pytest.mark.usefixtures("in_slices")
def test_slices_until_it_is_done(
    session: Session, step: Callable[[], Any], frozen: models.Snapshot, config: Config, board_snapshot: Any
) -> None:
    begin_bootstrap(session, frozen, split="test", config=config)
    clear_jobs(session)
    assert step() == BootstrapProgress(100, N_REPLICATES, None)
    assert list_jobs(session) == [("test", jobs.BOOTSTRAP_PRIORITY)]
    assert step().n_done == 200
    clear_jobs(session)
    assert step().is_finished
    assert step().is_finished
    assert list_jobs(session) == []
    assert count_stored(bootstrap.replicates_folder(config, frozen, "test")) == N_REPLICATES


def test_a_waiting_job_ends_a_slice(
    session: Session, step: Callable[[], Any], frozen: models.Snapshot, config: Config
) -> None:
    begin_bootstrap(session, frozen, split="test", config=config)
    clear_jobs(session)
    jobs.defer_scoring(session, "abcdefghijkl")
    assert step().n_done == 100
    clear_jobs(session)
    assert step().is_finished


def test_what_a_killed_job_stored_is_not_computed_again(
    session: Session, step: Callable[[], Any], frozen: models.Snapshot, config: Config, desk: Any
) -> None:
    """The job was killed after it had stored a block and before it could say so."""
    begin_bootstrap(session, frozen, split="test", config=config)
    folder = bootstrap.replicates_folder(config, frozen, "test")
    run_bootstrap(desk.measurements.select("test"), folder=folder, n_replicates=100)
    (block,) = folder.glob("00000000-*")
    before = block.stat().st_mtime_ns
    clear_jobs(session)
    assert step().is_finished
    assert block.stat().st_mtime_ns == before


def test_a_failure_is_told_and_tried_again_by_the_next_worker(
    session: Session, step: Callable[[], Any], frozen: models.Snapshot, config: Config
) -> None:
    begin_bootstrap(session, frozen, split="test", config=config)
    clear_jobs(session)
    folder = bootstrap.replicates_folder(config, frozen, "test")
    folder.parent.mkdir(parents=True)
    folder.write_text("in the way")
    progress = step()
    assert "File exists" in progress.failure_reason
    begin_missing(session, config=config)
    assert "test" not in {split for split, _ in list_jobs(session)}
    folder.unlink()
    bootstrap.forget_failures(session)
    begin_missing(session, config=config)
    assert "test" in {split for split, _ in list_jobs(session)}
    clear_jobs(session)
    assert step().is_finished


def test_lost_replicates_are_computed_again(
    session: Session, step: Callable[[], Any], frozen: models.Snapshot, config: Config, desk: Any
) -> None:
    begin_bootstrap(session, frozen, split="test", config=config)
    clear_jobs(session)
    assert step().is_finished
    measurements = desk.measurements.select("test")
    found = bootstrap.load_split_replicates(session, frozen, measurements, config=config)
    assert found is not None
    assert found.n_replicates == N_REPLICATES
    shutil.rmtree(bootstrap.replicates_folder(config, frozen, "test"))
    assert bootstrap.load_split_replicates(session, frozen, measurements, config=config) is None
    assert list_jobs(session) == [("test", jobs.BOOTSTRAP_PRIORITY)]
    clear_jobs(session)
    assert step().is_finished


def test_counts_that_cannot_be(session: Session, frozen: models.Snapshot, config: Config) -> None:
    begin_bootstrap(session, frozen, split="test", config=config)
    with pytest.raises(Exception, match="ck_split_replicates_finished_at"), session.begin_nested():
        session.execute(update(models.SplitReplicates).values(n_done=N_REPLICATES))
