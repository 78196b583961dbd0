"""Bootstrap intervals of a submission's ranked figures, on the replicates of its snapshot's split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.evaluator.measurements import Measurements
from app.evaluator.replicate_frontiers import N_INTERVALS, ReplicateFrontiers
from app.evaluator.resampled_boards import (
    TOLERANCE,
    BoardIntervals,
    BoardNames,
    ResampledBoard,
    attach_intervals,
    find_first,
    find_full_accuracy,
    list_resampled_boards,
)
from app.evaluator.resampled_settings import (
    PreparedSettings,
    ResampledSettings,
    Stops,
    find_stops,
    prepare_settings,
    resample_settings,
)
from app.evaluator.scoring import BUDGET_NAMES, Score
from app.evaluator.strategies import ActionTable, Strategy

FloatArray = NDArray[np.float64]
Estimates = Mapping[BoardNames, Mapping[str, float | None]]

N_SUBMISSION_REPLICATES = 2000
BLOCK = 500
"""A submission is resampled on so many replicates at a time, which bounds memory; an interrupted job loses no more."""

RANKED_FIGURES = (
    "realised_potential",
    "area",
    "uninformed_area",
    "oracle_area",
    "gap",
    "max_accuracy",
    "beta_match",
    "tokens_saved",
    "accuracy_25",
    "accuracy_50",
    "accuracy_75",
    "best_e3",
)


@dataclass(frozen=True, eq=False)
class SubmissionIntervals:
    """A submission on the boards it stands on, in the order of its score's boards."""

    strategy: Strategy
    n_replicates: int
    seed: int
    boards: tuple[BoardIntervals, ...]


def bootstrap_submission(
    measurements: Measurements,
    table: ActionTable,
    score: Score,
    replicates: ReplicateFrontiers,
    *,
    n_replicates: int = N_SUBMISSION_REPLICATES,
) -> SubmissionIntervals:
    """Return a submission's ranked figures over the replicates, with intervals, on every board it stands on.

    A replicate draws questions and trajectories; the actions of what it draws are the file's. Its settings' points in
    the replicate make the method's curve there, at budgets i/100 of the replicate's own full thinking, as in a score.

    Parameters
    ----------
    measurements, table : as for `score_actions`. score : what that returned for them.
    replicates : of the same measurements, at least `n_replicates`; all submissions use the same draws, so differences
        between two of them, replicate by replicate, are paired.

    Returns
    -------
    SubmissionIntervals; figures are those of `RANKED_FIGURES`.

    Raises
    ------
    ValueError : hidden labels, or parts that do not belong together.

    Notes
    -----
    Section 5. Tokens and probes of each setting and trajectory are added up by what was drawn; everything after that
    is small. O(replicates x trajectories x settings).

    Examples
    --------
    >>> from app.evaluator.frontier import solve_frontiers
    >>> from app.evaluator.measurements import build_cell
    >>> from app.evaluator.reference import build_references
    >>> from app.evaluator.replicate_frontiers import compute_replicates
    >>> from app.evaluator.scoring import score_actions
    >>> from app.evaluator.strategies import CellActions
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (10, 4), (30, 2)]])], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    >>> early_exit = Strategy.DYNAMIC_EARLY_EXIT
    >>> references = build_references(measurements, early_exit, solve_frontiers(measurements))
    >>> table = ActionTable(early_exit, ("default",), (CellActions(np.array([True]), np.array([[1]])),))
    >>> score = score_actions(measurements, table, references)
    >>> replicates = compute_replicates(measurements, range(3))
    >>> result = bootstrap_submission(measurements, table, score, replicates, n_replicates=3)
    >>> result.boards[0].values["accuracy_50"].tolist(), result.boards[0].reasons["accuracy_50"]
    ([1.0, 1.0, 1.0], 'too_few_questions')
    """
    used = replicates.take(n_replicates)
    _check_parts(measurements, table, score, used)
    prepared = prepare_submission(measurements, table.strategy, find_stops(measurements, table))
    values = [resample_rows(prepared, used, rows) for rows in list_blocks(used.n_replicates)]
    return summarise_submission(prepared, used, np.concatenate(values, axis=2), list_estimates(score))


def list_estimates(score: Score) -> Estimates:
    """Return the figures of a score on each of its boards, by their names."""
    return {
        (board.model, board.benchmark): {
            **{name: getattr(board, name) for name in RANKED_FIGURES if hasattr(board, name)},
            **{name: board.accuracy_at[budget] for budget, name in BUDGET_NAMES.items()},
        }
        for board in score.boards
    }


def list_blocks(n_replicates: int) -> list[range]:
    """Return the rows of replicates that a submission is resampled on at a time.

    Always the same ones, so that a submission resampled block by block and one resampled in one go have the same bytes.
    """
    return [range(start, min(start + BLOCK, n_replicates)) for start in range(0, n_replicates, BLOCK)]


@dataclass(frozen=True, eq=False)
class PreparedSubmission:
    """What all replicates of a submission share: its strategy, its settings cell by cell, which settings cover which.

    `covered`: bool, cells x settings.
    """

    strategy: Strategy
    cells: tuple[PreparedSettings, ...]
    covered: NDArray[np.bool_]


def prepare_submission(measurements: Measurements, strategy: Strategy, stops: Sequence[Stops]) -> PreparedSubmission:
    """Return what all replicates of a submission share, from where it stops (`find_stops`).

    Raises
    ------
    ValueError : stops of other measurements, or hidden labels.
    """
    if not measurements.has_labels:
        raise ValueError("the labels of a cell are hidden")
    cells = tuple(prepare_settings(*pair) for pair in zip(measurements.cells, stops, strict=True))
    return PreparedSubmission(strategy, cells, np.stack([cell.covered for cell in cells]))


