"""Simulates how often the bootstrap's 95 % intervals cover the true value, and tests what would explain a wrong rate.

Run ``python benchmarks/coverage.py`` (``--format json`` for one JSON document). Data sets come from a model whose true
values are known, here to within the error of some very large draws: a question has a difficulty, a trajectory a number
of steps, lengths and a curve of success probabilities around it, and probes are binomial. Each data set has one cell;
its intervals come from the same draws and solvers as a snapshot's. The true value of a frontier's figure is that of
infinitely many questions with the same number of trajectories and probes each.

An interval misses for three reasons, each told in sampling standard deviations of the estimate: the estimate is off
(`bias`), the interval lies to one side of its estimate (`shift`), or it is too wide or narrow (`width_ratio`). Were the
estimate normal and the interval always alike, these three would make the coverage Phi(1.96 r - b) - Phi(-1.96 r - b),
with r the ratio and b the bias, or bias and shift; it is printed beside what was counted. Intervals from the same data
with questions drawn again, but not the trajectories within them, show what this second stage does to them.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import asdict, dataclass
from statistics import NormalDist

import numpy as np

from app.evaluator.draws import CellCounts, count_draws
from app.evaluator.intervals import PERCENTILES
from app.evaluator.measurements import Cell
from app.evaluator.overthinking import trajectory_overthinking
from app.evaluator.replicate_frontiers import PreparedCell, prepare_cell, solve_drawn
from app.evaluator.strategies import Strategy

PROBES = 8
N_TRUE_QUESTIONS = 6000
N_TRUE_DRAWS = 10
Z = NormalDist().inv_cdf(0.975)
FIGURES = (
    "overthinking_ratio",
    "accuracy_degradation",
    "zero_step_accuracy",
    "endpoint_accuracy",
    *(f"area {strategy}" for strategy in Strategy),
)


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
    two_stage : intervals as they are: questions drawn again, and trajectories within them.
    questions_only : intervals with all trajectories of a drawn question kept.
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
    two_stage: Stage
    questions_only: Stage


def draw_data(rng: np.random.Generator, n_questions: int, *, per_question: int) -> Cell:
    """Draw one cell: R trajectories of every question, with curves that rise and may fall again."""
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
    return Cell(
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


def find_figures(prepared: PreparedCell, drawn: CellCounts) -> np.ndarray:
    """Return the figures of what was drawn: rows of draws, columns as in `FIGURES`."""
    cell = prepared.cell
    weights = drawn.weights.astype(np.int64)
    plain = trajectory_overthinking(cell)
    sums = weights @ np.stack([plain.degradation, cell.zero_correct, cell.endpoint_correct], axis=1).astype(np.int64)
    rewards = solve_drawn(prepared, drawn, weights @ cell.thinking_tokens.astype(np.int64))
    areas = np.trapezoid(rewards, dx=0.01, axis=2)
    ratio = weights @ plain.ratio / cell.n_trajectories
    return np.column_stack([ratio, sums / cell.total_probes, areas / cell.total_probes])


def find_true_values(rng: np.random.Generator, *, per_question: int) -> np.ndarray:
    """Return the figures of very many questions, the mean of some large draws."""
    draws = []
    for _ in range(N_TRUE_DRAWS):
        cell = draw_data(rng, N_TRUE_QUESTIONS, per_question=per_question)
        draws.append(find_figures(prepare_cell(cell), take_once(cell))[0])
    return np.mean(draws, axis=0)


def simulate(*, n_questions: int, per_question: int, n_data_sets: int, n_replicates: int, seed: int) -> list[Coverage]:
    """Draw the data sets, resample each and compare the intervals with the true values."""
    rng = np.random.default_rng(seed)
    true = find_true_values(rng, per_question=per_question)
    estimates = np.empty((n_data_sets, len(FIGURES)))
    intervals = np.empty((2, len(PERCENTILES), *estimates.shape))
    for i in range(n_data_sets):
        cell = draw_data(rng, n_questions, per_question=per_question)
        prepared = prepare_cell(cell)
        estimates[i] = find_figures(prepared, take_once(cell))[0]
        drawn = count_draws(cell, range(n_replicates), seed=i), draw_questions(cell, n_replicates, rng=rng)
        for stage, counts in enumerate(drawn):
            intervals[stage, :, i] = np.percentile(find_figures(prepared, counts), PERCENTILES, axis=0)
    return [
        describe_figure(
            name, true[f], estimates[:, f], intervals[:, :, :, f], n_questions=n_questions, per_question=per_question
        )
        for f, name in enumerate(FIGURES)
    ]


def describe_figure(
    name: str, true: float, estimates: np.ndarray, intervals: np.ndarray, *, n_questions: int, per_question: int
) -> Coverage:
    """Compare a figure's estimates, and intervals (ways of drawing x ends x data sets), with its true value."""
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
        two_stage=stages[0],
        questions_only=stages[1],
    )


def describe_stage(true: float, estimates: np.ndarray, interval: np.ndarray, *, spread: float, bias: float) -> Stage:
    """Describe the intervals of one way of drawing, a row of lower and one of upper ends."""
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
    for name, stage in (("both stages", row.two_stage), ("questions only", row.questions_only)):
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
        "| figure | truth | bias | shift | width | hold it | predicted | width, shift, hold it: questions only |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        both, only = row.two_stage, row.questions_only
        lines.append(
            f"| {row.figure} | {row.true_value:.4f} | {row.bias:+.2f} | {both.shift:+.2f} | {both.width_ratio:.2f} | "
            f"{100 * both.coverage:.1f} % ({100 * both.low:.1f} to {100 * both.high:.1f}) | "
            f"{100 * both.predicted:.1f} % | {only.width_ratio:.2f}, {only.shift:+.2f}, {100 * only.coverage:.1f} % |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
