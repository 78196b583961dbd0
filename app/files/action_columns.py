"""The columns of an action file: reading whatever type holds them as texts and integers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.evaluator.measurements import IntArray
from app.files.action_problems import MAX_SHOWN_CHARACTERS

INT64_MAX = 2**63 - 1
_NUMBER = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,18}))?", re.ASCII)
_SHORT_INTEGER = r"^-?[0-9]{1,18}$"


@dataclass(frozen=True, eq=False)
class RowBatch:
    """A run of rows.

    Attributes
    ----------
    rows : int64, the rows' numbers in the file as an editor shows them, ascending.
    columns : the columns of the format that the file has.
    n_unreadable : further rows of the run that could not be read and have been reported.
    """

    rows: IntArray
    columns: Mapping[str, pa.Array]
    n_unreadable: int = 0


@dataclass(frozen=True, eq=False)
class Texts:
    """A column of texts, each distinct one once.

    Attributes
    ----------
    codes : int64, one per row: the index of its text in `values`, or -1 where the row has none.
    values : the texts; one may occur twice.
    absent : what to say of a row without text.
    """

    codes: IntArray
    values: tuple[str, ...]
    absent: str

    def text(self, idx: int) -> str | None:
        """Return the text of a row, or None."""
        code = int(self.codes[idx])
        return self.values[code] if code >= 0 else None

    def look_up(self, known: Mapping[str, int]) -> IntArray:
        """Return the number of each row's text in `known`, or -1."""
        numbers = np.array([known.get(value, -1) for value in self.values] + [-1], dtype=np.int64)
        return numbers[self.codes]


def read_texts(array: pa.Array) -> Texts:
    """Read a column as text.

    Numbers take their shortest round-trip form, integral floats without ``.0``. Nulls, NaN, infinities, and anything
    that is neither text nor a number have no text.

    Examples
    --------
    >>> texts = read_texts(pa.array([0.1, 1.0, None, 0.1]))
    >>> [texts.text(i) for i in range(4)]
    ['0.1', '1', None, '0.1']
    """
    data_type = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not (_is_text(data_type) or _is_binary(data_type) or _is_number(data_type)):
        absent = "is empty" if pa.types.is_null(data_type) else f"is of type {show_type(data_type)}, not text"
        return Texts(np.full(len(array), -1, dtype=np.int64), (), absent)
    codes, dictionary = _encode(array)
    texts = _list_texts(dictionary)
    usable = np.array([text is not None for text in texts] + [False])
    codes = np.where(usable[codes], codes, -1)
    return Texts(codes, tuple(text or "" for text in texts), "is empty, or neither text nor a finite number")


def number_text(number: float | str) -> str:
    """Return a number's shortest round-trip form, an integral float without ``.0``; numpy floats in their own width.

    Examples
    --------
    >>> number_text(0.1), number_text(10.0), number_text(1e-3), number_text(np.float32(0.1)), number_text(-0.0)
    ('0.1', '10', '0.001', '0.1', '0')
    """
    text = str(number).removesuffix(".0")
    return "0" if text == "-0" else text


@dataclass(frozen=True, eq=False)
class Integers:
    """A column of integers: int64 values (beyond int64: its limit) and where there is none (the value is 0 there)."""

    values: IntArray
    missing: NDArray[np.bool_]


def read_integers(array: pa.Array) -> Integers:
    """Read a column as integers; texts such as ``12``, ``1.0`` and ``1e3`` and floats without a fraction are integers.

    Examples
    --------
    >>> read = read_integers(pa.array(["12", "1e3", "1.5", "", "99999999999999999999"]))
    >>> read.values.tolist(), read.missing.tolist()
    ([12, 1000, 0, 0, 9223372036854775807], [False, False, True, True, False])
    """
    if pa.types.is_dictionary(array.type):
        codes, dictionary = _encode(array)
        distinct = read_integers(dictionary)
        missing = np.append(distinct.missing, True)[codes]
        return Integers(np.append(distinct.values, 0)[codes], missing)
    if pa.types.is_integer(array.type):
        values = array.fill_null(0).to_numpy(zero_copy_only=False)
        if values.dtype == np.uint64:
            values = np.minimum(values, np.uint64(INT64_MAX))
        return Integers(values.astype(np.int64), _nulls(array))
    if pa.types.is_floating(array.type):
        return _read_floats(array)
    if pa.types.is_decimal(array.type):
        return _parse_texts([None if value is None else str(value) for value in array.to_pylist()])
    if _is_text(array.type) or _is_binary(array.type):
        return _read_integer_texts(array)
    return Integers(np.zeros(len(array), dtype=np.int64), np.ones(len(array), dtype=np.bool_))


