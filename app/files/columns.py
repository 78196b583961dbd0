"""The columns of a snapshot's tables, and bringing what any Parquet writer made of them to one type."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.files.problems import ProblemCollector, suggest

QUESTIONS_FILE = "questions.parquet"
TRAJECTORIES_FILE = "trajectories.parquet"
INT32_MIN = -(2**31)
INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Column:
    """A column of the format: its canonical type, whether it must be there, whether a row may lack its value."""

    name: str
    type: pa.DataType
    required: bool = True
    nullable: bool = False


def _optional(name: str, data_type: pa.DataType) -> Column:
    return Column(name, data_type, required=False, nullable=True)


QUESTION_COLUMNS = (
    Column("benchmark", pa.string()),
    Column("question_id", pa.string()),
    Column("split", pa.string()),
    _optional("prompt", pa.string()),
    _optional("reference_answer", pa.string()),
    _optional("difficulty", pa.int32()),
)
TRAJECTORY_COLUMNS = (
    Column("model", pa.string()),
    Column("benchmark", pa.string()),
    Column("question_id", pa.string()),
    Column("trajectory", pa.int32()),
    Column("thinking_tokens", pa.int32()),
    _optional("original_correct", pa.bool_()),
    Column("retained_tokens", pa.list_(pa.int32())),
    _optional("correct_probes", pa.list_(pa.int32())),
    _optional("end_margin", pa.list_(pa.float32())),
    _optional("token_ids", pa.list_(pa.int32())),
    _optional("block_tokens", pa.list_(pa.int32())),
    _optional("direct_correct", pa.bool_()),
    _optional("probe_answers", pa.list_(pa.list_(pa.string()))),
    _optional("step_logprob", pa.list_(pa.float32())),
)
QUESTIONS_SCHEMA = pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in QUESTION_COLUMNS])
TRAJECTORIES_SCHEMA = pa.schema([pa.field(c.name, c.type, nullable=c.nullable) for c in TRAJECTORY_COLUMNS])
# What a public export leaves empty on a hidden split.
LABEL_COLUMNS = ("correct_probes", "original_correct", "direct_correct", "probe_answers")

Columns = dict[str, "pa.ChunkedArray | None"]


@dataclass(frozen=True, eq=False)
class Lists:
    """A list column as flat numpy arrays.

    Attributes
    ----------
    valid : bool, rows; False where the row's list is null.
    lengths : int64, rows; 0 where the list is null.
    starts : int64, rows; where each row's values begin in `values`.
    values : the values of all lists one after the other; a null inside a list is 0.
    """

    valid: NDArray[np.bool_]
    lengths: NDArray[np.int64]
    starts: NDArray[np.int64]
    values: NDArray[np.int32]

    def row_of_value(self) -> NDArray[np.int64]:
        """Return the row of each value."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)


@dataclass(frozen=True, eq=False)
class Rows:
    """A table's columns with what is needed to name a row's decision unit."""

    columns: Columns
    file: str
    unit_columns: tuple[str, ...]

    @property
    def n_rows(self) -> int:
        """Number of rows; 0 where no column could be used."""
        return next((len(column) for column in self.columns.values() if column is not None), 0)

    def text(self, name: str, row: int) -> str:
        """The value of a column at a row as a text, "?" where the column cannot be used or the value is null."""
        column = self.columns[name]
        value = None if column is None else column[row].as_py()
        return "?" if value is None else str(value)

    def unit(self, row: int) -> str:
        """Name the unit of a row: its unit columns joined by " / "."""
        return " / ".join(self.text(name, row) for name in self.unit_columns)


def split_lists(column: pa.ChunkedArray) -> Lists:
    """Return a list<int32> or list<float32> column as flat arrays; cost is one copy of it.

    Examples
    --------
    >>> lists = split_lists(pa.chunked_array([pa.array([[7, 8], None, [9]], pa.list_(pa.int32()))]))
    >>> lists.starts.tolist(), lists.values.tolist(), lists.row_of_value().tolist()
    ([0, 2, 2], [7, 8, 9], [0, 0, 2])
    """
    lengths = list_lengths(column)
    chunks = [chunk.flatten().fill_null(0).to_numpy(zero_copy_only=False) for chunk in column.chunks]
    empty = np.empty(0, dtype=column.type.value_type.to_pandas_dtype())
    return Lists(
        valid=column.is_valid().to_numpy(),
        lengths=lengths,
        starts=np.cumsum(lengths) - lengths,
        values=np.concatenate(chunks) if chunks else empty,
    )


