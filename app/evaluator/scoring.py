"""Scores of a submission: every setting in every cell, and every board the submission stands on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from app.evaluator.curves import StepSeries, find_beta_match, max_accuracy, mean_accuracy_at, mean_steps
from app.evaluator.efficiency import find_e3_reason
from app.evaluator.measurements import Measurements
from app.evaluator.reference import CellReference
from app.evaluator.scored_cells import (
    ScoredCell,
    find_baseline,
    find_complete,
    list_e3,
    mean,
    mean_ratios,
    score_cell,
)
from app.evaluator.strategies import ActionTable, Strategy

SCORER_VERSION = "1"
"""Changes whenever the same file could get another figure; boards never mix versions."""

BUDGETS_SHOWN = {"0.25": Fraction(1, 4), "0.5": Fraction(1, 2), "0.75": Fraction(3, 4)}
BUDGET_NAMES = {"0.25": "accuracy_25", "0.5": "accuracy_50", "0.75": "accuracy_75"}
"""Under which budget of `accuracy_at` a score has the figures that tables have in columns of their own."""

NO_POTENTIAL = "no_potential"
NEVER_REACHED = "full_thinking_accuracy_never_reached"
NOT_ALL_CELLS = "not_all_cells_covered"
NO_COMPLETE_SETTING = "no_setting_covers_all_cells"


@dataclass(frozen=True)
class CellScore:
    """One setting in one cell.

    Attributes
    ----------
    cost, correct : retained tokens and correct probes over the cell's trajectories.
    mean_tokens : retained tokens a trajectory. beta : cost as a share of T, 0 where T = 0.
    accuracy : correct as a share of the probes.
    gap : frontier at this cost minus accuracy, never negative, exactly 0 on the frontier.
    early_loss, late_loss : accuracy lost against each trajectory's k* by stopping before and after it.
    wasted, forgone : tokens kept past k* and tokens of k* not kept, as shares of T; 0 where T = 0.
    e3 : against the cell's full thinking, or None.
    on_curve : whether the point is one of the method curve's.
    """

    model: str
    benchmark: str
    cost: int
    correct: int
    mean_tokens: float
    beta: float
    accuracy: float
    gap: float
    early_loss: float
    late_loss: float
    wasted: float
    forgone: float
    e3: float | None
    on_curve: bool


@dataclass(frozen=True)
class SettingScore:
    """One setting: means over all cells of the split, None (with the reason) unless it covers them all; its cells."""

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
    cells: tuple[CellScore, ...]


@dataclass(frozen=True, eq=False)
class BoardScore:
    """A submission on one board.

    Attributes
    ----------
    model, benchmark : which cells the board has; None means all.
    n_settings : settings that cover at least one of its cells.
    realised_potential : share of the area between the uninformed reference and the oracle; None with `reason`.
    area, uninformed_area, oracle_area : areas under the mean curves, in [0, 1]. gap : oracle_area minus area.
    max_accuracy : the method's best accuracy, at the full budget.
    beta_match : least relative budget at which the method reaches full thinking's accuracy, or None.
    tokens_saved : 1 minus beta_match, or None.
    accuracy_at : the method's accuracy at 25, 50 and 75 percent of the budget, by the budget's name.
    best_e3 : the best E3 of a setting that covers all cells of the board, or None.
    reason : why realised_potential is None. reasons : the same for every figure that is None, by its name.
    curve : the method's mean curve.
    n_cells : cells of the board. min_questions : fewest questions of one of them.
    """

    model: str | None
    benchmark: str | None
    n_settings: int
    realised_potential: float | None
    area: float
    uninformed_area: float
    oracle_area: float
    gap: float
    max_accuracy: float
    beta_match: float | None
    tokens_saved: float | None
    accuracy_at: dict[str, float]
    best_e3: float | None
    reason: str | None
    reasons: dict[str, str]
    curve: StepSeries
    n_cells: int
    min_questions: int


@dataclass(frozen=True, eq=False)
class Score:
    """A scored submission: its settings in their order, and the boards it stands on.

    `snapshot`, `sha256`, `kind` and `split` are those of the measurements it was scored on. Boards come in this order:
    the whole snapshot, the models, the benchmarks, the cells. `scorer_version` names the scorer that made it.
    """

    snapshot: str
    sha256: str
    kind: str
    split: str
    strategy: Strategy
    settings: tuple[SettingScore, ...]
    boards: tuple[BoardScore, ...]
    scorer_version: str = SCORER_VERSION

    @property
    def summary(self) -> BoardScore | None:
        """The board of the whole snapshot; None if no setting covers some cell (`summary_reason`)."""
        return next((b for b in self.boards if b.model is None and b.benchmark is None), None)

    @property
    def summary_reason(self) -> str | None:
        """Why there is no summary, or None if there is one."""
        return NOT_ALL_CELLS if self.summary is None else None


def score_actions(measurements: Measurements, table: ActionTable, references: Sequence[CellReference]) -> Score:
    """Score the actions of a file: operating points, gaps and regret of every setting, and every board it stands on.

    A submission stands on a board when each of the board's cells is covered by at least one setting, not necessarily
    the same one. Its curve in a cell starts at the zero-thinking point and keeps the nondominated points (equal cost:
    the better; equal accuracy: the cheaper); a board's curve is the mean over its cells at the same relative budget.

    Parameters
    ----------
    measurements : of the split that the file addresses, labels included.
    table : the file's actions, its cells in the measurements' order.
    references : of the same cells in the same order, under the table's strategy.

    Returns
    -------
    Score; figures are float64, fractions in [0, 1] except realised potential (no lower bound) and E3.

    Raises
    ------
    ValueError : hidden labels, or parts that do not belong together.

    Notes
    -----
    Section 4, equations 7 and 15. All sums and comparisons are made in integers or fractions, with one division at the
    end. O(settings x trajectories) for the points; the boards take O(settings x cells) and the curves' lengths.

    Examples
    --------
    Exiting at position 1 costs 10 of 30 tokens and has 4 of 4 probes right, which is the oracle's best.

    >>> from app.evaluator.frontier import solve_frontiers
    >>> from app.evaluator.measurements import build_cell
    >>> from app.evaluator.reference import build_references
    >>> from app.evaluator.strategies import CellActions
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (10, 4), (30, 2)]])], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    >>> early_exit = Strategy.DYNAMIC_EARLY_EXIT
    >>> references = build_references(measurements, early_exit, solve_frontiers(measurements))
    >>> actions = CellActions(covered=np.array([True]), actions=np.array([[1]]))
    >>> score = score_actions(measurements, ActionTable(early_exit, ("default",), (actions,)), references)
    >>> score.settings[0].gap, score.settings[0].forgone, score.summary.area == (10 * 1 + 20 * 4) / (30 * 4)
    (0.0, 0.0, True)
    """
    if not len(measurements.cells) == len(table.cells) == len(references):
        raise ValueError("the measurements, the actions and the references differ in their cells")
    parts = zip(measurements.cells, table.cells, references, strict=True)
    scored = [score_cell(cell, table, actions, reference) for cell, actions, reference in parts]
    standing = [
        (key, board) for key, board in _list_boards(measurements, scored) if all(s.covered.any() for s in board)
    ]
    return Score(
        snapshot=measurements.snapshot,
        sha256=measurements.sha256,
        kind=measurements.kind,
        split=measurements.split,
        strategy=table.strategy,
        settings=_score_settings(table.settings, scored),
        boards=tuple(_score_board(model, benchmark, board) for (model, benchmark), board in standing),
    )


def _list_boards(
    measurements: Measurements, scored: Sequence[ScoredCell]
) -> Iterator[tuple[tuple[str | None, str | None], list[ScoredCell]]]:
    """Yield the boards in their order; models and benchmarks without a cell in the split have none."""
    keys: list[tuple[str | None, str | None]] = [(None, None)]
    keys += [(model, None) for model in measurements.models]
    keys += [(None, benchmark) for benchmark in measurements.benchmarks]
    keys += [(s.cell.model, s.cell.benchmark) for s in scored]
    for model, benchmark in keys:
        board = [s for s in scored if model in (None, s.cell.model) and benchmark in (None, s.cell.benchmark)]
        if board:
            yield (model, benchmark), board


def _score_settings(labels: Sequence[str], scored: Sequence[ScoredCell]) -> tuple[SettingScore, ...]:
    complete = find_complete(scored)
    probes = [s.cell.total_probes for s in scored]
    tokens = [s.token_total for s in scored]
    means: dict[str, Sequence[float | None]] = {
        "beta": mean_ratios([s.cost for s in scored], tokens),
        "accuracy": mean_ratios([s.correct for s in scored], probes),
        "gap": mean_ratios([s.gap for s in scored], probes),
        "early_loss": mean_ratios([s.early_loss for s in scored], probes),
        "late_loss": mean_ratios([s.late_loss for s in scored], probes),
        "wasted": mean_ratios([s.wasted for s in scored], tokens),
        "forgone": mean_ratios([s.forgone for s in scored], tokens),
        "e3": list_e3(scored),
    }
    cells = [_list_cell_scores(s) for s in scored]
    return tuple(
        SettingScore(
            setting=label,
            **{name: values[i] if complete[i] else None for name, values in means.items()},
            reason=None if complete[i] else NOT_ALL_CELLS,
            cells=tuple(scores[i] for scores in cells if i in scores),
        )
        for i, label in enumerate(labels)
    )


def _list_cell_scores(scored: ScoredCell) -> dict[int, CellScore]:
    """The scores of the settings that cover the cell, by the setting's index."""
    cell, probes, tokens = scored.cell, scored.cell.total_probes, scored.token_total
    vertices = set(zip(scored.curve.cost.tolist(), scored.curve.correct.tolist(), strict=True))
    e3_values = list_e3([scored])
    scores = {}
    for i in np.flatnonzero(scored.covered).tolist():
        cost, correct = int(scored.cost[i]), int(scored.correct[i])
        scores[i] = CellScore(
            model=cell.model,
            benchmark=cell.benchmark,
            cost=cost,
            correct=correct,
            mean_tokens=cost / cell.n_trajectories,
            beta=cost / tokens,
            accuracy=correct / probes,
            gap=int(scored.gap[i]) / probes,
            early_loss=int(scored.early_loss[i]) / probes,
            late_loss=int(scored.late_loss[i]) / probes,
            wasted=int(scored.wasted[i]) / tokens,
            forgone=int(scored.forgone[i]) / tokens,
            e3=e3_values[i],
            on_curve=(cost, correct) in vertices,
        )
    return scores


