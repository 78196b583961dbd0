"""How an answer is built: a list, set, tuple, interval, union or matrix, and its parts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

FormKind = Literal["single", "list", "set", "tuple", "union", "matrix"]
_BRACKETS = {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}
_PIECE = re.compile(r"\\begin\{|\\end\{|\\cup(?![A-Za-z])|\\.|.", re.DOTALL)
_MATRIX = re.compile(
    r"\\begin\{([pbB]?matrix|array)\}(?:\{[lcr| ]*\})?(.*)\\end\{\1\}",
    re.DOTALL,
)


_SIGN = r"\s*(<|>|\\le|\\ge)(?![A-Za-z])\s*"
_BOUND = r"([^<>=,A-Za-z]*(?:\\(?!le|ge|ne)[A-Za-z]+[^<>=,A-Za-z]*)*)"
_BETWEEN = re.compile(rf"{_BOUND}\s*(<|\\le)(?![A-Za-z])\s*[A-Za-z]\s*(<|\\le)(?![A-Za-z])\s*{_BOUND}")
_ONE_SIDED = re.compile(rf"[A-Za-z]{_SIGN}{_BOUND}")
_ONE_SIDED_TURNED = re.compile(rf"{_BOUND}{_SIGN}[A-Za-z]")
_TURNED = {"<": ">", ">": "<", r"\le": r"\ge", r"\ge": r"\le"}


@dataclass(frozen=True)
class Form:
    """How a text is built: its kind, the brackets around it, and its parts.

    The parts of a matrix are its rows, each a text in which ``&`` separates the cells.
    """

    kind: FormKind
    brackets: str
    parts: tuple[str, ...]


def read_form(text: str) -> Form:
    """Return how a cleaned text is built, by its outermost brackets, commas and unions; needless ones are dropped."""
    while text.startswith("(") and text.endswith(")") and _closes_at(text, 0) == len(text) - 1:
        inner = text[1:-1].strip()
        if not inner or _split(inner, ",;"):
            break
        text = inner
    if parts := _split(text, "\\cup"):
        return Form("union", "", parts)
    if parts := _split(text, ",;"):
        return Form("list", "", parts)
    if match := _MATRIX.fullmatch(_strip_matrix_brackets(text)):
        if "\\begin" not in match[2]:
            rows = tuple(row.strip() for row in re.split(r"\\\\", match[2]) if row.strip())
            return Form("matrix", "", rows)
    elif text.startswith(r"\{") and _closes_at(text, 0) == len(text) - 1:
        inner = text[2:-2].strip()
        if not re.search(r"\||\\mid(?![A-Za-z])|:", inner):
            return Form("set", "{}", _split(inner, ",;") or (inner,))
    elif text[:1] in ("(", "[") and _closes_at(text, 0) == len(text) - 1:
        inner = text[1:-1].strip()
        if parts := _split(inner, ",;"):
            return Form("tuple", text[0] + text[-1], parts)
    elif text.count("\\pm") == 1 and "\\mp" not in text:
        return Form("list", "", (text.replace("\\pm", "+"), text.replace("\\pm", "-")))
    return Form("single", "", (text,))


def find_interval(text: str) -> str | None:
    r"""Return the interval of an inequality in one unknown, such as "(-\infty,2)" of "x < 2", or None if it is none."""
    if match := _BETWEEN.fullmatch(text):
        return f"{_bracket(match[2], '([')}{match[1].strip()},{match[4].strip()}{_bracket(match[3], ')]')}"
    if match := _ONE_SIDED.fullmatch(text):
        sign, bound = match[1], match[2]
    elif match := _ONE_SIDED_TURNED.fullmatch(text):
        sign, bound = _TURNED[match[2]], match[1]
    else:
        return None
    if sign in ("<", r"\le"):
        return rf"(-\infty,{bound.strip()}{_bracket(sign, ')]')}"
    return rf"{_bracket(sign, '([')}{bound.strip()},\infty)"


def _bracket(sign: str, brackets: str) -> str:
    return brackets[sign.startswith("\\")]


def split_cells(row: str) -> tuple[str, ...]:
    """Return the cells of a matrix's row."""
    return tuple(cell.strip() for cell in row.split("&"))


def _strip_matrix_brackets(text: str) -> str:
    inner = text[1:-1].strip()
    bracketed = text[:1] in ("(", "[") and text[-1:] in (")", "]")
    return inner if bracketed and inner.startswith("\\begin{array}") else text


def _split(text: str, separators: str) -> tuple[str, ...]:
    """Return the parts of a text between separators outside all brackets; () if there is none."""
    parts: list[str] = []
    depth = begin = 0
    for match in _PIECE.finditer(text):
        piece = match[0]
        depth += _depth_change(piece)
        is_separator = piece == separators if separators.startswith("\\") else piece in separators
        if depth == 0 and is_separator:
            parts.append(text[begin : match.start()].strip())
            begin = match.end()
    if begin == 0 or depth != 0:
        return ()
    parts.append(text[begin:].strip())
    return tuple(parts) if all(parts) else ()


def _depth_change(piece: str) -> int:
    if piece.startswith(("\\begin", "\\end")):
        # Their own brace opens here and closes further on, like any other.
        return 2 if piece.startswith("\\begin") else 0
    return _BRACKETS.get(piece[-1], 0) if len(piece) == 1 or piece in (r"\{", r"\}") else 0


def _closes_at(text: str, start: int) -> int | None:
    """Return the place of the last character of the bracket that closes the one at `start`, or None."""
    depth = 0
    for match in _PIECE.finditer(text, start):
        depth += _depth_change(match[0])
        if depth == 0:
            return match.end() - 1
    return None
