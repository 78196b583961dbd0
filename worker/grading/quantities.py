"""Numbers with their units, read out of text and compared exactly."""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from fractions import Fraction

from worker.grading.latex import unwrap_text

_INTEGER = r"\d{1,3}(?:,\d{3})+(?!\d)|\d{1,3}(?:[ ]\d{3})+(?![\d ])|\d+"
_BODY = re.compile(
    rf"""(?P<sign>[+-]?)\s*(?:
    (?P<mixed>\d+)\s*\\frac\s*(?:\{{\s*(?P<mnum>\d+)\s*\}}|(?P<mnum1>\d))\s*(?:\{{\s*(?P<mden>\d+)\s*\}}|(?P<mden1>\d))
    |(?P<mixed2>\d+)\s+(?P<mnum2>\d+)\s*/\s*(?P<mden2>\d+)
    |\\frac\s*(?:\{{\s*(?P<nsign>-?)\s*(?P<num>\d+)\s*\}}|(?P<num1>\d))\s*(?:\{{\s*(?P<dsign>-?)\s*(?P<den>\d+)\s*\}}|(?P<den1>\d))
    |(?P<int1>{_INTEGER})\s*/\s*(?P<int2>{_INTEGER})
    |(?P<rep_int>\d*)\.(?P<rep_start>\d*)\\overline\s*\{{(?P<rep>\d+)\}}
    |(?P<whole>{_INTEGER})?(?:\.(?P<decimals>\d*))?
     (?:\s*(?:\\times|\\cdot|\*)\s*10\s*\^\s*(?:\{{\s*(?P<exp>[+-]?\d{{1,3}})\s*\}}|(?P<exp1>\d))|[eE](?P<exp2>[+-]?\d{{1,3}}))?
    )""",
    re.VERBOSE,
)
_CURRENCY = re.compile(r"^([+-]?)\s*(?:\\?\$|€|£|¥|\\pounds|\\euro|USD)\s*")
_PERCENT = re.compile(r"\s*(?:\\?%|percent(?:age)?|per cent)\s*$", re.IGNORECASE)
_DEGREES = re.compile(r"\s*(?:\^\s*\\circ|degrees?)\s*(?:[CF])?\s*$")
# Words after a number are a unit, unless they are mathematics.
_UNIT = re.compile(
    r"(?<=[\d}.)\s])([A-Za-zµ]+\.?(?:[\s/-]+[A-Za-zµ]+\.?)*)\s*(\^\s*\{?\s*[23]\s*\}?)?\s*$",
)
_POWER = r"\s*(\^\s*\{?\s*[23]\s*\}?)?"
_MARKED_UNIT = re.compile(rf"(.*[\d}})a-z])\s*\\(?:text|mathrm|mbox|textrm)\{{\s*([A-Za-z][A-Za-z/. ]*)\}}{_POWER}")
_PLAIN_UNIT = re.compile(rf"(.*[\d}})])\s*(?<![A-Za-z\\])([A-Za-z]+){_POWER}")
_UNIT_SYMBOL = re.compile(r"(?<=[\d}])(\s*)([msghdLNJW])((?:\s*\^\s*\{?[23]\}?)?)$")
_MATHEMATICS = (
    "pi sin cos tan cot sec csc log ln exp sqrt mod choose factorial theta alpha beta or and to i e x y z n k"
)
_NOT_UNITS = frozenset(_MATHEMATICS.split())
_UNIT_NAMES = {
    "mm": "mm millimeter millimeters millimetre millimetres",
    "cm": "cm centimeter centimeters centimetre centimetres",
    "m": "m meter meters metre metres",
    "km": "km kilometer kilometers kilometre kilometres",
    "in": "in inch inches",
    "ft": "ft foot feet",
    "yd": "yd yard yards",
    "mi": "mi mile miles",
    "s": "s sec secs second seconds",
    "min": "min mins minute minutes",
    "h": "h hr hrs hour hours",
    "d": "day days",
    "mg": "mg milligram milligrams",
    "g": "g gram grams",
    "kg": "kg kilogram kilograms",
    "lb": "lb lbs pound pounds",
    "oz": "oz ounce ounces",
    "mL": "ml mL milliliter milliliters millilitre millilitres",
    "L": "L liter liters litre litres",
}
_UNITS = {name: unit for unit, names in _UNIT_NAMES.items() for name in names.split()}
MAX_NUMBER_LENGTH = 1000
ROUNDED_DECIMALS = 6


@dataclass(frozen=True)
class Quantity:
    """A number with what was written around it.

    Attributes
    ----------
    value : exact, as written; of "50%" 50.
    n_decimals : digits after the point, 0 of integers and fractions.
    is_percent : whether a percent sign follows.
    unit : a measure of length, time, mass or volume with its power, such as "cm" or "m^2"; None for others and none.
    """

    value: Fraction
    n_decimals: int
    is_percent: bool
    unit: str | None