def list_lengths(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the length of each row's list, 0 where it is null.

    Examples
    --------
    >>> list_lengths(pa.chunked_array([[[7, 8], None], [[]]])).tolist()
    [2, 0, 0]
    """
    lengths = pc.list_value_length(column).cast(pa.int64()).fill_null(0)
    return np.asarray(lengths.to_numpy(), dtype=np.int64)


def coerce_columns(table: pa.Table, columns: Sequence[Column], *, file: str, problems: ProblemCollector) -> Columns:
    """Bring a table's columns to their canonical types, recording every fault of names, types and nulls.

    Accepted for a text: string, large_string, string_view, dictionary of them. For a whole number: any integer type
    whose values fit 32 bits, and floats without a fraction. For a list: list, large_list, fixed-size lists.

    Returns
    -------
    One entry per column of the format: the column; all null where an optional one is absent; None where it cannot
    be used.
    """
    known = [column.name for column in columns]
    for name in sorted(set(table.column_names)):
        if name not in known:
            problems.add(
                "unknown_column", f"{file}: the column {name!r} is not known{suggest(name, known)}", column=name
            )
        elif table.column_names.count(name) > 1:
            problems.add("duplicate_column", f"{file}: the column {name!r} appears more than once", column=name)
    return {column.name: _coerce_column(table, column, file=file, problems=problems) for column in columns}


def _coerce_column(table: pa.Table, column: Column, *, file: str, problems: ProblemCollector) -> pa.ChunkedArray | None:
    occurrences = table.column_names.count(column.name)
    if occurrences == 0:
        if not column.required:
            return pa.chunked_array([pa.nulls(table.num_rows, column.type)])
        problems.add("missing_column", f"{file}: there is no column {column.name!r}", column=column.name)
    if occurrences != 1:
        return None
    raw = table.column(column.name)
    try:
        cast = _cast(raw, column, file=file, problems=problems)
    except (pa.ArrowException, ValueError, TypeError) as exc:
        reason = str(exc).splitlines()[0][:160] if str(exc) else type(exc).__name__
        message = f"{file}: {column.name} has the type {raw.type}, expected {column.type} ({reason})"
        problems.add("wrong_type", message, column=column.name)
        return None
    if cast is None:
        return None
    if not _is_utf8(cast):
        problems.add("bad_text", f"{file}: {column.name} holds bytes that are not UTF-8", column=column.name)
        return None
    _check_nulls(cast, column, file=file, problems=problems)
    return cast


def _cast(raw: pa.ChunkedArray, column: Column, *, file: str, problems: ProblemCollector) -> pa.ChunkedArray | None:
    """Cast, refusing other kinds of values that Arrow would convert (numbers to text, text to numbers)."""
    source = _plain_type(raw.type)
    if not _same_kind(source, column.type):
        raise ValueError("another kind of value")
    if raw.type == column.type:
        return raw
    if pa.types.is_null(source):
        return pa.chunked_array([pa.nulls(len(raw), column.type)])
    if not _has_integers(column.type):
        return raw.cast(column.type, safe=False)
    wide = raw.cast(_with_integers(column.type, pa.int64()))
    if wide.type == pa.int64():
        values, rows = wide.fill_null(0).to_numpy(), np.arange(len(wide))
    else:
        lists = split_lists(wide)
        values, rows = lists.values, lists.row_of_value()
    outside = (values < INT32_MIN) | (values > INT32_MAX)
    if outside.any():
        first_idx = np.unique(rows[outside], return_index=True)
        value_of = dict(zip(first_idx[0].tolist(), values[outside][first_idx[1]].tolist(), strict=True))
        problems.add_rows(
            "out_of_range",
            value_of,
            message=lambda row: f"{file}: {column.name} holds {value_of[row]}, which does not fit 32 bits",
            column=column.name,
        )
        return None
    return wide.cast(column.type)


def _is_utf8(column: pa.ChunkedArray) -> bool:
    """Whether all texts are UTF-8, which Arrow takes on trust when it reads a file."""
    leaf = column.type
    while pa.types.is_list(leaf):
        leaf = leaf.value_type
    if not pa.types.is_string(leaf):
        return True
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _check_nulls(cast: pa.ChunkedArray, column: Column, *, file: str, problems: ProblemCollector) -> None:
    if not column.nullable and cast.null_count:
        problems.add_rows(
            "null_value",
            np.flatnonzero(cast.is_null().to_numpy()).tolist(),
            message=lambda row: f"{file}: {column.name} is null",
            column=column.name,
        )
    if pa.types.is_list(column.type) and not pa.types.is_list(column.type.value_type):
        offset = 0
        rows: list[int] = []
        for chunk in cast.chunks:
            inside = chunk.flatten()
            if inside.null_count:
                parents = chunk.value_parent_indices().to_numpy()
                rows += (np.unique(parents[inside.is_null().to_numpy(zero_copy_only=False)]) + offset).tolist()
            offset += len(chunk)
        problems.add_rows(
            "null_value", rows, message=lambda row: f"{file}: {column.name} has a null in its list", column=column.name
        )


def _plain_type(data_type: pa.DataType) -> pa.DataType:
    return data_type.value_type if pa.types.is_dictionary(data_type) else data_type


def _same_kind(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether values of the source type mean the same as values of the target type, if they fit."""
    source = _plain_type(source)
    if pa.types.is_null(source):
        return True
    if pa.types.is_list(target):
        return _is_any_list(source) and _same_kind(source.value_type, target.value_type)
    if pa.types.is_string(target):
        return any(test(source) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))
    if pa.types.is_boolean(target):
        return bool(pa.types.is_boolean(source))
    return bool(pa.types.is_integer(source) or pa.types.is_floating(source))


def _is_any_list(data_type: pa.DataType) -> bool:
    # List views are left out: Arrow's cast of one that has nulls loses values.
    tests = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    return any(test(data_type) for test in tests)


def _has_integers(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type.value_type if pa.types.is_list(data_type) else data_type))


def _with_integers(data_type: pa.DataType, integer: pa.DataType) -> pa.DataType:
    return pa.list_(integer) if pa.types.is_list(data_type) else integer
