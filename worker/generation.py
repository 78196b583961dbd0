"""What a measurement asks of an engine, in token ids: text is decoded once, for grading, and never encoded again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from app.errors import AppError

# Added to a token's logit so that another is taken; engines accept no more than this.
BARRED = -100.0


class EngineError(AppError):
    """The engine cannot be started, or cannot generate what was asked."""

    status = 503
    code = "engine_failed"


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn; each default leaves the model's own distribution as it is."""

    temperature: float = 1.0
    top_p: float = 1.0
    # 0 keeps every token.
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if self.temperature < 0:
            raise ValueError(f"temperature is {self.temperature}; it must be 0 (the likeliest token) or more")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0 and at most 1")
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; it must be 0 (every token) or more")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p is {self.min_p}; it must be between 0 and 1")
        if not -2 <= self.presence_penalty <= 2:
            raise ValueError(f"presence_penalty is {self.presence_penalty}; it must be between -2 and 2")
        if self.repetition_penalty <= 0:
            raise ValueError(f"repetition_penalty is {self.repetition_penalty}; it must be above 0")


@dataclass(frozen=True)
class Request:
    """One continuation of one prompt.

    Generation ends at `max_tokens` or at any of `stop_tokens`, and at nothing else: the end-of-sequence tokens of the
    model belong among them. The same request gives the same tokens from an engine that is deterministic.
    """

    prompt: tuple[int, ...]
    max_tokens: int
    seed: int
    sampling: Sampling
    stop_tokens: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.prompt:
            raise ValueError("the prompt of a request holds no token")
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; it must be 1 or more")


@dataclass(frozen=True)
class Completion:
    """The tokens that followed a prompt, without the stop token that ended them."""

    tokens: tuple[int, ...]
    stop_token: int | None
    reason: Literal["stop", "length"]
    # Tokens of the prompt that the engine had in its prefix cache; None where it does not say.
    cached_tokens: int | None = None


def sampling_arguments(sampling: Sampling) -> dict[str, float]:
    """Return the names that vLLM and the servers which follow it give to how tokens are drawn."""
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "repetition_penalty": sampling.repetition_penalty,
    }


class Engine(Protocol):
    """What generates; the answers are in the order of the requests, whatever order the engine works in.

    A call does not depend on the calls before it: an engine of our own begins each with an empty prefix cache, so that
    a question that is taken up again after a fault is measured exactly as it would have been.
    """

    def generate(
        self, requests: Sequence[Request], *, progress: Callable[[int], None] | None = None
    ) -> list[Completion]:
        """Return one completion a request; `progress` is told how many are done."""

    def measure_end_margins(self, prompts: Sequence[tuple[int, ...]], *, end_token: int) -> list[float]:
        """Return log p(likeliest other token) − log p(`end_token`) of the token after each prompt.

        Both are the model's own probabilities, before temperature and truncation: the margin is negative exactly where
        the end of thinking is the likeliest token, and infinite where the model gives it no probability at all.
        """

    def describe(self) -> dict[str, str]:
        """Return the versions and choices that the figures depend on, for the manifest."""

    def close(self) -> None:
        """Free the memory and the processes that the engine holds."""
