"""What a probe run is going to take, from lengths and throughput, before it is begun."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from app.files.protocol import Protocol


@dataclass(frozen=True)
class Estimate:
    """What a run takes in all.

    Attributes
    ----------
    basis : "limits", every text is as long as it may be, so that this is an upper bound; "lengths", mean lengths that
        were given; "finished questions", the mean of those that the run has measured.
    n_questions, n_trajectories, n_positions, n_probes : counts over the whole run.
    thinking_tokens, answer_tokens, probe_tokens : generated tokens.
    seconds : of one worker's time; None without a throughput.
    n_workers, elapsed_seconds : the workers that share it, and the time until it is done; None without a throughput.
    """

    basis: str
    n_questions: int
    n_trajectories: int
    n_positions: int
    n_probes: int
    thinking_tokens: int
    answer_tokens: int
    probe_tokens: int
    seconds: float | None
    n_workers: int
    elapsed_seconds: float | None

    @property
    def generated_tokens(self) -> int:
        """All generated tokens."""
        return self.thinking_tokens + self.answer_tokens + self.probe_tokens


def estimate_run(
    protocol: Protocol,
    *,
    n_questions: int,
    thinking_tokens: float | None = None,
    answer_tokens: float | None = None,
    tokens_per_second: float | None = None,
    n_workers: int = 1,
) -> Estimate:
    """Return what a run takes.

    Parameters
    ----------
    thinking_tokens, answer_tokens : mean lengths of a thinking, and of an answer, forced or not; None is the limit.
    tokens_per_second : generated tokens of one worker a second, with prompts mostly served from the prefix cache.

    Notes
    -----
    A trajectory of L tokens has max(1, floor(L / b + 1/2)) steps and one position more, if it has enough blocks.

    Examples
    --------
    >>> protocol = Protocol(256, 2, 4, 1000, 100, 50, "s")
    >>> found = estimate_run(protocol, n_questions=10, tokens_per_second=1000.0)
    >>> found.n_positions, found.n_probes, found.generated_tokens, found.seconds
    (100, 400, 42000, 42.0)
    """
    is_bound = thinking_tokens is None and answer_tokens is None
    length = protocol.thinking_token_limit if thinking_tokens is None else thinking_tokens
    n_trajectories = n_questions * protocol.n_trajectories
    positions_each = 1 + max(1, int(length / protocol.step_tokens + 0.5))
    n_probes = n_trajectories * positions_each * protocol.n_probes
    answer_length = protocol.answer_token_limit if answer_tokens is None else answer_tokens
    probe_length = protocol.probe_token_limit if answer_tokens is None else answer_tokens
    spent = [round(n_trajectories * length), round(n_trajectories * answer_length), round(n_probes * probe_length)]
    seconds = None if tokens_per_second is None else sum(spent) / tokens_per_second
    return Estimate(
        basis="limits" if is_bound else "lengths",
        n_questions=n_questions,
        n_trajectories=n_trajectories,
        n_positions=n_trajectories * positions_each,
        n_probes=n_probes,
        thinking_tokens=spent[0],
        answer_tokens=spent[1],
        probe_tokens=spent[2],
        seconds=seconds,
        n_workers=n_workers,
        elapsed_seconds=None if seconds is None else seconds / n_workers,
    )


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """Return an estimate as a plain document."""
    return {**asdict(estimate), "generated_tokens": estimate.generated_tokens}
