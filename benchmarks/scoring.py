"""Times operating points and whole scores of action files against a plain loop, in the same run, on the same actions.

Run ``python benchmarks/scoring.py`` (``--scale 0.1 --settings 5`` for a quick one, ``--format json`` for one JSON
document). The textbook side walks over the trajectories in plain Python, as section 4 reads; both sides must find the
same integers, or it exits 1. Its operating points stand beside our whole scores too, with all boards and areas, which
the textbook side leaves out. Seconds are processor time. Early exit runs on parts of the snapshot as well, to show the
growth in questions, trajectories and steps.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from app.baselines import random
from app.evaluator.frontier import solve_frontier
from app.evaluator.measurements import Cell, Measurements
from app.evaluator.operating_points import OperatingPoints, measure_operating_points
from app.evaluator.reference import build_references
from app.evaluator.scoring import score_actions
from app.evaluator.strategies import Strategy
from app.files.snapshot import load_measurements
from app.files.synthetic import draw_snapshot
from benchmarks.parts import list_parts
from benchmarks.timing import Row, add_format_option, build_row, count_size, print_rows, time_best


def find_stop(tokens: list[int], action: int, strategy: Strategy) -> int:
    """Return the stopping position of one trajectory."""
    if strategy is Strategy.DYNAMIC_EARLY_EXIT:
        return action
    if strategy is Strategy.DYNAMIC_ROUTING:
        return len(tokens) - 1 if action else 0
    return max(k for k, kept in enumerate(tokens) if kept <= action)


def walk_points(cell: Cell, strategy: Strategy, actions: NDArray[np.int64]) -> OperatingPoints:
    """Return the operating points and regret parts as section 4 reads: one setting, one trajectory at a time."""
    bounds = cell.offsets.tolist()
    spans = [slice(start, stop) for start, stop in pairwise(bounds)]
    curves = [(cell.retained_tokens[s].tolist(), cell.correct_probes[s].tolist()) for s in spans]
    per_unit = 1 if strategy.unit_is_trajectory else cell.trajectories_per_question
    rows = []
    for units in actions.tolist():
        cost = correct = early = late = wasted = forgone = 0
        for t, (tokens, probes) in enumerate(curves):
            stop = find_stop(tokens, units[t // per_unit], strategy)
            best = probes.index(max(probes))
            cost += tokens[stop]
            correct += probes[stop]
            if stop < best:
                early += probes[best] - probes[stop]
                forgone += tokens[best] - tokens[stop]
            if stop > best:
                late += probes[best] - probes[stop]
                wasted += tokens[stop] - tokens[best]
        rows.append((cost, correct, early, late, wasted, forgone))
    return OperatingPoints(*np.array(rows, dtype=np.int64).T)


def agree(ours: list[OperatingPoints], textbook: list[OperatingPoints]) -> bool:
    """Whether all totals are equal."""
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(ours, textbook, strict=True)
        for name in asdict(a)
    )


def time_strategy(
    measurements: Measurements, strategy: Strategy, *, n_settings: int, seed: int, growth: str
) -> Iterator[Row]:
    """Time one strategy on random actions; exits where the two sides differ."""
    frontiers = [solve_frontier(cell, strategy) for cell in measurements.cells]
    references = build_references(measurements, strategy, frontiers)
    table = random.build_actions(measurements, strategy, seed=seed, n_settings=n_settings)
    pairs = [(cell, part.actions) for cell, part in zip(measurements.cells, table.cells, strict=True)]
    ours_seconds, ours = time_best(
        lambda: [measure_operating_points(cell, strategy, actions) for cell, actions in pairs], repeats=5
    )
    textbook_seconds, textbook = time_best(
        lambda: [walk_points(cell, strategy, actions) for cell, actions in pairs], repeats=1
    )
    if not agree(ours, textbook):
        sys.exit(f"the two sides differ on {strategy}, {growth}")
    score_seconds, _ = time_best(lambda: score_actions(measurements, table, references), repeats=3)
    size = count_size(measurements, settings=n_settings)
    yield build_row(f"operating points, {strategy}, {growth}", textbook_seconds, ours_seconds, size=size)
    yield build_row(
        f"score with all boards (textbook: operating points only), {strategy}, {growth}",
        textbook_seconds,
        score_seconds,
        size=size,
    )


def list_rows(whole: Measurements, *, n_settings: int, seed: int) -> Iterator[Row]:
    """Yield the rows as they are measured: every strategy on the whole, early exit on parts of it."""
    for growth, measurements in list_parts(whole):
        strategies = tuple(Strategy) if measurements is whole else (Strategy.DYNAMIC_EARLY_EXIT,)
        for strategy in strategies:
            yield from time_strategy(measurements, strategy, n_settings=n_settings, seed=seed, growth=growth)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the paper's questions")
    parser.add_argument("--settings", type=int, default=20, help="settings per file")
    parser.add_argument("--seed", type=int, default=random.DEFAULT_SEED, help="of the actions")
    add_format_option(parser)
    options = parser.parse_args()
    measurements = load_measurements(draw_snapshot(scale=options.scale))
    print_rows(list_rows(measurements, n_settings=options.settings, seed=options.seed), options.format)


if __name__ == "__main__":
    main()
