"""The release policy of hidden splits: everything that leaves the server about one passes through here.

Pages, REST, CSV, plots, receipts and downloads take what these functions return and nothing else; a test looks for
other ways to the tables. On a split whose labels are open they hand on what is stored. docs/hidden-splits.md says
what leaves and why; the bounds stand in `app/evaluator/quanta.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, RowMapping, select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ForbiddenError
from app.evaluator.centring import Interval
from app.evaluator.curves import StepSeries
from app.evaluator.efficiency import BASE_ACCURACY_DEGENERATE, e3
from app.evaluator.measurements import IntArray
from app.evaluator.pairs import find_difference
from app.evaluator.quanta import Quanta, build_quanta, find_potential_quantum, find_unit_weight, round_to
from app.evaluator.ranks import compare_pairs
from app.evaluator.resampled_boards import BoardIntervals
from app.evaluator.scoring import NEVER_REACHED
from app.evaluator.strategies import Strategy
from app.evaluator.told_intervals import (
    ToldPotential,
    find_half_width,
    find_potential_step,
    find_width_step,
    linearise_potential,
    rank_told,
    tell_difference,
    tell_interval,
)
from app.files.actions import MAX_SETTINGS
from app.services.measurements import labels_hidden

Document = dict[str, Any]
BoardNames = tuple[str | None, str | None]
FloatArray = NDArray[np.float64]

METHOD_INTERVALS = 20
"""A method's curve is told at the relative budgets 0, 0.05 … 1."""
FRONTIER_INTERVALS = 100
"""A frontier is told at the relative budgets 0, 0.01 … 1."""
MAX_HIDDEN_SETTINGS = 32
"""Settings that a file may have on a hidden split."""
TOO_COARSE = "too_coarse"
HELD_BACK = "held_back"
AREAS = ("area", "uninformed_area", "oracle_area")
ACCURACY_FIGURES = (
    *AREAS,
    "max_accuracy",
    "accuracy_25",
    "accuracy_50",
    "accuracy_75",
)
BUDGETS = {"0.25": "accuracy_25", "0.5": "accuracy_50", "0.75": "accuracy_75"}
OVERTHINKING_FIGURES = (
    "full_thinking_accuracy",
    "zero_step_accuracy",
    "endpoint_accuracy",
    "overthinking_ratio",
    "accuracy_degradation",
)
# What a document of a hidden split says besides figures: names, counts and tokens, all of which are public.
PUBLIC_SCORE_KEYS = ("snapshot", "snapshot_sha256", "kind", "split", "strategy", "scorer_version", "actions_sha256")


@dataclass(frozen=True)
class ReleasedFrontier:
    """The frontier and the uninformed reference of one board as they may be shown, at even relative budgets.

    `quantum` is how coarsely its figures are told, None where labels are open and it is exact.
    """

    strategy: str
    split: str
    model: str | None
    benchmark: str | None
    n_cells: int
    min_questions: int
    full_accuracy: float
    beta_match: float | None
    max_accuracy: float
    beta_sat: float
    area: float
    uninformed_area: float
    grid_accuracy: tuple[float, ...]
    uninformed_grid: tuple[float, ...]
    quantum: float | None


@dataclass(frozen=True)
class ReleasedFigures:
    """A score's figures on one board of a hidden split, each rounded to its quantum.

    `beta_match`, `tokens_saved`, `gap` and `best_e3` are computed from the other figures as they are told, so they tell
    nothing more. `potential_quantum` is None where realised potential is not told.
    """

    realised_potential: float | None
    area: float
    uninformed_area: float
    oracle_area: float
    gap: float
    max_accuracy: float
    beta_match: float | None
    tokens_saved: float | None
    accuracy_25: float
    accuracy_50: float
    accuracy_75: float
    best_e3: float | None
    reason: str | None
    reasons: Mapping[str, str]
    curve: StepSeries
    quantum: float
    potential_quantum: float | None


