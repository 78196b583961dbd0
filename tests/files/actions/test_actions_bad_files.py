"""Bad action files: each is answered with the right codes, rows and columns, and with nothing else."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from app.evaluator.strategies import Strategy
from app.files.actions import ActionFileError

DR, FB, DEE = Strategy.DYNAMIC_ROUTING, Strategy.FIXED_BUDGET, Strategy.DYNAMIC_EARLY_EXIT
Found = tuple[str, int | None, str | None]
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Bad:
    """A valid file spoilt: how, as what kind of file, and what must be found (code, row, column) in which order."""

    id: str
    strategy: Strategy
    spoil: Callable[[Any], Any]
    found: list[Found]
    says: str = ""
    suffix: str = ".csv"


def edit(line: int, old: str, new: str) -> Callable[[list[str]], list[str]]:
    """Replace a text in one line (from 1, as an editor shows it) of a CSV file; it must be there."""

    def spoil(lines: list[str]) -> list[str]:
        assert old in lines[line - 1]
        return [text.replace(old, new, 1) if n == line else text for n, text in enumerate(lines, 1)]

    return spoil


def change(row: int, **values: object) -> Callable[[Rows], Rows]:
    """Change values of one row (from 1); a value of `...` removes the key."""

    def spoil(rows: Rows) -> Rows:
        changed = {k: v for k, v in (rows[row - 1] | values).items() if v is not ...}
        return [changed if n == row else r for n, r in enumerate(rows, 1)]

    return spoil


# The valid DR and FB files have rows 2-11: Large-14B AIME aime-2 aime-3, MATH math-1 math-3 math-4, then Small-8B.
# The valid DEE file has rows 2-21, two for each question.
CSV_FILES = [
    Bad("no bytes", DR, lambda lines: [], [("empty_file", None, None)]),
    Bad("blank lines only", DR, lambda lines: ["", "  ", ""], [("empty_file", None, None)]),
    Bad("header only", DR, lambda lines: lines[:1], [("empty_file", None, None)]),
    Bad("typo in header", DR, edit(1, "model", "modle"),
        [("unknown_column", 1, "modle"), ("missing_column", 1, "model")], "did you mean 'model'"),
    Bad("mixed case header", DR, edit(1, "question_id", "Question_ID"), [("unknown_column", 1, "Question_ID")],
        "must be written 'question_id'"),
    Bad("space in header", DR, edit(1, ",action", ", action"), [("unknown_column", 1, " action")], "'action'"),
    Bad("another word for a column", FB, edit(1, "action", "cap"),
        [("unknown_column", 1, "cap"), ("missing_column", 1, "action")], "did you mean 'action'"),
    Bad("trailing comma in header", DR, lambda lines: [lines[0] + ","] + [line + "," for line in lines[1:]],
        [("unknown_column", 1, "")], "the last column has no name"),
    Bad("pandas index", DR, lambda lines: ["," + lines[0]] + [f"{i},{line}" for i, line in enumerate(lines[1:])],
        [("unknown_column", 1, "")], "index=False"),
    Bad("column twice", DR, lambda lines: [lines[0] + ",action"] + [line + ",0" for line in lines[1:]],
        [("unreadable_file", 1, "action")], "appears 2 times"),
    Bad("missing column", DR, lambda lines: [line.rsplit(",", 1)[0] for line in lines],
        [("missing_column", 1, "action")]),
    Bad("semicolons", DR, lambda lines: [line.replace(",", ";") for line in lines], [("unreadable_file", 1, None)],
        "separated by semicolons"),
    Bad("quoted semicolons", DR, lambda lines: ['"' + line.replace(",", '";"') + '"' for line in lines],
        [("unreadable_file", 1, None)], "separated by semicolons"),
    Bad("tabs", DR, lambda lines: [line.replace(",", "\t") for line in lines], [("unreadable_file", 1, None)], "tabs"),
    Bad("sep line", DR, lambda lines: ["sep=,", *lines], [("unreadable_file", 1, None)], "'sep=' line"),
    Bad("early-exit file for routing", DR, lambda lines: [lines[0].replace("action", "trajectory,action"), "x,y,z,0,1"],
        [("unknown_column", 1, "trajectory")], "early-exit"),
    Bad("stop tokens for fixed budget", FB, edit(1, "action", "stop_tokens"),
        [("unknown_column", 1, "stop_tokens"), ("missing_column", 1, "action")], "dynamic_early_exit"),
    Bad("no trajectory", DEE, lambda lines: ["model,benchmark,question_id,action", "Large-14B,AIME,aime-2,0"],
        [("missing_column", 1, "trajectory")], "decision unit"),
    Bad("action and stop tokens", DEE, lambda lines: [lines[0] + ",stop_tokens"] + [line + ",0" for line in lines[1:]],
        [("unknown_column", 1, "stop_tokens")], "both"),
    Bad("unknown model", DR, edit(4, "Large-14B", "Large-14"),
        [("unknown_model", 4, "model"), ("incomplete_cell", None, None)], "did you mean 'Large-14B'"),
    Bad("model in another case", DR, edit(4, "Large-14B", "LARGE-14b"),
        [("unknown_model", 4, "model"), ("incomplete_cell", None, None)], "did you mean 'Large-14B'"),
    Bad("unknown benchmark", DR, edit(2, "AIME", "AIME24"),
        [("unknown_benchmark", 2, "benchmark"), ("incomplete_cell", None, None)], "did you mean 'AIME'"),
    Bad("unknown question", DR, edit(5, "math-3", "maht-3"),
        [("unknown_question", 5, "question_id"), ("incomplete_cell", None, None)], "did you mean 'math-3'"),
    Bad("question of another benchmark", DR, edit(5, "math-3", "aime-3"),
        [("unknown_question", 5, "question_id"), ("incomplete_cell", None, None)], "'AIME' has one of that name"),
    Bad("question of another split", DR, edit(5, "math-3", "math-2"),
        [("question_not_in_split", 5, "question_id"), ("incomplete_cell", None, None)], "split test"),
    Bad("empty key", DR, edit(5, "math-3", ""),
        [("unknown_question", 5, "question_id"), ("incomplete_cell", None, None)], "is empty"),
    Bad("unknown trajectory", DEE, edit(3, "aime-2,1,", "aime-2,2,"),
        [("unknown_trajectory", 3, "trajectory"), ("incomplete_cell", None, None)], "numbered 0 to 1"),
    Bad("trajectory not a number", DEE, edit(3, "aime-2,1,", "aime-2,one,"),
        [("not_an_integer", 3, "trajectory"), ("incomplete_cell", None, None)]),
    Bad("fraction", FB, edit(6, "math-4,0", "math-4,1.5"), [("not_an_integer", 6, "action")]),
    Bad("empty action", FB, edit(6, "math-4,0", "math-4,"),
        [("not_an_integer", 6, "action")], "every row needs a value"),
    Bad("word", DR, edit(6, "math-4,0", "math-4,True"), [("not_an_integer", 6, "action")], "write 1 or 0"),
    Bad("thousands separator", FB, edit(6, "math-4,0", 'math-4,"1,024"'), [("not_an_integer", 6, "action")],
        "thousands separators"),
    Bad("underscores", FB, edit(6, "math-4,0", "math-4,1_024"),
        [("not_an_integer", 6, "action")], "thousands separators"),
    Bad("decimal comma", FB, edit(6, "math-4,0", 'math-4,"24,0"'), [("not_an_integer", 6, "action")], "a point"),
    Bad("not a number", FB, edit(6, "math-4,0", "math-4,NaN"), [("not_an_integer", 6, "action")]),
    Bad("infinity", FB, edit(6, "math-4,0", "math-4,inf"), [("not_an_integer", 6, "action")]),
    Bad("hexadecimal", FB, edit(6, "math-4,0", "math-4,0x10"), [("not_an_integer", 6, "action")]),
    Bad("other digits", FB, edit(6, "math-4,0", "math-4,\u0663"), [("not_an_integer", 6, "action")]),
    Bad("space before a number", FB, edit(6, "math-4,0", "math-4, 7"), [("not_an_integer", 6, "action")], "spaces"),
    Bad("routing to 2", DR, edit(6, "math-4,0", "math-4,2"), [("action_out_of_range", 6, "action")], "neither 0"),
    Bad("huge routing", DR, edit(6, "math-4,0", "math-4,1e30"), [("action_out_of_range", 6, "action")], "1e30"),
    Bad("negative cap", FB, edit(6, "math-4,0", "math-4,-1"), [("action_out_of_range", 6, "action")], "negative"),
    Bad("position past the end", DEE, edit(2, "aime-2,0,0", "aime-2,0,4"), [("action_out_of_range", 2, "action")],
        "last position, 3"),
    Bad("-1 for never", DEE, edit(2, "aime-2,0,0", "aime-2,0,-1"), [("action_out_of_range", 2, "action")], "negative"),
    Bad("duplicate", DR, lambda lines: [*lines, lines[2]], [("duplicate_unit", 12, None)], "row 3 gave it first"),
    Bad("duplicate with another action", DR, lambda lines: [*lines, lines[2][:-1] + "1"],
        [("duplicate_unit", 12, None)]),
    Bad("incomplete", DR, lambda lines: [*lines[:4], *lines[5:]], [("incomplete_cell", None, None)],
        "lacks 1 of the cell's 3 units: math-3"),
    Bad("too short a row", DR, edit(3, ",aime-3,0", ",aime-3"),
        [("unreadable_file", 3, None), ("incomplete_cell", None, None)], "3 values, the header 4"),
    Bad("too long a row", DR, edit(3, ",aime-3,0", ",aime-3,0,9"),
        [("unreadable_file", 3, None), ("incomplete_cell", None, None)], "5 values"),
    Bad("trailing comma in a row", DR, edit(3, ",aime-3,0", ",aime-3,0,"),
        [("unreadable_file", 3, None), ("incomplete_cell", None, None)], "remove the comma"),
    Bad("empty spreadsheet rows", DR, lambda lines: [*lines, ",,,", ",,,"],
        [("unreadable_file", 12, None), ("unreadable_file", 13, None)], "nothing but commas"),
    Bad("quotation mark inside", DR, edit(4, "math-1", 'math"1'), [("unreadable_file", 4, None)], "quotation mark"),
    Bad("text after a quoted value", DR, edit(4, "math-1", '"math"-1'),
        [("unreadable_file", 4, None)], "quotation mark"),
    Bad("quotation mark never closed", DR, edit(4, "math-1", '"math-1'),
        [("unreadable_file", 4, None)], "never closed"),
    Bad("carriage return inside", DR, edit(4, "math-1", "math\r-1"),
        [("unreadable_file", 4, None), ("incomplete_cell", None, None)]),
]  # fmt: skip


def spoil_settings(labels: list[str]) -> Callable[[list[str]], list[str]]:
    """Give every line of a CSV file a setting; the header is line 1."""
    return lambda lines: ["setting," + lines[0]] + [f"{s},{line}" for s, line in zip(labels, lines[1:], strict=True)]


SETTING_FILES = [
    Bad("empty label", DR, spoil_settings(["a"] * 9 + [""]),
        [("bad_setting_label", 11, "setting"), ("incomplete_cell", None, None)], "is empty"),
    Bad("long label", DR, spoil_settings(["a"] * 9 + ["b" * 65]),
        [("bad_setting_label", 11, "setting"), ("incomplete_cell", None, None)], "65 characters"),
    Bad("control character", DR, spoil_settings(["a"] * 9 + ["a\x07"]),
        [("bad_setting_label", 11, "setting"), ("incomplete_cell", None, None)], "cannot be shown"),
    Bad("space around a label", DR, spoil_settings(["a"] * 9 + ["a "]),
        [("bad_setting_label", 11, "setting"), ("incomplete_cell", None, None)], "space"),
    # Four settings; each of them has one or two of the three MATH questions of a model.
    Bad("settings that split cells", DR, spoil_settings(list("aabbbccddd")[::-1]),
        [("incomplete_cell", None, None)] * 4, "covers a cell completely or not at all"),
]  # fmt: skip

JSON_FILES = [
    Bad("NaN", FB, change(6, action=float("nan")), [("not_an_integer", 6, "action")], "nan"),
    Bad("null", FB, change(6, action=None), [("not_an_integer", 6, "action")], "empty"),
    Bad("boolean", DR, change(6, action=True), [("not_an_integer", 6, "action")], "write 1 or 0"),
    Bad("list", DR, change(6, action=[1]), [("not_an_integer", 6, "action")], "a list"),
    Bad("object", DR, change(6, action={"a": 1}), [("not_an_integer", 6, "action")], "an object"),
    Bad("fraction", FB, change(6, action=0.5), [("not_an_integer", 6, "action")], "0.5"),
    Bad("huge integer", DR, change(6, action=10**30), [("action_out_of_range", 6, "action")]),
    Bad("an integer of thousands of digits", DR, change(6, action="@"), [("action_out_of_range", 6, "action")]),
    Bad("null model", DR, change(6, model=None), [("unknown_model", 6, "model"), ("incomplete_cell", None, None)]),
    Bad("nested model", DR, change(6, model=["Large-14B"]),
        [("unknown_model", 6, "model"), ("incomplete_cell", None, None)], "neither text nor"),
    Bad("missing key", DR, change(6, action=...), [("missing_column", 6, "action"), ("incomplete_cell", None, None)]),
    Bad("unknown key", DR, change(6, note="x"), [("unknown_column", 6, "note")]),
    Bad("setting in some rows", DR, change(6, setting="x"), [("bad_setting_label", 6, "setting")], "first row"),
    Bad("boolean setting", DR, lambda rows: [row | {"setting": True} for row in rows],
        [("bad_setting_label", n, "setting") for n in range(1, 11)]),
    Bad("NaN setting", DR, lambda rows: [row | {"setting": float("nan")} for row in rows],
        [("bad_setting_label", n, "setting") for n in range(1, 11)]),
    Bad("both value columns", DEE, change(6, stop_tokens=1), [("unknown_column", 6, "stop_tokens")], "both"),
    Bad("another strategy", FB, lambda rows: [row | {"trajectory": 0} for row in rows],
        [("unknown_column", 1, "trajectory")], "early-exit"),
]  # fmt: skip

JSON_TEXTS = [
    ("array", '[{"model": "a"}]', [("unreadable_file", 1, None)], "one JSON array"),
    ("pretty-printed", '{\n"model": "a"\n}\n', [("unreadable_file", n, None) for n in (1, 2, 3)], "not JSON"),
    ("key twice", '{"model": "a", "model": "b"}\n', [("unreadable_file", 1, "model")], "more than once"),
    ("not JSON", "{'model': 'a'}\n", [("unreadable_file", 1, None)], "not JSON"),
    ("deeply nested", '{"model": ' + "[" * 100_000 + "\n", [("unreadable_file", 1, None)], "nested"),
    ("half of a surrogate pair", '{"model": "\\ud800"}\n', [("unreadable_file", 1, None)], "surrogate"),
    ("two objects a line", '{"model": "a"}{"model": "b"}\n', [("unreadable_file", 1, None)], "not JSON"),
]


def list_found(error: ActionFileError) -> list[Found]:
    return [(problem.code, problem.row, problem.column) for problem in error.problems]


def check(read, data: bytes, bad: Bad) -> None:
    with pytest.raises(ActionFileError) as caught:
        read(data, bad.strategy, name="actions" + bad.suffix)
    assert list_found(caught.value) == bad.found
    assert bad.says in caught.value.problems[0].message
    for problem in caught.value.problems:
        assert problem.count == sum(p.code == problem.code for p in caught.value.problems)


@pytest.mark.parametrize("bad", CSV_FILES + SETTING_FILES, ids=lambda bad: bad.id)
def test_a_bad_csv_file_is_answered_with_code_row_and_column(bad, read, make_rows, encode):
    lines = encode(make_rows(bad.strategy), ".csv").decode().splitlines()

    check(read, "".join(line + "\n" for line in bad.spoil(lines)).encode(), bad)


@pytest.mark.parametrize("bad", JSON_FILES, ids=lambda bad: bad.id)
def test_a_bad_json_lines_file_is_answered_with_code_row_and_column(bad, read, make_rows):
    rows = bad.spoil(make_rows(bad.strategy))
    text = "".join(json.dumps(row) + "\n" for row in rows).replace('"@"', "9" * 5000)

    with pytest.raises(ActionFileError) as caught:
        read(text.encode(), bad.strategy, name="actions.jsonl")

    assert list_found(caught.value) == bad.found
    assert bad.says in caught.value.problems[0].message


@pytest.mark.parametrize(("text", "found", "says"), [case[1:] for case in JSON_TEXTS], ids=[c[0] for c in JSON_TEXTS])
def test_text_that_is_not_json_lines_is_answered_with_its_lines(text, found, says, read):
    with pytest.raises(ActionFileError) as caught:
        read(text.encode(), DR, name="actions.jsonl")

    assert list_found(caught.value)[: len(found)] == found
    assert says in caught.value.problems[0].message


def to_parquet(columns: dict[str, pa.Array]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return bytes(sink.getvalue())


PARQUET_FILES = [
    ("null action", "action", lambda n: pa.array([None] + [0] * (n - 1), pa.int64()),
        [("not_an_integer", 1, "action")]),
    ("NaN action", "action", lambda n: pa.array([0.0, float("nan")] + [0] * (n - 2)),
        [("not_an_integer", 2, "action")]),
    ("fraction", "action", lambda n: pa.array([0.0, 0.25] + [0] * (n - 2)), [("not_an_integer", 2, "action")]),
    ("decimal fraction", "action", lambda n: pa.array([0, 0.25] + [0] * (n - 2)).cast(pa.decimal128(5, 2)),
     [("not_an_integer", 2, "action")]),
    ("booleans", "action", lambda n: pa.array([True] * n), [("not_an_integer", r, "action") for r in range(1, 11)]),
    ("lists", "action", lambda n: pa.array([[0]] * n), [("not_an_integer", r, "action") for r in range(1, 11)]),
    ("times", "action", lambda n: pa.array([0] * n, pa.timestamp("s")),
     [("not_an_integer", r, "action") for r in range(1, 11)]),
    ("huge unsigned", "action", lambda n: pa.array([0, 2**64 - 1] + [0] * (n - 2), pa.uint64()),
     [("action_out_of_range", 2, "action")]),
    ("huge float", "action", lambda n: pa.array([0, 1e300] + [0] * (n - 2)), [("action_out_of_range", 2, "action")]),
    ("null setting", "setting", lambda n: pa.array(["a"] * (n - 1) + [None]),
     [("bad_setting_label", 10, "setting"), ("incomplete_cell", None, None)]),
    ("NaN setting", "setting", lambda n: pa.array([1.0] * (n - 1) + [float("nan")]),
     [("bad_setting_label", 10, "setting"), ("incomplete_cell", None, None)]),
    ("struct setting", "setting", lambda n: pa.array([{"a": 1}] * n),
     [("bad_setting_label", r, "setting") for r in range(1, 11)]),
    ("index column", "__index_level_0__", lambda n: pa.array(range(n)),
        [("unknown_column", None, "__index_level_0__")]),
    ("model not UTF-8", "model", lambda n: pa.array([b"\xff"] * n),
        [("unknown_model", r, "model") for r in range(1, 11)]),
]  # fmt: skip


@pytest.mark.parametrize(("column", "make", "found"), [c[1:] for c in PARQUET_FILES], ids=[c[0] for c in PARQUET_FILES])
def test_a_bad_parquet_file_is_answered_with_code_row_and_column(column, make, found, read, make_rows):
    rows = make_rows(DR)
    columns = {name: pa.array([row[name] for row in rows]) for name in rows[0]}

    with pytest.raises(ActionFileError) as caught:
        read(to_parquet(columns | {column: make(len(rows))}), DR, name="actions.parquet")

    assert list_found(caught.value) == found


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ("model,benchmark".encode("utf-16"), "UTF-16"),
        ("model,benchmark".encode("utf-16-le"), "UTF-16"),
        (b"PK\x03\x04rest", "workbook"),
        (b"BZh91AY", "bzip2"),
        (gzip.compress(b"PAR1 and so on"), "must not be compressed again"),
        (gzip.compress(gzip.compress(b"model")), "compressed twice"),
        (gzip.compress(b"model,benchmark\n" * 1000)[:-9], "damaged or cut off"),
        (zstandard.compress(b"model,benchmark\n" * 1000)[:-3], "damaged or cut off"),
        (b"PAR1 that is no Parquet", "damaged"),
        (b"model,b\xe9nchmark\n", "not UTF-8"),
        (b"model,benchmark\rm,b\r", "carriage return alone"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_is_no_action_file_is_named(data, says, read):
    with pytest.raises(ActionFileError, match="unreadable_file") as caught:
        read(data, DR)

    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].code == "unreadable_file"
    assert says in caught.value.problems[0].message


def test_text_named_parquet_is_named(read):
    with pytest.raises(ActionFileError) as caught:
        read(b"model,benchmark\n", DR, name="actions.parquet")

    assert "its content is not Parquet" in caught.value.problems[0].message


def test_rows_that_are_not_utf8_are_found_one_by_one(read, make_rows, encode):
    lines = encode(make_rows(DR), ".csv").splitlines()
    lines[3], lines[7] = lines[3].replace(b"math", b"m\xe4th"), lines[7].replace(b"aime", b"\xff")

    with pytest.raises(ActionFileError) as caught:
        read(b"\n".join(lines), DR)

    assert list_found(caught.value)[:2] == [("unreadable_file", 4, None), ("unreadable_file", 8, None)]
    assert caught.value.problems[0].count == 2


def test_every_fault_of_a_file_is_found_in_one_pass(read, make_rows, encode):
    lines = encode(make_rows(DEE, settings=["a", "b"]), ".csv").decode().splitlines()
    spoil = {
        2: ("aime-2,0", "aime-2,7"),
        4: ("aime-3", "aime-9"),
        6: ("Large-14B", "Huge-70B"),
        8: ("math-3", "math-2"),
        9: ("math-3,1,a,0", "math-3,1,a,zero"),
        10: ("math-4,0,a,0", "math-4,0,a,99"),
        12: ("AIME", "Amie"),
        23: ("b,0", "b" * 70 + ",0"),
    }
    for row, (old, new) in spoil.items():
        assert old in lines[row - 1]
        lines[row - 1] = lines[row - 1].replace(old, new)

    with pytest.raises(ActionFileError) as caught:
        read("\n".join([*lines, lines[20]]).encode(), DEE)

    assert list_found(caught.value) == [
        ("unknown_model", 6, "model"),
        ("unknown_benchmark", 12, "benchmark"),
        ("unknown_question", 4, "question_id"),
        ("question_not_in_split", 8, "question_id"),
        ("unknown_trajectory", 2, "trajectory"),
        ("not_an_integer", 9, "action"),
        ("action_out_of_range", 10, "action"),
        ("bad_setting_label", 23, "setting"),
        ("duplicate_unit", 42, None),
        ("incomplete_cell", None, None),
        ("incomplete_cell", None, None),
        ("incomplete_cell", None, None),
        ("incomplete_cell", None, None),
    ]


def test_a_problem_names_the_unit(read, make_rows, encode):
    lines = encode(make_rows(DEE), ".csv").decode().splitlines()
    lines[4] = lines[4].replace(",1,0", ",1,9")

    with pytest.raises(ActionFileError) as caught:
        read("\n".join(lines).encode(), DEE)

    assert caught.value.problems[0].unit == "Large-14B / AIME / aime-3 / 1"
    assert caught.value.problems[0].as_dict() == {
        "code": "action_out_of_range",
        "message": "action 9 is past the trajectory's last position, 2",
        "row": 5,
        "column": "action",
        "unit": "Large-14B / AIME / aime-3 / 1",
        "count": 1,
    }


def test_a_benchmark_that_a_model_was_not_measured_on_is_named(read, whole):
    # A snapshot's grid of models and benchmarks need not be full: Small-8B has no MATH here.
    partial = type(whole)(**(vars(whole) | {"cells": whole.cells[:3]}))

    with pytest.raises(ActionFileError) as caught:
        read(b"model,benchmark,question_id,action\nSmall-8B,MATH,math-1,0\n", DR, measurements=partial)

    assert list_found(caught.value) == [("unknown_benchmark", 2, "benchmark")]
    assert "no measurements of 'Small-8B' on 'MATH'" in caught.value.problems[0].message
