"""Gathering the checked rows of an action file into one matrix per cell."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from app.evaluator.measurements import IntArray
from app.evaluator.strategies import ActionTable, CellActions, find_positions_at_tokens, sort_settings
from app.files.action_checks import CheckedRows
from app.files.action_problems import ActionProblems, show_value
from app.files.action_units import UnitIndex

Number = TypeVar("Number", np.int64, np.uint32)

MAX_LISTED_UNITS = 10


class TableBuilder:
    """The actions of a file: for each cell, settings by units, filled in the order of the rows.

    Notes
    -----
    8 bytes for the action and 4 for the row that first gave it, per setting and unit. The arrays are laid out for
    the largest number of settings, but the system hands out memory for what is written only.
    """

    def __init__(self, index: UnitIndex, *, max_settings: int, problems: ActionProblems) -> None:
        self._index = index
        self._max_settings = max_settings
        self._problems = problems
        sizes = np.diff(index.starts)
        # Unit u of setting s is at place[u] + s * stride[u]: a cell's settings lie one after the other.
        within = np.arange(index.n_units) - np.repeat(index.starts[:-1], sizes)
        self._place = np.repeat(index.starts[:-1] * max_settings, sizes) + within
        self._stride = np.repeat(sizes, sizes)
        self._actions = np.zeros(index.n_units * max_settings, dtype=np.int64)
        # Row numbers fit 32 bits: reading ends before a file has more lines. 0 is no row.
        self._first_row = np.zeros(index.n_units * max_settings, dtype=np.uint32)

    def place(self, checked: CheckedRows, setting: IntArray, labels: list[str]) -> None:
        """Enter the rows whose unit and setting are known; a unit that is given again is a fault."""
        known = np.flatnonzero((checked.unit >= 0) & (setting >= 0))
        unit = checked.unit[known]
        key = self._place[unit] + setting[known] * self._stride[unit]
        row = checked.rows[known].astype(np.uint32)
        fresh = np.flatnonzero(self._first_row[key] == 0)[::-1]
        # Written from the last row to the first: of rows with the same unit and setting the first one stays.
        self._first_row[key[fresh]] = row[fresh]
        entered = self._first_row[key] == row
        self._actions[key[entered]] = checked.value[known[entered]]
        if entered.all():
            return
        again, first_row = known[~entered], self._first_row[key[~entered]]
        self._problems.add_rows(
            "duplicate_unit",
            again,
            rows=checked.rows,
            message=lambda i: (
                f"the unit is given again for setting {show_value(labels[int(setting[i])])}; "
                f"row {first_row[np.searchsorted(again, i)]} gave it first"
            ),
            unit=lambda i: self._index.name_unit(int(checked.unit[i])),
        )

    def report_missing(self, labels: list[str]) -> None:
        """Record every cell that a setting covers in part."""
        for cell_idx, cell in enumerate(self._index.cells):
            given = self._cell_view(self._first_row, cell_idx)
            n_given = np.count_nonzero(given[: len(labels)], axis=1)
            for setting in np.flatnonzero((n_given > 0) & (n_given < given.shape[1])).tolist():
                missing = np.flatnonzero(given[setting] == 0) + int(self._index.starts[cell_idx])
                message = f"setting {show_value(labels[setting])} {self._list_missing(missing, given.shape[1])}"
                self._problems.add("incomplete_cell", message, unit=f"{cell.model} / {cell.benchmark}")

    def build(self, labels: list[str], *, values_are_tokens: bool) -> ActionTable:
        """Return the table, settings in their order; the matrices are the builder's own, not copies."""
        settings = sort_settings(set(labels))
        order = np.array([labels.index(label) for label in settings], dtype=np.int64)
        cells = tuple(
            self._build_cell(cell_idx, order, values_are_tokens=values_are_tokens)
            for cell_idx in range(len(self._index.cells))
        )
        return ActionTable(self._index.strategy, settings, cells)

    def _build_cell(self, cell_idx: int, order: IntArray, *, values_are_tokens: bool) -> CellActions:
        given = self._cell_view(self._first_row, cell_idx)
        actions = self._cell_view(self._actions, cell_idx)[: len(order)]
        covered = np.asarray(given[order].all(axis=1))
        if (order != np.arange(len(order))).any():
            actions[:] = actions[order]
        if values_are_tokens:
            for setting in np.flatnonzero(covered):
                actions[setting] = find_positions_at_tokens(self._index.cells[cell_idx], actions[setting])
        return CellActions(covered, actions)

    def _cell_view(self, flat: NDArray[Number], cell_idx: int) -> NDArray[Number]:
        start, stop = (int(unit) * self._max_settings for unit in self._index.starts[cell_idx : cell_idx + 2])
        return flat[start:stop].reshape(self._max_settings, -1)

    def _list_missing(self, missing: IntArray, n_units: int) -> str:
        listed = ", ".join(self._index.name_in_cell(unit) for unit in missing[:MAX_LISTED_UNITS].tolist())
        more = ", …" if len(missing) > MAX_LISTED_UNITS else ""
        return (
            f"lacks {len(missing):,} of the cell's {n_units:,} units: {listed}{more}; "
            "a setting covers a cell completely or not at all"
        )
