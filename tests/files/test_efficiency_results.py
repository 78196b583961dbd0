"""Files of efficiency results: the shipped tables, every problem, what a set's hash covers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from app.files.efficiency_results import (
    MAX_RESULTS,
    EfficiencyRow,
    InvalidEfficiencyResultsError,
    Paradigm,
    compare_rows,
    hash_rows,
    list_shipped_sets,
    parse_results,
)

HEADER = "benchmark,paradigm,method,backbone,accuracy,tokens,e3\n"
REFERENCE = "sums,reference,CoT,tiny,0.5,100,\n"


def read(body: str, *, header: str = HEADER) -> tuple[EfficiencyRow, ...]:
    return parse_results((header + body).encode())


def fail(body: str, *, header: str = HEADER) -> list[tuple[str, int | None, str | None]]:
    with pytest.raises(InvalidEfficiencyResultsError) as refused:
        read(body, header=header)
    return [(problem.code, problem.row, problem.column) for problem in refused.value.problems]


def test_the_shipped_tables_are_those_of_the_paper(reference_tables: Path) -> None:
    tables = json.loads((reference_tables / "effireason_tables.json").read_text())["rows"]
    (shipped,) = list_shipped_sets()
    assert len(shipped.rows) == len(tables) == 160
    for row, given in zip(shipped.rows, tables, strict=True):
        assert (row.benchmark, row.method, row.backbone) == (given["dataset"], given["method"], given["backbone"])
        assert row.paradigm.value.replace("_", "") == given["paradigm"].lower().rstrip("s").replace(" ", "").replace(
            "-", ""
        )
        # Percent as printed against a fraction: the same to the last digit that is printed.
        assert round(100 * row.accuracy, 4) == given["accuracy_percent"]
        assert (row.tokens, row.e3_printed) == (given["mean_output_tokens"], given["e3_printed"])


def test_135_of_the_136_printed_scores_are_what_the_formula_gives() -> None:
    """The other one is a misprint of the source: 1.14 where its row gives 0.955."""
    (shipped,) = list_shipped_sets()
    printed = [result for result in compare_rows(shipped.rows) if result.row.e3_printed is not None]
    assert (len(printed), sum(result.agrees is True for result in printed)) == (136, 135)
    (other,) = (result for result in printed if not result.agrees)
    assert (other.row.benchmark, other.row.method, other.row.backbone, other.row.e3_printed) == (
        "CommonsenseQA",
        "SoT",
        "LLaMA-70B-Instruct",
        1.14,
    )
    assert other.e3 is not None
    assert round(other.e3, 3) == 0.955


def test_every_shipped_set_names_its_source() -> None:
    for shipped in list_shipped_sets():
        assert "arXiv:2511.10201" in shipped.source.citation
        assert shipped.source.url == "https://arxiv.org/abs/2511.10201"
        assert shipped.source.license_note


def test_a_file_as_spreadsheets_write_it() -> None:
    """A byte order mark, CRLF, blank lines, other columns' order, spaces, quotation marks."""
    text = "\ufeffmethod,backbone,benchmark,tokens,accuracy,paradigm\r\n\r\n CoT ,tiny,sums,100,0.5,reference\r\n"
    text += '"a, ""b""",tiny,sums,.5,1,other\r\n,,,,,\r\n'
    rows = parse_results(text.encode())
    assert [(row.method, row.tokens, row.accuracy, row.e3_printed) for row in rows] == [
        ("CoT", 100.0, 0.5, None),
        ('a, "b"', 0.5, 1.0, None),
    ]


