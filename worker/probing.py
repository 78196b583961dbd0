"""Measuring one question: trajectories of thinking, their steps, answer probes after every step, and grading.

Everything is token ids until answers are decoded for grading. Each request has a seed of its own, derived from what it
is for, so that a question gives the same records whenever and wherever it is measured, as far as the engine does.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol as Interface

import numpy as np

from app.errors import ContentError
from app.evaluator.segmentation import merge_blocks, split_blocks
from app.files.profiles import Profile
from app.files.protocol import Protocol
from app.files.questions import Question
from app.services.probe_records import Accounting, QuestionRecord, TrajectoryRecord
from worker.generation import Completion, Engine, Request, Sampling
from worker.grading.verdicts import GRADER_VERSION, Verdict
from worker.prompts import PromptBuilder, Tokens
from worker.seeds import Phase, derive_seed

# What PostgreSQL cannot hold, and what a broken token may decode to.
_UNSTORABLE = {0: "\ufffd", **dict.fromkeys(range(0xD800, 0xE000), "\ufffd")}
Progress = Callable[[str, int, int], None]


class ContextTooShortError(ContentError):
    """The engine's context does not hold the question, its thinking and an answer at their limits."""

    code = "context_too_short"
    title = "The engine's context is too short"


class AnswerGrader(Interface):
    """What judges answers: a grader of `worker.grading`."""

    def grade(self, question: Question, answers: Sequence[str]) -> list[Verdict]:
        """Return one verdict an answer."""

    def require_sandbox(self) -> object:
        """Raise unless programs can be graded here."""

    def describe(self) -> dict[str, str]:
        """Return the versions and choices that verdicts depend on."""


@dataclass
class Meter:
    """Counts the tokens of the requests, and the time."""

    started: float = field(default_factory=time.monotonic)
    prompt_tokens: int = 0
    cached_tokens: int | None = 0
    generated_tokens: int = 0

    def count(self, requests: Iterable[Request], completions: Iterable[Completion]) -> None:
        """Count what a call of the engine took; one that does not say what its cache served leaves that unknown."""
        for request, completion in zip(requests, completions, strict=True):
            self.prompt_tokens += len(request.prompt)
            self.generated_tokens += len(completion.tokens) + (completion.stop_token is not None)
            if self.cached_tokens is not None:
                served = completion.cached_tokens
                self.cached_tokens = None if served is None else self.cached_tokens + served

    def read(self) -> Accounting:
        """Return what has been counted."""
        return Accounting(
            seconds=time.monotonic() - self.started,
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            generated_tokens=self.generated_tokens,
        )


@dataclass(frozen=True)
class Steps:
    """How the thinking of a trajectory is cut: blocks before merging, and L(k)."""

    block_tokens: tuple[int, ...]
    retained_tokens: tuple[int, ...]


@dataclass(frozen=True)
class _Thinking:
    """A trajectory as it was generated; `answer` is None where its thinking did not come to an end."""

    tokens: Tokens
    answer: Tokens | None
    hit_limit: bool
    steps: Steps


@dataclass(frozen=True, eq=False)
class Measuring:
    """What one question is measured with, and what has been counted so far."""

    engine: Engine
    builder: PromptBuilder
    question: Question
    protocol: Protocol
    prompt: Tokens
    progress: Progress
    meter: Meter = field(default_factory=Meter)

    def ask(self, what: str, requests: Sequence[Request]) -> list[Completion]:
        """Return the completions of the requests, counted."""
        if not requests:
            return []
        completions = self.engine.generate(requests, progress=lambda done: self.progress(what, done, len(requests)))
        self.meter.count(requests, completions)
        return completions

    def seed(self, phase: Phase, trajectory: int, *, position: int = 0, probe: int = 0) -> int:
        """Return the seed of one request of this question."""
        return derive_seed(
            snapshot=self.protocol.seed_name,
            model=self.builder.profile.name,
            benchmark=self.question.benchmark,
            question=self.question.question_id,
            trajectory=trajectory,
            phase=phase,
            position=position,
            probe=probe,
        )


