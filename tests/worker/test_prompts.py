"""Prompts of token ids and the taking apart of outputs, with the marks of three kinds of models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from app.files.profiles import build_profile
from app.files.questions import Question
from worker.generation import Completion
from worker.prompts import MALFORMED_START, NO_END, NO_START, Generated, PromptBuilder, build_prompts
from worker.tokenizers import TokenizerError, load_tokenizer

WriteTokenizer = Callable[..., Path]
MakeBuilder = Callable[..., PromptBuilder]
QUESTION = Question("sums", "q1", "test", "What is two and three?", "5", "mathematics")
THINKING = {"thinking_start": "<think>\n", "thinking_end": "</think>", "answer_opening": "\n\n"}
CHANNELS = {
    "instruction_place": "system",
    "template_options": {"reasoning_effort": "medium"},
    "template_date": "2025-06-28",
    "thinking_start": "<|channel|>analysis<|message|>",
    "thinking_start_place": "output",
    "thinking_end": "<|end|>",
    "answer_opening": "<|start|>assistant<|channel|>final<|message|>",
}
TEXT = {"thinking_end": "\n\nFinal answer", "answer_opening": ":", "extra_instruction": "Write paragraphs."}


@pytest.fixture
def make_builder(write_tokenizer: WriteTokenizer) -> MakeBuilder:
    """Build the prompts of a model with a chat template and the given keys of a profile."""

    def make(template: str, **keys: Any) -> PromptBuilder:
        tokenizer = load_tokenizer(write_tokenizer(template))
        required = {"format": "otboard-profile/1", "name": "m", "repository": "m", "thinking_token_limit": 1000}
        return build_prompts(build_profile({**required, **keys}), tokenizer)

    return make


@pytest.fixture
def thinking(make_builder: MakeBuilder) -> PromptBuilder:
    """A model whose template opens the thinking."""
    return make_builder("thinking", **THINKING)


@pytest.fixture
def channels(make_builder: MakeBuilder) -> PromptBuilder:
    """A model that thinks in one channel and answers in another."""
    return make_builder("channel", **CHANNELS)


@pytest.fixture
def text(make_builder: MakeBuilder) -> PromptBuilder:
    """A model without thinking tokens, whose thinking ends with a text."""
    return make_builder("chat", **TEXT)


def encode(builder: PromptBuilder, written: str) -> tuple[int, ...]:
    return tuple(builder.tokenizer.encode(written))


def decode(builder: PromptBuilder, tokens: tuple[int, ...] | None) -> str | None:
    return None if tokens is None else builder.tokenizer.decode(tokens)


def split(builder: PromptBuilder, written: str, *, stop: str | None = "<eos>") -> Generated:
    """Take an output apart that ended with a mark, or, without one, with the limit."""
    token = None if stop is None else encode(builder, stop)[0]
    completion = Completion(encode(builder, written), token, "length" if stop is None else "stop")
    return builder.split_output(completion)


def test_the_instruction_stands_before_the_question_or_is_the_system_message(
    thinking: PromptBuilder, channels: PromptBuilder
) -> None:
    assert decode(thinking, thinking.question_prompt(QUESTION, "Add.")) == (
        "<|im_start|>user\nAdd.\n\nWhat is two and three?<|im_end|>\n<|im_start|>assistant\n<think>\n"
    )
    # The start that the model writes is left to it.
    assert decode(channels, channels.question_prompt(QUESTION, "Add.")) == (
        "<|start|>system<|message|>2025-06-28 medium<|end|><|start|>system<|message|>Add.<|end|>"
        "<|start|>user<|message|>What is two and three?<|end|><|start|>assistant"
    )


def test_no_instruction_leaves_no_trace(channels: PromptBuilder, thinking: PromptBuilder) -> None:
    assert "system<|message|><|end|>" not in str(decode(channels, channels.question_prompt(QUESTION, "")))
    assert "user\nWhat is" in str(decode(thinking, thinking.question_prompt(QUESTION, "")))


def test_the_start_of_thinking_is_in_the_prompt_once(make_builder: MakeBuilder, thinking: PromptBuilder) -> None:
    without = make_builder("chat", **THINKING)
    assert without.question_prompt(QUESTION, "Add.") == thinking.question_prompt(QUESTION, "Add.")
    start = encode(thinking, "<think>")[0]
    assert thinking.question_prompt(QUESTION, "Add.").count(start) == 1


def test_other_blanks_after_the_start_do_not_double_it(write_tokenizer: WriteTokenizer) -> None:
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ '<think>\n\n' }}"
    tokenizer = load_tokenizer(write_tokenizer("chat", chat_template=template))
    required = {"format": "otboard-profile/1", "name": "m", "repository": "m", "thinking_token_limit": 10}
    builder = build_prompts(build_profile({**required, **THINKING}), tokenizer)
    assert str(decode(builder, builder.question_prompt(QUESTION, ""))).endswith("three?<think>\n\n")


def test_a_template_with_a_first_token_brings_it_once(make_builder: MakeBuilder) -> None:
    builder = make_builder("bos", **THINKING)
    prompt = builder.question_prompt(QUESTION, "Add.")
    bos = encode(builder, "<bos>")[0]
    assert prompt[0] == bos
    assert prompt.count(bos) == 1
    probe = builder.probe_prompt(prompt, encode(builder, "So"), 1)
    assert probe.count(bos) == 1


def test_a_model_without_a_chat_template(make_builder: MakeBuilder) -> None:
    builder = make_builder(
        "none", uses_chat_template=False, plain_prompt="{instruction} Question: {question}\n\n", thinking_end="</think>"
    )
    prompt = builder.question_prompt(QUESTION, "Add.")
    assert decode(builder, prompt) == "<bos>Add. Question: What is two and three?\n\n"
    # What looks like a place in a question is left alone.
    odd = Question("sums", "q", "test", "What is {instruction}?", "5", "mathematics")
    assert decode(builder, builder.question_prompt(odd, "Add.")) == "<bos>Add. Question: What is {instruction}?\n\n"


def test_probes_copy_the_kept_tokens(thinking: PromptBuilder) -> None:
    prompt = thinking.question_prompt(QUESTION, "Add.")
    # Tokens that no encoding of their text would give: one by one, and half a character.
    kept = (*encode(thinking, "a"), *encode(thinking, "n"), *encode(thinking, "d"), encode(thinking, "東")[0])
    for retained in range(len(kept) + 1):
        probe = thinking.probe_prompt(prompt, kept, retained)
        assert probe == prompt + kept[:retained] + encode(thinking, "</think>\n\n")
        assert thinking.margin_prompt(prompt, kept, retained) == prompt + kept[:retained]
    assert encode(thinking, thinking.tokenizer.decode(kept)) != kept


def test_a_boundary_at_the_cut_loses_its_line_breaks(thinking: PromptBuilder) -> None:
    prompt = thinking.question_prompt(QUESTION, "Add.")
    kept = encode(thinking, "five.\n\nThen\n\n")
    ends = [idx + 1 for idx, ends in enumerate(thinking.boundaries.mark(kept)) if ends]
    assert len(ends) == 2
    texts = [decode(thinking, thinking.probe_prompt(prompt, kept, end)[len(prompt) :]) for end in ends]
    # Boundaries before the cut stay as they are; one that is nothing but line breaks is left out.
    assert texts == ["five.</think>\n\n", "five.\n\nThen</think>\n\n"]
    # The margin is measured behind what the model wrote.
    assert decode(thinking, thinking.margin_prompt(prompt, kept, ends[0])[len(prompt) :]) == "five.\n\n"


def test_channels_are_opened_and_closed_around_kept_thinking(channels: PromptBuilder) -> None:
    prompt = channels.question_prompt(QUESTION, "Add.")
    kept = encode(channels, "five.\n\n")
    closing = "<|end|><|start|>assistant<|channel|>final<|message|>"
    probes = [decode(channels, channels.probe_prompt(prompt, kept, k)[len(prompt) :]) for k in (0, len(kept))]
    assert probes == [f"<|channel|>analysis<|message|>{t}{closing}" for t in ("", "five.")]
    assert decode(channels, channels.answer_prompt(prompt, kept)[len(prompt) :]) == (
        f"<|channel|>analysis<|message|>five.\n\n{closing}"
    )


def test_a_prompt_without_thinking_closes_it_at_once(
    thinking: PromptBuilder, channels: PromptBuilder, text: PromptBuilder
) -> None:
    direct = decode(thinking, thinking.direct_prompt(QUESTION, "At once."))
    assert str(direct).endswith("<|im_start|>assistant\n<think>\n</think>\n\n")
    assert "At once." in str(direct)
    direct = decode(channels, channels.direct_prompt(QUESTION, "At once."))
    assert str(direct).endswith("analysis<|message|><|end|><|start|>assistant<|channel|>final<|message|>")
    assert str(decode(text, text.direct_prompt(QUESTION, "At once."))).endswith("assistant\n\n\nFinal answer:")


@pytest.mark.parametrize("retained", [-1, 3])
def test_more_than_there_is_cannot_be_kept(thinking: PromptBuilder, retained: int) -> None:
    with pytest.raises(ValueError, match="cannot be retained"):
        thinking.probe_prompt((1,), (2, 3), retained)


def test_thinking_and_answer_in_one_output(thinking: PromptBuilder) -> None:
    found = split(thinking, "So five.\n\n</think>\n\nIt is five.")
    assert (decode(thinking, found.thinking), decode(thinking, found.answer)) == ("So five.\n\n", "It is five.")
    assert (found.hit_limit, found.fault) == (False, None)
    # Marks later on belong to the answer.
    assert decode(thinking, split(thinking, "a</think>\n\nb</think>c").answer) == "b</think>c"


def test_thinking_that_stopped_at_its_end(thinking: PromptBuilder) -> None:
    assert encode(thinking, "</think>")[0] in thinking.thinking_stop_tokens
    found = split(thinking, "So five.", stop="</think>")
    assert (decode(thinking, found.thinking), found.answer, found.fault) == ("So five.", (), None)
    # The answer that follows stops at the end of the text alone.
    assert thinking.answer_stop_tokens == encode(thinking, "<eos>")


def test_a_prompts_start_is_no_thinking(thinking: PromptBuilder) -> None:
    prompt = thinking.question_prompt(QUESTION, "Add.")
    found = split(thinking, "So", stop="</think>")
    assert found.thinking == encode(thinking, "So")
    assert len(found.thinking) < len(prompt)
    assert split(thinking, "", stop="</think>") == Generated((), (), hit_limit=False, fault=None)


def test_thinking_that_never_ends(thinking: PromptBuilder) -> None:
    stopped = split(thinking, "It is five.")
    assert (decode(thinking, stopped.thinking), stopped.answer) == ("It is five.", None)
    assert (stopped.hit_limit, stopped.fault) == (False, NO_END)
    cut = split(thinking, "So", stop=None)
    assert (cut.answer, cut.hit_limit, cut.fault) == (None, True, None)


def test_thinking_beyond_its_limit_is_cut(make_builder: MakeBuilder) -> None:
    builder = make_builder("thinking", **{**THINKING, "thinking_token_limit": 4})
    assert builder.thinking_max_tokens == 4
    at_limit = split(builder, "5555", stop="</think>")
    assert (len(at_limit.thinking), at_limit.answer, at_limit.hit_limit) == (4, (), False)
    beyond = split(builder, "55555", stop="</think>")
    assert (len(beyond.thinking), beyond.answer, beyond.hit_limit) == (4, None, True)
    late = split(builder, "55555</think>\n\n5")
    assert (len(late.thinking), late.answer, late.hit_limit) == (4, None, True)


CHANNEL_OUTPUTS = {
    "<|channel|>analysis<|message|>So": ("So", None),
    "<|channel|>analysis code<|message|>So": ("So", MALFORMED_START),
    "<|channel|>commentary<|message|>So": ("So", MALFORMED_START),
    "<|start|>assistant<|channel|>analysis<|message|>So": ("So", MALFORMED_START),
    "<|message|>So": ("So", MALFORMED_START),
    "So": ("So", NO_START),
}


@pytest.mark.parametrize("written", CHANNEL_OUTPUTS)
def test_headers_of_channels_well_formed_or_not(channels: PromptBuilder, written: str) -> None:
    found = split(channels, written, stop="<|end|>")
    expected, fault = CHANNEL_OUTPUTS[written]
    assert (decode(channels, found.thinking), found.answer, found.fault) == (expected, (), fault)
    answered = split(channels, f"{written}<|end|><|start|>assistant<|channel|>final<|message|>five")
    assert (decode(channels, answered.thinking), decode(channels, answered.answer)) == (expected, "five")


@pytest.mark.parametrize(
    "written",
    [
        "<|channel|>final<|message|>five",
        "<|channel|>final commentary<|message|>five",
        "<|start|>assistant<|channel|>final<|message|>five",
    ],
)
def test_an_answer_without_thinking(channels: PromptBuilder, written: str) -> None:
    found = split(channels, written)
    assert (found.thinking, decode(channels, found.answer), found.fault) == ((), "five", NO_START)
    assert not found.hit_limit


def test_an_output_without_any_mark_is_an_answer(channels: PromptBuilder) -> None:
    found = split(channels, "It is five.", stop=None)
    assert (found.thinking, decode(channels, found.answer), found.hit_limit) == ((), "It is five.", False)


def test_an_answer_behind_a_malformed_header(channels: PromptBuilder) -> None:
    written = "<|channel|>analysis<|message|>So<|end|><|start|>assistant<|channel|>final <|channel|>x<|message|>five"
    assert decode(channels, split(channels, written).answer) == "five"
    more = "<|channel|>analysis<|message|>So<|end|><|start|>assistant<|channel|>analysis<|message|>More<|end|>"
    found = split(channels, f"{more}<|start|>assistant<|channel|>final<|message|>five")
    assert (decode(channels, found.thinking), decode(channels, found.answer)) == ("So", "five")


def test_the_start_that_a_model_writes_is_not_counted(channels: PromptBuilder) -> None:
    start = encode(channels, CHANNELS["thinking_start"])
    assert channels.thinking_max_tokens == 1000 + len(start)
    assert split(channels, "<|channel|>analysis<|message|>", stop="<|end|>").thinking == ()


def test_blanks_around_a_start_that_the_model_writes(make_builder: MakeBuilder) -> None:
    builder = make_builder("chat", **{**THINKING, "thinking_start_place": "output"})
    for written, kept in (("<think>\nSo", "So"), ("\n<think>So", "So"), ("<think>\n\nSo", "\n\nSo")):
        assert decode(builder, split(builder, written, stop="</think>").thinking) == kept
    # An answer that speaks of the mark later on has not opened its thinking with it.
    assert split(builder, "five <think>", stop="<eos>").fault == NO_START


def test_an_end_of_several_tokens_is_found_among_the_ids(text: PromptBuilder) -> None:
    assert len(text.end_tokens) > 1
    assert text.thinking_stop_tokens == text.eos_tokens
    assert text.end_token == text.end_tokens[0]
    found = split(text, "So five.\n\nFinal answer: five")
    assert (decode(text, found.thinking), decode(text, found.answer)) == ("So five.\n\n", " five")
    # A full stop takes the line breaks before the text along as one token; the text is found all the same.
    assert text.boundaries.mark(found.thinking).tolist()[-1]
    assert split(text, "So five.", stop="<eos>").fault == NO_END
    prompt = text.question_prompt(QUESTION, "Add.")
    assert "Add.\n\nWrite paragraphs.\n\nWhat is two" in str(decode(text, prompt))
    probe = text.probe_prompt(prompt, found.thinking, len(found.thinking))
    assert decode(text, probe[len(prompt) :]) == "So five.\n\nFinal answer:"


def test_answers_are_read_with_their_opening(
    thinking: PromptBuilder, channels: PromptBuilder, make_builder: MakeBuilder
) -> None:
    assert thinking.answer_text(encode(thinking, "five")) == "\n\nfive"
    # Of an opening in marks nothing is said aloud.
    assert channels.answer_text(encode(channels, "five")) == "five"
    boxed = make_builder("bos", thinking_end="</think>", answer_opening="<|end|>The answer is {")
    assert boxed.answer_text(encode(boxed, "five}")) == "The answer is {five}"


def test_an_answer_asked_for_in_a_turn_of_its_own(make_builder: MakeBuilder) -> None:
    """As of a model that was not trained to think: its first turn is its thinking, and ends as every turn does."""
    turn = "\n<|im_start|>user\nSo?<|im_end|>\n<|im_start|>assistant\nThe answer is"
    builder = make_builder("chat", thinking_end="<|im_end|>", answer_opening=turn, boundary_text="\n")
    found = split(builder, "two\nfive", stop="<|im_end|>")
    assert (decode(builder, found.thinking), found.answer, found.fault) == ("two\nfive", (), None)
    prompt = builder.question_prompt(QUESTION, "Add.")
    end = builder.boundaries.mark(found.thinking).tolist().index(True) + 1
    probe = builder.probe_prompt(prompt, found.thinking, end)
    assert decode(builder, probe[len(prompt) :]) == f"two<|im_end|>{turn}"
    # Neither the second question nor the role is part of the answer.
    assert builder.answer_text(encode(builder, " five")) == "The answer is five"


def test_other_boundaries(make_builder: MakeBuilder) -> None:
    builder = make_builder("chat", thinking_end="</think>", boundary_text="\n")
    kept = encode(builder, "So\nfive")
    assert builder.boundaries.mark(kept).any()
    end = builder.boundaries.mark(kept).tolist().index(True) + 1
    assert decode(builder, builder.probe_prompt((), kept, end)) == "So</think>"


def test_tokenizers_that_name_no_end(write_tokenizer: WriteTokenizer) -> None:
    tokenizer = load_tokenizer(write_tokenizer("chat", eos_token=None))
    required = {"format": "otboard-profile/1", "name": "m", "repository": "m", "thinking_token_limit": 10}
    with pytest.raises(TokenizerError, match="names no token that ends a text"):
        build_prompts(build_profile({**required, **THINKING}), tokenizer)
