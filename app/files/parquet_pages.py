"""The page headers of a Parquet file: how much memory reading a column would take, known before it is read.

Parquet's metadata says how large a column is, but the reader allocates what each page's own header says, up to two
gigabytes a page. The headers are small Thrift structs (compact protocol) and are read here without their pages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow.parquet as pq

_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 0, 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_MAX_DEPTH = 8
# Field numbers of a page header; the last two are the headers of data pages, whose field 1 counts their values.
_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE, _DATA_PAGE, _DATA_PAGE_V2 = 2, 3, 5, 8

Fields = dict[int, "int | Fields"]


class DamagedPageError(ValueError):
    """A page header cannot be read."""


@dataclass(frozen=True)
class Page:
    """A page: bytes once decompressed, and values (nulls included; 0 for a dictionary)."""

    n_bytes: int
    n_values: int


def list_pages(data: memoryview, chunk: pq.ColumnChunkMetaData) -> Iterator[Page]:
    """Yield the pages of a column chunk of a file's bytes (as mapped: nothing but the headers is touched).

    Raises
    ------
    DamagedPageError : a header that is not one, or a size that is negative.
    """
    position = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < position:
        position = chunk.dictionary_page_offset
    end = min(position + chunk.total_compressed_size, len(data))
    if position < 0:
        raise DamagedPageError("a page before the file's beginning")
    while position < end:
        reader = _CompactReader(data, position)
        fields = reader.read_struct(0)
        n_bytes, n_stored = fields.get(_UNCOMPRESSED_SIZE), fields.get(_COMPRESSED_SIZE)
        if not isinstance(n_bytes, int) or not isinstance(n_stored, int) or n_bytes < 0 or n_stored < 0:
            raise DamagedPageError("a page header without sizes")
        header = fields.get(_DATA_PAGE, fields.get(_DATA_PAGE_V2, {}))
        n_values = header.get(1, 0) if isinstance(header, dict) else 0
        yield Page(n_bytes, n_values if isinstance(n_values, int) else 0)
        position = reader.position + n_stored


class _CompactReader:
    """Reads the integers of a struct in Thrift's compact protocol and skips the rest."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self.position = position

    def read_struct(self, depth: int) -> Fields:
        if depth > _MAX_DEPTH:
            raise DamagedPageError("a page header nested too deeply")
        fields: Fields = {}
        number = 0
        while (head := self._read_byte()) != _STOP:
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._read_integer()
            value = self._read_value(kind, depth)
            if value is not None:
                fields[number] = value
        return fields

    def _read_value(self, kind: int, depth: int) -> int | Fields | None:
        if kind in (_TRUE, _FALSE):
            return None
        if kind in _INTEGERS:
            return self._read_integer()
        if kind == _STRUCT:
            return self.read_struct(depth + 1)
        if kind == _BYTE:
            self.position += 1
        elif kind == _DOUBLE:
            self.position += 8
        elif kind == _BINARY:
            length = self._read_varint()
            self.position += length
        else:
            # No page header has a list, set or map.
            raise DamagedPageError(f"a page header with a value of kind {kind}")
        return None

    def _read_byte(self) -> int:
        if self.position >= len(self._data):
            raise DamagedPageError("a page header past the file's end")
        value = self._data[self.position]
        self.position += 1
        return value

    def _read_varint(self) -> int:
        value = shift = 0
        while True:
            octet = self._read_byte()
            value |= (octet & 127) << shift
            if octet < 128:
                return value
            shift += 7
            if shift > 63:
                raise DamagedPageError("a number too long in a page header")

    def _read_integer(self) -> int:
        value = self._read_varint()
        return (value >> 1) ^ -(value & 1)
