"""A server that generates: `vllm serve`, or any OpenAI-compatible one whose completions take and return token ids."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

import httpx

from worker.generation import BARRED, Completion, EngineError, Request, sampling_arguments
from worker.ordering import Prompt, order_by_shared_prefix

logger = logging.getLogger(__name__)

# An answer comes when all of it is generated, which at 32k tokens on a busy server takes long.
TIMEOUT_SECONDS = 3600.0
CONNECT_SECONDS = 10.0
# About two minutes in all, enough for a server that restarts behind a proxy.
PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 60.0)
BUSY_STATUSES = frozenset({429, 502, 503, 504})


class ServerEngine:
    """Generates on a server; many workers may share it.

    Parameters
    ----------
    url : the server's address, with or without ``/v1``.
    model : a name that the server serves; None where it serves one only.
    api_key : sent as a bearer token.
    concurrency : requests under way at once; more wait here rather than there.
    pause : waits between attempts; the network is tried again after each of `PAUSES_SECONDS`.
    transport : replaces the network.
    """

    def __init__(
        self,
        url: str,
        *,
        model: str | None = None,
        api_key: str | None = None,
        concurrency: int = 64,
        pause: Callable[[float], object] = time.sleep,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._url = url.rstrip("/").removesuffix("/v1")
        self._pause = pause
        self._client = httpx.Client(
            base_url=self._url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(TIMEOUT_SECONDS, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=concurrency, max_keepalive_connections=concurrency),
            transport=transport,
        )
        self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="completions")
        self._concurrency = concurrency
        try:
            self._model = self._find_model(model)
        except BaseException:
            self.close()
            raise

    def generate(
        self, requests: Sequence[Request], *, progress: Callable[[int], None] | None = None
    ) -> list[Completion]:
        """Return one completion a request, in the order of the requests."""
        bodies = [completion_body(request) for request in requests]
        answers = self._complete_all([request.prompt for request in requests], bodies, progress=progress)
        return [_read_completion(answer, request) for answer, request in zip(answers, requests, strict=True)]

    def measure_end_margins(self, prompts: Sequence[Prompt], *, end_token: int) -> list[float]:
        """Return log p(likeliest other token) − log p(`end_token`) of the token after each prompt.

        The server must report log-probabilities before any bias, as `vllm serve` does by default
        (``--logprobs-mode raw_logprobs``).
        """
        body = {
            "max_tokens": 1,
            "temperature": 0.0,
            "ignore_eos": True,
            "logprobs": 1,
            "logprob_token_ids": [end_token],
            "logit_bias": {str(end_token): BARRED},
            "return_tokens_as_token_ids": True,
        }
        answers = self._complete_all(prompts, [body] * len(prompts))
        return [_read_margin(answer, end_token) for answer in answers]

    def describe(self) -> dict[str, str]:
        """Return what the server says of itself; its own choices are the operator's to note."""
        try:
            version = str(self._call("GET", "/version").get("version", "unknown"))
        except EngineError:
            version = "unknown"
        return {
            "engine": "OpenAI-compatible server",
            "server_version": version,
            "server_model": self._model,
            "concurrency": str(self._concurrency),
            "scheduler": "on a server, where batches depend on what else it serves",
        }

    def close(self) -> None:
        """Drop what waits, and the connections."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def _find_model(self, wanted: str | None) -> str:
        served = [str(entry.get("id")) for entry in self._call("GET", "/v1/models").get("data", [])]
        if wanted is None and len(served) == 1:
            return served[0]
        if wanted not in served:
            named = "no model was named" if wanted is None else f"there is no model {wanted} on it"
            raise EngineError(f"the server at {self._url} serves {', '.join(served) or 'nothing'}; {named}")
        return wanted

    def _complete_all(
        self,
        prompts: Sequence[Prompt],
        bodies: Sequence[Mapping[str, Any]],
        *,
        progress: Callable[[int], None] | None = None,
    ) -> list[dict[str, Any]]:
        """Return the answers in the order of the prompts, asked in the order that shares most."""
        waiting: dict[Future[dict[str, Any]], int] = {
            self._threads.submit(self._complete, prompts[idx], bodies[idx]): idx
            for idx in order_by_shared_prefix(prompts)
        }
        answers: dict[int, dict[str, Any]] = {}
        try:
            for future in as_completed(waiting):
                answers[waiting[future]] = future.result()
                if progress is not None:
                    progress(len(answers))
        finally:
            # After a fault, or a run that is stopped, nothing more is asked; what is under way ends unheard.
            for future in waiting:
                future.cancel()
        return [answers[idx] for idx in range(len(prompts))]

    def _complete(self, prompt: Prompt, body: Mapping[str, Any]) -> dict[str, Any]:
        asked = {
            "model": self._model,
            "prompt": list(prompt),
            "add_special_tokens": False,
            "return_token_ids": True,
            **body,
        }
        answer = self._call("POST", "/v1/completions", asked)
        returned = _only_choice(answer).get("prompt_token_ids")
        if returned is not None and returned != asked["prompt"]:
            raise EngineError(
                "the server changed the token ids of the prompt, so its tokens are not what was asked for"
            )
        return answer

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the JSON object of the answer; faults of the connection and a busy server are tried again."""
        for pause in (*PAUSES_SECONDS, None):
            try:
                response = self._client.request(method, path, json=body)
            except httpx.ReadTimeout as exc:
                raise EngineError(f"the server at {self._url} did not answer within {TIMEOUT_SECONDS:g} s") from exc
            except httpx.TransportError as exc:
                fault = f"the server at {self._url} cannot be reached: {exc or type(exc).__name__}"
            else:
                if response.status_code not in BUSY_STATUSES:
                    return self._read(response)
                fault = f"the server at {self._url} is busy (HTTP {response.status_code})"
            if pause is None:
                raise EngineError(fault)
            logger.warning("%s; trying again in %g s", fault, pause)
            self._pause(pause)
        raise AssertionError("the last attempt returns or raises")

    def _read(self, response: httpx.Response) -> dict[str, Any]:
        try:
            document = response.json()
        except ValueError:
            document = None
        if response.is_error or not isinstance(document, dict):
            raise EngineError(
                f"the server at {self._url} answered {response.request.url.path} with HTTP {response.status_code}: "
                f"{_find_message(document) or response.text[:200]}"
            )
        return document


