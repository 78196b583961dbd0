"""Bootstrap intervals: of a snapshot's own figures, and of a submission's on the same replicates."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.evaluator.measurements import IntArray, Measurements
from app.evaluator.reference import CellReference
from app.evaluator.replicate_frontiers import N_INTERVALS, ReplicateFrontiers
from app.evaluator.resampled_settings import (
    PreparedSettings,
    ResampledSettings,
    Stops,
    find_stops,
    prepare_settings,
    resample_settings,
)
from app.evaluator.strategies import ActionTable, Strategy

FloatArray = NDArray[np.float64]

PERCENTILES = (2.5, 97.5)
MOST_UNDEFINED = 0.05
"""A figure that is undefined in a larger share of the replicates has no interval."""
FEWEST_QUESTIONS = 20
N_SUBMISSION_REPLICATES = 2000
BLOCK = 500
"""A submission is resampled on so many replicates at a time, which bounds memory; an interrupted job loses no more."""

TOO_FEW_QUESTIONS = "too_few_questions"
UNDEFINED_IN_REPLICATES = "undefined_in_replicates"
MISSING_CELLS = "missing_cells"

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

# Mean accuracies and areas are sums of a few fractions. Ones that differ do so by far more than this, and ones that are
# equal come out closer, whatever the order they were added in.
_TOLERANCE = 1e-12


@dataclass(frozen=True)
class Interval:
    """The 2.5th and the 97.5th percentile of a figure over the replicates, in the figure's unit."""

    low: float
    high: float


@dataclass(frozen=True, eq=False)
class BoardIntervals:
    """Figures of one board over the replicates.

    Attributes
    ----------
    model, benchmark : which cells the board has; None means all.
    values : the figures by name, float64 with one entry per replicate; NaN where a replicate has no such figure. They
        are for computing with, such as comparing two methods; nothing that shows figures to anyone may pass NaN on.
    intervals : the interval of each, or None.
    reasons : why, for each interval that is None.
    """

    model: str | None
    benchmark: str | None
    values: Mapping[str, FloatArray]
    intervals: Mapping[str, Interval | None]
    reasons: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class SubmissionIntervals:
    """A submission on the boards it stands on, in the order of its score's boards."""

    strategy: Strategy
    n_replicates: int
    seed: int
    boards: tuple[BoardIntervals, ...]


@dataclass(frozen=True, eq=False)
class FrontierIntervals:
    """A strategy's frontier on one board.

    Attributes
    ----------
    figures : `area`, `uninformed_area`, `max_accuracy`, `beta_match` and `beta_sat`.
    low, high : float64, 101: pointwise interval of the frontier's accuracy at beta = i/100; None where `figures` has
        no interval for lack of questions.
    """

    strategy: Strategy
    figures: BoardIntervals
    low: FloatArray | None
    high: FloatArray | None


@dataclass(frozen=True, eq=False)
class SnapshotBoard:
    """A snapshot's own figures on one board.

    Attributes
    ----------
    figures : `mean_thinking_tokens`, `full_thinking_accuracy`, `zero_step_accuracy`, `endpoint_accuracy`,
        `overthinking_ratio` and `accuracy_degradation`.
    frontiers : of the three strategies, in the order of `Strategy`.
    """

    model: str | None
    benchmark: str | None
    figures: BoardIntervals
    frontiers: tuple[FrontierIntervals, ...]


@dataclass(frozen=True, eq=False)
class SnapshotIntervals:
    """A snapshot's own figures: the whole, the models, the benchmarks, the cells."""

    n_replicates: int
    seed: int
    boards: tuple[SnapshotBoard, ...]


@dataclass(frozen=True, eq=False)
class _Board:
    """The cells of a board, and whether one of its models and benchmarks lacks a cell."""

    model: str | None
    benchmark: str | None
    idx: IntArray
    is_complete: bool
    has_enough: bool


def find_interval(values: FloatArray) -> Interval | None:
    """Return the percentile interval of a figure over replicates, leaving undefined ones (NaN) out.

    None where more than 5 % of the replicates are undefined. Percentiles interpolate linearly.

    Examples
    --------
    >>> find_interval(np.arange(41.0))
    Interval(low=1.0, high=39.0)
    >>> find_interval(np.array([1.0, np.nan])) is None
    True
    """
    defined = values[~np.isnan(values)]
    if len(defined) == 0 or len(values) - len(defined) > MOST_UNDEFINED * len(values):
        return None
    low, high = np.percentile(defined, PERCENTILES).tolist()
    return Interval(low, high)


