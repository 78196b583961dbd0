"""What is computed once from a frozen snapshot and then reused: frontiers, references, boards, overthinking figures."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
from sqlalchemy import func, select
from sqlalchemy.orm import Session, sessionmaker

from app.db import bulk, models
from app.errors import StateError
from app.evaluator.certificates import Certificate
from app.evaluator.curves import (
    Curve,
    HullCurve,
    find_beta_match,
    find_beta_sat,
    max_accuracy,
    mean_accuracy_at_grid,
    mean_area,
)
from app.evaluator.fast_frontier import solve_frontiers_fast
from app.evaluator.frontier import Frontier
from app.evaluator.measurements import Measurements
from app.evaluator.overthinking import summarise_overthinking
from app.evaluator.reference import CellReference, build_references
from app.evaluator.strategies import Strategy
from app.files.documents import overthinking_document
from app.files.snapshot import LabelsHiddenError
from app.services.measurements import is_closed, load_measurements
from app.services.release import release_overthinking

logger = logging.getLogger(__name__)

EVALUATOR_VERSION = "1"
"""Raised with every change that alters a stored figure; figures of another version are computed anew beside the old."""
GRID_INTERVALS = 1000
OVERTHINKING = "overthinking"
REFERENCES_IN_MEMORY = 6

INTEGERS = pa.list_(pa.int64())
FLOATS = pa.list_(pa.float64())
CELL_SCHEMA = pa.schema(
    [
        ("model", pa.string()),
        ("benchmark", pa.string()),
        ("cost", INTEGERS),
        ("correct", INTEGERS),
        ("total_thinking_tokens", pa.int64()),
        ("total_probes", pa.int64()),
        ("full_correct", pa.int64()),
        ("uninformed_cost", INTEGERS),
        ("uninformed_correct", INTEGERS),
        ("certificate_cost", INTEGERS),
        ("certificate_correct", INTEGERS),
        ("certificate_band", FLOATS),
        ("certificate_needed", FLOATS),
    ]
)
CELLS_QUERY = f"""
SELECT {", ".join(f"c.{name}" for name in CELL_SCHEMA.names)} FROM cell_frontiers c
JOIN snapshot_models m ON m.snapshot_id = c.snapshot_id AND m.name = c.model
JOIN snapshot_benchmarks b ON b.snapshot_id = c.snapshot_id AND b.name = c.benchmark
WHERE c.snapshot_id = {{}} AND c.split = {{}} AND c.strategy = {{}} AND c.evaluator_version = {{}}
ORDER BY m.idx, b.idx
"""

_memory: OrderedDict[tuple[Any, ...], tuple[CellReference, ...]] = OrderedDict()
_memory_lock = threading.Lock()


class SnapshotNotFrozenError(StateError):
    """Figures are computed from frozen measurements only."""

    code = "snapshot_not_frozen"
    title = "The snapshot is not frozen yet"


def get_references(
    session: Session, snapshot: models.Snapshot, *, split: str, strategy: Strategy, data_dir: Path
) -> tuple[CellReference, ...]:
    """Return the frontier and uninformed reference of every cell of a split, in the measurements' order.

    They are computed and stored by whoever asks first; others wait for them. They are exact also where labels are
    hidden: what is shown of them passes `app.services.release`. Raises `SnapshotNotFrozenError`, and
    `LabelsHiddenError` where nothing can be computed.
    """
    _require_open(snapshot, split)
    # The database is part of the key: what is known here was read from there, so it is stored there.
    key = (session.connection().engine.url, snapshot.id, split, strategy, EVALUATOR_VERSION)
    with _memory_lock:
        known = _memory.get(key, ())
    known = known or _read_references(session, snapshot.id, split=split, strategy=strategy)
    if not known:
        _lock(session, snapshot, split=split, what=strategy.value)
        known = _read_references(session, snapshot.id, split=split, strategy=strategy)
    if not known:
        measurements = load_measurements(session, snapshot, data_dir=data_dir).select(split)
        return _compute(session, snapshot.id, measurements, strategy)
    with _memory_lock:
        _memory[key] = known
        _memory.move_to_end(key)
        while len(_memory) > REFERENCES_IN_MEMORY:
            _memory.popitem(last=False)
    return known


def list_board_frontiers(
    session: Session, snapshot: models.Snapshot, *, split: str, strategy: Strategy | None = None
) -> list[models.BoardFrontier]:
    """Return the stored macro frontiers of a split's boards; none while they are being computed, or where hidden."""
    table = models.BoardFrontier
    query = select(table).where(
        table.snapshot_id == snapshot.id, table.split == split, table.evaluator_version == EVALUATOR_VERSION
    )
    if strategy is not None:
        query = query.where(table.strategy == strategy.value)
    return [] if is_closed(snapshot, split) else list(session.scalars(query.order_by(table.id)))