def parse_integer(text: str) -> int | None:
    """Return the integer that a text writes, or None; beyond int64 its nearest limit.

    Digits with an optional sign, decimal point and exponent are read; anything else (spaces, separators, words, other
    alphabets' digits) is not a number. The value is exact: no float is made of it.

    Examples
    --------
    >>> [parse_integer(t) for t in ("7", "7.0", "1.5e1", "1e3", "1.5", "1_000", "1,000", "inf", " 7")]
    [7, 7, 15, 1000, None, None, None, None, None]
    """
    match = _NUMBER.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        return None
    fraction = match[3] or ""
    digits = (match[2] + fraction).lstrip("0")
    scale = int(match[4] or 0) - len(fraction)
    significant = digits.rstrip("0")
    scale += len(digits) - len(significant)
    if not significant:
        return 0
    if scale < 0:
        return None
    size = INT64_MAX if len(significant) + scale > 19 else min(int(significant) * 10**scale, INT64_MAX)
    return -size if match[1] == "-" else size


def explain_not_integer(value: object) -> str:
    """Say how to mend a value that is not an integer; an empty string where there is nothing to add."""
    if isinstance(value, bool) or (isinstance(value, str) and value.strip().casefold() in ("true", "false")):
        return "; write 1 or 0, not true or false"
    if value is None or value == "":
        return "; every row needs a value"
    if not isinstance(value, str):
        return ""
    if parse_integer(value.strip()) is not None:
        return "; remove the spaces around it"
    if re.fullmatch(r"[+-]?[0-9]{1,3}([,_.' \u00a0\u202f][0-9]{3})+", value):
        return "; write it without thousands separators"
    if re.fullmatch(r"[+-]?[0-9]+,[0-9]*", value):
        return "; write integers, and a point for decimals"
    return ""


def value_at(array: pa.Array, idx: int) -> object:
    """Return a value of the file for a message; bytes that are not UTF-8 as bytes."""
    try:
        return array[idx].as_py()
    except UnicodeDecodeError:
        return "bytes that are not UTF-8"


def show_type(data_type: pa.DataType) -> str:
    """Return a type's name as a message shows it."""
    return str(data_type)[:MAX_SHOWN_CHARACTERS]


def _is_text(data_type: pa.DataType) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    return any(test(data_type) for test in tests)


def _is_binary(data_type: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(test(data_type) for test in tests)


def _is_number(data_type: pa.DataType) -> bool:
    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    return any(test(data_type) for test in tests)


def _nulls(array: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(array.is_null().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _encode(array: pa.Array) -> tuple[IntArray, pa.Array]:
    """Return codes (int64, -1 for null) and the distinct values they stand for."""
    if not pa.types.is_dictionary(array.type):
        if array.type in (pa.string_view(), pa.binary_view()):
            array = array.cast(pa.string() if array.type == pa.string_view() else pa.binary())
        array = array.dictionary_encode()
    codes = array.indices.fill_null(-1) if array.indices.null_count else array.indices
    return codes.to_numpy(zero_copy_only=False).astype(np.int64), array.dictionary


def _list_texts(values: pa.Array) -> list[str | None]:
    if pa.types.is_floating(values.type):
        numbers = values.to_numpy(zero_copy_only=False)
        return [number_text(number) if np.isfinite(number) else None for number in numbers]
    if pa.types.is_decimal(values.type):
        return [None if number is None else number_text(_plain_decimal(number)) for number in values.to_pylist()]
    if pa.types.is_integer(values.type):
        return [None if number is None else str(number) for number in values.to_pylist()]
    try:
        plain = values.to_pylist()
    except UnicodeDecodeError:
        plain = values.cast(pa.binary()).to_pylist()
    return [_decode(value) if isinstance(value, bytes) else value for value in plain]


def _plain_decimal(number: Decimal) -> str:
    return format(number.normalize(), "f")


def _decode(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _read_floats(array: pa.Array) -> Integers:
    values = array.cast(pa.float64()).fill_null(np.nan).to_numpy(zero_copy_only=False)
    integral = np.isfinite(values) & (np.floor(values) == values)
    inside = integral & (np.abs(values) < 2.0**63)
    whole = np.where(inside, values, 0.0).astype(np.int64)
    beyond = np.where(values > 0, INT64_MAX, -INT64_MAX)
    return Integers(np.where(integral & ~inside, beyond, whole), ~integral)


def _read_integer_texts(array: pa.Array) -> Integers:
    """Convert plain integers in Arrow and the few other spellings one by one."""
    if array.type == pa.string():
        plain = pc.match_substring_regex(array, _SHORT_INTEGER).fill_null(False)
        if plain.true_count == len(array):
            values = array.cast(pa.int64()).to_numpy(zero_copy_only=False)
            return Integers(values, np.zeros(len(array), dtype=np.bool_))
    return _parse_texts(_list_texts(array))


def _parse_texts(texts: Sequence[str | None]) -> Integers:
    parsed = [None if text is None else parse_integer(text) for text in texts]
    values = np.array([value or 0 for value in parsed], dtype=np.int64)
    return Integers(values, np.array([value is None for value in parsed], dtype=np.bool_))
