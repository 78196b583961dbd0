"""Totals beyond the examples, too many settings or rows, and files made to fill memory."""

from __future__ import annotations

import gzip
import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from app.evaluator.strategies import Strategy
from app.files import action_parquet
from app.files.actions import ActionFileError
from app.files.parquet_pages import DamagedPageError, list_pages

DR, FB, DEE = Strategy.DYNAMIC_ROUTING, Strategy.FIXED_BUDGET, Strategy.DYNAMIC_EARLY_EXIT


def fail(read, data, strategy, **options):
    with pytest.raises(ActionFileError) as caught:
        read(data, strategy, **options)
    return caught.value


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_totals_are_exact_beyond_a_hundred_examples(suffix, read, make_rows, encode):
    rows = make_rows(FB, settings=range(40))
    for idx, row in enumerate(rows):
        if idx % 2:
            row["action"] = "x" if suffix == ".jsonl" else 0.5
        elif idx % 4 == 0:
            row["action"] = -1 - idx

    error = fail(read, encode(rows, suffix), FB, name=f"a{suffix}")

    assert {p.code: p.count for p in error.problems} == {"not_an_integer": 200, "action_out_of_range": 100}
    assert len(error.problems) == 100
    assert sum(p.code == "action_out_of_range" for p in error.problems) == 50
    assert error.detail == "the action file has 300 problems: 200 not_an_integer, 100 action_out_of_range"


def test_a_common_fault_does_not_hide_a_rare_one(read, make_rows, encode):
    rows = make_rows(DR, settings=range(100))
    for row in rows[:-1]:
        row["question_id"] = "gone"
    rows[-1]["model"] = "Small"

    error = fail(read, encode(rows, ".csv"), DR)

    assert [(p.code, p.row, p.count) for p in error.problems][:1] == [("unknown_model", 1001, 1)]
    assert {p.count for p in error.problems if p.code == "unknown_question"} == {999}


def test_different_faults_are_shown_before_the_same_one_again(read, make_rows, encode):
    rows = make_rows(DR, settings=range(30))
    for row in rows[:299]:
        row["question_id"] = "gone"
    rows[299]["question_id"] = "lost"

    error = fail(read, encode(rows, ".csv"), DR)

    shown = [(p.row, "lost" in p.message) for p in error.problems if p.code == "unknown_question"]
    assert len(shown) == 100
    assert shown[-1] == (301, True)
    assert [row for row, _ in shown[:98]] == list(range(2, 100))


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_a_setting_too_many_is_named_with_its_first_row(suffix, read, make_rows, encode):
    data = encode(make_rows(DR, settings=["a", "b", "c", "d"]), suffix)

    error = fail(read, data, DR, name=f"a{suffix}", max_settings=2)

    row = 21 + (suffix == ".csv")
    assert [(p.code, p.row, p.column, p.count) for p in error.problems] == [("too_many_settings", row, "setting", 1)]
    assert error.problems[0].message == "the file has 4 settings; at most 2 are allowed"


def test_as_many_settings_as_allowed_are_read(read, make_rows, encode):
    file = read(encode(make_rows(DR, settings=range(256)), ".csv"), DR)

    assert file.table.settings == tuple(str(i) for i in range(256))
    assert all(cell.covered.all() for cell in file.table.cells)


def test_a_label_in_every_row_ends_the_reading(read):
    lines = ["model,benchmark,question_id,setting,action"]
    lines += [f"Large-14B,AIME,aime-2,{i / 7},0" for i in range(60_000)]

    error = fail(read, "\n".join(lines).encode(), DR)

    assert [p.code for p in error.problems] == ["too_many_settings"]
    assert error.problems[0].message == "the file has at least 10,257 settings; at most 256 are allowed"


def test_the_same_row_for_ever_ends_the_reading(read):
    # Ten units, 256 settings: 102,560 rows are read and no more, though there are five times as many.
    data = b"model,benchmark,question_id,action\n" + b"Large-14B,AIME,aime-2,0\n" * 500_000

    error = fail(read, gzip.compress(data, 1), DR, name="a.csv.gz")

    totals = {p.code: p.count for p in error.problems}
    assert totals["unreadable_file"] == 1
    # The block in which the limit is passed is the last one.
    assert 102_559 <= totals["duplicate_unit"] < 200_000
    assert "more than 102,560 rows" in error.problems[0].message


@pytest.mark.parametrize("name", ["a.csv.zst", "a.jsonl.zst"])
def test_a_line_without_end_ends_the_reading(name, read):
    start = b"model,benchmark,question_id,action\n" if ".csv" in name else b'{"model": "'

    error = fail(read, zstandard.compress(start + b"x" * 10_000_000), DR, name=name)

    assert error.problems[0].code == "unreadable_file"
    assert "longer than 1,048,576 bytes" in error.problems[0].message


def test_blank_lines_without_end_end_the_reading(read):
    error = fail(read, zstandard.compress(b"model,benchmark,question_id,action\n" + b"\n" * 10_000_000), DR)

    assert [p.code for p in error.problems] == ["unreadable_file"]
    assert "more than 410,240 lines" in error.problems[0].message


def test_a_parquet_file_of_too_many_rows_is_not_read(read):
    sink = io.BytesIO()
    pq.write_table(pa.table({"model": pa.array(["Large-14B"] * 200_000).dictionary_encode()}), sink)

    error = fail(read, sink.getvalue(), DR, name="a.parquet")

    assert [p.code for p in error.problems] == ["unreadable_file"]
    assert "200,000 rows" in error.problems[0].message


