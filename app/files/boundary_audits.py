"""The audits of known tokenizers: how many tokens end a block, and the digest of their ids."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

AUDIT_FILE = Path(__file__).parent / "data" / "boundary_audits.json"


@dataclass(frozen=True)
class BoundaryAudit:
    """What the audit of one tokenizer's own files found.

    Attributes
    ----------
    name : of the tokenizer.
    vocabulary, boundary_tokens : how many ids it has, and how many of them hold a double newline.
    categories : the latter by category, adding up to them.
    ids_sha256 : SHA-256 of the ids in ascending order, one a line.
    """

    name: str
    vocabulary: int
    boundary_tokens: int
    categories: dict[str, int]
    ids_sha256: str


@cache
def list_boundary_audits() -> tuple[BoundaryAudit, ...]:
    """Return the audits that are shipped; their counts are those of the paper's table 8."""
    return tuple(BoundaryAudit(**entry) for entry in json.loads(AUDIT_FILE.read_text(encoding="utf-8")))


def find_boundary_audit(ids_sha256: str) -> BoundaryAudit | None:
    """Return the audit that found exactly these boundary tokens; None if it is none of the known."""
    return next((audit for audit in list_boundary_audits() if audit.ids_sha256 == ids_sha256), None)
