"""Simulates how often the bootstrap's 95 % intervals cover the true value, on many small synthetic data sets.

Run ``python benchmarks/coverage.py`` (``--format json`` for one JSON document). Data sets come from a model whose true
values are known, here to within the error of one very large draw: a question has a difficulty, a trajectory a number of
steps, lengths and a curve of success probabilities around it, and probes are binomial. Each data set has one cell; its
intervals come from the same code as a snapshot's. The true value of a frontier's figure is that of infinitely many
questions with the same number of trajectories and probes each.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass

import numpy as np

from app.evaluator.draws import CellCounts
from app.evaluator.intervals import PERCENTILES
from app.evaluator.measurements import Cell, Measurements
from app.evaluator.overthinking import trajectory_overthinking
from app.evaluator.replicate_frontiers import ReplicateFrontiers, compute_replicates, prepare_cell, solve_drawn
from app.evaluator.strategies import Strategy

TRAJECTORIES = 8
PROBES = 8
N_TRUE_QUESTIONS = 6000


@dataclass(frozen=True)
class Coverage:
    """How often the interval of a figure held the true value, with Wilson's 95 % interval of that share."""

    figure: str
    n_questions: int
    n_data_sets: int
    true_value: float
    coverage: float
    low: float
    high: float
    mean_width: float
    mean_estimate: float


def draw_data(rng: np.random.Generator, n_questions: int) -> Measurements:
    """Draw one cell: R trajectories of every question, with curves that rise and may fall again."""
    n_trajectories = n_questions * TRAJECTORIES
    difficulty = np.repeat(rng.normal(0, 1.5, n_questions), TRAJECTORIES)
    n_steps = 1 + rng.poisson(5, n_trajectories)
    offsets = np.append(0, np.cumsum(n_steps + 1))
    trajectory = np.repeat(np.arange(n_trajectories), n_steps + 1)
    position = np.arange(offsets[-1]) - offsets[trajectory]
    added = np.where(position == 0, 0, rng.integers(100, 400, offsets[-1]))
    running = np.cumsum(added)
    start = rng.normal(-1, 0.7, n_trajectories) - difficulty
    rise = rng.normal(0.5, 0.5, n_trajectories)
    # A walk on top makes some trajectories pass a right answer and leave it again.
    walk = np.cumsum(rng.normal(0, 0.6, offsets[-1]))
    logit = start[trajectory] + rise[trajectory] * position + walk - walk[offsets[trajectory]]
    unknown = np.full(n_trajectories, -1, np.int8)
    cell = Cell(
        model="model",
        benchmark="benchmark",
        question_ids=tuple(f"q{i:05}" for i in range(n_questions)),
        question_splits=("test",) * n_questions,
        trajectories_per_question=TRAJECTORIES,
        probes_per_position=PROBES,
        offsets=offsets,
        retained_tokens=(running - running[offsets[trajectory]]).astype(np.int32),
        correct_probes=rng.binomial(PROBES, 1 / (1 + np.exp(-logit))).astype(np.int32),
        original_correct=unknown,
        direct_correct=unknown,
    )
    names = ("model",), ("benchmark",)
    return Measurements("coverage", "", "synthetic", "all", PROBES, TRAJECTORIES, *names, (cell,))


def list_values(replicates: ReplicateFrontiers) -> dict[str, np.ndarray]:
    """Return the figures under test, one value per replicate."""
    probes = replicates.total_probes[0]
    area = replicates.oracle_area()[:, 0]
    values = {
        "overthinking_ratio": replicates.overthinking_ratio[:, 0],
        "accuracy_degradation": replicates.total("degradation")[:, 0] / probes,
        "zero_step_accuracy": replicates.total("zero_correct")[:, 0] / probes,
        "endpoint_accuracy": replicates.total("endpoint_correct")[:, 0] / probes,
    }
    return values | {f"area {strategy}": area[:, s] for s, strategy in enumerate(Strategy)}


def find_figures(measurements: Measurements) -> dict[str, float]:
    """Return the same figures of the data as they are: every question once, every trajectory once."""
    cell = measurements.cells[0]
    plain = trajectory_overthinking(cell)
    once = CellCounts(
        question_idx=np.arange(cell.n_questions, dtype=np.int32)[None],
        counts=np.ones((1, cell.n_questions, TRAJECTORIES), np.int32),
        weights=np.ones((1, cell.n_trajectories), np.int32),
    )
    rewards = solve_drawn(prepare_cell(cell), once, np.array([cell.total_thinking_tokens]))[0]
    areas = np.trapezoid(rewards / cell.total_probes, dx=0.01, axis=1)
    figures = {
        "overthinking_ratio": float(plain.ratio.mean()),
        "accuracy_degradation": plain.degradation.sum() / cell.total_probes,
        "zero_step_accuracy": cell.zero_correct.sum() / cell.total_probes,
        "endpoint_accuracy": cell.endpoint_correct.sum() / cell.total_probes,
    }
    return figures | {f"area {strategy}": float(areas[s]) for s, strategy in enumerate(Strategy)}


def simulate(*, n_questions: int, n_data_sets: int, n_replicates: int, seed: int) -> list[Coverage]:
    """Draw the data sets, resample each and count how often the intervals hold the true values."""
    rng = np.random.default_rng(seed)
    true = find_figures(draw_data(rng, N_TRUE_QUESTIONS))
    held = dict.fromkeys(true, 0)
    widths = dict.fromkeys(true, 0.0)
    estimates = dict.fromkeys(true, 0.0)
    for number in range(n_data_sets):
        data = draw_data(rng, n_questions)
        values = list_values(compute_replicates(data, range(n_replicates), seed=number))
        plain = find_figures(data)
        for name, target in true.items():
            low, high = np.percentile(values[name], PERCENTILES)
            held[name] += low <= target <= high
            widths[name] += (high - low) / n_data_sets
            estimates[name] += plain[name] / n_data_sets
    rows = []
    for name, target in true.items():
        chance = find_wilson(held[name], n_data_sets)
        rows.append(
            Coverage(
                figure=name,
                n_questions=n_questions,
                n_data_sets=n_data_sets,
                true_value=target,
                coverage=held[name] / n_data_sets,
                low=chance[0],
                high=chance[1],
                mean_width=widths[name],
                mean_estimate=estimates[name],
            )
        )
    return rows


def find_wilson(held: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share that was seen `held` times out of n."""
    z = 1.959964
    share = held / n
    middle = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)


def main() -> None:
    """Run the simulation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=60, help="questions of a data set")
    parser.add_argument("--data-sets", type=int, default=1000)
    parser.add_argument("--replicates", type=int, default=500, help="replicates of a data set")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    rows = simulate(
        n_questions=options.questions,
        n_data_sets=options.data_sets,
        n_replicates=options.replicates,
        seed=options.seed,
    )
    if options.format == "json":
        print(json.dumps([asdict(row) for row in rows]))  # noqa: T201
        return
    for row in rows:
        print(  # noqa: T201
            f"{row.figure}: true {row.true_value:.4f}, mean estimate {row.mean_estimate:.4f}, mean width "
            f"{row.mean_width:.4f}, covered in {100 * row.coverage:.1f} % of {row.n_data_sets} data sets "
            f"({100 * row.low:.1f} to {100 * row.high:.1f} %)"
        )


if __name__ == "__main__":
    main()
