"""Tokenizers read from files: no token added, none dropped, boundaries over the whole vocabulary."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend

from app.files.profiles import build_profile
from worker.tokenizers import Message, Tokenizer, TokenizerError, load_tokenizer

WriteTokenizer = Callable[..., Path]
TEXTS = ["So the answer is five.\n\nThen", "café 東京 🙂\n\n\n", "<|im_start|>user", "  \n\n x", "", "\r\n\r\n"]


@pytest.fixture
def tokenizer(write_tokenizer: WriteTokenizer) -> Tokenizer:
    return load_tokenizer(write_tokenizer("chat"))


def test_encoding_adds_nothing_and_decoding_drops_nothing(tokenizer: Tokenizer, trained: Backend) -> None:
    for text in TEXTS:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    # The backend by itself would begin each text with <bos>.
    assert trained.encode("So").ids[0] == trained.token_to_id("<bos>")
    assert trained.token_to_id("<bos>") not in tokenizer.encode("So")


def test_answers_are_read_without_marks(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|start|>five<eos>")
    assert tokenizer.decode(ids) == "<|start|>five<eos>"
    assert tokenizer.decode_answer(ids) == "five"


def test_any_ids_survive_a_cut_inside_a_character(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("🙂🙂")
    assert len(ids) > 2
    cut = ids[: len(ids) - 1]
    # The text of a broken prefix is not the text it came from, which is why prefixes stay ids.
    assert "\ufffd" in tokenizer.decode(cut)
    assert tokenizer.encode(tokenizer.decode(cut)) != cut


def test_a_template_brings_the_first_token_once(write_tokenizer: WriteTokenizer, trained: Backend) -> None:
    tokenizer = load_tokenizer(write_tokenizer("bos"))
    bos = trained.token_to_id("<bos>")
    ids = tokenizer.apply_template([Message("user", "So")])
    assert ids[0] == bos
    assert ids.count(bos) == 1
    assert tokenizer.bos_tokens == (bos,)


def test_templates_see_their_options_and_a_day_that_stands_still(write_tokenizer: WriteTokenizer) -> None:
    tokenizer = load_tokenizer(write_tokenizer("channel"))
    ids = tokenizer.apply_template([Message("user", "So")], options={"reasoning_effort": "high"}, day="2025-06-28")
    assert tokenizer.decode(ids) == (
        "<|start|>system<|message|>2025-06-28 high<|end|><|start|>user<|message|>So<|end|><|start|>assistant"
    )


def test_a_template_of_its_own_file_or_one_of_several(write_tokenizer: WriteTokenizer) -> None:
    named = [{"name": "default", "template": "D"}, {"name": "tools", "template": "T"}]
    folder = write_tokenizer("none", chat_template=named)
    assert load_tokenizer(folder).chat_template == "D"
    (folder / "chat_template.jinja").write_text("F", encoding="utf-8")
    assert load_tokenizer(folder).chat_template == "F"


def test_templates_that_are_missing_or_fail_are_named(write_tokenizer: WriteTokenizer) -> None:
    with pytest.raises(TokenizerError, match="no chat template; set uses_chat_template to false"):
        load_tokenizer(write_tokenizer("none")).apply_template([Message("user", "x")])
    failing = load_tokenizer(write_tokenizer("chat", chat_template="{{ raise_exception('no system role') }}"))
    with pytest.raises(TokenizerError, match="no system role"):
        failing.apply_template([Message("system", "x")])


def test_the_ends_of_a_text(write_tokenizer: WriteTokenizer, trained: Backend) -> None:
    folder = write_tokenizer("chat", eos_token={"content": "<eos>"})
    ids = {mark: trained.token_to_id(mark) for mark in ("<eos>", "<|im_end|>")}
    assert load_tokenizer(folder).eos_tokens == (ids["<eos>"],)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [ids["<|im_end|>"]]}))
    assert load_tokenizer(folder).eos_tokens == tuple(sorted(ids.values()))


def test_boundaries_are_those_of_a_plain_look_at_every_token(tokenizer: Tokenizer, trained: Backend) -> None:
    boundaries = tokenizer.find_boundaries()
    texts = {idx: trained.decode([idx], skip_special_tokens=False) for idx in trained.get_vocab().values()}
    assert boundaries.ids.tolist() == sorted(idx for idx, text in texts.items() if "\n\n" in text)
    assert boundaries.n_vocabulary == max(texts) + 1
    found = {texts[idx] for idx in boundaries.ids.tolist()}
    # Trained here: alone, behind a full stop, a colon and a semicolon.
    assert {"\n\n", ".\n\n", ":\n\n", ";\n\n"} <= found


def test_token_ids_make_the_round_trip(tokenizer: Tokenizer) -> None:
    """Cut anywhere, the parts of a trajectory are its ids, though their texts need not encode to them again."""
    rng = random.Random(7)
    vocabulary = len(tokenizer.token_texts)
    boundaries = tokenizer.find_boundaries()
    changed = 0
    for _ in range(300):
        ids = [rng.randrange(vocabulary) for _ in range(rng.randrange(1, 40))]
        cut = rng.randrange(len(ids) + 1)
        assert ids[:cut] + ids[cut:] == ids
        assert boundaries.mark(ids).tolist() == ["\n\n" in tokenizer.token_texts[idx] for idx in ids]
        changed += tokenizer.encode(tokenizer.decode(ids)) != ids
    assert changed > 200


def test_contents_of_boundaries_have_no_line_break(tokenizer: Tokenizer) -> None:
    boundaries = tokenizer.find_boundaries()
    contents = tokenizer.map_boundary_contents(boundaries)
    assert list(contents) == boundaries.ids.tolist()
    for token, content in contents.items():
        assert tokenizer.decode(content) == tokenizer.token_texts[token].replace("\n", "")
    pure = [token for token in contents if tokenizer.token_texts[token].strip("\n") == ""]
    assert pure
    assert all(contents[token] == () for token in pure)


def test_a_boundary_that_begins_inside_a_character_keeps_its_bytes(trained: Backend, tmp_path: Path) -> None:
    document = json.loads(trained.to_str())
    # The last byte of "東" and a double newline, as a large vocabulary holds them: "\xb1\n\n".
    document["model"]["vocab"]["±ĊĊ"] = 5000
    (tmp_path / "tokenizer.json").write_text(json.dumps(document), encoding="utf-8")
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.token_texts[5000] == "\ufffd\n\n"
    contents = tokenizer.map_boundary_contents(tokenizer.find_boundaries())
    assert contents[5000] == (trained.token_to_id("±"),)
    first_bytes = [trained.token_to_id(character) for character in "æĿ"]
    assert tokenizer.decode([*first_bytes, *contents[5000]]) == "東"
    # Ids between the vocabulary's end and this one are not used.
    assert tokenizer.token_texts[4000] == ""


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "there is no file"),
        ({"tokenizer.json": "{}"}, "is no tokenizer"),
        ({"tokenizer.json": None, "tokenizer_config.json": "{"}, "is not JSON"),
        ({"tokenizer.json": None, "tokenizer_config.json": "[]"}, "no JSON object"),
    ],
)
def test_files_that_are_no_tokenizer(trained: Backend, tmp_path: Path, files: dict[str, Any], message: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(trained.to_str() if text is None else text, encoding="utf-8")
    with pytest.raises(TokenizerError, match=message):
        load_tokenizer(tmp_path)


def test_a_profile_names_a_folder(write_tokenizer: WriteTokenizer) -> None:
    folder = write_tokenizer("chat")
    document = {
        "format": "otboard-profile/1",
        "name": "m",
        "repository": "someone/model",
        "tokenizer": str(folder),
        "thinking_end": "</think>",
        "thinking_token_limit": 10,
    }
    assert load_tokenizer(build_profile(document)).name == str(folder)
