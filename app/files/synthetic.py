"""Synthetic snapshots: seeded measurements drawn to match published tables, for demonstrations and tests."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from app.errors import ContentError
from app.evaluator.measurements import SPLITS
from app.files.atomic import OutputExistsError
from app.files.manifest import SNAPSHOT_FORMAT
from app.files.snapshot import Progress, Snapshot, build_snapshot, write_snapshot
from app.files.synthetic_model import (
    PROBES_PER_POSITION,
    TARGET_STEP_TOKENS,
    THINKING_TOKEN_LIMIT,
    TRAJECTORIES_PER_QUESTION,
    FloatArray,
    draw_end_margin,
    draw_noise,
    draw_normals,
    draw_spread_normals,
    draw_steps,
    draw_traits,
    find_thinking_tokens,
    find_zero_logit,
    open_stream,
    trace_curves,
)
from app.files.synthetic_parameters import (
    CellParameters,
    SyntheticParameters,
    load_paper_figures,
    read_parameters,
)

DEFAULT_SEED = 20260721
LARGEST_SCALE = 10.0
LARGEST_SEED = 2**32 - 1
_SPLIT_SHARES = (0.4, 0.2, 0.4)
_FEWEST_QUESTIONS = 5
# Correlation of the public difficulty with the one that measurements are drawn with.
_DIFFICULTY_SHARE = 0.8
_DIFFICULTY_BOUNDS = ndtri([0.2, 0.4, 0.6, 0.8])
_TITLE = "Synthetic measurements at the scale of OTBench"
_DESCRIPTION = (
    "Synthetic: drawn by a seeded program, not measured. No model thought or answered anything here, and the questions "
    "do not exist. Means by model and benchmark are drawn to match the published tables of the paper named as the "
    "source; the names of models and benchmarks only say whose figures were matched. Use it to try the software, never "
    "to say anything about a model, a benchmark or how good a method is."
)


class SynthesisError(ContentError):
    """A scale or a seed with which nothing can be drawn."""

    code = "bad_synthesis"
    title = "Nothing can be drawn with this scale and seed"


@dataclass(frozen=True, eq=False)
class SyntheticQuestions:
    """The questions of one benchmark.

    Attributes
    ----------
    benchmark : its name.
    question_ids : zero-padded, so that their order by text is that by number.
    difficulty : float64, standard normal; what measurements are drawn with.
    public_difficulty : int64, 1 (easy) to 5: fifths of a noisy view of it.
    splits : the split of each.
    """

    benchmark: str
    question_ids: tuple[str, ...]
    difficulty: FloatArray
    public_difficulty: NDArray[np.int64]
    splits: tuple[str, ...]


def synthesize(
    path: Path, *, scale: float = 1.0, seed: int = DEFAULT_SEED, progress: Progress | None = None
) -> Snapshot:
    """Draw a synthetic snapshot and write it as a new folder, or as a new zip where the name ends in `.zip`.

    Parameters
    ----------
    path : must not exist.
    scale, seed : as for `draw_snapshot`.
    progress : called as the work goes on with what is done, how many of how many cells are drawn.

    Raises
    ------
    OutputExistsError : something has that name already.
    SynthesisError : as for `draw_snapshot`.
    """
    path = Path(path)
    # The writer would refuse too, but only after the drawing.
    if path.exists():
        raise OutputExistsError(f"{path} exists already")
    snapshot = draw_snapshot(scale=scale, seed=seed, progress=progress)
    write_snapshot(snapshot, path)
    return snapshot


def draw_snapshot(*, scale: float = 1.0, seed: int = DEFAULT_SEED, progress: Progress | None = None) -> Snapshot:
    """Draw a synthetic snapshot of six models and four benchmarks, matched to published tables.

    Parameters
    ----------
    scale : multiplies the number of questions of each benchmark (90, 500, 198 and 175 at 1), with at least five in
        each; trajectories (16), probes (16) and lengths stay. In (0, 10].
    seed : an integer from 0 to 2^32 - 1. The same scale and seed give the same snapshot, to the byte.
    progress : called as the work goes on with what is done, how many of how many cells are drawn.

    Returns
    -------
    The snapshot, of kind "synthetic", whose description says so plainly.

    Raises
    ------
    SynthesisError : a scale or seed outside its range.

    Notes
    -----
    Figures match the tables closely at scale 1 and the default seed, to which the parameters were fitted; other seeds
    and smaller scales differ by chance. Random numbers come as uniform bits of PCG64 in streams keyed by seed and name.
    At scale 1: 2.3 million positions, about three seconds.
    """
    if not (math.isfinite(scale) and 0 < scale <= LARGEST_SCALE):
        raise SynthesisError(f"the scale is {scale}; it must be above 0 and at most {LARGEST_SCALE:g}")
    if not 0 <= seed <= LARGEST_SEED:
        raise SynthesisError(f"the seed is {seed}; it must be 0 to {LARGEST_SEED}")
    parameters = read_parameters()
    counts: dict[str, int] = load_paper_figures()["protocol"]["benchmarks"]
    questions = {
        benchmark: draw_questions(seed, benchmark, count_questions(count, scale)) for benchmark, count in counts.items()
    }
    tables = []
    for done, cell in enumerate(parameters.cells):
        if progress:
            progress(f"drawing {cell.model} on {cell.benchmark}", done, len(parameters.cells))
        tables.append(_draw_cell(seed, cell, questions=questions[cell.benchmark], parameters=parameters))
    if progress:
        progress("verifying", len(parameters.cells), len(parameters.cells))
    return build_snapshot(
        _build_manifest(parameters, scale=float(scale), seed=seed),
        pa.concat_tables([_build_question_table(of_benchmark) for of_benchmark in questions.values()]),
        pa.concat_tables(tables),
    )


def count_questions(full_count: int, scale: float) -> int:
    """Return how many questions a benchmark has at a scale: rounded, at least five, so that every split has one.

    Examples
    --------
    >>> count_questions(90, 1.0), count_questions(90, 0.1), count_questions(90, 0.001)
    (90, 9, 5)
    """
    return max(_FEWEST_QUESTIONS, round(full_count * scale))


def draw_questions(seed: int, benchmark: str, n: int) -> SyntheticQuestions:
    """Draw a benchmark's questions: difficulties, their noisy public view, splits."""
    difficulty = draw_spread_normals(open_stream(seed, benchmark, "difficulty"), n)
    noise = draw_normals(open_stream(seed, benchmark, "public difficulty"), n)
    seen = _DIFFICULTY_SHARE * difficulty + math.sqrt(1 - _DIFFICULTY_SHARE**2) * noise
    slug = benchmark.lower()
    width = max(3, len(str(n)))
    return SyntheticQuestions(
        benchmark=benchmark,
        question_ids=tuple(f"{slug}-{number:0{width}d}" for number in range(1, n + 1)),
        difficulty=difficulty,
        public_difficulty=np.searchsorted(_DIFFICULTY_BOUNDS, seen) + 1,
        splits=_draw_splits(open_stream(seed, benchmark, "split"), n),
    )


