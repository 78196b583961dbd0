"""Example methods: simple rules on public columns, fitted on the training split, so that a board has something to show.

No rule reads a label outside the training split. Each is a few lines and claims nothing beyond what its name says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.errors import ContentError
from app.evaluator.measurements import Cell, IntArray
from app.evaluator.overthinking import find_reference_positions
from app.evaluator.strategies import ActionTable, CellActions, Strategy, find_positions_at_tokens
from app.files.snapshot import LabelsHiddenError, Snapshot, load_measurements

FloatArray = NDArray[np.float64]

N_SETTINGS = 20
_LEVELS = np.arange(1, N_SETTINGS + 1) / N_SETTINGS
_NO_DIFFICULTY = -1


class NoTrainingQuestionsError(ContentError):
    """A benchmark has no question in the training split, so nothing can be fitted for it."""

    code = "no_training_questions"
    title = "Nothing to fit the examples on"


@dataclass(frozen=True, eq=False)
class PublicCell:
    """What a rule may look at in a cell.

    Attributes
    ----------
    cell : all questions; rules read lengths from it, never labels.
    train : the training questions, labels included.
    difficulty, train_difficulty : int64, one per question of `cell` and `train`; -1 where unknown.
    end_margin : float64, one per position of `cell`; NaN where unknown.
    """

    cell: Cell
    train: Cell
    difficulty: IntArray
    train_difficulty: IntArray
    end_margin: FloatArray


@dataclass(frozen=True, eq=False)
class Decisions:
    """A rule's settings, and per cell its actions, settings x units of all questions."""

    settings: tuple[str, ...]
    actions: tuple[IntArray, ...]


@dataclass(frozen=True)
class Example:
    """An example method.

    Attributes
    ----------
    name, description : as shown on the board.
    reads_labels : whether it needs the labels of the training split.
    needs : the optional column it cannot do without ("difficulty", "end_margin"), or None.
    decide : the rule.
    """

    name: str
    strategy: Strategy
    description: str
    reads_labels: bool
    needs: str | None
    decide: Callable[[Sequence[PublicCell]], Decisions]


def list_examples(snapshot: Snapshot) -> tuple[Example, ...]:
    """Return the examples whose columns the snapshot has."""
    present = {
        name
        for name, table in (("difficulty", snapshot.questions), ("end_margin", snapshot.trajectories))
        if table[name].null_count < table.num_rows
    }
    return tuple(example for example in EXAMPLES if example.needs is None or example.needs in present)