class Row(Protocol):
    """A row of a board: a frozen dataclass with figures under their names."""

    @property
    def submission_id(self) -> str: ...
    @property
    def realised_potential(self) -> float | None: ...
    @property
    def area(self) -> float: ...


AnyRow = TypeVar("AnyRow", bound=Row)


@dataclass(frozen=True)
class StoredBoard:
    """What is stored of a submission on one board and is not told as it is."""

    figures: Mapping[str, Any]
    curve: StepSeries
    n_cells: int
    min_questions: int


class HiddenLabelsError(ForbiddenError):
    """Something was asked for that would tell labels which are hidden."""

    code = "labels_hidden"
    title = "The labels of this split are hidden"


def are_labels_told(snapshot: models.Snapshot, split: str) -> bool:
    """Whether whatever rests on the labels of a split may be told as it is: the one place that decides.

    Where this is false, figures leave by the other functions of this module, and single units and settings not at all.
    """
    return not labels_hidden(snapshot, split)


def require_told_labels(snapshot: models.Snapshot, split: str, *, what: str) -> None:
    """Raise `HiddenLabelsError` where the labels of a split are hidden; `what` names what was asked for."""
    if not are_labels_told(snapshot, split):
        raise HiddenLabelsError(f"The labels of split {split!r} of snapshot {snapshot.name} are hidden: {what}.")


def require_told_version(snapshot: models.Snapshot, split: str, *, asked: str | None, shown: str | None) -> None:
    """Raise where figures of another scorer version than the shown one are asked for on a hidden split.

    Two versions of one file's figures are two releases, and where the versions differ in a few units they would tell
    those. The version that is shown changes when an organiser applies a re-scoring.
    """
    if asked is not None and asked != shown:
        require_told_labels(snapshot, split, what=f"its figures are told by scorer version {shown} only")


def find_max_settings(snapshot: models.Snapshot, split: str) -> int:
    """Return how many settings a file may have on a split."""
    return MAX_SETTINGS if are_labels_told(snapshot, split) else MAX_HIDDEN_SETTINGS


def find_quanta(snapshot: models.Snapshot, *, strategy: Strategy, n_cells: int, min_questions: int) -> Quanta:
    """Return the quanta of a board of a hidden split."""
    weight = find_unit_weight(
        n_cells=n_cells,
        min_questions=min_questions,
        trajectories_per_question=snapshot.trajectories_per_question,
        unit_is_trajectory=strategy.unit_is_trajectory,
    )
    return build_quanta(weight)


def release_curve(curve: StepSeries, quanta: Quanta) -> StepSeries:
    """Return a method's curve as it may be told: its accuracies at 0, 0.05 … 1, where they rise, rounded."""
    budgets = np.arange(METHOD_INTERVALS + 1) / METHOD_INTERVALS
    exact = curve.accuracy[np.searchsorted(curve.beta, budgets, side="right") - 1]
    return StepSeries(budgets, np.array([round_to(float(value), quanta.accuracy) for value in exact]))


def release_figures(stored: StoredBoard, quanta: Quanta, *, full_accuracy: float) -> ReleasedFigures:
    """Return a board's figures as they may be told.

    Parameters
    ----------
    full_accuracy : the board's exact full-thinking accuracy; it is told rounded as the other accuracies are.
    """
    told = {name: round_to(stored.figures[name], quanta.accuracy) for name in ACCURACY_FIGURES}
    curve = release_curve(stored.curve, quanta)
    base = round_to(full_accuracy, quanta.accuracy)
    quantum = find_potential_quantum(
        quanta, area=told["area"], uninformed_area=told["uninformed_area"], oracle_area=told["oracle_area"]
    )
    potential = None if quantum is None else round_to(stored.figures["realised_potential"], quantum)
    beta_match = _find_first(curve.beta.tolist(), curve.accuracy.tolist(), base)
    best = _find_best_e3(curve, base_accuracy=base)
    reasons = {
        "realised_potential": TOO_COARSE if potential is None else None,
        "beta_match": NEVER_REACHED if beta_match is None else None,
        "tokens_saved": NEVER_REACHED if beta_match is None else None,
        "best_e3": BASE_ACCURACY_DEGENERATE if best is None else None,
    }
    return ReleasedFigures(
        **told,
        realised_potential=potential,
        gap=_tidy(told["oracle_area"] - told["area"]),
        beta_match=beta_match,
        tokens_saved=None if beta_match is None else _tidy(1 - beta_match),
        best_e3=best,
        reason=reasons["realised_potential"],
        reasons={name: reason for name, reason in reasons.items() if reason is not None},
        curve=curve,
        quantum=float(quanta.accuracy),
        potential_quantum=None if quantum is None else float(quantum),
    )


