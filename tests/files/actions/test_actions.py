"""Good action files in every spelling, what is read from them, and what they warn of."""

from __future__ import annotations

import hashlib
import io

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from app.evaluator.measurements import Measurements, build_cell
from app.evaluator.strategies import ActionTable, CellActions, Strategy
from app.files.action_writers import UnknownSuffixError
from app.files.actions import ActionFileError, read_actions, write_actions
from app.files.snapshot import load_measurements, read_snapshot

DR, FB, DEE = Strategy.DYNAMIC_ROUTING, Strategy.FIXED_BUDGET, Strategy.DYNAMIC_EARLY_EXIT
SUFFIXES = (".parquet", ".csv", ".csv.gz", ".csv.zst", ".jsonl", ".jsonl.gz")
# Actions of the ten question units of the test split, cell after cell, that differ from their neighbours.
CAPS = [[10, 11], [20, 21, 22], [30, 31], [40, 41, 42]]


def with_caps(rows):
    return [row | {"action": cap} for row, cap in zip(rows, [c for cell in CAPS for c in cell], strict=True)]


def list_actions(file, setting=0):
    return [cell.actions[setting].tolist() for cell in file.table.cells]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_every_format_reads_the_same(suffix, read, make_rows, encode):
    data = encode(with_caps(make_rows(FB)), suffix)

    file = read(data, FB, name=f"actions{suffix}")

    assert list_actions(file) == CAPS
    assert file.table.settings == ("default",)
    assert file.table.strategy is FB
    assert [cell.covered.tolist() for cell in file.table.cells] == [[True]] * 4
    assert file.n_rows == 10
    assert file.sha256 == hashlib.sha256(data).hexdigest()
    assert file.warnings == ()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_format_is_told_by_the_content_when_the_name_is_a_hash(suffix, read, make_rows, encode):
    file = read(encode(with_caps(make_rows(FB)), suffix), FB, name="5e884898da28")

    assert list_actions(file) == CAPS


def test_early_exit_units_are_trajectories_in_the_order_of_the_cell(read, make_rows, encode):
    rows = make_rows(DEE)
    rows[0]["action"], rows[3]["action"], rows[6]["action"], rows[9]["action"] = 3, 2, 4, 1

    file = read(encode(rows[::-1], ".csv"), DEE)

    assert list_actions(file)[:2] == [[3, 0, 0, 2], [0, 0, 4, 0, 0, 1]]


def test_all_splits_are_addressed_together(read, make_rows, encode):
    file = read(encode(make_rows(DR, split="all"), ".csv"), DR, split="all")

    assert [cell.actions.shape for cell in file.table.cells] == [(1, 3), (1, 4)] * 2


def test_a_setting_may_cover_some_of_the_cells(read, make_rows, encode):
    rows = [row for row in make_rows(DR, settings=["a", "b"]) if row["setting"] == "a" or row["model"] == "Small-8B"]

    file = read(encode(rows, ".csv"), DR)

    assert file.table.settings == ("a", "b")
    assert [cell.covered.tolist() for cell in file.table.cells] == [[True, False]] * 2 + [[True, True]] * 2


def test_settings_are_ordered_by_value_and_their_rows_follow(read, make_rows, encode):
    # "1e1" and "10" are equal numbers and different labels: equal values are ordered by text, words come last.
    caps = {"high": 40, "1e1": 30, "10": 20, "9": 10}
    rows = [row | {"action": caps[row["setting"]]} for row in make_rows(FB, settings=caps)]

    file = read(encode(rows, ".csv"), FB)

    assert file.table.settings == ("9", "10", "1e1", "high")
    assert [list_actions(file, setting)[0] for setting in range(4)] == [[10, 10], [20, 20], [30, 30], [40, 40]]


