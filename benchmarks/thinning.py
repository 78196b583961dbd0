"""Times probe and trajectory thinning against numpy textbook programs, in the same run, on the same measurements.

    python benchmarks/thinning.py                     # the paper's scale, and parts of it to show the growth
    python benchmarks/thinning.py --scale 0.1 --draws 200 --format json

The textbook of probe thinning is section 5's formula over all trajectories of a cell at once, position by position from
the end; both sides must agree to 1e-11. That of trajectory thinning sorts random keys; the two sides draw differently,
so their percentiles may differ by five standard errors. Where they differ more, the script exits 1. Times are of
processor seconds, the least of some runs; compiling is not in them.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from app.evaluator.measurements import Cell, Measurements
from app.evaluator.overthinking import trajectory_overthinking
from app.evaluator.thinning import (
    N_DRAWS,
    PERCENTILES,
    THINNING_SEED,
    ProbeThinning,
    TrajectoryThinning,
    summarise_probe_thinning,
    thin_trajectories,
)
from app.files.snapshot import load_measurements
from app.files.synthetic import draw_snapshot
from benchmarks.parts import list_parts
from benchmarks.timing import Row, add_format_option, build_row, count_size, print_rows, time_best

FloatArray = NDArray[np.float64]

PROBES = (4, 8, 12)
TRAJECTORIES = (2, 4, 8)


def thin_probes_textbook(cell: Cell, probes: int) -> FloatArray:
    """Return expected OR, expected AD and the probability that k* stays: 3 x trajectories.

    The longest trajectories come first, so that those with a position i from the end are a prefix of the rows.
    """
    full = cell.probes_per_position
    ways = math.comb(full, probes)
    law = np.array(
        [[math.comb(c, v) * math.comb(full - c, probes - v) / ways for v in range(probes + 1)] for c in range(full + 1)]
    )
    at_most = law.cumsum(axis=1)
    below = at_most - law
    order = np.argsort(-cell.n_steps, kind="stable")
    last, steps = cell.last_idx[order], cell.n_steps[order]
    reference = trajectory_overthinking(cell).reference[order]
    tokens, stays = np.zeros((2, cell.n_trajectories, probes + 1))
    none_above = np.ones((cell.n_trajectories, probes + 1))
    active = np.searchsorted(-steps, -np.arange(steps[0] + 1), side="right")
    for i, n in enumerate(active.tolist()):
        position = last[:n] - i
        counts = cell.correct_probes[position]
        reaches = law[counts] * none_above[:n]
        less = below[counts]
        tokens[:n] = cell.retained_tokens[position][:, None] * reaches + less * tokens[:n]
        is_reference = (steps[:n] - i == reference[:n])[:, None]
        stays[:n] = np.where(is_reference, reaches, less * stays[:n])
        none_above[:n] *= at_most[counts]
    most = probes - none_above[:, :probes].sum(axis=1)
    total = cell.thinking_tokens[order]
    result = np.empty((3, cell.n_trajectories))
    result[0, order] = np.where(total > 0, 1 - tokens.sum(axis=1) / np.maximum(total, 1), 0.0)
    result[1, order] = most / probes - cell.endpoint_correct[order] / full
    result[2, order] = stays.sum(axis=1)
    return result


def summarise_probes_textbook(measurements: Measurements) -> FloatArray:
    """Return the means over cells of the three figures for each number of probes."""
    means = [[thin_probes_textbook(cell, m).mean(axis=1) for cell in measurements.cells] for m in PROBES]
    over_cells: FloatArray = np.array(means).mean(axis=1)
    return over_cells


def thin_trajectories_textbook(measurements: Measurements, n_draws: int) -> FloatArray:
    """Return the percentiles of the means over cells of OR and AD for each number of trajectories."""
    rng = np.random.default_rng(THINNING_SEED)
    full = measurements.trajectories_per_question
    means = np.empty((len(measurements.cells), n_draws, 2, len(TRAJECTORIES)))
    for cell, of_cell in zip(measurements.cells, means, strict=True):
        plain = trajectory_overthinking(cell)
        figures = np.stack([plain.ratio, plain.degradation / cell.probes_per_position]).reshape(2, 1, -1, full)
        for start in range(0, n_draws, 50):
            keys = rng.random((min(50, n_draws - start), cell.n_questions, full))
            order = np.argsort(keys, axis=2)[None, :, :, : max(TRAJECTORIES)]
            sums = np.take_along_axis(figures, order, axis=3).cumsum(axis=3).mean(axis=2)
            of_cell[start : start + 50] = np.stack([sums[:, :, r - 1].T / r for r in TRAJECTORIES], axis=2)
    percentiles: FloatArray = np.percentile(means.mean(axis=0), PERCENTILES, axis=0)
    return percentiles


def probes_agree(ours: tuple[ProbeThinning, ...], textbook: FloatArray) -> bool:
    """Whether all means over cells are the same, but for rounding."""
    names = ("overthinking_ratio", "accuracy_degradation", "same_reference")
    found = [[report.averages[name].macro for name in names] for report in ours]
    return bool(np.allclose(np.array(found, dtype=np.float64), textbook, rtol=0, atol=1e-11))


def ranges_agree(ours: tuple[TrajectoryThinning, ...], textbook: FloatArray) -> bool:
    """Whether all ranges of the means over cells are the same, but for the draws.

    The standard error of a difference of two such percentiles of a normal law is the width times 0.96 / sqrt(draws).
    """
    for i, report in enumerate(ours):
        if report.macro is None:
            return False
        for j, found in enumerate((report.macro.overthinking_ratio, report.macro.accuracy_degradation)):
            low, high = textbook[:, j, i]
            most = 5 * 0.96 / math.sqrt(report.n_draws) * (high - low)
            if max(abs(found.low - low), abs(found.high - high)) > most:
                return False
    return True


def time_probes(measurements: Measurements, growth: str) -> Row:
    """Time the expected figures for 4, 8 and 12 probes."""
    ours_seconds, ours = time_best(lambda: summarise_probe_thinning(measurements, PROBES), repeats=5)
    textbook_seconds, textbook = time_best(lambda: summarise_probes_textbook(measurements), repeats=2)
    if not probes_agree(ours, textbook):
        sys.exit(f"the two sides differ in probe thinning, {growth}")
    work = f"probe thinning, m = 4, 8, 12, {growth}"
    return build_row(work, textbook_seconds, ours_seconds, size=count_size(measurements))


def time_trajectories(measurements: Measurements, growth: str, *, n_draws: int) -> Row:
    """Time the ranges for 2, 4 and 8 trajectories."""

    def ours_once() -> tuple[TrajectoryThinning, ...]:
        rng = np.random.default_rng(THINNING_SEED)
        return thin_trajectories(measurements, TRAJECTORIES, rng=rng, n_draws=n_draws)

    ours_seconds, ours = time_best(ours_once, repeats=3)
    textbook_seconds, textbook = time_best(lambda: thin_trajectories_textbook(measurements, n_draws), repeats=1)
    if not ranges_agree(ours, textbook):
        sys.exit(f"the two sides differ in trajectory thinning, {growth}")
    work = f"trajectory thinning, r = 2, 4, 8, {growth}"
    return build_row(work, textbook_seconds, ours_seconds, size=count_size(measurements, draws=n_draws))


def list_rows(whole: Measurements, *, n_draws: int) -> Iterator[Row]:
    """Yield the rows as they are measured."""
    # Compile first.
    small = replace(whole, cells=tuple(cell.take_questions([0]) for cell in whole.cells))
    summarise_probe_thinning(small)
    thin_trajectories(small, rng=np.random.default_rng(0), n_draws=1)
    for growth, measurements in list_parts(whole):
        yield time_probes(measurements, growth)
        if measurements.trajectories_per_question > max(TRAJECTORIES) and "steps" not in growth:
            yield time_trajectories(measurements, growth, n_draws=n_draws)


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the paper's questions")
    parser.add_argument("--draws", type=int, default=N_DRAWS, help="draws of trajectory thinning")
    add_format_option(parser)
    options = parser.parse_args()
    measurements = load_measurements(draw_snapshot(scale=options.scale))
    print_rows(list_rows(measurements, n_draws=options.draws), options.format)


if __name__ == "__main__":
    main()
