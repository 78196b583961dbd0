"""Symbolic comparison of two expressions with math-verify, checked once more by numbers.

Only the child processes of `processes` import this: parsing and simplifying may take for ever, or all memory.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import sympy  # type: ignore[import-untyped]
from latex2sympy2_extended.latex2sympy2 import NormalizationConfig  # type: ignore[import-untyped]
from math_verify import LatexExtractionConfig, parse, verify  # type: ignore[import-untyped]

# Without a time limit of its own math-verify warns; the limit is the caller's, who can kill this process.
logging.getLogger("math_verify").setLevel(logging.ERROR)

_CONFIG = LatexExtractionConfig(
    boxed_match_priority=0,
    # Units were taken off on the text: here "2m" is two times m.
    normalization_config=NormalizationConfig(
        basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="last", equations=False
    ),
)
_DIGITS = 100
_TOLERANCE = sympy.Float("1e-60", _DIGITS)
# A decimal stands for the numbers around it; math-verify compares decimals to six places.
_DECIMAL_TOLERANCE = sympy.Float("1e-6", _DIGITS)
# Points at which two expressions that are not the same hardly ever agree. Positive ones refute: a length or a count has
# no other sign. To prove an identity it must hold for both signs: |x| is not x.
_POSITIVE = ("1.3717421", "0.7071968", "2.2360931", "0.5772412", "1.6180517", "3.1415123", "0.9159655", "2.6854520")
_SIGNED = ("-1.2020569", "0.6434105", "-0.2614972", "-2.5029078", "1.9021605", "-0.3036630", "0.1149420", "-1.4513692")


def equal_symbolically(answer: str, reference: str) -> bool:
    """Return whether two expressions are equal for math-verify, unless their values at some points say otherwise.

    Two false verdicts of a symbolic checker alone are mended so: it takes 1/2004! for 1/2006!, since both are 0 to any
    fixed number of places, and does not see some identities.
    """
    gold, target = _parse(reference), _parse(answer)
    if gold is None or target is None:
        return False
    one, other = _with_constants(target), _with_constants(gold)
    if _agree(one, other, _POSITIVE) is False:
        return False
    if verify(gold, target, timeout_seconds=None, allow_set_relation_comp=True):
        return True
    # Fractions are compared exactly, so what is not the same fraction differs further on than the digits looked at.
    is_exact = all(getattr(side, "is_rational", None) for side in (target, gold))
    return not is_exact and bool(_agree(one, other, _POSITIVE)) and bool(_agree(one, other, _SIGNED))


def _parse(text: str) -> Any:
    parsed = parse(
        rf"\boxed{{{text}}}",
        [_CONFIG],
        fallback_mode="no_fallback",
        extraction_mode="first_match",
        parsing_timeout=None,
    )
    return parsed[0] if parsed else None


def _with_constants(expression: Any) -> Any:
    """Return an expression with the imaginary unit and Euler's number in place of the letters i and e."""
    if not isinstance(expression, sympy.Expr):
        return expression
    constants = {symbol: {"i": sympy.I, "e": sympy.E}.get(symbol.name) for symbol in expression.free_symbols}
    return expression.subs({symbol: value for symbol, value in constants.items() if value is not None})


def _agree(one: Any, other: Any, points: Sequence[str]) -> bool | None:
    """Return whether two expressions have the same values at some points; None where they have no values there."""
    if not all(isinstance(side, sympy.Expr) for side in (one, other)) or one.free_symbols != other.free_symbols:
        return None
    symbols = sorted(one.free_symbols, key=lambda symbol: symbol.name)
    if len(symbols) > len(points):
        return None
    tolerance = _DECIMAL_TOLERANCE if one.atoms(sympy.Float) | other.atoms(sympy.Float) else _TOLERANCE
    shifts = range(3 if symbols else 1)
    values = [_place(symbols, (*points[shift:], *points[:shift])) for shift in shifts]
    verdicts = [_equal_at(one, other, place, tolerance=tolerance) for place in values]
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _place(symbols: Sequence[Any], points: Sequence[str]) -> dict[Any, Any]:
    return {symbol: sympy.Float(point, _DIGITS) for symbol, point in zip(symbols, points, strict=False)}


def _equal_at(one: Any, other: Any, place: dict[Any, Any], *, tolerance: Any) -> bool | None:
    first, second = (sympy.N(expression.subs(place), _DIGITS) for expression in (one, other))
    if not (first.is_number and second.is_number and first.is_finite and second.is_finite):
        return None
    scale = max(abs(first), abs(second))
    return bool(scale == 0 or abs(first - second) <= tolerance * scale)
