"""Bootstrap replicates for the offline commands: computed once, kept, and taken up again after an interruption."""

from __future__ import annotations

import os
from collections.abc import Sequence

from app.cli_output import show_progress
from app.cli_scoring import CheckedActions
from app.config import load_config
from app.evaluator.intervals import SnapshotIntervals, summarise_intervals
from app.evaluator.measurements import Measurements
from app.evaluator.reference import CellReference
from app.evaluator.replicate_frontiers import Progress, ReplicateFrontiers
from app.evaluator.replicate_store import run_bootstrap
from app.evaluator.scoring import Score
from app.evaluator.submission_intervals import SubmissionIntervals, bootstrap_submission


def resample(measurements: Measurements, n_replicates: int, *, progress: Progress | None = None) -> ReplicateFrontiers:
    """Return the first replicates of a split, computing those that the data folder lacks on all processors.

    They lie where a server with the same data folder has them too.
    """
    folder = load_config().data_dir / "replicates" / measurements.sha256 / measurements.split
    return run_bootstrap(
        measurements,
        folder=folder,
        n_replicates=n_replicates,
        n_processes=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        progress=progress,
    )


def resample_with_bar(measurements: Measurements, n_replicates: int) -> ReplicateFrontiers:
    """Return the replicates, with a bar on standard error and the time that is left."""
    with show_progress("resampling") as report:
        return resample(measurements, n_replicates, progress=lambda what, done, total: report(what, done / total))


def find_intervals(
    measurements: Measurements, n_replicates: int, references: Sequence[CellReference] = ()
) -> SnapshotIntervals:
    """Return the intervals of a split's own figures, and of the frontiers in these references."""
    return summarise_intervals(measurements, resample_with_bar(measurements, n_replicates), references)


def bootstrap_file(checked: CheckedActions, score: Score, *, n_replicates: int) -> SubmissionIntervals:
    """Return the intervals of an action file's score, on the replicates that every file of the split is scored on."""
    replicates = resample_with_bar(checked.measurements, n_replicates)
    return bootstrap_submission(checked.measurements, checked.file.table, score, replicates, n_replicates=n_replicates)