def resample_rows(prepared: PreparedSubmission, replicates: ReplicateFrontiers, rows: range) -> FloatArray:
    """Return a submission's figures over some rows of the replicates; see `bootstrap_submission`.

    Returns
    -------
    float64, boards it stands on x `RANKED_FIGURES` x rows; NaN where a replicate has no such figure.

    Raises
    ------
    ValueError : replicates of other measurements.
    """
    if replicates.cells != tuple((p.cell.model, p.cell.benchmark) for p in prepared.cells):
        raise ValueError("the measurements and the replicates differ in their cells")
    used = replicates.take_rows(rows)
    cells = [resample_settings(of_cell, used, at=at) for at, of_cell in enumerate(prepared.cells)]
    areas = used.oracle_area()[:, :, list(Strategy).index(prepared.strategy)]
    values = []
    for board in _list_standing(prepared, used):
        figures = _list_ranked_figures(used, board, cells=cells, submission=prepared, areas=areas)
        values.append([figures[name] for name in RANKED_FIGURES])
    return np.array(values).reshape(-1, len(RANKED_FIGURES), len(rows))


def summarise_submission(
    prepared: PreparedSubmission, replicates: ReplicateFrontiers, values: FloatArray, estimates: Estimates
) -> SubmissionIntervals:
    """Return the intervals of a submission's figures.

    Parameters
    ----------
    values : what `resample_rows` returned, over all rows.
    estimates : the figures of its score, of every board it stands on.
    """
    boards = tuple(
        attach_intervals(board, dict(zip(RANKED_FIGURES, figures, strict=True)), estimates[board.names])
        for board, figures in zip(_list_standing(prepared, replicates), values, strict=True)
    )
    return SubmissionIntervals(prepared.strategy, replicates.n_replicates, replicates.seed, boards)


def _list_standing(prepared: PreparedSubmission, replicates: ReplicateFrontiers) -> Iterator[ResampledBoard]:
    """Yield the boards each of whose cells is covered by a setting."""
    for board in list_resampled_boards(replicates):
        if prepared.covered[board.idx].any(axis=1).all():
            yield board


def _check_parts(measurements: Measurements, table: ActionTable, score: Score, replicates: ReplicateFrontiers) -> None:
    expected = [(cell.model, cell.benchmark, cell.n_questions) for cell in measurements.cells]
    found = [(*names, n) for names, n in zip(replicates.cells, replicates.n_questions.tolist(), strict=True)]
    if found != expected or len(table.cells) != len(expected):
        raise ValueError("the measurements, the actions and the replicates differ in their cells")
    if (score.sha256, score.split, score.strategy) != (measurements.sha256, measurements.split, table.strategy):
        raise ValueError("the score is of other measurements or another strategy")


def _list_ranked_figures(
    replicates: ReplicateFrontiers,
    board: ResampledBoard,
    *,
    cells: Sequence[ResampledSettings],
    submission: PreparedSubmission,
    areas: FloatArray,
) -> dict[str, FloatArray]:
    idx = board.idx
    curve = np.mean([cells[i].curve for i in idx], axis=0)
    area = np.trapezoid(curve, dx=1 / N_INTERVALS, axis=1)
    oracle = areas[:, idx].mean(axis=1)
    uninformed = replicates.uninformed_area[:, idx, list(Strategy).index(submission.strategy)].mean(axis=1)
    room = oracle - uninformed
    has_potential = room > TOLERANCE
    beta_match = find_first(curve, find_full_accuracy(replicates, idx))
    return {
        "realised_potential": np.where(has_potential, (area - uninformed) / np.where(has_potential, room, 1.0), np.nan),
        "area": area,
        "uninformed_area": uninformed,
        "oracle_area": oracle,
        "gap": oracle - area,
        "max_accuracy": curve[:, -1],
        "beta_match": beta_match,
        "tokens_saved": 1 - beta_match,
        "accuracy_25": curve[:, 25],
        "accuracy_50": curve[:, 50],
        "accuracy_75": curve[:, 75],
        "best_e3": _find_best_e3(
            replicates, board, cells=cells, complete=np.logical_and.reduce(submission.covered[idx])
        ),
    }


def _find_best_e3(
    replicates: ReplicateFrontiers,
    board: ResampledBoard,
    *,
    cells: Sequence[ResampledSettings],
    complete: NDArray[np.bool_],
) -> FloatArray:
    """Return each replicate's best E3 of the settings that cover the board; NaN where it has none, or no bound."""
    idx = board.idx
    n = replicates.n_replicates
    if not complete.any():
        return np.full(n, np.nan)
    accuracy = np.mean([cells[i].accuracy[:, complete] for i in idx], axis=0)
    tokens = np.mean([cells[i].tokens[:, complete] for i in idx], axis=0)
    right = replicates.total("endpoint_correct")[:, idx]
    thought = replicates.total("thinking_tokens")[:, idx]
    n_trajectories = replicates.n_questions[idx] * replicates.trajectories_per_question
    base_accuracy = find_full_accuracy(replicates, idx)[:, None]
    base_tokens = (thought / n_trajectories).mean(axis=1)[:, None]
    is_degenerate = ~right.any(axis=1) | (right == replicates.total_probes[idx]).all(axis=1) | ~thought.any(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        wrong_odds = (1 - accuracy) / accuracy
        denominator = base_accuracy * wrong_odds * base_accuracy / (1 - base_accuracy)
        denominator += (1 - base_accuracy) * tokens / base_tokens
        e3 = np.where(accuracy == 0, 0.0, 1 / denominator)
    e3[~np.isfinite(e3)] = np.nan
    e3[is_degenerate] = np.nan
    best: FloatArray = e3.max(axis=1)
    return best
