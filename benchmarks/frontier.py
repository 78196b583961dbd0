"""Times whole frontiers, units' actions built and solved, against the textbook program in the same run.

Run ``python benchmarks/frontier.py`` (``--scale 0.1`` for a quick one, ``--format json`` for one JSON document,
``--certificates`` to have all certificates checked too). The textbook side is `app.evaluator.frontier`, vectorised with
numpy; both sides take turns and must find the same points, or it exits 1. Seconds are medians of the processor time of
this process, which uses one thread, since other work on the machine stretches any other kind of time; compiled code is
loaded before. Rows: each strategy and all three on a synthetic snapshot of the paper's scale, and all three on ones
with fewer and more questions, fewer trajectories and fewer steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from app.evaluator.fast_frontier import check_frontier, solve_frontiers_fast
from app.evaluator.frontier import Frontier, solve_frontiers
from app.evaluator.measurements import Cell, Measurements
from app.evaluator.strategies import Strategy
from app.files.snapshot import load_measurements
from app.files.synthetic import draw_snapshot

GROWTH_IN_QUESTIONS = (0.1, 0.3, 2.0)
FEWER_TRAJECTORIES = (4, 8)
FEWER_STEPS = (4, 2)
TURNS_OF_OURS = 5


@dataclass(frozen=True)
class Row:
    """Seconds of the textbook program and of ours for the same frontiers."""

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


def agree(textbook: Sequence[Frontier], ours: Sequence[Frontier]) -> bool:
    """Whether all points are equal."""
    return all(
        np.array_equal(a.cost, b.cost) and np.array_equal(a.correct, b.correct)
        for a, b in zip(textbook, ours, strict=True)
    )


def time_frontiers(
    work: str, measurements: Measurements, strategies: Sequence[Strategy], *, turns: int, certificates: str
) -> Row:
    """Time both sides by turns; exits where they differ, or a certificate does not hold."""
    textbook_seconds, ours_seconds = [], []
    for _ in range(turns):
        seconds, textbook = measure(lambda: solve_frontiers(measurements, strategies))
        textbook_seconds.append(seconds)
        for _ in range(TURNS_OF_OURS):
            seconds, ours = measure(lambda: solve_frontiers_fast(measurements, strategies))
            ours_seconds.append(seconds)
        if not agree(textbook, ours):
            sys.exit(f"the two sides differ: {work}")
    if certificates == "check":
        check_all(measurements, ours, work)
    textbook_median, ours_median = statistics.median(textbook_seconds), statistics.median(ours_seconds)
    return Row(work, textbook_median, ours_median, textbook_median / ours_median, describe(measurements, textbook))


def check_all(measurements: Measurements, ours: Sequence[Frontier], work: str) -> None:
    """Exit unless every certificate holds."""
    for frontier in ours:
        cell = measurements.find_cell(frontier.model, frontier.benchmark)
        assert cell is not None
        if faults := check_frontier(cell, frontier):
            sys.exit(f"a certificate does not hold: {work}: {faults[0]}")


def describe(measurements: Measurements, frontiers: Sequence[Frontier]) -> str:
    """Return the size in words."""
    cells = measurements.cells
    return (
        f"{len(cells)} cells, {sum(cell.n_trajectories for cell in cells)} trajectories, "
        f"{sum(cell.retained_tokens.size for cell in cells)} positions; "
        f"{len(frontiers)} frontiers, {sum(len(f.cost) for f in frontiers)} points"
    )


def draw(scale: float) -> Measurements:
    """Draw the synthetic snapshot with so many times the paper's questions."""
    return load_measurements(draw_snapshot(scale=scale))


def keep_trajectories(cell: Cell, n: int) -> Cell:
    """Return the cell with the first n trajectories of each question."""
    per_question = cell.trajectories_per_question
    kept = np.arange(cell.n_trajectories) % per_question < n
    return keep_positions(replace(cell, trajectories_per_question=n), kept, np.repeat(kept, cell.n_steps + 1))


def keep_every_step(cell: Cell, n: int) -> Cell:
    """Return the cell with only every n-th position of each trajectory, and its last."""
    position = np.arange(cell.retained_tokens.size) - cell.first_idx[cell.trajectory_of_position]
    kept = position % n == 0
    kept[cell.last_idx] = True
    return keep_positions(cell, np.ones(cell.n_trajectories, dtype=np.bool_), kept)


def keep_positions(cell: Cell, trajectories: np.ndarray, positions: np.ndarray) -> Cell:
    """Return the cell of these trajectories and positions."""
    sizes = np.add.reduceat(positions.astype(np.int64), cell.first_idx)[trajectories]
    return replace(
        cell,
        offsets=np.concatenate([[0], np.cumsum(sizes)]),
        retained_tokens=cell.retained_tokens[positions],
        correct_probes=cell.correct_probes[positions],
        original_correct=cell.original_correct[trajectories],
        direct_correct=cell.direct_correct[trajectories],
    )


def cut(measurements: Measurements, change: Callable[[Cell], Cell]) -> Measurements:
    """Return the measurements with every cell changed."""
    return replace(measurements, cells=tuple(change(cell) for cell in measurements.cells))


def list_rows(scale: float, *, turns: int, certificates: str) -> list[Row]:
    """Time everything."""
    every = tuple(Strategy)
    solve_frontiers_fast(draw(0.05))
    full = draw(scale)
    rows = [time_frontiers(f"{s}", full, (s,), turns=turns, certificates="trust") for s in every]
    rows.append(time_frontiers("all strategies", full, every, turns=turns, certificates=certificates))
    variants = [(f"{factor:g} x the questions", draw(scale * factor)) for factor in GROWTH_IN_QUESTIONS]
    variants += [(f"{n} trajectories", cut(full, lambda c, n=n: keep_trajectories(c, n))) for n in FEWER_TRAJECTORIES]
    variants += [(f"1/{n} of the steps", cut(full, lambda c, n=n: keep_every_step(c, n))) for n in FEWER_STEPS]
    for name, measurements in variants:
        rows.append(time_frontiers(f"all strategies, {name}", measurements, every, turns=1, certificates="trust"))
    return rows


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the paper's questions")
    parser.add_argument("--turns", type=int, default=3, help="runs of the textbook program on the full snapshot")
    parser.add_argument("--certificates", action="store_const", const="check", default="trust", help="check them all")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    rows = list_rows(options.scale, turns=options.turns, certificates=options.certificates)
    if options.format == "json":
        print(json.dumps([asdict(row) for row in rows]))  # noqa: T201
        return
    for row in rows:
        print(  # noqa: T201
            f"{row.work}: textbook {row.textbook_seconds:.3f} s, ours {row.ours_seconds:.4f} s, "
            f"{row.ratio:.1f} times faster ({row.size})"
        )


if __name__ == "__main__":
    main()