def summarise_intervals(replicates: ReplicateFrontiers) -> SnapshotIntervals:
    """Return the intervals of a snapshot's own figures on every board.

    Averages weigh cells equally; those of a model or benchmark that lacks a cell that another one has are None, as are
    intervals of boards all of whose cells have fewer than 20 questions. Areas are trapezoid sums over the 101 budgets,
    `beta_match` and `beta_sat` the first of these budgets at which the mean frontier reaches the replicate's A_full or
    its own largest value.

    Notes
    -----
    Section 5. O(replicates x cells x 101).
    """
    oracle_area = replicates.oracle_area()
    boards = tuple(
        SnapshotBoard(
            model=board.model,
            benchmark=board.benchmark,
            figures=_build_board(board, _list_own_figures(replicates, board), averages=True),
            frontiers=tuple(
                _summarise_frontier(replicates, board, strategy=strategy, oracle_area=oracle_area[:, :, s])
                for s, strategy in enumerate(Strategy)
            ),
        )
        for board in _list_boards(replicates)
    )
    return SnapshotIntervals(replicates.n_replicates, replicates.seed, boards)


def _list_boards(replicates: ReplicateFrontiers) -> Iterator[_Board]:
    """Yield the boards in the order of a score's."""
    cells = replicates.cells
    models = list(dict.fromkeys(model for model, _ in cells))
    benchmarks = list(dict.fromkeys(benchmark for _, benchmark in cells))
    keys: list[tuple[str | None, str | None]] = [(None, None)]
    keys += [(model, None) for model in models]
    keys += [(None, benchmark) for benchmark in benchmarks]
    keys += cells
    for model, benchmark in keys:
        idx = np.array([i for i, (m, b) in enumerate(cells) if model in (None, m) and benchmark in (None, b)])
        n_expected = (len(models) if model is None else 1) * (len(benchmarks) if benchmark is None else 1)
        yield _Board(
            model=model,
            benchmark=benchmark,
            idx=idx,
            is_complete=len(idx) == n_expected,
            has_enough=bool((replicates.n_questions[idx] >= FEWEST_QUESTIONS).any()),
        )


def _list_own_figures(replicates: ReplicateFrontiers, board: _Board) -> dict[str, FloatArray]:
    idx = board.idx
    probes = replicates.total_probes[idx]
    n_trajectories = replicates.n_questions[idx] * replicates.trajectories_per_question
    original = replicates.total("original_correct")[:, idx]
    return {
        "mean_thinking_tokens": (replicates.total("thinking_tokens")[:, idx] / n_trajectories).mean(axis=1),
        "full_thinking_accuracy": np.where(original < 0, np.nan, original / n_trajectories).mean(axis=1),
        "zero_step_accuracy": (replicates.total("zero_correct")[:, idx] / probes).mean(axis=1),
        "endpoint_accuracy": (replicates.total("endpoint_correct")[:, idx] / probes).mean(axis=1),
        "overthinking_ratio": replicates.overthinking_ratio[:, idx].mean(axis=1),
        "accuracy_degradation": (replicates.total("degradation")[:, idx] / probes).mean(axis=1),
    }


def _summarise_frontier(
    replicates: ReplicateFrontiers, board: _Board, *, strategy: Strategy, oracle_area: FloatArray
) -> FrontierIntervals:
    s = list(Strategy).index(strategy)
    accuracy = _mean_accuracies(replicates.rewards[:, :, s], replicates.total_probes, board.idx)
    full = _find_full_accuracy(replicates, board.idx)
    figures = {
        "area": oracle_area[:, board.idx].mean(axis=1),
        "uninformed_area": replicates.uninformed_area[:, board.idx, s].mean(axis=1),
        "max_accuracy": accuracy[:, -1],
        "beta_match": _find_first(accuracy, full),
        "beta_sat": _find_first(accuracy, accuracy[:, -1]),
    }
    low, high = np.percentile(accuracy, PERCENTILES, axis=0) if board.has_enough else (None, None)
    return FrontierIntervals(strategy, _build_board(board, figures, averages=False), low, high)


def _mean_accuracies(rewards: NDArray[np.int32], total_probes: IntArray, idx: IntArray) -> FloatArray:
    """Return the mean over some cells of rewards (replicates x cells x budgets) over probes."""
    mean = np.zeros((rewards.shape[0], rewards.shape[2]))
    for i in idx:
        mean += rewards[:, i] / total_probes[i]
    return mean / len(idx)


def _find_full_accuracy(replicates: ReplicateFrontiers, idx: IntArray) -> FloatArray:
    full: FloatArray = (replicates.total("endpoint_correct")[:, idx] / replicates.total_probes[idx]).mean(axis=1)
    return full