def release_rows(
    session: Session,
    snapshot: models.Snapshot,
    rows: Sequence[AnyRow],
    found: Sequence[RowMapping],
    *,
    split: str,
    strategy: Strategy,
) -> tuple[AnyRow, ...]:
    """Return the rows of one board as they may be shown, best first by what is told of them.

    Parameters
    ----------
    rows : the rows with their exact figures, best first.
    found : what the ranking query gave for each; on a hidden split with `RELEASE_COLUMNS`.
    """
    if are_labels_told(snapshot, split):
        return tuple(rows)
    base = list_full_accuracies(session, snapshot, split=split, strategy=strategy)
    released: list[tuple[Any, AnyRow]] = []
    for row, one in zip(rows, found, strict=True):
        stored = read_stored(one)
        quanta = find_quanta(snapshot, strategy=strategy, n_cells=stored.n_cells, min_questions=stored.min_questions)
        if quanta.is_coarsest:
            continue
        figures = release_figures(stored, quanta, full_accuracy=base[one["model"], one["benchmark"]])
        told = _tell_row(row, figures)
        potential = told.realised_potential
        key = (potential is None, 0.0 if potential is None else -potential, -told.area, one["submitted_at"])
        released.append(((*key, row.submission_id), told))
    return tuple(row for _, row in sorted(released, key=lambda pair: pair[0]))


def release_standing(
    session: Session, snapshot: models.Snapshot, found: Sequence[RowMapping], *, split: str, strategy: Strategy
) -> list[Mapping[Any, Any]]:
    """Return rows of the ranking query (with `FIGURE_COLUMNS`) with their figures as they may be told.

    Boards that are too small for anything to be told are left out.
    """
    if are_labels_told(snapshot, split):
        return list(found)
    base = list_full_accuracies(session, snapshot, split=split, strategy=strategy)
    released: list[Mapping[Any, Any]] = []
    for row in found:
        quanta = find_quanta(snapshot, strategy=strategy, n_cells=row["n_cells"], min_questions=row["min_questions"])
        if not quanta.is_coarsest:
            full_accuracy = base[row["model"], row["benchmark"]]
            told = release_figures(read_stored(row), quanta, full_accuracy=full_accuracy)
            released.append({**row, **{name: value for name, value in vars(told).items() if name in row}})
    return released


RELEASE_COLUMNS = ("model", "benchmark", "n_cells", "min_questions", "curve_beta", "curve_accuracy", "submitted_at")
FIGURE_COLUMNS = (
    "realised_potential",
    *ACCURACY_FIGURES,
    "gap",
    "beta_match",
    "tokens_saved",
    "best_e3",
    *RELEASE_COLUMNS[:-1],
)
POTENTIAL_COLUMNS = ("n_cells", "min_questions", "area", "uninformed_area", "oracle_area")


def find_told_potential(
    snapshot: models.Snapshot, found: Any, *, split: str, strategy: Strategy
) -> ToldPotential | None:
    """Return the realised potential in a row of the ranking query (with `POTENTIAL_COLUMNS`) as it may be told.

    None where it is not told at all. Where labels are open it is exact, and its interval has no steps.
    """
    if found.realised_potential is None:
        return None
    if are_labels_told(snapshot, split):
        return ToldPotential(found.realised_potential, None, is_exact=True)
    quanta = find_quanta(snapshot, strategy=strategy, n_cells=found.n_cells, min_questions=found.min_questions)
    return None if quanta.is_coarsest else _tell_potential(found._mapping, quanta)


