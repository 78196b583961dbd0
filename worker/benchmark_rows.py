"""The tests inside a row of LiveCodeBench, which are packed, and may be hostile."""

from __future__ import annotations

import base64
import binascii
import io
import json
import pickle
import zlib
from collections.abc import Mapping
from typing import Any, NoReturn

# The largest tests are some tens of megabytes; packed data that grows without end is refused.
MAX_UNPACKED_BYTES = 2**30
_KINDS = {"stdin": "stdin", "functional": "function"}


class RowError(ValueError):
    """A field of a row holds something else than the data set does."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


class _PlainUnpickler(pickle.Unpickler):
    """Reads texts only: a pickle that names any class or function, which is how one runs code, is refused."""

    def find_class(self, module_name: str, global_name: str) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module_name}.{global_name}")


def read_code_tests(row: Mapping[str, Any]) -> tuple[list[dict[str, str]], str | None]:
    """Return the tests of a row, the public ones first, and the name of the function they call, if they do.

    Raises
    ------
    RowError : what cannot be read, with its field.
    """
    listed = _read_tests(row, "public_test_cases") + _read_tests(row, "private_test_cases")
    tests = []
    for test in listed:
        kind = _KINDS.get(str(test.get("testtype")))
        if kind is None or not isinstance(test.get("input"), str) or not isinstance(test.get("output"), str):
            raise RowError("public_test_cases", f"a test is {json.dumps(test, default=str)[:80]}")
        tests.append({"input": test["input"], "expected": test["output"], "kind": kind})
    if any(test["kind"] == "function" for test in tests):
        return tests, _read_function_name(row)
    return tests, None


def unpack_tests(packed: str) -> str:
    """Return the text of packed tests: base64 of compressed, pickled JSON, or JSON as it is.

    Raises
    ------
    RowError : it is neither, is too large, or is a pickle of something else than a text.
    """
    field = "private_test_cases"
    if packed.lstrip().startswith("["):
        return packed
    try:
        stream = zlib.decompressobj()
        raw = stream.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED_BYTES)
        if stream.unconsumed_tail:
            raise RowError(field, f"unpacked, it has more than {MAX_UNPACKED_BYTES} bytes")
        text = _PlainUnpickler(io.BytesIO(raw)).load()
    except (binascii.Error, zlib.error, pickle.UnpicklingError, EOFError, ValueError, IndexError, KeyError) as exc:
        if isinstance(exc, RowError):
            raise
        raise RowError(field, f"it cannot be unpacked: {exc}") from exc
    if not isinstance(text, str):
        raise RowError(field, "unpacked, it is no text")
    return text


def _read_tests(row: Mapping[str, Any], field: str) -> list[dict[str, Any]]:
    value = row.get(field)
    if not isinstance(value, str):
        raise RowError(field, f"{field} is no text")
    text = unpack_tests(value) if field == "private_test_cases" else value
    try:
        tests = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise RowError(field, f"{field} is not JSON: {exc}") from exc
    if not isinstance(tests, list) or not all(isinstance(test, dict) for test in tests):
        raise RowError(field, f"{field} is no list of tests")
    return tests


def _read_function_name(row: Mapping[str, Any]) -> str:
    try:
        name = json.loads(row.get("metadata") or "{}").get("func_name")
    except (ValueError, AttributeError, TypeError) as exc:
        raise RowError("metadata", f"metadata is no JSON object: {exc}") from exc
    if not isinstance(name, str):
        raise RowError("metadata", "metadata has no func_name")
    return name
