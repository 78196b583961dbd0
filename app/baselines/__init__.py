"""Baselines and example methods as action files: the oracle, the uninformed constants, chance, simple rules."""

from __future__ import annotations

from app.baselines import oracle, random, uninformed
from app.evaluator.measurements import Measurements
from app.evaluator.strategies import ActionTable, Strategy
from app.files.snapshot import require_labels

BASELINE_NAMES = ("oracle", "uninformed", "random")


def build_baseline(
    name: str, measurements: Measurements, *, strategy: Strategy, split: str, seed: int = random.DEFAULT_SEED
) -> ActionTable:
    """Return the actions of a baseline on one split, aligned with ``measurements.select(split)``.

    Parameters
    ----------
    seed : of the random control; the others draw nothing.

    Raises
    ------
    LabelsHiddenError : the oracle where labels are hidden; the other two never read any.
    ValueError : an unknown name, or a split without questions.
    """
    selected = measurements.select(split)
    if name == "oracle":
        require_labels(selected)
        return oracle.build_actions(selected, strategy)
    if name == "uninformed":
        return uninformed.build_actions(selected, strategy)
    if name == "random":
        return random.build_actions(selected, strategy, seed=seed)
    raise ValueError(f"unknown baseline {name!r}; known are {', '.join(BASELINE_NAMES)}")
