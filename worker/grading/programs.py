"""Programs: which part of an answer is the program, and whether it passes a question's tests.

Each test is a run in a sandbox of its own. What comes out is compared here, outside, with expected values that never
enter the sandbox, so a program cannot pass by anything but the right output.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from app.files.questions import CodeTest
from worker.grading.sandbox import Sandbox
from worker.grading.verdicts import Extraction, Reason, Verdict, wrong

MAX_ANSWER_LENGTH = 2_000_000
MAX_PROGRAM_LENGTH = 200_000
_FENCE = re.compile(r"^[ \t]{0,3}(`{3,}|~{3,})[ \t]*([^\n`]*)$", re.MULTILINE)
_PYTHON = frozenset({"python", "python3", "py", "py3"})


def extract_program(answer: str) -> Extraction:
    """Return the last fenced block that is marked as Python, else the last one without a mark.

    A block that the end of the text cuts off is no program: the half that is there would be graded for the whole.
    """
    if not answer.strip():
        return Extraction(None, Reason.EMPTY)
    if len(answer) > MAX_ANSWER_LENGTH:
        return Extraction(None, Reason.TOO_LONG)
    chosen: dict[str, str | None] = {"python": None, "": None}
    for mark, block in _read_blocks(answer):
        language = mark.strip().lower().split(" ")[0].strip("{}.")
        name = "python" if language in _PYTHON else language
        if name in chosen and block.strip():
            chosen[name] = block
    program = chosen["python"] if chosen["python"] is not None else chosen[""]
    if program is None:
        return Extraction(None, Reason.NO_PROGRAM)
    return Extraction(program) if len(program) <= MAX_PROGRAM_LENGTH else Extraction(None, Reason.TOO_LONG)


def _read_blocks(answer: str) -> list[tuple[str, str]]:
    """Return the mark and the content of every fenced block that is closed."""
    blocks: list[tuple[str, str]] = []
    opened: re.Match[str] | None = None
    for fence in _FENCE.finditer(answer):
        if opened is None:
            opened = fence
        elif fence[1][0] == opened[1][0] and len(fence[1]) >= len(opened[1]) and not fence[2].strip():
            blocks.append((opened[2], answer[opened.end() + 1 : fence.start()]))
            opened = None
        elif fence[2].strip() and len(fence[1]) >= len(opened[1]):
            # A block that was never closed ends where another begins.
            opened = fence
    return blocks


def grade_program(program: str, tests: Sequence[CodeTest], *, function_name: str | None, sandbox: Sandbox) -> Verdict:
    """Return the verdict on a program: right if it passes every test; the first that it fails ends the grading."""
    if not tests:
        raise ValueError("a program without tests cannot be graded")
    for test in tests:
        name = function_name if test.kind == "function" else None
        run = sandbox.run(program, text=test.input, function_name=name)
        if run.ending != "ended":
            return wrong(program, Reason(run.ending))
        same = equal_values if test.kind == "function" else equal_outputs
        if not same(run.output, test.expected):
            return wrong(program, Reason.WRONG_OUTPUT)
    return Verdict(True, program, None)


def equal_outputs(output: bytes, expected: str) -> bool:
    """Return whether a program printed what was expected.

    Blanks around the whole and around each line do not count. A line that differs still agrees if both sides hold as
    many numbers, and nothing else, and they are pairwise equal as decimals: 1.50 is 1.5, and 0.333 is not 0.3333.
    """
    try:
        text = output.decode("utf-8")
    except UnicodeDecodeError:
        return False
    lines, wanted = ([line.strip() for line in side.strip().split("\n")] for side in (text, expected))
    return len(lines) == len(wanted) and all(map(_equal_lines, lines, wanted))


def _equal_lines(line: str, wanted: str) -> bool:
    if line == wanted:
        return True
    words, wanted_words = line.split(), wanted.split()
    if len(words) != len(wanted_words):
        return False
    try:
        return all(Decimal(word) == Decimal(other) for word, other in zip(words, wanted_words, strict=True))
    except InvalidOperation:
        return False


def equal_values(output: bytes, expected: str) -> bool:
    """Return whether a function returned the expected JSON value; a tuple is a list, numbers must be equal exactly."""
    try:
        return bool(_load(output.decode("utf-8")) == _load(expected))
    except (ValueError, RecursionError):
        return False


def _load(text: str) -> Any:
    return json.loads(text, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")
