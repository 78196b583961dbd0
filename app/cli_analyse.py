"""The command `analyse`: every analysis of a split, as JSON and as one HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from app.cli_bootstrap import resample
from app.cli_output import show_progress
from app.cli_scoring import require_free
from app.evaluator.measurements import Measurements
from app.evaluator.replicate_frontiers import ReplicateFrontiers
from app.files.snapshot import Snapshot, hash_file
from app.report import Progress, Resample, analyse_snapshot, dump_report, list_report_files, write_text
from app.report_html import render_report


def write_report(snapshot: Snapshot, output: Path, *, split: str, n_replicates: int, force: bool) -> dict[str, Any]:
    """Analyse a split, write the report's files, and return what was written with the figures over all cells.

    Raises
    ------
    OutputExistsError : one of the files is there, and may not be replaced.
    ContentError : an unknown split, or hidden labels.
    """
    json_path, html_path = list_report_files(output)
    for path in (json_path, html_path):
        require_free(path, force=force)
    with show_progress("analysing") as report:
        document = analyse_snapshot(
            snapshot, split=split, progress=report, resample=_choose_resampling(n_replicates) if n_replicates else None
        )
        report("writing", 1.0)
        write_text(json_path, dump_report(document))
        write_text(html_path, render_report(document))
    return {
        **{name: document[name] for name in ("snapshot", "snapshot_sha256", "kind", "split")},
        "json": str(json_path),
        "html": str(html_path),
        "json_sha256": hash_file(json_path),
        "overthinking": document["overthinking"]["macro"],
    }


def _choose_resampling(n_replicates: int) -> Resample:
    """Return what gives a report its replicates, moving the report's bar."""

    def compute(measurements: Measurements, progress: Progress) -> ReplicateFrontiers:
        return resample(measurements, n_replicates, progress=lambda what, done, total: progress(what, done / total))

    return compute
