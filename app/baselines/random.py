"""The random control: settings that decide by chance, which show what choosing among many in hindsight buys."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from app.evaluator.measurements import Cell, Measurements
from app.evaluator.strategies import ActionTable, CellActions, Strategy, n_units

DEFAULT_SEED = 20260721
N_SETTINGS = 256


def build_actions(
    measurements: Measurements, strategy: Strategy, *, seed: int, n_settings: int = N_SETTINGS
) -> ActionTable:
    """Return settings that let every unit keep a random share of its thinking.

    Setting i has a level p, drawn uniformly from the i-th of `n_settings` equal parts of (0, 1), the same in all cells.
    Under it every unit draws its own share of mean p: routing thinks with probability p; otherwise the share is
    ``v ** (1 / p - 1)`` with v uniform on (0, 1), and the cap is that share of the question's longest trajectory, the
    position that share of the trajectory's steps, each rounded to the nearest integer.

    Parameters
    ----------
    seed : the same seed, measurements and strategy give the same actions; each cell draws from its own stream.
    n_settings : at least 1.

    Notes
    -----
    Caps and positions are drawn up to the recorded lengths, which a real method could not know; labels are never read.

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (100, 4)]])], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    >>> table = build_actions(measurements, Strategy.DYNAMIC_ROUTING, seed=DEFAULT_SEED, n_settings=3)
    >>> table.settings, table.cells[0].actions.shape
    (('1', '2', '3'), (3, 1))
    """
    streams = np.random.SeedSequence(seed).spawn(1 + len(measurements.cells))
    first = np.random.default_rng(streams[0])
    levels = (np.arange(n_settings) + first.uniform(size=n_settings)) / n_settings
    return ActionTable(
        strategy=strategy,
        settings=tuple(str(i + 1) for i in range(n_settings)),
        cells=tuple(
            CellActions(
                covered=np.ones(n_settings, dtype=np.bool_),
                actions=_draw_actions(cell, strategy, levels=levels, rng=np.random.default_rng(stream)),
            )
            for cell, stream in zip(measurements.cells, streams[1:], strict=True)
        ),
    )


def _draw_actions(
    cell: Cell, strategy: Strategy, *, levels: NDArray[np.float64], rng: np.random.Generator
) -> NDArray[np.int64]:
    draws = rng.uniform(size=(len(levels), n_units(cell, strategy)))
    if strategy is Strategy.DYNAMIC_ROUTING:
        return (draws < levels[:, None]).astype(np.int64)
    # v ** (1 / p - 1) has mean p. The first part of (0, 1) may draw a level of exactly 0, whose share is 0.
    exponents = 1.0 / np.maximum(levels, np.finfo(np.float64).tiny) - 1.0
    shares = draws ** exponents[:, None]
    if strategy is Strategy.FIXED_BUDGET:
        longest = cell.thinking_tokens.reshape(cell.n_questions, -1).max(axis=1)
    else:
        longest = cell.n_steps
    actions: NDArray[np.int64] = np.rint(shares * longest).astype(np.int64)
    return actions
