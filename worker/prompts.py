"""Prompts of token ids: the question, the thinking that is kept, its end, the opening of the answer.

Thinking is copied token by token. It is never decoded and encoded again, which would change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.evaluator.boundaries import BoundarySet
from app.files.profiles import Profile
from app.files.questions import Question
from worker.generation import Completion
from worker.tokenizers import Message, Tokenizer, TokenizerError

# A malformed opening of thinking is looked for in so many tokens.
_MOST_HEADER_TOKENS = 16
Tokens = tuple[int, ...]

NO_START = "no_thinking_start"
MALFORMED_START = "malformed_thinking_start"
NO_END = "no_thinking_end"


@dataclass(frozen=True)
class Generated:
    """What a model wrote, taken apart.

    Attributes
    ----------
    thinking : its thinking tokens, without those that open and end it; maybe none.
    answer : what follows, without the opening of the answer; None where the thinking does not end.
    hit_limit : the thinking was cut off by its limit: it never ended, or only after the limit.
    fault : `no_thinking_start`, the model answered at once; `malformed_thinking_start`, it opened its thinking in
        another way than it should; `no_thinking_end`, it stopped without ending it; None if all is in order.
    """

    thinking: Tokens
    answer: Tokens | None
    hit_limit: bool
    fault: str | None


@dataclass(frozen=True, eq=False)
class PromptBuilder:
    """Builds the prompts of one model, and takes its output apart; `build_prompts` makes one.

    Attributes
    ----------
    profile, tokenizer : of the model.
    boundaries : the tokens that end a block.
    contents : what stands for each of them where thinking is cut after it.
    start_tokens : what opens thinking.
    end_tokens : what ends thinking, as it is looked for in what a model writes.
    closing_tokens : the end of thinking and the opening of the answer, as they are put behind kept thinking.
    opening_tokens : the opening of the answer, as it is looked for.
    spoken_tokens : what of it belongs to the answer: all that follows its last special token, and the line of that.
    eos_tokens : what ends an answer.
    """

    profile: Profile
    tokenizer: Tokenizer
    boundaries: BoundarySet
    contents: dict[int, Tokens] = field(repr=False)
    start_tokens: Tokens
    end_tokens: Tokens
    closing_tokens: Tokens
    opening_tokens: Tokens
    spoken_tokens: Tokens
    eos_tokens: Tokens

    @property
    def end_token(self) -> int:
        """The token by which thinking ends, the first of several: what the end margin is measured on."""
        return self.end_tokens[0]

    @property
    def thinking_max_tokens(self) -> int:
        """How many tokens to generate for a thinking: its limit, and its start where the model writes that."""
        is_written = self.profile.thinking_start_place == "output"
        return self.profile.thinking_token_limit + (len(self.start_tokens) if is_written else 0)

    @property
    def thinking_stop_tokens(self) -> Tokens:
        """Where the generation of thinking stops: at the end of a text, and at the end of thinking if it is one token.

        An end of several tokens, a text say, is found afterwards by `split_output`: generation runs on past it.
        """
        ends = self.end_tokens if len(self.end_tokens) == 1 else ()
        return tuple(sorted({*self.eos_tokens, *ends}))

    @property
    def answer_stop_tokens(self) -> Tokens:
        """Where the generation of an answer stops."""
        return self.eos_tokens

    def question_prompt(self, question: Question, instruction: str) -> Tokens:
        """Return what the thinking of a question is generated from.

        It ends with the start of thinking where the profile puts that into the prompt, once, whether or not the chat
        template ends with it already; where the model writes it, it is left to the model.
        """
        prompt = self._ask(question, _join(instruction, self.profile.extra_instruction))
        return self._open_thinking(prompt) if self.profile.thinking_start_place == "prompt" else prompt

    def direct_prompt(self, question: Question, direct_instruction: str) -> Tokens:
        """Return the separate prompt that asks for an answer without thinking: the thinking is closed, empty."""
        return self._open_thinking(self._ask(question, direct_instruction)) + self.closing_tokens

    def probe_prompt(self, question_prompt: Tokens, thinking: Sequence[int], retained: int) -> Tokens:
        """Return what an answer is forced from: the question, the first `retained` thinking tokens, their end.

        A boundary token at the cut is replaced by its content without the line breaks; every other token is the one
        that the model wrote. Without a retained token the thinking is opened and ended.
        """
        kept = self._retain(thinking, retained)
        if kept and kept[-1] in self.contents:
            kept = kept[:-1] + self.contents[kept[-1]]
        return self._begin(question_prompt) + kept + self.closing_tokens

    def margin_prompt(self, question_prompt: Tokens, thinking: Sequence[int], retained: int) -> Tokens:
        """Return what the end margin is measured after: the question and the first `retained` thinking tokens."""
        return self._begin(question_prompt) + self._retain(thinking, retained)

    def answer_prompt(self, question_prompt: Tokens, thinking: Sequence[int]) -> Tokens:
        """Return what the original answer is generated from where it is a request of its own: nothing is cut."""
        return self.margin_prompt(question_prompt, thinking, len(thinking)) + self.closing_tokens

    def split_output(self, completion: Completion) -> Generated:
        """Take apart what a model wrote after `question_prompt`, with `thinking_stop_tokens` or `answer_stop_tokens`.

        Where generation stopped at the end of thinking, all of it is thinking and the answer is empty so far.
        """
        written = completion.tokens
        start, fault = self._find_start(written)
        if start is None:
            return Generated((), self._drop_opening(written), hit_limit=False, fault=fault)
        has_stopped = completion.stop_token is not None and (completion.stop_token,) == self.end_tokens
        end = _find(written, self.end_tokens, start)
        if end is None and has_stopped:
            end = len(written)
        if end is None and fault == NO_START:
            # Neither a start nor an end: an answer, however long. Its length is no length of thinking.
            return Generated((), written, hit_limit=False, fault=fault)
        limit = start + self.profile.thinking_token_limit
        if end is None or end > limit:
            hit_limit = len(written) > limit or completion.reason == "length"
            return Generated(written[start:limit], None, hit_limit, fault if hit_limit else fault or NO_END)
        after = self._drop_opening(written[end + len(self.end_tokens) :])
        return Generated(written[start:end], after, hit_limit=False, fault=fault)

    def answer_text(self, answer: Sequence[int]) -> str:
        """Return the text of an answer as graders read it: what its opening says, then what was generated."""
        return self.tokenizer.decode_answer(self.spoken_tokens + tuple(answer))

    def _ask(self, question: Question, instruction: str) -> Tokens:
        profile = self.profile
        if not profile.uses_chat_template:
            text = profile.plain_prompt.replace("{instruction}", instruction).replace("{question}", question.prompt)
            return self.tokenizer.bos_tokens + tuple(self.tokenizer.encode(text))
        if profile.instruction_place == "system":
            messages = [Message("system", instruction)] if instruction else []
            messages.append(Message("user", question.prompt))
        else:
            messages = [Message("user", _join(instruction, question.prompt))]
        options, day = profile.template_options, profile.template_date
        return tuple(self.tokenizer.apply_template(messages, options=options, day=day))

    def _begin(self, question_prompt: Tokens) -> Tokens:
        """Return the prompt with its thinking opened: by itself, or as the model does."""
        if self.profile.thinking_start_place == "prompt":
            return question_prompt
        return question_prompt + self.start_tokens

    def _open_thinking(self, prompt: Tokens) -> Tokens:
        """Return the prompt with the start of thinking at its end, once."""
        start = self.start_tokens
        if not start or prompt[-len(start) :] == start:
            return prompt
        # A template may end with the opening token and other blanks than the profile says.
        shown = self.tokenizer.decode(prompt[-2 * len(start) :]).rstrip()
        if shown.endswith(self.profile.thinking_start.strip()) and self.profile.thinking_start.strip():
            return prompt
        return prompt + start

    def _retain(self, thinking: Sequence[int], retained: int) -> Tokens:
        if not 0 <= retained <= len(thinking):
            raise ValueError(f"{retained} of {len(thinking)} thinking tokens cannot be retained")
        return tuple(thinking[:retained])

    def _find_start(self, written: Tokens) -> tuple[int | None, str | None]:
        """Return where thinking begins, and what is wrong with how it was opened; None where an answer begins."""
        if self.profile.thinking_start_place == "prompt":
            return 0, None
        if written[: len(self.start_tokens)] == self.start_tokens:
            return len(self.start_tokens), None
        # The profile may say a line break that the model writes otherwise, and the model may begin with blanks.
        bare = tuple(self.tokenizer.encode(self.profile.thinking_start.strip()))
        idx = _find(written[:_MOST_HEADER_TOKENS], bare, 0)
        if idx is not None and not self.tokenizer.decode(written[:idx]).strip():
            return idx + len(bare), None
        if self._opens_answer(written):
            return None, NO_START
        header = written[:_MOST_HEADER_TOKENS]
        openings = {*bare, *self.opening_tokens[:1]}
        if len(bare) > 1 and bare[-1] in header and header[0] in openings:
            # A channel's header with something missing or something more.
            end = header.index(bare[-1])
            name = self._answer_name()
            is_answer = bool(name) and _find(header[:end], name, 0) is not None
            return (None, NO_START) if is_answer else (end + 1, MALFORMED_START)
        return 0, NO_START

    def _opens_answer(self, written: Tokens) -> bool:
        """Whether the opening of the answer stands where thinking should begin, its end of the last turn left out."""
        opening = self.opening_tokens
        places = [idx for idx, token in enumerate(opening) if token == self.start_tokens[0]]
        return any(written[: len(opening) - idx] == opening[idx:] for idx in places)

    def _answer_name(self) -> Tokens:
        """Return the tokens that name the answer's channel; none where the openings share no marks around a name."""
        opening, start = self.opening_tokens, self.start_tokens
        if len(start) < 2 or start[0] not in opening or opening[-1] != start[-1]:
            return ()
        return opening[opening.index(start[0]) + 1 : -1]

    def _drop_opening(self, after: Tokens) -> Tokens:
        """Return an answer without its opening; of a channel's, also without a header that is not quite right."""
        opening = self.opening_tokens
        if after[: len(opening)] == opening:
            return after[len(opening) :]
        name = self._answer_name()
        idx = _find(after, name, 0) if name else None
        if idx is None or opening[-1] not in after[idx : idx + _MOST_HEADER_TOKENS]:
            return after
        return after[after.index(opening[-1], idx) + 1 :]


