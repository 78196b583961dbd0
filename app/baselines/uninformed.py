"""The uninformed baseline: every constant policy of the uninformed reference as one setting."""

from __future__ import annotations

import numpy as np

from app.evaluator.measurements import Measurements
from app.evaluator.reference import list_constant_actions
from app.evaluator.strategies import ActionTable, CellActions, Strategy


def build_actions(measurements: Measurements, strategy: Strategy) -> ActionTable:
    """Return the constant policies as settings: 2 for routing, 102 for a fixed budget, 203 for early exit.

    The reference may mix these policies and this file may not, so its realised potential is never above 0.

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (100, 4)]])], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    >>> build_actions(measurements, Strategy.DYNAMIC_ROUTING).settings
    ('no-thinking', 'thinking')
    """
    constants = [list_constant_actions(cell, strategy) for cell in measurements.cells]
    return ActionTable(
        strategy=strategy,
        settings=tuple(label for label, _ in constants[0]),
        cells=tuple(
            CellActions(
                covered=np.ones(len(policies), dtype=np.bool_), actions=np.stack([actions for _, actions in policies])
            )
            for policies in constants
        ),
    )
