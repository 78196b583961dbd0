"""Simulates how often the bootstrap's 95 % intervals cover the true value, and tests what would explain another rate.

Run ``python benchmarks/coverage.py`` (``--format json`` for one JSON document). Data sets come from a model whose true
values are known, here to within the error of some very large draws: a question has a difficulty, a trajectory a number
of steps, lengths and a curve of success probabilities around it, and probes are binomial. Each data set has one cell;
its intervals come from the same draws and solvers as a snapshot's. The true value of a frontier's figure is that of
infinitely many questions with the same number of trajectories and probes each. Two methods of early exit stand on the
same replicates: each stops where a noisy reading of the present chance of success passes a threshold, at the latest at
one of ten positions, its settings; the second one reads with more noise.

An interval misses for three reasons, each told in sampling standard deviations of the estimate: the estimate is off
(`bias`), the interval lies to one side of its estimate (`shift`), or it is too wide or narrow (`width_ratio`). Were the
estimate normal and the interval always alike, these three would make the coverage Phi(1.96 r - b) - Phi(-1.96 r - b),
with r the ratio and b the bias, or bias and shift; it is printed beside what was counted. Three intervals are compared:
centred ones, as they are shown; literal percentiles of the same replicates, which paired differences are judged by; and
literal ones with questions drawn again, but not the trajectories within them.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np

from app.evaluator.centring import FRACTION, RANGES, find_interval, find_percentiles
from app.evaluator.draws import CellCounts, count_draws
from app.evaluator.measurements import Cell
from app.evaluator.overthinking import trajectory_overthinking
from app.evaluator.replicate_frontiers import N_INTERVALS, PreparedCell, prepare_cell, solve_drawn
from app.evaluator.resampled_boards import find_first
from app.evaluator.resampled_settings import fill_curves
from app.evaluator.strategies import Strategy
from app.evaluator.uninformed_grid import find_uninformed_grid

PROBES = 8
N_TRUE_QUESTIONS = 6000
N_TRUE_DRAWS = 10
Z = NormalDist().inv_cdf(0.975)
FIGURES = (
    "overthinking_ratio",
    "accuracy_degradation",
    "zero_step_accuracy",
    "endpoint_accuracy",
    *(f"{name} {strategy}" for strategy in Strategy for name in ("area", "beta_match", "beta_sat")),
    "area of a method",
    "realised_potential of a method",
    "realised_potential of another",
    "difference of the two",
)
THRESHOLD = 0.5
LAST_POSITIONS = tuple(range(10))
NOISES = (0.3, 1.0)


@dataclass(frozen=True)
class Stage:
    """What the intervals of one way of drawing were like.

    Attributes
    ----------
    coverage, low, high : how often they held the true value, with Wilson's 95 % interval of that share.
    width_ratio : their mean width over that of a normal law with the estimate's sampling standard deviation.
    shift : how far their middles lay above their estimates on average, in sampling standard deviations.
    predicted : the coverage that width, shift and the estimate's bias make.
    predicted_without_shift : that which width and bias alone make.
    """

    coverage: float
    low: float
    high: float
    mean_width: float
    width_ratio: float
    shift: float
    predicted: float
    predicted_without_shift: float


@dataclass(frozen=True)
class Coverage:
    """One figure: its true value, what the data sets' own estimates were like, and the intervals.

    Attributes
    ----------
    spread : the sampling standard deviation of the estimate.
    bias, bias_error : mean estimate minus true value, and the standard error of that, both in units of `spread`.
    centred : intervals as they are shown: questions drawn again, and trajectories within them, the middle moved.
    literal : percentiles of the same replicates.
    questions_only : percentiles of replicates with all trajectories of a drawn question kept.
    """

    figure: str
    n_questions: int
    n_trajectories: int
    n_data_sets: int
    true_value: float
    mean_estimate: float
    spread: float
    bias: float
    bias_error: float
    centred: Stage
    literal: Stage
    questions_only: Stage


@dataclass(frozen=True)
class Data:
    """One data set: its cell, and where each method stops, int64 of methods x settings x trajectories."""

    cell: Cell
    stops: np.ndarray


def draw_data(rng: np.random.Generator, n_questions: int, *, per_question: int) -> Data:
    """Draw one cell, R trajectories of every question with curves that rise and may fall again, and the methods."""
    n_trajectories = n_questions * per_question
    difficulty = np.repeat(rng.normal(0, 1.5, n_questions), per_question)
    n_steps = 1 + rng.poisson(5, n_trajectories)
    offsets = np.append(0, np.cumsum(n_steps + 1))
    trajectory = np.repeat(np.arange(n_trajectories), n_steps + 1)
    position = np.arange(offsets[-1]) - offsets[trajectory]
    added = np.where(position == 0, 0, rng.integers(100, 400, offsets[-1]))
    running = np.cumsum(added)
    start = rng.normal(-1, 0.7, n_trajectories) - difficulty
    rise = rng.normal(0.5, 0.5, n_trajectories)
    # A walk on top makes some trajectories pass a right answer and leave it again.
    walk = np.cumsum(rng.normal(0, 0.6, offsets[-1]))
    logit = start[trajectory] + rise[trajectory] * position + walk - walk[offsets[trajectory]]
    unknown = np.full(n_trajectories, -1, np.int8)
    cell = Cell(
        model="model",
        benchmark="benchmark",
        question_ids=tuple(f"q{i:05}" for i in range(n_questions)),
        question_splits=("test",) * n_questions,
        trajectories_per_question=per_question,
        probes_per_position=PROBES,
        offsets=offsets,
        retained_tokens=(running - running[offsets[trajectory]]).astype(np.int32),
        correct_probes=rng.binomial(PROBES, 1 / (1 + np.exp(-logit))).astype(np.int32),
        original_correct=unknown,
        direct_correct=unknown,
    )
    stops = [draw_stops(logit + rng.normal(0, noise, logit.size), offsets) for noise in NOISES]
    return Data(cell, np.array(stops))


def draw_stops(reading: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """Return where a method stops: where a reading passes the threshold, or at its setting's last position."""
    position = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets))
    last = np.diff(offsets) - 1
    passing = np.minimum.reduceat(np.where(reading >= THRESHOLD, position, offsets[-1]), offsets[:-1])
    return np.stack([np.minimum(passing, np.minimum(last, limit)) for limit in LAST_POSITIONS])


