"""A profile's data parallel size with real vLLM: two engines in processes of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from worker.engine import VllmEngine, open_engine
from worker.generation import Request, Sampling


def test_two_replicas_give_the_tokens_of_one_engine(
    tiny_model: Path, tiny_options: dict[str, Any], vllm_engine: VllmEngine
) -> None:
    prompts = [tuple(range(10, 10 + count)) for count in (3, 70, 40, 66, 20)] + [(90, 4, 4, 17)]
    requests = [Request(prompt, 12, seed, Sampling(temperature=0.0)) for seed, prompt in enumerate(prompts)]
    replicas = open_engine(str(tiny_model), {**tiny_options, "data_parallel_size": 2})
    try:
        told: list[int] = []
        answers = replicas.generate(requests, progress=told.append)
        assert [answer.tokens for answer in answers] == [answer.tokens for answer in vllm_engine.generate(requests)]
        assert told[-1] == len(requests)
        assert replicas.describe()["data_parallel_size"] == "2"
    finally:
        replicas.close()
