"""Times bootstrap replicates against the textbook program, and what rests on replicates once they are stored.

Run ``python benchmarks/bootstrap.py`` (``--scale 0.1`` for a quick one, ``--format json`` for one JSON document). Both
sides do the same in one run and must find the same integers, or it exits 1. The textbook side resamples the cells as
data of their own and solves their whole frontiers; its intervals walk through each such cell, its ranks sort each
pair's differences. It does so for a few replicates or methods, and what it would take for all is told. Seconds are
processor time of this process, since other work on the machine stretches any other kind. Rows: one replicate, and all
figures of a submission, on a synthetic snapshot of the paper's scale; one replicate on parts of it with fewer
questions, trajectories and steps; the shared ranks of 500 methods.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.baselines import random
from app.evaluator.centring import find_percentiles
from app.evaluator.draws import draw_replicate, resample_cell
from app.evaluator.fast_frontier import solve_frontiers_fast
from app.evaluator.frontier import solve_frontier
from app.evaluator.measurements import Measurements
from app.evaluator.operating_points import measure_operating_points
from app.evaluator.ranks import compare_pairs
from app.evaluator.reference import build_references
from app.evaluator.replicate_frontiers import prepare_cell, resample_cells
from app.evaluator.scoring import score_actions
from app.evaluator.strategies import ActionTable, Strategy
from app.evaluator.submission_intervals import bootstrap_submission
from app.files.snapshot import load_measurements
from app.files.synthetic import draw_snapshot
from benchmarks.parts import list_parts
from benchmarks.timing import Row, add_format_option, build_row, count_size, measure, print_rows

SEED = 20260721
N_SETTINGS = 20
N_METHODS = 500
N_RANKED_REPLICATES = 2000


@dataclass(frozen=True)
class Sizes:
    """How many replicates each side computes."""

    textbook: int
    replicates: int
    submission_replicates: int


def time_replicate(growth: str, measurements: Measurements, *, n_textbook: int, n_ours: int) -> Row:
    """Time one replicate of all cells and strategies at 101 budgets; exits where the two sides differ."""
    prepared = [prepare_cell(cell) for cell in measurements.cells]
    # The first ones load compiled code.
    resample_cells(prepared, range(2), seed=SEED)
    ours_seconds, block = measure(lambda: resample_cells(prepared, range(n_ours), seed=SEED))

    def solve(number: int) -> list[list[list[int]]]:
        draws = draw_replicate(measurements, number, seed=SEED).cells
        cells = [resample_cell(*pair) for pair in zip(measurements.cells, draws, strict=True)]
        return [[solve_frontier(cell, s).curve.correct_at_grid(100).tolist() for s in Strategy] for cell in cells]

    textbook_seconds, textbook = measure(lambda: [solve(number) for number in range(n_textbook)])
    if block.rewards[:n_textbook].tolist() != textbook:
        sys.exit(f"the two sides differ on a replicate: {growth}")
    return build_row(
        f"one replicate, all strategies at 101 budgets, {growth}",
        textbook_seconds / n_textbook,
        ours_seconds / n_ours,
        size=count_size(measurements, budgets=101),
    )


def time_submission(measurements: Measurements, *, n_settings: int, n_replicates: int, n_textbook: int) -> Row:
    """Time all board figures of a submission, whose replicates are there; exits where the totals differ."""
    strategy = Strategy.DYNAMIC_EARLY_EXIT
    references = build_references(measurements, strategy, solve_frontiers_fast(measurements, (strategy,)))
    table = random.build_actions(measurements, strategy, seed=SEED, n_settings=n_settings)
    prepared = [prepare_cell(cell) for cell in measurements.cells]
    replicates = resample_cells(prepared, range(n_replicates), seed=SEED)
    score = score_actions(measurements, table, references)
    bootstrap_submission(measurements, table, score, replicates, n_replicates=1)
    ours_seconds, result = measure(
        lambda: bootstrap_submission(measurements, table, score, replicates, n_replicates=n_replicates)
    )
    textbook_seconds, accuracies = measure(lambda: [walk(measurements, table, number) for number in range(n_textbook)])
    if not np.allclose(accuracies, result.boards[0].values["max_accuracy"][:n_textbook], rtol=0, atol=1e-12):
        sys.exit("the two sides differ on a submission")
    return build_row(
        "all figures of a submission",
        textbook_seconds / n_textbook * n_replicates,
        ours_seconds,
        size=count_size(measurements, settings=n_settings, replicates=n_replicates),
    )


def walk(measurements: Measurements, table: ActionTable, number: int) -> float:
    """Return the mean over cells of a submission's best accuracy in a replicate, from resampled cells."""
    draws = draw_replicate(measurements, number, seed=SEED).cells
    best = []
    for cell, part, draw in zip(measurements.cells, table.cells, draws, strict=True):
        units = (draw.question_idx[:, None] * cell.trajectories_per_question + draw.trajectory_idx).reshape(-1)
        resampled = resample_cell(cell, draw)
        points = measure_operating_points(resampled, table.strategy, part.actions[:, units])
        best.append(max(int(points.correct.max()), int(resampled.zero_correct.sum())) / cell.total_probes)
    return float(np.mean(best))


def time_ranks(*, n_methods: int, n_textbook: int, n_replicates: int) -> Row:
    """Time the shared ranks of many methods; the textbook side sorts the differences of a few of them."""
    rng = np.random.default_rng(SEED)
    values = rng.normal(rng.normal(0, 0.1, (n_methods, 1)), 0.1, (n_methods, n_replicates))
    compare_pairs(values[:2])
    ours_seconds, ranks = measure(lambda: compare_pairs(values))

    def rank(mine: np.ndarray[Any, Any]) -> int:
        intervals = [find_percentiles(theirs - mine) for theirs in values]
        return 1 + sum(interval is not None and interval.low > 0 for interval in intervals)

    textbook_seconds, textbook = measure(lambda: [rank(mine) for mine in values[:n_textbook]])
    if ranks[:n_textbook].tolist() != textbook:
        sys.exit("the two sides differ on ranks")
    return build_row(
        "shared ranks",
        textbook_seconds / n_textbook * n_methods,
        ours_seconds,
        size={"methods": n_methods, "replicates": n_replicates},
    )


def list_rows(whole: Measurements, sizes: Sizes) -> Iterator[Row]:
    """Yield the rows as they are measured."""
    for growth, measurements in list_parts(whole):
        yield time_replicate(growth, measurements, n_textbook=sizes.textbook, n_ours=sizes.replicates)
        if measurements is whole:
            yield time_submission(
                whole,
                n_settings=N_SETTINGS,
                n_replicates=sizes.submission_replicates,
                n_textbook=sizes.textbook,
            )
    yield time_ranks(n_methods=N_METHODS, n_textbook=5, n_replicates=N_RANKED_REPLICATES)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the paper's questions")
    parser.add_argument("--textbook", type=int, default=2, help="replicates that the textbook program solves")
    parser.add_argument("--replicates", type=int, default=100, help="replicates that ours solves")
    parser.add_argument("--submission-replicates", type=int, default=2000, help="replicates of the submission")
    add_format_option(parser)
    options = parser.parse_args()
    sizes = Sizes(options.textbook, options.replicates, options.submission_replicates)
    print_rows(list_rows(load_measurements(draw_snapshot(scale=options.scale)), sizes), options.format)


if __name__ == "__main__":
    main()
