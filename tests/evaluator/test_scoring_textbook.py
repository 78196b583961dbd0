"""Scoring against a slow textbook version in fractions, on many small random snapshots full of ties.

The textbook version shares no code with the evaluator: it enumerates every combination of actions for the frontier,
every pair of constants for the reference, and every breakpoint for areas and budgets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from app.evaluator.frontier import solve_frontiers
from app.evaluator.measurements import Cell, Measurements
from app.evaluator.reference import build_references, build_uninformed, list_constant_actions
from app.evaluator.scoring import BoardScore, score_actions
from app.evaluator.strategies import ActionTable, CellActions, Strategy

DR, FB, DEE = Strategy.DYNAMIC_ROUTING, Strategy.FIXED_BUDGET, Strategy.DYNAMIC_EARLY_EXIT
Trajectory = list[tuple[int, int]]
Point = tuple[int, int]


@dataclass(frozen=True)
class TextbookCell:
    """A cell as nested lists, with the actions of the settings that cover it (None for the others)."""

    model: str
    benchmark: str
    questions: list[list[Trajectory]]
    probes: int
    actions: list[list[int] | None]

    @property
    def trajectories(self) -> list[Trajectory]:
        return [t for question in self.questions for t in question]

    @property
    def total_tokens(self) -> int:
        return sum(t[-1][0] for t in self.trajectories)

    @property
    def total_probes(self) -> int:
        return len(self.trajectories) * self.probes

    def beta(self, cost: int) -> Fraction:
        return Fraction(cost, self.total_tokens) if self.total_tokens else Fraction(0)


def find_stop(trajectory: Trajectory, strategy: Strategy, action: int) -> int:
    if strategy is DR:
        return len(trajectory) - 1 if action == 1 else 0
    if strategy is FB:
        return max(k for k, (tokens, _) in enumerate(trajectory) if tokens <= action)
    return action


def find_stops(cell: TextbookCell, strategy: Strategy, units: list[int]) -> list[int]:
    per_question = len(cell.questions[0])
    unit_of = range(len(units)) if strategy is DEE else [i for i in range(len(units)) for _ in range(per_question)]
    return [find_stop(t, strategy, units[u]) for t, u in zip(cell.trajectories, unit_of, strict=True)]


def find_point(cell: TextbookCell, stops: list[int]) -> Point:
    kept = [t[k] for t, k in zip(cell.trajectories, stops, strict=True)]
    return sum(tokens for tokens, _ in kept), sum(correct for _, correct in kept)


def list_choices(cell: TextbookCell, strategy: Strategy) -> list[list[int]]:
    """Every action of every unit that could matter."""
    if strategy is DR:
        return [[0, 1] for _ in cell.questions]
    if strategy is FB:
        return [sorted({tokens for t in question for tokens, _ in t}) for question in cell.questions]
    return [list(range(len(t))) for t in cell.trajectories]


def list_all_points(cell: TextbookCell, strategy: Strategy) -> list[Point]:
    return [
        find_point(cell, find_stops(cell, strategy, list(units))) for units in product(*list_choices(cell, strategy))
    ]


def best_step(points: list[Point], cost: Fraction) -> int:
    """The best reward at a cost within the budget."""
    return max(reward for c, reward in points if c <= cost)


def best_mix(points: list[Point], cost: Fraction) -> Fraction:
    """The best reward of one point, or of two mixed, at a mean cost within the budget."""
    values = [Fraction(best_step(points, cost))]
    for (c1, r1), (c2, r2) in product(points, points):
        if c1 <= cost < c2:
            values.append(r1 + (r2 - r1) * (cost - c1) / (c2 - c1))
    return max(values)


def integrate(cell: TextbookCell, points: list[Point], *, mixed: bool) -> Fraction:
    """Area over beta: between neighbouring costs a step is constant and a mix is linear."""
    total = cell.total_tokens
    points = sorted(set(points))
    if total == 0:
        return Fraction(best_step(points, Fraction(0)), cell.total_probes)
    stops = sorted({c for c, _ in points} | {0, total})
    area = Fraction(0)
    for left, right in pairwise(stops):
        if mixed:
            area += best_mix(points, Fraction(left + right, 2)) * (right - left)
        else:
            area += best_step(points, Fraction(left)) * (right - left)
    return area / (total * cell.total_probes)


def list_constant_points(cell: TextbookCell, strategy: Strategy) -> list[Point]:
    trajectories = cell.trajectories
    if strategy is DR:
        return [find_point(cell, [0] * len(trajectories)), find_point(cell, [len(t) - 1 for t in trajectories])]
    caps = [c * cell.total_tokens // (100 * len(trajectories)) for c in range(101)] + [cell.total_tokens]
    stops = [[find_stop(t, FB, cap) for t in trajectories] for cap in caps]
    if strategy is DEE:
        stops += [[min(k, len(t) - 1) for t in trajectories] for k in range(101)]
    return [find_point(cell, s) for s in stops]


def find_regret(cell: TextbookCell, stops: list[int]) -> dict[str, Fraction]:
    early = late = wasted = forgone = 0
    for trajectory, stop in zip(cell.trajectories, stops, strict=True):
        best = max(correct for _, correct in trajectory)
        k = next(k for k, (_, correct) in enumerate(trajectory) if correct == best)
        if stop < k:
            early += best - trajectory[stop][1]
            forgone += trajectory[k][0] - trajectory[stop][0]
        if stop > k:
            late += best - trajectory[stop][1]
            wasted += trajectory[stop][0] - trajectory[k][0]
    return {
        "early_loss": Fraction(early, cell.total_probes),
        "late_loss": Fraction(late, cell.total_probes),
        "wasted": cell.beta(wasted),
        "forgone": cell.beta(forgone),
    }


def find_e3(accuracy: Fraction, tokens: Fraction, *, base_accuracy: Fraction, base_tokens: Fraction) -> Fraction | None:
    if base_accuracy in (0, 1) or base_tokens == 0:
        return None
    if accuracy == 0:
        return Fraction(0)
    loss = base_accuracy * (1 - accuracy) / accuracy * base_accuracy / (1 - base_accuracy)
    inverse = loss + (1 - base_accuracy) * tokens / base_tokens
    return 1 / inverse if inverse else None


def mean(values: list[Fraction]) -> Fraction:
    return sum(values, start=Fraction(0)) / len(values)


@dataclass(frozen=True)
class TextbookScore:
    """What the textbook finds of one cell: figures per covering setting (by index), its curve's points, its areas."""

    cell: TextbookCell
    figures: dict[int, dict[str, Fraction]]
    points: list[Point]
    area: Fraction
    oracle_area: Fraction
    uninformed_area: Fraction
    on_curve: dict[int, bool]

    @property
    def full_accuracy(self) -> Fraction:
        return Fraction(sum(t[-1][1] for t in self.cell.trajectories), self.cell.total_probes)

    @property
    def full_tokens(self) -> Fraction:
        return Fraction(self.cell.total_tokens, len(self.cell.trajectories))

    def accuracy_at(self, beta: Fraction) -> Fraction:
        return Fraction(best_step(self.points, beta * self.cell.total_tokens), self.cell.total_probes)