def build_prompts(profile: Profile, tokenizer: Tokenizer) -> PromptBuilder:
    """Return the prompt builder of a model.

    Raises
    ------
    TokenizerError : the end of thinking has no token, or the tokenizer knows no token that ends an answer.
    """
    boundaries = tokenizer.find_boundaries(profile.boundary_text)
    end = tuple(tokenizer.encode(profile.thinking_end.strip()))
    if not end:
        raise TokenizerError(f"thinking_end of {profile.name} is no token of its tokenizer")
    if not tokenizer.eos_tokens:
        raise TokenizerError(f"the tokenizer {tokenizer.name} names no token that ends a text")
    opening = tuple(tokenizer.encode(profile.answer_opening))
    return PromptBuilder(
        profile=profile,
        tokenizer=tokenizer,
        boundaries=boundaries,
        contents=tokenizer.map_boundary_contents(boundaries),
        start_tokens=tuple(tokenizer.encode(profile.thinking_start)),
        end_tokens=end,
        closing_tokens=tuple(tokenizer.encode(profile.thinking_end + profile.answer_opening)),
        opening_tokens=opening,
        spoken_tokens=_find_spoken(tokenizer, opening),
        eos_tokens=tokenizer.eos_tokens,
    )


def _find_spoken(tokenizer: Tokenizer, opening: Tokens) -> Tokens:
    """Return what of an opening belongs to the answer: all of it, or what follows its last mark and that mark's line.

    The line may name a role, as in "<|im_start|>assistant\\nThe answer is".
    """
    for idx in range(len(opening) - 1, -1, -1):
        if opening[idx] in tokenizer.special_tokens:
            rest = opening[idx + 1 :]
            breaks = [place + 1 for place, token in enumerate(rest) if "\n" in tokenizer.token_texts[token]]
            return rest[breaks[-1] :] if breaks else rest
    return opening


def _join(first: str, second: str) -> str:
    """Return two texts with an empty line between them, or the one that is not empty."""
    return "\n\n".join(text for text in (first, second) if text)


def _find(written: Tokens, wanted: Tokens, start: int) -> int | None:
    """Return where a sequence of tokens first stands from `start` on."""
    for idx in range(start, len(written) - len(wanted) + 1):
        if written[idx] == wanted[0] and written[idx : idx + len(wanted)] == wanted:
            return idx
    return None
