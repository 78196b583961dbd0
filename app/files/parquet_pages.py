"""The page headers of a Parquet file: how much memory reading a column would take, known before it is read.

Parquet's metadata says how large a column is, but the reader allocates what each page's own header says, up to two
gigabytes a page. Metadata and headers are Thrift structs (compact protocol) and are read here without the pages. They
are not taken from Arrow, which aborts the whole process at some damaged column metadata (seen with version 26).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

MAX_METADATA_BYTES = 16 << 20
_STOP, _TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _STRUCT = 0, 1, 2, 3, 7, 8, 9, 12
_INTEGERS = (4, 5, 6)
_MAX_DEPTH = 16
_TAIL_BYTES = 8
# Field numbers of the format's Thrift definition.
_FILE_ROW_GROUPS, _GROUP_COLUMNS, _COLUMN_METADATA = 4, 1, 3
_PATH, _COMPRESSED_BYTES, _DATA_OFFSET, _DICTIONARY_OFFSET = 3, 7, 9, 11
_PAGE_BYTES, _PAGE_COMPRESSED_BYTES, _DATA_PAGE, _DATA_PAGE_V2, _N_VALUES = 2, 3, 5, 8, 1

Fields = dict[int, "int | bytes | list[object] | Fields | None"]


class DamagedPageError(ValueError):
    """The file's metadata or a page header cannot be read."""


@dataclass(frozen=True)
class Page:
    """A page of a column: bytes once decompressed, and values (nulls included; 0 for a dictionary)."""

    column: str
    n_bytes: int
    n_values: int


def list_pages(data: memoryview, columns: Collection[str]) -> Iterator[Page]:
    """Yield the pages of some columns, by name (inside a list or struct: joined by points).

    Parameters
    ----------
    data : the whole file, unsigned bytes; as mapped, nothing but metadata and headers is touched.

    Raises
    ------
    DamagedPageError : what should be metadata or a header is not.

    Notes
    -----
    About 20 µs a page; writers put some 20,000 values on one.
    """
    for chunk in _list_chunks(data):
        path = chunk.get(_PATH)
        name = ".".join(_decode(part) for part in path) if isinstance(path, list) else ""
        if name in columns:
            yield from _list_chunk_pages(data, chunk, name)


def _list_chunks(data: memoryview) -> Iterator[Fields]:
    """Yield the metadata of each column of each row group."""
    size = int.from_bytes(data[-_TAIL_BYTES:-4], "little")
    start = len(data) - _TAIL_BYTES - size
    if start < 4:
        raise DamagedPageError("the metadata are longer than the file")
    if size > MAX_METADATA_BYTES:
        raise DamagedPageError(f"the metadata take {size:,} bytes; write larger row groups")
    file = _CompactReader(data[: len(data) - _TAIL_BYTES], start).read_struct(0)
    for group in _list_structs(file.get(_FILE_ROW_GROUPS)):
        for column in _list_structs(group.get(_GROUP_COLUMNS)):
            metadata = column.get(_COLUMN_METADATA)
            if not isinstance(metadata, dict):
                raise DamagedPageError("a column without metadata")
            yield metadata


def _list_chunk_pages(data: memoryview, chunk: Fields, name: str) -> Iterator[Page]:
    position, dictionary = _take_size(chunk, _DATA_OFFSET), chunk.get(_DICTIONARY_OFFSET)
    if isinstance(dictionary, int) and 0 < dictionary < position:
        position = dictionary
    end = min(position + _take_size(chunk, _COMPRESSED_BYTES), len(data))
    while position < end:
        reader = _CompactReader(data, position)
        header = reader.read_struct(0)
        inner = header.get(_DATA_PAGE, header.get(_DATA_PAGE_V2))
        n_values = _take_size(inner, _N_VALUES) if isinstance(inner, dict) else 0
        yield Page(name, _take_size(header, _PAGE_BYTES), n_values)
        position = reader.position + _take_size(header, _PAGE_COMPRESSED_BYTES)


def _take_size(fields: Fields, number: int) -> int:
    value = fields.get(number)
    if not isinstance(value, int) or value < 0:
        raise DamagedPageError("a size or place that is missing or negative")
    return value


def _list_structs(value: object) -> Iterator[Fields]:
    for item in value if isinstance(value, list) else ():
        if not isinstance(item, dict):
            raise DamagedPageError("a list of another kind than it should be")
        yield item


def _decode(part: object) -> str:
    return part.decode(errors="replace") if isinstance(part, bytes) else ""


class _CompactReader:
    """Reads structs in Thrift's compact protocol as dicts of their field numbers; floats are skipped."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data = data
        self.position = position

    def read_struct(self, depth: int) -> Fields:
        if depth > _MAX_DEPTH:
            raise DamagedPageError("structs nested too deeply")
        fields: Fields = {}
        number = 0
        while (head := self._read_byte()) != _STOP:
            delta, kind = head >> 4, head & 15
            number = number + delta if delta else self._read_integer()
            # A boolean field has its value in its kind; one of a list takes a byte.
            fields[number] = int(kind == _TRUE) if kind in (_TRUE, _FALSE) else self._read_value(kind, depth)
        return fields

    def _read_value(self, kind: int, depth: int) -> int | bytes | list[object] | Fields | None:
        if kind in _INTEGERS:
            return self._read_integer()
        if kind == _STRUCT:
            return self.read_struct(depth + 1)
        if kind == _BINARY:
            return self._read_bytes(self._read_varint())
        if kind == _LIST:
            return self._read_list(depth + 1)
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._read_byte()
        if kind == _DOUBLE:
            self._read_bytes(8)
            return None
        raise DamagedPageError(f"a value of kind {kind}")

    def _read_list(self, depth: int) -> list[object]:
        if depth > _MAX_DEPTH:
            raise DamagedPageError("lists nested too deeply")
        head = self._read_byte()
        size, kind = head >> 4, head & 15
        if size == 15:
            size = self._read_varint()
        if size > len(self._data) - self.position:
            raise DamagedPageError("a list longer than the file")
        return [self._read_value(kind, depth) for _ in range(size)]

    def _read_byte(self) -> int:
        if self.position >= len(self._data):
            raise DamagedPageError("a struct past the file's end")
        value = self._data[self.position]
        self.position += 1
        return value

    def _read_bytes(self, size: int) -> bytes:
        end = self.position + size
        if end > len(self._data):
            raise DamagedPageError("a text past the file's end")
        value = bytes(self._data[self.position : end])
        self.position = end
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
                raise DamagedPageError("a number that is too long")

    def _read_integer(self) -> int:
        value = self._read_varint()
        return (value >> 1) ^ -(value & 1)