def score_cell(cell: TextbookCell, strategy: Strategy) -> TextbookScore:
    frontier = list_all_points(cell, strategy)
    zero = find_point(cell, [0] * len(cell.trajectories))
    figures: dict[int, dict[str, Fraction]] = {}
    points = {}
    for i, units in enumerate(cell.actions):
        if units is None:
            continue
        stops = find_stops(cell, strategy, units)
        points[i] = cost, correct = find_point(cell, stops)
        figures[i] = {
            "beta": cell.beta(cost),
            "mean_tokens": Fraction(cost, len(cell.trajectories)),
            "accuracy": Fraction(correct, cell.total_probes),
            "gap": Fraction(best_step(frontier, Fraction(cost)) - correct, cell.total_probes),
            **find_regret(cell, stops),
        }
    curve = [*points.values(), zero]
    return TextbookScore(
        cell=cell,
        figures=figures,
        points=curve,
        area=integrate(cell, curve, mixed=False),
        oracle_area=integrate(cell, frontier, mixed=False),
        uninformed_area=integrate(cell, list_constant_points(cell, strategy), mixed=True),
        on_curve={i: not any(dominates(other, point) for other in curve) for i, point in points.items()},
    )


def dominates(other: Point, point: Point) -> bool:
    return other != point and other[0] <= point[0] and other[1] >= point[1]


def find_match(scores: list[TextbookScore]) -> Fraction | None:
    target = mean([s.full_accuracy for s in scores])
    budgets = sorted({s.cell.beta(cost) for s in scores for cost, _ in s.points})
    return next((b for b in budgets if mean([s.accuracy_at(b) for s in scores]) >= target), None)


def find_mean_e3(scores: list[TextbookScore], setting: int) -> Fraction | None:
    return find_e3(
        mean([s.figures[setting]["accuracy"] for s in scores]),
        mean([s.figures[setting]["mean_tokens"] for s in scores]),
        base_accuracy=mean([s.full_accuracy for s in scores]),
        base_tokens=mean([s.full_tokens for s in scores]),
    )


def as_float(value: Fraction | None) -> float | None:
    return None if value is None else float(value)