@pytest.mark.parametrize(
    ("spelling", "value"),
    [("7", 7), ('"7"', 7), ("7.0", 7), ("7.", 7), ("+7", 7), ("007", 7), ("1e3", 1000), ("1E+3", 1000), ("1.5e1", 15),
     ("120e-1", 12), ("-0", 0), ("0.0", 0), ("99999999999999999999", 2**63 - 1), ("1e400", 2**63 - 1)],
)  # fmt: skip
def test_integers_are_read_in_every_unambiguous_spelling(spelling, value, read, make_rows, encode):
    data = encode(make_rows(FB), ".csv").decode().replace("math-4,0", f"math-4,{spelling}", 1)

    assert list_actions(read(data.encode(), FB))[1][2] == value


@pytest.mark.parametrize(
    "rewrite",
    [
        lambda text: "\ufeff" + text,
        lambda text: text.replace("\n", "\r\n"),
        lambda text: "\n\n" + text,
        lambda text: text.replace("\n", "\n\n"),
        lambda text: text + "\n \n\n",
        lambda text: text.removesuffix("\n"),
        lambda text: '"' + text.replace(",", '","').replace("\n", '"\n"').removesuffix('"'),
        lambda text: "\ufeff" + '"' + text.replace(",", '","').replace("\n", '"\r\n"').removesuffix('"'),
    ],
    ids=["BOM", "CRLF", "leading blanks", "blank lines", "trailing blanks", "no last line end", "quoted", "Excel"],
)
def test_csv_as_spreadsheets_write_it_is_read(rewrite, read, make_rows, encode):
    text = encode(with_caps(make_rows(FB)), ".csv").decode()

    assert list_actions(read(rewrite(text).encode(), FB)) == CAPS


@pytest.mark.parametrize(
    ("rewrite", "row"),
    [
        ("\n".join, 12),
        ("\r\n".join, 12),
        (lambda lines: "\ufeff" + "\r\n".join(lines), 12),
        (lambda lines: "\n\n" + "\n".join(lines), 14),
        (lambda lines: "\n".join([*lines[:5], "", "  ", *lines[5:]]), 14),
        ("\r\n\r\n".join, 23),
        # A text with two line ends inside is one row of three lines; it is no label, but the rows after it count on.
        (lambda lines: "\n".join([lines[0], '"a\n\nb",' + lines[1].split(",", 1)[1], *lines[1:]]), 15),
    ],
    ids=["LF", "CRLF", "BOM", "leading blanks", "blanks between", "blank every other line", "line ends in quotes"],
)
def test_rows_are_numbered_as_an_editor_shows_them(rewrite, row, read, make_rows, encode):
    lines = encode(make_rows(DR, settings=["a"]), ".csv").decode().splitlines()
    # The setting goes first, so that a line end inside it can be put at the beginning of a row.
    lines = [",".join(np.array(line.split(","))[[3, 0, 1, 2, 4]]) for line in lines]

    with pytest.raises(ActionFileError) as caught:
        read(rewrite([*lines, "a,Large-14B,AIME,aime-9,0"]).encode(), DR)

    problem = next(p for p in caught.value.problems if p.code == "unknown_question")
    assert problem.row == row


def test_json_lines_are_numbered_with_their_blank_lines(read, make_rows, encode):
    lines = encode(make_rows(DR), ".jsonl").decode().splitlines()
    text = "\ufeff\n" + "\r\n\r\n".join([*lines, lines[0].replace("aime-2", "aime-9")])

    with pytest.raises(ActionFileError) as caught:
        read(text.encode(), DR, name="actions.jsonl")

    assert [(p.code, p.row) for p in caught.value.problems] == [("unknown_question", 22)]


def test_json_lines_take_integral_floats_and_quoted_integers(read, make_rows, encode):
    text = encode(make_rows(FB), ".jsonl").decode().splitlines()
    for idx, spelling in enumerate(["7", "7.0", '"7"', "7e0", "1e30", "9" * 400]):
        text[idx] = text[idx].replace('"action": 0', f'"action": {spelling}')

    file = read("\n".join(text).encode(), FB, name="actions.jsonl")

    assert [a for cell in list_actions(file) for a in cell][:6] == [7, 7, 7, 7, 2**63 - 1, 2**63 - 1]


