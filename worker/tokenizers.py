"""Tokenizers of models, read from their own files: token ids in and out, and nothing added that was not asked for."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import tokenizers

from app.errors import AppError
from app.evaluator.boundaries import BOUNDARY_TEXT, BoundarySet, find_boundary_tokens, map_contents
from app.files.profiles import Profile

TOKENIZER_FILE = "tokenizer.json"
# What else is read where it is there: the chat template, and the tokens that end a text.
OTHER_FILES = ("tokenizer_config.json", "chat_template.jinja", "generation_config.json")
_REPLACEMENT = "\ufffd"
_DATE_CALL = re.compile(r"""strftime_now\(\s*(?P<quote>["'])(?P<format>[^"']*)(?P=quote)\s*\)""")
# The characters that byte-level tokenizers write line feed and carriage return with.
_BYTE_LEVEL_NEWLINES = str.maketrans("", "", "Ċč")


class TokenizerError(AppError):
    """The files of a tokenizer cannot be had, or cannot be used."""

    status = 422
    code = "bad_tokenizer"
    title = "The tokenizer cannot be used"


class Message(NamedTuple):
    """One message of a chat."""

    role: str
    content: str


class Tokenizer:
    """A tokenizer as its files say it: encoding adds no token, decoding drops none.

    Prompts are put together from ids. A chat template writes its own first token, so that none is ever added to it.
    """

    def __init__(
        self, backend: tokenizers.Tokenizer, *, config: Mapping[str, Any], chat_template: str | None, name: str
    ) -> None:
        self._backend = backend
        self._config = config
        self.chat_template = chat_template
        self.name = name

    @cached_property
    def bos_tokens(self) -> tuple[int, ...]:
        """The token that a text without a chat template begins with: one, or none where the tokenizer adds none."""
        added = self._backend.encode("", add_special_tokens=True).ids
        token = self._find(self._config.get("bos_token"))
        if token is None:
            return ()
        return (token,) if token in added or self._config.get("add_bos_token") is True else ()

    @cached_property
    def eos_tokens(self) -> tuple[int, ...]:
        """The tokens that end an answer, ascending: those of the generation configuration and of the tokenizer."""
        listed = self._config.get("eos_token_id")
        ids = {idx for idx in (listed if isinstance(listed, list) else [listed]) if isinstance(idx, int)}
        named = self._find(self._config.get("eos_token"))
        return tuple(sorted(ids if named is None else ids | {named}))

    @cached_property
    def special_tokens(self) -> frozenset[int]:
        """The tokens that are marks, not text."""
        added = self._backend.get_added_tokens_decoder()
        return frozenset(idx for idx, token in added.items() if token.special)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; special tokens that it spells are found, none is added."""
        ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids, special tokens spelt out; bytes that are no whole character become U+FFFD."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=False)
        return text

    def decode_answer(self, ids: Sequence[int]) -> str:
        """Return the text of ids without special tokens: what a grader reads."""
        text: str = self._backend.decode(list(ids), skip_special_tokens=True)
        return text

    def apply_template(
        self, messages: Sequence[Message], *, options: Mapping[str, Any] | None = None, day: str = "2026-01-01"
    ) -> list[int]:
        """Return the ids of a chat up to where the model answers.

        Parameters
        ----------
        messages : from first to last.
        options : what the template is told besides, `reasoning_effort` say.
        day : what a template's calendar shows, whatever the day is.

        Raises
        ------
        TokenizerError : there is no chat template, or it fails on these messages.
        """
        # Importing it takes seconds, which commands that only count tokens can do without; and it would print that it
        # misses an engine, which we do not run through it.
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        from transformers.utils.chat_template_utils import render_jinja_template

        if self.chat_template is None:
            raise TokenizerError(f"the tokenizer {self.name} has no chat template; set uses_chat_template to false")
        template = _fix_day(self.chat_template, date.fromisoformat(day))
        special = {key: _text_of(self._config.get(key)) for key in ("bos_token", "eos_token", "pad_token", "unk_token")}
        known = {key: value for key, value in special.items() if value is not None}
        try:
            rendered = render_jinja_template(
                conversations=[[message._asdict() for message in messages]],
                chat_template=template,
                add_generation_prompt=True,
                **{**known, **(options or {})},
            )[0]
        except Exception as exc:  # a template is a program of the model's: it fails as it likes
            raise TokenizerError(f"the chat template of {self.name} fails: {exc}") from exc
        return self.encode(rendered[0])

    @cached_property
    def token_texts(self) -> tuple[str, ...]:
        """The text of each id decoded alone, added tokens included; "" for an id that is not used."""
        used = sorted(self._backend.get_vocab(with_added_tokens=True).values())
        decoded = self._backend.decode_batch([[idx] for idx in used], skip_special_tokens=False)
        texts = [""] * (used[-1] + 1 if used else 0)
        for idx, text in zip(used, decoded, strict=True):
            texts[idx] = text
        return tuple(texts)

    def find_boundaries(self, text: str = BOUNDARY_TEXT) -> BoundarySet:
        """Return the tokens that end a block."""
        return find_boundary_tokens(self.token_texts, text=text)

    def map_boundary_contents(self, boundaries: BoundarySet) -> dict[int, tuple[int, ...]]:
        """Return what stands for each boundary token where thinking is cut after it; nothing for mere line breaks."""
        contents = map_contents(boundaries, self.token_texts, encode=self.encode)
        for token in contents:
            if _REPLACEMENT in self.token_texts[token]:
                # It begins in the middle of a character, so its text cannot be encoded; its bytes can.
                contents[token] = self._encode_bytes_of(token)
        return contents

    def _encode_bytes_of(self, token: int) -> tuple[int, ...]:
        """Return the ids of a byte-level token's bytes without its line breaks."""
        written = str(self._backend.id_to_token(token)).translate(_BYTE_LEVEL_NEWLINES)
        whole = self._backend.token_to_id(written)
        if whole is not None:
            return (whole,)
        ids = [self._backend.token_to_id(character) for character in written]
        known = tuple(idx for idx in ids if idx is not None)
        if len(known) < len(ids):
            raise TokenizerError(f"the tokenizer {self.name} has no token for a byte of its token {token}")
        return known

    def _find(self, token: Any) -> int | None:
        text = _text_of(token)
        idx: int | None = None if text is None else self._backend.token_to_id(text)
        return idx


def load_tokenizer(source: Profile | Path) -> Tokenizer:
    """Return the tokenizer of a model's profile, or of a folder or `tokenizer.json`.

    A repository of a hub is fetched into the hub's own cache, of the profile's revision; a folder that is there is
    read as it is.

    Raises
    ------
    TokenizerError : the files are not there or are no tokenizer's, or the hub cannot be reached.
    """
    if isinstance(source, Path):
        folder = source.parent if source.is_file() else source
        return _read_tokenizer(source if source.is_file() else source / TOKENIZER_FILE, folder, name=str(source))
    name = source.tokenizer or source.repository
    folder = Path(name) if Path(name).is_dir() else _fetch(name, source.revision if source.tokenizer is None else None)
    return _read_tokenizer(folder / TOKENIZER_FILE, folder, name=name)


def _fetch(repository: str, revision: str | None) -> Path:
    """Fetch a tokenizer's files from a hub, and return their folder."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    wanted = [TOKENIZER_FILE, *OTHER_FILES]
    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=wanted))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as exc:
        raise TokenizerError(
            f"the tokenizer of {repository} cannot be fetched, nor is it in the cache: {_first_line(exc)}. Without a "
            "hub, put the files into a folder and name it as `tokenizer` in the profile"
        ) from exc


def _read_tokenizer(path: Path, folder: Path, *, name: str) -> Tokenizer:
    if not path.is_file():
        raise TokenizerError(f"there is no file {path}")
    try:
        backend = tokenizers.Tokenizer.from_file(str(path))
    except Exception as exc:  # the library raises plain exceptions
        raise TokenizerError(f"{path} is no tokenizer: {_first_line(exc)}") from exc
    backend.no_truncation()
    backend.no_padding()
    config: dict[str, Any] = {}
    for file in ("generation_config.json", "tokenizer_config.json"):
        config |= _read_object(folder / file)
    return Tokenizer(backend, config=config, chat_template=_find_template(folder, config), name=name)


def _find_template(folder: Path, config: Mapping[str, Any]) -> str | None:
    """Return the chat template: of its own file, or of the configuration, there the one named `default` of several."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = config.get("chat_template")
    if isinstance(template, list):
        template = {entry.get("name"): entry.get("template") for entry in template}.get("default")
    return template if isinstance(template, str) else None


def _read_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as exc:
        raise TokenizerError(f"{path} is not JSON: {exc}") from exc
    if not isinstance(value, dict):
        raise TokenizerError(f"{path} holds no JSON object")
    return value


def _fix_day(template: str, day: date) -> str:
    """Return a template with the day written in where it asks for the current one."""
    return _DATE_CALL.sub(lambda match: json.dumps(day.strftime(match["format"])), template)


def _text_of(token: Any) -> str | None:
    """Return the text of a token as configurations write it: a string, or an object with its content."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) else None


def _first_line(exc: Exception) -> str:
    lines = str(exc).splitlines()
    return lines[0] if lines else type(exc).__name__
