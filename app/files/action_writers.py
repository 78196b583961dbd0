"""Writing action files: Parquet, CSV and JSON Lines, a few hundred thousand rows at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq

from app.errors import ContentError
from app.evaluator.measurements import Cell, Measurements
from app.evaluator.strategies import ActionTable, Strategy, n_units
from app.files.atomic import replaced_file

SUFFIXES = (".parquet", ".csv", ".csv.gz", ".csv.zst", ".jsonl", ".jsonl.gz")
_BATCH_ROWS = 1 << 18
_SPECIAL = re.compile(r'[",\r\n]|^\s|\s$|^$')
_TEXT = pa.dictionary(pa.int32(), pa.string())


class UnknownSuffixError(ContentError):
    """The name of the file to write says none of the formats."""

    code = "unknown_suffix"
    title = "The file name says no known format"


def write_actions(path: Path, table: ActionTable, measurements: Measurements) -> None:
    """Write an action file, its format said by the suffix: .parquet, .csv, .csv.gz, .csv.zst, .jsonl or .jsonl.gz.

    One row per covered unit and setting, by setting, then cell, then unit; the column `setting` is always there. The
    file appears whole or not at all and replaces one of that name. The same table gives the same bytes.

    Parameters
    ----------
    table : its cells are those of `measurements`.
    measurements : the split that the table was made for.

    Raises
    ------
    UnknownSuffixError : another suffix.
    OutputFailedError : the file cannot be written.
    ValueError : the table's cells are not those of the measurements.
    """
    suffix = _find_suffix(path)
    if len(table.cells) != len(measurements.cells):
        raise ValueError(f"a table of {len(table.cells)} cells for measurements of {len(measurements.cells)}")
    schema = _make_schema(table.strategy)
    batches = _merge_batches(_list_batches(table, measurements.cells, schema), schema)
    with replaced_file(path) as temporary:
        if suffix == ".parquet":
            _write_parquet(temporary, batches, schema)
        else:
            _write_text(temporary, batches, schema, suffix=suffix)


def _find_suffix(path: Path) -> str:
    name = path.name.lower()
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), None)
    if suffix is None:
        raise UnknownSuffixError(f"{path.name} ends in none of {', '.join(SUFFIXES)}")
    return suffix


def _make_schema(strategy: Strategy) -> pa.Schema:
    trajectory = [("trajectory", pa.int32())] if strategy.unit_is_trajectory else []
    keys = [(name, _TEXT) for name in ("model", "benchmark", "question_id")]
    return pa.schema([*keys, *trajectory, ("setting", _TEXT), ("action", pa.int64())])


def _list_batches(table: ActionTable, cells: Sequence[Cell], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    keys = [_list_keys(cell, table.strategy) for cell in cells]
    for setting_idx, label in enumerate(table.settings):
        for cell, cell_keys, given in zip(cells, keys, table.cells, strict=True):
            if given.covered[setting_idx]:
                setting = _repeat_text(label, n_units(cell, table.strategy))
                yield pa.record_batch([*cell_keys, setting, pa.array(given.actions[setting_idx])], schema=schema)


def _list_keys(cell: Cell, strategy: Strategy) -> list[pa.Array]:
    """Return the columns that name the units of a cell."""
    per_question = cell.trajectories_per_question if strategy.unit_is_trajectory else 1
    size = n_units(cell, strategy)
    question = np.repeat(np.arange(cell.n_questions, dtype=np.int32), per_question)
    keys = [
        _repeat_text(cell.model, size),
        _repeat_text(cell.benchmark, size),
        pa.DictionaryArray.from_arrays(pa.array(question), pa.array(cell.question_ids, type=pa.string())),
    ]
    if strategy.unit_is_trajectory:
        keys.append(pa.array(np.tile(np.arange(per_question, dtype=np.int32), cell.n_questions)))
    return keys


def _repeat_text(text: str, size: int) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(size, dtype=np.int32)), pa.array([text]))


def _merge_batches(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.Table]:
    """Join small batches: a file of many settings of a small cell would be all overhead otherwise."""
    waiting: list[pa.RecordBatch] = []
    n_rows = 0
    for batch in batches:
        waiting.append(batch)
        n_rows += batch.num_rows
        if n_rows >= _BATCH_ROWS:
            yield pa.Table.from_batches(waiting, schema)
            waiting, n_rows = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting, schema)


def _write_parquet(path: Path, tables: Iterator[pa.Table], schema: pa.Schema) -> None:
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table.unify_dictionaries())


def _write_text(path: Path, tables: Iterator[pa.Table], schema: pa.Schema, *, suffix: str) -> None:
    compression = {".gz": "gzip", ".zst": "zstd"}.get(Path(suffix).suffix)
    with pa.OSFile(str(path), "wb") as raw:
        stream = pa.CompressedOutputStream(raw, compression) if compression else raw
        if suffix.startswith(".csv"):
            stream.write((",".join(schema.names) + "\n").encode())
        for table in tables:
            stream.write(_csv_text(table) if suffix.startswith(".csv") else _json_text(table))
        if compression:
            stream.close()


def _csv_text(table: pa.Table) -> pa.Buffer:
    # Arrow's "needed" quotes every text; without marks the file is a third smaller and as safe, if no text needs them.
    texts = [column for column in table.columns if pa.types.is_dictionary(column.type)]
    special = any(_SPECIAL.search(text) for column in texts for text in column.unique().to_pylist())
    sink = pa.BufferOutputStream()
    options = pa.csv.WriteOptions(include_header=False, quoting_style="needed" if special else "none")
    pa.csv.write_csv(_decode(table), sink, write_options=options)
    return sink.getvalue()


def _decode(table: pa.Table) -> pa.Table:
    types = [pa.string() if pa.types.is_dictionary(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(zip(table.column_names, types, strict=True)))


def _json_text(table: pa.Table) -> bytes:
    """Return one object a line, put together column by column."""
    pieces: list[pa.Array | str] = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        pieces.append(f"{', ' if pieces else '{'}{json.dumps(name)}: ")
        pieces.append(_json_values(column.unify_dictionaries().combine_chunks()))
    lines = pc.binary_join_element_wise(*pieces, "}\n", "")
    return "".join(lines.to_pylist()).encode()


def _json_values(column: pa.Array) -> pa.Array:
    if not pa.types.is_dictionary(column.type):
        return column.cast(pa.string())
    texts = pa.array([json.dumps(text, ensure_ascii=False) for text in column.dictionary.to_pylist()], type=pa.string())
    return texts.take(column.indices)