def completion_body(request: Request) -> dict[str, Any]:
    """Return the body of a completion request, less the prompt and the model."""
    return {
        **sampling_arguments(request.sampling),
        "seed": request.seed,
        "max_tokens": request.max_tokens,
        "stop_token_ids": list(request.stop_tokens),
        "ignore_eos": True,
    }


def _only_choice(answer: Mapping[str, Any]) -> dict[str, Any]:
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise EngineError("the server's answer does not hold one choice")
    return choices[0]


def _read_completion(answer: Mapping[str, Any], request: Request) -> Completion:
    choice = _only_choice(answer)
    tokens = choice.get("token_ids")
    if not isinstance(tokens, list):
        raise EngineError(
            "the server does not return token ids: it has to understand `return_token_ids`, as `vllm serve` does"
        )
    details = (answer.get("usage") or {}).get("prompt_tokens_details") or {}
    cached = details.get("cached_tokens")
    reason = choice.get("finish_reason")
    if reason == "length":
        return Completion(tuple(tokens), stop_token=None, reason="length", cached_tokens=cached)
    if reason != "stop" or not tokens or tokens[-1] not in request.stop_tokens:
        raise EngineError(f"the server ended a request with {reason!r} at none of its stop tokens")
    return Completion(tuple(tokens[:-1]), stop_token=tokens[-1], reason="stop", cached_tokens=cached)


def _read_margin(answer: Mapping[str, Any], end_token: int) -> float:
    logprobs = _only_choice(answer).get("logprobs") or {}
    (likeliest,) = logprobs.get("tokens") or [None]
    (found,) = logprobs.get("top_logprobs") or [{}]
    end = f"token_id:{end_token}"
    if likeliest == end:
        raise EngineError(f"the model gives no other token than {end_token} any probability")
    if not isinstance(found, dict) or end not in found or likeliest not in found:
        raise EngineError(
            "the server does not return the log-probability of a given token: it has to understand "
            "`logprob_token_ids` and `return_tokens_as_token_ids`, as `vllm serve` does"
        )
    return float(found[likeliest] - found[end])


def _find_message(document: Any) -> str | None:
    if not isinstance(document, dict):
        return None
    error = document.get("error", document)
    message = error.get("message", error.get("detail")) if isinstance(error, dict) else error
    return None if message is None else str(message)
