"""What a request may ask for."""

from __future__ import annotations

from typing import Any

import pytest

from worker.generation import Request, Sampling


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.1),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("top_k", -1),
        ("min_p", -0.1),
        ("min_p", 1.1),
        ("presence_penalty", -2.1),
        ("presence_penalty", 2.1),
        ("repetition_penalty", 0.0),
    ],
)
def test_sampling_out_of_range_is_named(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        Sampling(**{name: value})


def test_sampling_at_its_bounds_is_accepted() -> None:
    assert Sampling(temperature=0.0, top_p=1.0, top_k=0, min_p=1.0).temperature == 0.0


def test_a_request_needs_a_prompt_and_room() -> None:
    with pytest.raises(ValueError, match="prompt"):
        Request(prompt=(), max_tokens=1, seed=0, sampling=Sampling())
    with pytest.raises(ValueError, match="max_tokens"):
        Request(prompt=(1,), max_tokens=0, seed=0, sampling=Sampling())
