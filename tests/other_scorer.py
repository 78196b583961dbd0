"""A second scorer with other figures, as a later release might bring one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.evaluator.measurements import Measurements
from app.evaluator.reference import CellReference
from app.evaluator.scoring import Score, score_actions
from app.evaluator.strategies import ActionTable


def score_with_penalty(measurements: Measurements, table: ActionTable, references: Sequence[CellReference]) -> Score:
    """A second scorer: every method keeps nine tenths of the lead of its area over no lead at all."""
    score = score_actions(measurements, table, references)
    boards = tuple(
        replace(
            board,
            area=board.area * 0.9,
            gap=board.oracle_area - board.area * 0.9,
            realised_potential=None
            if board.realised_potential is None
            else (board.area * 0.9 - board.uninformed_area) / (board.oracle_area - board.uninformed_area),
        )
        for board in score.boards
    )
    return replace(score, boards=boards, scorer_version="2")
