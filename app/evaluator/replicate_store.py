"""Bootstrap replicates on disk: computed block by block in several processes, kept, and taken up again."""

from __future__ import annotations

import json
import math
import multiprocessing
import shutil
import signal
import tempfile
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import numpy as np

from app.evaluator.draws import BOOTSTRAP_SEED
from app.evaluator.measurements import Measurements
from app.evaluator.replicate_frontiers import (
    ARRAYS,
    Progress,
    ReplicateFrontiers,
    concatenate_replicates,
    prepare_cell,
    resample_cells,
)

BLOCK = 100
"""Replicates are computed and stored so many at a time; an interruption loses at most one block per process."""
N_REPLICATES = 10_000

_FORMAT = 1
_DESCRIPTION = "replicates.json"
_STALE_SECONDS = 3600.0


def run_bootstrap(
    measurements: Measurements,
    *,
    folder: Path,
    n_replicates: int = N_REPLICATES,
    seed: int = BOOTSTRAP_SEED,
    n_processes: int = 1,
    progress: Progress | None = None,
) -> ReplicateFrontiers:
    """Compute the replicates that a folder lacks, and return the first `n_replicates` of them.

    What is stored is the same to the byte for any number of processes, and after any interruption: each block is
    computed from its numbers alone and appears in the folder whole or not at all.

    Parameters
    ----------
    folder : made if it does not exist; belongs to one snapshot, split and seed.
    n_processes : with 1 the work is done in this process.
    progress : called after each block with what is done and the time left, how many of how many replicates are there.

    Raises
    ------
    ValueError : the folder holds the replicates of another snapshot, split or seed; hidden labels.
    RuntimeError : a process ended before its work was done.

    Notes
    -----
    Section 5. On Ctrl-C the processes are ended at once; what is stored stays and the next call goes on from there.

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (40, 4), (100, 2)]])], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     run_bootstrap(measurements, folder=Path(folder), n_replicates=3).n_replicates
    3
    """
    if n_replicates < 1:
        raise ValueError(f"at least one replicate is needed, got {n_replicates}")
    folder.mkdir(parents=True, exist_ok=True)
    _claim_folder(measurements, folder, seed=seed)
    missing = [block for block in _list_blocks(n_replicates) if _find_block(folder, block) is None]
    clock = _Clock(progress, done=n_replicates - sum(map(len, missing)), total=n_replicates)
    clock.show()
    n_working = min(n_processes, len(missing))
    if n_working > 1:
        _run_processes(measurements, missing, seed=seed, folder=folder, n_processes=n_working, clock=clock)
    elif missing:
        prepared = [prepare_cell(cell) for cell in measurements.cells]
        for block in missing:
            _save_block(resample_cells(prepared, block, seed=seed), folder)
            clock.advance(len(block))
    return load_replicates(measurements, folder=folder, n_replicates=n_replicates, seed=seed)


def load_replicates(
    measurements: Measurements, *, folder: Path, n_replicates: int, seed: int = BOOTSTRAP_SEED
) -> ReplicateFrontiers:
    """Return the first replicates of a folder.

    Raises
    ------
    ValueError : it holds another snapshot's, or too few (none, if the folder does not exist).
    """
    if not (folder / _DESCRIPTION).exists():
        raise ValueError("no replicates are stored there")
    _claim_folder(measurements, folder, seed=seed)
    blocks = []
    for block in _list_blocks(n_replicates):
        path = _find_block(folder, block)
        if path is None:
            raise ValueError(f"replicates {block.start} to {block.stop - 1} are not stored")
        blocks.append(_load_block(measurements, path, seed=seed, first=block.start))
    return concatenate_replicates(blocks).take(n_replicates)


def count_stored(folder: Path) -> int:
    """Return how many replicates, from the first one on without a gap, a folder holds."""
    stored = 0
    while True:
        stops = [_stop(path) for path in folder.glob(f"{stored:08d}-*")]
        if not stops:
            return stored
        stored = max(stops)


def _list_blocks(n_replicates: int) -> list[range]:
    return [range(start, min(start + BLOCK, n_replicates)) for start in range(0, n_replicates, BLOCK)]


def _find_block(folder: Path, block: range) -> Path | None:
    """Return where a block is stored, maybe with more replicates behind it."""
    stored = [path for path in folder.glob(f"{block.start:08d}-*") if _stop(path) >= block.stop]
    return max(stored, default=None, key=_stop)


def _stop(path: Path) -> int:
    return int(path.name.rpartition("-")[2])


