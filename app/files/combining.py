"""Measurements of the same protocol put together into one snapshot, which says what each part came from."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from app.errors import ContentError
from app.evaluator.measurements import SPLITS
from app.files.columns import QUESTIONS_SCHEMA
from app.files.manifest import SNAPSHOT_FORMAT
from app.files.problems import ProblemCollector
from app.files.snapshot import Snapshot, build_snapshot

# Texts that may be missing from one of two equal questions: some benchmarks may not be passed on.
OPTIONAL_TEXTS = ("prompt", "reference_answer")

Entry = Mapping[str, Any]


class PartsDoNotFitError(ContentError):
    """Measurements that cannot stand in one snapshot; every reason is listed."""

    code = "parts_do_not_fit"
    title = "The measurements do not fit together"


@dataclass(frozen=True, eq=False)
class Part:
    """Measurements of some models on some benchmarks, from one source.

    Attributes
    ----------
    label : what errors call it, such as "run abc" or "snapshot xyz".
    kind : "measured" or "synthetic".
    step_tokens, n_trajectories, n_probes : b (None where it is not known), R and M.
    thinking_token_limit : the most thinking tokens, None where it is not known.
    models, benchmarks : entries of the manifest, in their order.
    hidden_splits : splits whose labels may not be public.
    questions, trajectories : tables with the columns of the format.
    sources, counts : entries of the manifest's `worker`: what measured it, and what was counted in each cell.
    """

    label: str
    kind: str
    step_tokens: int | None
    n_trajectories: int
    n_probes: int
    thinking_token_limit: int | None
    models: tuple[Entry, ...]
    benchmarks: tuple[Entry, ...]
    hidden_splits: tuple[str, ...]
    questions: pa.Table
    trajectories: pa.Table
    sources: tuple[Entry, ...]
    counts: tuple[Entry, ...]


@dataclass(frozen=True)
class Heading:
    """What a combined snapshot says of itself; None where it says nothing."""

    name: str
    title: str
    description: str | None = None
    license: str | None = None
    source: str | None = None
    created: str | None = None
    hidden_splits: tuple[str, ...] = ()


def snapshot_part(snapshot: Snapshot) -> Part:
    """Return a whole snapshot as a part of a larger one.

    Its manifest's `worker` is taken over where it has the form that `combine_parts` gives it, else as it is.
    """
    raw = snapshot.manifest.raw
    worker = raw.get("worker") or {}
    sources, counts = worker.get("sources"), worker.get("counts")
    return Part(
        label=f"snapshot {snapshot.manifest.name}",
        kind=snapshot.manifest.kind,
        step_tokens=raw.get("target_step_tokens"),
        n_trajectories=snapshot.manifest.trajectories_per_question,
        n_probes=snapshot.manifest.probes_per_position,
        thinking_token_limit=raw.get("thinking_token_limit"),
        models=tuple(raw["models"]),
        benchmarks=tuple(raw["benchmarks"]),
        hidden_splits=snapshot.manifest.hidden_splits,
        questions=snapshot.questions,
        trajectories=snapshot.trajectories,
        sources=tuple(sources) if isinstance(sources, list) else ({"snapshot": snapshot.manifest.name, **worker},),
        counts=tuple(counts) if isinstance(counts, list) else (),
    )


def combine_parts(parts: Sequence[Part], heading: Heading, *, superseded: Sequence[Entry] = ()) -> Snapshot:
    """Return one snapshot of all parts.

    Every part has the same b, R and M; benchmarks that several parts have hold the same questions; every model has
    every benchmark once. A split hidden in any part is hidden in the whole. Of equal questions and of models' entries
    the first part's stand; models and benchmarks keep the order in which they come.

    Parameters
    ----------
    parts : at least one.
    superseded : snapshots, as `{"name", "sha256"}`, that the new one takes the place of.

    Raises
    ------
    PartsDoNotFitError : with every reason, each naming the parts, and the cell or question.
    SnapshotError : the parts fit, but what they hold is no sound snapshot.
    """
    problems = ProblemCollector()
    for part in parts[1:]:
        _check_protocol(parts[0], part, problems)
    questions = _merge_questions(parts, problems)
    models = _merge_models(parts, problems)
    benchmarks = _merge_benchmarks(parts, problems)
    _check_cells(parts, [model["name"] for model in models], pc.unique(questions["benchmark"]).to_pylist(), problems)
    _check_labels(parts, problems)
    if problems:
        found = problems.problems()
        raise PartsDoNotFitError(f"{heading.name} cannot be put together: {found[0].message}", problems=found)
    hidden = {*heading.hidden_splits, *(split for part in parts for split in part.hidden_splits)}
    manifest: dict[str, Any] = {
        "format": SNAPSHOT_FORMAT,
        "name": heading.name,
        "title": heading.title,
        "kind": parts[0].kind,
        "description": heading.description,
        "license": heading.license,
        "source": heading.source,
        "created": heading.created,
        "probes_per_position": parts[0].n_probes,
        "trajectories_per_question": parts[0].n_trajectories,
        "target_step_tokens": parts[0].step_tokens,
        "thinking_token_limit": _only({part.thinking_token_limit for part in parts}),
        "hidden_splits": [*(split for split in SPLITS if split in hidden), *sorted(hidden - set(SPLITS))],
        "models": models,
        "benchmarks": benchmarks,
        "worker": {
            "sources": [source for part in parts for source in part.sources],
            "counts": [count for part in parts for count in part.counts],
        },
        "supersedes": list({entry["sha256"]: dict(entry) for entry in superseded}.values()),
    }
    kept = {key: value for key, value in manifest.items() if value not in (None, [])}
    return build_snapshot(kept, questions, pa.concat_tables([part.trajectories for part in parts]))


def _check_protocol(first: Part, other: Part, problems: ProblemCollector) -> None:
    for name, what in (
        ("kind", "kind of measurements"),
        ("step_tokens", "target step length b"),
        ("n_trajectories", "number of trajectories R"),
        ("n_probes", "number of probes M"),
    ):
        ours, theirs = getattr(first, name), getattr(other, name)
        if ours != theirs:
            problems.add(
                "protocol_differs",
                f"the {what} is {_show(ours)} in {first.label} and {_show(theirs)} in {other.label}",
                column=name,
            )


def _merge_questions(parts: Sequence[Part], problems: ProblemCollector) -> pa.Table:
    """Return the questions of all parts, each once, and compare those that several parts have."""
    known: dict[tuple[str, str], tuple[str, dict[str, Any]]] = {}
    of_benchmark: dict[str, tuple[str, set[str]]] = {}
    for part in parts:
        own: dict[str, set[str]] = {}
        for row in part.questions.to_pylist():
            key = (row["benchmark"], row["question_id"])
            own.setdefault(row["benchmark"], set()).add(row["question_id"])
            label, other = known.setdefault(key, (part.label, row))
            different = [name for name in QUESTIONS_SCHEMA.names if _differs(name, other.get(name), row.get(name))]
            for name in different:
                problems.add(
                    "question_differs",
                    f"the {name} of a question is not the same in {label} and {part.label}",
                    column=name,
                    unit=" / ".join(key),
                )
        for benchmark, ids in own.items():
            label, first = of_benchmark.setdefault(benchmark, (part.label, ids))
            for holder, lacking, lost in ((label, part.label, first - ids), (part.label, label, ids - first)):
                for question_id in sorted(lost):
                    problems.add(
                        "question_missing",
                        f"{holder} has a question that {lacking} lacks",
                        column="question_id",
                        unit=f"{benchmark} / {question_id}",
                    )
    return pa.Table.from_pylist([row for _, row in known.values()], schema=QUESTIONS_SCHEMA)


def _differs(name: str, first: Any, second: Any) -> bool:
    if name in OPTIONAL_TEXTS and (first is None or second is None):
        return False
    return bool(first != second)


def _merge_models(parts: Sequence[Part], problems: ProblemCollector) -> list[dict[str, Any]]:
    return _merge_entries(((part.label, part.models) for part in parts), "model", problems)


def _merge_benchmarks(parts: Sequence[Part], problems: ProblemCollector) -> list[dict[str, Any]]:
    """Return the benchmarks' entries; that their questions are the same is checked question by question."""
    return _merge_entries(((part.label, part.benchmarks) for part in parts), "benchmark", None)


