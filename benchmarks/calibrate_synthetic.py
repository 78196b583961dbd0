"""Fit the parameters of synthetic measurements to the published tables, by rounds of adjustment.

    python benchmarks/calibrate_synthetic.py            fit every cell, write the parameters, print what is achieved
    python benchmarks/calibrate_synthetic.py --check    fit nothing, print what the stored parameters achieve

Every cell is drawn at full scale with the stored seed. Its lengths are fitted first, then, a round at a time, the four
parameters of its curves to its four figures: each round draws the cell once per parameter with that parameter moved a
little, takes from this how the figures answer, and moves all four by a damped least-squares step. The random numbers
stay the same throughout, so that figures answer to parameters and not to chance. Last come the two recorded answers.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from app.files.synthetic import count_questions, draw_questions
from app.files.synthetic_model import (
    PROBES_PER_POSITION,
    Noise,
    Steps,
    Traits,
    draw_noise,
    draw_steps,
    draw_traits,
    find_thinking_tokens,
    find_zero_logit,
    open_stream,
    trace_curves,
)
from app.files.synthetic_parameters import (
    PARAMETERS_FILE,
    CellParameters,
    CellTargets,
    Shape,
    SyntheticParameters,
    find_targets,
    load_paper_figures,
    read_parameters,
)

FloatArray = NDArray[np.float64]
Errors = Callable[[FloatArray], FloatArray]

# The fitted parameters, in this order: zero_level, end_level, rise_time, instability.
# Where every cell begins, whatever is stored, so that the fit depends on nothing but targets and hand-chosen values.
START = np.array([0.0, 0.5, 0.0, 1.0])
LOWEST = np.array([-6.0, -6.0, -4.0, 0.05])
HIGHEST = np.array([6.0, 6.0, 4.0, 8.0])
# How far a parameter is moved to see how figures answer, and how far a round may move it; the last as shares of itself.
PROBE_STEPS = np.array([0.1, 0.1, 0.2, 0.2])
LONGEST_STEPS = np.array([0.6, 0.6, 0.6, 0.5])
# Errors are counted in these units: zero-step, endpoint, overthinking ratio, degradation, as fractions.
UNITS = np.array([0.01, 0.01, 0.02, 0.0075])
GOOD_ENOUGH = 0.1
DECIMALS = 4


@dataclass(frozen=True, eq=False)
class DrawnCell:
    """The random part of a cell, which stays while its parameters are fitted."""

    traits: Traits
    steps: Steps
    noise: Noise
    shape: Shape

    def figures(self, cell: CellParameters) -> FloatArray:
        """Zero-step accuracy, endpoint accuracy, overthinking ratio and accuracy degradation, fractions."""
        correct = trace_curves(self.traits, self.steps, self.noise, cell=cell, shape=self.shape).correct_probes
        first, last, tokens = self.steps.first_idx, self.steps.last_idx, self.steps.retained_tokens
        most = np.maximum.reduceat(correct, first)
        # The earliest maximum: a sum of what is retained before it takes no more than one pass.
        reached = np.flatnonzero(correct == most[self.steps.trajectory])
        _, earliest = np.unique(self.steps.trajectory[reached], return_index=True)
        reference = reached[earliest]
        ratio = 1 - tokens[reference] / tokens[last]
        counts = np.array([correct[first].mean(), correct[last].mean(), (most - correct[last]).mean()])
        zero, end, degradation = counts / PROBES_PER_POSITION
        return np.array([zero, end, ratio.mean(), degradation])


def main(arguments: Sequence[str] | None = None) -> None:
    """Fit, or only check."""
    parser = argparse.ArgumentParser(
        description="Fit the parameters of synthetic measurements to the published tables."
    )
    parser.add_argument("--check", action="store_true", help="print what the stored parameters achieve, fit nothing")
    parser.add_argument("--rounds", type=int, default=40, help="most rounds of adjustment of a cell (default 40)")
    options = parser.parse_args(arguments)
    parameters = read_parameters()
    targets = find_targets()
    if not options.check:
        parameters = fit_parameters(parameters, targets, rounds=options.rounds)
        write_parameters(parameters)
    for line in list_achieved(parameters, targets):
        say(line)


def fit_parameters(
    parameters: SyntheticParameters, targets: Sequence[CellTargets], *, rounds: int
) -> SyntheticParameters:
    """Fit lengths, then steps, then curves and recorded answers."""
    by_name = {(target.model, target.benchmark): target for target in targets}
    cells = tuple(_fit_lengths(parameters, cell, by_name[cell.model, cell.benchmark]) for cell in parameters.cells)
    parameters = replace(parameters, cells=cells)
    parameters = replace(parameters, long_step_share=_fit_long_steps(parameters))
    fitted = []
    for cell in parameters.cells:
        target = by_name[cell.model, cell.benchmark]
        drawn = draw_cell(parameters, cell)
        cell = _fit_curves(drawn, cell, target, rounds=rounds)
        fitted.append(_fit_answers(drawn, cell, target))
    return replace(parameters, cells=tuple(fitted))


def draw_cell_traits(parameters: SyntheticParameters, cell: CellParameters) -> Traits:
    """Draw a cell's traits at full scale with the fitted seed."""
    count = load_paper_figures()["protocol"]["benchmarks"][cell.benchmark]
    seed = parameters.fitted_seed
    difficulty = draw_questions(seed, cell.benchmark, count_questions(count, 1.0)).difficulty
    return draw_traits(seed, cell.model, cell.benchmark, difficulty=difficulty, shape=parameters.shape)


