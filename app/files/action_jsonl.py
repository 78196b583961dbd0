"""Reading JSON Lines action files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from math import isfinite

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json

from app.evaluator.strategies import Strategy
from app.files.action_columns import RowBatch, number_text
from app.files.action_layout import KEY_COLUMNS, Layout, check_column_names
from app.files.action_problems import ActionProblems, show_value
from app.files.action_streams import ByteSource, LineBlock, read_line_blocks

_TEXT_COLUMNS = (*KEY_COLUMNS, "setting")
_MAX_EXACT_FLOAT = 2.0**53
_MAX_UNKNOWN_NAMES = 200


def read_json_batches(source: ByteSource, *, strategy: Strategy, problems: ActionProblems) -> Iterator[RowBatch]:
    """Yield the rows of a JSON Lines file: one object a line, blank lines ignored.

    The first object says whether the file has `setting`, and `action` or `stop_tokens`; every row must have the same
    columns. A block of a few megabytes is parsed by Arrow where every line is such a row, and line by line where
    not, so that each fault is reported with its line.
    """
    reader: _RowReader | None = None
    for block in read_line_blocks(source, problems=problems):
        if reader is None:
            names, row = _find_names(block)
            layout = check_column_names(names, strategy, problems=problems, row=row, require=False)
            current = _RowReader(layout, names, problems)
            reader = current if names else None
        yield (reader or current).read(block)


class _RowReader:
    """Reads blocks of lines whose columns are known."""

    def __init__(self, layout: Layout, names: list[str], problems: ActionProblems) -> None:
        self._strategy = layout.strategy
        setting = ("setting",) if "setting" in layout.name_in_file else ()
        columns = (*layout.required, *setting)
        self._column_of = {layout.name_in_file.get(column, column): column for column in columns}
        self._reported = set(names) - set(self._column_of)
        self._problems = problems
        texts = [(name, pa.string()) for name, column in self._column_of.items() if column in KEY_COLUMNS]
        self._parse_options = pa.json.ParseOptions(explicit_schema=pa.schema(texts))

    def read(self, block: LineBlock) -> RowBatch:
        table = self._parse(block.data)
        if table is None:
            return self._read_line_by_line(block)
        rows = np.arange(block.first_line, block.first_line + table.num_rows, dtype=np.int64)
        columns = {column: table.column(name).combine_chunks() for name, column in self._column_of.items()}
        return RowBatch(rows, columns)

    def _parse(self, data: bytes) -> pa.Table | None:
        """Return the block as Arrow reads it, or None where that is not certain to be what it says."""
        try:
            data.decode()
            options = pa.json.ReadOptions(block_size=len(data) + 1)
            table = pa.json.read_json(pa.BufferReader(data), read_options=options, parse_options=self._parse_options)
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        n_rows = data.count(b"\n") + (not data.endswith(b"\n"))
        n_seams = data.count(b"}\n{") + data.count(b"}\r\n{")
        if table.num_rows != n_rows or n_seams != n_rows - 1 or set(table.column_names) != set(self._column_of):
            return None
        return table if all(_is_plain(column) for column in table.columns) else None

    def _read_line_by_line(self, block: LineBlock) -> RowBatch:
        rows: list[int] = []
        values: dict[str, list[str | None]] = {column: [] for column in self._column_of.values()}
        n_unreadable = 0
        for number, line in enumerate(block.data.split(b"\n"), start=block.first_line):
            if not line.strip():
                continue
            record = self._read_object(line, number)
            if record is None or not self._has_right_columns(record, number):
                n_unreadable += 1
                continue
            rows.append(number)
            for name, column in self._column_of.items():
                convert = _as_text if column in _TEXT_COLUMNS else _as_integer_text
                values[column].append(convert(record.get(name)))
        columns = {column: pa.array(texts, type=pa.string()) for column, texts in values.items()}
        return RowBatch(np.array(rows, dtype=np.int64), columns, n_unreadable)

    def _read_object(self, line: bytes, row: int) -> dict[str, object] | None:
        try:
            pairs = _parse_line(line)
        except (ValueError, RecursionError) as exc:
            self._problems.add("unreadable_file", f"the row is not JSON: {_explain(exc)}", row=row)
            return None
        if not isinstance(pairs, _Pairs):
            self._problems.add("unreadable_file", "the row is not a JSON object", row=row)
            return None
        record = dict(pairs)
        if len(record) < len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            message = f"the row gives {show_value(twice)} more than once"
            self._problems.add("unreadable_file", message, row=row, column=twice)
            return None
        return record

    def _has_right_columns(self, record: dict[str, object], row: int) -> bool:
        """Record a column that the row has beside those of the first row, or lacks; False if it lacks one."""
        if record.keys() == self._column_of.keys():
            return True
        for name in record:
            if name not in self._column_of and name not in self._reported:
                self._report_name(name, row)
        missing = [column for name, column in self._column_of.items() if name not in record]
        for column in missing:
            self._problems.add("missing_column", f"the row has no {column!r}", row=row, column=column)
        return not missing

    def _report_name(self, name: str, row: int) -> None:
        if name == "setting":
            message = "the row names a setting and the first row of the file does not; give one in every row"
            self._problems.add("bad_setting_label", message, row=row, column=name)
            return
        self._reported.add(name)
        if len(self._reported) > _MAX_UNKNOWN_NAMES:
            message = f"the rows have more than {_MAX_UNKNOWN_NAMES} different names that are not columns"
            self._problems.stop("unreadable_file", message, row=row)
        if name in ("action", "stop_tokens") and self._strategy.unit_is_trajectory:
            message = "the file has both 'action' and 'stop_tokens'; give one of them, the same in every row"
            self._problems.add("unknown_column", message, row=row, column=name)
            return
        check_column_names([name], self._strategy, problems=self._problems, row=row, require=False)


class _Pairs(list[tuple[str, object]]):
    """An object's members in order, repeated names included."""