def draw_questions(cell: Cell, n_replicates: int, *, rng: np.random.Generator) -> CellCounts:
    """Draw whole questions again, each with all its trajectories once."""
    chosen = rng.integers(0, cell.n_questions, (n_replicates, cell.n_questions), dtype=np.int32)
    times = np.stack([np.bincount(row, minlength=cell.n_questions) for row in chosen])
    per_question = cell.trajectories_per_question
    return CellCounts(
        question_idx=chosen,
        counts=np.ones((*chosen.shape, per_question), np.int32),
        weights=np.repeat(times, per_question, axis=1).astype(np.int32),
    )


def take_once(cell: Cell) -> CellCounts:
    """Return the data as they are: every question once, every trajectory once."""
    return CellCounts(
        question_idx=np.arange(cell.n_questions, dtype=np.int32)[None],
        counts=np.ones((1, cell.n_questions, cell.trajectories_per_question), np.int32),
        weights=np.ones((1, cell.n_trajectories), np.int32),
    )


def find_figures(prepared: PreparedCell, stops: np.ndarray, drawn: CellCounts) -> np.ndarray:
    """Return the figures of what was drawn: rows of draws, columns as in `FIGURES`."""
    cell = prepared.cell
    weights = drawn.weights.astype(np.int64)
    plain = trajectory_overthinking(cell)
    sums = weights @ np.stack([plain.degradation, cell.zero_correct, cell.endpoint_correct], axis=1).astype(np.int64)
    thinking = weights @ cell.thinking_tokens.astype(np.int64)
    totals = np.column_stack([thinking, sums[:, 1:]])
    accuracy = solve_drawn(prepared, drawn, thinking) / cell.total_probes
    columns = [weights @ plain.ratio / cell.n_trajectories, *(sums / cell.total_probes).T]
    for s in range(len(Strategy)):
        columns.append(np.trapezoid(accuracy[:, s], dx=1 / N_INTERVALS, axis=1))
        columns.append(find_first(accuracy[:, s], sums[:, 2] / cell.total_probes))
        columns.append(find_first(accuracy[:, s], accuracy[:, s, -1]))
    grid = find_uninformed_grid(
        prepared.policies, drawn.weights, totals=totals, total_probes=cell.total_probes, n_intervals=N_INTERVALS
    )
    uninformed = np.trapezoid(grid[:, -1], dx=1 / N_INTERVALS, axis=1)
    oracle = np.trapezoid(accuracy[:, -1], dx=1 / N_INTERVALS, axis=1)
    areas = [find_area(cell, of_method, weights, totals) for of_method in stops]
    potentials = [(area - uninformed) / (oracle - uninformed) for area in areas]
    return np.column_stack([*columns, areas[0], *potentials, potentials[0] - potentials[1]])


