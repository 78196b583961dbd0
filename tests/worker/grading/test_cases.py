"""Answers and the right verdicts on them, as tables in files beside this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from app.files.questions import Question
from worker.grading import Grader, Reason

TABLES = Path(__file__).parent


def read_table(name: str) -> Any:
    return yaml.safe_load((TABLES / name).read_text(encoding="utf-8"))


MATHEMATICS = [
    pytest.param(answer, reference, verdict, id=f"{heading} {idx}")
    for heading, cases in read_table("mathematics.yaml").items()
    for idx, (answer, reference, verdict) in enumerate(cases, start=1)
]
CHOICES = [
    pytest.param(answer, table["options"], letter, id=f"{heading} {idx}")
    for heading, table in read_table("choices.yaml").items()
    for idx, (answer, letter) in enumerate(table["answers"], start=1)
]


def make_question(**fields: Any) -> Question:
    return Question(**{"benchmark": "b", "question_id": "q", "split": "test", "prompt": "?", **fields})


@pytest.mark.parametrize(("answer", "reference", "verdict"), MATHEMATICS)
def test_mathematics(grader: Grader, answer: str, reference: str, verdict: str) -> None:
    [given] = grader.grade(make_question(kind="mathematics", reference_answer=reference), [answer])
    assert given.correct == (verdict == "right")
    assert given.reason == (verdict if verdict in set(Reason) else None)
    assert (given.extracted is None) == (verdict in set(Reason))


@pytest.mark.parametrize(("answer", "options", "letter"), CHOICES)
def test_choice(grader: Grader, answer: str, options: list[str], letter: str) -> None:
    # Against every reference: right for the letter that was read and for no other.
    for idx in range(len(options)):
        reference = "ABCDE"[idx]
        question = make_question(kind="choice", reference_answer=reference, options=tuple(options))
        [given] = grader.grade(question, [answer])
        assert given.extracted == (None if letter in set(Reason) else letter)
        assert given.reason == (letter if letter in set(Reason) else None)
        assert given.correct == (letter == reference)


def test_there_are_enough_cases_of_both_verdicts() -> None:
    mathematics = [case.values[2] for case in MATHEMATICS]
    assert len(mathematics) + len(CHOICES) >= 300
    assert mathematics.count("right") >= 100
    assert mathematics.count("wrong") >= 60
