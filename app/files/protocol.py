"""The protocol of a measurement: how finely, how often and how long a model is probed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from app.errors import ContentError
from app.evaluator.segmentation import STEP_TOKENS
from app.files.problems import ProblemCollector
from app.files.profiles import Profile

MAX_COUNT = 10_000
MAX_TOKENS = 2**24
DEFAULT_COUNT = 16
DEFAULT_QUESTION_SECONDS = 6 * 3600


class ProtocolError(ContentError):
    """A protocol has values that cannot be used; all are listed."""

    code = "bad_protocol"
    title = "The protocol has problems"


@dataclass(frozen=True)
class Protocol:
    """How a run measures; snapshots of the same protocol can be combined.

    Attributes
    ----------
    step_tokens : b, the mean length of a step that is aimed at, in tokens.
    n_trajectories : R, trajectories of each question.
    n_probes : M, answer probes at each position.
    thinking_token_limit, answer_token_limit, probe_token_limit : most new tokens of a thinking, of the answer that
        follows it, and of an answer probe.
    seed_name : what stands for the snapshot in the seeds; the same name gives the same random numbers.
    question_seconds : how long a question may be in one worker's hands before it counts as stuck.
    """

    step_tokens: int
    n_trajectories: int
    n_probes: int
    thinking_token_limit: int
    answer_token_limit: int
    probe_token_limit: int
    seed_name: str
    question_seconds: int = DEFAULT_QUESTION_SECONDS

    @property
    def max_positions(self) -> int:
        """The most positions that a trajectory may have: n + 1 for one as long as its limit."""
        n_tokens = self.thinking_token_limit
        return 1 + max(1, (2 * n_tokens + self.step_tokens) // (2 * self.step_tokens))

    def limit_profile(self, profile: Profile) -> Profile:
        """Return the profile with the limits of this protocol."""
        return replace(
            profile,
            thinking_token_limit=self.thinking_token_limit,
            answer_token_limit=self.answer_token_limit,
            probe_token_limit=self.probe_token_limit,
        )


_LIMITS = {
    "step_tokens": MAX_TOKENS,
    "n_trajectories": MAX_COUNT,
    "n_probes": MAX_COUNT,
    "thinking_token_limit": MAX_TOKENS,
    "answer_token_limit": MAX_TOKENS,
    "probe_token_limit": MAX_TOKENS,
    "question_seconds": 365 * 24 * 3600,
}


def build_protocol(profile: Profile, *, seed_name: str, **chosen: int | None) -> Protocol:
    """Return a protocol for a model: what is not chosen, or None, is the paper's, and the profile's for limits.

    Raises
    ------
    ProtocolError : a value below 1 or too large; every one is listed.
    """
    values: dict[str, Any] = {
        "step_tokens": STEP_TOKENS,
        "n_trajectories": DEFAULT_COUNT,
        "n_probes": DEFAULT_COUNT,
        "thinking_token_limit": profile.thinking_token_limit,
        "answer_token_limit": profile.answer_token_limit,
        "probe_token_limit": profile.probe_token_limit,
        "question_seconds": DEFAULT_QUESTION_SECONDS,
        "seed_name": seed_name,
    }
    values |= {name: value for name, value in chosen.items() if value is not None}
    return read_protocol(values)


def read_protocol(document: Mapping[str, Any]) -> Protocol:
    """Return the protocol of a document, the inverse of `protocol_document`.

    Raises
    ------
    ProtocolError : missing or unknown keys, or values that cannot be used; every one is listed.
    """
    problems = ProblemCollector()
    for key in document.keys() - {field.name for field in fields(Protocol)}:
        problems.add("unknown_key", f"a protocol has no key {key!r}", column=key)
    for key, largest in _LIMITS.items():
        value = document.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= largest:
            problems.add("bad_value", f"{key} must be a whole number from 1 to {largest}, not {value!r}", column=key)
    name = document.get("seed_name")
    if not isinstance(name, str) or not name:
        problems.add("bad_value", "seed_name must be a name", column="seed_name")
    if problems:
        raise ProtocolError("the protocol has problems", problems=problems.problems())
    return Protocol(**document)


def protocol_document(protocol: Protocol) -> dict[str, Any]:
    """Return a protocol as a plain document."""
    return asdict(protocol)