def find_area(cell: Cell, stops: np.ndarray, weights: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Return the area under a method's curve in each draw, from where its settings stop."""
    idx = cell.first_idx + stops
    cost, correct = weights @ cell.retained_tokens[idx].T.astype(np.int64), weights @ cell.correct_probes[idx].T
    grid = np.empty((len(weights), N_INTERVALS + 1), np.int64)
    fill_curves(cost, correct.astype(np.int64), totals[:, 0].copy(), totals[:, 1].copy(), grid)
    return np.trapezoid(grid / cell.total_probes, dx=1 / N_INTERVALS, axis=1)


def find_true_values(rng: np.random.Generator, *, per_question: int) -> np.ndarray:
    """Return the figures of very many questions, the mean of some large draws."""
    draws = []
    for _ in range(N_TRUE_DRAWS):
        data = draw_data(rng, N_TRUE_QUESTIONS, per_question=per_question)
        draws.append(find_figures(prepare_cell(data.cell), data.stops, take_once(data.cell))[0])
    return np.mean(draws, axis=0)


def simulate(*, n_questions: int, per_question: int, n_data_sets: int, n_replicates: int, seed: int) -> list[Coverage]:
    """Draw the data sets, resample each and compare the intervals with the true values."""
    rng = np.random.default_rng(seed)
    true = find_true_values(rng, per_question=per_question)
    estimates = np.empty((n_data_sets, len(FIGURES)))
    intervals = np.empty((3, 2, *estimates.shape))
    for i in range(n_data_sets):
        data = draw_data(rng, n_questions, per_question=per_question)
        cell, prepared = data.cell, prepare_cell(data.cell)
        estimates[i] = find_figures(prepared, data.stops, take_once(cell))[0]
        both = find_figures(prepared, data.stops, count_draws(cell, range(n_replicates), seed=i))
        only = find_figures(prepared, data.stops, draw_questions(cell, n_replicates, rng=rng))
        for f, name in enumerate(FIGURES):
            limits = (-math.inf, math.inf) if name.startswith("difference") else RANGES.get(name.split()[0], FRACTION)
            found = (
                find_interval(both[:, f], float(estimates[i, f]), limits=limits),
                find_percentiles(both[:, f]),
                find_percentiles(only[:, f]),
            )
            for kind, interval in enumerate(found):
                assert interval is not None
                intervals[kind, :, i, f] = interval.low, interval.high
    return [
        describe_figure(
            name, true[f], estimates[:, f], intervals[:, :, :, f], n_questions=n_questions, per_question=per_question
        )
        for f, name in enumerate(FIGURES)
    ]


def describe_figure(
    name: str, true: float, estimates: np.ndarray, intervals: np.ndarray, *, n_questions: int, per_question: int
) -> Coverage:
    """Compare a figure's estimates, and intervals (kinds x ends x data sets), with its true value."""
    n = len(estimates)
    spread = float(estimates.std(ddof=1))
    bias = (float(estimates.mean()) - true) / spread
    # The true value is known to the error of the questions that it was drawn from.
    error = math.sqrt(1 / n + n_questions / (N_TRUE_QUESTIONS * N_TRUE_DRAWS))
    stages = [describe_stage(true, estimates, interval, spread=spread, bias=bias) for interval in intervals]
    return Coverage(
        figure=name,
        n_questions=n_questions,
        n_trajectories=per_question,
        n_data_sets=n,
        true_value=true,
        mean_estimate=float(estimates.mean()),
        spread=spread,
        bias=bias,
        bias_error=error,
        centred=stages[0],
        literal=stages[1],
        questions_only=stages[2],
    )


def describe_stage(true: float, estimates: np.ndarray, interval: np.ndarray, *, spread: float, bias: float) -> Stage:
    """Describe the intervals of one kind, a row of lower and one of upper ends."""
    low, high = interval
    held = int(((low <= true) & (true <= high)).sum())
    chance = find_wilson(held, len(estimates))
    width = float((high - low).mean())
    ratio = width / (2 * Z * spread)
    shift = float(((low + high) / 2 - estimates).mean()) / spread
    return Stage(
        coverage=held / len(estimates),
        low=chance[0],
        high=chance[1],
        mean_width=width,
        width_ratio=ratio,
        shift=shift,
        predicted=predict_coverage(ratio, bias + shift),
        predicted_without_shift=predict_coverage(ratio, bias),
    )


def predict_coverage(ratio: float, off: float) -> float:
    """Return the coverage of intervals so much wider than they should be, so many standard deviations off.

    >>> round(predict_coverage(1.0, 0.0), 3), round(predict_coverage(1.0, 1.0), 3)
    (0.95, 0.83)
    """
    phi = NormalDist().cdf
    return phi(Z * ratio - off) - phi(-Z * ratio - off)


def find_wilson(held: int, n: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share that was seen `held` times out of n."""
    share = held / n
    middle = share + Z * Z / (2 * n)
    half = Z * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return (middle - half) / (1 + Z * Z / n), (middle + half) / (1 + Z * Z / n)


def main() -> None:
    """Run the simulation."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--questions", type=int, default=60, help="questions of a data set")
    parser.add_argument("--trajectories", type=int, default=8, help="trajectories of a question")
    parser.add_argument("--data-sets", type=int, default=1000)
    parser.add_argument("--replicates", type=int, default=400, help="replicates of a data set")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text")
    options = parser.parse_args()
    rows = simulate(
        n_questions=options.questions,
        per_question=options.trajectories,
        n_data_sets=options.data_sets,
        n_replicates=options.replicates,
        seed=options.seed,
    )
    if options.format == "json":
        print(json.dumps([asdict(row) for row in rows]))  # noqa: T201
    elif options.format == "markdown":
        print(write_table(rows))  # noqa: T201
    else:
        print("\n".join(map(write_row, rows)))  # noqa: T201


def write_row(row: Coverage) -> str:
    """Return a figure's lines of text."""
    lines = [
        f"{row.figure}: true {row.true_value:.4f}, mean estimate {row.mean_estimate:.4f}, sampling error "
        f"{row.spread:.4f}, bias {row.bias:+.2f} +- {row.bias_error:.2f} of it"
    ]
    kinds = (("centred", row.centred), ("literal", row.literal), ("literal, questions only", row.questions_only))
    for name, stage in kinds:
        lines.append(
            f"  {name}: {100 * stage.coverage:.1f} % of {row.n_data_sets} intervals hold it "
            f"({100 * stage.low:.1f} to {100 * stage.high:.1f} %); {stage.width_ratio:.2f} times as wide as they "
            f"should be, {stage.shift:+.2f} off their estimates, which predicts {100 * stage.predicted:.1f} % "
            f"(without the shift {100 * stage.predicted_without_shift:.1f} %)"
        )
    return "\n".join(lines)


def write_table(rows: list[Coverage]) -> str:
    """Return a Markdown table."""
    lines = [
        "| figure | truth | bias | width | centred: shift, hold | predicted | literal: shift, hold | questions only |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        shown, literal, only = row.centred, row.literal, row.questions_only
        lines.append(
            f"| {row.figure} | {row.true_value:.4f} | {row.bias:+.2f} | {shown.width_ratio:.2f} | "
            f"{shown.shift:+.2f}, {100 * shown.coverage:.1f} % ({100 * shown.low:.1f} to {100 * shown.high:.1f}) | "
            f"{100 * shown.predicted:.1f} % | {literal.shift:+.2f}, {100 * literal.coverage:.1f} % | "
            f"{only.width_ratio:.2f}, {only.shift:+.2f}, {100 * only.coverage:.1f} % |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