def release_score(
    session: Session, snapshot: models.Snapshot, document: Document, *, submission_id: str, score_id: int
) -> Document:
    """Return a score document as it may be told: on a hidden split boards with curves, and no settings.

    Parameters
    ----------
    document : as it is stored, with intervals where there are any.
    """
    split, strategy = document["split"], Strategy(document["strategy"])
    if are_labels_told(snapshot, split):
        return document
    base = list_full_accuracies(session, snapshot, split=split, strategy=strategy)
    held = list_held(session, submission_id)
    stored = {
        (row.model, row.benchmark): row
        for row in session.scalars(select(models.BoardScore).where(models.BoardScore.score_id == score_id))
    }
    boards: list[Document] = []
    reasons: dict[BoardNames, str] = dict.fromkeys(held, HELD_BACK)
    for board in document["boards"]:
        key = (board["model"], board["benchmark"])
        row = stored[key]
        quanta = find_quanta(snapshot, strategy=strategy, n_cells=row.n_cells, min_questions=row.min_questions)
        if quanta.is_coarsest:
            reasons.setdefault(key, TOO_COARSE)
        elif key not in held:
            figures = release_figures(read_stored(vars(row)), quanta, full_accuracy=base[key])
            boards.append(_tell_board(board, figures))
    return {
        **{key: document[key] for key in PUBLIC_SCORE_KEYS},
        "warnings": document["warnings"],
        "settings": [],
        "boards": boards,
        "held_back": [
            {"model": model, "benchmark": benchmark, "reason": why} for (model, benchmark), why in reasons.items()
        ],
        "summary": next((board for board in boards if board["model"] is None and board["benchmark"] is None), None),
        "summary_reason": document["summary_reason"] or reasons.get((None, None)),
    }


def release_board_curve(session: Session, submission_id: str, row: models.BoardScore) -> StepSeries | None:
    """Return a submission's curve on a board as it may be told.

    None where the whole score is withheld, where the board is held back, and where it is too small.
    """
    exact = StepSeries(np.array(row.curve_beta), np.array(row.curve_accuracy))
    submission = session.get_one(models.Submission, submission_id)
    snapshot = session.get_one(models.Snapshot, submission.snapshot_id)
    if are_labels_told(snapshot, submission.split):
        return exact
    strategy = Strategy(submission.strategy)
    quanta = find_quanta(snapshot, strategy=strategy, n_cells=row.n_cells, min_questions=row.min_questions)
    is_told = (
        submission.scored_at is not None
        and not quanta.is_coarsest
        and (row.model, row.benchmark) not in list_held(session, submission_id)
    )
    return release_curve(exact, quanta) if is_told else None


def list_board_series(
    snapshot: models.Snapshot,
    found: Sequence[tuple[str, models.BoardScore]],
    *,
    split: str,
    strategy: Strategy,
) -> dict[str, StepSeries]:
    """Return the curves of submissions that stand on one board as they may be told; none where it is too small."""
    told = {key: StepSeries(np.array(row.curve_beta), np.array(row.curve_accuracy)) for key, row in found}
    if are_labels_told(snapshot, split):
        return told
    quanta = {
        key: find_quanta(snapshot, strategy=strategy, n_cells=row.n_cells, min_questions=row.min_questions)
        for key, row in found
    }
    return {key: release_curve(curve, quanta[key]) for key, curve in told.items() if not quanta[key].is_coarsest}