def build_example(name: str, snapshot: Snapshot, *, split: str) -> ActionTable:
    """Return an example's actions on one split, aligned with ``load_measurements(snapshot, split)``.

    Raises
    ------
    UnknownSplitError : no such split, or no question in it.
    NoTrainingQuestionsError, LabelsHiddenError : there is nothing to fit the rule on.
    ValueError : an unknown name, or an example whose column the snapshot lacks.
    """
    example = next((e for e in list_examples(snapshot) if e.name == name), None)
    if example is None:
        raise ValueError(f"no example {name!r} on this snapshot")
    selected = load_measurements(snapshot, split)
    public = _list_public_cells(snapshot)
    if example.reads_labels and not all(p.train.has_labels for p in public):
        raise LabelsHiddenError(f"{name} is fitted on the labels of the training split, which are hidden here")
    decisions = example.decide(public)
    wanted = {(c.model, c.benchmark): set(c.question_ids) for c in selected.cells}
    cells = []
    for part, actions in zip(public, decisions.actions, strict=True):
        cell = part.cell
        kept = np.isin(cell.question_ids, sorted(wanted.get((cell.model, cell.benchmark), ())))
        if kept.any():
            units = np.repeat(kept, actions.shape[1] // cell.n_questions)
            cells.append(CellActions(np.ones(len(actions), dtype=np.bool_), np.ascontiguousarray(actions[:, units])))
    return ActionTable(example.strategy, decisions.settings, tuple(cells))


def _list_public_cells(snapshot: Snapshot) -> list[PublicCell]:
    measurements = load_measurements(snapshot)
    difficulty = snapshot.questions["difficulty"].fill_null(_NO_DIFFICULTY).to_numpy().astype(np.int64)
    benchmarks = np.array(snapshot.questions["benchmark"].to_pylist())
    margins = _flatten_margins(snapshot)
    parts = []
    start = 0
    for cell in measurements.cells:
        end = start + len(cell.retained_tokens)
        in_train = np.flatnonzero(np.array(cell.question_splits) == "train")
        if in_train.size == 0:
            raise NoTrainingQuestionsError(f"the benchmark {cell.benchmark} has no question in the training split")
        of_benchmark = difficulty[benchmarks == cell.benchmark]
        parts.append(
            PublicCell(
                cell=cell,
                train=cell.take_questions(in_train),
                difficulty=of_benchmark,
                train_difficulty=of_benchmark[in_train],
                end_margin=margins[start:end],
            )
        )
        start = end
    return parts


def _flatten_margins(snapshot: Snapshot) -> FloatArray:
    """`end_margin` of all positions in the cells' order; NaN on trajectories without one."""
    column = snapshot.trajectories["end_margin"]
    n_positions = np.array(snapshot.trajectories["retained_tokens"].combine_chunks().value_lengths())
    flat = np.full(int(n_positions.sum()), np.nan)
    has_margin = np.repeat(column.is_valid().to_numpy(), n_positions)
    flat[has_margin] = column.combine_chunks().flatten().to_numpy(zero_copy_only=False)
    return flat


def _summarise_alike(part: PublicCell, values: FloatArray, summarise: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Summarise, for every question, the values of the training questions of the same model, benchmark and difficulty.

    Where no training question has that difficulty, all of the cell's training questions stand in. `values` has a row
    per training question; `summarise` gives one number per setting. Returns settings x questions.
    """
    columns = np.empty((N_SETTINGS, part.cell.n_questions))
    for level in np.unique(part.difficulty):
        alike = values[part.train_difficulty == level]
        columns[:, part.difficulty == level] = summarise(alike if alike.size else values)[:, None]
    return columns


def _per_question(part: PublicCell, values: NDArray[np.int64]) -> FloatArray:
    """A value per training trajectory as a row per training question."""
    return values.reshape(part.train.n_questions, -1).astype(np.float64)


def _average_alike(part: PublicCell, values: NDArray[np.int64]) -> FloatArray:
    """The mean of a value per training trajectory over the training questions alike, for every question."""
    columns = _summarise_alike(part, _per_question(part, values), lambda alike: np.full(N_SETTINGS, alike.mean()))
    means: FloatArray = columns[0]
    return means


def _label_levels(scale: float = 1.0) -> tuple[str, ...]:
    return tuple(f"{level * scale:.4g}" for level in _LEVELS)


def _route_by_difficulty(parts: Sequence[PublicCell]) -> Decisions:
    known = np.unique(np.concatenate([p.train_difficulty for p in parts]))
    thresholds = np.append(known, known[-1] + 1)[-N_SETTINGS:]
    actions = tuple((p.difficulty >= thresholds[:, None]).astype(np.int64) for p in parts)
    return Decisions(tuple(str(t) for t in thresholds), actions)


def _route_by_training_gain(parts: Sequence[PublicCell]) -> Decisions:
    actions = []
    for part in parts:
        gain = _average_alike(part, part.train.endpoint_correct - part.train.zero_correct)
        worth = gain / np.maximum(_average_alike(part, part.train.thinking_tokens), 1.0)
        rank = np.empty(len(worth), dtype=np.int64)
        rank[np.argsort(-worth, kind="stable")] = np.arange(len(worth))
        actions.append((rank < np.rint(_LEVELS * len(worth))[:, None]).astype(np.int64))
    return Decisions(_label_levels(), tuple(actions))


def _list_length_caps(part: PublicCell) -> IntArray:
    length = _per_question(part, part.train.thinking_tokens)
    return np.rint(_summarise_alike(part, length, lambda alike: 2.0 * _LEVELS * alike.mean())).astype(np.int64)


def _cap_by_training_length(parts: Sequence[PublicCell]) -> Decisions:
    return Decisions(_label_levels(2.0), tuple(_list_length_caps(p) for p in parts))


def _cap_at_training_best(parts: Sequence[PublicCell]) -> Decisions:
    actions = []
    for part in parts:
        best_idx = part.train.first_idx + find_reference_positions(part.train)
        best_tokens = _per_question(part, part.train.retained_tokens[best_idx].astype(np.int64))
        caps = _summarise_alike(part, best_tokens, lambda alike: np.quantile(alike, _LEVELS))
        actions.append(np.rint(caps).astype(np.int64))
    return Decisions(_label_levels(), tuple(actions))


def _stop_at_token_count(parts: Sequence[PublicCell]) -> Decisions:
    actions = []
    for part in parts:
        counts = np.repeat(_list_length_caps(part), part.cell.trajectories_per_question, axis=1)
        actions.append(np.stack([find_positions_at_tokens(part.cell, tokens) for tokens in counts]))
    return Decisions(_label_levels(2.0), tuple(actions))


def _stop_at_step_count(parts: Sequence[PublicCell]) -> Decisions:
    actions = []
    for part in parts:
        best = _per_question(part, find_reference_positions(part.train))
        counts = _summarise_alike(part, best, lambda alike: 2.0 * _LEVELS * alike.mean())
        steps = np.repeat(np.rint(counts).astype(np.int64), part.cell.trajectories_per_question, axis=1)
        actions.append(np.minimum(steps, part.cell.n_steps))
    return Decisions(_label_levels(2.0), tuple(actions))


def _stop_at_end_margin(parts: Sequence[PublicCell]) -> Decisions:
    in_train = [np.repeat(np.array(p.cell.question_splits) == "train", p.cell.trajectories_per_question) for p in parts]
    seen = [p.end_margin[mask[p.cell.trajectory_of_position]] for p, mask in zip(parts, in_train, strict=True)]
    thresholds = np.nanquantile(np.concatenate(seen), 1.0 - _LEVELS)
    actions = []
    for part in parts:
        cell = part.cell
        position = np.arange(len(part.end_margin)) - cell.first_idx[cell.trajectory_of_position]
        past_end = int(cell.n_steps.max()) + 1
        stops = [np.where(part.end_margin <= threshold, position, past_end) for threshold in thresholds]
        first = np.stack([np.minimum.reduceat(stop, cell.first_idx) for stop in stops])
        actions.append(np.minimum(first, cell.n_steps))
    return Decisions(_label_levels(), tuple(actions))


EXAMPLES = (
    Example(
        name="example-route-by-difficulty",
        strategy=Strategy.DYNAMIC_ROUTING,
        description="Thinks on questions whose difficulty is at least the setting.",
        reads_labels=False,
        needs="difficulty",
        decide=_route_by_difficulty,
    ),
    Example(
        name="example-route-by-training-gain",
        strategy=Strategy.DYNAMIC_ROUTING,
        description="Thinks on the setting's share of the questions of a model and benchmark: those whose difficulty "
        "gained most per token from thinking on training questions; of equal ones the first.",
        reads_labels=True,
        needs=None,
        decide=_route_by_training_gain,
    ),
    Example(
        name="example-cap-by-training-length",
        strategy=Strategy.FIXED_BUDGET,
        description="Caps thinking at the setting times the mean length of training questions of the same model, "
        "benchmark and difficulty.",
        reads_labels=False,
        needs=None,
        decide=_cap_by_training_length,
    ),
    Example(
        name="example-cap-at-training-best",
        strategy=Strategy.FIXED_BUDGET,
        description="Caps thinking where the setting's share of trajectories had found their best position on training "
        "questions of the same model, benchmark and difficulty.",
        reads_labels=True,
        needs=None,
        decide=_cap_at_training_best,
    ),
    Example(
        name="example-stop-at-token-count",
        strategy=Strategy.DYNAMIC_EARLY_EXIT,
        description="Stops at the setting times the mean length of training questions of the same model, benchmark and "
        "difficulty.",
        reads_labels=False,
        needs=None,
        decide=_stop_at_token_count,
    ),
    Example(
        name="example-stop-at-step-count",
        strategy=Strategy.DYNAMIC_EARLY_EXIT,
        description="Stops at the setting times the mean best position of training questions of the same model, "
        "benchmark and difficulty.",
        reads_labels=True,
        needs=None,
        decide=_stop_at_step_count,
    ),
    Example(
        name="example-stop-at-end-margin",
        strategy=Strategy.DYNAMIC_EARLY_EXIT,
        description="Stops at the first position whose margin against ending is at most a threshold; the setting is "
        "the share of training positions above it.",
        reads_labels=False,
        needs="end_margin",
        decide=_stop_at_end_margin,
    ),
)
"""The example methods, by strategy; the last one runs only where the snapshot has end margins."""
