"""How efficiency results read on their page: scores with the digits of their source, shapes, reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from app.evaluator.efficiency import BASE_ACCURACY_DEGENERATE, BASE_TOKENS_ZERO, UNBOUNDED
from app.plots.efficiency import PARADIGM_STYLES, PARADIGM_TITLES
from app.services.efficiency_results import ListedResult
from app.web.formatting import UNDEFINED

E3_REASONS = {
    BASE_ACCURACY_DEGENERATE: "No E³: the reference is right always or never, so it has no odds.",
    BASE_TOKENS_ZERO: "No E³: the reference has no tokens.",
    UNBOUNDED: "No E³: it grows without bound at full accuracy without tokens.",
}


@dataclass(frozen=True)
class Shape:
    """A paradigm's mark: the style sheet's class of its colour, and the name of its shape."""

    css_class: str
    symbol: str


def find_shape(paradigm: str) -> Shape:
    """Return the mark that a paradigm has in figures and tables."""
    return Shape(f"mark-{list(PARADIGM_TITLES).index(paradigm)}", PARADIGM_STYLES[paradigm].symbol)


def decimals(number: float | None, digits: int = 2) -> str:
    """Return a number with this many decimals and thousands separated, a dash where it is undefined.

    Examples
    --------
    >>> decimals(1292.857), decimals(0.9553, 3), decimals(None)
    ('1,292.86', '0.955', '–')
    """
    return UNDEFINED if number is None else f"{number:,.{digits}f}"


def printed_e3(result: ListedResult) -> str:
    """Return the score as its source prints it, a dash where it prints none."""
    return decimals(result.e3_printed, result.e3_digits or 0)


EFFICIENCY_FILTERS: dict[str, Any] = {
    "decimals": decimals,
    "e3_reason": lambda reason: E3_REASONS.get(reason, reason),
    "paradigm_shape": find_shape,
    "paradigm_title": lambda paradigm: PARADIGM_TITLES[paradigm],
    "printed_e3": printed_e3,
}