@functools.lru_cache(maxsize=1024)
def find_quantity(text: str) -> Quantity | None:
    """Return the number that a cleaned text is, with its unit if it has one, or None if it is anything else."""
    if len(text) > MAX_NUMBER_LENGTH or not any(character.isdigit() for character in text):
        return None
    text = _CURRENCY.sub(r"\1", text)
    bare = _PERCENT.sub("", text)
    if bare != text:
        return _make_quantity(bare, unit=None, is_percent=True)
    if found := _make_quantity(text, unit=None):
        return found
    plain = unwrap_text(text)
    without_degrees = _DEGREES.sub("", plain)
    if without_degrees != plain:
        return _make_quantity(without_degrees, unit="deg")
    if (bare := _PERCENT.sub("", plain)) != plain:
        return _make_quantity(bare, unit=None, is_percent=True)
    match = _UNIT.search(plain)
    if match is None:
        return None
    unit = _name_unit(match[1], match[2], is_marked=plain != text)
    return None if unit is None else _make_quantity(plain[: match.start()], unit=unit or None)


def mark_unit_symbol(text: str) -> str:
    r"""Return "5 m" as "5\text{ m}": where the reference is a number, a letter after a number is a unit."""
    return _UNIT_SYMBOL.sub(r"\1\\text{ \2}\3", text)


def split_unit(text: str) -> tuple[str, str | None]:
    r"""Return an expression without the unit after it, and that unit: "" for no common measure, None where none is.

    Only of what is no plain number, such as "2\sqrt{3} cm"; words inside the expression stay.
    """
    if (marked := _MARKED_UNIT.fullmatch(text)) is not None:
        unit = _name_unit(marked[2], marked[3], is_marked=True)
    elif (marked := _PLAIN_UNIT.fullmatch(text)) is not None and marked[2] in _UNITS and len(marked[2]) > 1:
        unit = _name_unit(marked[2], marked[3], is_marked=False)
    else:
        return text, None
    return (text, None) if unit is None else (marked[1].strip(), unit)


def _name_unit(words: str, power: str | None, *, is_marked: bool) -> str | None:
    """Return a unit's short name, "" for one that is no common measure, None for words that are no unit."""
    names = [word.strip(".") for word in re.split(r"[\s/-]+", words.strip()) if word.strip(".")]
    digits = re.sub(r"\D", "", power or "")
    if len(names) == 2 and names[0] in ("square", "sq", "cubic", "cu") and names[1] in _UNITS:
        names, digits = names[1:], "2" if names[0].startswith("sq") else "3"
    if any(name in _NOT_UNITS for name in names):
        return None
    if len(names) == 1 and names[0] in _UNITS and (is_marked or len(names[0]) > 1):
        return _UNITS[names[0]] + (f"^{digits}" if digits else "")
    return "" if is_marked or all(len(name) > 2 or (len(name) == 2 and name in _UNITS) for name in names) else None


def _make_quantity(text: str, *, unit: str | None, is_percent: bool = False) -> Quantity | None:
    text = text.strip()
    match = _BODY.fullmatch(text)
    if match is None:
        return None
    value = _read_value(match)
    if value is None:
        return None
    n_decimals = len(match["decimals"] or "")
    return Quantity(-value if match["sign"] == "-" else value, n_decimals, is_percent, unit)


def _read_value(match: re.Match[str]) -> Fraction | None:
    """Return the value of a matched number without its sign, or None for "." or a zero denominator."""
    groups = match.groupdict()

    def number(*names: str) -> int:
        digits = next((groups[name] for name in names if groups[name] is not None), "0")
        return int(re.sub(r"[ ,]", "", digits) or "0")

    if groups["mixed"] is not None or groups["mixed2"] is not None:
        denominator = number("mden", "mden1", "mden2")
        whole = number("mixed", "mixed2")
        return whole + Fraction(number("mnum", "mnum1", "mnum2"), denominator) if denominator else None
    if groups["num"] is not None or groups["num1"] is not None or groups["int1"] is not None:
        denominator = number("den", "den1", "int2")
        sign = -1 if (groups["nsign"] == "-") != (groups["dsign"] == "-") else 1
        return sign * Fraction(number("num", "num1", "int1"), denominator) if denominator else None
    if groups["rep"] is not None:
        start, repeated = groups["rep_start"], groups["rep"]
        tail = Fraction(int(repeated), (10 ** len(repeated) - 1) * 10 ** len(start))
        return number("rep_int") + Fraction(int(start or "0"), 10 ** len(start)) + tail
    if not groups["whole"] and not groups["decimals"]:
        return None
    decimals = groups["decimals"] or ""
    value = number("whole") + Fraction(int(decimals or "0"), 10 ** len(decimals))
    exponent = int(next((groups[name] for name in ("exp", "exp1", "exp2") if groups[name] is not None), "0"))
    return value * Fraction(10) ** exponent


def equal_quantities(answer: Quantity, reference: Quantity) -> bool:
    """Return whether two numbers are the same, exactly unless one of them is a decimal of six digits or more.

    Such a decimal stands for a number that has no shorter one, if it differs by less than one in its last digit. A
    percentage equals the same number without the sign, and a hundredth of it. Units are compared only where both sides
    have a common measure.
    """
    if answer.unit and reference.unit and answer.unit != reference.unit:
        return False
    if answer.is_percent != reference.is_percent:
        percent, plain = (answer, reference) if answer.is_percent else (reference, answer)
        return plain.value in (percent.value, percent.value / 100)
    if reference.value == answer.value:
        return True
    rounded, other = sorted((answer, reference), key=lambda quantity: -quantity.n_decimals)
    if rounded.n_decimals < ROUNDED_DECIMALS or other.n_decimals:
        return False
    return abs(rounded.value - other.value) < Fraction(1, 10**rounded.n_decimals)
