"""Times whole frontiers, units' actions built and solved, against the textbook program in the same run.

Run ``python benchmarks/frontier.py`` (``--scale 0.1`` for a quick one, ``--format json`` for one JSON document,
``--certificates`` to have all certificates checked too). The textbook side is `app.evaluator.frontier`, vectorised with
numpy; both sides take turns and must find the same points, or it exits 1. Seconds are medians of the processor time of
this process, which uses one thread, since other work on the machine stretches any other kind of time; compiled code is
loaded before. Rows: each strategy and all three on a synthetic snapshot of the paper's scale, all three on parts of it
with fewer questions, trajectories and steps, and the oracle's actions at 256 points of each early-exit frontier.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Iterator, Sequence

import numpy as np

from app.baselines.oracle import N_SETTINGS, choose_points
from app.evaluator.fast_frontier import check_frontier, solve_frontiers_fast
from app.evaluator.fast_policies import solve_policies_fast
from app.evaluator.frontier import Frontier, solve_frontiers, solve_policies
from app.evaluator.measurements import Measurements
from app.evaluator.strategies import Strategy
from app.files.snapshot import load_measurements
from app.files.synthetic import draw_snapshot
from benchmarks.parts import list_parts, take_questions
from benchmarks.timing import Row, add_format_option, build_row, count_size, measure, print_rows

TURNS_OF_OURS = 7
SHARE_WITH_ACTIONS = 1 / 4


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
    size = count_size(measurements, frontiers=len(ours), points=sum(len(frontier.cost) for frontier in ours))
    return build_row(work, statistics.median(textbook_seconds), statistics.median(ours_seconds), size=size)


def check_all(measurements: Measurements, ours: Sequence[Frontier], work: str) -> None:
    """Exit unless every certificate holds."""
    for frontier in ours:
        cell = measurements.find_cell(frontier.model, frontier.benchmark)
        assert cell is not None
        if faults := check_frontier(cell, frontier):
            sys.exit(f"a certificate does not hold: {work}: {faults[0]}")


def time_policies(work: str, measurements: Measurements, strategy: Strategy) -> Row:
    """Time the oracle's actions; exits where they differ."""
    wanted = [
        (cell, frontier.correct[choose_points(frontier.curve, N_SETTINGS)].tolist())
        for cell, frontier in zip(measurements.cells, solve_frontiers_fast(measurements, (strategy,)), strict=True)
    ]
    textbook_seconds, textbook = measure(lambda: [solve_policies(cell, strategy, at) for cell, at in wanted])
    ours_seconds, ours = measure(lambda: [solve_policies_fast(cell, strategy, at) for cell, at in wanted])
    if not all(np.array_equal(a, b) for a, b in zip(textbook, ours, strict=True)):
        sys.exit(f"the two sides differ: {work}")
    size = count_size(measurements, points=sum(len(at) for _, at in wanted))
    return build_row(work, textbook_seconds, ours_seconds, size=size)


def load_compiled_code() -> None:
    """Call everything once."""
    small = load_measurements(draw_snapshot(scale=0.02))
    for frontier in solve_frontiers_fast(small):
        cell = small.find_cell(frontier.model, frontier.benchmark)
        assert cell is not None
        solve_policies_fast(cell, frontier.strategy, [int(frontier.correct[-1])])


def list_rows(whole: Measurements, *, turns: int, certificates: str) -> Iterator[Row]:
    """Yield the rows as they are measured."""
    load_compiled_code()
    every = tuple(Strategy)
    for strategy in every:
        yield time_frontiers(f"frontiers, {strategy}", whole, (strategy,), turns=turns, certificates="trust")
    for growth, measurements in list_parts(whole):
        is_whole = measurements is whole
        yield time_frontiers(
            f"frontiers, all strategies, {growth}",
            measurements,
            every,
            turns=turns if is_whole else 1,
            certificates=certificates if is_whole else "trust",
        )
    part, early_exit = take_questions(whole, SHARE_WITH_ACTIONS), Strategy.DYNAMIC_EARLY_EXIT
    yield time_policies(f"oracle's actions, {early_exit}, {SHARE_WITH_ACTIONS:.3g} of the questions", part, early_exit)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the paper's questions")
    parser.add_argument("--turns", type=int, default=3, help="runs of the textbook program on the full snapshot")
    parser.add_argument("--certificates", action="store_const", const="check", default="trust", help="check them all")
    add_format_option(parser)
    options = parser.parse_args()
    whole = load_measurements(draw_snapshot(scale=options.scale))
    print_rows(list_rows(whole, turns=options.turns, certificates=options.certificates), options.format)


if __name__ == "__main__":
    main()
