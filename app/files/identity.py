"""The identity of a snapshot: one SHA-256 over its content, whatever wrote its files."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from app.files.manifest import SNAPSHOT_FORMAT, canonical_manifest

_ROWS_AT_ONCE = 16_384


def hash_content(manifest: dict[str, Any], questions: pa.Table, trajectories: pa.Table) -> str:
    """Return the identity: SHA-256, hexadecimal, of a short text that lists the digests of all content.

    The text has one line for the format, one for the manifest (SHA-256 of its canonical text), and for each table
    one line with its number of rows and one for each column that is not null throughout, in the format's order:
    table, column, the digests of the column's streams. So an absent column equals one of nulls.

    Parameters
    ----------
    manifest : the raw manifest.
    questions, trajectories : tables of canonical types, columns and row order.

    Notes
    -----
    The streams of a column, each hashed by itself: for lists the lengths (int64, -1 for null), then the streams of
    their values; for texts the lengths in bytes (int64, -1 for null), then the UTF-8 bytes; for other columns one byte
    a row (1 present, 0 null), then the present values: integers as int64, booleans as one byte, fractions as float32
    with one NaN (0x7fc00000) and no negative zero. Everything is little-endian. One pass over the content.
    """
    lines = [f"{SNAPSHOT_FORMAT} identity", f"manifest {hashlib.sha256(canonical_manifest(manifest)).hexdigest()}"]
    for name, table in (("questions", questions), ("trajectories", trajectories)):
        lines.append(f"{name} {table.num_rows}")
        for column_name, column in zip(table.column_names, table.columns, strict=True):
            if column.null_count < len(column):
                lines.append(f"{name}.{column_name} {' '.join(_hash_column(column))}")
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def _hash_column(column: pa.ChunkedArray) -> list[str]:
    streams: list[Any] = []
    for start in range(0, len(column), _ROWS_AT_ONCE):
        for chunk in column.slice(start, _ROWS_AT_ONCE).chunks:
            _feed(chunk, streams, level=0)
    return [stream.hexdigest() for stream in streams]


def _feed(array: pa.Array, streams: list[Any], *, level: int) -> None:
    """Append an array to the streams of its level and below."""
    while len(streams) < level + 2:
        streams.append(hashlib.sha256())
    structure = streams[level]
    if pa.types.is_list(array.type):
        structure.update(_little_endian(pc.list_value_length(array).fill_null(-1), "<i8"))
        _feed(array.flatten(), streams, level=level + 1)
    elif pa.types.is_string(array.type):
        structure.update(_little_endian(pc.binary_length(array).fill_null(-1), "<i8"))
        streams[level + 1].update(_text_bytes(array.drop_null()))
    else:
        structure.update(_little_endian(array.is_valid(), "u1"))
        streams[level + 1].update(_value_bytes(array.drop_null()))


def _value_bytes(array: pa.Array) -> bytes:
    if pa.types.is_boolean(array.type):
        return _little_endian(array, "u1")
    if pa.types.is_integer(array.type):
        return _little_endian(array, "<i8")
    values = array.to_numpy(zero_copy_only=False).astype("<f4") + np.float32(0)  # -0.0 + 0 is 0.0
    values[np.isnan(values)] = np.float32(np.nan)
    return bytes(values.data)


def _text_bytes(array: pa.Array) -> bytes:
    """Return the bytes of all texts one after the other; an array without nulls keeps them so already."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return b""
    ends = np.frombuffer(offsets, dtype=np.int32)[array.offset : array.offset + len(array) + 1]
    return bytes(memoryview(data)[ends[0] : ends[-1]])


def _little_endian(array: pa.Array, dtype: str) -> bytes:
    return bytes(array.to_numpy(zero_copy_only=False).astype(dtype).data)