PARQUET_INTEGERS = {
    "int8": lambda v: pa.array(v, pa.int8()),
    "int32": lambda v: pa.array(v, pa.int32()),
    "uint16": lambda v: pa.array(v, pa.uint16()),
    "uint64": lambda v: pa.array(v, pa.uint64()),
    "float16": lambda v: pa.array(np.array(v, dtype=np.float16)),
    "float32": lambda v: pa.array(v, pa.float32()),
    "float64": lambda v: pa.array(v, pa.float64()),
    "decimal": lambda v: pa.array(v).cast(pa.decimal128(24, 2)),
    "text": lambda v: pa.array([str(x) for x in v]),
    "text of floats": lambda v: pa.array([f"{x}.0" for x in v], pa.large_string()),
    "dictionary of texts": lambda v: pa.array([str(x) for x in v]).dictionary_encode(),
}
PARQUET_TEXTS = {
    "string": lambda v: pa.array(v, pa.string()),
    "large_string": lambda v: pa.array(v, pa.large_string()),
    "string_view": lambda v: pa.array(v, pa.string_view()),
    "dictionary": lambda v: pa.array(v).dictionary_encode(),
    "categorical": lambda v: pa.Array.from_pandas(pd.Series(v, dtype="category")),
    "binary": lambda v: pa.array([x.encode() for x in v]),
    "nullable": lambda v: pa.Array.from_pandas(pd.Series(v, dtype="string")),
}


@pytest.mark.parametrize("integers", PARQUET_INTEGERS)
@pytest.mark.parametrize("texts", PARQUET_TEXTS)
def test_parquet_is_read_in_every_type_that_holds_the_values(integers, texts, read, make_rows):
    rows = with_caps(make_rows(FB, settings=["a"]))
    columns = {name: PARQUET_TEXTS[texts]([row[name] for row in rows]) for name in rows[0] if name != "action"}
    columns["action"] = PARQUET_INTEGERS[integers]([row["action"] for row in rows])
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink, row_group_size=3)

    file = read(sink.getvalue(), FB, name="actions.parquet")

    assert list_actions(file) == CAPS
    assert file.table.settings == ("a",)


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "snappy"},
        {"compression": "gzip", "data_page_version": "2.0"},
        {"use_dictionary": False, "compression": None},
        {"use_dictionary": False, "write_page_checksum": True, "data_page_size": 64},
        {"use_dictionary": ["model"], "column_encoding": {"action": "DELTA_BINARY_PACKED"}},
        {"store_schema": False, "version": "1.0"},
    ],
    ids=str,
)
def test_parquet_is_read_as_other_writers_lay_it_out(options, read, make_rows):
    rows = with_caps(make_rows(FB))
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), sink, **options)

    assert list_actions(read(sink.getvalue(), FB, name="actions.parquet")) == CAPS


@pytest.mark.parametrize(
    ("column", "labels"),
    [
        (pa.array([0.1, 1.0, 10.0, 1e-3, 1e22, -0.0]), ["0.1", "1", "10", "0.001", "1e+22", "0"]),
        (pa.array([0.1, 1.0, 10.0, 1e-3, 2.5, 0.0], pa.float32()), ["0.1", "1", "10", "0.001", "2.5", "0"]),
        (pa.array([3, 2, 1, 10, -4, 0], pa.int8()), ["3", "2", "1", "10", "-4", "0"]),
        (pa.array([3, 2, 1, 10, 400, 0], pa.uint64()), ["3", "2", "1", "10", "400", "0"]),
        (pa.array([1, 2, 100, 0, 25, 7]).cast(pa.decimal128(24, 2)), ["1", "2", "100", "0", "25", "7"]),
        (pa.array(["1.0", "1", "a b", "é", "0.10", "x" * 64]), ["1.0", "1", "a b", "é", "0.10", "x" * 64]),
    ],
    ids=["float64", "float32", "int8", "uint64", "decimal", "text"],
)
def test_numeric_labels_take_their_shortest_form_and_texts_stay(column, labels, read, make_rows):
    rows = make_rows(DR)
    n_settings = len(column)
    keys = {name: pa.array([row[name] for row in rows] * n_settings) for name in rows[0]}
    setting = column.take(pa.array(np.repeat(np.arange(n_settings), len(rows))))
    sink = io.BytesIO()
    pq.write_table(pa.table(keys | {"setting": setting}), sink)

    file = read(sink.getvalue(), DR, name="actions.parquet")

    assert set(file.table.settings) == set(labels)