def list_open(session: Session, submission_ids: Sequence[str]) -> list[str]:
    """Return those of the submissions whose split's labels are open: of others no setting, unit or regret is told."""
    submission = models.Submission
    query = select(submission.id, submission.split, submission.snapshot_id).where(submission.id.in_(submission_ids))
    found = session.execute(query).all()
    snapshots = {key: session.get_one(models.Snapshot, key) for key in {row.snapshot_id for row in found}}
    open_ids = {row.id for row in found if are_labels_told(snapshots[row.snapshot_id], row.split)}
    return [submission_id for submission_id in submission_ids if submission_id in open_ids]


def release_frontier(snapshot: models.Snapshot, row: models.BoardFrontier) -> ReleasedFrontier | None:
    """Return a board's frontier as it may be shown; None where the board is too small for that."""
    exact = {field.name: getattr(row, field.name) for field in fields(ReleasedFrontier) if field.name != "quantum"}
    for name in ("grid_accuracy", "uninformed_grid"):
        exact[name] = tuple(exact[name])
    if are_labels_told(snapshot, row.split):
        return ReleasedFrontier(**exact, quantum=None)
    strategy = Strategy(row.strategy)
    quanta = find_quanta(snapshot, strategy=strategy, n_cells=row.n_cells, min_questions=row.min_questions)
    if quanta.is_coarsest:
        return None
    step = (len(row.grid_accuracy) - 1) // FRONTIER_INTERVALS
    told = _tell_curve(row.grid_accuracy[::step], row.full_accuracy, quanta)
    return ReleasedFrontier(
        **{
            **exact,
            "full_accuracy": told["endpoint_accuracy"],
            "beta_match": told["beta_match"],
            "beta_sat": told["beta_sat"],
            "grid_accuracy": tuple(told["accuracy"]),
            "uninformed_grid": tuple(round_to(value, quanta.accuracy) for value in row.uninformed_grid[::step]),
            **{name: round_to(exact[name], quanta.accuracy) for name in ("max_accuracy", "area", "uninformed_area")},
        },
        quantum=float(quanta.accuracy),
    )


def release_frontiers(snapshot: models.Snapshot, document: Document) -> Document:
    """Return a frontier document as it may be told: of a hidden split no costs, probes or certificates.

    It has accuracies at the relative budgets 0, 0.01 … 1; the two budgets are found on those.
    """
    if are_labels_told(snapshot, document["split"]):
        return document
    cells = [(cell, find_weight_of_cell(snapshot, cell)) for cell in document["cells"]]
    told = [_tell_frontier(cell, build_quanta(weight), FRONTIER_CELL_KEYS) for cell, weight in cells]
    macro = []
    for board in document["macro"]:
        weights = [weight for cell, weight in cells if cell["strategy"] == board["strategy"]]
        quanta = build_quanta(max(weights) / len(weights))
        macro.append(_tell_frontier(board, quanta, ("strategy", "cells", "grid")))
    head = {key: document[key] for key in ("snapshot", "snapshot_sha256", "kind", "split")}
    return {**head, "cells": [cell for cell in told if cell], "macro": [board for board in macro if board]}


FRONTIER_CELL_KEYS = ("model", "benchmark", "strategy", "total_thinking_tokens", "total_probes")


def find_weight_of_cell(snapshot: models.Snapshot, cell: Mapping[str, Any]) -> Fraction:
    """Return what one unit weighs in a cell of a frontier document."""
    per_trajectory = Fraction(snapshot.probes_per_position, cell["total_probes"])
    is_trajectory = Strategy(cell["strategy"]).unit_is_trajectory
    return per_trajectory if is_trajectory else per_trajectory * snapshot.trajectories_per_question


