"""The parameters of synthetic measurements, and the published figures that they were fitted to."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

_DATA = Path(__file__).parent / "data"
PARAMETERS_FILE = _DATA / "synthetic_parameters.json"
PAPER_FILE = _DATA / "paper_figures.json"


@dataclass(frozen=True)
class Shape:
    """What all cells share: how traits combine and how curves bend. Chosen by hand, not fitted.

    Attributes
    ----------
    ability_share : correlation of a question's difficulty for one model with its difficulty for all.
    end_share : correlation of that difficulty with the one after thinking; the rest is the trajectory's own.
    length_hardness, length_question, length_trajectory : how far difficulty, the question and the trajectory move the
        logarithm of the thinking tokens.
    length_end : correlation of a trajectory's own length with its failing.
    rise_hardness, rise_question : correlation of the time of the rise with difficulty, and with the question.
    rise_spread : standard deviation of the time of the rise, as a normal deviate.
    fade_question : correlation of fading within a question.
    fade_share : share of the trajectories that fade late.
    fade_size : scale of the fall of those.
    belief_memory : correlation of the wandering part from one position to the next.
    """

    ability_share: float
    end_share: float
    length_hardness: float
    length_question: float
    length_trajectory: float
    length_end: float
    rise_hardness: float
    rise_question: float
    rise_spread: float
    fade_question: float
    fade_share: float
    fade_size: float
    belief_memory: float


@dataclass(frozen=True)
class CellParameters:
    """What one cell's measurements are drawn with.

    Attributes
    ----------
    model, benchmark : the cell.
    zero_sharpness, end_sharpness : how decidedly a question is right or wrong before and after thinking: the larger,
        the fewer levels lie between. Chosen by hand, as are the next two.
    zero_share : correlation of a question's difficulty for the model with the one before thinking.
    ramp_width : scale of the share of thinking that a rise takes.
    middle_tokens : thinking tokens of a trajectory with no deviation at all. Fitted, as is all that follows.
    zero_level, end_level : ability before and after thinking, on the scale of difficulty.
    rise_time : when levels rise, as a normal deviate of the share of thinking.
    instability : size of the wandering and of the fading.
    full_shift, direct_shift : what is added to the last and to the first logit for `original_correct` and
        `direct_correct`.
    """

    model: str
    benchmark: str
    zero_sharpness: float
    end_sharpness: float
    zero_share: float
    ramp_width: float
    middle_tokens: float
    zero_level: float
    end_level: float
    rise_time: float
    instability: float
    full_shift: float
    direct_shift: float


@dataclass(frozen=True)
class SyntheticParameters:
    """Everything that synthetic measurements are drawn with, besides seed and scale.

    Attributes
    ----------
    version : changes whenever the same seed and scale would give other measurements.
    fitted_seed : the seed whose full-scale draw was fitted.
    length_spread : by benchmark, how widely lengths vary.
    long_step_share : by model, the share of steps drawn from the long tail.
    cells : models by benchmarks, in the order of the manifest.
    """

    version: str
    fitted_seed: int
    shape: Shape
    length_spread: dict[str, float]
    long_step_share: dict[str, float]
    cells: tuple[CellParameters, ...]


@dataclass(frozen=True)
class CellTargets:
    """A cell's published figures: tokens, and fractions in [0, 1].

    `endpoint_accuracy` is not published by cell: see `find_targets`.
    """

    model: str
    benchmark: str
    mean_thinking_tokens: float
    full_thinking_accuracy: float
    endpoint_accuracy: float
    zero_step_accuracy: float
    direct_answer_accuracy: float
    overthinking_ratio: float
    accuracy_degradation: float


def read_parameters(path: Path = PARAMETERS_FILE) -> SyntheticParameters:
    """Read the parameters of a file that `benchmarks/calibrate_synthetic.py` wrote."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    return SyntheticParameters(
        version=raw["version"],
        fitted_seed=raw["fitted_seed"],
        shape=Shape(**raw["shape"]),
        length_spread=raw["length_spread"],
        long_step_share=raw["long_step_share"],
        cells=tuple(CellParameters(**cell) for cell in raw["cells"]),
    )


@cache
def load_paper_figures() -> dict[str, Any]:
    """Load the published figures, in percent as printed; the file says where each stands."""
    figures: dict[str, Any] = json.loads(PAPER_FILE.read_text(encoding="utf-8"))
    return figures


def find_targets() -> tuple[CellTargets, ...]:
    """Return every cell's target figures, models by benchmarks.

    Notes
    -----
    The paper gives endpoint accuracies as means over a model's benchmarks (Figure 3), while Table 3's accuracies are by
    cell. A cell's endpoint target is Table 3's accuracy moved by the model's difference, shared out among its
    benchmarks by the square root of their distance to 100 %, and by no more than 2.5 points in any.
    """
    figures = load_paper_figures()
    targets = []
    for model, of_model in figures["models"].items():
        cells = [cell for cell in figures["cells"] if cell["model"] == model]
        accuracy = {cell["benchmark"]: cell["full_thinking_accuracy"] for cell in cells}
        moved = of_model["endpoint_accuracy"] * len(cells) - sum(accuracy.values())
        weights = {benchmark: (100 - value) ** 0.5 for benchmark, value in accuracy.items()}
        for cell in cells:
            share = moved * weights[cell["benchmark"]] / sum(weights.values())
            endpoint = cell["full_thinking_accuracy"] + min(max(share, -2.5), 2.5)
            percent = {key: value / 100 for key, value in cell.items() if key.endswith(_FRACTIONS)}
            targets.append(CellTargets(**{**cell, **percent, "endpoint_accuracy": endpoint / 100}))
    return tuple(targets)


_FRACTIONS = ("accuracy", "ratio", "degradation")