def measure_question(
    engine: Engine,
    builder: PromptBuilder,
    grader: AnswerGrader,
    *,
    question: Question,
    protocol: Protocol,
    instruction: str,
    direct_instruction: str | None = None,
    progress: Progress | None = None,
    worker: dict[str, str] | None = None,
) -> QuestionRecord:
    """Return the trajectories of a question, probed at every position and graded, with what they took.

    Parameters
    ----------
    builder : of the run's profile, with the limits of its protocol.
    instruction, direct_instruction : of the question set; without the second there is no prompt without thinking.
    progress : told what is being done, and how many requests of how many are finished; what it raises ends the
        measurement.
    worker : versions of the code that measures; kept with the record beside those of the engine and the grader.

    Raises
    ------
    ContextTooShortError : a thinking of full length would be cut off in silence, and its probes refused.
    SandboxMissingError : the question asks for a program, and there is no sandbox to run it in.

    Notes
    -----
    Section 3.1, appendix A.2. All probes of a question are one call of the engine, which orders them by the prefix
    that they share. An empty trajectory has one position, at which it is probed like any other.
    """
    if question.kind == "code":
        # Before hours of generation, not after them.
        grader.require_sandbox()
    measuring = Measuring(
        engine=engine,
        builder=builder,
        question=question,
        protocol=protocol,
        prompt=builder.question_prompt(question, instruction),
        progress=progress or _ignore,
    )
    _check_context(measuring)
    thinkings = _think(measuring)
    probes = _probe(measuring, thinkings)
    margins = _measure_margins(measuring, thinkings)
    direct = _answer_directly(measuring, direct_instruction)
    records = _grade(measuring, grader, thinkings, margins=margins, probes=probes, direct=direct)
    return QuestionRecord(
        trajectories=records,
        accounting=measuring.meter.read(),
        worker={**(worker or {}), **engine.describe(), **grader.describe()},
        grader_version=GRADER_VERSION,
    )


def cut_steps(builder: PromptBuilder, thinking: Sequence[int], *, step_tokens: int) -> Steps:
    """Return the blocks and positions of a trajectory, from its token ids alone."""
    blocks = split_blocks(builder.boundaries.mark(thinking))
    steps = merge_blocks(blocks, step_tokens=step_tokens)
    return Steps(block_tokens=tuple(blocks.tolist()), retained_tokens=(0, *np.cumsum(steps, dtype=np.int64).tolist()))


def read_sampling(document: dict[str, float]) -> Sampling:
    """Return the sampling parameters of a profile."""
    return Sampling(**{**document, "top_k": int(document.get("top_k", 0))})  # type: ignore[arg-type]


def _check_context(measuring: Measuring) -> None:
    builder, protocol = measuring.builder, measuring.protocol
    held = builder.profile.engine["max_model_len"]
    thought = len(measuring.prompt) + _count_output_tokens(builder)
    answered = len(builder.closing_tokens) + max(protocol.answer_token_limit, protocol.probe_token_limit)
    if held is not None and thought + answered > held:
        raise ContextTooShortError(
            f"the question and its limits take {thought + answered} tokens; the profile's max_model_len is {held}"
        )


def _think(measuring: Measuring) -> list[_Thinking]:
    """Generate R trajectories, and the answer that follows each by itself."""
    builder, protocol = measuring.builder, measuring.protocol
    sampling = read_sampling(builder.profile.sampling)
    requests = [
        Request(
            prompt=measuring.prompt,
            max_tokens=_count_output_tokens(builder),
            seed=measuring.seed("thinking", trajectory),
            sampling=sampling,
            stop_tokens=builder.thinking_stop_tokens,
        )
        for trajectory in range(protocol.n_trajectories)
    ]
    thinkings = []
    for completion in measuring.ask("thinking", requests):
        found = builder.split_output(completion)
        answer = None if found.answer is None else found.answer[: protocol.answer_token_limit]
        steps = cut_steps(builder, found.thinking, step_tokens=protocol.step_tokens)
        thinkings.append(_Thinking(found.thinking, answer, found.hit_limit, steps))
    return _finish_answers(measuring, thinkings)


def _finish_answers(measuring: Measuring, thinkings: Sequence[_Thinking]) -> list[_Thinking]:
    """Generate the answers of trajectories whose generation stopped at the end of thinking."""
    builder = measuring.builder
    sampling = read_sampling(builder.profile.sampling)
    open_ended = [trajectory for trajectory, thinking in enumerate(thinkings) if thinking.answer == ()]
    requests = [
        Request(
            prompt=builder.answer_prompt(measuring.prompt, thinkings[trajectory].tokens),
            max_tokens=measuring.protocol.answer_token_limit,
            seed=measuring.seed("answer", trajectory),
            sampling=sampling,
            stop_tokens=builder.answer_stop_tokens,
        )
        for trajectory in open_ended
    ]
    finished = list(thinkings)
    for trajectory, completion in zip(open_ended, measuring.ask("answers", requests), strict=True):
        begun = finished[trajectory]
        finished[trajectory] = _Thinking(begun.tokens, completion.tokens, begun.hit_limit, begun.steps)
    return finished


def _measure_margins(measuring: Measuring, thinkings: Sequence[_Thinking]) -> list[tuple[float, ...]]:
    """Return the end margins of each trajectory, one a position."""
    builder = measuring.builder
    prompts = [
        builder.margin_prompt(measuring.prompt, thinking.tokens, retained)
        for thinking in thinkings
        for retained in thinking.steps.retained_tokens
    ]
    margins = iter(measuring.engine.measure_end_margins(prompts, end_token=builder.end_token))
    measuring.progress("end margins", len(prompts), len(prompts))
    return [tuple(next(margins) for _ in thinking.steps.retained_tokens) for thinking in thinkings]


