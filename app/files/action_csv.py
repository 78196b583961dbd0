"""Reading CSV action files."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping
from typing import NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.csv

from app.evaluator.measurements import IntArray
from app.evaluator.strategies import Strategy
from app.files.action_columns import RowBatch
from app.files.action_layout import ALL_COLUMNS, Layout, check_column_names, refuse_repeated_names
from app.files.action_problems import ActionProblems
from app.files.action_streams import ByteSource, LineBlock, read_record_blocks

_OTHER_DELIMITERS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}
_TEXT = pa.dictionary(pa.int32(), pa.string())


def read_csv_batches(source: ByteSource, *, strategy: Strategy, problems: ActionProblems) -> Iterator[RowBatch]:
    """Yield the rows of a CSV file: UTF-8 with or without a mark, a header, commas, LF or CRLF, blank lines ignored.

    A block of a few megabytes is parsed by Arrow where every line of it that is not blank is one row, and record by
    record where not (line ends inside quotation marks, rows that are too short or long, bytes that are not UTF-8), so
    that every row keeps the number an editor shows.
    """
    reader: _RowReader | None = None
    for block in read_record_blocks(source, problems=problems):
        if reader is None:
            header = _read_header(block, problems)
            if header is None:
                continue
            names, header_row, block = header
            layout = check_column_names(names, strategy, problems=problems, row=header_row)
            reader = _RowReader(names, layout, problems)
        _refuse_stray_quotes(block, problems)
        if block.data:
            yield reader.read(block)


class _RowReader:
    """Reads blocks of records below the header."""

    def __init__(self, names: list[str], layout: Layout, problems: ActionProblems) -> None:
        self._n_columns = len(names)
        self._place = {column: names.index(name) for column, name in layout.name_in_file.items()}
        self._problems = problems
        self._unquoted = pa.csv.ParseOptions()
        self._quoted = pa.csv.ParseOptions(newlines_in_values=True)
        # Arrow takes an empty list of columns for all of them: without a usable column the first one counts the rows.
        wanted = [str(place) for place in self._place.values()] or ["0"]
        self._convert = pa.csv.ConvertOptions(
            column_types=dict.fromkeys(wanted, _TEXT), include_columns=wanted, strings_can_be_null=False
        )

    def read(self, block: LineBlock) -> RowBatch:
        lines = _number_lines(block)
        table = None if b"\n," in block.data or block.data.startswith(b",") else self._parse(block)
        if table is None or table.num_rows != len(lines):
            return self._read_one_by_one(block)
        columns = {name: table.column(str(place)).combine_chunks() for name, place in self._place.items()}
        return RowBatch(lines, {name: _single_chunk(column) for name, column in columns.items()})

    def _parse(self, block: LineBlock) -> pa.Table | None:
        """Return the block as Arrow reads it, or None where it refuses a row."""
        options = pa.csv.ReadOptions(
            column_names=[str(place) for place in range(self._n_columns)], block_size=len(block.data) + 1
        )
        parse_options = self._quoted if b'"' in block.data else self._unquoted
        try:
            return pa.csv.read_csv(
                pa.BufferReader(block.data),
                read_options=options,
                parse_options=parse_options,
                convert_options=self._convert,
            )
        except pa.ArrowInvalid:
            return None

    def _read_one_by_one(self, block: LineBlock) -> RowBatch:
        text = block.data.decode("utf-8", errors="surrogateescape")
        reader = csv.reader(_lines(text), strict=True)
        rows: list[int] = []
        records: list[list[str]] = []
        n_unreadable = 0
        while True:
            row = block.first_line + reader.line_num
            try:
                record = next(reader, None)
                fault = self._find_fault(record) if record else None
            except csv.Error as exc:
                record, fault = [""], f"the row cannot be read: {exc}"
            if record is None:
                break
            if fault:
                n_unreadable += 1
                self._problems.add("unreadable_file", fault, row=row)
            elif not _is_blank(record):
                rows.append(row)
                records.append(record)
        columns: Mapping[str, pa.Array] = {
            name: pa.array([record[place] for record in records], type=pa.string())
            for name, place in self._place.items()
        }
        return RowBatch(np.array(rows, dtype=np.int64), columns, n_unreadable)

    def _find_fault(self, record: list[str]) -> str | None:
        """Say why a record cannot be checked, or return None."""
        if _is_blank(record):
            return None
        if not any(record):
            return "the row holds nothing but commas; delete it"
        if len(record) != self._n_columns:
            trailing = len(record) == self._n_columns + 1 and not record[-1]
            hint = "; remove the comma at its end" if trailing else ""
            return f"the row has {len(record)} values, the header {self._n_columns}{hint}"
        if not all(value.isascii() or _is_unicode(value) for value in record):
            return "the row is not UTF-8; save the file as UTF-8"
        return None


def _number_lines(block: LineBlock) -> IntArray:
    """Return the numbers of the block's lines that are not empty."""
    octets = np.frombuffer(block.data, dtype=np.uint8)
    ends = np.flatnonzero(octets == ord("\n"))
    if not block.data.endswith(b"\n"):
        ends = np.append(ends, len(octets))
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts
    is_empty = (lengths == 0) | ((lengths == 1) & (octets[np.minimum(starts, len(octets) - 1)] == ord("\r")))
    return np.asarray(np.flatnonzero(~is_empty) + block.first_line, dtype=np.int64)