def _score_board(model: str | None, benchmark: str | None, scored: Sequence[ScoredCell]) -> BoardScore:
    curves = [s.curve for s in scored]
    area, oracle = mean([s.area for s in scored]), mean([s.oracle_area for s in scored])
    uninformed = mean([s.uninformed_area for s in scored])
    has_potential = oracle > uninformed
    beta_match = find_beta_match(curves, mean([s.full_accuracy for s in scored]))
    best_e3, e3_reason = _find_best_e3(scored)
    reasons = {
        "realised_potential": None if has_potential else NO_POTENTIAL,
        "beta_match": NEVER_REACHED if beta_match is None else None,
        "tokens_saved": NEVER_REACHED if beta_match is None else None,
        "best_e3": e3_reason,
    }
    return BoardScore(
        model=model,
        benchmark=benchmark,
        n_settings=int(np.any([s.covered for s in scored], axis=0).sum()),
        realised_potential=float((area - uninformed) / (oracle - uninformed)) if has_potential else None,
        area=float(area),
        uninformed_area=float(uninformed),
        oracle_area=float(oracle),
        gap=float(oracle - area),
        max_accuracy=float(max_accuracy(curves)),
        beta_match=None if beta_match is None else float(beta_match),
        tokens_saved=None if beta_match is None else float(1 - beta_match),
        accuracy_at={name: float(mean_accuracy_at(curves, beta)) for name, beta in BUDGETS_SHOWN.items()},
        best_e3=best_e3,
        reason=reasons["realised_potential"],
        reasons={name: reason for name, reason in reasons.items() if reason is not None},
        curve=mean_steps(curves),
        n_cells=len(scored),
        min_questions=min(s.cell.n_questions for s in scored),
    )


def _find_best_e3(scored: Sequence[ScoredCell]) -> tuple[float | None, str | None]:
    """The largest E3 of the settings that cover all cells, or None and why.

    One unbounded E3 makes the best one unbounded, hence None.
    """
    complete = find_complete(scored)
    values = [value for value, counts in zip(list_e3(scored), complete, strict=True) if counts]
    if not values:
        return None, NO_COMPLETE_SETTING
    defined = [value for value in values if value is not None]
    if len(defined) < len(values):
        base = find_baseline(scored)
        return None, find_e3_reason(base_accuracy=base.accuracy, base_tokens=base.tokens)
    return max(defined), None
