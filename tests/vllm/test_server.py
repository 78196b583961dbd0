"""The engine that asks a server, against a real `vllm serve`."""

from __future__ import annotations

import pytest

from worker.engine import VllmEngine
from worker.generation import EngineError, Request, Sampling
from worker.server_engine import ServerEngine

GREEDY = Sampling(temperature=0.0)
PROMPTS = [tuple(range(10, 10 + count)) for count in (3, 70, 40, 66)] + [(90, 4, 4, 17)]


def test_a_server_gives_the_tokens_that_the_engine_here_gives(
    server_engine: ServerEngine, vllm_engine: VllmEngine
) -> None:
    requests = [Request(prompt, max_tokens=20, seed=1, sampling=GREEDY) for prompt in PROMPTS]
    here = vllm_engine.generate(requests)
    there = server_engine.generate(requests)
    assert [answer.tokens for answer in there] == [answer.tokens for answer in here]
    stop = here[0].tokens[5]
    place = here[0].tokens.index(stop)
    stopped = Request(PROMPTS[0], max_tokens=20, seed=1, sampling=GREEDY, stop_tokens=(stop,))
    answer = server_engine.generate([stopped])[0]
    assert (answer.tokens, answer.stop_token, answer.reason) == (here[0].tokens[:place], stop, "stop")


def test_seeds_reach_the_server(server_engine: ServerEngine) -> None:
    requests = [Request(PROMPTS[1], max_tokens=20, seed=2**63 - 1 - idx, sampling=Sampling()) for idx in range(4)]
    first = server_engine.generate(requests)
    assert len({answer.tokens for answer in first}) == 4
    assert [answer.tokens for answer in server_engine.generate(requests)] == [answer.tokens for answer in first]


def test_the_server_says_what_its_cache_served(server_engine: ServerEngine) -> None:
    prompt = tuple(3 + idx * 5 % 80 for idx in range(200))
    request = Request(prompt, max_tokens=1, seed=1, sampling=GREEDY)
    server_engine.generate([request])
    assert server_engine.generate([request])[0].cached_tokens == 192


def test_end_margins_are_those_of_the_engine_here(server_engine: ServerEngine, vllm_engine: VllmEngine) -> None:
    here = vllm_engine.measure_end_margins(PROMPTS, end_token=44)
    assert server_engine.measure_end_margins(PROMPTS, end_token=44) == pytest.approx(here, abs=1e-4)


def test_what_the_server_refuses_is_an_error_with_its_words(server_engine: ServerEngine) -> None:
    with pytest.raises(EngineError, match=r"HTTP 400: .*1024"):
        server_engine.generate([Request(PROMPTS[1] * 20, max_tokens=1, seed=1, sampling=GREEDY)])


def test_the_server_is_described(server_engine: ServerEngine) -> None:
    said = server_engine.describe()
    assert (said["server_version"][:4], said["server_model"]) == ("0.32", "tiny")