def get_overthinking(session: Session, snapshot: models.Snapshot, *, split: str, data_dir: Path) -> dict[str, Any]:
    """Return the overthinking document of a split as it may be told, computed by whoever asks first.

    Raises as `get_references`.
    """
    _require_open(snapshot, split)
    document = _find_overthinking(session, snapshot.id, split=split)
    if document is None:
        _lock(session, snapshot, split=split, what=OVERTHINKING)
        document = _find_overthinking(session, snapshot.id, split=split)
    if document is None:
        measurements = load_measurements(session, snapshot, data_dir=data_dir).select(split)
        document = overthinking_document(summarise_overthinking(measurements), measurements)
        figure = models.SnapshotFigure(
            snapshot_id=snapshot.id,
            split=split,
            kind=OVERTHINKING,
            document=document,
            evaluator_version=EVALUATOR_VERSION,
        )
        session.add(figure)
        session.flush()
    return release_overthinking(snapshot, document)


def prepare_split(sessions: sessionmaker[Session], snapshot_id: int, *, split: str, data_dir: Path) -> None:
    """Compute and store everything of one split, piece by piece: what is done can be seen and is not done again."""
    with sessions.begin() as session:
        snapshot = session.get_one(models.Snapshot, snapshot_id)
        get_overthinking(session, snapshot, split=split, data_dir=data_dir)
    for strategy in Strategy:
        with sessions.begin() as session:
            get_references(session, snapshot, split=split, strategy=strategy, data_dir=data_dir)
        logger.info("frontiers of %s, %s split, %s are stored", snapshot.name, split, strategy)


def _require_open(snapshot: models.Snapshot, split: str) -> None:
    if not snapshot.is_frozen:
        raise SnapshotNotFrozenError(f"Snapshot {snapshot.name} is not frozen yet; nothing can be computed from it.")
    if is_closed(snapshot, split):
        raise LabelsHiddenError(f"The labels of split {split} of snapshot {snapshot.name} are hidden.")


def _lock(session: Session, snapshot: models.Snapshot, *, split: str, what: str) -> None:
    """Wait for whoever computes the same thing, and make others wait until this transaction ends."""
    name = f"otboard {snapshot.id} {split} {what} {EVALUATOR_VERSION}"
    session.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))


def _find_overthinking(session: Session, snapshot_id: int, *, split: str) -> dict[str, Any] | None:
    table = models.SnapshotFigure
    query = select(table.document).where(
        table.snapshot_id == snapshot_id,
        table.split == split,
        table.kind == OVERTHINKING,
        table.evaluator_version == EVALUATOR_VERSION,
    )
    return session.scalar(query)


def _read_references(
    session: Session, snapshot_id: int, *, split: str, strategy: Strategy
) -> tuple[CellReference, ...]:
    """Return what is stored: all cells, since they are written in one transaction, or none."""
    parameters = [snapshot_id, split, strategy.value, EVALUATOR_VERSION]
    rows = bulk.copy_out(session, CELLS_QUERY, CELL_SCHEMA, parameters=parameters)
    return tuple(_read_reference(rows.slice(idx, 1), strategy) for idx in range(rows.num_rows))


def _read_reference(row: pa.Table, strategy: Strategy) -> CellReference:
    value = {name: row[name][0].as_py() for name in row.column_names if not pa.types.is_list(row[name].type)}
    array = {name: row[name].combine_chunks().flatten().to_numpy() for name in row.column_names if name not in value}
    totals = {name: value[name] for name in ("total_thinking_tokens", "total_probes")}
    frontier = Frontier(
        model=value["model"],
        benchmark=value["benchmark"],
        strategy=strategy,
        curve=Curve(array["cost"], array["correct"], **totals),
        full_correct=value["full_correct"],
        certificate=_read_certificate(row),
    )
    return CellReference(frontier, HullCurve(array["uninformed_cost"], array["uninformed_correct"], **totals))


def _read_certificate(row: pa.Table) -> Certificate | None:
    """Return a frontier's certificate; None of one that an earlier version stored, by the textbook program."""
    columns = [row[f"certificate_{name}"].combine_chunks() for name in ("cost", "correct", "band", "needed")]
    if columns[0].null_count:
        return None
    return Certificate(*(column.flatten().to_numpy() for column in columns))


