"""Reading an action file's bytes: what kind of file it is, decompression within bounds, blocks of whole lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
import pyarrow as pa

from app.files.action_problems import ActionProblems

Progress = Callable[[float], None]

BLOCK_BYTES = 4 << 20
MAX_LINE_BYTES = 1 << 20
# What a row of an honest file takes at most, on average; decompressed text beyond that is not read.
MAX_BYTES_PER_ROW = 512
# Line numbers are kept in 32 bits; a block may pass the limit by as many lines as it has bytes.
MAX_LINES = 2**32 - 1 - 2 * BLOCK_BYTES
# Rows beyond every setting of every unit, read so that the faults of a file that is a little too long are all listed.
SPARE_ROWS = 100_000
_SNIFFED_BYTES = 4096
_UTF8_MARK = b"\xef\xbb\xbf"
_PARQUET_MARK = b"PAR1"
_COMPRESSIONS = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_FOREIGN_MARKS = {
    b"PK\x03\x04": "a zip archive or a spreadsheet workbook; save the table as CSV",
    b"PK\x05\x06": "an empty zip archive",
    b"\xd0\xcf\x11\xe0": "an old spreadsheet workbook; save the table as CSV",
    b"BZh": "compressed with bzip2; use gzip or zstd",
    b"\xfd7zXZ": "compressed with xz; use gzip or zstd",
    b"7z\xbc\xaf": "a 7z archive; use gzip or zstd",
    b"ARROW1": "an Arrow or Feather file; write Parquet",
    b"PARE": "an encrypted Parquet file",
    b"\x89HDF": "an HDF5 file; write Parquet",
    b"\x93NUMPY": "a NumPy array; write Parquet or CSV",
    b"SQLite format": "an SQLite database; write Parquet or CSV",
    b"\x80\x04\x95": "a pickle; write Parquet or CSV",
    b"\x80\x05\x95": "a pickle; write Parquet or CSV",
    b"%PDF": "a PDF",
}


class FileKind(Enum):
    """The three formats of action files."""

    CSV = "CSV"
    JSON_LINES = "JSON Lines"
    PARQUET = "Parquet"


@dataclass(frozen=True)
class ReadLimits:
    """Where reading stops whatever the file says, so that a decompression bomb fills neither memory nor time."""

    max_rows: int

    @property
    def max_bytes(self) -> int:
        """Bytes of decompressed text."""
        return self.max_rows * MAX_BYTES_PER_ROW

    @property
    def max_lines(self) -> int:
        """Lines of text, blank ones included: some programs write one after every row."""
        return min(self.max_rows * 4, MAX_LINES)


@dataclass(frozen=True)
class LineBlock:
    """Whole lines of a text file; `first_line` is the number of the first, from 1. A last line may lack its end."""

    data: bytes
    first_line: int


class ByteSource:
    """An action file's decompressed bytes, read in pieces."""

    def __init__(self, path: Path, *, problems: ActionProblems, limits: ReadLimits, progress: Progress | None) -> None:
        self._problems = problems
        self._limits = limits
        self._progress = progress
        self._size = max(path.stat().st_size, 1)
        self._raw = pa.OSFile(str(path), "rb")
        head = self._raw.read(_SNIFFED_BYTES)
        self._raw.seek(0)
        self._compression = next((name for mark, name in _COMPRESSIONS.items() if head.startswith(mark)), None)
        self._stream = pa.CompressedInputStream(self._raw, self._compression) if self._compression else self._raw
        self._n_read = 0

    @property
    def compression(self) -> str | None:
        """Return "gzip", "zstd" or None."""
        return self._compression

    @property
    def max_lines(self) -> int:
        """Return how many lines are read at most."""
        return self._limits.max_lines

    def read(self, n_bytes: int) -> bytes:
        """Return the next bytes, fewer at the end; never more than `n_bytes` whatever the compression ratio.

        Raises
        ------
        ReadingStopped : the compressed data are damaged or cut off, or there is more text than any valid file has.
        OSError : the disk failed, which is not the file's fault.
        """
        try:
            data: bytes = self._stream.read(n_bytes)
        except (OSError, pa.ArrowException) as exc:
            if getattr(exc, "errno", None) is not None:
                raise
            reason = str(exc).splitlines()[0][:120] if str(exc) else type(exc).__name__
            self._problems.stop("unreadable_file", f"the {self._compression} data are damaged or cut off ({reason})")
        self._n_read += len(data)
        if self._n_read > self._limits.max_bytes:
            message = (
                f"the file holds more than {self._limits.max_bytes:,} bytes of text, more than every setting of every "
                "unit can take; reading stopped there and the totals are those of the part that was read"
            )
            self._problems.stop("unreadable_file", message)
        if self._progress is not None:
            self._progress(min(self._raw.tell() / self._size, 1.0))
        return data

    def close(self) -> None:
        """Close the file."""
        if self._stream is not self._raw:
            self._stream.close()
        self._raw.close()


