"""The fields of CSV tables that people open in a spreadsheet: every digit, nothing that runs as a formula."""

from __future__ import annotations

from datetime import datetime


def guard_formula(text: str) -> str:
    """Return text that a spreadsheet shows as it stands: an apostrophe before a leading ``= + - @``, tab or return.

    Examples
    --------
    >>> guard_formula("=1+1"), guard_formula("a=b")
    ("'=1+1", 'a=b')
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r")) else text


def format_field(value: object) -> str:
    """Return a value as a CSV field: empty for None, true or false, floats in their shortest form, times with a Z.

    Examples
    --------
    >>> [format_field(value) for value in (None, True, 0.1 + 0.2, -3, "-3")]
    ['', 'true', '0.30000000000000004', '-3', "'-3"]
    """
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return guard_formula(str(value))
