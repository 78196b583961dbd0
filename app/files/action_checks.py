"""Checking the rows of an action file against the decision units of a split."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from app.evaluator.measurements import IntArray
from app.evaluator.strategies import Strategy
from app.files.action_columns import (
    Integers,
    RowBatch,
    Texts,
    explain_not_integer,
    read_integers,
    read_texts,
    show_type,
    value_at,
)
from app.files.action_layout import KEY_COLUMNS
from app.files.action_problems import ActionProblems, NameSuggester, cut_text, show_value
from app.files.action_units import OTHER_SPLIT, UNKNOWN, UnitIndex

DEFAULT_SETTING = "default"
MAX_LABEL_CHARACTERS = 64
# Labels past the allowed number are counted, but not without end.
_MAX_SURPLUS_SETTINGS = 10_000
_BAD_LABEL, _SURPLUS = -1, -2


class SettingLabels:
    """The setting labels of a file in the order in which it names them."""

    def __init__(self, max_settings: int, problems: ActionProblems) -> None:
        self._max_settings = max_settings
        self._problems = problems
        self._number_of: dict[str, int] = {}
        self._surplus: dict[str, int] = {}

    @property
    def labels(self) -> list[str]:
        """The labels that are allowed, by number."""
        return list(self._number_of)

    def number_rows(self, batch: RowBatch) -> IntArray:
        """Return each row's setting number, negative where the label is bad or one too many."""
        if "setting" not in batch.columns:
            self._number_of.setdefault(DEFAULT_SETTING, 0)
            return np.zeros(len(batch.rows), dtype=np.int64)
        texts = read_texts(batch.columns["setting"])
        faults = {code: fault for code, label in enumerate(texts.values) if (fault := explain_label(label))}
        # Numbers are given in the order of the rows, which is not that of a dictionary.
        codes, first_idx = np.unique(texts.codes, return_index=True)
        numbers = np.full(len(texts.values) + 1, _BAD_LABEL, dtype=np.int64)
        for code, idx in sorted(zip(codes.tolist(), first_idx.tolist(), strict=True), key=lambda pair: pair[1]):
            if code >= 0 and code not in faults:
                numbers[code] = self._number_label(texts.values[code], row=int(batch.rows[idx]))
        result = numbers[texts.codes]
        self._problems.add_rows(
            "bad_setting_label",
            np.flatnonzero(result == _BAD_LABEL),
            rows=batch.rows,
            message=lambda idx: f"setting {faults.get(int(texts.codes[idx]), texts.absent)}",
            column="setting",
            alike=texts.codes,
        )
        return result

    def report_surplus(self) -> None:
        """Record that the file has more settings than allowed, if it has."""
        if self._surplus:
            n_settings = len(self._number_of) + len(self._surplus)
            at_least = "at least " if len(self._surplus) > _MAX_SURPLUS_SETTINGS else ""
            message = f"the file has {at_least}{n_settings:,} settings; at most {self._max_settings} are allowed"
            row = next(iter(self._surplus.values()))
            self._problems.add("too_many_settings", message, row=row, column="setting")

    def _number_label(self, label: str, *, row: int) -> int:
        number = self._number_of.get(label)
        if number is not None:
            return number
        if len(self._number_of) < self._max_settings:
            return self._number_of.setdefault(label, len(self._number_of))
        self._surplus.setdefault(label, row)
        if len(self._surplus) > _MAX_SURPLUS_SETTINGS:
            self._problems.end_reading("too many settings")
        return _SURPLUS


def explain_label(label: str) -> str | None:
    """Say what is wrong with a setting label, or return None.

    Examples
    --------
    >>> explain_label("0.5"), explain_label(""), explain_label(" a")
    (None, 'is empty', "' a' begins or ends with a space")
    """
    if label == "":
        return "is empty"
    if len(label) > MAX_LABEL_CHARACTERS:
        return f"{show_value(label)} has {len(label)} characters; at most {MAX_LABEL_CHARACTERS} are allowed"
    if label != label.strip():
        return f"{show_value(label)} begins or ends with a space"
    if not label.isprintable() or "\ufffd" in label:
        return f"{show_value(label)} has a character that cannot be shown"
    return None


@dataclass(frozen=True, eq=False)
class CheckedRows:
    """A batch after its checks.

    Attributes
    ----------
    rows : int64, the row numbers of the file.
    unit : int64, the unit of each row, -1 where it could not be found.
    value : int64, the action or stop tokens; 0 where that is wrong.
    """

    rows: IntArray
    unit: IntArray
    value: IntArray