def test_numeric_labels_of_json_lines_take_their_shortest_form(read, make_rows, encode):
    data = encode(make_rows(DR, settings=[0.1, 1.0, 10, 1e-3, "1.0", 2**70]), ".jsonl")

    file = read(data, DR, name="actions.jsonl")

    assert set(file.table.settings) == {"0.1", "1", "10", "0.001", "1.0", "1180591620717411303424"}


def test_labels_that_look_like_dates_stay_as_written(read, make_rows, encode):
    file = read(encode(make_rows(DR, settings=["2024-01-01"]), ".jsonl"), DR, name="actions.jsonl")

    assert file.table.settings == ("2024-01-01",)


def test_csv_labels_are_compared_as_text(read, make_rows, encode):
    file = read(encode(make_rows(DR, settings=["1", "1.0"]), ".csv"), DR)

    assert file.table.settings == ("1", "1.0")


def test_question_ids_may_be_numbers_in_json_and_parquet(whole, tmp_path, encode):
    # pandas reads a column of digits as integers; the text they write is not in doubt.
    cell = build_cell("m", "b", [("7", "test", [[(0, 1)]]), ("12", "test", [[(0, 1)]])], 4)
    numbered = Measurements("n", "0" * 64, "measured", "all", 4, 1, ("m",), ("b",), (cell,))
    rows = [{"model": "m", "benchmark": "b", "question_id": q, "action": a} for q, a in ((12, 1), (7, 0))]
    for suffix in (".parquet", ".csv", ".jsonl"):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(encode(rows, suffix))
        assert list_actions(read_actions(path, numbered, strategy=DR, split="test")) == [[0, 1]]


def test_stop_tokens_select_the_last_position_within_them(read, make_rows, encode):
    rows = [{k: v for k, v in row.items() if k != "action"} | {"stop_tokens": 0} for row in make_rows(DEE)]
    # aime-2 / 0 keeps 0, 256, 500 or 760 tokens: 499 is one step. aime-2 / 1 ends at 200. math-3 / 0 has steps of ten.
    for idx, tokens in ((0, "499"), (1, "1e30"), (4, "249"), (6, "30"), (8, "5")):
        rows[idx]["stop_tokens"] = tokens

    file = read(encode(rows, ".csv"), DEE)

    assert list_actions(file)[:2] == [[1, 1, 0, 0], [0, 0, 3, 0, 1, 0]]


def test_negative_stop_tokens_are_out_of_range(read, make_rows, encode):
    rows = [{k: v for k, v in row.items() if k != "action"} | {"stop_tokens": -1} for row in make_rows(DEE)]

    with pytest.raises(ActionFileError) as caught:
        read(encode(rows, ".csv"), DEE)

    assert {(p.code, p.column, p.count) for p in caught.value.problems} == {("action_out_of_range", "stop_tokens", 20)}


def test_hidden_labels_do_not_matter(read, make_rows, encode, hidden):
    data = encode(with_caps(make_rows(FB)), ".csv")

    assert list_actions(read(data, FB, measurements=hidden)) == CAPS


def test_measurements_of_the_split_alone_serve_too(read, make_rows, encode, whole):
    data = encode(with_caps(make_rows(FB)), ".csv")

    assert list_actions(read(data, FB, measurements=whole.select("test"))) == CAPS


@pytest.mark.parametrize(
    ("strategy", "caps", "warns"), [(FB, (0, 1), True), (FB, (0, 0), True), (FB, (0, 2), False), (DR, (0, 1), False)]
)
def test_caps_that_are_all_0_or_1_look_like_routing(strategy, caps, warns, read, make_rows, encode):
    rows = [row | {"action": caps[idx % 2]} for idx, row in enumerate(make_rows(strategy))]

    warnings = read(encode(rows, ".csv"), strategy).warnings

    assert [(w.code, w.column, w.count) for w in warnings] == ([("looks_like_routing", "action", 1)] if warns else [])


