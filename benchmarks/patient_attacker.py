"""Measures what a patient team learns of hidden labels with its whole allowance, under the policy and the check.

Run ``python -m benchmarks.patient_attacker`` (``--questions 36 --files 100``; ``--format json`` for one JSON document).
The team knows every token count and wants, question by question of one cell of dynamic routing, whether thinking helps:
the sign of P(n) - P(0). Its files are made for that: up to 20 settings whose costs lie just below the budgets at which
the curve is told, each routing a random set of questions that differs in at least 8 from every setting it sent before,
so that nothing is withheld. A curve is the running best, so it takes the figures at which the curve rises, and fits all
gains at once to them by least squares with a ridge. Questions that thinking does not change are left out of the count.
*Right* is the share of the others whose sign is found; who guesses the commoner sign needs no file at all.

With ``--attack pairs`` its files hold pairs of settings that differ in one question and lie on either side of a told
budget, which nothing compares, since they are of one file: ten questions a file, those that were asked least often.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

from app.evaluator.closeness import MIN_PAIRS, Closeness, FileStops
from app.evaluator.measurements import Cell, Measurements, build_cell
from app.evaluator.quanta import build_quanta, find_unit_weight, round_to
from app.evaluator.resampled_settings import Stops

R, M = 4, 4
SEED = 20260721
N_BUDGETS = 20
SPREAD, PAIRS = "spread", "pairs"
LEAST_GAIN = {SPREAD: 0.0, PAIRS: 0.25}
"""A question is said to gain from this share of its probes on: a setting that loses beside its pair is not told."""
TRIES = 20
RIDGE = 0.002


@dataclass(frozen=True)
class Result:
    """What was learnt of a cell: shares of the questions with something to learn whose sign was found."""

    attack: str
    questions: int
    files: int
    withheld: int
    figures: int
    told_in_steps_of_points: float
    right: float
    commoner_sign: float


def draw_cell(rng: np.random.Generator, n_questions: int) -> Cell:
    """Draw a cell: thinking helps on half of the questions, harms a sixth, and changes nothing on the others."""
    questions = []
    for number in range(n_questions):
        kind = rng.choice(3, p=[1 / 2, 1 / 6, 1 / 3])
        start, end = [(0.2, 0.9), (0.8, 0.3), (0.5, 0.5)][kind]
        curves = []
        for _ in range(R):
            length = int(rng.integers(500, 4000))
            curves.append([(0, int(rng.binomial(M, start))), (length, int(rng.binomial(M, end)))])
        questions.append((f"q{number:03}", "test", curves))
    return build_cell("m", "b", questions, M)


def sum_by_question(values: NDArray[np.int64], cell: Cell) -> NDArray[np.int64]:
    """Return a total over each question's trajectories."""
    total: NDArray[np.int64] = values.reshape(cell.n_questions, R).sum(axis=1)
    return total


