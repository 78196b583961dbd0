"""Which fields a receipt and its envelope have, and of what type each is."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from app.files.problems import ProblemCollector, suggest

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
_SHA256 = re.compile(r"[0-9a-f]{64}")


def check_envelope(envelope: Mapping[str, Any], problems: ProblemCollector) -> None:
    """Record what is wrong with an envelope: fields that are missing, of another type, or not known.

    Parameters
    ----------
    envelope : the JSON object of a receipt's file.
    problems : where faults go, with the field as their column.
    """
    _check(envelope, _ENVELOPE, problems)
    for name in envelope:
        if name not in _ENVELOPE:
            hint = suggest(name, _ENVELOPE)
            problems.add("unknown_key", f"the envelope has {name!r}, which is not signed{hint}", column=name)


def check_receipt(receipt: Mapping[str, Any], problems: ProblemCollector) -> None:
    """Record what is wrong with a receipt: fields that are missing or of another type; others are its own affair.

    Parameters
    ----------
    receipt : the JSON object that is or will be signed.
    problems : where faults go, with the field as their column.
    """
    _check(receipt, RECEIPT_FIELDS, problems)


def _check(document: Mapping[str, Any], expected: Mapping[str, _Expectation], problems: ProblemCollector) -> None:
    for name, (accepts, description) in expected.items():
        if name not in document:
            problems.add("missing_key", f"{name!r} is missing", column=name)
        elif not accepts(document[name]):
            problems.add("bad_value", f"{name!r} is not {description}", column=name)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _is_time(value: Any) -> bool:
    if not isinstance(value, str) or _TIME.fullmatch(value) is None:
        return False
    try:
        datetime.fromisoformat(value)
    except ValueError:
        return False
    return True


def _is_board(value: Any) -> bool:
    return isinstance(value, dict) and {"model", "benchmark"} <= value.keys()


_Expectation = tuple[Callable[[Any], bool], str]
_TEXT: _Expectation = (_is_text, "a text")
_HASH: _Expectation = (_is_sha256, "a SHA-256 in lower-case hexadecimal")
_ENVELOPE: Mapping[str, _Expectation] = {
    "receipt": (lambda value: isinstance(value, dict), "an object"),
    "signature": _TEXT,
    "key_id": _TEXT,
}
RECEIPT_FIELDS: Mapping[str, _Expectation] = {
    "format": _TEXT,
    "server": _TEXT,
    "submission_id": _TEXT,
    "team": _TEXT,
    "method": _TEXT,
    "snapshot": _TEXT,
    "snapshot_sha256": _HASH,
    "kind": _TEXT,
    "split": _TEXT,
    "strategy": _TEXT,
    "actions_sha256": _HASH,
    "scorer_version": _TEXT,
    "evaluator_version": (lambda value: value is None or _is_text(value), "a text or null"),
    "scored_at": (_is_time, "a time such as 2026-07-21T09:30:04.000000Z"),
    "summary": (lambda value: value is None or _is_board(value), "a board or null"),
    "boards": (lambda value: isinstance(value, list) and all(map(_is_board, value)), "a list of boards"),
}
