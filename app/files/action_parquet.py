"""Reading Parquet action files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from app.evaluator.strategies import Strategy
from app.files.action_columns import RowBatch
from app.files.action_layout import Layout, check_column_names, refuse_repeated_names
from app.files.action_problems import ActionProblems
from app.files.action_streams import Progress, ReadLimits
from app.files.parquet_pages import DamagedPageError, list_pages

MAX_PAGE_BYTES = 128 << 20
_BATCH_ROWS = 1 << 17
_BATCH_BYTES = 256 << 20


def read_parquet_batches(
    path: Path, *, strategy: Strategy, problems: ActionProblems, limits: ReadLimits, progress: Progress | None
) -> Iterator[RowBatch]:
    """Yield the rows of a Parquet file, numbered from 1.

    Texts stay dictionary-encoded, so that a long text of many rows is held once; the file is mapped, not loaded; and
    what its pages claim to unpack to decides how many rows are read at a time.
    """
    with _damage_reported(problems), pa.memory_map(str(path), "rb") as mapped:
        metadata = pq.read_metadata(mapped)
        if metadata.num_rows > limits.max_rows:
            message = (
                f"the file has {metadata.num_rows:,} rows, more than every setting of every unit can take; "
                "its rows were not read"
            )
            problems.stop("unreadable_file", message)
        names = metadata.schema.to_arrow_schema().names
        refuse_repeated_names(names, row=None, problems=problems)
        layout = check_column_names(names, strategy, problems=problems, row=None)
        columns = _find_columns(metadata, layout)
        texts = [name for name, physical_type in columns.items() if physical_type == "BYTE_ARRAY"]
        batch_rows = _choose_batch_rows(mapped, list(columns), problems)
        file = pq.ParquetFile(mapped, metadata=metadata, pre_buffer=False, read_dictionary=texts)
        yield from _read_batches(file, layout, list(columns), batch_rows=batch_rows, progress=progress)


def _find_columns(metadata: pq.FileMetaData, layout: Layout) -> dict[str, str]:
    """Return the physical type of each usable column; lists and structs are left out, their values never looked at."""
    leaves = [metadata.schema.column(idx) for idx in range(metadata.num_columns)]
    usable = set(layout.name_in_file.values())
    return {leaf.path: leaf.physical_type for leaf in leaves if leaf.path in usable and leaf.max_repetition_level == 0}


def _choose_batch_rows(mapped: pa.MemoryMappedFile, names: list[str], problems: ActionProblems) -> int:
    """Return how many rows to read at a time so that a batch stays within bounds even if its texts are huge."""
    mapped.seek(0)
    data = memoryview(mapped.read_buffer()).cast("B")
    bytes_per_row = 1
    for page in list_pages(data, names):
        if page.n_bytes > MAX_PAGE_BYTES:
            message = f"a page unpacks to {page.n_bytes:,} bytes; write pages of at most {MAX_PAGE_BYTES:,}"
            problems.stop("unreadable_file", message, column=page.column)
        if page.n_values:
            bytes_per_row = max(bytes_per_row, page.n_bytes // page.n_values)
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // bytes_per_row))


def _read_batches(
    file: pq.ParquetFile, layout: Layout, names: list[str], *, batch_rows: int, progress: Progress | None
) -> Iterator[RowBatch]:
    types = {field.name: field.type for field in file.schema_arrow}
    n_rows, first = max(file.metadata.num_rows, 1), 1
    for batch in file.iter_batches(batch_size=batch_rows, columns=names):
        columns = {
            column: check_indices(batch.column(name)) if name in names else pa.nulls(batch.num_rows, types[name])
            for column, name in layout.name_in_file.items()
        }
        yield RowBatch(np.arange(first, first + batch.num_rows, dtype=np.int64), columns)
        first += batch.num_rows
        if progress is not None:
            progress(min((first - 1) / n_rows, 1.0))


def check_indices(array: pa.Array) -> pa.Array:
    """Return the array; a damaged page may refer to texts that its dictionary does not have."""
    if pa.types.is_dictionary(array.type) and len(array):
        bounds = pc.min_max(array.indices).as_py()
        if bounds["max"] is not None and not 0 <= bounds["min"] <= bounds["max"] < len(array.dictionary):
            raise pa.ArrowInvalid("a row refers to a text that is not there")
    return array


@contextmanager
def _damage_reported(problems: ActionProblems) -> Iterator[None]:
    """Turn the library's complaints about the content into a problem of the file; those of the disk stay errors."""
    try:
        yield
    except (OSError, pa.ArrowException, DamagedPageError, UnicodeDecodeError) as exc:
        if getattr(exc, "errno", None) is not None:
            raise
        reason = str(exc).splitlines()[0][:160] if str(exc) else type(exc).__name__
        problems.stop("unreadable_file", f"the Parquet data are damaged, cut off or of an unknown kind ({reason})")
