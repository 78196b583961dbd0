"""Question files: a round trip, every fault by line and field, and the set that is shipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.files.atomic import OutputExistsError
from app.files.question_checks import HEADER_FIELDS, QUESTION_FIELDS, TEST_FIELDS
from app.files.questions import (
    ARITHMETIC_FILE,
    KINDS,
    CodeTest,
    Question,
    QuestionError,
    QuestionSet,
    build_question,
    build_question_set,
    header_document,
    question_document,
    read_questions,
    write_questions,
)

ROOT = Path(__file__).resolve().parents[2]
HEADER = {
    "format": "otboard-questions/1",
    "benchmark": "sums",
    "title": "Sums",
    "license": "CC0-1.0",
    "source": "written for a test",
    "kind": "mathematics",
    "instruction": "Add.",
}
SUM = {"question_id": "s1", "split": "test", "prompt": "2 + 3?", "reference_answer": "5"}
CHOICE = {
    "question_id": "c1",
    "split": "train",
    "prompt": "Which?\n\nA) one\nB) two",
    "reference_answer": "B",
    "options": ["one", "two"],
}
PROGRAM = {
    "question_id": "p1",
    "split": "test",
    "prompt": "Double it.",
    "reference_answer": "",
    "difficulty": 2,
    "tests": [{"input": "2", "expected": "4"}, {"input": "3", "expected": "6", "kind": "function"}],
    "function_name": "double",
}
WriteLines = Callable[[Sequence[Any]], Path]
Faults = Callable[[Sequence[Any]], list[tuple[str, int | None, str | None]]]


@pytest.fixture
def write_lines(tmp_path: Path) -> WriteLines:
    def write(lines: Sequence[Any]) -> Path:
        path = tmp_path / "questions.jsonl"
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
        return path

    return write


@pytest.fixture
def faults(write_lines: WriteLines) -> Faults:
    def find(lines: Sequence[Any]) -> list[tuple[str, int | None, str | None]]:
        with pytest.raises(QuestionError) as raised:
            read_questions(write_lines(lines))
        return [(problem.code, problem.row, problem.column) for problem in raised.value.problems]

    return find


@pytest.mark.parametrize(("kind", "document"), [("mathematics", SUM), ("choice", CHOICE), ("code", PROGRAM)])
def test_a_round_trip_of_each_kind(
    write_lines: WriteLines, tmp_path: Path, kind: str, document: dict[str, Any]
) -> None:
    read = read_questions(write_lines([{**HEADER, "kind": kind, "direct_instruction": "At once."}, document]))
    written = tmp_path / "written.jsonl"
    write_questions(written, read)
    assert read_questions(written) == read
    (question,) = read.questions
    assert build_question(question_document(question)) == question
    assert build_question_set(header_document(read), read.questions) == read
    assert (read.direct_instruction, question.kind, question.benchmark) == ("At once.", kind, "sums")
    with pytest.raises(OutputExistsError):
        write_questions(written, read)


def test_the_fields_of_a_program() -> None:
    question = build_question({**PROGRAM, "benchmark": "sums", "kind": "code"})
    assert question.tests == (CodeTest("2", "4", "stdin"), CodeTest("3", "6", "function"))
    assert (question.function_name, question.difficulty, question.options) == ("double", 2, ())


def test_the_order_of_lines_and_keys_does_not_change_the_identity(write_lines: WriteLines) -> None:
    other = {**SUM, "question_id": "s0"}
    first = read_questions(write_lines([HEADER, SUM, other]))
    second = read_questions(write_lines([dict(reversed(HEADER.items())), "", dict(reversed(other.items())), SUM]))
    assert first == second
    assert [question.question_id for question in first.questions] == ["s0", "s1"]
    changed = read_questions(write_lines([HEADER, SUM, {**other, "reference_answer": "6"}]))
    assert changed.sha256 != first.sha256


def test_a_byte_order_mark_and_carriage_returns_are_read(tmp_path: Path) -> None:
    path = tmp_path / "windows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + f"{json.dumps(HEADER)}\r\n{json.dumps(SUM)}\r\n".encode())
    assert len(read_questions(path).questions) == 1


def test_every_fault_is_listed_with_line_and_field(faults: Faults) -> None:
    lines = [
        HEADER,
        {**SUM, "reference_answer": 5},
        {**SUM, "question_id": "s2", "splitt": "test"},
        "{",
        {"question_id": "s3"},
        "[]",
        {**SUM, "question_id": "s4", "split": "dev", "difficulty": 1.5},
    ]
    assert sorted(faults(lines), key=lambda fault: (fault[1], fault[2] or "")) == [
        ("bad_value", 2, "reference_answer"),
        ("unknown_field", 3, "splitt"),
        ("not_json", 4, None),
        ("missing_field", 5, "prompt"),
        ("missing_field", 5, "reference_answer"),
        ("missing_field", 5, "split"),
        ("not_json", 6, None),
        ("bad_value", 7, "difficulty"),
        ("bad_value", 7, "split"),
    ]


def test_a_faulty_header_is_named(faults: Faults) -> None:
    header = {**HEADER, "format": "otboard-questions/2", "kind": "essay", "licence": "x"}
    del header["license"]
    found = faults([header, SUM])
    assert {(code, column) for code, row, column in found if row == 1} == {
        ("bad_value", "format"),
        ("bad_value", "kind"),
        ("unknown_field", "licence"),
        ("missing_field", "license"),
    }


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], ("empty_file", None, None)),
        ([HEADER], ("empty_file", None, None)),
        ([HEADER, SUM, {**SUM, "prompt": "again?"}], ("duplicate_question", 3, "question_id")),
        ([HEADER, {**SUM, "benchmark": "products"}], ("bad_value", 2, "benchmark")),
        ([HEADER, {**SUM, "kind": "code", "tests": PROGRAM["tests"][:1]}], ("bad_value", 2, "kind")),
        ([HEADER, {**SUM, "options": ["1", "2"]}], ("bad_value", 2, "options")),
        ([HEADER, {**SUM, "reference_answer": " "}], ("bad_value", 2, "reference_answer")),
        ([HEADER, {**SUM, "prompt": "a\ud800"}], ("bad_value", 2, "prompt")),
    ],
)
def test_single_faults(faults: Faults, lines: list[Any], expected: tuple[str, int | None, str | None]) -> None:
    assert faults(lines) == [expected]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"reference_answer": "C"}, ("bad_value", 2, "reference_answer")),
        ({"reference_answer": "two"}, ("bad_value", 2, "reference_answer")),
        ({"options": ["one", "one "]}, ("bad_value", 2, "options")),
        ({"options": ["one"]}, ("bad_value", 2, "options")),
        ({"options": None}, ("missing_field", 2, "options")),
    ],
)
def test_faults_of_choices(faults: Faults, change: dict[str, Any], expected: tuple[str, int, str]) -> None:
    assert faults([{**HEADER, "kind": "choice"}, {**CHOICE, **change}]) == [expected]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"function_name": None}, ("missing_field", 2, "function_name")),
        ({"function_name": "a b"}, ("bad_value", 2, "function_name")),
        ({"tests": []}, ("bad_value", 2, "tests")),
        ({"tests": None, "function_name": None}, ("missing_field", 2, "tests")),
        ({"tests": ["x"]}, ("bad_value", 2, "tests")),
        ({"tests": [{"input": "1", "expected": 2}]}, ("bad_value", 2, "tests[0].expected")),
        ({"tests": [{"input": "1", "expected": "2", "kind": "shell"}]}, ("bad_value", 2, "tests[0].kind")),
    ],
)
def test_faults_of_programs(faults: Faults, change: dict[str, Any], expected: tuple[str, int, str]) -> None:
    assert faults([{**HEADER, "kind": "code"}, {**PROGRAM, **change}]) == [expected]


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(QuestionError, match="has problems"):
        read_questions(tmp_path / "none.jsonl")
    (tmp_path / "binary.jsonl").write_bytes(b"\x80\x81")
    with pytest.raises(QuestionError) as raised:
        read_questions(tmp_path / "binary.jsonl")
    assert raised.value.problems[0].code == "unreadable_file"


def test_a_set_holds_questions_of_its_own_benchmark_and_kind() -> None:
    question = build_question({**SUM, "benchmark": "sums", "kind": "mathematics"})
    stranger = replace(question, question_id="s2", benchmark="products")
    with pytest.raises(QuestionError) as raised:
        build_question_set(HEADER, [question, stranger])
    assert [(p.column, p.unit) for p in raised.value.problems] == [("benchmark", "s2")]


@pytest.fixture(scope="module")
def arithmetic() -> QuestionSet:
    return read_questions(ARITHMETIC_FILE)


def test_the_shipped_word_problems(arithmetic: QuestionSet) -> None:
    assert len(arithmetic.questions) == 60
    assert (arithmetic.license, arithmetic.kind) == ("CC0-1.0", "mathematics")
    for split, expected in (("train", 24), ("test", 36)):
        chosen = [question for question in arithmetic.questions if question.split == split]
        assert len(chosen) == expected
        # Every split has a third of each difficulty.
        assert [sum(q.difficulty == d for q in chosen) for d in (1, 2, 3)] == [expected // 3] * 3
    assert all(question.reference_answer.isdigit() for question in arithmetic.questions)
    assert len({question.prompt for question in arithmetic.questions}) == 60


def test_no_word_problem_shows_its_answer_more_often_than_by_chance(arithmetic: QuestionSet) -> None:
    """A model that repeats a number of the question must not be right."""
    shown = [q for q in arithmetic.questions if q.reference_answer in _list_numbers(q)]
    assert len(shown) == 4, [q.question_id for q in shown]


def _list_numbers(question: Question) -> set[str]:
    return set("".join(c if c.isdigit() else " " for c in question.prompt).split())


def test_every_field_is_documented() -> None:
    documented = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    names = {*HEADER_FIELDS, *QUESTION_FIELDS, *TEST_FIELDS, *KINDS, "stdin", "function"}
    assert [name for name in sorted(names) if f"`{name}`" not in documented] == []


def test_the_documented_files_are_sound(write_lines: WriteLines) -> None:
    documented = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    examples = [part.split("```", 1)[0] for part in documented.split("```json\n")[1:]]
    kinds = {read_questions(write_lines(text.strip().splitlines())).kind for text in examples}
    assert kinds == set(KINDS)