def draw_cell_steps(parameters: SyntheticParameters, cell: CellParameters, traits: Traits) -> Steps:
    """Draw a cell's steps at full scale with the fitted seed."""
    spread = parameters.length_spread[cell.benchmark]
    tokens = find_thinking_tokens(traits, middle_tokens=cell.middle_tokens, spread=spread)
    rng = open_stream(parameters.fitted_seed, cell.model, cell.benchmark, "steps")
    return draw_steps(tokens, parameters.long_step_share[cell.model], rng=rng)


def draw_cell(parameters: SyntheticParameters, cell: CellParameters) -> DrawnCell:
    """Draw the random part of a cell at full scale with the fitted seed."""
    traits = draw_cell_traits(parameters, cell)
    steps = draw_cell_steps(parameters, cell, traits)
    noise = draw_noise(parameters.fitted_seed, cell.model, cell.benchmark, steps=steps, shape=parameters.shape)
    return DrawnCell(traits=traits, steps=steps, noise=noise, shape=parameters.shape)


def _fit_lengths(parameters: SyntheticParameters, cell: CellParameters, target: CellTargets) -> CellParameters:
    traits = draw_cell_traits(parameters, cell)
    spread = parameters.length_spread[cell.benchmark]
    middle = target.mean_thinking_tokens
    # The limit cuts long trajectories, so that the mean is not in proportion to the middle; a few rounds settle it.
    for _ in range(40):
        mean = find_thinking_tokens(traits, middle_tokens=middle, spread=spread).mean()
        middle = round(middle * target.mean_thinking_tokens / mean, 1)
    return replace(cell, middle_tokens=middle)


def _fit_long_steps(parameters: SyntheticParameters) -> dict[str, float]:
    models = load_paper_figures()["models"]
    wanted = {model: figures["steps_of_1024_or_more"] / 100 for model, figures in models.items()}
    shares = dict(wanted)
    for _ in range(4):
        for model, share in achieved_long_steps(replace(parameters, long_step_share=shares)).items():
            shares[model] = round(shares[model] * wanted[model] / share, 7)
    return shares


def achieved_long_steps(parameters: SyntheticParameters) -> dict[str, float]:
    """Return, by model, the share of all its steps that have 1,024 tokens or more."""
    lengths: dict[str, list[NDArray[np.int64]]] = {}
    for cell in parameters.cells:
        lengths.setdefault(cell.model, []).append(_step_lengths(parameters, cell))
    return {model: float((np.concatenate(parts) >= 1024).mean()) for model, parts in lengths.items()}


def _step_lengths(parameters: SyntheticParameters, cell: CellParameters) -> NDArray[np.int64]:
    steps = draw_cell_steps(parameters, cell, draw_cell_traits(parameters, cell))
    is_step = np.ones(len(steps.retained_tokens) - 1, dtype=np.bool_)
    # The difference across the end of one trajectory and the start of the next is no step.
    is_step[steps.last_idx[:-1]] = False
    return np.diff(steps.retained_tokens)[is_step]


def _fit_curves(drawn: DrawnCell, cell: CellParameters, target: CellTargets, *, rounds: int) -> CellParameters:
    wanted = np.array(
        [
            target.zero_step_accuracy,
            target.endpoint_accuracy,
            target.overthinking_ratio,
            target.accuracy_degradation,
        ]
    )

    def errors(values: FloatArray) -> FloatArray:
        off: FloatArray = (drawn.figures(_with_values(cell, values)) - wanted) / UNITS
        return off

    values = START
    current = errors(values)
    best_values, best = values, current
    for number in range(rounds):
        if np.abs(best).max() < GOOD_ENOUGH:
            break
        step = _find_step(errors, values, current)
        values, current = _follow(errors, values, step, current)
        if np.abs(current).max() < np.abs(best).max():
            best_values, best = values, current
        say(f"{cell.model} / {cell.benchmark}: round {number + 1}, largest error {np.abs(current).max():.2f}", log=True)
    return _with_values(cell, best_values)