class RowChecker:
    """Checks batches of rows: names, trajectories and actions."""

    def __init__(self, index: UnitIndex, problems: ActionProblems) -> None:
        self._index = index
        self._problems = problems
        self._last_positions = index.last_positions() if index.strategy.unit_is_trajectory else None
        self._nearest_model = NameSuggester(index.models)
        self._nearest_benchmark = NameSuggester(index.benchmarks)
        self._nearest_question: dict[str, NameSuggester] = {}

    def check(self, batch: RowBatch) -> CheckedRows:
        """Record every fault of the rows taken one by one, and return what they mean."""
        view = _BatchView(batch, self._problems)
        unit = self._find_units(view)
        return CheckedRows(batch.rows, unit, self._read_values(view, unit))

    def _find_units(self, view: _BatchView) -> IntArray:
        model_idx = self._look_up(view, "model", self._index.models, self._nearest_model)
        benchmark_idx = self._look_up(view, "benchmark", self._index.benchmarks, self._nearest_benchmark)
        cell_idx = self._index.cell_numbers(model_idx, benchmark_idx)
        view.report(
            "unknown_benchmark",
            (cell_idx < 0) & (model_idx >= 0) & (benchmark_idx >= 0),
            lambda i: f"the snapshot has no measurements of {view.show('model', i)} on {view.show('benchmark', i)}",
            column="benchmark",
            alike=model_idx * len(self._index.benchmarks) + benchmark_idx,
        )
        question = self._find_questions(view, cell_idx, benchmark_idx)
        trajectory = self._read_trajectories(view)
        found = (cell_idx >= 0) & (question >= 0) & (trajectory >= 0)
        unit = np.full(len(found), -1, dtype=np.int64)
        unit[found] = self._index.unit_numbers(cell_idx[found], question[found], trajectory[found])
        return unit

    def _look_up(self, view: _BatchView, column: str, known: dict[str, int], nearest: NameSuggester) -> IntArray:
        texts = view.texts(column)
        if texts is None:
            return np.full(view.n_rows, -1, dtype=np.int64)
        numbers = texts.look_up(known)

        def explain(idx: int) -> str:
            name = texts.text(idx)
            if not name:
                return f"{column} {texts.absent if name is None else 'is empty'}"
            return f"the snapshot has no {column} {show_value(name)}{nearest(name)}"

        view.report(f"unknown_{column}", numbers < 0, explain, column=column, alike=texts.codes)
        return numbers

    def _find_questions(self, view: _BatchView, cell_idx: IntArray, benchmark_idx: IntArray) -> IntArray:
        texts = view.texts("question_id")
        if texts is None:
            return np.full(view.n_rows, -1, dtype=np.int64)
        question_idx = texts.look_up(self._index.questions)
        question = self._index.question_numbers(cell_idx, benchmark_idx, question_idx)
        alike = texts.codes * (len(self._index.benchmarks) + 1) + benchmark_idx
        view.report(
            "unknown_question",
            question == UNKNOWN,
            lambda i: self._explain_question(view, texts, i),
            column="question_id",
            alike=alike,
        )
        split = self._index.split
        view.report(
            "question_not_in_split",
            question == OTHER_SPLIT,
            lambda i: f"question {view.show('question_id', i)} is not in split {split}, which the file is checked for",
            column="question_id",
            alike=alike,
        )
        return question

    def _explain_question(self, view: _BatchView, texts: Texts, idx: int) -> str:
        name = texts.text(idx)
        if not name:
            return f"question_id {texts.absent if name is None else 'is empty'}"
        benchmark = view.text("benchmark", idx) or ""
        elsewhere = self._index.find_benchmarks(name)
        if elsewhere:
            hint = f"; benchmark {show_value(elsewhere[0])} has one of that name"
        else:
            known = self._index.list_questions(benchmark)
            hint = self._nearest_question.setdefault(benchmark, NameSuggester(known))(name)
        return f"benchmark {show_value(benchmark)} has no question {show_value(name)}{hint}"

    def _read_trajectories(self, view: _BatchView) -> IntArray:
        """Return each row's trajectory, -1 where it is wrong or absent; 0 where the unit is a question."""
        if not self._index.strategy.unit_is_trajectory:
            return np.zeros(view.n_rows, dtype=np.int64)
        if "trajectory" not in view.columns:
            return np.full(view.n_rows, -1, dtype=np.int64)
        read = view.integers("trajectory")
        trajectory = read.values
        last = self._index.per_question - 1
        outside = ~read.missing & ((trajectory < 0) | (trajectory > last))
        view.report(
            "unknown_trajectory",
            outside,
            lambda i: f"trajectory {view.show_number('trajectory', i)} does not exist; they are numbered 0 to {last}",
            column="trajectory",
            alike=trajectory,
        )
        return np.where(read.missing | outside, -1, trajectory)

    def _read_values(self, view: _BatchView, unit: IntArray) -> IntArray:
        column = "stop_tokens" if "stop_tokens" in view.columns else "action"
        if column not in view.columns:
            return np.zeros(view.n_rows, dtype=np.int64)
        read = view.integers(column)
        value = read.values
        most = np.full(view.n_rows, np.iinfo(np.int64).max)
        if self._index.strategy is Strategy.DYNAMIC_ROUTING:
            most[:] = 1
        elif self._last_positions is not None and column == "action":
            most = np.where(unit >= 0, self._last_positions[unit], most)
        outside = ~read.missing & ((value < 0) | (value > most))
        view.report(
            "action_out_of_range",
            outside,
            lambda i: (
                f"{column} {view.show_number(column, i)} {self._explain_range(column, int(value[i]), int(most[i]))}"
            ),
            column=column,
        )
        return np.where(read.missing | outside, 0, value)

    def _explain_range(self, column: str, value: int, most: int) -> str:
        if self._index.strategy is Strategy.DYNAMIC_ROUTING:
            return "is neither 0 (answer at once) nor 1 (think to the end)"
        if self._last_positions is not None and column == "action" and value >= 0:
            return f"is past the trajectory's last position, {most}"
        if self._last_positions is not None and column == "action":
            return "is negative; to think to the end, write the last position"
        return "is negative; for no cap, write a number past every trajectory's end"