def check_board(board: BoardScore, scores: list[TextbookScore], n_settings: int) -> None:
    area, oracle = mean([s.area for s in scores]), mean([s.oracle_area for s in scores])
    uninformed = mean([s.uninformed_area for s in scores])
    assert (board.area, board.oracle_area, board.uninformed_area) == (float(area), float(oracle), float(uninformed))
    assert board.gap == float(oracle - area)
    if oracle <= uninformed:
        assert (board.realised_potential, board.reason) == (None, "no_potential")
    else:
        assert board.realised_potential == float((area - uninformed) / (oracle - uninformed))
        assert board.reason is None
    match = find_match(scores)
    assert (board.beta_match, board.tokens_saved) == (as_float(match), as_float(None if match is None else 1 - match))
    for name, beta in (("0.25", Fraction(1, 4)), ("0.5", Fraction(1, 2)), ("0.75", Fraction(3, 4))):
        assert board.accuracy_at[name] == float(mean([s.accuracy_at(beta) for s in scores]))
    assert board.max_accuracy == float(mean([s.accuracy_at(Fraction(1)) for s in scores]))
    covering = [set(s.figures) for s in scores]
    assert board.n_settings == len(set.union(*covering))
    best = [find_mean_e3(scores, i) for i in sorted(set.intersection(*covering))]
    if not best or None in best:
        assert board.best_e3 is None
        assert "best_e3" in board.reasons
    else:
        assert board.best_e3 == pytest.approx(float(max(v for v in best if v is not None)), rel=1e-12)
    breakpoints = {s.cell.beta(cost) for s in scores for cost, _ in s.points}
    steps = sorted((float(b), float(mean([s.accuracy_at(b) for s in scores]))) for b in breakpoints)
    rising = [step for i, step in enumerate(steps) if i == 0 or step[1] > steps[i - 1][1]]
    assert list(zip(board.curve.beta.tolist(), board.curve.accuracy.tolist(), strict=True)) == rising
    assert board.n_cells == len(scores)
    assert board.min_questions == min(len(s.cell.questions) for s in scores)
    assert n_settings >= board.n_settings


def check_settings(scored: Any, scores: list[TextbookScore], labels: tuple[str, ...]) -> None:
    assert tuple(s.setting for s in scored.settings) == labels
    for i, setting in enumerate(scored.settings):
        covering = [s for s in scores if i in s.figures]
        assert [(c.model, c.benchmark) for c in setting.cells] == [(s.cell.model, s.cell.benchmark) for s in covering]
        for found, expected in zip(setting.cells, covering, strict=True):
            for name, value in expected.figures[i].items():
                assert getattr(found, name) == float(value), name
            assert found.on_curve == expected.on_curve[i]
            e3 = find_mean_e3([expected], i)
            assert found.e3 == (None if e3 is None else pytest.approx(float(e3), rel=1e-12))
            assert found.gap >= 0
        complete = len(covering) == len(scores)
        for name in ("beta", "accuracy", "gap", "early_loss", "late_loss", "wasted", "forgone"):
            expected_mean = float(mean([s.figures[i][name] for s in scores])) if complete else None
            assert getattr(setting, name) == expected_mean, name
        e3 = find_mean_e3(scores, i) if complete else None
        assert setting.e3 == (None if e3 is None else pytest.approx(float(e3), rel=1e-12))


def draw_actions(rng: np.random.Generator, questions: list[list[Trajectory]], strategy: Strategy) -> list[int]:
    if strategy is DR:
        return [int(rng.integers(0, 2)) for _ in questions]
    if strategy is FB:
        return [int(rng.integers(0, max(t[-1][0] for t in question) + 3)) for question in questions]
    return [int(rng.integers(0, len(t))) for question in questions for t in question]


def draw_cells(
    rng: np.random.Generator, strategy: Strategy, draw: Callable[..., Any], n_settings: int
) -> list[TextbookCell]:
    probes, per_question = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    cells = []
    for model in ["m1", "m2"][: rng.integers(1, 3)]:
        for benchmark in ["b1", "b2"][: rng.integers(1, 3)]:
            n_questions = int(rng.integers(1, 3))
            questions = draw(rng, n_questions=n_questions, per_question=per_question, probes=probes)
            covered = rng.random(n_settings) < (0.8 if rng.random() < 0.5 else 1.0)
            actions = [draw_actions(rng, questions, strategy) if c else None for c in covered]
            cells.append(TextbookCell(model, benchmark, questions, probes, actions))
    return cells


def build_table(cells: list[TextbookCell], strategy: Strategy, labels: tuple[str, ...]) -> ActionTable:
    parts = []
    for cell in cells:
        units = len(cell.trajectories) if strategy is DEE else len(cell.questions)
        rows = [actions if actions is not None else [0] * units for actions in cell.actions]
        covered = np.array([actions is not None for actions in cell.actions])
        parts.append(CellActions(covered, np.array(rows, dtype=np.int64)))
    return ActionTable(strategy, labels, tuple(parts))


