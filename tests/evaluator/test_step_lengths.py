"""Step lengths: by hand, edges, and after repartition of recorded blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.evaluator.measurements import Cell, Measurements, build_cell
from app.evaluator.segmentation import Partition, merge_partition
from app.evaluator.step_lengths import list_step_lengths, summarise_model_steps, summarise_step_lengths
from app.files.snapshot import load_measurements, read_snapshot

AsMeasurements = Callable[[list[Cell]], Measurements]


def test_by_hand(as_measurements: AsMeasurements) -> None:
    first = build_cell("x", "a", [("q", "test", [[(0, 1), (31, 2), (63, 1)], [(0, 1)], [(0, 1), (1024, 2)]])], 4)
    second = build_cell("x", "b", [("q", "test", [[(0, 1), (1023, 2)], [(0, 1)], [(0, 0), (5000, 2)]])], 4)
    empty = build_cell("y", "a", [("q", "test", [[(0, 1)]] * 3)], 4)
    assert list_step_lengths(first).tolist() == [31, 32, 1024]
    figures = summarise_model_steps(as_measurements([first, second, empty]))
    # 31 in the first bin, 32 in the second, 1023 in the last of 32; 1024 and 5000 are long.
    assert figures["x"].counts.tolist() == [1, 1, *[0] * 29, 1]
    assert (figures["x"].n_steps, figures["x"].n_long, figures["x"].long_share) == (5, 2, 0.4)
    assert (figures["x"].total_tokens, figures["x"].mean_tokens) == (7110, 1422.0)
    assert (figures["x"].long_tokens, figures["x"].bin_tokens, figures["x"].reason) == (1024, 32, None)
    assert (figures["y"].n_steps, figures["y"].mean_tokens, figures["y"].long_share) == (0, None, None)
    assert (figures["y"].reason, figures["y"].counts.sum()) == ("no_step", 0)


def test_after_repartition() -> None:
    blocks = Partition(np.array([0, 4, 4]), np.array([100, 200, 300, 2000]))
    # 2,600 tokens: 20 steps of 128 want all 4 blocks, 5 of 512 as well, 3 of 1,000 merge the first two.
    for step_tokens, lengths in ((128, [100, 200, 300, 2000]), (512, [100, 200, 300, 2000]), (1000, [300, 300, 2000])):
        steps = merge_partition(blocks, step_tokens=step_tokens)
        assert steps.tokens.tolist() == lengths
        figures = summarise_step_lengths(steps.tokens)
        assert (figures.mean_tokens, figures.n_long) == (2600 / len(lengths), 1)


def test_arguments_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="do not end at 1000"):
        summarise_step_lengths([5], bin_tokens=32, long_tokens=1000)
    with pytest.raises(ValueError, match="bins of 0 tokens"):
        summarise_step_lengths([5], bin_tokens=0, long_tokens=10)
    with pytest.raises(ValueError, match="at least one token"):
        summarise_step_lengths([5, 0])


def test_on_a_real_snapshot(real_snapshot: Path) -> None:
    measurements = load_measurements(read_snapshot(real_snapshot))
    figures = summarise_model_steps(measurements)
    assert sum(f.n_steps for f in figures.values()) == sum(int(cell.n_steps.sum()) for cell in measurements.cells)
    assert sum(f.total_tokens for f in figures.values()) == sum(c.total_thinking_tokens for c in measurements.cells)
    for f in figures.values():
        assert f.counts.sum() + f.n_long == f.n_steps