def _draw_splits(rng: np.random.Generator, n: int) -> tuple[str, ...]:
    """Deal n questions out as 40 % train, 20 % validation, 40 % test; what rounding leaves goes to test."""
    n_train, n_validation = (round(share * n) for share in _SPLIT_SHARES[:2])
    dealt = np.repeat(SPLITS, [n_train, n_validation, n - n_train - n_validation])
    return tuple(dealt[rng.permutation(n)].tolist())


def _build_question_table(questions: SyntheticQuestions) -> pa.Table:
    return pa.table(
        {
            "benchmark": pa.array([questions.benchmark] * len(questions.question_ids)),
            "question_id": pa.array(questions.question_ids),
            "split": pa.array(questions.splits),
            "difficulty": pa.array(questions.public_difficulty, pa.int32()),
        }
    )


def _draw_cell(
    seed: int, cell: CellParameters, *, questions: SyntheticQuestions, parameters: SyntheticParameters
) -> pa.Table:
    names = (cell.model, cell.benchmark)
    shape = parameters.shape
    traits = draw_traits(seed, *names, difficulty=questions.difficulty, shape=shape)
    tokens = find_thinking_tokens(
        traits, middle_tokens=cell.middle_tokens, spread=parameters.length_spread[cell.benchmark]
    )
    steps = draw_steps(tokens, parameters.long_step_share[cell.model], rng=open_stream(seed, *names, "steps"))
    noise = draw_noise(seed, *names, steps=steps, shape=shape)
    curves = trace_curves(traits, steps, noise, cell=cell, shape=shape)
    margin = draw_end_margin(steps, curves, rng=open_stream(seed, *names, "end margin"))
    full = expit(curves.logit[steps.last_idx] + cell.full_shift)
    direct = expit(find_zero_logit(traits, cell) + cell.direct_shift)
    n_questions, n = len(questions.question_ids), len(tokens)
    question_idx = np.repeat(np.arange(n_questions), TRAJECTORIES_PER_QUESTION)
    offsets = pa.array(steps.offsets, pa.int32())

    def lists(values: NDArray[Any], value_type: pa.DataType) -> pa.Array:
        return pa.ListArray.from_arrays(offsets, pa.array(values, value_type))

    return pa.table(
        {
            "model": pa.array([cell.model] * n),
            "benchmark": pa.array([cell.benchmark] * n),
            "question_id": pa.array(questions.question_ids).take(pa.array(question_idx)),
            "trajectory": pa.array(np.tile(np.arange(TRAJECTORIES_PER_QUESTION), n_questions), pa.int32()),
            "thinking_tokens": pa.array(tokens, pa.int32()),
            "original_correct": pa.array(traits.full_quantile < full),
            "retained_tokens": lists(steps.retained_tokens, pa.int32()),
            "correct_probes": lists(curves.correct_probes, pa.int32()),
            "end_margin": lists(margin, pa.float32()),
            "direct_correct": pa.array(traits.direct_quantile < direct),
        }
    )


