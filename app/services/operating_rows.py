"""The operating points of a submission on one board, as tables, plots and CSV show them."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.efficiency import e3
from app.files.csv_fields import format_field
from app.services.accounts import Identity
from app.services.board_lines import WHOLE, BoardKey
from app.services.frontiers import EVALUATOR_VERSION
from app.services.release import are_labels_told, require_told_labels
from app.services.scoring import get_score
from app.services.snapshot_documents import UnknownCellError
from app.services.snapshots import get_snapshot
from app.services.submissions import SubmissionDetails, get_submission

SortKey = Literal["setting", "beta", "accuracy", "gap", "early_loss", "late_loss", "wasted", "forgone", "e3"]
Order = Literal["asc", "desc"]
MEAN_FIGURES = ("beta", "accuracy", "gap", "early_loss", "late_loss", "wasted", "forgone")
NOT_COVERED = "not_all_cells_covered"

Document = Mapping[str, Any]


@dataclass(frozen=True)
class OperatingRow:
    """One setting on one board: means over its cells, all None (with the reason) unless the setting covers them all.

    `beta`, `wasted` and `forgone` are shares of the full-thinking tokens, the others fractions; `e3` is against full
    thinking on the same board.
    """

    setting: str
    beta: float | None
    accuracy: float | None
    gap: float | None
    early_loss: float | None
    late_loss: float | None
    wasted: float | None
    forgone: float | None
    e3: float | None
    reason: str | None


@dataclass(frozen=True)
class OperatingTable:
    """Every setting of a submission on one board, in the file's order or sorted."""

    submission_id: str
    model: str | None
    benchmark: str | None
    rows: tuple[OperatingRow, ...]


@dataclass(frozen=True)
class Baseline:
    """Full thinking's accuracy and mean tokens on one board."""

    accuracy: float
    tokens: float


def get_operating_table(
    session: Session,
    submission_id: str,
    *,
    account: Identity | None,
    board: BoardKey,
    scorer_version: str | None = None,
) -> OperatingTable:
    """Return the operating points of a submission that the reader may see, of the score in force or of another.

    Raises
    ------
    HiddenLabelsError : on a split whose labels are hidden there are no figures of single settings.
    NotScoredError : it has no score.
    UnknownCellError : it does not stand on such a board.
    """
    submission = get_submission(session, submission_id, account=account)
    snapshot = get_snapshot(session, submission.snapshot)
    require_told_labels(snapshot, submission.split, what="there are no figures of single settings")
    document = json.loads(get_score(session, submission_id, account=account, scorer_version=scorer_version).text)
    if not any((b["model"], b["benchmark"]) == (board.model, board.benchmark) for b in document["boards"]):
        place = " on ".join(name for name in (board.model, board.benchmark) if name) or "the whole snapshot"
        raise UnknownCellError(f"Submission {submission_id} does not stand on a board of {place}.")
    return OperatingTable(
        submission_id, board.model, board.benchmark, list_rows(session, submission, document, board=board)
    )


def list_rows(
    session: Session, submission: SubmissionDetails, document: Document, *, board: BoardKey
) -> tuple[OperatingRow, ...]:
    """Return the settings of a score document on one board, in their order.

    Figures of the whole snapshot and of one cell are those of the document; others are means over the board's cells.
    """
    if board == WHOLE:
        return tuple(OperatingRow(**_pick(setting), setting=setting["setting"]) for setting in document["settings"])
    wanted = _list_cells(document, board)
    baseline = None if board.is_cell else find_baseline(session, submission, board=board)
    return tuple(_describe_row(setting, wanted, board, baseline) for setting in document["settings"])


def sort_rows(rows: Sequence[OperatingRow], *, sort: SortKey, order: Order) -> tuple[OperatingRow, ...]:
    """Return the rows by one figure, undefined ones last in either order; by setting, in the file's order or reversed.

    Equal ones keep the file's order.
    """
    if sort == "setting":
        return tuple(rows) if order == "asc" else tuple(reversed(rows))
    known = [row for row in rows if getattr(row, sort) is not None]
    unknown = [row for row in rows if getattr(row, sort) is None]
    sign = 1 if order == "asc" else -1
    return (*sorted(known, key=lambda row: sign * getattr(row, sort)), *unknown)


def format_rows_csv(table: OperatingTable) -> str:
    """Return the table as CSV: the digits of the JSON, an empty field for an undefined value."""
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    names = [field.name for field in fields(OperatingRow)]
    place = [format_field(value) for value in (table.model, table.benchmark, table.submission_id)]
    writer.writerow([*names, "model", "benchmark", "submission_id"])
    for row in table.rows:
        writer.writerow([*(format_field(getattr(row, name)) for name in names), *place])
    return written.getvalue()


def find_baseline(session: Session, submission: SubmissionDetails, *, board: BoardKey) -> Baseline | None:
    """Return full thinking's operating point on a board, or None until its frontiers are stored, or where hidden."""
    table = models.CellFrontier
    snapshot = get_snapshot(session, submission.snapshot)
    if not are_labels_told(snapshot, submission.split):
        return None
    query = select(table.total_thinking_tokens, table.total_probes, table.full_correct).where(
        table.snapshot_id == snapshot.id,
        table.split == submission.split,
        table.strategy == submission.strategy.value,
        table.evaluator_version == EVALUATOR_VERSION,
    )
    if board.model is not None:
        query = query.where(table.model == board.model)
    if board.benchmark is not None:
        query = query.where(table.benchmark == board.benchmark)
    found = session.execute(query).all()
    if not found:
        return None
    tokens = [row.total_thinking_tokens * snapshot.probes_per_position / row.total_probes for row in found]
    return Baseline(_mean([row.full_correct / row.total_probes for row in found]), _mean(tokens))


def _list_cells(document: Document, board: BoardKey) -> frozenset[tuple[str, str]]:
    return frozenset(
        (shown["model"], shown["benchmark"])
        for shown in document["boards"]
        if shown["model"] is not None
        and shown["benchmark"] is not None
        and board.model in (None, shown["model"])
        and board.benchmark in (None, shown["benchmark"])
    )


def _describe_row(
    setting: Document, wanted: frozenset[tuple[str, str]], board: BoardKey, baseline: Baseline | None
) -> OperatingRow:
    cells = [cell for cell in setting["cells"] if (cell["model"], cell["benchmark"]) in wanted]
    name = setting["setting"]
    if len(cells) < len(wanted):
        return OperatingRow(**_pick({"reason": NOT_COVERED}), setting=name)
    if board.is_cell:
        return OperatingRow(**_pick(cells[0]), setting=name)
    figures = {figure: _mean([cell[figure] for cell in cells]) for figure in MEAN_FIGURES}
    efficiency = None
    if baseline is not None:
        efficiency = e3(
            figures["accuracy"],
            _mean([cell["mean_tokens"] for cell in cells]),
            base_accuracy=baseline.accuracy,
            base_tokens=baseline.tokens,
        )
    return OperatingRow(name, **figures, e3=efficiency, reason=None)


def _pick(figures: Document) -> dict[str, Any]:
    return {name: figures.get(name) for name in (*MEAN_FIGURES, "e3", "reason")}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