def _find_first(accuracy: FloatArray, target: FloatArray) -> FloatArray:
    """Return the first budget of the grid at which each replicate's accuracy reaches its target; NaN if none does."""
    reaches = accuracy >= target[:, None] - _TOLERANCE
    first: FloatArray = np.where(reaches.any(axis=1), reaches.argmax(axis=1) / N_INTERVALS, np.nan)
    return first


def _build_board(board: _Board, figures: Mapping[str, FloatArray], *, averages: bool) -> BoardIntervals:
    """Attach intervals; where `averages` are asked for, a board that lacks a cell has none."""
    intervals: dict[str, Interval | None] = {}
    reasons: dict[str, str] = {}
    for name, values in figures.items():
        if averages and not board.is_complete:
            reason: str | None = MISSING_CELLS
        elif not board.has_enough:
            reason = TOO_FEW_QUESTIONS
        else:
            reason = None
        intervals[name] = find_interval(values) if reason is None else None
        if intervals[name] is None:
            reasons[name] = reason or UNDEFINED_IN_REPLICATES
    return BoardIntervals(board.model, board.benchmark, dict(figures), intervals, reasons)


def bootstrap_submission(
    measurements: Measurements,
    table: ActionTable,
    references: Sequence[CellReference],
    replicates: ReplicateFrontiers,
    *,
    n_replicates: int = N_SUBMISSION_REPLICATES,
) -> SubmissionIntervals:
    """Return a submission's ranked figures over the replicates, with intervals, on every board it stands on.

    A replicate draws questions and trajectories; the actions of what it draws are the file's. Its settings' points in
    the replicate make the method's curve there, at budgets i/100 of the replicate's own full thinking, as in a score.

    Parameters
    ----------
    measurements, table, references : as for `score_actions`.
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
    >>> from app.evaluator.strategies import CellActions
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (10, 4), (30, 2)]])], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    >>> early_exit = Strategy.DYNAMIC_EARLY_EXIT
    >>> references = build_references(measurements, early_exit, solve_frontiers(measurements))
    >>> table = ActionTable(early_exit, ("default",), (CellActions(np.array([True]), np.array([[1]])),))
    >>> replicates = compute_replicates(measurements, range(3))
    >>> result = bootstrap_submission(measurements, table, references, replicates, n_replicates=3)
    >>> result.boards[0].values["accuracy_50"].tolist(), result.boards[0].reasons["accuracy_50"]
    ([1.0, 1.0, 1.0], 'too_few_questions')
    """
    used = replicates.take(n_replicates)
    _check_parts(measurements, table, references, used)
    prepared = prepare_submission(measurements, table.strategy, find_stops(measurements, table))
    values = [resample_rows(prepared, used, rows) for rows in list_blocks(used.n_replicates)]
    return summarise_submission(prepared, used, np.concatenate(values, axis=2))


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
    prepared: PreparedSubmission, replicates: ReplicateFrontiers, values: FloatArray
) -> SubmissionIntervals:
    """Return the intervals of a submission's figures, whose values over all rows `resample_rows` returned."""
    boards = tuple(
        _build_board(board, dict(zip(RANKED_FIGURES, figures, strict=True)), averages=False)
        for board, figures in zip(_list_standing(prepared, replicates), values, strict=True)
    )
    return SubmissionIntervals(prepared.strategy, replicates.n_replicates, replicates.seed, boards)


def _list_standing(prepared: PreparedSubmission, replicates: ReplicateFrontiers) -> Iterator[_Board]:
    """Yield the boards each of whose cells is covered by a setting."""
    for board in _list_boards(replicates):
        if prepared.covered[board.idx].any(axis=1).all():
            yield board


def _check_parts(
    measurements: Measurements, table: ActionTable, references: Sequence[CellReference], replicates: ReplicateFrontiers
) -> None:
    expected = [(cell.model, cell.benchmark, cell.n_questions) for cell in measurements.cells]
    found = [(*names, n) for names, n in zip(replicates.cells, replicates.n_questions.tolist(), strict=True)]
    if found != expected or len(table.cells) != len(expected):
        raise ValueError("the measurements, the actions and the replicates differ in their cells")
    of_references = [(r.frontier.model, r.frontier.benchmark, r.frontier.strategy) for r in references]
    if of_references != [(model, benchmark, table.strategy) for model, benchmark, _ in expected]:
        raise ValueError("the references are of other cells or another strategy")


def _list_ranked_figures(
    replicates: ReplicateFrontiers,
    board: _Board,
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
    has_potential = room > _TOLERANCE
    beta_match = _find_first(curve, _find_full_accuracy(replicates, idx))
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
    replicates: ReplicateFrontiers, board: _Board, *, cells: Sequence[ResampledSettings], complete: NDArray[np.bool_]
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
    base_accuracy = _find_full_accuracy(replicates, idx)[:, None]
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