def test_progress_rises_to_one(tmp_path, whole, make_rows, encode):
    for suffix in (".csv", ".jsonl.gz", ".parquet"):
        path = tmp_path / f"a{suffix}"
        path.write_bytes(encode(make_rows(DR), suffix))
        seen: list[float] = []

        read_actions(path, whole, strategy=DR, split="test", progress=seen.append)

        assert seen == sorted(seen)
        assert seen[-1] == 1.0


def test_a_file_that_is_not_there_is_no_fault_of_its_content(tmp_path, whole):
    with pytest.raises(FileNotFoundError):
        read_actions(tmp_path / "none.csv", whole, strategy=DR, split="test")


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("strategy", Strategy)
def test_what_is_written_is_read_back(suffix, strategy, tmp_path, whole):
    rng = np.random.default_rng(5)
    measurements = whole.select("test")
    labels = ("-0.5", "0.1", "10", "=1+1", "a, \"b\"", "é 😀")  # fmt: skip
    cells = []
    for idx, cell in enumerate(measurements.cells):
        most = cell.n_steps if strategy is DEE else np.full(cell.n_questions, 1 if strategy is DR else 10**12)
        covered = np.array([True, idx != 1, True, True, idx != 0, True])
        cells.append(CellActions(covered, rng.integers(0, most + 1, (6, len(most))) * covered[:, None]))
    table = ActionTable(strategy, labels, tuple(cells))
    path = tmp_path / f"table{suffix}"

    write_actions(path, table, measurements)
    file = read_actions(path, whole, strategy=strategy, split="test")

    assert file.table.settings == labels
    for read_back, written in zip(file.table.cells, table.cells, strict=True):
        assert read_back.covered.tolist() == written.covered.tolist()
        assert read_back.actions.tolist() == written.actions.tolist()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_same_table_gives_the_same_bytes(suffix, tmp_path, whole, read, make_rows, encode):
    table = read(encode(with_caps(make_rows(FB)), ".csv"), FB).table
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"

    write_actions(first, table, whole.select("test"))
    write_actions(second, table, whole.select("test"))

    assert first.read_bytes() == second.read_bytes()


def test_a_suffix_that_says_no_format_is_refused(tmp_path, whole, read, make_rows, encode):
    table = read(encode(make_rows(FB), ".csv"), FB).table

    with pytest.raises(UnknownSuffixError, match=r"actions\.txt ends in none of \.parquet, \.csv"):
        write_actions(tmp_path / "actions.txt", table, whole.select("test"))
    assert list(tmp_path.glob("*.txt")) == []


def test_a_table_of_other_cells_is_a_bug(tmp_path, whole):
    with pytest.raises(ValueError, match="a table of 0 cells for measurements of 4"):
        write_actions(tmp_path / "a.csv", ActionTable(DR, ("a",), ()), whole.select("test"))


@pytest.mark.parametrize("strategy", Strategy)
def test_a_file_for_the_real_snapshot_is_written_and_read_back(strategy, real_snapshot, tmp_path):
    measurements = load_measurements(read_snapshot(real_snapshot))
    rng = np.random.default_rng(1)
    most = {DR: lambda cell: np.ones(cell.n_questions), FB: lambda cell: np.full(cell.n_questions, 9000)}
    cells = [most.get(strategy, lambda cell: cell.n_steps)(cell).astype(np.int64) for cell in measurements.cells]
    covered = np.ones(3, dtype=np.bool_)
    table = ActionTable(
        strategy,
        ("0.1", "0.2", "best"),
        tuple(CellActions(covered, rng.integers(0, cell + 1, (3, len(cell)))) for cell in cells),
    )
    write_actions(tmp_path / "a.parquet", table, measurements)

    file = read_actions(tmp_path / "a.parquet", measurements, strategy=strategy, split="all")

    assert file.n_rows == 3 * 2 * (20 if strategy is DEE else 10)
    for got, written in zip(file.table.cells, table.cells, strict=True):
        assert np.array_equal(got.actions, written.actions)
