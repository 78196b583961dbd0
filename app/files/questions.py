"""Question sets: what models are asked, with references to grade answers by, as JSON Lines that anyone can write."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from app.errors import ContentError
from app.files.atomic import new_file
from app.files.manifest import parse_json
from app.files.problems import ProblemCollector
from app.files.question_checks import FORMAT, check_header, check_question

# The tests of one program may be as large as that.
MAX_LINE_BYTES = 2**30
DATA_FOLDER = Path(__file__).parent / "data"
ARITHMETIC_FILE = DATA_FOLDER / "arithmetic-word-problems.jsonl"

Kind = Literal["mathematics", "choice", "code"]
TestKind = Literal["stdin", "function"]
KINDS: tuple[Kind, ...] = get_args(Kind)


class QuestionError(ContentError):
    """A question file has faults; all are listed with their line and field."""

    code = "bad_questions"
    title = "The questions have problems"


@dataclass(frozen=True)
class CodeTest:
    """One test of a code question.

    Attributes
    ----------
    input : of kind "stdin" what the program reads; of kind "function" the arguments, one JSON value a line.
    expected : what the program prints, or the JSON value that the function returns.
    kind : whether a program is run or a function called.
    """

    input: str
    expected: str
    kind: TestKind = "stdin"


@dataclass(frozen=True)
class Question:
    """One question.

    Attributes
    ----------
    benchmark, question_id, split : where it belongs, as in snapshots.
    prompt : what the model is asked, options and starting code included; the instruction is the set's.
    reference_answer : the right answer; of a choice its letter, "A" for the first option; of code "" or a solution.
    kind : how answers are graded.
    difficulty : a whole number, larger for harder, or None.
    options : texts of a choice's options, in the order in which the prompt lists them.
    tests : of code.
    function_name : of code whose tests call a function.
    """

    benchmark: str
    question_id: str
    split: str
    prompt: str
    reference_answer: str
    kind: Kind
    difficulty: int | None = None
    options: tuple[str, ...] = ()
    tests: tuple[CodeTest, ...] = ()
    function_name: str | None = None


@dataclass(frozen=True)
class QuestionSet:
    """Questions of one benchmark, in the order of their ids.

    Attributes
    ----------
    benchmark, title : the name in snapshots, and the heading.
    license, source : under which terms the questions are, and where they are from.
    kind : of all its questions.
    instruction : what the model is told besides the question, for example to box its answer.
    direct_instruction : the same for the separate prompt that asks for an answer without thinking; None: not asked.
    questions : by `question_id`, by code point.
    sha256 : of the canonical content, the same whatever the order of lines and keys in a file.
    """

    benchmark: str
    title: str
    license: str
    source: str
    kind: Kind
    instruction: str
    direct_instruction: str | None
    questions: tuple[Question, ...]
    sha256: str


def build_question(document: Mapping[str, Any]) -> Question:
    """Return the question of a document, `benchmark` and `kind` included; the inverse of `question_document`.

    Raises
    ------
    QuestionError : unknown or missing fields, wrong values, or what does not fit the kind; all are listed.

    Examples
    --------
    >>> document = {"benchmark": "sums", "kind": "mathematics", "question_id": "s1", "split": "test",
    ...             "prompt": "What is 2 + 2?", "reference_answer": "4"}
    >>> build_question(document).reference_answer
    '4'
    """
    problems = ProblemCollector()
    check_question(document, problems)
    if problems:
        raise QuestionError("the question has problems", problems=problems.problems())
    return _make_question(document)


def question_document(question: Question) -> dict[str, Any]:
    """Return a question as a plain document, without the fields that are empty."""
    document: dict[str, Any] = {
        "benchmark": question.benchmark,
        "question_id": question.question_id,
        "split": question.split,
        "kind": question.kind,
        "prompt": question.prompt,
        "reference_answer": question.reference_answer,
    }
    if question.difficulty is not None:
        document["difficulty"] = question.difficulty
    if question.options:
        document["options"] = list(question.options)
    if question.tests:
        document["tests"] = [{"input": t.input, "expected": t.expected, "kind": t.kind} for t in question.tests]
    if question.function_name is not None:
        document["function_name"] = question.function_name
    return document


def header_document(question_set: QuestionSet) -> dict[str, Any]:
    """Return what the first line of a file says of a set."""
    header = {
        "format": FORMAT,
        "benchmark": question_set.benchmark,
        "title": question_set.title,
        "license": question_set.license,
        "source": question_set.source,
        "kind": question_set.kind,
        "instruction": question_set.instruction,
    }
    if question_set.direct_instruction is not None:
        header["direct_instruction"] = question_set.direct_instruction
    return header


def build_question_set(header: Mapping[str, Any], questions: Sequence[Question]) -> QuestionSet:
    """Return a set of checked questions with its identity.

    Raises
    ------
    QuestionError : a faulty header, questions of another benchmark or kind, an id twice, or no question at all.
    """
    problems = ProblemCollector()
    check_header(header, problems)
    if not problems:
        for question in questions:
            for field in ("benchmark", "kind"):
                if getattr(question, field) != header[field]:
                    problems.add(
                        "bad_value",
                        f"{question.question_id}: {field} is {getattr(question, field)!r}, the set's {header[field]!r}",
                        column=field,
                        unit=question.question_id,
                    )
    _refuse_repeats([question.question_id for question in questions], problems)
    if problems:
        raise QuestionError("the question set has problems", problems=problems.problems())
    ordered = tuple(sorted(questions, key=lambda question: question.question_id))
    canonical = [dict(header), *(question_document(question) for question in ordered)]
    text = json.dumps(canonical, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return QuestionSet(
        benchmark=header["benchmark"],
        title=header["title"],
        license=header["license"],
        source=header["source"],
        kind=header["kind"],
        instruction=header["instruction"],
        direct_instruction=header.get("direct_instruction"),
        questions=ordered,
        sha256=hashlib.sha256(text.encode()).hexdigest(),
    )


def read_questions(path: Path) -> QuestionSet:
    """Return the question set of a JSON Lines file.

    Blank lines are skipped; `benchmark` and `kind` of a question are the header's where its line leaves them out.

    Raises
    ------
    QuestionError : every fault, with its line as the row and its field as the column.
    """
    problems = ProblemCollector()
    header: dict[str, Any] | None = None
    questions: list[Question] = []
    rows: list[int] = []
    try:
        for row, document in _read_lines(path, problems):
            if header is None:
                header = document
                check_header(header, problems, row=row)
                continue
            filled = {"benchmark": header.get("benchmark"), "kind": header.get("kind"), **document}
            if check_question(filled, problems, row=row, header=header):
                questions.append(_make_question(filled))
                rows.append(row)
    except (OSError, UnicodeDecodeError) as exc:
        problems.add("unreadable_file", f"{path} cannot be read: {exc}")
    if header is None and not problems:
        problems.add("empty_file", f"{path.name} is empty; its first line is the header, with the format")
    _refuse_repeats([question.question_id for question in questions], problems, rows=rows)
    if problems:
        raise QuestionError(f"{path.name} has problems", problems=problems.problems())
    assert header is not None
    return build_question_set(header, questions)


def write_questions(path: Path, question_set: QuestionSet) -> None:
    """Write a set as JSON Lines, whole or not at all.

    Raises
    ------
    OutputExistsError : there is such a file already.
    """
    lines: list[dict[str, Any]] = [header_document(question_set)]
    for question in question_set.questions:
        document = question_document(question)
        del document["benchmark"], document["kind"]
        lines.append(document)
    with new_file(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(json.dumps(line, ensure_ascii=False, allow_nan=False) + "\n" for line in lines)


def _make_question(document: Mapping[str, Any]) -> Question:
    return Question(
        benchmark=document["benchmark"],
        question_id=document["question_id"],
        split=document["split"],
        prompt=document["prompt"],
        reference_answer=document["reference_answer"],
        kind=document["kind"],
        difficulty=document.get("difficulty"),
        options=tuple(document.get("options") or ()),
        tests=tuple(
            CodeTest(test["input"], test["expected"], test.get("kind") or "stdin")
            for test in document.get("tests") or ()
        ),
        function_name=document.get("function_name"),
    )


def _read_lines(path: Path, problems: ProblemCollector) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the JSON object of every line that holds one, with the line's number."""
    with path.open("rb") as file:
        for row, line in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES + 1), b""), start=1):
            if len(line) > MAX_LINE_BYTES:
                problems.add("unreadable_file", f"line {row} has more than {MAX_LINE_BYTES} bytes", row=row)
                return
            text = line.decode("utf-8-sig" if row == 1 else "utf-8")
            if not text.strip():
                continue
            try:
                document = parse_json(text)
            except ValueError as exc:
                problems.add("not_json", f"line {row} is not JSON: {exc}", row=row)
                continue
            if isinstance(document, dict):
                yield row, document
            else:
                problems.add("not_json", f"line {row} is not a JSON object", row=row)


def _refuse_repeats(ids: Sequence[str], problems: ProblemCollector, *, rows: Sequence[int] | None = None) -> None:
    if not ids and not problems:
        problems.add("empty_file", "there is no question")
    seen: set[str] = set()
    for idx, question_id in enumerate(ids):
        if question_id in seen:
            problems.add(
                "duplicate_question",
                f"the question {question_id!r} is there twice",
                row=rows[idx] if rows is not None else None,
                column="question_id",
                unit=question_id,
            )
        seen.add(question_id)
