"""Model profiles: those that are shipped, what may be left out, and every fault by its key."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.files.profile_checks import ENGINE_DEFAULTS, SAMPLING_DEFAULTS
from app.files.profiles import (
    PROFILE_FOLDER,
    PROFILE_KEYS,
    Profile,
    ProfileError,
    UnknownModelError,
    build_profile,
    find_profile,
    get_profile,
    list_profiles,
    parse_profile,
    profile_document,
    read_profile,
)

ROOT = Path(__file__).resolve().parents[2]
PAPER_MODELS = {
    "GPT-OSS-20B": (1.0, 1.0, 0, 0.0, "system"),
    "Qwen3-4B-Thinking-2507": (0.6, 0.95, 20, 1.5, "system"),
    "Qwen3-30B-A3B-Thinking-2507": (0.6, 0.95, 20, 1.5, "system"),
    "DeepSeek-R1-Distill-Qwen-7B": (0.6, 0.95, 0, 0.0, "user"),
    "DeepSeek-R1-Distill-Qwen-14B": (0.6, 0.95, 0, 0.0, "user"),
    "DeepSeek-R1-Distill-Qwen-32B": (0.6, 0.95, 0, 0.0, "user"),
}
SMALL = {
    "format": "otboard-profile/1",
    "name": "Some model",
    "repository": "someone/model",
    "thinking_end": "</think>",
    "thinking_token_limit": 1000,
}
Faults = Callable[..., set[tuple[str, str | None]]]


@pytest.fixture
def faults() -> Faults:
    """Build a profile with some keys changed, left out (...) or added, and return the codes and keys of its faults."""

    def find(**changes: Any) -> set[tuple[str, str | None]]:
        document = {key: value for key, value in {**SMALL, **changes}.items() if value is not ...}
        with pytest.raises(ProfileError) as raised:
            build_profile(document)
        return {(problem.code, problem.column) for problem in raised.value.problems}

    return find


@pytest.mark.parametrize("name", PAPER_MODELS)
def test_the_papers_models_are_asked_as_in_its_appendix(name: str) -> None:
    """Appendix A.1: sampling, limits and where the instruction goes."""
    profile = get_profile(name)
    sampling = tuple(profile.sampling[key] for key in ("temperature", "top_p", "top_k", "presence_penalty"))
    assert (*sampling, profile.instruction_place) == PAPER_MODELS[name]
    assert (profile.thinking_token_limit, profile.probe_token_limit) == (32_768, 4_096)
    assert profile.probe_sampling == profile.sampling
    engine = (profile.engine["max_model_len"], profile.engine["dtype"], profile.engine["gpu_memory_utilization"])
    assert engine == (65_536, "bfloat16", 0.9)
    assert profile.engine["enable_prefix_caching"] is True
    assert profile.boundary_text == "\n\n"


def test_channels_and_marks() -> None:
    channels = get_profile("openai/gpt-oss-20b")
    assert channels.thinking_start_place == "output"
    assert channels.thinking_end + channels.answer_opening == "<|end|><|start|>assistant<|channel|>final<|message|>"
    marks = get_profile("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B")
    assert (marks.thinking_start, marks.thinking_start_place, marks.thinking_end) == ("<think>\n", "prompt", "</think>")


@pytest.mark.parametrize("path", sorted(PROFILE_FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_profile_is_sound_and_named_like_its_file(path: Path) -> None:
    profile = read_profile(path)
    assert profile.name.casefold() == path.stem
    assert profile in list_profiles()
    assert build_profile(profile_document(profile)) == profile
    assert build_profile(yaml.safe_load(yaml.safe_dump(profile_document(profile)))) == profile


def test_what_is_left_out_has_a_default() -> None:
    profile = build_profile(SMALL)
    assert profile.sampling == profile.probe_sampling == SAMPLING_DEFAULTS
    assert profile.engine == ENGINE_DEFAULTS
    assert (profile.uses_chat_template, profile.instruction_place, profile.thinking_start) == (True, "user", "")
    assert (profile.revision, profile.tokenizer, profile.license) == (None, None, None)
    # The answer may be as long as a probe's.
    assert profile.answer_token_limit == profile.probe_token_limit == 4_096
    nothing = dict.fromkeys(("revision", "sampling", "probe_sampling", "engine", "boundary_text"))
    assert build_profile({**SMALL, **nothing}) == profile


def test_probes_sample_as_thinking_does_save_what_they_say() -> None:
    profile = build_profile({**SMALL, "sampling": {"temperature": 0.6, "top_k": 20}, "probe_sampling": {"top_k": 5}})
    assert profile.sampling == {**SAMPLING_DEFAULTS, "temperature": 0.6, "top_k": 20}
    assert profile.probe_sampling == {**SAMPLING_DEFAULTS, "temperature": 0.6, "top_k": 5}


def test_a_day_may_stand_without_quotes() -> None:
    text = yaml.safe_dump(SMALL) + "template_date: 2026-02-03\n"
    assert parse_profile(text, source="x.yaml").template_date == "2026-02-03"


def test_names_and_repositories_find_a_profile_in_any_case() -> None:
    profile = find_profile(" qwen/qwen3-4b-thinking-2507 ")
    assert isinstance(profile, Profile)
    assert find_profile("QWEN3-4B-THINKING-2507") == profile
    assert find_profile("qwen3") is None


def test_an_unknown_model_is_told_how_to_write_a_profile() -> None:
    with pytest.raises(UnknownModelError) as raised:
        get_profile("Qwen3-4B-Thinking")
    said = raised.value.detail
    assert "did you mean 'Qwen3-4B-Thinking-2507'" in said
    assert "docs/profiles.md" in said
    assert "generic" in said
    assert all(profile.name in said for profile in list_profiles())
    assert (raised.value.code, raised.value.status) == ("unknown_model_profile", 422)


def test_every_fault_is_listed_with_its_key(faults: Faults) -> None:
    found = faults(
        name=...,
        thinking_token_limit=0,
        instruction_place="assistant",
        thinking_ende="x",
        sampling={"temperature": -1, "top_q": 1},
        engine={"tensor_parallel_size": "2", "trust_remote_code": True},
    )
    assert found == {
        ("missing_key", "name"),
        ("bad_value", "thinking_token_limit"),
        ("bad_value", "instruction_place"),
        ("unknown_key", "thinking_ende"),
        ("bad_value", "sampling.temperature"),
        ("unknown_key", "sampling.top_q"),
        ("bad_value", "engine.tensor_parallel_size"),
        ("unknown_key", "engine.trust_remote_code"),
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("format", "otboard-profile/2"),
        ("name", "a\nb"),
        ("thinking_end", ""),
        ("thinking_token_limit", True),
        ("thinking_token_limit", 1.5),
        ("uses_chat_template", "yes"),
        ("template_date", "2026-13-01"),
        ("template_options", {"a": object()}),
        ("plain_prompt", "no place for a question"),
        ("boundary_text", ""),
        ("thinking_start", "\ud800"),
        ("answer_opening", "a\0b"),
        ("sampling", [1]),
    ],
)
def test_values_that_are_refused(faults: Faults, key: str, value: Any) -> None:
    assert {column for _, column in faults(**{key: value})} == {key}


@pytest.mark.parametrize(
    ("key", "value"),
    [("top_p", 0), ("top_k", 1.0), ("min_p", 2), ("presence_penalty", 3), ("repetition_penalty", 0)],
)
def test_sampling_out_of_range_is_refused(faults: Faults, key: str, value: float) -> None:
    assert faults(probe_sampling={key: value}) == {("bad_value", f"probe_sampling.{key}")}


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"thinking_start_place": "output"}, "thinking_start"),
        ({"uses_chat_template": False, "template_options": {"a": 1}}, "template_options"),
        ({"uses_chat_template": False, "instruction_place": "system"}, "instruction_place"),
        ({"engine": {"max_model_len": 1000}}, "thinking_token_limit"),
    ],
)
def test_keys_that_contradict_each_other(faults: Faults, changes: dict[str, Any], key: str) -> None:
    assert {column for _, column in faults(**changes)} == {key}


@pytest.mark.parametrize(
    ("text", "row", "message"),
    [
        ("name: [", 1, "is not YAML"),
        ("name: a\nname: b\n", 2, "the key 'name' appears twice"),
        ("sampling:\n  top_p: 1\n  top_p: 0.5\n", 3, "the key 'top_p' appears twice"),
        ("- a\n", None, "does not hold"),
        ("", None, "does not hold"),
        ("name: !!python/object/apply:os.getcwd []\n", 1, "is not YAML"),
        ("a: &a [*a]\n", None, "has problems"),
    ],
)
def test_files_that_are_no_profile(tmp_path: Path, text: str, row: int | None, message: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError) as raised:
        read_profile(path)
    assert message in raised.value.problems[0].message or message in raised.value.detail
    assert raised.value.problems[0].row == row


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read"):
        read_profile(tmp_path / "none.yaml")
    (tmp_path / "large.yaml").write_bytes(b"#" * 300_000)
    with pytest.raises(ProfileError, match="cannot be read"):
        read_profile(tmp_path / "large.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match="cannot be read"):
        read_profile(tmp_path / "binary.yaml")


def test_every_key_is_documented() -> None:
    documented = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
    keys = {*PROFILE_KEYS, "format", *SAMPLING_DEFAULTS, *ENGINE_DEFAULTS}
    assert [key for key in sorted(keys) if f"`{key}`" not in documented] == []


def test_the_documented_profile_is_sound() -> None:
    documented = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
    examples = [part.split("```", 1)[0] for part in documented.split("```yaml\n")[1:]]
    assert len(examples) >= 2
    for text in examples:
        assert parse_profile(text, source="docs/profiles.md").thinking_token_limit > 0
