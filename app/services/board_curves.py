"""The curves of a board as numbers: what its plot draws, every point of it."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy.orm import Session

from app.db import models
from app.evaluator.curves import FloatArray
from app.files.csv_fields import format_field
from app.services.board_lines import BoardKey, list_frontiers
from app.services.leaderboard import Leaderboard, list_board_curves
from app.services.snapshots import get_snapshot

ORACLE, UNINFORMED, METHOD = "oracle", "uninformed", "method"


@dataclass(frozen=True, eq=False)
class BoardCurve:
    """A line of a board: accuracies as fractions at rising relative budgets.

    `line` is `oracle`, `uninformed` (straight between its points) or `method`, whose accuracy holds from each budget
    up to the next one.
    """

    model: str | None
    benchmark: str | None
    line: str
    submission_id: str | None
    method: str | None
    beta: FloatArray
    accuracy: FloatArray


def list_keys(snapshot: models.Snapshot, board: BoardKey, *, by: str) -> list[BoardKey]:
    """Return the one board, or those of each model or benchmark in its place."""
    if by == "model":
        return [BoardKey(item["name"], board.benchmark) for item in snapshot.manifest["models"]]
    if by == "benchmark":
        return [BoardKey(board.model, item["name"]) for item in snapshot.manifest["benchmarks"]]
    return [board]


def list_curves(session: Session, board: Leaderboard, keys: Sequence[BoardKey]) -> list[BoardCurve]:
    """Return the oracle, the reference and the board's methods on each of these boards, as far as they are stored."""
    return [curve for key in keys for curve in _list_curves(session, board, key)]


COLUMNS = ("model", "benchmark", "line", "submission_id", "method", "relative_budget", "accuracy")


def format_curves(board: Leaderboard, curves: Sequence[BoardCurve]) -> str:
    """Return curves as CSV, a row for each point, with the digits of the JSON."""
    target = [format_field(value) for value in (board.snapshot, board.split, board.strategy, board.kind)]
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    writer.writerow([*COLUMNS, "snapshot", "split", "strategy", "kind"])
    for one in curves:
        named = [format_field(v) for v in (one.model, one.benchmark, one.line, one.submission_id, one.method)]
        for beta, accuracy in zip(one.beta.tolist(), one.accuracy.tolist(), strict=True):
            writer.writerow([*named, format_field(beta), format_field(accuracy), *target])
    return written.getvalue()


def _list_curves(session: Session, board: Leaderboard, key: BoardKey) -> Iterator[BoardCurve]:
    names = (key.model, key.benchmark)
    snapshot = get_snapshot(session, board.snapshot)
    frontier = list_frontiers(session, snapshot, split=board.split, board=key).get(board.strategy)
    if frontier is not None:
        grid = np.linspace(0.0, 1.0, len(frontier.grid_accuracy))
        yield BoardCurve(*names, ORACLE, None, None, grid, np.array(frontier.grid_accuracy))
        yield BoardCurve(*names, UNINFORMED, None, None, grid, np.array(frontier.uninformed_grid))
    curves = list_board_curves(session, replace(board, model=key.model, benchmark=key.benchmark))
    for row in board.rows:
        if row.submission_id in curves:
            curve = curves[row.submission_id]
            yield BoardCurve(*names, METHOD, row.submission_id, row.method, curve.beta, curve.accuracy)