_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs)
# Python refuses to make integers of thousands of digits; decimals keep all of them.
_DECIMAL_DECODER = json.JSONDecoder(object_pairs_hook=_Pairs, parse_int=Decimal)


def _parse_line(line: bytes) -> object:
    """Parse one line, keeping repeated names and the digits of every integer.

    Raises
    ------
    ValueError : not UTF-8, not JSON, or a text with half of a surrogate pair.
    """
    text = line.decode()
    try:
        parsed: object = _DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:
        parsed = _DECIMAL_DECODER.decode(text)
    if "\\u" in text:
        # Half a pair is no character: no UTF-8 file can hold it, and no message could show it.
        json.dumps(parsed, ensure_ascii=False, default=str).encode()
    return parsed


def _explain(exc: Exception) -> str:
    if isinstance(exc, RecursionError):
        return "it is nested too deeply"
    if isinstance(exc, UnicodeDecodeError):
        return "it is not UTF-8; save the file as UTF-8"
    if isinstance(exc, UnicodeEncodeError):
        return "it has half of a surrogate pair"
    if isinstance(exc, json.JSONDecodeError):
        return f"{exc.msg} at character {exc.pos + 1}"
    return "a value cannot be read"


def _as_text(value: object) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    if isinstance(value, float):
        return number_text(value) if isfinite(value) else None
    return str(value)


def _as_integer_text(value: object) -> str | None:
    """Return a value as the text whose integer it is, or as a text that is no integer and shows it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return str(value)
    return "an object" if isinstance(value, _Pairs) else "a list"


def _is_plain(column: pa.ChunkedArray) -> bool:
    """Whether a column that Arrow inferred holds texts or numbers only, each as the file writes it."""
    if column.null_count:
        return False
    if pa.types.is_floating(column.type):
        # A float stands for an integer of the same block, which must not have lost digits.
        return bool(pc.max(pc.abs(column)).as_py() < _MAX_EXACT_FLOAT)
    return bool(pa.types.is_string(column.type) or pa.types.is_integer(column.type))


def _find_names(block: LineBlock) -> tuple[list[str], int | None]:
    """Return the names of a block's first object and its row; no names where no line is an object."""
    for number, line in enumerate(block.data.split(b"\n"), start=block.first_line):
        if line.strip():
            try:
                pairs = _parse_line(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(pairs, _Pairs):
                return list(dict(pairs)), number
    return [], None