def release_overthinking(snapshot: models.Snapshot, document: Document) -> Document:
    """Return an overthinking document as it may be told: of a hidden split each figure rounded to its quantum.

    A trajectory moves the mean over n·R of them by 1/(n·R) at most, whatever its labels are: its overthinking
    ratio, its loss and its accuracies lie in [0, 1].
    """
    if are_labels_told(snapshot, document["split"]):
        return document
    weights = {(cell["model"], cell["benchmark"]): Fraction(1, cell["trajectories"]) for cell in document["cells"]}
    cells = [
        {**{key: cell[key] for key in ("model", "benchmark", "questions", "trajectories")}, **figures}
        for cell in document["cells"]
        if (figures := _tell_overthinking(cell, [weights[cell["model"], cell["benchmark"]]])) is not None
    ]

    def mean(figures: Document | None, chosen: Iterable[Fraction]) -> Document | None:
        return None if figures is None else _tell_overthinking(figures, list(chosen))

    head = {key: document[key] for key in ("snapshot", "snapshot_sha256", "kind", "split")}
    return {
        **head,
        "cells": cells,
        "macro": mean(document["macro"], weights.values()),
        "by_model": {
            name: mean(figures, (w for (model, _), w in weights.items() if model == name))
            for name, figures in document["by_model"].items()
        },
        "by_benchmark": {
            name: mean(figures, (w for (_, benchmark), w in weights.items() if benchmark == name))
            for name, figures in document["by_benchmark"].items()
        },
    }


def spread_intervals(
    snapshot: models.Snapshot, board: BoardIntervals, stored: models.BoardScore, *, split: str, strategy: Strategy
) -> BoardIntervals:
    """Return a board's intervals as they are stored: of a hidden split those that can be told.

    They have the half-widths of `app/evaluator/told_intervals.py` about the exact figures, and realised potential is
    linearised in the replicates where it is told. Figures computed from others have none.
    """
    if are_labels_told(snapshot, split) or all(interval is None for interval in board.intervals.values()):
        return board
    quanta = find_quanta(snapshot, strategy=strategy, n_cells=stored.n_cells, min_questions=stored.min_questions)
    values = dict(board.values)
    intervals: dict[str, Interval | None] = dict.fromkeys(board.intervals)
    if not quanta.is_coarsest:
        spread = {name: (getattr(stored, name), find_half_width(values[name])) for name in ACCURACY_FIGURES}
        told = _tell_potential(vars(stored), quanta)
        if told is not None:
            areas = (values[name] for name in AREAS)
            room = round_to(stored.oracle_area, quanta.accuracy) - round_to(stored.uninformed_area, quanta.accuracy)
            values["realised_potential"] = linearise_potential(*areas, told=told.value, potential=room)
            spread["realised_potential"] = (told.value, find_half_width(values["realised_potential"]))
        intervals |= {name: Interval(figure - half, figure + half) for name, (figure, half) in spread.items()}
    reasons = {name: board.reasons.get(name, TOO_COARSE) for name, interval in intervals.items() if interval is None}
    return BoardIntervals(board.model, board.benchmark, values, intervals, reasons)


def release_difference(drawn: tuple[FloatArray, FloatArray], *, figures: tuple[Document, Document]) -> Interval | None:
    """Return the interval of two realised potentials' difference as it may be told, None where there is none.

    Parameters
    ----------
    drawn : both in every replicate, as they are stored. figures : both boards as they are told.
    """
    if not any("potential_quantum" in board for board in figures):
        return find_difference(*drawn)
    first, second = (
        ToldPotential(board["realised_potential"], _find_width_step("realised_potential", board)) for board in figures
    )
    return tell_difference(first, second, drawn)


def rank_methods(told: Sequence[ToldPotential], values: Sequence[FloatArray]) -> IntArray:
    """Return shared ranks: on a hidden split by the differences as they are told, so that they tell nothing more.

    Parameters
    ----------
    told : what is told of each method. values : its realised potential in every replicate, as it is stored.
    """
    return compare_pairs(np.stack(values)) if all(one.is_exact for one in told) else rank_told(told, values)


def list_full_accuracies(
    session: Session, snapshot: models.Snapshot, *, split: str, strategy: Strategy
) -> dict[BoardNames, float]:
    """Return the exact full-thinking accuracy of every board; whatever leaves is rounded after it."""
    table = models.BoardFrontier
    query = (
        select(table.model, table.benchmark, table.full_accuracy)
        .where(table.snapshot_id == snapshot.id, table.split == split, table.strategy == strategy.value)
        .order_by(table.id)
    )
    return {(model, benchmark): accuracy for model, benchmark, accuracy in session.execute(query)}