def _merge_entries(
    labelled: Iterable[tuple[str, tuple[Entry, ...]]], what: str, problems: ProblemCollector | None
) -> list[dict[str, Any]]:
    merged: dict[str, tuple[str, dict[str, Any]]] = {}
    for label, entries in labelled:
        for entry in entries:
            first_label, first = merged.setdefault(entry["name"], (label, dict(entry)))
            if problems is None:
                continue
            for key in sorted({*first, *entry}):
                if first.get(key) != entry.get(key):
                    problems.add(
                        f"{what}_differs",
                        f"{key} of {entry['name']} is {_show(first.get(key))} in {first_label} and "
                        f"{_show(entry.get(key))} in {label}",
                        column=key,
                        unit=entry["name"],
                    )
    return [entry for _, entry in merged.values()]


def _check_cells(
    parts: Sequence[Part], models: Sequence[str], benchmarks: Sequence[str], problems: ProblemCollector
) -> None:
    """Check that every model has every benchmark, from one part."""
    owners: dict[tuple[str, str], str] = {}
    for part in parts:
        for cell in _list_cells(part.trajectories):
            if cell in owners:
                problems.add(
                    "cell_twice",
                    f"{cell[0]} on {cell[1]} is in {owners[cell]} and in {part.label}",
                    unit=" / ".join(cell),
                )
            owners.setdefault(cell, part.label)
    for model in models:
        for benchmark in benchmarks:
            if (model, benchmark) not in owners:
                problems.add(
                    "cell_missing", f"{model} has not been measured on {benchmark}", unit=f"{model} / {benchmark}"
                )


def _list_cells(trajectories: pa.Table) -> Iterator[tuple[str, str]]:
    cells = trajectories.select(["model", "benchmark"]).group_by(["model", "benchmark"], use_threads=False)
    for row in cells.aggregate([]).to_pylist():
        yield row["model"], row["benchmark"]


def _check_labels(parts: Sequence[Part], problems: ProblemCollector) -> None:
    """Refuse public exports: their hidden labels are not here, so that the whole would have none either."""
    for part in parts:
        if pc.any(part.trajectories["correct_probes"].is_null()).as_py():
            problems.add(
                "labels_hidden",
                f"{part.label} is a public export without the labels of its hidden splits; use the "
                "snapshot with all its labels",
            )


def _only(values: set[int | None]) -> int | None:
    return values.pop() if len(values) == 1 else None


def _show(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:77]}..."
