r"""Finds where an answer states its result: boxes with any depth of braces, and sentences such as "the answer is 5"."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

# The second form, a box without braces, holds one word as TeX reads it: \boxed 5 and \boxed5.
_BOX = re.compile(r"\\(?:boxed|fbox)\s*(?:\{|([A-Za-z0-9]+(?![A-Za-z0-9{])))")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
# What may stand between two boxes that are meant as one list.
_JOINER = re.compile(r"[\s$.]*(?:,|;|and|or|,\s*and|,\s*or|\\text\{\s*(?:and|or)\s*\})?[\s$.]*")
_STATEMENT = re.compile(
    r"(?:\banswers?\b(?:[^\S\n]+to[^\S\n]+[^\n.:]{1,80}?)?[*_]*[^\S\n]*"
    r"(?:\bis\b|\bare\b|\bwould[^\S\n]+be\b|\bwill[^\S\n]+be\b|[:=])|^[^\S\n]*\#{4})"
    r"[^\S\n]*:?[*_]*[^\S\n]*",
    re.IGNORECASE | re.MULTILINE,
)
_STATED = re.compile(r"[^\n]*[^\s*_:$\n][^\n]*")


@dataclass(frozen=True)
class Box:
    """A box: where it begins and ends in the text, and what is in it."""

    start: int
    end: int
    content: str


@dataclass(frozen=True)
class Boxes:
    """The boxes of a text that are complete and not empty, in order, and whether another one was never closed."""

    complete: tuple[Box, ...]
    has_unclosed: bool


def find_boxes(text: str) -> Boxes:
    r"""Return the boxes of a text; of nested ones the innermost.

    Escaped braces do not count. A box that the end of the text cuts off is not complete, since its content may be cut
    off as well; an empty one is a form left blank, such as the instruction's own ``\boxed{}``.
    """
    closing = match_braces(text)
    found: list[Box] = []
    has_unclosed = False
    for match in _BOX.finditer(text):
        if match[1] is not None:
            found.append(Box(match.start(), match.end(), match[1]))
        elif (end := closing.get(match.end() - 1)) is None:
            has_unclosed = True
        else:
            found.append(Box(match.start(), end + 1, text[match.end() : end].strip()))
    # Boxes are in the order of their beginnings, so one that holds another is followed by it.
    innermost = [
        box for box, after in itertools.zip_longest(found, found[1:]) if after is None or box.end <= after.start
    ]
    return Boxes(tuple(box for box in innermost if box.content), has_unclosed)


def match_braces(text: str) -> dict[int, int]:
    """Return the place of the closing brace of every opening one that has one; escaped braces do not count."""
    closing: dict[int, int] = {}
    opened: list[int] = []
    for match in _BRACE.finditer(text):
        if match[0] == "{":
            opened.append(match.start())
        elif match[0] == "}" and opened:
            closing[opened.pop()] = match.start()
    return closing


def last_boxes(text: str, boxes: Boxes) -> list[str]:
    """Return the content of the last box, preceded by those that a comma, "and" or "or" joins to it."""
    chain: list[Box] = []
    for box in reversed(boxes.complete):
        if chain and not _JOINER.fullmatch(text[box.end : chain[0].start]):
            break
        chain.insert(0, box)
    return [box.content for box in chain]


def last_statement(text: str) -> str | None:
    """Return the rest of the line after the last "answer is", "answer:" or "####" that something follows, or None.

    Where nothing follows on the line, the next line that is not blank is what is stated.
    """
    for match in reversed(list(_STATEMENT.finditer(text))):
        if stated := _STATED.search(text, match.end()):
            return stated[0].strip()
    return None