def list_held(session: Session, submission_id: str) -> frozenset[BoardNames]:
    """Return the boards of a submission that are held back."""
    held = models.HeldBoard
    query = select(held.model, held.benchmark).where(held.submission_id == submission_id)
    return frozenset((model, benchmark) for model, benchmark in session.execute(query))


def is_held(submission: type[models.Submission], board: type[models.BoardScore]) -> ColumnElement[bool]:
    """Return the condition that a board of a submission is held back."""
    held = models.HeldBoard
    return (
        select(held.id)
        .where(
            held.submission_id == submission.id,
            held.model.is_not_distinct_from(board.model),
            held.benchmark.is_not_distinct_from(board.benchmark),
        )
        .exists()
    )


def read_stored(found: Mapping[Any, Any]) -> StoredBoard:
    """Return what is stored of a board: a row of the ranking query, or of the table."""
    figures = {name: found[name] for name in (*ACCURACY_FIGURES, "realised_potential")}
    curve = StepSeries(np.array(found["curve_beta"]), np.array(found["curve_accuracy"]))
    return StoredBoard(figures, curve, n_cells=found["n_cells"], min_questions=found["min_questions"])


def _tell_potential(figures: Mapping[Any, Any], quanta: Quanta) -> ToldPotential | None:
    """Return a realised potential as it is told, from a board's exact figures."""
    areas = {name: round_to(figures[name], quanta.accuracy) for name in AREAS}
    quantum = find_potential_quantum(quanta, **areas)
    if quantum is None or figures["realised_potential"] is None:
        return None
    told = {**areas, "quantum": float(quanta.accuracy), "realised_potential": 0.0}
    told["realised_potential"] = round_to(figures["realised_potential"], quantum)
    return ToldPotential(told["realised_potential"], _find_width_step("realised_potential", told))


def _tell_row(row: AnyRow, figures: ReleasedFigures) -> AnyRow:
    """Return a row with its figures as they are told; a figure this module does not know is left out."""
    changes: dict[str, Any] = {}
    for name in (field.name for field in fields(row)):  # type: ignore[arg-type]
        value = getattr(row, name)
        if name in ReleasedFigures.__dataclass_fields__ and name != "curve":
            changes[name] = getattr(figures, name)
        elif name.endswith("_low"):
            figure = name.removesuffix("_low")
            ends = None if value is None else [value, getattr(row, f"{figure}_high")]
            changes[name], changes[f"{figure}_high"] = _tell_ends(figure, ends, vars(figures)) or (None, None)
        elif isinstance(value, float) and name not in changes:
            changes[name] = None
    return replace(row, **changes)  # type: ignore[type-var]


def _tell_board(board: Document, figures: ReleasedFigures) -> Document:
    accuracy_at = {budget: getattr(figures, name) for budget, name in BUDGETS.items()}
    intervals = board.get("intervals")
    return {
        **{key: board[key] for key in ("model", "benchmark", "n_settings")},
        "realised_potential": figures.realised_potential,
        "area": figures.area,
        "uninformed_area": figures.uninformed_area,
        "oracle_area": figures.oracle_area,
        "gap": figures.gap,
        "max_accuracy": figures.max_accuracy,
        "beta_match": figures.beta_match,
        "tokens_saved": figures.tokens_saved,
        "accuracy_at": accuracy_at,
        "best_e3": figures.best_e3,
        "reason": figures.reason,
        "reasons": dict(figures.reasons),
        **{key: board[key] for key in ("n_cells", "min_questions")},
        "quantum": figures.quantum,
        "potential_quantum": figures.potential_quantum,
        "curve": {"beta": figures.curve.beta.tolist(), "accuracy": figures.curve.accuracy.tolist()},
        "intervals": None if intervals is None else _tell_intervals(intervals, figures),
    }


