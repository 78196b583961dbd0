"""Plain JSON values of the evaluator's results, and the reasons of those that are undefined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

Document = dict[str, Any]

CELL_MISSING = "a_cell_is_missing_or_has_no_such_figure"
AVERAGES = {"macro": CELL_MISSING, "by_model": CELL_MISSING, "by_benchmark": CELL_MISSING}
# An object without a model, benchmark or reason has none; these are no undefined figures.
_NAMES = ("reason", "model", "benchmark")


def to_plain(value: object) -> Any:
    """Return dataclasses as objects, arrays and tuples as lists, names as texts; everything else as it is.

    Examples
    --------
    >>> to_plain({"counts": np.array([1, 2]), "range": (0.5, None)})
    {'counts': [1, 2], 'range': [0.5, None]}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value) if isinstance(value, Enum) else value


def give_reasons(section: Document, codes: Mapping[str, str]) -> Document:
    """Return the section with `reasons`: why figures are null, by the figure's name; null where none of them is.

    A null without a code of its own takes that of the nearest object around it that has one.

    Raises
    ------
    ValueError : a null that no code explains, which is our bug.

    Examples
    --------
    >>> give_reasons({"direct": {"macro": None}, "zero": 0.5}, {"macro": "missing", "zero": "never"})
    {'direct': {'macro': None}, 'zero': 0.5, 'reasons': {'macro': 'missing'}}
    """
    reasons = {}
    for path in list_nulls(section):
        name = next((key for key in reversed(path) if key in codes), None)
        if name is None:
            raise ValueError(f"nothing says why {'.'.join(path)} is undefined")
        reasons[name] = codes[name]
    return {**section, "reasons": reasons}


def list_nulls(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of keys to every null that is not explained by a `reason` beside it."""
    if isinstance(value, Mapping):
        if value.get("reason"):
            return
        for key, item in value.items():
            if item is None and key in _NAMES:
                continue
            yield from list_nulls(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from list_nulls(item, path)
    elif value is None:
        yield path
