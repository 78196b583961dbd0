"""The manifest of a snapshot: reading it strictly, checking every key, and its canonical text for the hash."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from app.evaluator.measurements import SPLITS
from app.files.problems import ProblemCollector, suggest

SNAPSHOT_FORMAT = "stp-snapshot/1"
MANIFEST_FILE = "manifest.json"
KINDS = ("measured", "synthetic")
REQUIRED_KEYS = (
    "format",
    "name",
    "title",
    "kind",
    "probes_per_position",
    "trajectories_per_question",
    "models",
    "benchmarks",
    "files",
)
OPTIONAL_KEYS = (
    "description",
    "license",
    "source",
    "target_step_tokens",
    "thinking_token_limit",
    "hidden_splits",
    "created",
    "generator",
    "worker",
    "supersedes",
    "full_sha256",
)
# Keys that say where and when the snapshot was written, not what it holds.
KEYS_OUTSIDE_IDENTITY = ("files", "created", "full_sha256")
MAX_NAME_LENGTH = 200
MAX_SLUG_LENGTH = 64
MAX_COUNT = 2**31 - 1
MAX_DEPTH = 64
MAX_MANIFEST_BYTES = 16 * 2**20
_SLUG = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")


@dataclass(frozen=True)
class Manifest:
    """A checked manifest.

    Attributes
    ----------
    name, title, kind : the slug, the heading, and "measured" or "synthetic".
    probes_per_position, trajectories_per_question : M >= 1 and R >= 1.
    models, benchmarks, benchmark_titles : in the manifest's order, which is the order everywhere.
    hidden_splits : splits whose labels are hidden, in the order train, validation, test.
    full_sha256 : of a public export, the identity of the snapshot it was made from; else None.
    raw : the JSON object as it was read.
    """

    name: str
    title: str
    kind: str
    probes_per_position: int
    trajectories_per_question: int
    models: tuple[str, ...]
    benchmarks: tuple[str, ...]
    benchmark_titles: tuple[str, ...]
    hidden_splits: tuple[str, ...]
    full_sha256: str | None
    raw: dict[str, Any]


@dataclass(frozen=True)
class ManifestFacts:
    """What could be understood of a manifest, faulty or not; None where a key is missing or wrong."""

    models: tuple[str, ...] | None = None
    benchmarks: tuple[str, ...] | None = None
    probes_per_position: int | None = None
    trajectories_per_question: int | None = None
    hidden_splits: tuple[str, ...] | None = None
    full_sha256: str | None = None


def is_plain_name(name: object) -> bool:
    """Whether a text may name a model, benchmark or question: 1 to 200 characters, no control ones, none blank outside.

    Examples
    --------
    >>> is_plain_name("Qwen3-8B"), is_plain_name(" x"), is_plain_name("")
    (True, False, False)
    """
    return (
        isinstance(name, str)
        and 0 < len(name) <= MAX_NAME_LENGTH
        and name == name.strip()
        and _CONTROL.search(name) is None
    )


def parse_json(text: str) -> Any:
    """Parse JSON strictly: no NaN or Infinity, no number too large, no key twice in an object, 64 levels at most.

    Raises
    ------
    ValueError : with the place, for anything else than one JSON value.
    """

    def refuse_constant(name: str) -> float:
        raise ValueError(f"{name} is not a JSON number")

    def parse_fraction(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            raise ValueError(f"the number {digits[:40]} is too large")
        return number

    def refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if repeated := sorted({key for key in keys if keys.count(key) > 1}):
            raise ValueError(f"the key {repeated[0]!r} appears twice in one object")
        return dict(pairs)

    try:
        value = json.loads(
            text, parse_constant=refuse_constant, parse_float=parse_fraction, object_pairs_hook=refuse_repeats
        )
    except RecursionError as exc:
        raise ValueError("it is nested too deeply") from exc
    if _is_deeper(value, MAX_DEPTH):
        raise ValueError("it is nested too deeply")
    return value


def canonical_manifest(raw: dict[str, Any]) -> bytes:
    """Return the manifest's canonical text, the part of a snapshot's identity that it contributes.

    Without `files`, `created`, `full_sha256`; without keys whose value is null, at any depth; `hidden_splits` sorted,
    left out when empty; numbers without a fraction as integers; keys sorted, no blanks, UTF-8.

    Examples
    --------
    >>> canonical_manifest({"name": "x", "created": "2026", "license": None, "models": [{"b": 2.0, "a": 0.5}]})
    b'{"models":[{"a":0.5,"b":2}],"name":"x"}'
    """
    kept = {key: value for key, value in raw.items() if key not in KEYS_OUTSIDE_IDENTITY}
    if isinstance(hidden := kept.pop("hidden_splits", None), list) and hidden:
        kept["hidden_splits"] = sorted(set(hidden))
    return json.dumps(
        _canonical_value(kept), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def _canonical_value(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _canonical_value(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_canonical_value(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def check_manifest(raw: dict[str, Any], problems: ProblemCollector) -> ManifestFacts:
    """Check every key of a manifest, recording all faults, and return what could be understood.

    Parameters
    ----------
    raw : the JSON object of the manifest.
    problems : where faults go, with the key as their column.
    """
    for key in REQUIRED_KEYS:
        if raw.get(key) is None:
            problems.add("missing_key", f"the manifest has no {key!r}", column=key)
    known = (*REQUIRED_KEYS, *OPTIONAL_KEYS)
    for key in raw:
        if key not in known:
            problems.add("unknown_key", f"the manifest key {key!r} is not known{suggest(key, known)}", column=key)
    if _has_unstorable_text(raw):
        problems.add("bad_text", "a text of the manifest holds a NUL character or half a surrogate pair")
    check = _KeyChecker(raw, problems)
    check.value("format", lambda v: v == SNAPSHOT_FORMAT, f"is {SNAPSHOT_FORMAT!r}", code="bad_format")
    check.value(
        "name", is_slug, "is lower-case words of a-z and 0-9 joined by '-', at most 64 characters", code="bad_name"
    )
    check.value("title", lambda v: isinstance(v, str) and bool(v.strip()), "is a text")
    check.value("kind", lambda v: v in KINDS, f"is one of {', '.join(KINDS)}", code="bad_kind")
    for key in ("description", "license", "source", "created"):
        check.value(key, lambda v: isinstance(v, str), "is a text")
    for key in ("generator", "worker"):
        check.value(key, lambda v: isinstance(v, dict), "is an object")
    for key in ("target_step_tokens", "thinking_token_limit"):
        check.value(key, _is_count, "is a whole number from 1")
    check.value(
        "supersedes",
        _is_reference_list,
        "is a list of objects with the `name` and the `sha256` of a snapshot and nothing else",
    )
    check.value("files", _is_file_list, "is an object of plain file names with their SHA-256 in lower-case hexadecimal")
    return ManifestFacts(
        models=_check_entries(raw, "models", problems),
        benchmarks=_check_entries(raw, "benchmarks", problems),
        probes_per_position=check.count("probes_per_position"),
        trajectories_per_question=check.count("trajectories_per_question"),
        hidden_splits=_check_hidden_splits(raw, problems),
        full_sha256=check.value("full_sha256", _is_sha256, "is a SHA-256 in lower-case hexadecimal"),
    )


def build_manifest(raw: dict[str, Any], facts: ManifestFacts) -> Manifest:
    """Build the manifest of checked facts; call it only when the check found no fault."""
    if (
        facts.models is None
        or facts.benchmarks is None
        or facts.probes_per_position is None
        or facts.trajectories_per_question is None
        or facts.hidden_splits is None
    ):
        raise ValueError("the manifest has faults")
    return Manifest(
        name=raw["name"],
        title=raw["title"],
        kind=raw["kind"],
        probes_per_position=facts.probes_per_position,
        trajectories_per_question=facts.trajectories_per_question,
        models=facts.models,
        benchmarks=facts.benchmarks,
        benchmark_titles=tuple(entry.get("title") or entry["name"] for entry in raw["benchmarks"]),
        hidden_splits=facts.hidden_splits,
        full_sha256=facts.full_sha256,
        raw=raw,
    )


@dataclass(frozen=True)
class _KeyChecker:
    raw: dict[str, Any]
    problems: ProblemCollector

    def value(self, key: str, accepts: Callable[[Any], bool], expected: str, *, code: str = "bad_value") -> Any:
        """Return the value if it is accepted; None where it is absent, null or wrong."""
        value = self.raw.get(key)
        if value is None:
            return None
        if accepts(value):
            return value
        self.problems.add(code, f"{key} is {_show(value)}; expected: it {expected}", column=key)
        return None

    def count(self, key: str) -> int | None:
        value = self.value(key, _is_count, f"is a whole number from 1 to {MAX_COUNT}")
        return None if value is None else int(value)


def _check_entries(raw: dict[str, Any], key: str, problems: ProblemCollector) -> tuple[str, ...] | None:
    """Check `models` or `benchmarks`: a list of objects whose `name` is a plain name, none twice."""
    entries = raw.get(key)
    if entries is None:
        return None
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        problems.add("bad_value", f"{key} is {_show(entries)}; expected: a list of objects, not empty", column=key)
        return None
    names = [entry.get("name") for entry in entries]
    place = f"{key}.name"
    sound = True
    for entry, name in zip(entries, names, strict=True):
        if name is None:
            problems.add("missing_key", f"an entry of {key} has no 'name': {_show(entry)}", column=place)
        elif not is_plain_name(name):
            problems.add("bad_name", f"{_show(name)} cannot name an entry of {key}", column=place)
        elif not isinstance(entry.get("title"), str | None):
            problems.add("bad_value", f"the title of {name!r} is {_show(entry['title'])}, not a text", column=key)
        else:
            continue
        sound = False
    plain = [name for name in names if isinstance(name, str)]
    for name in sorted({name for name in plain if plain.count(name) > 1}):
        problems.add("duplicate_name", f"{key} has {name!r} more than once", column=place)
        sound = False
    return tuple(plain) if sound else None


def _check_hidden_splits(raw: dict[str, Any], problems: ProblemCollector) -> tuple[str, ...] | None:
    hidden = raw.get("hidden_splits")
    if hidden is None:
        return ()
    if not isinstance(hidden, list):
        problems.add(
            "bad_value", f"hidden_splits is {_show(hidden)}; expected: a list of splits", column="hidden_splits"
        )
        return None
    wrong = [split for split in hidden if split not in SPLITS]
    for split in wrong:
        problems.add(
            "bad_split", f"hidden_splits names {_show(split)}; splits are {', '.join(SPLITS)}", column="hidden_splits"
        )
    return None if wrong else tuple(split for split in SPLITS if split in hidden)


def is_slug(value: Any) -> bool:
    """Whether a value may be the name of a snapshot: lower-case words joined by '-', at most 64 characters."""
    return isinstance(value, str) and len(value) <= MAX_SLUG_LENGTH and _SLUG.fullmatch(value) is not None


def _is_count(value: Any) -> bool:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_COUNT


def _is_sha256(value: Any) -> bool:
    return isinstance(value, str) and _SHA256.fullmatch(value) is not None


def _is_reference_list(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(entry, dict)
        and set(entry) == {"name", "sha256"}
        and is_slug(entry["name"])
        and _is_sha256(entry["sha256"])
        for entry in value
    )


def _is_file_list(value: Any) -> bool:
    return isinstance(value, dict) and all(
        is_plain_name(name) and not set(name) & set("/\\") and name not in (".", "..") and _is_sha256(digest)
        for name, digest in value.items()
    )


def _is_deeper(value: Any, levels: int) -> bool:
    children = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []
    return bool(children) and (levels == 0 or any(_is_deeper(child, levels - 1) for child in children))


def _has_unstorable_text(value: Any) -> bool:
    if isinstance(value, str):
        return _UNSTORABLE.search(value) is not None
    if isinstance(value, dict):
        return any(_has_unstorable_text(item) for pair in value.items() for item in pair)
    if isinstance(value, list):
        return any(_has_unstorable_text(item) for item in value)
    return False


def _show(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else text[:77] + "..."
