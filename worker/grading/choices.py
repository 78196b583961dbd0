r"""Answers to questions with options: the letter of the option that an answer chooses.

What decides, in this order: the last box; the last "answer is …" or "Answer: …"; an answer, or its last line, that is
nothing but an option; the last letter in bold. Whatever is found first in this order is final, even if it is no option:
a stray letter further on beats nothing. Each may give the letter, the option's text, or both, and both must agree.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from worker.grading.boxes import find_boxes, last_boxes, last_statement
from worker.grading.latex import clean, squeeze, unwrap_text
from worker.grading.quantities import equal_quantities, find_quantity
from worker.grading.results import MAX_ANSWER_LENGTH, MAX_RESULT_LENGTH
from worker.grading.verdicts import Extraction, Reason

_LABEL = r"(?:(?:the\s+)?(?:correct\s+)?(?:option|choice|answer)\s*(?:is)?\s*:?\s*)?"
_BARE_LETTER = re.compile(rf"{_LABEL}[(\[]?\s*([A-Za-z])\s*[)\]]?\s*[.:]?", re.IGNORECASE)
# A letter set off from what follows: "(C) 5 cm", "C) 5 cm", "C. 5 cm", "C: 5 cm", "C - 5 cm".
_LETTER_AND_TEXT = re.compile(
    rf"{_LABEL}(?:[(\[]\s*([A-Za-z])\s*[)\]]|([A-Za-z])\s*(?:[).:]|\s[-–—]\s|\s*,))\s*(.+)", re.IGNORECASE | re.DOTALL
)
_LETTER_AND_REASON = re.compile(
    rf"{_LABEL}[(\[]?([A-Z])[)\]]?[,.;]?\s+(?:because|since|as|for|which|where|so|due|given|\()\b.*", re.DOTALL
)
_CORRECT_OPTION = re.compile(
    r"\b(?:correct|right|best)\s+(?:option|choice)[*_]*\s*(?:\bis\b|:)[*_]*:?[*_]*([^\n]*)", re.IGNORECASE
)
_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_SEVERAL_LETTERS = re.compile(r"[(\[]?[A-Z][)\]]?(?:\s*(?:,|/|&|\band\b|\bor\b)\s*[(\[]?[A-Z][)\]]?)+\.?")
_BOLD = re.compile(
    r"\*\*\s*[(\[]?([A-Za-z])[)\]]?\s*[.:]?\s*\*\*|\*\*\s*(?:[(\[]([A-Z])[)\]]|([A-Z])[).:])\s+([^*\n]+)\*\*"
)


def extract_choice(answer: str, options: Sequence[str]) -> Extraction:
    """Return the letter of the option that an answer chooses, "A" for the first."""
    answer = answer[-MAX_ANSWER_LENGTH:]
    if not answer.strip():
        return Extraction(None, Reason.EMPTY)
    boxes = find_boxes(answer)
    if boxes.complete:
        contents = last_boxes(answer, boxes)
        chosen = [resolve_option(content, options) for content in contents]
        if len({extraction.text for extraction in chosen}) > 1 and all(extraction.text for extraction in chosen):
            return Extraction(None, Reason.AMBIGUOUS)
        return chosen[-1]
    if boxes.has_unclosed:
        return Extraction(None, Reason.UNCLOSED_BOX)
    if (stated := _find_statement(answer)) is not None:
        chosen_option = resolve_option(stated, options)
        if chosen_option.reason == Reason.NOT_AN_OPTION and (end := _SENTENCE_END.search(stated)):
            return resolve_option(stated[: end.start()], options)
        return chosen_option
    return _find_standing_alone(answer, options)


def _find_statement(answer: str) -> str | None:
    """Return what follows the last "answer is" or, where there is none, the last "correct option is"."""
    if (stated := last_statement(answer)) is not None:
        return stated
    found = list(_CORRECT_OPTION.finditer(answer))
    return found[-1][1].strip() or None if found else None


def _find_standing_alone(answer: str, options: Sequence[str]) -> Extraction:
    last_line = answer.strip().rsplit("\n", maxsplit=1)[-1]
    for text in (answer, last_line):
        extraction = resolve_option(text, options)
        if extraction.reason not in (Reason.NOT_AN_OPTION, Reason.TOO_LONG):
            return extraction
    if bold := list(_BOLD.finditer(answer)):
        return resolve_option(bold[-1][0], options)
    return Extraction(None, Reason.NO_ANSWER)


def resolve_option(text: str, options: Sequence[str]) -> Extraction:
    """Return the letter of the option that a text names by its letter, its own text, or both.

    A single letter is a label, also where an option's text is another letter. With a letter and a text the two must
    name the same option, if the text is that of an option.
    """
    if len(text) > MAX_RESULT_LENGTH:
        return Extraction(None, Reason.TOO_LONG)
    plain = _plain(text)
    if not plain:
        return Extraction(None, Reason.NO_ANSWER)
    if match := _BARE_LETTER.fullmatch(plain):
        return _label(match[1], options)
    by_text = _find_text(text, options)
    if by_text is not None:
        return Extraction(by_text)
    if _SEVERAL_LETTERS.fullmatch(plain):
        return Extraction(None, Reason.AMBIGUOUS)
    if match := _LETTER_AND_TEXT.fullmatch(plain):
        return _label_with_text(match[1] or match[2], match[3], options)
    if (match := _LETTER_AND_REASON.fullmatch(plain)) is not None:
        return _label(match[1], options)
    match = re.match(rf"{_LABEL}([A-Z])\s+(.+)", plain, re.DOTALL)
    if match and _find_text(match[2], options) == match[1]:
        return Extraction(match[1])
    return Extraction(None, Reason.NOT_AN_OPTION)


def _plain(text: str) -> str:
    return unwrap_text(clean(text)).replace("**", " ").strip().strip("*`\"'").strip()


def _label(letter: str, options: Sequence[str]) -> Extraction:
    idx = ord(letter.upper()) - ord("A")
    return Extraction(letter.upper()) if idx < len(options) else Extraction(None, Reason.NOT_AN_OPTION)


def _label_with_text(letter: str, text: str, options: Sequence[str]) -> Extraction:
    by_letter, by_text = _label(letter, options), _find_text(text, options)
    if by_text is not None and by_letter.text != by_text:
        return Extraction(None, Reason.CONTRADICTION)
    return by_letter


def _find_text(text: str, options: Sequence[str]) -> str | None:
    """Return the letter of the one option whose text this is, or None; numbers may be written differently."""
    same = [idx for idx, option in enumerate(options) if _bare(option) == _bare(text)]
    if not same:
        same = [idx for idx, option in enumerate(options) if _bare(option).casefold() == _bare(text).casefold()]
    if not same:
        quantity = find_quantity(clean(text))
        quantities = [find_quantity(clean(option)) for option in options]
        same = [idx for idx, other in enumerate(quantities) if quantity and other and equal_quantities(quantity, other)]
    return chr(ord("A") + same[0]) if len(same) == 1 else None


@functools.lru_cache(maxsize=1024)
def _bare(text: str) -> str:
    return squeeze(clean(text)).strip(".,;:*`\"'")
