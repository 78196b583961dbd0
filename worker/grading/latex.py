r"""Cleans answers written in LaTeX or plain text of what changes only their looks."""

from __future__ import annotations

import functools
import re

from worker.grading.boxes import match_braces

_SYMBOLS = {
    "−": "-",
    "–": "-",
    "×": r"\times ",
    "·": r"\cdot ",
    "÷": "/",
    "π": r"\pi ",
    "∞": r"\infty ",
    "≤": r"\le ",
    "≥": r"\ge ",
    "≠": r"\ne ",
    "∪": r"\cup ",
    "∩": r"\cap ",
    "∈": r"\in ",
    "±": r"\pm ",
    "°": r"^\circ ",
    "∅": r"\emptyset ",
    "²": "^2",
    "³": "^3",
    "½": r"\frac{1}{2}",
    "\u00a0": " ",
    "\u202f": " ",
    "\u2009": " ",
}
_REWRITINGS = (
    (re.compile(r"\\[dtc]frac\b"), r"\\frac"),
    (re.compile(r"\\(?:left|right|[bB]igg?[lrm]?)(?![A-Za-z])\s*\.?(?=[\s()\[\]|\\.]|$)"), ""),
    (re.compile(r"\\(?:displaystyle|textstyle|limits|nolimits)(?![A-Za-z])"), ""),
    (re.compile(r"\{,\}|,\\!"), ""),
    (re.compile(r"(?<=\d)\\[,;: ](?=\d{3}(?!\d))"), ""),
    (re.compile(r"(?<!\\)\\!"), ""),
    (re.compile(r"(?<!\\)\\[,;: ]|~|\\q?quad(?![A-Za-z])"), " "),
    (re.compile(r"\\(?:text|mathrm)\s*\{\s*,?\s*(?:and|or)\s*\}"), " , "),
    (re.compile(r"(?<=[\d})\]\s])\s+(?:and|or)\s+(?=\S)"), " , "),
    (re.compile(r"\\lbrace(?![A-Za-z])"), r"\\{"),
    (re.compile(r"\\rbrace(?![A-Za-z])"), r"\\}"),
    (re.compile(r"\\(?:leq|leqslant)(?![A-Za-z])"), r"\\le "),
    (re.compile(r"\\(?:geq|geqslant)(?![A-Za-z])"), r"\\ge "),
    (re.compile(r"\\varnothing(?![A-Za-z])|\\\{\s*\\\}"), r"\\emptyset "),
    (re.compile(r"\\degree(?![A-Za-z])|\^\s*\{\s*\\circ\s*\}"), r"^\\circ "),
    (re.compile(r",\s*,"), ","),
)
_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ("`", "`"))
_TEXT_COMMAND = re.compile(
    r"\\(?:text(?:bf|it|rm|sf|tt|normal)?|mathrm|mathbf|mathit|mathsf|mbox|operatorname|boldsymbol)\s*\{"
)
_SPACE = re.compile(r"\s+")


@functools.lru_cache(maxsize=1024)
def clean(text: str) -> str:
    """Return a text without what changes only its looks: dollars, sizes of brackets, spaces, a full stop at the end."""
    for symbol, command in _SYMBOLS.items():
        text = text.replace(symbol, command)
    text = _strip_wrappers(text)
    for pattern, replacement in _REWRITINGS:
        text = pattern.sub(replacement, text)
    return _strip_wrappers(_SPACE.sub(" ", text))


def _strip_wrappers(text: str) -> str:
    previous = None
    while text != previous:
        previous = text
        text = text.strip()
        while text.endswith((".", ",", ";", ":")) and not text.endswith(("\\,", "\\;", "\\:")):
            text = text[:-1].rstrip()
        for opening, closing in _WRAPPERS:
            inner = text[len(opening) : -len(closing)]
            whole = len(text) > len(opening + closing) and text.startswith(opening) and text.endswith(closing)
            if whole and opening not in inner and closing not in inner:
                text = inner
    return text


def squeeze(text: str) -> str:
    """Return a cleaned text without blanks and text commands, for comparing letter by letter."""
    text = unwrap_text(text)
    # A blank that ends a command's name stays: "\pi r" is not "\pir".
    text = re.sub(r"(\\[A-Za-z]+)\s+(?=[A-Za-z])", "\\1\0", text)
    text = re.sub(r"\s+", "", text).replace("\0", " ")
    text = re.sub(r"([\^_])\{(\w)\}", r"\1\2", text)
    return re.sub(r"\\(frac|sqrt)(?:\s*(\d)(\d)|\s*(\d))(?!\d)", _brace_digits, text)


def _brace_digits(match: re.Match[str]) -> str:
    if match[2] is not None and match[1] == "frac":
        return rf"\frac{{{match[2]}}}{{{match[3]}}}"
    if match[4] is not None and match[1] == "sqrt":
        return rf"\sqrt{{{match[4]}}}"
    return match[0]


def unwrap_text(text: str) -> str:
    r"""Return a text with the content of ``\text{…}`` and its like in place of the command."""
    while match := _TEXT_COMMAND.search(text):
        end = match_braces(text).get(match.end() - 1)
        if end is None:
            return text
        text = f"{text[: match.start()]} {text[match.end() : end]} {text[end + 1 :]}".strip()
    return text


def has_text(text: str) -> bool:
    r"""Return whether something in a text is marked as words, by ``\text{…}`` or its like."""
    return _TEXT_COMMAND.search(text) is not None
