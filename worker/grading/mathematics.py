r"""Mathematical results: whether what an answer states equals the reference.

Whatever can be decided on the text is decided here: numbers exactly, words, and lists, sets, tuples, intervals and
matrices part by part. What is left, such as "(x+1)^2" against "x^2+2x+1", is asked of a symbolic comparison, which the
caller hands in because it may never end.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from worker.grading.forms import Form, find_interval, read_form, split_cells
from worker.grading.latex import clean, has_text, squeeze, unwrap_text
from worker.grading.quantities import Quantity, equal_quantities, find_quantity, mark_unit_symbol, split_unit

MAX_PARTS = 64
MAX_BASED_DIGITS = 200

SymbolicComparison = Callable[[str, str], bool]

EQUALS = re.compile(r"(?<![<>!:=\\])=(?!=)|\\(?:approx|equiv)(?![A-Za-z])|≈")
_SIMPLE_NAME = re.compile(r"\\?[A-Za-z]+(?:_\{?\w+\}?)?'*(?:\(\s*\w+(?:\s*,\s*\w+)*\s*\))?")
_MEMBERSHIP = re.compile(r"^\\?[A-Za-z]+\s*\\in(?![A-Za-z])\s*")
_BASED = re.compile(r"([0-9A-Za-z]+)(?:_\{?(\d{1,2})\}?)?")
_VARIABLE = re.compile(r"(?<![A-Za-z\\])[A-Za-z](?![A-Za-z])")
_WORDS = re.compile(r"[a-z][a-z'’-]*(?: [a-z][a-z'’-]*)*")
_ARTICLES = re.compile(r"^(?:the|a|an) (?=\w)")


def equal_results(answer: str, reference: str, *, symbolic: SymbolicComparison) -> bool:
    """Return whether two results are the same.

    Parameters
    ----------
    symbolic : compares two expressions that the text alone does not decide; it may raise to leave the question open.
    """
    return _equal(clean(answer), clean(reference), symbolic)


def _equal(answer: str, reference: str, symbolic: SymbolicComparison) -> bool:
    if not answer or not reference:
        return False
    if squeeze(answer) == squeeze(reference):
        return True
    quantities = find_quantity(answer), find_quantity(reference)
    if quantities[0] and quantities[1]:
        return equal_quantities(quantities[0], quantities[1])
    forms = _form(answer, quantities[0]), _form(reference, quantities[1])
    if forms[0].kind != "single" or forms[1].kind != "single":
        return _equal_forms(forms[0], forms[1], answer, reference, symbolic)
    answer, reference = forms[0].parts[0], forms[1].parts[0]
    if (sides := _unwrap_equations(answer, reference)) is not None:
        return sides[0] is not None and _equal(sides[0], sides[1], symbolic)
    if quantities[1] is not None and (marked := find_quantity(mark_unit_symbol(answer))) is not None:
        return equal_quantities(marked, quantities[1])
    (bare, unit), (bare_reference, wanted) = split_unit(answer), split_unit(reference)
    if unit is not None or wanted is not None:
        return not (unit and wanted and unit != wanted) and _equal(bare, bare_reference, symbolic)
    for rule in (_equal_in_base, _equal_words, _differ_in_case):
        if (verdict := rule(answer, reference)) is not None:
            return verdict
    return symbolic(answer, reference)


def _form(text: str, quantity: Quantity | None) -> Form:
    """Return how a text is built; "1,000" is a number and no list."""
    return Form("single", "", (text,)) if quantity is not None else read_form(_MEMBERSHIP.sub("", text))


def _equal_forms(
    answer: Form, reference: Form, answer_text: str, reference_text: str, symbolic: SymbolicComparison
) -> bool:
    """Compare part by part what has parts; a set may be written without its braces, a tuple may not."""
    if answer.kind == reference.kind == "matrix":
        return _equal_matrices(answer, reference, symbolic)
    if {answer.kind, reference.kind} == {"list", "union"}:
        parts = [_read_intervals(form) for form in (answer, reference)]
        return _equal_unordered(parts[0], parts[1], symbolic)
    unordered = ("list", "set")
    if answer.kind in unordered and reference.kind in unordered:
        return _equal_unordered(_common_names(answer.parts), _common_names(reference.parts), symbolic)
    if answer.kind == reference.kind == "tuple":
        if answer.brackets != reference.brackets or len(answer.parts) != len(reference.parts):
            return False
        pairs = zip(answer.parts, reference.parts, strict=True)
        return all(_equal(clean(one), clean(other), symbolic) for one, other in pairs)
    if answer.kind == reference.kind == "union" and len(answer.parts) == len(reference.parts):
        if _equal_unordered(answer.parts, reference.parts, _never):
            return True
        return symbolic(answer_text, reference_text)
    kinds = {answer.kind, reference.kind}
    if kinds == {"set", "single"}:
        one = answer if answer.kind == "set" else reference
        if len(one.parts) == 1:
            return _equal(clean(answer.parts[0]), clean(reference.parts[0]), symbolic)
    if "tuple" in kinds and kinds & {"list", "set"}:
        return False
    if kinds == {"list", "single"} and not re.search(
        r"\\(?:le|ge|in|pm)(?![A-Za-z])|[<>|]", answer_text + reference_text
    ):
        return False
    return symbolic(answer_text, reference_text)


def _read_intervals(form: Form) -> Sequence[str]:
    """Return the parts of a union, also where it is written as "x < 1 or x > 2"."""
    return form.parts if form.kind == "union" else [find_interval(part) or part for part in form.parts]


def _common_names(parts: Sequence[str]) -> tuple[str, ...]:
    """Return "1", "2" for "x = 1", "2": in a list the name is often written once."""
    split = [EQUALS.split(part) for part in parts]
    if (
        len(split[0]) == 2
        and all(len(sides) == 1 for sides in split[1:])
        and _SIMPLE_NAME.fullmatch(split[0][0].strip())
    ):
        return (split[0][1].strip(), *parts[1:])
    return tuple(parts)


def _never(answer: str, reference: str) -> bool:
    return False


def _equal_matrices(answer: Form, reference: Form, symbolic: SymbolicComparison) -> bool:
    rows = [tuple(split_cells(row) for row in form.parts) for form in (answer, reference)]
    if [len(row) for row in rows[0]] != [len(row) for row in rows[1]] or sum(map(len, rows[1])) > MAX_PARTS:
        return False
    pairs = [pair for one, other in zip(*rows, strict=True) for pair in zip(one, other, strict=True)]
    return all(_equal(clean(one), clean(other), symbolic) for one, other in pairs)


def _equal_unordered(answer: Sequence[str], reference: Sequence[str], symbolic: SymbolicComparison) -> bool:
    """Match parts one to one; equality is transitive, so the first match of a part is as good as any."""
    answer, reference = _expand_signs(answer), _expand_signs(reference)
    if len(answer) != len(reference) or len(answer) > MAX_PARTS:
        return False
    left = [clean(part) for part in reference]
    for part in sorted((clean(part) for part in answer), key=len):
        match = next((idx for idx, other in enumerate(left) if _equal_quickly(part, other)), None)
        if match is None:
            match = next((idx for idx, other in enumerate(left) if _equal(part, other, symbolic)), None)
        if match is None:
            return False
        del left[match]
    return True


def _expand_signs(parts: Sequence[str]) -> list[str]:
    r"""Return the parts with two in place of one that has ``\pm``."""
    forms = [read_form(part) if r"\pm" in part else Form("single", "", (part,)) for part in parts]
    return [
        each
        for form, part in zip(forms, parts, strict=True)
        for each in (form.parts if form.kind == "list" else (part,))
    ]


def _equal_quickly(answer: str, reference: str) -> bool:
    return _equal(answer, reference, _never)


def _unwrap_equations(answer: str, reference: str) -> tuple[str | None, str] | None:
    """Return what is left to compare of equations, None in place of an answer for another unknown; None: no equation.

    An answer "x = 5" or "a + b = 5" is its right side where the reference is no equation; a reference "x = 5" is its
    right side where the answer is none; of two assignments the names must agree.
    """
    left, right = EQUALS.split(answer), EQUALS.split(reference)
    if len(left) == 1 and len(right) == 1:
        return None
    if len(right) == 1:
        return left[-1].strip(), reference
    name = right[0].strip()
    if not _SIMPLE_NAME.fullmatch(name):
        return None
    if len(left) == 1:
        return answer, right[-1].strip()
    if not _SIMPLE_NAME.fullmatch(left[0].strip()):
        return None
    if squeeze(left[0]) != squeeze(name):
        return (None, reference) if find_quantity(right[-1].strip()) else None
    return left[-1].strip(), right[-1].strip()


def _equal_in_base(answer: str, reference: str) -> bool | None:
    """Compare digits with a base; None where no side has one.

    Digits without a base are in the reference's base, if that has one, and in base ten otherwise.
    """
    left, right = _BASED.fullmatch(squeeze(answer)), _BASED.fullmatch(squeeze(reference))
    if left is None or right is None or (left[2] is None and right[2] is None):
        return None
    if left[2] is not None and right[2] is not None and left[2] != right[2]:
        return False
    if right[2] is not None:
        return left[1].upper() == right[1].upper()
    base = int(left[2])
    digits = [int(digit, 36) for digit in left[1]]
    if max(digits) >= base or not right[1].isdecimal() or len(digits) > MAX_BASED_DIGITS:
        return False
    value: int = sum(digit * base**place for place, digit in enumerate(reversed(digits)))
    return value == int(right[1])


def _differ_in_case(answer: str, reference: str) -> bool | None:
    """Return False where letters differ in nothing but case: R and r are two radii, though "c" may be option C."""
    left, right = (set(_VARIABLE.findall(side)) for side in (answer, reference))
    if len(squeeze(reference)) == 1 or left == right:
        return None
    return False if {letter.lower() for letter in left} == {letter.lower() for letter in right} else None


def _equal_words(answer: str, reference: str) -> bool | None:
    """Compare words without case, punctuation and articles; None where the reference is mathematics."""
    words = _plain_words(reference)
    is_letter = len(words) == 1 and (has_text(reference) or reference != reference.strip("()"))
    if is_letter or (_WORDS.fullmatch(words) and _is_prose(words, reference)):
        return _plain_words(answer) == words
    if find_quantity(reference) is not None and has_text(answer) and not re.search(r"\d", answer):
        return False
    return None


def _is_prose(words: str, reference: str) -> bool:
    return len(words) > 1 and (has_text(reference) or " " in words or len(words) > 3)


def _plain_words(text: str) -> str:
    plain = unwrap_text(text).lower()
    plain = re.sub(r"[\s_]+", " ", plain).strip(" ().,;:!\"'`*[]{}")
    return _ARTICLES.sub("", plain)
