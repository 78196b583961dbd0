"""Which part of an answer is the program, how output is compared, and programs graded against tests."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.files.questions import CodeTest, Question
from worker.grading import Grader, Verdict
from worker.grading.programs import equal_outputs, equal_values, extract_program, grade_program
from worker.grading.sandbox import Sandbox


@pytest.mark.parametrize(
    ("answer", "program"),
    [
        ("```python\nprint(1)\n```", "print(1)\n"),
        ("First:\n```python\nprint(1)\n```\nBetter:\n```python\nprint(2)\n```\nDone.", "print(2)\n"),
        ("```\nprint(1)\n```", "print(1)\n"),
        ("```py\nprint(1)\n```", "print(1)\n"),
        ("```Python3\nprint(1)\n```", "print(1)\n"),
        ("~~~python\nprint('```')\n~~~", "print('```')\n"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
        ("  ```python\nprint(1)\n  ```", "print(1)\n"),
        # Sample output after the program, with and without a mark.
        ("```python\nprint(1)\n```\nIt prints:\n```\n1\n```", "print(1)\n"),
        ("```python\nprint(1)\n```\n```text\n1\n```", "print(1)\n"),
        ("```python\nprint(1)\n```\n```bash\npython a.py\n```", "print(1)\n"),
        ("```cpp\nint main() {}\n```\n```\nprint(1)\n```", "print(1)\n"),
        # A block that was never closed, then one that is.
        ("```python\nprint(1)\n```python\nprint(2)\n```", "print(2)\n"),
        # The last block is cut off: the one before is what there is.
        ("```python\nprint(1)\n```\nSimpler:\n```python\nprint(", "print(1)\n"),
        # An answer opening that begins the block.
        ("Here is the code:\n```python\nprint(1)\n```", "print(1)\n"),
        ("```python\n\n```\n", None),
        ("```python\nprint(1)", None),
        ("print(1)", None),
        ("`print(1)`", None),
        ("```cpp\nint main() {}\n```", None),
        ("", None),
    ],
)
def test_extract_program(answer: str, program: str | None) -> None:
    assert extract_program(answer).text == program


def test_programs_that_are_too_long_are_not_run() -> None:
    assert extract_program("```python\n" + "x = 1\n" * 100_000 + "```").reason == "too_long"
    assert extract_program("x" * 3_000_000).reason == "too_long"
    assert extract_program(" ").reason == "empty"
    assert extract_program("```python\nprint(").reason == "no_program"


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("3\n", "3", True),
        ("3", "3\n", True),
        (" 3 \n\n", "3", True),
        ("1 2\n3\n", "1 2\n3", True),
        ("1 2 \n 3", "1 2\n3", True),
        ("1\r\n2\r\n", "1\n2\n", True),
        ("1  2", "1 2", True),
        ("1 2", "1\n2", False),
        ("1\n\n2", "1\n2", False),
        ("1.50", "1.5", True),
        ("1.0", "1", True),
        ("1e3", "1000", True),
        ("0.333", "0.3333", False),
        ("0.30000000000000004", "0.3", False),
        ("YES", "yes", False),
        ("YES  NO", "YES NO", False),
        ("3 apples", "3.0 apples", False),
        ("", "", True),
        ("", "3", False),
        ("3", "", False),
        ("4", "3", False),
        ("NaN", "NaN", True),
        ("nan", "NaN", False),
        ("sNaN", "3", False),
        ("1e999999999", "1e999999998", False),
        ("-0", "0", True),
    ],
)
def test_equal_outputs(output: str, expected: str, same: bool) -> None:
    assert equal_outputs(output.encode(), expected) is same


@pytest.mark.parametrize(
    ("output", "expected", "same"),
    [
        ("3", "3", True),
        ("3.0", "3", True),
        ("[1, [2, 3]]", "[1,[2,3]]", True),
        ("[2, 1]", "[1, 2]", False),
        ('"a"', '"a"', True),
        ("null", "null", True),
        ("true", "true", True),
        ('{"a": 1}', '{"a":1}', True),
        ("0.30000000000000004", "0.3", False),
        ("NaN", "NaN", False),
        ("", "3", False),
        ("3 3", "3", False),
        ("[" * 100_000, "3", False),
        ("9" * 5000, "3", False),
    ],
)
def test_equal_values(output: str, expected: str, same: bool) -> None:
    assert equal_values(output.encode(), expected) is same


def function_question(*tests: tuple[list[Any], Any]) -> Question:
    return Question(
        benchmark="b",
        question_id="q",
        split="test",
        prompt="?",
        reference_answer="",
        kind="code",
        tests=tuple(
            CodeTest("\n".join(json.dumps(argument) for argument in arguments), json.dumps(expected), "function")
            for arguments, expected in tests
        ),
        function_name="twice",
    )


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("class Solution:\n    def twice(self, xs, n):\n        return [x * n for x in xs]", None),
        ("def twice(xs, n):\n    return tuple(x * n for x in xs)", None),
        ("def twice(xs: List[int], n: int) -> List[int]:\n    print('debug')\n    return [x * n for x in xs]", None),
        ("def twice(xs, n):\n    return [x * n for x in xs]\nif __name__ == '__main__':\n    twice(input())", None),
        ("def twice(xs, n):\n    return xs", "wrong_output"),
        ("def twice(xs):\n    return xs", "runtime_error"),
        ("def thrice(xs, n):\n    return xs", "runtime_error"),
        ("def twice(xs, n):\n    return {1, 2}", "runtime_error"),
        ("def twice(xs, n):\n    return float('nan')", "runtime_error"),
        ("def twice(xs, n):\n    while True:\n        print('x' * 1000)", "time_limit"),
        # What is equal to everything inside is not outside.
        (
            "class Any(list):\n    def __eq__(self, other):\n        return True\ndef twice(xs, n):\n    return Any()",
            "wrong_output",
        ),
        ("import json\njson.dumps = lambda *a, **k: '[2, 4]'\ndef twice(xs, n):\n    return 0", "wrong_output"),
        ("import os\ndef twice(xs, n):\n    os._exit(0)", "wrong_output"),
        ("def twice(xs, n):\n    raise SystemExit", "wrong_output"),
        ("import sys\nsys.exit()", "runtime_error"),
    ],
)
def test_functions(sandbox: Sandbox, program: str, reason: str | None) -> None:
    question = function_question(([[1, 2], 2], [2, 4]), ([[], 3], []))
    verdict = grade_program(program, question.tests, function_name=question.function_name, sandbox=sandbox)
    assert verdict == Verdict(reason is None, program, reason)


def test_programs_that_are_the_same_run_once_and_keep_their_places(grader: Grader) -> None:
    question = Question(
        benchmark="b",
        question_id="q",
        split="test",
        prompt="?",
        reference_answer="",
        kind="code",
        tests=(CodeTest("2\n", "4\n"), CodeTest("3\n", "9\n")),
    )
    right, wrong = "```python\nprint(int(input()) ** 2)\n```", "```python\nprint(4)\n```"
    verdicts = grader.grade(question, [right, wrong, "", right, "no code", wrong])
    assert [verdict.correct for verdict in verdicts] == [True, False, False, True, False, False]
    assert [verdict.reason for verdict in verdicts] == [
        None,
        "wrong_output",
        "empty",
        None,
        "no_program",
        "wrong_output",
    ]


def test_a_program_without_tests_is_refused(sandbox: Sandbox) -> None:
    with pytest.raises(ValueError, match="without tests"):
        grade_program("print(1)", (), function_name=None, sandbox=sandbox)
