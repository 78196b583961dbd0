r"""Which text of a mathematical answer is its result."""

from __future__ import annotations

import re

from worker.grading.boxes import find_boxes, last_boxes, last_statement
from worker.grading.forms import read_form
from worker.grading.latex import clean
from worker.grading.mathematics import EQUALS
from worker.grading.quantities import find_quantity
from worker.grading.verdicts import Extraction, Reason

# Only the end of an answer is read: a result lies there, and a model that runs on for ever costs no more than this.
MAX_ANSWER_LENGTH = 200_000
MAX_RESULT_LENGTH = 2_000

_NUMBER = re.compile(
    r"(?<![\w.,])(?:\\?\$|€|£)?-?(?:(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|\.\d+)(?:\s*/\s*\d+)?(?:\s*\\?%)?(?!\d)"
)
_SENTENCE_END = re.compile(r"[.!?](?=\s+[A-Z(]|\s*$)|,?\s+(?:because|since|so|which means|where)\s")
_FORMULA = re.compile(r"\$\$(.+?)\$\$|\$(.+?)\$(?!\d)|\\\((.+?)\\\)|\\\[(.+?)\\\]")
_JOINER = re.compile(r"\s*(?:,|and|or|,\s*and|,\s*or)\s*")
_SEVERAL_NUMBERS = re.compile(r"\d\s*(?:,|,?\s*or|,?\s*and)\s*\\?\$?-?\d")
_ARITHMETIC = re.compile(r"[\d.,\s()+\-*/^×÷]*")


def extract_result(answer: str, reference: str) -> Extraction:
    """Return the text of an answer that states its result.

    The last complete box that is not empty; boxes before it count only where the reference is a list and nothing but
    a comma, "and" or "or" stands between. Without any box what follows the last "answer is", "answer:" or "####".
    Failing that, and only for a reference that is a number, the last number of the last line that is not blank. A text
    whose only box is cut off has no result.
    """
    answer = answer[-MAX_ANSWER_LENGTH:]
    if not answer.strip():
        return Extraction(None, Reason.EMPTY)
    boxes = find_boxes(answer)
    if boxes.complete:
        contents = last_boxes(answer, boxes)
        is_list = len(contents) > 1 and _count_parts(clean(reference)) == len(contents)
        return _checked(", ".join(contents) if is_list else contents[-1])
    if boxes.has_unclosed:
        return Extraction(None, Reason.UNCLOSED_BOX)
    wants_number = find_quantity(clean(reference[:MAX_RESULT_LENGTH])) is not None
    if (stated := last_statement(answer)) is not None:
        return _checked(_trim_statement(stated, wants_number=wants_number))
    if wants_number:
        last_line = answer.strip().rsplit("\n", maxsplit=1)[-1][-MAX_RESULT_LENGTH:]
        if numbers := _NUMBER.findall(last_line.replace("**", " ")):
            return Extraction(numbers[-1].strip())
    return Extraction(None, Reason.NO_ANSWER)


def _count_parts(reference: str) -> int:
    """Return how many items a reference that is a list or a set has; "1,000" is one number."""
    form = read_form(reference)
    is_list = find_quantity(reference) is None and form.kind in ("list", "set")
    return len(form.parts) if is_list else 1


def _checked(text: str) -> Extraction:
    text = text.strip()
    if not text:
        return Extraction(None, Reason.NO_ANSWER)
    return Extraction(text) if len(text) <= MAX_RESULT_LENGTH else Extraction(None, Reason.TOO_LONG)


def _trim_statement(stated: str, *, wants_number: bool) -> str:
    """Return the result in the rest of a sentence: up to its end, and of "12 - 5 = 7 apples in all" the number."""
    stated = stated[: MAX_RESULT_LENGTH + 1].replace("**", "").replace("__", "").strip()
    if formulas := _first_formulas(stated):
        return formulas
    if end := _SENTENCE_END.search(stated):
        stated = stated[: end.start()]
    stated = stated.strip().strip("*`")
    if not wants_number or find_quantity(clean(stated)) is not None:
        return stated
    right = EQUALS.split(stated)[-1].strip()
    numbers = _NUMBER.findall(right)
    if not numbers or _ARITHMETIC.fullmatch(right) or _SEVERAL_NUMBERS.search(right):
        return right
    # "8 apples, 3 more than Tom" begins with its result; "she has 8 apples" holds nothing else.
    return str(numbers[0]).strip()


def _first_formulas(stated: str) -> str:
    """Return the formula that a sentence begins with, and those that a comma, "and" or "or" joins to it; "" if none."""
    formulas: list[str] = []
    end = 0
    while match := _FORMULA.match(stated, end):
        formulas.append(next(group for group in match.groups() if group is not None).strip())
        joiner = _JOINER.match(stated, match.end())
        if joiner is None:
            break
        end = joiner.end()
    return ", ".join(formulas)