def _build_manifest(parameters: SyntheticParameters, *, scale: float, seed: int) -> dict[str, Any]:
    models = list(dict.fromkeys(cell.model for cell in parameters.cells))
    benchmarks = list(dict.fromkeys(cell.benchmark for cell in parameters.cells))
    return {
        "format": SNAPSHOT_FORMAT,
        "name": _build_name(scale=scale, seed=seed),
        "title": _TITLE if scale == 1 else f"{_TITLE}, {scale:g} of the questions",
        "kind": "synthetic",
        "description": _DESCRIPTION,
        "license": "Apache-2.0",
        "source": f"Drawn, not measured; figures matched: {load_paper_figures()['source']}",
        "probes_per_position": PROBES_PER_POSITION,
        "trajectories_per_question": TRAJECTORIES_PER_QUESTION,
        "target_step_tokens": TARGET_STEP_TOKENS,
        "thinking_token_limit": THINKING_TOKEN_LIMIT,
        "hidden_splits": [],
        "models": [{"name": model} for model in models],
        "benchmarks": [{"name": name, "title": f"{name} (synthetic questions)"} for name in benchmarks],
        "generator": {"name": "otboard synthesize", "version": parameters.version, "seed": seed, "scale": scale},
    }


def _build_name(*, scale: float, seed: int) -> str:
    """Name a snapshot so that two different ones do not share a name.

    Examples
    --------
    >>> _build_name(scale=1.0, seed=DEFAULT_SEED), _build_name(scale=0.1, seed=7)
    ('synthetic-otbench', 'synthetic-otbench-scale-0-1-seed-7')
    """
    of_scale = "" if scale == 1 else f"-scale-{scale!r}".replace(".", "-").replace("+", "")
    of_seed = "" if seed == DEFAULT_SEED else f"-seed-{seed}"
    return f"synthetic-otbench{of_scale}{of_seed}"