def _tell_intervals(intervals: Document, figures: ReleasedFigures) -> Document:
    """Return intervals about the told figures, their half-widths rounded up; of computed figures there are none."""
    told: Document = {}
    for name, ends in intervals.items():
        if name == "accuracy_at":
            told[name] = {b: _tell_ends(BUDGETS[b], pair, vars(figures)) for b, pair in ends.items()}
        else:
            told[name] = _tell_ends(name, ends, vars(figures))
    return told


def _tell_ends(name: str, ends: Sequence[float] | None, told: Mapping[str, Any]) -> list[float] | None:
    """Return the ends of a figure's interval as they are told, from those that are stored."""
    if ends is None or told.get(name) is None:
        return None
    limits = (-math.inf, 1.0) if name == "realised_potential" else (0.0, 1.0)
    interval = tell_interval(told[name], (ends[1] - ends[0]) / 2, _find_width_step(name, told), limits=limits)
    return None if interval is None else [interval.low, interval.high]


def _find_width_step(name: str, told: Mapping[str, Any]) -> Fraction | None:
    """Return the step that a figure's half-width is told in, from a board's figures as they are told."""
    quantum = _as_fraction(told["quantum"])
    if name in ACCURACY_FIGURES:
        return find_width_step(quantum)
    if name != "realised_potential" or told[name] is None:
        return None
    areas = {key: told[key] for key in ("uninformed_area", "oracle_area")}
    return find_potential_step(quantum, told=told[name], **areas)


def _tell_frontier(curve: Document, quanta: Quanta, public: Sequence[str]) -> Document | None:
    if quanta.is_coarsest:
        return None
    return {
        **{key: curve[key] for key in public},
        **_tell_curve(curve["accuracy"], curve["endpoint_accuracy"], quanta),
        **{name: round_to(curve[name], quanta.accuracy) for name in ("max_accuracy", "area", "uninformed_area")},
        "quantum": float(quanta.accuracy),
    }


def _tell_curve(accuracies: Sequence[float], full_accuracy: float, quanta: Quanta) -> Document:
    """Return a frontier at even budgets, full thinking's accuracy, and the two budgets as one reads them off these."""
    told = [round_to(value, quanta.accuracy) for value in accuracies]
    full = round_to(full_accuracy, quanta.accuracy)
    grid = [i / (len(told) - 1) for i in range(len(told))]
    return {
        "endpoint_accuracy": full,
        "beta_match": _find_first(grid, told, full),
        "beta_sat": _find_first(grid, told, told[-1]),
        "accuracy": told,
    }


def _tell_overthinking(figures: Document, weights: Sequence[Fraction]) -> Document | None:
    quanta = build_quanta(max(weights) / len(weights))
    if quanta.is_coarsest:
        return None
    told = {
        name: None if figures[name] is None else round_to(figures[name], quanta.accuracy)
        for name in OVERTHINKING_FIGURES
    }
    return {"mean_thinking_tokens": figures["mean_thinking_tokens"], **told, "quantum": float(quanta.accuracy)}


def _find_first(budgets: Sequence[float], accuracies: Sequence[float], target: float) -> float | None:
    return next((beta for beta, accuracy in zip(budgets, accuracies, strict=True) if accuracy >= target), None)


def _find_best_e3(curve: StepSeries, *, base_accuracy: float) -> float | None:
    """Return the best E3 along a curve as it is told, with tokens as shares of full thinking's."""
    points = zip(curve.accuracy.tolist(), curve.beta.tolist(), strict=True)
    values = [e3(accuracy, beta, base_accuracy=base_accuracy, base_tokens=1.0) for accuracy, beta in points]
    known = [value for value in values if value is not None]
    return round(max(known), 3) if known else None


def _tidy(value: float) -> float:
    """Return a difference of multiples of 0.1 point without the dust of floats."""
    return round(value, 3)


def _as_fraction(quantum: float) -> Fraction:
    return Fraction(round(quantum * 1000), 1000)
