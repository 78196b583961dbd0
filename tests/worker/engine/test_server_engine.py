"""What goes to a server and what is made of its answers; only the network is replaced."""

from __future__ import annotations

import json
import math
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from worker.generation import Completion, EngineError, Request, Sampling
from worker.server_engine import PAUSES_SECONDS, ServerEngine

Answer = Callable[[dict[str, Any]], httpx.Response]
END = 7


def request(*prompt: int, **changes: Any) -> Request:
    values: dict[str, Any] = {"max_tokens": 5, "seed": 2**63 - 1, "sampling": Sampling(), "stop_tokens": (99,)}
    return Request(prompt=prompt, **(values | changes))


def choice(**fields: Any) -> httpx.Response:
    usage = fields.pop("usage", {"prompt_tokens_details": {"cached_tokens": 32}})
    return httpx.Response(200, json={"choices": [fields], "usage": usage})


def stopped(body: dict[str, Any]) -> httpx.Response:
    """Answer with the prompt's last token and the stop token."""
    tokens = [body["prompt"][-1], 99]
    return choice(token_ids=tokens, prompt_token_ids=body["prompt"], finish_reason="stop", stop_reason=99)


class Server:
    """A network that keeps what was asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[httpx.Headers] = []
        self.pauses: list[float] = []
        self.served = ["tiny"]
        self._lock = threading.Lock()

    def __call__(self, asked: httpx.Request) -> httpx.Response:
        if asked.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": name} for name in self.served]})
        if asked.url.path == "/version":
            return httpx.Response(200, json={"version": "0.32.0"})
        assert asked.url.path == "/v1/completions"
        body = json.loads(asked.content)
        with self._lock:
            self.bodies.append(body)
            self.headers.append(asked.headers)
            return self.answer(body)

    def engine(self, **options: Any) -> ServerEngine:
        transport = httpx.MockTransport(self)
        defaults: dict[str, Any] = {"concurrency": 1, "pause": self.pauses.append}
        return ServerEngine("http://server:8000/v1/", transport=transport, **(defaults | options))


def test_a_request_is_sent_whole_and_its_answer_read_back() -> None:
    server = Server(stopped)
    engine = server.engine(api_key="secret")
    sampling = Sampling(temperature=0.6, top_p=0.95, top_k=20, min_p=0.1, presence_penalty=1.5, repetition_penalty=1.1)
    assert engine.generate([request(3, 4, sampling=sampling)]) == [
        Completion((4,), stop_token=99, reason="stop", cached_tokens=32)
    ]
    assert server.headers[0]["authorization"] == "Bearer secret"
    assert server.bodies == [
        {
            "model": "tiny",
            "prompt": [3, 4],
            "add_special_tokens": False,
            "return_token_ids": True,
            "temperature": 0.6,
            "top_p": 0.95,
            "top_k": 20,
            "min_p": 0.1,
            "presence_penalty": 1.5,
            "repetition_penalty": 1.1,
            "seed": 2**63 - 1,
            "max_tokens": 5,
            "stop_token_ids": [99],
            "ignore_eos": True,
        }
    ]
    engine.close()


def test_answers_come_in_the_order_of_the_requests_though_the_longest_is_asked_first() -> None:
    server = Server(stopped)
    engine = server.engine()
    told: list[int] = []
    answers = engine.generate([request(1), request(1, 2), request(1, 2, 3)], progress=told.append)
    assert [answer.tokens for answer in answers] == [(1,), (2,), (3,)]
    assert [body["prompt"] for body in server.bodies] == [[1, 2, 3], [1, 2], [1]]
    assert told == [1, 2, 3]
    assert engine.generate([]) == []
    engine.close()


def test_no_more_than_the_concurrency_is_under_way() -> None:
    under_way, most, lock = 0, 0, threading.Lock()
    met = threading.Barrier(4, timeout=30)

    def answer(asked: httpx.Request) -> httpx.Response:
        nonlocal under_way, most
        if asked.url.path == "/v1/models":
            return httpx.Response(200, json={"data": [{"id": "tiny"}]})
        with lock:
            under_way += 1
            most = max(most, under_way)
        met.wait()
        with lock:
            under_way -= 1
        return stopped(json.loads(asked.content))

    engine = ServerEngine("http://server", concurrency=4, transport=httpx.MockTransport(answer))
    assert len(engine.generate([request(idx) for idx in range(12)])) == 12
    assert most == 4
    engine.close()


def test_reaching_the_length_is_told_from_stopping_and_a_server_may_not_count_what_it_cached() -> None:
    server = Server(
        lambda body: choice(token_ids=[1, 2], finish_reason="length", usage={"prompt_tokens_details": None})
    )
    engine = server.engine()
    assert engine.generate([request(3)]) == [Completion((1, 2), stop_token=None, reason="length", cached_tokens=None)]
    engine.close()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (choice(text="four", finish_reason="length"), "does not return token ids"),
        (choice(token_ids=[1], prompt_token_ids=[0, 3], finish_reason="length"), "changed the token ids"),
        (choice(token_ids=[1, 2], finish_reason="stop"), "at none of its stop tokens"),
        (choice(token_ids=[], finish_reason="stop"), "at none of its stop tokens"),
        (choice(token_ids=[1], finish_reason="abort"), "'abort'"),
        (httpx.Response(200, json={"choices": []}), "one choice"),
        (httpx.Response(200, text="<html>"), "HTTP 200: <html>"),
        (httpx.Response(400, json={"error": {"message": "prompt is too long"}}), "HTTP 400: prompt is too long"),
        (httpx.Response(401, json={"error": "Unauthorized"}), "HTTP 401: Unauthorized"),
        (httpx.Response(422, json={"detail": "seed is too large"}), "HTTP 422: seed is too large"),
        (httpx.Response(500, text=""), "HTTP 500"),
    ],
)
def test_answers_that_cannot_be_used_are_errors_that_say_why(answer: httpx.Response, message: str) -> None:
    server = Server(lambda body: answer)
    engine = server.engine()
    with pytest.raises(EngineError, match=message):
        engine.generate([request(3)])
    # Asking again would not help.
    assert (len(server.bodies), server.pauses) == (1, [])
    engine.close()


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_busy_server_is_asked_again_later(status: int) -> None:
    answers = [httpx.Response(status), httpx.Response(status)]
    server = Server(lambda body: answers.pop() if answers else stopped(body))
    engine = server.engine()
    assert engine.generate([request(3)])[0].tokens == (3,)
    assert server.pauses == list(PAUSES_SECONDS[:2])
    engine.close()


def test_a_lost_connection_is_tried_again_and_given_up_in_the_end() -> None:
    def refuse(body: dict[str, Any]) -> httpx.Response:
        raise httpx.ConnectError("connection refused")

    server = Server(refuse)
    engine = server.engine()
    with pytest.raises(EngineError, match="cannot be reached: connection refused"):
        engine.generate([request(3)])
    assert server.pauses == list(PAUSES_SECONDS)
    engine.close()


def test_an_answer_that_takes_too_long_is_not_asked_for_twice() -> None:
    def hang(body: dict[str, Any]) -> httpx.Response:
        raise httpx.ReadTimeout("timed out")

    server = Server(hang)
    engine = server.engine()
    with pytest.raises(EngineError, match="did not answer within 3600 s"):
        engine.generate([request(3)])
    assert len(server.bodies) == 1
    engine.close()


def test_a_run_that_is_stopped_asks_for_nothing_more() -> None:
    server = Server(stopped)
    engine = server.engine()

    def stop(n_done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        engine.generate([request(idx) for idx in range(500)], progress=stop)
    engine.close()
    assert len(server.bodies) < 500


def margin_answer(likeliest: int, logprobs: dict[int, float]) -> Answer:
    named = {f"token_id:{token}": value for token, value in logprobs.items()}
    return lambda body: choice(
        token_ids=[likeliest],
        prompt_token_ids=body["prompt"],
        finish_reason="length",
        logprobs={"tokens": [f"token_id:{likeliest}"], "top_logprobs": [named]},
    )


def test_the_end_margin_is_the_difference_of_two_log_probabilities() -> None:
    server = Server(margin_answer(11, {11: -1.5, END: -4.25}))
    engine = server.engine()
    assert engine.measure_end_margins([(1, 2)], end_token=END) == [2.75]
    asked = server.bodies[0]
    assert (asked["max_tokens"], asked["temperature"], asked["logprobs"]) == (1, 0.0, 1)
    assert (asked["logit_bias"], asked["logprob_token_ids"]) == ({"7": -100.0}, [END])
    engine.close()


def test_the_end_margin_is_negative_where_ending_is_the_likeliest() -> None:
    server = Server(margin_answer(11, {11: -3.0, END: -0.25}))
    engine = server.engine()
    assert math.isclose(engine.measure_end_margins([(1,)], end_token=END)[0], -2.75)
    engine.close()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (margin_answer(END, {END: -0.1}), "no other token"),
        (margin_answer(11, {11: -0.1, 12: -2.0}), "logprob_token_ids"),
        (lambda body: choice(token_ids=[1], finish_reason="length", logprobs=None), "logprob_token_ids"),
    ],
)
def test_a_server_that_cannot_measure_margins_is_told_so(answer: Answer, message: str) -> None:
    engine = Server(answer).engine()
    with pytest.raises(EngineError, match=message):
        engine.measure_end_margins([(1,)], end_token=END)
    engine.close()


def test_the_model_is_one_that_the_server_serves() -> None:
    server = Server(stopped)
    assert server.engine().describe() == {
        "engine": "OpenAI-compatible server",
        "server_version": "0.32.0",
        "server_model": "tiny",
        "concurrency": "1",
        "scheduler": "on a server, where batches depend on what else it serves",
    }
    server.served = ["tiny", "adapter"]
    assert server.engine(model="adapter").describe()["server_model"] == "adapter"
    with pytest.raises(EngineError, match="serves tiny, adapter; no model was named"):
        server.engine()
    with pytest.raises(EngineError, match="there is no model large on it"):
        server.engine(model="large")