def test_a_parquet_page_that_unpacks_to_too_much_is_not_read(read, make_rows, monkeypatch):
    # An honest limit would need a page of 128 megabytes here; the rule is the same for a small one.
    monkeypatch.setattr(action_parquet, "MAX_PAGE_BYTES", 100_000)
    columns = {name: pa.array([row[name] for row in make_rows(DR)]) for name in make_rows(DR)[0]}
    columns["model"] = pa.array(["x" * 200_000] * 10)
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, compression="zstd")

    error = fail(read, sink.getvalue(), DR, name="a.parquet")

    assert len(sink.getvalue()) < 100_000
    assert [(p.code, p.column) for p in error.problems] == [("unreadable_file", "model")]
    assert "unpacks to 200,004 bytes" in error.problems[0].message


def test_long_texts_are_read_a_few_rows_at_a_time(read, make_rows, monkeypatch):
    # With a bound of a kilobyte a batch, rows of half a kilobyte come two at a time and are numbered on.
    monkeypatch.setattr(action_parquet, "_BATCH_BYTES", 1024)
    rows = make_rows(DR)
    columns = {name: pa.array([row[name] for row in rows]) for name in rows[0]}
    columns["question_id"] = pa.array(["q" * 500 + str(i) for i in range(10)])
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, use_dictionary=False)

    error = fail(read, sink.getvalue(), DR, name="a.parquet")

    assert [(p.code, p.row) for p in error.problems] == [("unknown_question", row) for row in range(1, 11)]


@pytest.mark.parametrize("options", [{}, {"use_dictionary": False}, {"data_page_version": "2.0"}], ids=str)
def test_pages_are_listed_as_they_were_written(options):
    columns = {"a": pa.array(np.arange(5000)), "b": pa.array(["x", None] * 2500), "c": pa.array([[1.5], []] * 2500)}
    sink = io.BytesIO()
    pq.write_table(
        pa.table(columns), sink, data_page_size=1000, write_batch_size=100, row_group_size=2500, write_page_index=True,
        **options
    )  # fmt: skip
    metadata = pq.read_metadata(io.BytesIO(sink.getvalue()))
    chunks = [metadata.row_group(group_idx).column(column_idx) for group_idx in range(2) for column_idx in range(3)]

    for name in ("a", "b", "c.list.element"):
        pages = list(list_pages(memoryview(sink.getvalue()), [name]))
        assert {page.column for page in pages} == {name}
        assert sum(page.n_values for page in pages) == sum(c.num_values for c in chunks if c.path_in_schema == name)
        # A column's size counts the headers too, which take some bytes each.
        size = sum(chunk.total_uncompressed_size for chunk in chunks if chunk.path_in_schema == name)
        assert 0 < size - sum(page.n_bytes for page in pages) < 120 * len(pages)


@pytest.mark.parametrize(
    ("place", "octets"),
    [
        (slice(4, 40), b"\xff" * 36),
        (slice(4, 40), b"\x1c" * 36),
        (slice(-8, -4), b"\xff\xff\xff\x7f"),
        (slice(-60, -8), b"\x19" * 52),
    ],
    ids=["numbers too long", "structs too deep", "metadata too long", "lists too deep"],
)
def test_headers_that_are_none_are_named(place, octets):
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2, 3]}), sink)
    data = bytearray(sink.getvalue())
    data[place] = octets

    with pytest.raises(DamagedPageError):
        list(list_pages(memoryview(data), ["a"]))


def test_metadata_at_which_arrow_aborts_are_damage(read, make_rows):
    # Found by changing random bytes: a statistic whose size is wrong made Arrow end the process, not raise, when the
    # metadata of the column were asked for. Each byte of the schema, with which the metadata begin, is changed here.
    rows = make_rows(DR)
    sink = io.BytesIO()
    pq.write_table(pa.table({name: pa.array([row[name] for row in rows]) for name in rows[0]}), sink)
    data = bytearray(sink.getvalue())
    size = int.from_bytes(data[-8:-4], "little")

    n_refused = 0
    for place in range(len(data) - 8 - size, len(data) - 8 - size + 100):
        damaged = bytearray(data)
        damaged[place] ^= 0x15
        try:
            read(bytes(damaged), DR, name="a.parquet")
        except ActionFileError:
            n_refused += 1

    assert n_refused > 50


def test_a_file_of_a_thousand_columns_is_not_read(read):
    error = fail(read, ",".join(f"c{i}" for i in range(1001)).encode(), DR)

    assert [p.message for p in error.problems] == ["the file has 1,001 columns"]


def test_names_without_end_in_json_lines_end_the_reading(read, make_rows, encode):
    rows = make_rows(DR)
    lines = [json.dumps(rows[0])] + [json.dumps(rows[1] | {f"n{i}": 1}) for i in range(500)]

    error = fail(read, "\n".join(lines).encode(), DR, name="a.jsonl")

    totals = {p.code: p.count for p in error.problems}
    assert totals["unknown_column"] == 200
    assert totals["unreadable_file"] == 1


def test_an_index_past_the_dictionary_is_damage():
    damaged = pa.DictionaryArray.from_arrays(pa.array([0, 1, None]), pa.array(["a"]), safe=False)

    with pytest.raises(pa.ArrowInvalid, match="a text that is not there"):
        action_parquet.check_indices(damaged)
