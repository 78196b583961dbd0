"""What a worker hands in when it has measured a question, and how its answers are kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import zstandard

from app.errors import StateError

COMPRESSION_LEVEL = 9
MAX_ANSWER_BYTES = 2**31


class LostItemError(StateError):
    """A question is no longer in the hands of this worker: it was given to another, or its run was cancelled."""

    code = "question_lost"
    title = "The question is no longer this worker's"


@dataclass(frozen=True)
class TrajectoryRecord:
    """One measured trajectory.

    Attributes
    ----------
    trajectory : its number, from 0.
    token_ids : the thinking tokens, L(n) of them.
    block_tokens : tokens of each block before merging.
    retained_tokens : L(k), k = 0 … n.
    correct_probes : C(k).
    end_margin : log p of the likeliest token that does not end thinking minus log p of the one that does, at each k;
        None where the engine cannot say.
    original_answer, original_correct : the answer that followed the thinking by itself; None, and wrong, where the
        thinking did not come to an end.
    direct_answer, direct_correct : the answer to the prompt without thinking; None where the question set has none.
    hit_limit : the thinking was cut off by its limit.
    n_unextracted : how many of the (n + 1) · M probe answers had nothing that could be graded.
    answers : per position the texts of its M probe answers.
    """

    trajectory: int
    token_ids: tuple[int, ...]
    block_tokens: tuple[int, ...]
    retained_tokens: tuple[int, ...]
    correct_probes: tuple[int, ...]
    end_margin: tuple[float, ...] | None
    original_answer: str | None
    original_correct: bool
    direct_answer: str | None
    direct_correct: bool | None
    hit_limit: bool
    n_unextracted: int
    answers: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Accounting:
    """What measuring a question took.

    Attributes
    ----------
    seconds : of wall time.
    prompt_tokens : of all requests that generate, counted once a request.
    cached_tokens : how many of them the prefix cache served; None where the engine does not say.
    generated_tokens : of all requests, with the token that ended each.
    """

    seconds: float
    prompt_tokens: int
    cached_tokens: int | None
    generated_tokens: int


@dataclass(frozen=True)
class QuestionRecord:
    """All trajectories of a question, in order, with what they took and who measured them."""

    trajectories: tuple[TrajectoryRecord, ...]
    accounting: Accounting
    worker: dict[str, str]
    grader_version: str


def pack_answers(answers: Sequence[Sequence[str]]) -> bytes:
    """Return the answers of a trajectory, by position, as compressed JSON; the same answers give the same bytes."""
    text = json.dumps([list(texts) for texts in answers], ensure_ascii=False, separators=(",", ":"))
    return zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compress(text.encode("utf-8", "surrogatepass"))


def unpack_answers(packed: bytes) -> list[list[str]]:
    """Return the answers that `pack_answers` packed: per position the texts of its probes."""
    text = zstandard.ZstdDecompressor().decompress(packed, max_output_size=MAX_ANSWER_BYTES)
    answers: list[list[str]] = json.loads(text.decode("utf-8", "surrogatepass"))
    return answers
