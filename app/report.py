"""Every analysis of a snapshot's split as one JSON document and one HTML page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from app import report_analyses as analyses
from app.evaluator.intervals import summarise_intervals
from app.evaluator.measurements import Measurements
from app.evaluator.replicate_frontiers import ReplicateFrontiers
from app.files.atomic import replaced_file
from app.files.interval_documents import snapshot_intervals_document
from app.files.snapshot import Snapshot, load_measurements, require_labels
from app.report_values import Document

FORMAT = "otboard-analysis/1"
Progress = Callable[[str, float], None]
Resample = Callable[[Measurements, Progress], ReplicateFrontiers]


def analyse_snapshot(
    snapshot: Snapshot, *, split: str, progress: Progress, resample: Resample | None = None
) -> Document:
    """Return every analysis of a split as one JSON document; undefined figures are null, with their reasons beside.

    Parameters
    ----------
    progress : called with what is being done, and the share of the analyses that is done.
    resample : returns the bootstrap replicates that intervals are made of; without it there are none.

    Raises
    ------
    UnknownSplitError : no such split.
    LabelsHiddenError : a public export whose labels are hidden there.
    """
    measurements = load_measurements(snapshot, split)
    require_labels(measurements)
    n_questions = {cell.benchmark: cell.n_questions for cell in measurements.cells}
    document: Document = {
        "format": FORMAT,
        "snapshot": measurements.snapshot,
        "snapshot_sha256": measurements.sha256,
        "kind": measurements.kind,
        "split": split,
        "title": snapshot.manifest.title,
        "models": list(dict.fromkeys(cell.model for cell in measurements.cells)),
        "benchmarks": list(n_questions),
        "n_questions": n_questions,
        "n_trajectories": sum(cell.n_trajectories for cell in measurements.cells),
        "probes_per_position": measurements.probes_per_position,
        "trajectories_per_question": measurements.trajectories_per_question,
    }
    steps: list[tuple[str, float, Callable[[Progress], Document]]] = [
        ("overthinking", 1, lambda _: analyses.analyse_overthinking(measurements)),
        ("direct_answers", 1, lambda _: analyses.analyse_direct_answers(measurements)),
        ("local_changes", 1, lambda _: analyses.analyse_local_changes(measurements)),
        ("frontiers", 10, lambda report: analyses.analyse_frontiers(measurements, report)),
        ("thinning", 5, lambda _: analyses.analyse_thinning(measurements)),
        ("diversity", 1, lambda _: analyses.analyse_diversity(measurements)),
        ("examples", 1, lambda _: analyses.analyse_examples(measurements)),
        ("step_lengths", 2, lambda _: analyses.analyse_step_lengths(snapshot, measurements)),
        ("traces", 2, lambda _: analyses.analyse_traces(snapshot, measurements)),
    ]
    document["intervals"] = None
    if resample is not None:
        steps.append(("intervals", 40, lambda report: _find_intervals(resample, measurements, report)))
    total = sum(weight for _, weight, _ in steps)
    done = 0.0
    for name, weight, analyse in steps:
        progress(name.replace("_", " "), done / total)
        document[name] = analyse(_within(progress, done / total, weight / total))
        done += weight
    return document


def list_report_files(output: Path) -> tuple[Path, Path]:
    """Return the JSON and the HTML file of a report: the name given, its suffix .json or .html replaced.

    Examples
    --------
    >>> [path.name for path in list_report_files(Path("math.html"))]
    ['math.json', 'math.html']
    >>> [path.name for path in list_report_files(Path("v1.2"))]
    ['v1.2.json', 'v1.2.html']
    """
    stem = output.with_suffix("") if output.suffix in (".json", ".html") else output
    return stem.with_name(f"{stem.name}.json"), stem.with_name(f"{stem.name}.html")


def dump_report(document: Document) -> str:
    """Return the document as JSON text, one line a section: frontiers of many points would make a line each.

    Examples
    --------
    >>> print(dump_report({"split": "test", "bins": [1, None]}), end="")
    {
    "split": "test",
    "bins": [1, null]
    }
    """
    lines = (
        f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False, allow_nan=False)}"
        for key, value in document.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all; a file that is there is replaced."""
    with replaced_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _find_intervals(resample: Resample, measurements: Measurements, progress: Progress) -> Document:
    replicates = resample(measurements, _within(progress, 0, 0.98))
    references = analyses.solve_references(measurements, _within(progress, 0.98, 0.02))
    return snapshot_intervals_document(summarise_intervals(measurements, replicates, references))


def _within(progress: Progress, start: float, share: float) -> Progress:
    return lambda what, done: progress(what, start + share * done)
