"""Stored replicates: the same for any number of processes and after an interruption, and never mixed up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.evaluator import replicate_store
from app.evaluator.measurements import Cell, Measurements
from app.evaluator.replicate_frontiers import ARRAYS, ReplicateFrontiers, compute_replicates
from app.evaluator.replicate_store import count_stored, load_replicates, run_bootstrap


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replicate_store, "BLOCK", 4)


@pytest.fixture
def measurements(
    random_questions: Callable[..., list[list[list[tuple[int, int]]]]],
    as_cell: Callable[..., Cell],
    as_measurements: Callable[[list[Cell]], Measurements],
) -> Measurements:
    rng = np.random.default_rng(3)
    return as_measurements(
        [
            as_cell(random_questions(rng, n_questions=6, per_question=3, probes=4), 4, benchmark=benchmark)
            for benchmark in ("easy", "hard")
        ]
    )


def same_bytes(one: ReplicateFrontiers, other: ReplicateFrontiers) -> bool:
    return all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in ARRAYS)


def test_one_and_two_processes_store_the_same_bytes(measurements: Measurements, tmp_path: Path) -> None:
    alone = run_bootstrap(measurements, folder=tmp_path / "one", n_replicates=10)
    shown: list[tuple[int, int]] = []
    shared = run_bootstrap(
        measurements,
        folder=tmp_path / "two",
        n_replicates=10,
        n_processes=2,
        progress=lambda what, done, total: shown.append((done, total)),
    )
    assert same_bytes(alone, shared)
    assert same_bytes(alone, compute_replicates(measurements, range(10)))
    files = [sorted(path.relative_to(folder) for path in folder.rglob("*")) for folder in tmp_path.iterdir()]
    assert files[0] == files[1]
    assert all((tmp_path / "one" / f).read_bytes() == (tmp_path / "two" / f).read_bytes() for f in files[0] if f.suffix)
    assert shown[0] == (0, 10)
    assert shown[-1] == (10, 10)
    assert [done for done, _ in shown] == sorted(done for done, _ in shown)


class Interruption(Exception):
    """Stands for Ctrl-C, which pytest would take for itself."""


@pytest.mark.parametrize("n_processes", [1, 2])
def test_an_interrupted_run_is_taken_up_again(measurements: Measurements, tmp_path: Path, n_processes: int) -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if done >= 8:
            raise Interruption

    with pytest.raises(Interruption):
        run_bootstrap(measurements, folder=tmp_path, n_replicates=30, n_processes=n_processes, progress=interrupt)
    kept = {path: path.stat().st_mtime_ns for path in tmp_path.glob("0*/*")}
    assert kept
    assert not list(tmp_path.glob(".tmp-*")) or n_processes == 2
    done: list[tuple[str, int]] = []
    resumed = run_bootstrap(
        measurements, folder=tmp_path, n_replicates=30, progress=lambda what, n, _: done.append((what, n))
    )
    assert done[0][1] >= 8
    assert "left" in done[1][0]
    assert all(path.stat().st_mtime_ns == modified for path, modified in kept.items())
    assert same_bytes(resumed, compute_replicates(measurements, range(30)))


def test_more_replicates_are_added_to_those_there_are(measurements: Measurements, tmp_path: Path) -> None:
    assert count_stored(tmp_path) == 0
    run_bootstrap(measurements, folder=tmp_path, n_replicates=6)
    assert count_stored(tmp_path) == 6
    more = run_bootstrap(measurements, folder=tmp_path, n_replicates=11)
    assert count_stored(tmp_path) == 11
    assert same_bytes(more, compute_replicates(measurements, range(11)))
    fewer = load_replicates(measurements, folder=tmp_path, n_replicates=5)
    assert same_bytes(fewer, compute_replicates(measurements, range(5)))


def test_a_folder_belongs_to_one_snapshot_split_and_seed(measurements: Measurements, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no replicates are stored"):
        load_replicates(measurements, folder=tmp_path, n_replicates=1)
    run_bootstrap(measurements, folder=tmp_path, n_replicates=4)
    for other in (replace(measurements, sha256="1" * 64), replace(measurements, split="test")):
        with pytest.raises(ValueError, match="another snapshot"):
            run_bootstrap(other, folder=tmp_path, n_replicates=4)
    with pytest.raises(ValueError, match="another snapshot"):
        load_replicates(measurements, folder=tmp_path, n_replicates=4, seed=1)
    with pytest.raises(ValueError, match="replicates 4 to 7 are not stored"):
        load_replicates(measurements, folder=tmp_path, n_replicates=8)
    with pytest.raises(ValueError, match="at least one"):
        run_bootstrap(measurements, folder=tmp_path, n_replicates=0)


def test_a_process_that_fails_is_reported(
    measurements: Measurements, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    hidden = replace(measurements.cells[0], correct_probes=measurements.cells[0].correct_probes * 0 - 1)
    with pytest.raises(RuntimeError, match="ended with status 1"):
        run_bootstrap(replace(measurements, cells=(hidden,)), folder=tmp_path, n_replicates=12, n_processes=2)
    assert "are hidden" in capfd.readouterr().err