def test_scores_against_the_reference_of_the_same_place() -> None:
    # Half of the tokens at the same accuracy 0.5: 1 / (0.5 + 0.25) = 4/3, printed to two digits and to none.
    rows = read(REFERENCE + "sums,other,a,tiny,0.5,50,1.33\nsums,other,b,tiny,0.5,50,1\nsums,other,c,tiny,0.5,50,1.3\n")
    rows += read("sums,reference,CoT,large,1,100,\nsums,other,a,large,0.5,50,2\n")
    results = compare_rows(rows)
    assert [result.agrees for result in results] == [None, True, True, True, None, None]
    assert [result.e3_reason for result in results[4:]] == ["base_accuracy_is_0_or_1"] * 2
    assert results[1].e3 == pytest.approx(4 / 3, rel=1e-15)
    assert [row.e3_digits for row in rows[1:4]] == [2, 0, 1]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("", [("empty_file", None, None)]),
        (REFERENCE + "sums,other,a,tiny,0.5\n", [("unreadable_file", 3, None)]),
        (REFERENCE + 'sums,other,"a,tiny,0.5,50,\n', [("unreadable_file", 3, None)]),
        (REFERENCE + "sums,othr,a,tiny,0.5,50,\n", [("unknown_paradigm", 3, "paradigm")]),
        (REFERENCE + "sums,other,,tiny,0.5,50,\n", [("bad_name", 3, "method")]),
        (REFERENCE + f"{'s' * 101},other,a,tiny,0.5,50,\n", [("bad_name", 3, "benchmark")]),
        (REFERENCE + "sums,other,a,tiny,64.8,50,\n", [("accuracy_out_of_range", 3, "accuracy")]),
        (REFERENCE + "sums,other,a,tiny,nan,-5,inf\n", [("not_a_number", 3, c) for c in ("accuracy", "tokens", "e3")]),
        (REFERENCE + "sums,other,a,tiny,,1_000,١\n", [("not_a_number", 3, c) for c in ("accuracy", "tokens", "e3")]),
        (REFERENCE + "sums,other,CoT,tiny,0.5,50,\n", [("duplicate_result", 3, None)]),
        (REFERENCE + "sums,reference,CoD,tiny,0.5,50,\n", [("several_references", 3, "paradigm")]),
        (REFERENCE + "sums,other,a,large,0.5,50,\nsums,other,b,large,0.5,5,\n", [("missing_reference", 3, "paradigm")]),
    ],
)
def test_problems_name_their_place(body: str, expected: list[tuple[str, int | None, str | None]]) -> None:
    assert fail(body) == expected


def test_all_problems_are_listed() -> None:
    body = "sums,othr,a,tiny,7,50,\nsums,other,a,tiny,0.5,x,\nsums,reference,a,tiny,0.5,5,\n"
    codes = [code for code, _, _ in fail(body)]
    assert sorted(codes) == ["accuracy_out_of_range", "not_a_number", "unknown_paradigm"]


def test_headers() -> None:
    assert fail("", header="benchmark,paradigm,metod,backbone,accuracy,tokens\n") == [
        ("unknown_column", 1, "metod"),
        ("missing_column", 1, "method"),
    ]
    assert fail("", header=HEADER.replace("e3", "tokens")) == [("unknown_column", 1, "tokens")]
    with pytest.raises(InvalidEfficiencyResultsError, match="1 problem"):
        parse_results(b"")
    with pytest.raises(InvalidEfficiencyResultsError) as refused:
        parse_results(HEADER.encode() + "süms,".encode("latin-1"))
    assert (refused.value.problems[0].code, refused.value.problems[0].row) == ("unreadable_file", 2)


def test_a_set_has_a_limit() -> None:
    body = "".join(f"sums,other,m{i},tiny,0.5,5,\n" for i in range(MAX_RESULTS))
    assert fail(REFERENCE + body) == [("too_many_results", None, None)]


def test_the_hash_covers_every_figure_and_no_spelling() -> None:
    rows = read(REFERENCE)
    assert hash_rows(rows) == hash_rows(read("\n" + REFERENCE.replace(",0.5,", ", 0.500 ,")))
    changes: dict[str, Any] = {"benchmark": "s", "paradigm": Paradigm.OTHER, "accuracy": 0.25, "e3_printed": 1.0}
    for name, value in changes.items():
        assert hash_rows((EfficiencyRow(**{**vars(rows[0]), name: value}),)) != hash_rows(rows)
