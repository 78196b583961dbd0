"""Finding the decision unit that a row of an action file names, for whole batches at once."""

from __future__ import annotations

import numpy as np

from app.evaluator.measurements import ALL_SPLITS, Cell, IntArray, Measurements
from app.evaluator.strategies import Strategy, n_units

UNKNOWN = -1
OTHER_SPLIT = -2


class UnitIndex:
    """The decision units of one split, numbered through: cell after cell, in each cell's order.

    Questions are found over the whole snapshot, so that one of another split is told from an unknown one.

    Attributes
    ----------
    cells : the cells of the split, in the measurements' order.
    starts : int64, len(cells) + 1; the units of cell c are ``starts[c]:starts[c + 1]``.
    models, benchmarks, questions : number of each name of the snapshot.
    """

    def __init__(self, measurements: Measurements, *, split: str, strategy: Strategy) -> None:
        self.strategy = strategy
        self.split = split
        self.per_question = measurements.trajectories_per_question
        self.cells = measurements.select(split).cells
        self.starts = np.cumsum([0] + [n_units(cell, strategy) for cell in self.cells]).astype(np.int64)
        self.models = {name: idx for idx, name in enumerate(measurements.models)}
        self.benchmarks = {name: idx for idx, name in enumerate(measurements.benchmarks)}
        whole = measurements.cells
        names = sorted({question for cell in whole for question in cell.question_ids})
        self.questions = {name: idx for idx, name in enumerate(names)}
        self._number_cells(whole)
        self._number_questions(whole)

    @property
    def n_units(self) -> int:
        """Number of decision units of the split."""
        return int(self.starts[-1])

    def cell_numbers(self, model_idx: IntArray, benchmark_idx: IntArray) -> IntArray:
        """Return each row's cell of the whole snapshot, -1 where a name is unknown or there is no such cell."""
        return self._cell_of[model_idx, benchmark_idx]

    def question_numbers(self, cell_idx: IntArray, benchmark_idx: IntArray, question_idx: IntArray) -> IntArray:
        """Return each row's question as its number in the split's cell, `UNKNOWN` or `OTHER_SPLIT`.

        Where the model is unknown the benchmark's questions answer; where that is unknown too, the number is 0.
        """
        group = np.where(cell_idx >= 0, self._group_of_cell[cell_idx], self._group_of_benchmark[benchmark_idx])
        return self._question_of[group, question_idx].astype(np.int64)

    def unit_numbers(self, cell_idx: IntArray, question: IntArray, trajectory: IntArray) -> IntArray:
        """Return each row's unit; the rows must have a cell, a question of the split and a trajectory in range."""
        in_cell = question * self.per_question + trajectory if self.strategy.unit_is_trajectory else question
        return self._start_of_cell[cell_idx] + in_cell

    def last_positions(self) -> IntArray:
        """Return the last position n of every unit (early exit only)."""
        return np.concatenate([cell.n_steps for cell in self.cells])

    def name_unit(self, unit: int) -> str:
        """Return a unit as ``model / benchmark / question_id[ / trajectory]``."""
        cell = self.cells[self._cell_number(unit)]
        return f"{cell.model} / {cell.benchmark} / {self.name_in_cell(unit)}"

    def name_in_cell(self, unit: int) -> str:
        """Return a unit without its model and benchmark."""
        number = self._cell_number(unit)
        names, in_cell = self.cells[number].question_ids, unit - int(self.starts[number])
        if not self.strategy.unit_is_trajectory:
            return names[in_cell]
        question, trajectory = divmod(in_cell, self.per_question)
        return f"{names[question]} / {trajectory}"

    def list_questions(self, benchmark: str) -> list[str]:
        """Return the questions of a benchmark in the split."""
        return sorted(
            {question for cell in self.cells if cell.benchmark == benchmark for question in cell.question_ids}
        )

    def find_benchmarks(self, question: str) -> list[str]:
        """Return the benchmarks of the snapshot that have a question of this name."""
        question_idx = self.questions.get(question)
        if question_idx is None:
            return []
        groups = self._group_of_benchmark[:-1]
        return [b for b, idx in self.benchmarks.items() if self._question_of[groups[idx], question_idx] != UNKNOWN]

    def _cell_number(self, unit: int) -> int:
        return int(np.searchsorted(self.starts, unit, side="right")) - 1

    def _number_cells(self, whole: tuple[Cell, ...]) -> None:
        # The last row and column stand for an unknown name, so that index -1 finds them.
        self._cell_of = np.full((len(self.models) + 1, len(self.benchmarks) + 1), -1, dtype=np.int64)
        self._start_of_cell = np.full(len(whole) + 1, -1, dtype=np.int64)
        start_of = {(c.model, c.benchmark): int(s) for c, s in zip(self.cells, self.starts[:-1], strict=True)}
        for idx, cell in enumerate(whole):
            self._cell_of[self.models[cell.model], self.benchmarks[cell.benchmark]] = idx
            self._start_of_cell[idx] = start_of.get((cell.model, cell.benchmark), -1)

    def _number_questions(self, whole: tuple[Cell, ...]) -> None:
        """Number the questions once per list of questions: the cells of a benchmark share one as a rule."""
        groups: dict[tuple[str, tuple[str, ...], tuple[str, ...]], int] = {}
        self._group_of_cell = np.zeros(len(whole) + 1, dtype=np.int64)
        self._group_of_benchmark = np.full(len(self.benchmarks) + 1, -1, dtype=np.int64)
        for idx, cell in enumerate(whole):
            group = groups.setdefault((cell.benchmark, cell.question_ids, cell.question_splits), len(groups))
            self._group_of_cell[idx] = group
            if self._group_of_benchmark[self.benchmarks[cell.benchmark]] < 0:
                self._group_of_benchmark[self.benchmarks[cell.benchmark]] = group
        self._question_of = np.full((len(groups) + 1, len(self.questions) + 1), UNKNOWN, dtype=np.int32)
        for (_, names, splits), group in groups.items():
            number = 0
            for name, split in zip(names, splits, strict=True):
                chosen = self.split in (ALL_SPLITS, split)
                self._question_of[group, self.questions[name]] = number if chosen else OTHER_SPLIT
                number += chosen
        # The last group answers for an unknown benchmark, of which nothing can be said.
        self._question_of[-1] = 0