def _claim_folder(measurements: Measurements, folder: Path, *, seed: int) -> None:
    """Write what the folder is for, or check it."""
    description = {
        "format": _FORMAT,
        "snapshot_sha256": measurements.sha256,
        "split": measurements.split,
        "seed": seed,
        "cells": [[cell.model, cell.benchmark, cell.n_questions] for cell in measurements.cells],
    }
    path = folder / _DESCRIPTION
    if not path.exists():
        with tempfile.TemporaryDirectory(prefix=".tmp-", dir=folder) as temporary:
            written = Path(temporary) / _DESCRIPTION
            written.write_text(json.dumps(description, indent=1), encoding="utf-8")
            written.replace(path)
    if json.loads(path.read_text(encoding="utf-8")) != description:
        raise ValueError("the folder holds replicates of another snapshot, split or seed")


def _save_block(block: ReplicateFrontiers, folder: Path) -> None:
    """Write a block under a temporary name and rename it; one that another process has stored meanwhile stays."""
    for old in folder.glob(".tmp-*"):
        # Left by a process that was killed; one that is being written is never that old.
        if time.time() - old.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(old, ignore_errors=True)
    temporary = Path(tempfile.mkdtemp(prefix=".tmp-", dir=folder))
    try:
        for name in ARRAYS:
            np.save(temporary / f"{name}.npy", getattr(block, name), allow_pickle=False)
        target = folder / f"{block.first:08d}-{block.first + block.n_replicates:08d}"
        if not target.exists():
            temporary.rename(target)
    except OSError:
        if not target.exists():
            raise
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _load_block(measurements: Measurements, path: Path, *, seed: int, first: int) -> ReplicateFrontiers:
    cells = measurements.cells
    arrays: dict[str, Any] = {name: np.load(path / f"{name}.npy", allow_pickle=False) for name in ARRAYS}
    return ReplicateFrontiers(
        cells=tuple((cell.model, cell.benchmark) for cell in cells),
        n_questions=np.array([cell.n_questions for cell in cells]),
        total_probes=np.array([cell.total_probes for cell in cells]),
        trajectories_per_question=measurements.trajectories_per_question,
        seed=seed,
        first=first,
        **arrays,
    )


class _Clock:
    """Counts what is done and tells, with the time that the rest will take at the pace so far."""

    def __init__(self, progress: Progress | None, *, done: int, total: int) -> None:
        self._progress, self._done, self._total = progress, done, total
        self._first, self._start = done, time.monotonic()

    def advance(self, n: int) -> None:
        self._done += n
        self.show()

    def show(self) -> None:
        if self._progress is None:
            return
        what = "resampling"
        computed = self._done - self._first
        if computed and self._done < self._total:
            left = (time.monotonic() - self._start) / computed * (self._total - self._done)
            what = f"resampling, {_format_seconds(left)} left"
        self._progress(what, self._done, self._total)


def _format_seconds(seconds: float) -> str:
    whole = math.ceil(seconds)
    return f"{whole} s" if whole < 120 else f"{round(whole / 60)} min"


def _run_processes(
    measurements: Measurements, blocks: Sequence[range], *, seed: int, folder: Path, n_processes: int, clock: _Clock
) -> None:
    """Deal the blocks out to processes and wait for all of them; none outlives this call."""
    context = multiprocessing.get_context("spawn")
    processes = {}
    try:
        for i in range(n_processes):
            receiver, sender = context.Pipe(duplex=False)
            arguments = (measurements, blocks[i::n_processes], seed, folder, sender)
            process = context.Process(target=_work, args=arguments, daemon=True)
            process.start()
            sender.close()
            processes[receiver] = process
        while processes:
            ready = wait(list(processes))
            for receiver in [r for r in processes if r in ready]:
                try:
                    clock.advance(receiver.recv())
                except EOFError as exc:
                    process = processes.pop(receiver)
                    process.join()
                    if process.exitcode != 0:
                        raise RuntimeError(f"a resampling process ended with status {process.exitcode}") from exc
    finally:
        for process in processes.values():
            process.terminate()
            process.join()


def _work(measurements: Measurements, blocks: Sequence[range], seed: int, folder: Path, sender: Connection) -> None:
    """Compute and store blocks in a process of its own; a closed pipe (its parent is gone) ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prepared = [prepare_cell(cell) for cell in measurements.cells]
    for block in blocks:
        _save_block(resample_cells(prepared, block, seed=seed), folder)
        sender.send(len(block))
