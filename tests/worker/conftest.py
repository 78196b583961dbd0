"""Real tokenizers for the worker's tests, trained here on a few lines, so that nothing is downloaded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, processors, trainers

# As in the large tokenizers: a mark takes the line breaks after it along, so that ".\n\n" becomes one token.
SPLIT = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CORPUS = [
    "First we add two and three.\n\nThen we check:\n\nthe sum is five.\n\n",
    "So the answer is five;\n\n  wait, no.\n\nFinal answer: five\n\n",
    "user assistant system analysis final commentary The question What is café naïve 東京 🙂\n\n\n",
] * 4
MARKS = ("<bos>", "<eos>", "<|im_start|>", "<|im_end|>", "<|start|>", "<|channel|>", "<|message|>", "<|end|>")
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING_TEMPLATE = CHAT_TEMPLATE.replace("assistant\n{% endif", "assistant\n<think>\n{% endif")
CHANNEL_TEMPLATE = (
    "<|start|>system<|message|>{{ strftime_now('%Y-%m-%d') }} {{ reasoning_effort }}<|end|>"
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>{{ m.content }}<|end|>{% endfor %}<|start|>assistant"
)
BOS_TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}\n{% endfor %}"
TEMPLATES = {
    "chat": CHAT_TEMPLATE,
    "thinking": THINKING_TEMPLATE,
    "channel": CHANNEL_TEMPLATE,
    "bos": BOS_TEMPLATE,
    "none": None,
}

WriteTokenizer = Callable[..., Path]


def train() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(SPLIT), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens([AddedToken(mark, special=True, normalized=False) for mark in MARKS])
    # As in the real ones, the marks of thinking are added tokens that are not special.
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in ("<think>", "</think>")])
    bos = tokenizer.token_to_id("<bos>")
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", bos)])
    return tokenizer


@pytest.fixture(scope="session")
def trained() -> Tokenizer:
    """A byte-level tokenizer of a few hundred tokens that begins every text with <bos> unless told not to."""
    return train()


@pytest.fixture
def write_tokenizer(trained: Tokenizer, tmp_path: Path) -> WriteTokenizer:
    """Write the files of a tokenizer with one of the chat templates, and return their folder."""

    def write(template: str = "chat", **config: Any) -> Path:
        folder = tmp_path / f"tokenizer-{template}"
        folder.mkdir()
        trained.save(str(folder / "tokenizer.json"))
        settings = {"bos_token": "<bos>", "eos_token": "<eos>", "chat_template": TEMPLATES[template], **config}
        (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
        return folder

    return write
