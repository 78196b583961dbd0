"""Action files: reading and checking what a method did in every decision unit, and writing such files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import ContentError, Problem
from app.evaluator.measurements import Measurements
from app.evaluator.strategies import ActionTable, Strategy
from app.files.action_checks import RowChecker, SettingLabels
from app.files.action_columns import RowBatch
from app.files.action_csv import read_csv_batches
from app.files.action_jsonl import read_json_batches
from app.files.action_parquet import read_parquet_batches
from app.files.action_problems import ActionProblems, ReadingStopped
from app.files.action_streams import SPARE_ROWS, ByteSource, FileKind, Progress, ReadLimits, find_kind
from app.files.action_table import TableBuilder
from app.files.action_units import UnitIndex
from app.files.action_writers import write_actions

__all__ = ["MAX_SETTINGS", "ActionFile", "ActionFileError", "read_actions", "write_actions"]

MAX_SETTINGS = 256


class ActionFileError(ContentError):
    """An action file has problems; all of them are listed."""

    code = "invalid_action_file"
    title = "The action file has problems"


@dataclass(frozen=True, eq=False)
class ActionFile:
    """A valid action file.

    Attributes
    ----------
    table : the actions, one entry per cell of ``measurements.select(split).cells``.
    sha256 : of the file's bytes, in hexadecimal.
    n_rows : rows of the file, the header and blank lines not counted.
    warnings : what is odd about the file without making it wrong.
    """

    table: ActionTable
    sha256: str
    n_rows: int
    warnings: tuple[Problem, ...]


def read_actions(
    path: Path,
    measurements: Measurements,
    *,
    strategy: Strategy,
    split: str,
    filename: str | None = None,
    max_settings: int = MAX_SETTINGS,
    progress: Progress | None = None,
) -> ActionFile:
    """Read an action file and check it against one split of a snapshot.

    CSV, JSON Lines and Parquet, told apart by their content. Every fault of the file is looked for in one pass; a row
    with a fault takes no further part, save that its unit counts as given where it is known. Reading ends early where
    the rest has no meaning (damage, another delimiter, a file of another strategy) or is longer than any valid file;
    the totals are then those of the part that was read, and cells are not checked for completeness.

    Parameters
    ----------
    measurements : the whole snapshot, so that a question of another split is told from an unknown one. Labels are not
        looked at; they may be hidden.
    split : "all" or a split that has questions; the file must address its units and no others.
    filename : the file's own name, where `path` has another one.
    max_settings : how many settings the file may have, at least 1.
    progress : called now and then with the share of the file that was read, 0 to 1.

    Raises
    ------
    ActionFileError : the file has problems; at most 100 examples, each with the exact total of its code.
    ValueError : the split is unknown or has no question (a caller's bug: it is checked before).
    OSError : the file cannot be opened or the disk failed.

    Notes
    -----
    Memory: 12 bytes per setting and unit, and a few megabytes of rows at a time. About 2 s for 1.85 million rows of
    Parquet on two cores.

    Examples
    --------
    >>> import tempfile
    >>> from app.evaluator.measurements import build_cell, Measurements
    >>> cell = build_cell("m", "b", [("q1", "test", [[(0, 1), (9, 4)]]), ("q2", "test", [[(0, 0), (7, 2)]])], 4)
    >>> whole = Measurements("s", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "actions.csv"
    ...     _ = path.write_text("model,benchmark,question_id,action\\nm,b,q2,1\\nm,b,q1,0\\n")
    ...     file = read_actions(path, whole, strategy=Strategy.DYNAMIC_ROUTING, split="test")
    >>> file.table.settings, file.table.cells[0].actions.tolist()
    (('default',), [[0, 1]])
    """
    problems = ActionProblems()
    index = UnitIndex(measurements, split=split, strategy=strategy)
    reading = _Reading(index, max_settings=max_settings, problems=problems)
    limits = ReadLimits(max_rows=max_settings * index.n_units + SPARE_ROWS)
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    try:
        kind = find_kind(path, filename=filename or path.name, problems=problems, limits=limits)
        for batch in _read_batches(path, kind, strategy=strategy, problems=problems, limits=limits, progress=progress):
            reading.add(batch, limits)
        reading.finish()
    except ReadingStopped:
        reading.labels.report_surplus()
    if problems:
        raise ActionFileError(_summarise(problems), problems=problems.list_problems())
    table = reading.build()
    return ActionFile(table, sha256, reading.n_rows, _find_warnings(table))


class _Reading:
    """The state of reading one file."""

    def __init__(self, index: UnitIndex, *, max_settings: int, problems: ActionProblems) -> None:
        self.labels = SettingLabels(max_settings, problems)
        self.n_rows = 0
        self._values_are_tokens = False
        self._problems = problems
        self._checker = RowChecker(index, problems)
        self._builder = TableBuilder(index, max_settings=max_settings, problems=problems)

    def add(self, batch: RowBatch, limits: ReadLimits) -> None:
        self.n_rows += len(batch.rows) + batch.n_unreadable
        if len(batch.rows):
            self._values_are_tokens = "stop_tokens" in batch.columns
            setting = self.labels.number_rows(batch)
            self._builder.place(self._checker.check(batch), setting, self.labels.labels)
        if self.n_rows > limits.max_rows:
            message = (
                f"the file has more than {limits.max_rows:,} rows, more than every setting of every unit can take; "
                "reading stopped there and the totals are those of the part that was read"
            )
            self._problems.stop("unreadable_file", message)

    def finish(self) -> None:
        """Record what can be said only once every row was seen."""
        if not self.n_rows:
            self._problems.add("empty_file", "the file has no rows")
        self.labels.report_surplus()
        self._builder.report_missing(self.labels.labels)

    def build(self) -> ActionTable:
        return self._builder.build(self.labels.labels, values_are_tokens=self._values_are_tokens)


def _read_batches(
    path: Path,
    kind: FileKind,
    *,
    strategy: Strategy,
    problems: ActionProblems,
    limits: ReadLimits,
    progress: Progress | None,
) -> Iterator[RowBatch]:
    if kind is FileKind.PARQUET:
        yield from read_parquet_batches(path, strategy=strategy, problems=problems, limits=limits, progress=progress)
        return
    read = read_json_batches if kind is FileKind.JSON_LINES else read_csv_batches
    source = ByteSource(path, problems=problems, limits=limits, progress=progress)
    try:
        yield from read(source, strategy=strategy, problems=problems)
    finally:
        source.close()


def _summarise(problems: ActionProblems) -> str:
    totals = problems.totals()
    n_faults = sum(totals.values())
    kinds = ", ".join(f"{count:,} {code}" for code, count in totals.items())
    return f"the action file has {n_faults:,} problem{'s' if n_faults > 1 else ''}: {kinds}"


def _find_warnings(table: ActionTable) -> tuple[Problem, ...]:
    if table.strategy is Strategy.FIXED_BUDGET and all(int(cell.actions.max(initial=0)) <= 1 for cell in table.cells):
        message = (
            "every cap is 0 or 1: a cap is a number of tokens, so this file never thinks; "
            "if 0 and 1 mean not thinking and thinking, its strategy is dynamic_routing"
        )
        return (Problem("looks_like_routing", message, column="action"),)
    return ()