@dataclass(eq=False)
class _BatchView:
    """A batch whose columns are read once, with the naming of its rows in problems."""

    batch: RowBatch
    problems: ActionProblems
    _texts: dict[str, Texts] = field(default_factory=dict)

    @property
    def n_rows(self) -> int:
        return len(self.batch.rows)

    @property
    def columns(self) -> frozenset[str]:
        return frozenset(self.batch.columns)

    def texts(self, column: str) -> Texts | None:
        if column not in self.batch.columns:
            return None
        if column not in self._texts:
            self._texts[column] = read_texts(self.batch.columns[column])
        return self._texts[column]

    def text(self, column: str, idx: int) -> str | None:
        texts = self.texts(column)
        return texts.text(idx) if texts is not None else None

    def show(self, column: str, idx: int) -> str:
        return show_value(value_at(self.batch.columns[column], idx))

    def show_number(self, column: str, idx: int) -> str:
        """Return a value that is an integer, spelt as in the file, without quotation marks."""
        return cut_text(str(value_at(self.batch.columns[column], idx)))

    def integers(self, column: str) -> Integers:
        """Read a column, recording where it has no integer."""
        array = self.batch.columns[column]
        read = read_integers(array)

        def explain(idx: int) -> str:
            if pa.types.is_nested(array.type):
                return f"{column} is of type {show_type(array.type)}, not an integer"
            value = value_at(array, idx)
            if value is None or value == "":
                return f"{column} is empty{explain_not_integer(value)}"
            return f"{column} {show_value(value)} is not an integer{explain_not_integer(value)}"

        self.report("not_an_integer", read.missing, explain, column=column)
        return read

    def report(
        self,
        code: str,
        chosen: NDArray[np.bool_],
        message: Callable[[int], str],
        *,
        column: str,
        alike: IntArray | None = None,
    ) -> None:
        """Record a fault of each chosen row."""
        idx = np.flatnonzero(chosen)
        self.problems.add_rows(
            code, idx, rows=self.batch.rows, message=message, column=column, unit=self.name, alike=alike
        )

    def name(self, idx: int) -> str | None:
        """Return the unit of a row as the file writes it, or None where it names no model, benchmark or question."""
        parts = [self.text(column, idx) or "" for column in KEY_COLUMNS]
        if "trajectory" in self.batch.columns:
            value = value_at(self.batch.columns["trajectory"], idx)
            parts.append("" if value is None else str(value))
        return " / ".join(cut_text(part) for part in parts) if all(parts) else None
