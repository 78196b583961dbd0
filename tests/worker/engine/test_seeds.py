"""Seeds that are the same everywhere and never neighbours."""

from __future__ import annotations

import hashlib
import itertools
from typing import Any

import pytest

from worker.seeds import derive_seed

NAMES: dict[str, Any] = {
    "snapshot": "s",
    "model": "m",
    "benchmark": "b",
    "question": "q",
    "trajectory": 3,
    "phase": "probe",
    "position": 2,
    "probe": 1,
}


def test_a_seed_is_the_first_63_bits_of_the_hash_of_its_parts() -> None:
    digest = hashlib.sha256(b'["s","m","b","q",3,"probe",2,1]').hexdigest()
    assert derive_seed(**NAMES) == int(digest[:16], 16) // 2


def test_seeds_written_down_stay_what_they_are() -> None:
    # Were they to change, a run that is resumed after an upgrade would differ from one that was not stopped.
    assert derive_seed(snapshot="s", model="m", benchmark="b", question="q", trajectory=0, phase="thinking") == (
        4095428799562775768
    )
    assert derive_seed(**(NAMES | {"question": "Ä 問"})) == 2947481112019258526


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("snapshot", "t"),
        ("model", "n"),
        ("benchmark", "c"),
        ("question", "r"),
        ("trajectory", 4),
        ("phase", "answer"),
        ("position", 3),
        ("probe", 2),
    ],
)
def test_every_part_counts(part: str, other: object) -> None:
    assert derive_seed(**NAMES) != derive_seed(**(NAMES | {part: other}))


def test_borders_between_parts_count() -> None:
    moved = NAMES | {"benchmark": "bq", "question": ""}
    assert derive_seed(**moved) != derive_seed(**(NAMES | {"benchmark": "b", "question": "q"}))
    quoted = NAMES | {"benchmark": 'b","q', "question": ""}
    assert derive_seed(**quoted) != derive_seed(**(NAMES | {"benchmark": "b", "question": 'q",""'}))


def test_seeds_fit_63_bits_differ_and_never_follow_on_each_other() -> None:
    seeds = [
        derive_seed(**(NAMES | {"trajectory": trajectory, "position": position, "probe": probe}))
        for trajectory, position, probe in itertools.product(range(16), range(40), range(16))
    ]
    assert len(set(seeds)) == len(seeds) == 10_240
    assert min(seeds) >= 0
    assert 2**62 < max(seeds) < 2**63
    # Engines give the i-th sample of a request the seed + i; no two requests lie within that reach.
    ordered = sorted(seeds)
    assert min(after - before for before, after in itertools.pairwise(ordered)) > 1024