def _probe(measuring: Measuring, thinkings: Sequence[_Thinking]) -> list[list[list[str]]]:
    """Return the texts of M forced answers at every position of every trajectory."""
    builder, protocol = measuring.builder, measuring.protocol
    sampling = read_sampling(builder.profile.probe_sampling)
    requests = []
    for trajectory, thinking in enumerate(thinkings):
        for position, retained in enumerate(thinking.steps.retained_tokens):
            prompt = builder.probe_prompt(measuring.prompt, thinking.tokens, retained)
            requests += [
                Request(
                    prompt=prompt,
                    max_tokens=protocol.probe_token_limit,
                    seed=measuring.seed("probe", trajectory, position=position, probe=probe),
                    sampling=sampling,
                    stop_tokens=builder.answer_stop_tokens,
                )
                for probe in range(protocol.n_probes)
            ]
    texts = iter([_read_text(builder, completion.tokens) for completion in measuring.ask("probes", requests)])
    return [
        [[next(texts) for _ in range(protocol.n_probes)] for _ in thinking.steps.retained_tokens]
        for thinking in thinkings
    ]


def _answer_directly(measuring: Measuring, instruction: str | None) -> list[str | None]:
    """Return the answers to the prompt without thinking, one a trajectory; None where the questions have no such."""
    builder, protocol = measuring.builder, measuring.protocol
    if instruction is None:
        return [None] * protocol.n_trajectories
    prompt = builder.direct_prompt(measuring.question, instruction)
    requests = [
        Request(
            prompt=prompt,
            max_tokens=protocol.answer_token_limit,
            seed=measuring.seed("direct", trajectory),
            sampling=read_sampling(builder.profile.sampling),
            stop_tokens=builder.answer_stop_tokens,
        )
        for trajectory in range(protocol.n_trajectories)
    ]
    return [_read_text(builder, completion.tokens) for completion in measuring.ask("direct answers", requests)]


def _grade(
    measuring: Measuring,
    grader: AnswerGrader,
    thinkings: Sequence[_Thinking],
    *,
    margins: Sequence[tuple[float, ...]],
    probes: Sequence[Sequence[Sequence[str]]],
    direct: Sequence[str | None],
) -> tuple[TrajectoryRecord, ...]:
    """Grade the trajectories' own answers and the forced ones by the same code, equal texts once."""
    builder = measuring.builder
    original = [None if t.answer is None else _read_text(builder, t.answer) for t in thinkings]
    forced = [text for positions in probes for texts in positions for text in texts]
    distinct = list(dict.fromkeys(text for text in [*original, *direct, *forced] if text is not None))
    measuring.progress("grading", 0, len(distinct))
    verdicts = dict(zip(distinct, grader.grade(measuring.question, distinct), strict=True))
    measuring.progress("grading", len(distinct), len(distinct))
    records = []
    for trajectory, thinking in enumerate(thinkings):
        answers = tuple(tuple(texts) for texts in probes[trajectory])
        own, unthought = original[trajectory], direct[trajectory]
        records.append(
            TrajectoryRecord(
                trajectory=trajectory,
                token_ids=thinking.tokens,
                block_tokens=thinking.steps.block_tokens,
                retained_tokens=thinking.steps.retained_tokens,
                correct_probes=tuple(sum(verdicts[text].correct for text in texts) for texts in answers),
                end_margin=margins[trajectory],
                original_answer=own,
                original_correct=own is not None and verdicts[own].correct,
                direct_answer=unthought,
                direct_correct=None if unthought is None else verdicts[unthought].correct,
                hit_limit=thinking.hit_limit,
                n_unextracted=sum(verdicts[text].extracted is None for texts in answers for text in texts),
                answers=answers,
            )
        )
    return tuple(records)


def _count_output_tokens(builder: PromptBuilder) -> int:
    """Return how much a trajectory may generate: its start, its thinking, and one token that shows that it went on.

    Where thinking ends with a text of several tokens, which cannot stop the generation, the answer comes with it.
    """
    profile: Profile = builder.profile
    n_tokens = profile.thinking_token_limit + len(builder.start_tokens) + 1
    if len(builder.end_tokens) > 1:
        n_tokens += len(builder.end_tokens) + len(builder.opening_tokens) + profile.answer_token_limit
    return n_tokens


def _read_text(builder: PromptBuilder, answer: Sequence[int]) -> str:
    return builder.answer_text(answer).translate(_UNSTORABLE)


def _ignore(_: str, __: int, ___: int) -> None:
    """Tell nobody."""