def _compute(
    session: Session, snapshot_id: int, measurements: Measurements, strategy: Strategy
) -> tuple[CellReference, ...]:
    references = build_references(measurements, strategy, solve_frontiers_fast(measurements, (strategy,)))
    target = {
        "snapshot_id": snapshot_id,
        "split": measurements.split,
        "strategy": strategy.value,
        "evaluator_version": EVALUATOR_VERSION,
    }
    _store_cells(session, references, target)
    questions = {(cell.model, cell.benchmark): cell.n_questions for cell in measurements.cells}
    session.add_all(
        models.BoardFrontier(**target, **board, **_summarise(chosen, questions))
        for board, chosen in _list_boards(measurements, references)
    )
    session.flush()
    return references


def _store_cells(session: Session, references: Sequence[CellReference], target: dict[str, Any]) -> None:
    rows = [_describe_cell(reference) for reference in references]
    figures = ("max_accuracy", "beta_match", "beta_sat", "area", "uninformed_area")
    schema = pa.schema([*CELL_SCHEMA, *(pa.field(name, pa.float64()) for name in figures)])
    table = pa.Table.from_pylist(rows, schema=schema)
    for name, value in target.items():
        table = table.append_column(name, pa.array([value] * len(rows)))
    bulk.copy_in(session, "cell_frontiers", table)


def _describe_cell(reference: CellReference) -> dict[str, Any]:
    frontier, uninformed = reference.frontier, reference.uninformed
    return {
        "model": frontier.model,
        "benchmark": frontier.benchmark,
        "cost": frontier.cost,
        "correct": frontier.correct,
        "total_thinking_tokens": frontier.total_thinking_tokens,
        "total_probes": frontier.total_probes,
        "full_correct": frontier.full_correct,
        "uninformed_cost": uninformed.cost,
        "uninformed_correct": uninformed.correct,
        **_describe_certificate(frontier.certificate),
        **_find_figures([reference]),
    }


def _describe_certificate(certificate: Certificate | None) -> dict[str, Any]:
    if certificate is None:
        return {}
    return {
        "certificate_cost": certificate.cost,
        "certificate_correct": certificate.reward,
        "certificate_band": certificate.band,
        "certificate_needed": certificate.needed,
    }


def _find_figures(references: Sequence[CellReference]) -> dict[str, float | None]:
    """Return the figures of a board's mean curves: exact, each divided once."""
    curves = [reference.frontier.curve for reference in references]
    beta_match = find_beta_match(curves, _full_accuracy(references))
    return {
        "beta_match": None if beta_match is None else float(beta_match),
        "max_accuracy": float(max_accuracy(curves)),
        "beta_sat": float(find_beta_sat(curves)),
        "area": float(mean_area(curves)),
        "uninformed_area": float(mean_area([reference.uninformed for reference in references])),
    }


def _full_accuracy(references: Sequence[CellReference]) -> Fraction:
    """Return A_full: the mean over cells of the accuracy at full thinking."""
    shares = [Fraction(r.frontier.full_correct, r.frontier.total_probes) for r in references]
    return sum(shares, Fraction(0)) / len(shares)


def _list_boards(
    measurements: Measurements, references: Sequence[CellReference]
) -> Iterable[tuple[dict[str, str | None], list[CellReference]]]:
    """Yield the whole snapshot, each model, each benchmark and each cell, with the references of its cells."""
    for model in (None, *measurements.models):
        for benchmark in (None, *measurements.benchmarks):
            chosen = [
                reference
                for reference in references
                if model in (None, reference.frontier.model) and benchmark in (None, reference.frontier.benchmark)
            ]
            if chosen:
                yield {"model": model, "benchmark": benchmark}, chosen


def _summarise(references: Sequence[CellReference], questions: dict[tuple[str, str], int]) -> dict[str, Any]:
    return {
        "n_cells": len(references),
        "min_questions": min(questions[r.frontier.model, r.frontier.benchmark] for r in references),
        "full_accuracy": float(_full_accuracy(references)),
        "grid_accuracy": mean_accuracy_at_grid([r.frontier.curve for r in references], GRID_INTERVALS).tolist(),
        "uninformed_grid": mean_accuracy_at_grid([r.uninformed for r in references], GRID_INTERVALS).tolist(),
        **_find_figures(references),
    }