def _is_blank(record: list[str]) -> bool:
    return not record or (len(record) == 1 and not record[0].strip())


def _lines(text: str) -> io.StringIO:
    # Only LF ends a line, as in the blocks; with newline="" a lone carriage return would too.
    return io.StringIO(text, newline="\n")


def _single_chunk(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks else pa.array([], type=column.type)
    return column


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _read_header(block: LineBlock, problems: ActionProblems) -> tuple[list[str], int, LineBlock] | None:
    """Return the column names, their row, and the rest of the block; None if the block is blank."""
    text = block.data.decode("utf-8", errors="surrogateescape")
    reader = csv.reader(_lines(text), strict=True)
    names: list[str] = []
    row = block.first_line
    while _is_blank(names):
        row = block.first_line + reader.line_num
        try:
            record = next(reader, None)
        except csv.Error as exc:
            _refuse_header(text, row, problems, reason=str(exc))
        if record is None:
            return None
        names = record
    _check_header(names, row, problems)
    end = 0
    for _ in range(reader.line_num):
        end = block.data.find(b"\n", end) + 1 or len(block.data)
    return names, row, LineBlock(block.data[end:], block.first_line + reader.line_num)


def _check_header(names: list[str], row: int, problems: ActionProblems) -> None:
    if not all(_is_unicode(name) for name in names):
        problems.stop("unreadable_file", "the header is not UTF-8; save the file as UTF-8", row=row)
    if names[0].startswith("sep="):
        problems.stop(
            "unreadable_file", "the file begins with a 'sep=' line; remove it and separate by commas", row=row
        )
    if not set(names) & set(ALL_COLUMNS):
        _refuse_delimiter(",".join(names), row, problems)
    refuse_repeated_names(names, row=row, problems=problems)


def _refuse_header(text: str, row: int, problems: ActionProblems, *, reason: str) -> NoReturn:
    first_line = text.lstrip().split("\n", 1)[0]
    if "\r" in first_line.rstrip("\r"):
        message = "lines end in a carriage return alone; save the file with LF or CRLF line ends"
        problems.stop("unreadable_file", message, row=row)
    _refuse_delimiter(first_line, row, problems)
    problems.stop("unreadable_file", f"the header cannot be read: {reason}", row=row)


def _refuse_delimiter(header: str, row: int, problems: ActionProblems) -> None:
    for delimiter, name in _OTHER_DELIMITERS.items():
        if delimiter in header:
            problems.stop("unreadable_file", f"the columns are separated by {name}; separate them by commas", row=row)


def _refuse_stray_quotes(block: LineBlock, problems: ActionProblems) -> None:
    """Stop at a quotation mark inside a value: nobody can tell where that value and its row end."""
    if b'"' not in block.data:
        return
    octets = np.frombuffer(b"\n" + block.data + b"\n", dtype=np.uint8)
    quotes = np.flatnonzero(octets == ord('"'))
    before, after = octets[quotes[::2] - 1], octets[quotes[1::2] + 1]
    opens = np.isin(before, np.frombuffer(b',\n"', dtype=np.uint8))
    closes = np.isin(after, np.frombuffer(b',\r\n"', dtype=np.uint8))
    stray = np.concatenate([quotes[::2][~opens], quotes[1::2][~closes]])
    if len(stray):
        row = block.first_line + block.data.count(b"\n", 0, int(stray.min()) - 1)
        message = "a quotation mark inside a value; enclose the value in quotation marks and double the one inside"
        problems.stop("unreadable_file", message, row=row)
    if len(quotes) % 2:
        row = block.first_line + block.data.count(b"\n", 0, int(quotes[-1]) - 1)
        problems.stop("unreadable_file", "a quotation mark is never closed", row=row)
