"""Moving Arrow tables into and out of PostgreSQL by COPY, without a Python object per value."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
from psycopg import sql
from sqlalchemy.orm import Session

ROWS_AT_ONCE = 8192
BYTES_AT_ONCE = 16 * 2**20
# COPY's text format gives these characters a meaning; the backslash comes first, since the others become one.
ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))


def copy_in(session: Session, table: str, rows: pa.Table, *, progress: Callable[[int], None] | None = None) -> None:
    """Append rows to a table, in the session's transaction.

    Parameters
    ----------
    rows : columns are named as the table's. Texts, booleans, numbers, and lists of numbers, which become arrays.
    progress : called with the number of rows sent so far.
    """
    columns = sql.SQL(", ").join(map(sql.Identifier, rows.column_names))
    statement = sql.SQL("COPY {} ({}) FROM STDIN").format(sql.Identifier(table), columns)
    with _driver_connection(session).cursor() as cursor, cursor.copy(statement) as copy:
        for start in range(0, rows.num_rows, ROWS_AT_ONCE):
            part = rows.slice(start, ROWS_AT_ONCE).combine_chunks()
            copy.write(_format_rows(part))
            if progress is not None:
                progress(start + part.num_rows)


def copy_out(session: Session, query: str, schema: pa.Schema, *, parameters: Sequence[Any] = ()) -> pa.Table:
    """Return a query's rows as a table.

    Parameters
    ----------
    query : a SELECT with ``{}`` where a parameter stands, since COPY takes none of its own.
    schema : names and types of the result's columns, as for `copy_in`.
    """
    statement = sql.SQL("COPY ({}) TO STDOUT (FORMAT csv)").format(
        sql.SQL(cast("Any", query)).format(*map(sql.Literal, parameters))
    )
    batches = [_parse_rows(text, schema) for text in _read_texts(session, statement)]
    return pa.Table.from_batches(batches, schema=schema)


def _driver_connection(session: Session) -> psycopg.Connection[Any]:
    return cast("psycopg.Connection[Any]", session.connection().connection.driver_connection)


def _format_rows(rows: pa.Table) -> bytes:
    """Return the rows in COPY's text format, put together by Arrow."""
    columns = [_format_column(column) for column in rows.columns]
    lines = pc.binary_join_element_wise(*columns, "\t", null_handling="replace", null_replacement="\\N")
    ended = pc.binary_join_element_wise(lines, "", "\n").combine_chunks()
    return b"".join(_text_bytes(chunk) for chunk in (ended.chunks if isinstance(ended, pa.ChunkedArray) else [ended]))


def _text_bytes(texts: pa.Array) -> bytes:
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, dtype=np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return bytes(memoryview(data)[ends[0] : ends[-1]])


def _format_column(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_list(column.type):
        values = pc.binary_join(column.cast(pa.list_(pa.string())), ",")
        return pc.binary_join_element_wise("{", values, "}", "")
    if not pa.types.is_string(column.type):
        return column.cast(pa.string())
    for character, escape in ESCAPES:
        column = pc.replace_substring(column, character, escape)
    return column


def _read_texts(session: Session, statement: sql.Composed) -> Iterator[bytes]:
    """Yield the rows in pieces of some megabytes, each of whole rows: the server sends one row a message."""
    gathered = io.BytesIO()
    with _driver_connection(session).cursor() as cursor, cursor.copy(statement) as copy:
        for message in copy:
            gathered.write(message)
            if gathered.tell() >= BYTES_AT_ONCE:
                yield gathered.getvalue()
                gathered = io.BytesIO()
    if gathered.tell():
        yield gathered.getvalue()


def _parse_rows(text: bytes, schema: pa.Schema) -> pa.RecordBatch:
    types = {field.name: pa.string() if pa.types.is_list(field.type) else field.type for field in schema}
    table = pa_csv.read_csv(
        pa.BufferReader(text),
        read_options=pa_csv.ReadOptions(column_names=schema.names, block_size=len(text) + 1, use_threads=False),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    columns = [_parse_column(table[field.name].combine_chunks(), field.type) for field in schema]
    return pa.record_batch(columns, schema=schema)


def _parse_column(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Read arrays as PostgreSQL writes them: ``{1,2,3}``."""
    if not pa.types.is_list(data_type):
        return column
    inner = pc.utf8_slice_codeunits(column, 1, -1)
    n_commas = pc.count_substring(inner, ",").fill_null(0).to_numpy(zero_copy_only=False)
    is_filled = pc.not_equal(inner, "").fill_null(False)
    lengths = np.where(is_filled.to_numpy(zero_copy_only=False), n_commas + 1, 0)
    values = pc.split_pattern(inner.filter(is_filled), ",").flatten().cast(data_type.value_type)
    offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=data_type, mask=column.is_null())
