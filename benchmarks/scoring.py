"""Times scoring against a textbook loop on a synthetic snapshot of the paper's shape.

Run ``python benchmarks/scoring.py`` (``--scale 0.1`` for a quick one, ``--format json`` for one JSON document). The
textbook side walks over the trajectories in plain Python, as section 4 reads; both sides must find the same integers,
or it exits 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

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


@dataclass(frozen=True)
class Timing:
    """Seconds of the textbook loop and of ours on the same actions."""

    strategy: str
    n_settings: int
    n_trajectories: int
    textbook_seconds: float
    points_seconds: float
    score_seconds: float

    @property
    def ratio(self) -> float:
        """How many times faster the operating points are found."""
        return self.textbook_seconds / self.points_seconds


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


def time_best(work: Callable[[], Any], *, repeats: int) -> tuple[float, Any]:
    """Return the least seconds of some runs, and the last result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def agree(ours: list[OperatingPoints], textbook: list[OperatingPoints]) -> bool:
    """Whether all totals are equal."""
    return all(
        np.array_equal(getattr(a, name), getattr(b, name))
        for a, b in zip(ours, textbook, strict=True)
        for name in asdict(a)
    )


def time_strategy(measurements: Measurements, strategy: Strategy, *, n_settings: int, seed: int) -> Timing:
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
        sys.exit(f"the two sides differ on {strategy}")
    score_seconds, _ = time_best(lambda: score_actions(measurements, table, references), repeats=3)
    return Timing(
        strategy=str(strategy),
        n_settings=n_settings,
        n_trajectories=sum(cell.n_trajectories for cell in measurements.cells),
        textbook_seconds=textbook_seconds,
        points_seconds=ours_seconds,
        score_seconds=score_seconds,
    )


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the paper's questions")
    parser.add_argument("--settings", type=int, default=20, help="settings per file")
    parser.add_argument("--seed", type=int, default=random.DEFAULT_SEED, help="of the actions")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    measurements = load_measurements(draw_snapshot(scale=options.scale))
    timings = [time_strategy(measurements, s, n_settings=options.settings, seed=options.seed) for s in Strategy]
    if options.format == "json":
        print(json.dumps([{**asdict(t), "ratio": t.ratio} for t in timings]))  # noqa: T201
        return
    for t in timings:
        print(  # noqa: T201
            f"{t.strategy}: {t.n_settings} settings x {t.n_trajectories} trajectories; textbook loop "
            f"{t.textbook_seconds:.2f} s, ours {t.points_seconds:.4f} s, {t.ratio:.0f} times faster; "
            f"whole score with {len(measurements.cells)} cells and all boards {t.score_seconds:.3f} s"
        )


if __name__ == "__main__":
    main()