def _with_values(cell: CellParameters, values: FloatArray) -> CellParameters:
    zero, end, rise, instability = (round(float(value), DECIMALS) for value in values)
    return replace(cell, zero_level=zero, end_level=end, rise_time=rise, instability=instability)


def _find_step(errors, values: FloatArray, current: FloatArray) -> FloatArray:  # type: ignore[no-untyped-def]
    scale = np.array([1, 1, 1, max(values[3], 0.2)])
    answers = np.empty((len(current), len(values)))
    for column, size in enumerate(PROBE_STEPS * scale):
        moved = values.copy()
        moved[column] += size
        answers[:, column] = (errors(moved) - current) / size
    normal = answers.T @ answers
    damped = normal + 5e-4 * np.trace(normal) / len(values) * np.eye(len(values))
    step = np.linalg.solve(damped, -answers.T @ current)
    longest = LONGEST_STEPS * scale
    return np.asarray(step * min(1.0, float((longest / np.maximum(np.abs(step), 1e-9)).min())))


def _follow(errors: Errors, values: FloatArray, step: FloatArray, current: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Go along a step as far as errors fall; a short way where they never do, so that the next round sees elsewhere."""
    for share in (1.0, 0.5, 0.25, 0.1):
        moved = np.clip(values + share * step, LOWEST, HIGHEST)
        found = errors(moved)
        if np.linalg.norm(found) < np.linalg.norm(current):
            break
    return moved, found


def _fit_answers(drawn: DrawnCell, cell: CellParameters, target: CellTargets) -> CellParameters:
    curves = trace_curves(drawn.traits, drawn.steps, drawn.noise, cell=cell, shape=drawn.shape)
    last = curves.logit[drawn.steps.last_idx]
    first = find_zero_logit(drawn.traits, cell)
    return replace(
        cell,
        full_shift=_find_shift(last, drawn.traits.full_quantile, target.full_thinking_accuracy),
        direct_shift=_find_shift(first, drawn.traits.direct_quantile, target.direct_answer_accuracy),
    )


def _find_shift(logit: FloatArray, quantile: FloatArray, wanted: float) -> float:
    """Return the shift of the logits at which this share of answers is right, by bisection."""
    low, high = -20.0, 20.0
    for _ in range(40):
        middle = (low + high) / 2
        if (quantile < expit(logit + middle)).mean() < wanted:
            low = middle
        else:
            high = middle
    return round((low + high) / 2, DECIMALS)


def list_achieved(parameters: SyntheticParameters, targets: Sequence[CellTargets]) -> list[str]:
    """Return the achieved figures beside their targets, as the lines of a Markdown table."""
    lines = [
        "| model | benchmark | tokens | zero-step % | endpoint % | full thinking % | OR % | AD points |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for cell, target in zip(parameters.cells, targets, strict=True):
        drawn = draw_cell(parameters, cell)
        zero, end, ratio, degradation = drawn.figures(cell)
        tokens = drawn.steps.retained_tokens[drawn.steps.last_idx].mean()
        logit = trace_curves(drawn.traits, drawn.steps, drawn.noise, cell=cell, shape=drawn.shape).logit
        full = (drawn.traits.full_quantile < expit(logit[drawn.steps.last_idx] + cell.full_shift)).mean()
        pairs = [
            (zero, target.zero_step_accuracy),
            (end, target.endpoint_accuracy),
            (full, target.full_thinking_accuracy),
            (ratio, target.overthinking_ratio),
            (degradation, target.accuracy_degradation),
        ]
        percents = " | ".join(f"{100 * found:.2f} ({100 * wanted:.2f})" for found, wanted in pairs)
        lengths = f"{tokens:,.1f} ({target.mean_thinking_tokens:,.0f})"
        lines.append(f"| {cell.model} | {cell.benchmark} | {lengths} | {percents} |")
    return lines


def write_parameters(parameters: SyntheticParameters) -> None:
    """Write the parameters, a cell a line."""
    raw = asdict(parameters)
    cells = ",\n".join(f"  {json.dumps(cell)}" for cell in raw.pop("cells"))
    about = (
        "How synthetic measurements are drawn. The shape, the spreads and the sharpnesses were chosen by hand; "
        "benchmarks/calibrate_synthetic.py fitted the rest and wrote this file; docs/synthetic.md explains it."
    )
    head = json.dumps({"about": about, **raw}, indent=1).removesuffix("\n}")
    PARAMETERS_FILE.write_text(f'{head},\n "cells": [\n{cells}\n ]\n}}\n', encoding="utf-8")


def say(line: str, *, log: bool = False) -> None:
    """Write a line: to standard output, or to standard error where it is only a log."""
    (sys.stderr if log else sys.stdout).write(line + "\n")


if __name__ == "__main__":
    main()
