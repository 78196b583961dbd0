"""What grading an answer comes to, and the version of the rules that it follows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# Any change that could change a verdict raises it: stored verdicts carry the version that gave them.
GRADER_VERSION = "1"


class Reason(StrEnum):
    """Why an answer has no value, or why its value was not compared to the end."""

    EMPTY = "empty"
    NO_ANSWER = "no_answer"
    UNCLOSED_BOX = "unclosed_box"
    TOO_LONG = "too_long"
    AMBIGUOUS = "ambiguous"
    CONTRADICTION = "contradiction"
    NOT_AN_OPTION = "not_an_option"
    NO_PROGRAM = "no_program"
    TIME_LIMIT = "time_limit"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    RUNTIME_ERROR = "runtime_error"
    WRONG_OUTPUT = "wrong_output"
    GRADER_CRASHED = "grader_crashed"


@dataclass(frozen=True)
class Verdict:
    """The verdict on one answer.

    Attributes
    ----------
    correct : an answer that could not be read, or whose grading ran over a limit, is wrong.
    extracted : what was read out of the answer: the mathematical text, the option's letter, or the program; None where
        nothing could be read.
    reason : a `Reason` in words of the public format, or None where the value was read and compared to the end.
    """

    correct: bool
    extracted: str | None
    reason: str | None


@dataclass(frozen=True)
class Extraction:
    """What was read out of an answer: a text, or the reason why there is none."""

    text: str | None
    reason: Reason | None = None


def refuse(extraction: Extraction) -> Verdict:
    """Return the verdict on an answer out of which nothing was read."""
    return wrong(None, extraction.reason or Reason.NO_ANSWER)


def wrong(text: str | None, reason: Reason) -> Verdict:
    """Return a verdict of wrong with its reason, as a plain text for files and databases."""
    return Verdict(False, text, reason.value)
