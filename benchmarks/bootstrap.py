"""Times bootstrap replicates against the textbook program, and what rests on replicates once they are stored.

Run ``python benchmarks/bootstrap.py`` (``--scale 0.1`` for a quick one, ``--format json`` for one JSON document). Both
sides do the same in one run and must find the same integers, or it exits 1. The textbook side resamples the cells as
data of their own and solves their whole frontiers; its intervals score each such cell, its ranks sort each pair's
differences. Seconds are processor time of this process, since other work on the machine stretches any other kind.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from app.baselines import random
from app.evaluator.draws import draw_replicate, resample_cell
from app.evaluator.frontier import solve_frontier
from app.evaluator.intervals import bootstrap_submission, find_interval
from app.evaluator.measurements import Measurements
from app.evaluator.operating_points import measure_operating_points
from app.evaluator.ranks import compare_pairs
from app.evaluator.reference import build_references
from app.evaluator.replicate_frontiers import prepare_cell, resample_cells
from app.evaluator.strategies import ActionTable, Strategy
from app.files.snapshot import load_measurements
from app.files.synthetic import draw_snapshot

SEED = 20260721
SCALES = (0.1, 0.3, 1.0)


@dataclass(frozen=True)
class Row:
    """Seconds of the textbook side and of ours for the same work."""

    work: str
    textbook_seconds: float
    ours_seconds: float
    ratio: float
    size: str


def measure(work: Callable[[], Any]) -> tuple[float, Any]:
    """Return the processor seconds of a call, and its result."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def time_replicate(measurements: Measurements, *, n_textbook: int, n_ours: int) -> Row:
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
        sys.exit("the two sides differ on a replicate")
    return build_row(
        "replicate, all strategies at 101 budgets",
        textbook_seconds / n_textbook,
        ours_seconds / n_ours,
        size=describe(measurements),
    )


def time_submission(measurements: Measurements, *, n_settings: int, n_replicates: int, n_textbook: int) -> Row:
    """Time all board figures of a submission, whose replicates are there; exits where the totals differ."""
    strategy = Strategy.DYNAMIC_EARLY_EXIT
    references = build_references(
        measurements, strategy, [solve_frontier(cell, strategy) for cell in measurements.cells]
    )
    table = random.build_actions(measurements, strategy, seed=SEED, n_settings=n_settings)
    prepared = [prepare_cell(cell) for cell in measurements.cells]
    replicates = resample_cells(prepared, range(n_replicates), seed=SEED)
    bootstrap_submission(measurements, table, references, replicates, n_replicates=1)
    ours_seconds, result = measure(
        lambda: bootstrap_submission(measurements, table, references, replicates, n_replicates=n_replicates)
    )
    textbook_seconds, accuracies = measure(lambda: [walk(measurements, table, number) for number in range(n_textbook)])
    if not np.allclose(accuracies, result.boards[0].values["max_accuracy"][:n_textbook], rtol=0, atol=1e-12):
        sys.exit("the two sides differ on a submission")
    return build_row(
        f"submission, {n_settings} settings, {n_replicates} replicates",
        textbook_seconds / n_textbook * n_replicates,
        ours_seconds,
        size=describe(measurements),
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
        intervals = [find_interval(theirs - mine) for theirs in values]
        return 1 + sum(interval is not None and interval.low > 0 for interval in intervals)

    textbook_seconds, textbook = measure(lambda: [rank(mine) for mine in values[:n_textbook]])
    if ranks[:n_textbook].tolist() != textbook:
        sys.exit("the two sides differ on ranks")
    return build_row(
        "shared ranks",
        textbook_seconds / n_textbook * n_methods,
        ours_seconds,
        size=f"{n_methods} methods, {n_replicates} replicates",
    )


def build_row(work: str, textbook_seconds: float, ours_seconds: float, *, size: str) -> Row:
    """Return a row with its ratio."""
    return Row(work, textbook_seconds, ours_seconds, textbook_seconds / ours_seconds, size)


def describe(measurements: Measurements) -> str:
    """Return how much there is of what."""
    n_trajectories = sum(cell.n_trajectories for cell in measurements.cells)
    n_positions = sum(cell.retained_tokens.size for cell in measurements.cells)
    return f"{len(measurements.cells)} cells, {n_trajectories} trajectories, {n_positions} positions"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, action="append", help="share of the paper's questions; may be repeated")
    parser.add_argument("--textbook", type=int, default=2, help="replicates that the textbook program solves")
    parser.add_argument("--replicates", type=int, default=100, help="replicates that ours solves")
    parser.add_argument("--submission-replicates", type=int, default=200, help="replicates of the submission")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    rows = []
    for scale in options.scale or SCALES:
        measurements = load_measurements(draw_snapshot(scale=scale))
        rows.append(time_replicate(measurements, n_textbook=options.textbook, n_ours=options.replicates))
        rows.append(
            time_submission(
                measurements, n_settings=20, n_replicates=options.submission_replicates, n_textbook=options.textbook
            )
        )
    rows.append(time_ranks(n_methods=500, n_textbook=5, n_replicates=2000))
    if options.format == "json":
        print(json.dumps([asdict(row) for row in rows]))  # noqa: T201
        return
    for row in rows:
        print(  # noqa: T201
            f"{row.work} ({row.size}): textbook {row.textbook_seconds:.3f} s, ours {row.ours_seconds:.4f} s, "
            f"{row.ratio:.0f} times faster"
        )


if __name__ == "__main__":
    main()
