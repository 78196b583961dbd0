"""The fields of question files: which there are, what each may hold, and what must fit together."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.evaluator.measurements import SPLITS
from app.files.manifest import is_plain_name
from app.files.problems import ProblemCollector, suggest

FORMAT = "otboard-questions/1"
KINDS = ("mathematics", "choice", "code")
TEST_KINDS = ("stdin", "function")
MAX_TEXT = 2**27
MAX_OPTIONS = 26
MAX_DIFFICULTY = 2**31 - 1


@dataclass(frozen=True)
class Field:
    """A field: what it may hold, in code and in words, and whether it must be there."""

    accepts: Callable[[Any], bool]
    expected: str
    required: bool = True


def _is_text(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= MAX_TEXT
        and "\0" not in value
        and not any(0xD800 <= ord(character) <= 0xDFFF for character in value)
    )


def _is_filled_text(value: Any) -> bool:
    return _is_text(value) and bool(value.strip())


def _is_difficulty(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= MAX_DIFFICULTY


def _is_options(value: Any) -> bool:
    return isinstance(value, list) and 2 <= len(value) <= MAX_OPTIONS and all(_is_filled_text(v) for v in value)


def _is_tests(value: Any) -> bool:
    return isinstance(value, list) and bool(value)


_NAME = Field(is_plain_name, "a name of 1 to 200 characters without line breaks or blanks at its ends")
_FILLED = Field(_is_filled_text, "a text that is not empty")
HEADER_FIELDS = {
    "format": Field(lambda v: v == FORMAT, FORMAT),
    "benchmark": _NAME,
    "title": _FILLED,
    "license": _FILLED,
    "source": _FILLED,
    "kind": Field(lambda v: v in KINDS, f"one of {', '.join(KINDS)}"),
    "instruction": Field(_is_text, "a text"),
    "direct_instruction": Field(_is_text, "a text", required=False),
}
QUESTION_FIELDS = {
    "benchmark": _NAME,
    "kind": HEADER_FIELDS["kind"],
    "question_id": _NAME,
    "split": Field(lambda v: v in SPLITS, f"one of {', '.join(SPLITS)}"),
    "prompt": _FILLED,
    "reference_answer": Field(_is_text, "a text; numbers are written as text too"),
    "difficulty": Field(_is_difficulty, "a whole number", required=False),
    "options": Field(_is_options, f"a list of 2 to {MAX_OPTIONS} texts", required=False),
    "tests": Field(_is_tests, "a list of tests that is not empty", required=False),
    "function_name": Field(
        lambda v: isinstance(v, str) and v.isidentifier(), "the name of a Python function", required=False
    ),
}
TEST_FIELDS = {
    "input": Field(_is_text, "a text"),
    "expected": Field(_is_text, "a text"),
    "kind": Field(lambda v: v in TEST_KINDS, f"one of {', '.join(TEST_KINDS)}", required=False),
}


@dataclass(frozen=True)
class _Place:
    """Where a fault is: the line, and the question."""

    problems: ProblemCollector
    row: int | None
    unit: str | None

    def add(self, code: str, message: str, column: str | None) -> None:
        """Record a fault here."""
        label = f"{self.unit}: " if self.unit else ""
        self.problems.add(code, label + message, row=self.row, column=column, unit=self.unit)

    def check(self, document: Mapping[Any, Any], fields: Mapping[str, Field], *, within: str = "") -> set[str]:
        """Record every fault of a document's fields, and return the names of those that are there and sound."""
        sound = set()
        for key in document:
            if key not in fields:
                message = f"the field {within + str(key)!r} is not known{suggest(str(key), fields)}"
                self.add("unknown_field", message, within + str(key))
        for name, field in fields.items():
            value = document.get(name)
            if value is None:
                if field.required:
                    self.add("missing_field", f"there is no {within + name!r}; expected: {field.expected}", name)
            elif field.accepts(value):
                sound.add(name)
            else:
                message = f"{within + name} is {_show(value)}; expected: {field.expected}"
                self.add("bad_value", message, within + name)
        return sound


def check_header(header: Mapping[str, Any], problems: ProblemCollector, *, row: int | None = None) -> None:
    """Record every fault of a header."""
    _Place(problems, row, None).check(header, HEADER_FIELDS)


def check_question(
    document: Mapping[str, Any],
    problems: ProblemCollector,
    *,
    row: int | None = None,
    header: Mapping[str, Any] | None = None,
) -> bool:
    """Record every fault of a question, and return whether it has none.

    Parameters
    ----------
    document : the question, with `benchmark` and `kind`.
    header : of the file it is in; the question must not contradict it.
    """
    identifier = document.get("question_id")
    place = _Place(problems, row, identifier if isinstance(identifier, str) else None)
    before = problems.n_faults
    sound = place.check(document, QUESTION_FIELDS)
    for name in ("benchmark", "kind"):
        if header is not None and name in sound and document[name] != header.get(name):
            place.add("bad_value", f"{name} is {document[name]!r}, the header's {header.get(name)!r}", name)
    if "kind" in sound:
        _check_kind(document, sound, place)
    return problems.n_faults == before


def _check_kind(document: Mapping[str, Any], sound: set[str], place: _Place) -> None:
    """Record what does not fit the kind of a question."""
    kind = document["kind"]
    for name, owner in (("options", "choice"), ("tests", "code"), ("function_name", "code")):
        if document.get(name) is not None and kind != owner:
            place.add("bad_value", f"{name} belongs to questions of the kind {owner}, not {kind}", name)
    if kind == "mathematics" and "reference_answer" in sound and not document["reference_answer"].strip():
        place.add("bad_value", "reference_answer is empty", "reference_answer")
    if kind == "choice":
        _check_choice(document, sound, place)
    if kind == "code":
        _check_tests(document, sound, place)


def _check_choice(document: Mapping[str, Any], sound: set[str], place: _Place) -> None:
    if document.get("options") is None:
        place.add("missing_field", "a choice has options", "options")
    if not {"options", "reference_answer"} <= sound:
        return
    options, answer = document["options"], document["reference_answer"]
    letters = [chr(ord("A") + idx) for idx in range(len(options))]
    if answer not in letters:
        message = f"reference_answer is {_show(answer)}; expected: the letter of an option, A to {letters[-1]}"
        place.add("bad_value", message, "reference_answer")
    if len({option.strip() for option in options}) < len(options):
        place.add("bad_value", "two options are the same", "options")


def _check_tests(document: Mapping[str, Any], sound: set[str], place: _Place) -> None:
    if document.get("tests") is None:
        place.add("missing_field", "code has tests", "tests")
    if "tests" not in sound:
        return
    kinds = set()
    for idx, test in enumerate(document["tests"]):
        within = f"tests[{idx}]."
        if not isinstance(test, Mapping):
            place.add("bad_value", f"tests[{idx}] is not an object", "tests")
            continue
        place.check(test, TEST_FIELDS, within=within)
        kinds.add(test.get("kind") or "stdin")
    if "function" in kinds and document.get("function_name") is None:
        place.add("missing_field", "tests that call a function need function_name", "function_name")


def _show(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