def draw_file(rng: np.random.Generator, cost: NDArray[np.int64], earlier: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Return random sets of questions that think, each filling one of the budgets 0.05, 0.1 ... 1 as well as it can.

    A budget is left out for which no set was found that is far enough from all earlier ones, and from the constants.
    """
    known = np.concatenate([_constants(cost), *earlier])
    routes: list[NDArray[np.int64]] = []
    for step in range(N_BUDGETS):
        for _ in range(TRIES):
            row = _fill(rng, cost, int(cost.sum()) * (step + 1) // N_BUDGETS)
            if (np.abs(known - row).sum(axis=1) >= MIN_PAIRS).all():
                routes.append(row)
                known = np.concatenate([known, row[None]])
                break
    return np.array(routes, dtype=np.int64).reshape(-1, len(cost))


def draw_pairs(
    rng: np.random.Generator, cost: NDArray[np.int64], earlier: list[NDArray[np.int64]], asked: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return pairs of sets of questions: one just below a told budget, and the same with one more just above it.

    `asked` counts how often each question was the one more, and is brought up to date.
    """
    known = np.concatenate([_constants(cost), *earlier])
    routes: list[NDArray[np.int64]] = []
    for step in range(0, N_BUDGETS - 1, 2):
        budget = int(cost.sum()) * (step + 1) // N_BUDGETS
        for question in np.lexsort((rng.random(len(cost)), asked))[:TRIES]:
            others = cost.copy()
            others[question] = budget + 1
            row = _fill(rng, others, budget)
            pair = np.stack([row, row])
            pair[1, question] = 1
            is_far = (np.abs(known[:, None] - pair).sum(axis=2) >= MIN_PAIRS).all()
            if is_far and pair[1] @ cost > budget:
                routes += [*pair]
                asked[question] += 1
                break
    return np.array(routes, dtype=np.int64).reshape(-1, len(cost))


def _constants(cost: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.stack([np.zeros(len(cost), dtype=np.int64), np.ones(len(cost), dtype=np.int64)])


def _fill(rng: np.random.Generator, cost: NDArray[np.int64], budget: int) -> NDArray[np.int64]:
    order = rng.permutation(len(cost))
    row = np.zeros(len(cost), dtype=np.int64)
    row[order[np.cumsum(cost[order]) <= budget]] = 1
    return row


def as_stops(routes: NDArray[np.int64]) -> FileStops:
    """Return a routing file as where it stops."""
    positions = np.repeat(routes, R, axis=1).astype(np.uint8)
    return FileStops((Stops(np.ones(len(routes), dtype=np.bool_), positions),), by_trajectory=False)


def attack(n_questions: int, n_files: int, *, kind: str = SPREAD, seed: int = SEED) -> Result:
    """Return what the attack learns of one cell."""
    rng = np.random.default_rng([seed, n_questions])
    cell = draw_cell(rng, n_questions)
    measurements = Measurements("s", "0" * 64, "synthetic", "test", M, R, ("m",), ("b",), (cell,))
    cost = sum_by_question(cell.thinking_tokens, cell)
    zero, full = sum_by_question(cell.zero_correct, cell), sum_by_question(cell.endpoint_correct, cell)
    gain = full - zero
    quanta = build_quanta(
        find_unit_weight(n_cells=1, min_questions=n_questions, trajectories_per_question=R, unit_is_trajectory=False)
    )
    accepted: list[FileStops] = []
    designs: list[NDArray[np.int64]] = []
    figures: list[NDArray[np.float64]] = []
    sent: list[NDArray[np.int64]] = []
    asked = np.zeros(n_questions, dtype=np.int64)
    n_withheld = 0
    for _ in range(n_files):
        routes = draw_file(rng, cost, sent) if kind == SPREAD else draw_pairs(rng, cost, sent, asked)
        if not len(routes):
            break
        sent.append(routes)
        closeness = Closeness(measurements, stops := as_stops(routes))
        for earlier in accepted:
            closeness.compare(earlier)
        verdict = closeness.conclude()
        if verdict.is_close or ("m", "b") in verdict.close_boards:
            n_withheld += 1
            continue
        accepted.append(stops)
        accuracies = (routes @ gain + zero.sum()) / cell.total_probes
        best = np.maximum.accumulate(np.append(zero.sum() / cell.total_probes, accuracies))
        told = np.array([round_to(float(value), quanta.accuracy) for value in best])
        rises = np.diff(told) > 0
        if kind == PAIRS:
            # What does not rise beside its pair gains nothing, which is worth as much.
            rises[1::2] |= rises[::2]
        designs.append(routes[rises])
        figures.append(told[1:][rises])
    base = round_to(float(zero.sum() / cell.total_probes), quanta.accuracy)
    found = reconstruct(np.concatenate(designs), np.concatenate(figures) - base, n_questions) if designs else None
    counts = gain != 0
    signs = np.sign(gain[counts])
    right = 0.5 if found is None else float((np.where(found[counts] > LEAST_GAIN[kind], 1, -1) == signs).mean())
    return Result(
        attack=kind,
        questions=n_questions,
        files=n_files,
        withheld=n_withheld,
        figures=sum(map(len, figures)),
        told_in_steps_of_points=float(100 * quanta.accuracy),
        right=right,
        commoner_sign=float(max((signs > 0).mean(), (signs < 0).mean())),
    )


def reconstruct(design: NDArray[np.int64], told: NDArray[np.float64], n_questions: int) -> NDArray[np.float64]:
    """Return the gain of each question that fits what was told best, as the accuracy's least squares with a ridge.

    The accuracy without thinking is told in steps as well, so what it lies off is fitted too.
    """
    matrix = np.column_stack([design / n_questions, np.ones(len(design))])
    ridge = RIDGE * np.diag([1.0] * n_questions + [0.0])
    solved: NDArray[np.float64] = np.linalg.solve(matrix.T @ matrix + ridge, matrix.T @ told)
    return solved[:n_questions]


def main() -> None:
    """Print the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, nargs="+", default=[36, 150, 500])
    parser.add_argument("--files", type=int, nargs="+", default=[1, 5, 20, 100])
    parser.add_argument("--attack", choices=[SPREAD, PAIRS], default=SPREAD)
    parser.add_argument("--format", choices=["table", "json"], default="table")
    chosen = parser.parse_args()
    results = []
    for questions, files in product(chosen.questions, chosen.files):
        one = attack(questions, files, kind=chosen.attack)
        results.append(asdict(one))
        if chosen.format == "table":
            print(  # noqa: T201
                f"{one.questions:4} questions, {one.files:3} files ({one.withheld} withheld): "
                f"{100 * one.right:5.1f} % of the signs right, {100 * one.commoner_sign:.1f} % by the commoner one; "
                f"{one.figures} figures in steps of {one.told_in_steps_of_points:.1f} points",
                flush=True,
            )
    if chosen.format == "json":
        print(json.dumps(results, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
