"""Engines in processes of their own share the requests of a call; the scripted model stands in for vLLM."""

from __future__ import annotations

import functools
import os
import random
import signal
from collections.abc import Iterator

import pytest

from tests.scripted_model import ScriptedEngine, make_tokenizer
from worker.generation import EngineError, Request, Sampling
from worker.replicas import ReplicatedEngine, list_environments, share_out


@pytest.fixture(scope="module")
def replicas() -> Iterator[ReplicatedEngine]:
    opened = ReplicatedEngine(ScriptedEngine, [{}, {}])
    yield opened
    opened.close()


def make_requests(count: int) -> list[Request]:
    question = make_tokenizer().encode("What is 3 + 4?<think>")
    rng = random.Random(1)
    prompts = [(*question, *(rng.randrange(97, 100) for _ in range(rng.randint(0, 20)))) for _ in range(count)]
    return [Request(prompt, 16, seed, Sampling()) for seed, prompt in enumerate(prompts)]


def test_answers_are_those_of_one_engine_in_the_order_of_the_requests(replicas: ReplicatedEngine) -> None:
    requests = make_requests(30)
    told: list[int] = []
    alone = ScriptedEngine(tells_cached=False).generate(requests)
    together = replicas.generate(requests, progress=told.append)
    assert [answer.tokens for answer in together] == [answer.tokens for answer in alone]
    assert told == list(range(1, 31))


def test_fewer_requests_than_replicas_and_none_at_all(replicas: ReplicatedEngine) -> None:
    (request,) = make_requests(1)
    assert replicas.generate([request])[0].tokens == ScriptedEngine().generate([request])[0].tokens
    assert replicas.generate([]) == []


def test_margins_are_those_of_one_engine(replicas: ReplicatedEngine) -> None:
    prompts = [request.prompt for request in make_requests(9)]
    expected = ScriptedEngine().measure_end_margins(prompts, end_token=5)
    assert replicas.measure_end_margins(prompts, end_token=5) == expected


def test_a_run_that_is_stopped_leaves_the_replicas_ready(replicas: ReplicatedEngine) -> None:
    requests = make_requests(200)

    def stop(n_done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replicas.generate(requests, progress=stop)
    assert len(replicas.generate(requests)) == 200


def test_the_description_says_how_many_there_are(replicas: ReplicatedEngine) -> None:
    assert replicas.describe() == {"engine": "scripted", "scripted": "1", "data_parallel_size": "2"}


def test_a_fault_of_one_is_the_fault_of_the_call() -> None:
    opened = ReplicatedEngine(functools.partial(ScriptedEngine, faults=[EngineError("out of memory")]), [{}])
    with pytest.raises(EngineError, match="out of memory"):
        opened.generate(make_requests(2))
    assert len(opened.generate(make_requests(2))) == 2
    opened.close()


def test_one_that_cannot_be_opened_says_why() -> None:
    with pytest.raises(EngineError, match="invalid literal"):
        ReplicatedEngine(functools.partial(int, "weights"), [{}])  # type: ignore[arg-type]


def test_one_that_is_killed_ends_the_call() -> None:
    opened = ReplicatedEngine(functools.partial(ScriptedEngine, hangs_at=1), [{}])
    (process,) = opened._processes
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(EngineError, match="replica 0 of the engine has ended"):
        opened.generate(make_requests(1))
    opened.close()


def test_shares_are_neighbours_of_about_equal_work() -> None:
    # Two trajectories of three positions each, asked position by position.
    prompts = [(1, *thinking[:kept]) for kept in (0, 5, 10) for thinking in ((2,) * 10, (3,) * 10)]
    first, second = share_out(prompts, [len(prompt) for prompt in prompts], n_shares=2)
    assert {prompts[idx][1:2] for idx in first} == {(2,)}
    assert {prompts[idx][1:2] for idx in second} == {(3,), ()}
    rng = random.Random(7)
    for _ in range(300):
        work = [rng.randint(1, 9) for _ in range(rng.randint(1, 20))]
        made = [tuple(rng.choices((1, 2), k=4)) for _ in work]
        n_shares = rng.randint(1, 5)
        shares = share_out(made, work, n_shares=n_shares)
        assert sorted(idx for share in shares for idx in share) == list(range(len(work)))
        # No share is further from its part than one request.
        assert all(abs(sum(work[i] for i in share) - sum(work) / n_shares) <= 9 for share in shares)


def test_each_replica_has_gpus_of_its_own() -> None:
    options = {"data_parallel_size": 2, "tensor_parallel_size": 2, "pipeline_parallel_size": 1}
    assert list_environments(options, visible=None) == [
        {"CUDA_VISIBLE_DEVICES": "0,1"},
        {"CUDA_VISIBLE_DEVICES": "2,3"},
    ]
    assert list_environments(options, visible="4,5,6,7,8")[1] == {"CUDA_VISIBLE_DEVICES": "6,7"}
    with pytest.raises(EngineError, match="need 4, and CUDA_VISIBLE_DEVICES names 3"):
        list_environments(options, visible="0,1,2")
    assert list_environments({**options, "distributed_executor_backend": "ray"}, visible=None) == [{}, {}]