@pytest.mark.parametrize("strategy", list(Strategy))
def test_scores_equal_the_textbook(
    strategy: Strategy,
    random_questions: Callable[..., Any],
    as_cell: Callable[..., Cell],
    as_measurements: Callable[[list[Cell]], Measurements],
) -> None:
    rng = np.random.default_rng(20260721)
    seen = {"no_potential": 0, "potential": 0, "partial": 0, "empty": 0, "unmatched": 0}
    for _ in range(60):
        labels = tuple(str(i) for i in range(int(rng.integers(1, 5))))
        cells = draw_cells(rng, strategy, random_questions, len(labels))
        measurements = as_measurements(
            [as_cell(c.questions, c.probes, model=c.model, benchmark=c.benchmark) for c in cells]
        )
        references = build_references(measurements, strategy, solve_frontiers(measurements))
        scored = score_actions(measurements, build_table(cells, strategy, labels), references)
        scores = [score_cell(cell, strategy) for cell in cells]
        check_settings(scored, scores, labels)
        keys: list[tuple[str | None, str | None]] = [(None, None)]
        keys += [(m, None) for m in measurements.models] + [(None, b) for b in measurements.benchmarks]
        keys += [(c.model, c.benchmark) for c in cells]
        found = {(b.model, b.benchmark): b for b in scored.boards}
        standing = []
        for model, benchmark in keys:
            on_board = [s for s in scores if model in (None, s.cell.model) and benchmark in (None, s.cell.benchmark)]
            if all(s.figures for s in on_board):
                standing.append((model, benchmark))
                board = found[model, benchmark]
                check_board(board, on_board, len(labels))
                seen["no_potential" if board.realised_potential is None else "potential"] += 1
                seen["unmatched"] += board.beta_match is None
        assert [(b.model, b.benchmark) for b in scored.boards] == standing
        seen["partial"] += any(s.reason is not None for s in scored.settings)
        seen["empty"] += any(c.total_tokens == 0 for c in cells)
    # The random inputs are of use only if they reach every case.
    assert min(seen.values()) >= 3, seen


@pytest.mark.parametrize("strategy", list(Strategy))
def test_the_reference_is_the_hull_of_the_listed_constants(
    strategy: Strategy, random_questions: Callable[..., Any], as_cell: Callable[..., Cell]
) -> None:
    """Two ways to the same points: the histogram behind the hull, and every constant's actions one by one."""
    rng = np.random.default_rng(7)
    for _ in range(25):
        questions = random_questions(rng, n_questions=3, per_question=2, probes=3)
        book = TextbookCell("m", "b", questions, 3, [])
        cell = as_cell(questions, 3)
        constants = list_constant_actions(cell, strategy)
        assert len({label for label, _ in constants}) == len(constants) == {DR: 2, FB: 102, DEE: 203}[strategy]
        points = [find_point(book, find_stops(book, strategy, actions.tolist())) for _, actions in constants]
        assert set(points) == set(list_constant_points(book, strategy))
        hull = build_uninformed(cell, strategy)
        assert hull.area() == integrate(book, points, mixed=True)
        assert set(zip(hull.cost.tolist(), hull.correct.tolist(), strict=True)) <= set(points)
        best = max(reward for _, reward in points)
        assert (int(hull.cost[-1]), int(hull.correct[-1])) == (min(c for c, r in points if r == best), best)


def test_long_trajectories_reach_past_the_constant_positions(as_cell: Callable[..., Cell]) -> None:
    """Constant positions end at 100: an answer found at step 150 is reached by the caps only."""
    found_late = [(k, 1 if k >= 150 else 0) for k in range(201)]
    short = [(k, 1 if k == 0 else 0) for k in range(3)]
    cell = as_cell([[found_late], [short]], 1)
    hull = build_uninformed(cell, DEE)
    # Cap or position 0: (0, 0 + 1). Cap c keeps min(c, 200) + min(c, 2) and finds the late answer from 150 on, but the
    # caps end at 202 / 2 = 101 except for none at all: (202, 1 + 0).
    assert hull.cost.tolist() == [0]
    assert hull.correct.tolist() == [1]
    labelled = dict(list_constant_actions(cell, DEE))
    assert labelled["position-100"].tolist() == [100, 2]
    assert labelled["no-cap"].tolist() == [200, 2]
    assert labelled["cap-100-percent"].tolist() == [101, 2]


def test_hidden_labels_give_no_reference(as_cell: Callable[..., Cell]) -> None:
    cell = as_cell([[[(0, 1), (2, 3)]]], 3)
    hidden = replace(cell, correct_probes=np.full_like(cell.correct_probes, -1))
    with pytest.raises(ValueError, match="hidden"):
        build_uninformed(hidden, FB)
    # The constants themselves read no label.
    assert len(list_constant_actions(hidden, FB)) == 102
