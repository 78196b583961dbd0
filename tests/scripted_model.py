"""A model in place of vLLM that is plain arithmetic: the same request gives the same tokens in any process.

Its tokenizer is a real one: bytes, two tokens that end blocks, and the tokens that open and end thinking. Run as a
program it is a measuring worker with this model.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import random
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend

from app.config import load_config
from app.files.profiles import Profile, build_profile
from app.files.questions import Question, QuestionSet, build_question_set
from app.log import configure_logging
from worker.generation import Completion, EngineError, Request
from worker.grading import Grader, open_grader
from worker.measuring import Equipment, run_probe_worker
from worker.prompts import PromptBuilder, build_prompts
from worker.tokenizers import Tokenizer

SPLITS = ("train", "validation", "test")
SUM = re.compile(r"(\d+) \+ (\d+)")


@functools.cache
def make_tokenizer() -> Tokenizer:
    """A byte-level tokenizer; "\\n\\n" and ".\\n\\n" are tokens of their own."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={letter: idx for idx, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<|end|>", "<think>", "</think>"])
    backend.add_tokens([AddedToken("\n\n", normalized=False), AddedToken(".\n\n", normalized=False)])
    return Tokenizer(backend, config={"eos_token": "<|end|>"}, chat_template=None, name="scripted")


def make_profile(name: str = "scripted", **changes: Any) -> Profile:
    """The profile of the scripted model."""
    document = {
        "format": "otboard-profile/1",
        "name": name,
        "repository": f"models/{name}",
        "uses_chat_template": False,
        "thinking_start": "<think>",
        "thinking_start_place": "prompt",
        "thinking_end": "</think>",
        "answer_opening": "\n\n",
        "sampling": {"temperature": 0.6, "top_p": 0.95},
        "thinking_token_limit": 200,
        "answer_token_limit": 24,
        "probe_token_limit": 16,
    }
    return build_profile({**document, **changes})


def make_prompts(profile: Profile) -> PromptBuilder:
    """The prompt builder of a profile of the scripted model."""
    return build_prompts(profile, make_tokenizer())


def make_questions(
    benchmark: str = "sums", *, n_questions: int = 6, direct_instruction: str | None = None
) -> QuestionSet:
    """Sums with their results, spread over the splits."""
    header = {
        "format": "otboard-questions/1",
        "benchmark": benchmark,
        "title": f"The {benchmark}",
        "license": "CC0-1.0",
        "source": "written for a test",
        "kind": "mathematics",
        "instruction": "Give the result.",
    }
    if direct_instruction is not None:
        header["direct_instruction"] = direct_instruction
    questions = [
        Question(
            benchmark=benchmark,
            question_id=f"q{number}",
            split=SPLITS[number % 3],
            prompt=f"What is {number} + {number + 7}?",
            reference_answer=str(2 * number + 7),
            kind="mathematics",
        )
        for number in range(n_questions)
    ]
    return build_question_set(header, questions)


@dataclass
class ScriptedEngine:
    """Thinks in paragraphs of random letters, and is right more often the more it has thought.

    `calls` are the requests of each call, `margin_prompts` those of all end margins. `faults` are raised instead of
    answering a call, one each until none is left. The call numbered `hangs_at`, from 1, never answers.
    """

    tells_cached: bool = True
    calls: list[list[Request]] = field(default_factory=list)
    margin_prompts: list[tuple[int, ...]] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)
    hangs_at: int | None = None
    is_closed: bool = False

    def generate(
        self, requests: Sequence[Request], *, progress: Callable[[int], None] | None = None
    ) -> list[Completion]:
        """Return one completion a request."""
        self.calls.append(list(requests))
        if len(self.calls) == self.hangs_at:
            threading.Event().wait()
        if self.faults:
            raise self.faults.pop(0)
        completions = []
        for idx, request in enumerate(requests):
            before = requests[idx - 1].prompt if idx else ()
            completions.append(self._complete(request, count_shared(before, request.prompt)))
            if progress is not None:
                progress(idx + 1)
        return completions

    def measure_end_margins(self, prompts: Sequence[tuple[int, ...]], *, end_token: int) -> list[float]:
        """Return margins that depend on the prompt alone."""
        self.margin_prompts += prompts
        return [random.Random(digest(prompt, end_token)).uniform(-4, 4) for prompt in prompts]

    def describe(self) -> dict[str, str]:
        """Return the version."""
        return {"engine": "scripted", "scripted": "1"}

    def close(self) -> None:
        """Note that it was closed."""
        self.is_closed = True

    def _complete(self, request: Request, n_shared: int) -> Completion:
        tokenizer = make_tokenizer()
        rng = random.Random(digest(request.prompt, request.seed))
        end = tokenizer.encode("</think>")[0]
        stop = end if end not in request.prompt else tokenizer.eos_tokens[0]
        text = think(rng) if stop == end else answer(rng, tokenizer.decode(request.prompt))
        tokens = tuple(tokenizer.encode(text))
        is_cut = len(tokens) >= request.max_tokens or stop not in request.stop_tokens
        return Completion(
            tokens=tokens[: request.max_tokens] if is_cut else tokens,
            stop_token=None if is_cut else stop,
            reason="length" if is_cut else "stop",
            cached_tokens=n_shared if self.tells_cached else None,
        )


def think(rng: random.Random) -> str:
    """Some paragraphs, maybe none, now and then more than any limit allows."""
    n_paragraphs = rng.choice((0, 1, 2, 3, 4, 5, 30))
    return "".join(
        "".join(rng.choice("abcdef ") for _ in range(rng.randint(3, 30))) + rng.choice(("\n\n", ".\n\n"))
        for _ in range(n_paragraphs)
    )


def answer(rng: random.Random, prompt: str) -> str:
    """The sum in a box, something else in a box, or nothing that can be read."""
    found = SUM.search(prompt)
    assert found is not None
    right = int(found[1]) + int(found[2])
    n_thought = len(prompt.partition("<think>")[2])
    drawn = rng.random()
    if drawn < 0.1:
        return "no idea"
    return rf"\boxed{{{right}}}" if drawn < 0.3 + n_thought / 300 else rf"\boxed{{{right + 1}}}"


def digest(prompt: Sequence[int], seed: int) -> str:
    """What a random stream is seeded with."""
    return hashlib.sha256(repr((tuple(prompt), seed)).encode()).hexdigest()


def count_shared(first: Sequence[int], second: Sequence[int]) -> int:
    """How many tokens two prompts have in common at their beginning."""
    n_shared = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        n_shared += 1
    return n_shared


def make_equipment(open_engine: Callable[[Profile], ScriptedEngine] | None = None) -> Equipment:
    """What a worker measures with: this model, its tokenizer, and the real grader."""
    return Equipment(
        open_engine=open_engine or (lambda _: ScriptedEngine()),
        open_prompts=make_prompts,
        open_grader=open_one_grader,
        versions={"otboard": "tests"},
    )


def open_one_grader() -> Grader:
    """The real grader with one process."""
    return open_grader(processes=1)


def main() -> None:
    """Be a measuring worker."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--until-idle", action="store_true")
    parser.add_argument("--hangs-at", type=int)
    chosen = parser.parse_args()
    config = load_config()
    configure_logging(config.log_level)
    equipment = make_equipment(lambda _: ScriptedEngine(hangs_at=chosen.hangs_at))
    run_probe_worker(config, equipment=equipment, until_idle=chosen.until_idle)


def broken_engine() -> EngineError:
    """What an engine raises that ran out of memory."""
    return EngineError("the engine ran out of memory")


if __name__ == "__main__":
    main()
