"""What a manifest says of how a snapshot was made, in the reader's terms: free keys become names, values texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

# What the page says elsewhere.
TOLD = ("name", "title", "counts", "sources")
DRAWN = ("created",)
MAX_TEXT = 600


@dataclass(frozen=True)
class Fact:
    """One fact: a name and a text."""

    name: str
    text: str


@dataclass(frozen=True)
class FactGroup:
    """The facts of one model, or of one source."""

    title: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class Datasheet:
    """A snapshot's own facts, then those of its models and of what made it; empty groups are left out."""

    facts: tuple[Fact, ...]
    groups: tuple[FactGroup, ...]


def read_datasheet(manifest: Mapping[str, Any]) -> Datasheet:
    """Return everything a manifest says beyond what every snapshot has; its free keys may hold anything."""
    groups = [FactGroup(str(model["name"]), tuple(_list_facts(model))) for model in manifest["models"]]
    for key, title in (("generator", "How it was drawn"), ("worker", "What measured it")):
        described = manifest.get(key)
        if isinstance(described, Mapping):
            groups.append(FactGroup(title, tuple(_list_facts(described))))
            groups += _list_sources(described)
    facts = [Fact(name_key(key), write_value(manifest[key])) for key in DRAWN if manifest.get(key)]
    return Datasheet(tuple(facts), tuple(group for group in groups if group.facts))


def name_key(key: str) -> str:
    """Return a manifest's key in words.

    Examples
    --------
    >>> name_key("thinking_end"), name_key("sampling")
    ('Thinking end', 'Sampling')
    """
    words = key.replace("_", " ").strip()
    return words[:1].upper() + words[1:]


def write_value(value: Any) -> str:
    """Return any JSON value as a text; long ones are cut.

    Examples
    --------
    >>> write_value({"temperature": 0.6, "top_p": 0.95}), write_value([1, 2]), write_value(None), write_value(True)
    ('temperature 0.6, top_p 0.95', '1, 2', 'not stated', 'yes')
    """
    text = _write(value)
    return text if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]}…"


def _write(value: Any) -> str:
    if value is None:
        return "not stated"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_write(item)}" for key, item in value.items())
    if isinstance(value, list):
        return ", ".join(_write(item) for item in value)
    return repr(value) if isinstance(value, str) and value != value.strip() else str(value)


def _list_facts(described: Mapping[str, Any]) -> Iterator[Fact]:
    for key, value in described.items():
        if key not in TOLD and value not in (None, {}, []):
            yield Fact(name_key(str(key)), write_value(value))


def _list_sources(described: Mapping[str, Any]) -> list[FactGroup]:
    sources = described.get("sources")
    found = [source for source in sources if isinstance(source, Mapping)] if isinstance(sources, list) else []
    return [FactGroup(f"Source {number}", tuple(_list_facts(source))) for number, source in enumerate(found, start=1)]