def find_kind(path: Path, *, filename: str, problems: ActionProblems, limits: ReadLimits) -> FileKind:
    """Tell the format from the content; the name decides only where the content leaves it open.

    Raises
    ------
    ReadingStopped : the content is of no format that is read; the recorded problem says what it is.
    """
    source = ByteSource(path, problems=problems, limits=limits, progress=None)
    try:
        head, compression = source.read(_SNIFFED_BYTES), source.compression
    finally:
        source.close()
    if not head:
        problems.stop("empty_file", "the file is empty")
    if head.startswith(_PARQUET_MARK) and compression is None:
        return FileKind.PARQUET
    _refuse_foreign(head, compression, problems)
    suffixes = [suffix.lower() for suffix in Path(filename).suffixes]
    if ".parquet" in suffixes[-1:]:
        problems.stop("unreadable_file", "the file is named .parquet but its content is not Parquet")
    text = head.removeprefix(_UTF8_MARK).lstrip()
    if text.startswith(b"["):
        message = (
            "the file is one JSON array; write JSON Lines instead: one object a line, no brackets or commas between"
        )
        problems.stop("unreadable_file", message, row=1)
    if text.startswith(b"{") or (text and {".jsonl", ".ndjson"} & set(suffixes[-2:])):
        return FileKind.JSON_LINES
    return FileKind.CSV


def _refuse_foreign(head: bytes, compression: str | None, problems: ActionProblems) -> None:
    if compression is not None:
        if head.startswith(_PARQUET_MARK):
            problems.stop("unreadable_file", f"a Parquet file must not be compressed again with {compression}")
        if any(head.startswith(mark) for mark in _COMPRESSIONS):
            problems.stop("unreadable_file", "the file is compressed twice")
    for mark, what in _FOREIGN_MARKS.items():
        if head.startswith(mark):
            problems.stop("unreadable_file", f"the file is {what}")
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        problems.stop("unreadable_file", "the text is UTF-16; save the file as UTF-8", row=1)
    if b"\x00" in head:
        problems.stop("unreadable_file", "the file has NUL bytes: it is binary or UTF-16 text; save it as UTF-8", row=1)


def read_line_blocks(source: ByteSource, *, problems: ActionProblems) -> Iterator[LineBlock]:
    """Yield the text in blocks of whole lines; lines end in LF or CRLF, without regard to quotation marks."""
    return _cut_blocks(source, problems=problems, find_end=_find_line_end)


def read_record_blocks(source: ByteSource, *, problems: ActionProblems) -> Iterator[LineBlock]:
    """Yield the text in blocks of whole CSV records: a line end between quotation marks does not end a block."""
    return _cut_blocks(source, problems=problems, find_end=_find_record_end)


def _cut_blocks(
    source: ByteSource, *, problems: ActionProblems, find_end: Callable[[bytes], int]
) -> Iterator[LineBlock]:
    rest = source.read(BLOCK_BYTES).removeprefix(_UTF8_MARK)
    line = 1
    while rest:
        end = find_end(rest)
        if end:
            block, rest = rest[:end], rest[end:]
            n_lines = block.count(b"\n")
            if line + n_lines > source.max_lines:
                message = f"the file has more than {source.max_lines:,} lines; reading stopped there"
                problems.stop("unreadable_file", message)
            if not block.isspace():
                yield LineBlock(block, line)
            line += n_lines
        if len(rest) > MAX_LINE_BYTES:
            message = f"the row is longer than {MAX_LINE_BYTES:,} bytes (a quotation mark that is never closed?)"
            problems.stop("unreadable_file", message, row=line)
        more = source.read(BLOCK_BYTES)
        if not more:
            break
        rest += more
    if rest and not rest.isspace():
        yield LineBlock(rest, line)


def _find_line_end(data: bytes) -> int:
    return data.rfind(b"\n") + 1


def _find_record_end(data: bytes) -> int:
    """Return where the last record that ends in the data ends; the data begin outside quotation marks."""
    end = _find_line_end(data)
    if b'"' not in data:
        return end
    octets = np.frombuffer(data, dtype=np.uint8)
    quotes, line_ends = np.flatnonzero(octets == ord('"')), np.flatnonzero(octets == ord("\n"))
    outside = line_ends[np.searchsorted(quotes, line_ends) % 2 == 0]
    return int(outside[-1]) + 1 if len(outside) else 0
