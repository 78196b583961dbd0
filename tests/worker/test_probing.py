"""One question measured with a scripted model: prompts, seeds, steps, answers and the tokens that it took."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from app.files.profiles import Profile
from app.files.protocol import Protocol, build_protocol
from app.files.questions import Question
from app.services.probe_records import LostItemError, QuestionRecord, pack_answers, unpack_answers
from tests.scripted_model import ScriptedEngine, make_profile, make_prompts, make_questions, make_tokenizer
from worker.generation import Completion, Request
from worker.grading import Grader, open_grader
from worker.probing import ContextTooShortError, measure_question
from worker.seeds import derive_seed

QUESTION = make_questions().questions[3]  # 3 + 10
TOKENIZER = make_tokenizer()


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with open_grader(processes=1) as opened:
        yield opened


def encode(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text))


def make_protocol(profile: Profile, **chosen: int) -> Protocol:
    values = {"step_tokens": 20, "n_trajectories": 4, "n_probes": 3, **chosen}
    return build_protocol(profile, seed_name="run", **values)


def measure(
    engine: Any, grader: Grader, *, question: Question = QUESTION, profile: Profile | None = None, **options: Any
) -> QuestionRecord:
    chosen = {name: options.pop(name) for name in ("step_tokens", "n_trajectories", "n_probes") if name in options}
    profile = profile or make_profile()
    protocol = make_protocol(profile, **chosen)
    return measure_question(
        engine,
        make_prompts(protocol.limit_profile(profile)),
        grader,
        question=question,
        protocol=protocol,
        instruction="Give the result.",
        **options,
    )


@dataclass
class Recital:
    """Says what is written down: one text a request, and whether a stop token ended it."""

    texts: list[str]
    requests: list[Request] = field(default_factory=list)

    def generate(self, requests: Sequence[Request], *, progress: Any = None) -> list[Completion]:
        self.requests += requests
        return [self._say(request, self.texts.pop(0)) for request in requests]

    def _say(self, request: Request, text: str) -> Completion:
        spoken, ended, _ = text.partition("<|stop|>")
        tokens = encode(spoken)
        if not ended:
            return Completion(tokens[: request.max_tokens], stop_token=None, reason="length")
        return Completion(tokens, stop_token=request.stop_tokens[-1], reason="stop", cached_tokens=5)

    def measure_end_margins(self, prompts: Sequence[tuple[int, ...]], *, end_token: int) -> list[float]:
        return [float(len(prompt)) for prompt in prompts]

    def describe(self) -> dict[str, str]:
        return {"engine": "recital"}

    def close(self) -> None:
        pass


def test_a_question_by_hand(grader: Grader) -> None:
    """Two trajectories, b = 4, M = 2: one of 3 + 3 + 2 tokens, whose 8 tokens make 2 steps, and an empty one."""
    texts = [
        "ab.\n\ncd\n\nef<|stop|>",  # the stop token is the last of the two: the end of thinking
        "<|stop|>",
        r"\boxed{13}<|stop|>",  # the first trajectory's own answer
        "none<|stop|>",
        *[r"\boxed{13}<|stop|>", "twelve<|stop|>"],  # k = 0
        *[r"\boxed{12}<|stop|>", r"\boxed{13}<|stop|>"],  # k = 1
        *[r"\boxed{13}<|stop|>", r"\boxed{13}<|stop|>"],  # k = 2
        *["?<|stop|>", "!<|stop|>"],  # k = 0 of the empty one
    ]
    engine = Recital(texts)
    record = measure(engine, grader, n_trajectories=2, n_probes=2, step_tokens=4)
    first, second = record.trajectories
    # "a", "b", ".\n\n" | "c", "d", "\n\n" | "e", "f": sums of pairs are 6 and 5, so the last two are merged.
    assert first.token_ids == encode("ab.\n\ncd\n\nef")
    assert (first.block_tokens, first.retained_tokens) == ((3, 3, 2), (0, 3, 8))
    assert first.correct_probes == (1, 1, 2)
    assert first.n_unextracted == 1
    assert (first.original_correct, first.hit_limit) == (True, False)
    assert first.original_answer == "\n\n\\boxed{13}"
    assert [len(texts) for texts in first.answers] == [2, 2, 2]
    assert (second.token_ids, second.block_tokens, second.retained_tokens) == ((), (), (0,))
    assert (second.correct_probes, second.n_unextracted, second.original_correct) == ((0,), 2, False)
    assert (second.direct_answer, second.direct_correct) == (None, None)
    question_prompt = engine.requests[0].prompt
    assert first.end_margin == tuple(float(len(question_prompt) + n) for n in (0, 3, 8))


def test_probe_prompts_are_the_model_s_own_tokens(grader: Grader) -> None:
    texts = ["ab.\n\ncd\n\nef<|stop|>", *["x<|stop|>"] * 10]
    engine = Recital(texts)
    measure(engine, grader, n_trajectories=1, n_probes=1, step_tokens=3)
    thought, answered, *probes = engine.requests
    closing = encode("</think>\n\n")
    assert TOKENIZER.decode(thought.prompt) == "Give the result.\n\nWhat is 3 + 10?\n\n<think>"
    assert thought.prompt[-1] == encode("<think>")[0]
    assert answered.prompt == thought.prompt + encode("ab.\n\ncd\n\nef") + closing
    # At a boundary what stands before the line breaks stays: the full stop, or nothing.
    assert [probe.prompt for probe in probes] == [
        thought.prompt + kept + closing
        for kept in ((), encode("ab") + encode("."), encode("ab.\n\ncd"), encode("ab.\n\ncd\n\nef"))
    ]


def test_a_thinking_that_never_ends_is_cut_at_its_limit(grader: Grader) -> None:
    profile = make_profile(thinking_token_limit=10)
    engine = Recital(["abc\n\n" * 5, *[r"\boxed{13}<|stop|>"] * 10])
    record = measure(engine, grader, profile=profile, n_trajectories=1, n_probes=1, step_tokens=5)
    (cut,) = record.trajectories
    assert cut.hit_limit
    assert cut.token_ids == encode("abc\n\nabc\n\nab")
    assert (cut.original_answer, cut.original_correct) == (None, False)
    assert cut.retained_tokens[-1] == 10


def test_a_thinking_as_long_as_its_limit_has_not_hit_it(grader: Grader) -> None:
    profile = make_profile(thinking_token_limit=8)
    engine = Recital(["abc\n\nabc\n\n<|stop|>", *[r"\boxed{13}<|stop|>"] * 10])
    (whole,) = measure(engine, grader, profile=profile, n_trajectories=1, n_probes=1, step_tokens=4).trajectories
    assert (whole.hit_limit, whole.retained_tokens, whole.original_correct) == (False, (0, 4, 8), True)


def test_an_end_of_several_tokens_comes_with_the_answer(grader: Grader) -> None:
    profile = make_profile(thinking_end="Final:", thinking_start="", answer_opening="")
    engine = Recital(["abc\n\nFinal: 13<|stop|>", *["Final<|stop|>"] * 4])
    record = measure(engine, grader, profile=profile, n_trajectories=1, n_probes=1, step_tokens=4)
    (found,) = record.trajectories
    assert (found.token_ids, found.original_answer) == (encode("abc\n\n"), " 13")
    # One request for the thinking with its answer, and one for each of two positions.
    assert len(engine.requests) == 3


def test_direct_answers_are_asked_for_where_the_questions_say_how(grader: Grader) -> None:
    engine = ScriptedEngine()
    record = measure(engine, grader, direct_instruction="Answer at once.")
    asked = engine.calls[-1]
    assert {TOKENIZER.decode(request.prompt) for request in asked} == {
        "Answer at once.\n\nWhat is 3 + 10?\n\n<think></think>\n\n"
    }
    for trajectory in record.trajectories:
        assert trajectory.direct_answer is not None
        assert trajectory.direct_correct == (r"\boxed{13}" in trajectory.direct_answer)


def test_all_probes_of_a_question_are_one_call(grader: Grader) -> None:
    engine = ScriptedEngine()
    record = measure(engine, grader)
    n_positions = sum(len(trajectory.retained_tokens) for trajectory in record.trajectories)
    assert [len(call) for call in engine.calls[-1:]] == [3 * n_positions]
    assert len(engine.margin_prompts) == n_positions
    assert len(engine.calls) == 3


def test_every_request_has_a_seed_of_its_own(grader: Grader) -> None:
    engine = ScriptedEngine()
    measure(engine, grader, direct_instruction="Answer at once.")
    seeds = [request.seed for call in engine.calls for request in call]
    assert len(set(seeds)) == len(seeds)
    assert not {seed + 1 for seed in seeds} & set(seeds)
    named = {"snapshot": "run", "model": "scripted", "benchmark": "sums", "question": "q3"}
    assert engine.calls[0][2].seed == derive_seed(**named, trajectory=2, phase="thinking")
    assert engine.calls[2][1].seed == derive_seed(**named, trajectory=0, phase="probe", position=0, probe=1)


def test_the_same_question_gives_the_same_record(grader: Grader) -> None:
    first, second = (measure(ScriptedEngine(), grader) for _ in range(2))
    assert replace(first, accounting=second.accounting) == second
    assert len({trajectory.retained_tokens for trajectory in first.trajectories}) > 1


def test_tokens_are_counted_to_the_last_one(grader: Grader) -> None:
    engine = ScriptedEngine()
    taken = measure(engine, grader).accounting
    repeated = ScriptedEngine()
    pairs = [pair for call in engine.calls for pair in zip(call, repeated.generate(call), strict=True)]
    assert taken.prompt_tokens == sum(len(request.prompt) for request, _ in pairs)
    assert taken.cached_tokens == sum(completion.cached_tokens or 0 for _, completion in pairs)
    # A stop token is generated too, though it is not part of the text.
    assert taken.generated_tokens == sum(len(done.tokens) + (done.reason == "stop") for _, done in pairs)
    assert taken.cached_tokens > taken.prompt_tokens / 2


def test_what_the_cache_served_is_unknown_where_the_engine_does_not_say(grader: Grader) -> None:
    assert measure(ScriptedEngine(tells_cached=False), grader).accounting.cached_tokens is None


def test_grades_are_those_of_the_texts(grader: Grader) -> None:
    record = measure(ScriptedEngine(), grader, n_trajectories=6, n_probes=8)
    for trajectory in record.trajectories:
        assert trajectory.correct_probes == tuple(
            sum(r"\boxed{13}" in text for text in texts) for texts in trajectory.answers
        )
        assert trajectory.n_unextracted == sum("boxed" not in text for texts in trajectory.answers for text in texts)
    assert {trajectory.original_correct for trajectory in record.trajectories} == {True, False}


def test_what_the_database_cannot_hold_is_replaced(grader: Grader) -> None:
    engine = Recital(["<|stop|>", "a\x00b<|stop|>", "a\x00b<|stop|>"])
    (found,) = measure(engine, grader, n_trajectories=1, n_probes=1).trajectories
    assert found.original_answer == "\n\na\ufffdb"
    assert found.answers == ((found.original_answer,),)


def test_who_measured_is_kept_with_the_record(grader: Grader) -> None:
    worker = measure(ScriptedEngine(), grader, worker={"otboard": "1.2"}).worker
    assert (worker["otboard"], worker["engine"], worker["grader"]) == ("1.2", "scripted", "1")


def test_what_progress_raises_ends_the_measurement(grader: Grader) -> None:
    told: list[tuple[str, int, int]] = []

    def watch(what: str, n_done: int, n_all: int) -> None:
        told.append((what, n_done, n_all))
        if what == "probes":
            raise LostItemError("taken away")

    engine = ScriptedEngine()
    with pytest.raises(LostItemError):
        measure(engine, grader, progress=watch)
    assert told[:4] == [("thinking", n, 4) for n in (1, 2, 3, 4)]
    assert told[-1][:2] == ("probes", 1)


def test_a_context_that_is_too_short_is_refused_before_anything_is_generated(grader: Grader) -> None:
    """It would cut thinkings off in silence, and refuse the probes of the longest ones after hours."""
    needed = len(encode("Give the result.\n\nWhat is 3 + 10?\n\n<think>")) + 2 + 200 + len(encode("</think>\n\n")) + 24
    for held in (needed, needed - 1):
        engine = ScriptedEngine()
        profile = make_profile(engine={"max_model_len": held})
        if held == needed:
            measure(engine, grader, profile=profile)
            continue
        with pytest.raises(ContextTooShortError, match=str(held)):
            measure(engine, grader, profile=profile)
        assert engine.calls == []


def test_answers_are_packed_and_unpacked() -> None:
    answers = (("a", "ß\n大"), ("", "b" * 10_000))
    packed = pack_answers(answers)
    assert unpack_answers(packed) == [list(texts) for texts in answers]
    assert packed == pack_answers(answers)
    assert len(packed) < 200
