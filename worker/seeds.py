"""Seeds of the requests: each a hash of what it is for, so that a run gives the same tokens wherever it is resumed.

Seeds are never counted up. Engines derive the seeds of several samples of one request as seed + i, and neighbouring
requests would share streams.
"""

from __future__ import annotations

import hashlib
import json
from typing import Literal

Phase = Literal["thinking", "probe", "answer", "direct"]

# The largest that fits a signed 64-bit integer, which is what engines take.
SEED_BITS = 63


def derive_seed(
    *,
    snapshot: str,
    model: str,
    benchmark: str,
    question: str,
    trajectory: int,
    phase: Phase,
    position: int = 0,
    probe: int = 0,
) -> int:
    """Return the seed of one request, 0 … 2^63 − 1, the same on every machine and in every version.

    The parts are hashed as JSON, which keeps their borders: ("a", "bc") and ("ab", "c") differ.

    >>> derive_seed(snapshot="s", model="m", benchmark="b", question="q", trajectory=0, phase="thinking")
    4095428799562775768
    """
    parts = [snapshot, model, benchmark, question, trajectory, phase, position, probe]
    text = json.dumps(parts, ensure_ascii=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode("ascii")).digest()
    return int.from_bytes(digest[:8], "big") >> (64 - SEED_BITS)
