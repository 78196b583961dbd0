"""The keys of a model profile: which there are, what each may hold, and what it is where it is left out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from app.files.manifest import is_plain_name
from app.files.problems import ProblemCollector, suggest

PROFILE_FORMAT = "otboard-profile/1"
MAX_TOKENS = 2**24
MAX_TEXT = 20_000

SAMPLING_DEFAULTS: dict[str, float] = {
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "presence_penalty": 0.0,
    "repetition_penalty": 1.0,
}
ENGINE_DEFAULTS: dict[str, Any] = {
    "dtype": "bfloat16",
    "quantization": None,
    "kv_cache_dtype": None,
    "max_model_len": None,
    "gpu_memory_utilization": 0.9,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": None,
    "max_num_batched_tokens": None,
    "max_num_seqs": None,
    "enforce_eager": False,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "distributed_executor_backend": None,
    "batch_invariant": False,
}
DEFAULT_PLAIN_PROMPT = "{instruction}\n\n{question}\n\n"


@dataclass(frozen=True)
class Rule:
    """What a value must satisfy, in code and in words."""

    accepts: Callable[[Any], bool]
    expected: str


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= MAX_TOKENS


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= MAX_TEXT and "\0" not in value and _is_encodable(value)


def _is_encodable(text: str) -> bool:
    return not any(0xD800 <= ord(character) <= 0xDFFF for character in text)


def _is_filled_text(value: Any) -> bool:
    return _is_text(value) and value != ""


def _is_day(value: Any) -> bool:
    if type(value) is date:  # YAML reads an unquoted day as one
        return True
    try:
        return isinstance(value, str) and date.fromisoformat(value).isoformat() == value
    except ValueError:
        return False


def _is_plain_options(value: Any) -> bool:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        return False
    try:
        return len(json.dumps(value, allow_nan=False)) <= MAX_TEXT
    except (TypeError, ValueError, RecursionError):
        return False


def _is_prompt(value: Any) -> bool:
    return _is_text(value) and value.count("{question}") == 1 and value.count("{instruction}") <= 1


_NAME = Rule(is_plain_name, "a name of 1 to 200 characters without line breaks or blanks at its ends")
_TEXT = Rule(_is_text, f"a text of at most {MAX_TEXT} characters")
_FILLED = Rule(_is_filled_text, "a text that is not empty")
_FLAG = Rule(lambda v: isinstance(v, bool), "true or false")
_COUNT = Rule(_is_count, f"a whole number from 1 to {MAX_TOKENS}")
_MAPPING = Rule(lambda v: isinstance(v, Mapping), "a mapping of `key: value` lines")


def _choice(*choices: str) -> Rule:
    return Rule(lambda v: v in choices, f"one of {', '.join(choices)}")


_REQUIRED: dict[str, Rule] = {
    "format": Rule(lambda v: v == PROFILE_FORMAT, PROFILE_FORMAT),
    "name": _NAME,
    "repository": _NAME,
    "thinking_end": _FILLED,
    "thinking_token_limit": _COUNT,
}
_OPTIONAL: dict[str, tuple[Rule, Any]] = {
    "revision": (_NAME, None),
    "tokenizer": (_NAME, None),
    "license": (_TEXT, None),
    "uses_chat_template": (_FLAG, True),
    "template_options": (Rule(_is_plain_options, "a mapping of plain values"), {}),
    "template_date": (Rule(_is_day, "a day as in 2026-01-31"), "2026-01-01"),
    "plain_prompt": (Rule(_is_prompt, "a text with {question} once and {instruction} at most once"), None),
    "instruction_place": (_choice("system", "user"), "user"),
    "extra_instruction": (_TEXT, ""),
    "thinking_start": (_TEXT, ""),
    "thinking_start_place": (_choice("prompt", "output"), "prompt"),
    "answer_opening": (_TEXT, ""),
    "boundary_text": (_FILLED, "\n\n"),
    "sampling": (_MAPPING, {}),
    "probe_sampling": (_MAPPING, None),
    "answer_token_limit": (_COUNT, None),
    "probe_token_limit": (_COUNT, 4096),
    "engine": (_MAPPING, {}),
}
_SAMPLING: dict[str, Rule] = {
    "temperature": Rule(lambda v: _is_number(v) and 0 <= v <= 100, "a number from 0 (the likeliest token) to 100"),
    "top_p": Rule(lambda v: _is_number(v) and 0 < v <= 1, "a number above 0 and at most 1"),
    "top_k": Rule(
        lambda v: isinstance(v, int) and not isinstance(v, bool) and 0 <= v <= MAX_TOKENS,
        "a whole number from 0 (every token)",
    ),
    "min_p": Rule(lambda v: _is_number(v) and 0 <= v <= 1, "a number from 0 to 1"),
    "presence_penalty": Rule(lambda v: _is_number(v) and -2 <= v <= 2, "a number from -2 to 2"),
    "repetition_penalty": Rule(lambda v: _is_number(v) and 0 < v <= 2, "a number above 0 and at most 2"),
}
_ENGINE: dict[str, Rule] = {
    "dtype": _choice("auto", "bfloat16", "float16", "float32"),
    "quantization": _NAME,
    "kv_cache_dtype": _NAME,
    "max_model_len": _COUNT,
    "gpu_memory_utilization": Rule(lambda v: _is_number(v) and 0 < v <= 1, "a number above 0 and at most 1"),
    "enable_prefix_caching": _FLAG,
    "enable_chunked_prefill": _FLAG,
    "max_num_batched_tokens": _COUNT,
    "max_num_seqs": _COUNT,
    "enforce_eager": _FLAG,
    "tensor_parallel_size": _COUNT,
    "pipeline_parallel_size": _COUNT,
    "data_parallel_size": _COUNT,
    "distributed_executor_backend": _choice("mp", "ray", "uni", "external_launcher"),
    "batch_invariant": _FLAG,
}


def check_profile(document: Any, problems: ProblemCollector) -> None:
    """Record every fault of a profile's document, with its key as the column."""
    if not isinstance(document, Mapping):
        problems.add("bad_value", "a profile is a mapping of `key: value` lines")
        return
    known = (*_REQUIRED, *_OPTIONAL)
    _refuse_unknown(document, known, problems)
    for key, rule in _REQUIRED.items():
        if document.get(key) is None:
            problems.add("missing_key", f"the profile has no {key!r}; expected: {rule.expected}", column=key)
        else:
            _check(document[key], rule, key, problems)
    for key, (rule, _) in _OPTIONAL.items():
        if document.get(key) is not None:
            _check(document[key], rule, key, problems)
    for section, rules in (("sampling", _SAMPLING), ("probe_sampling", _SAMPLING), ("engine", _ENGINE)):
        values = document.get(section)
        if isinstance(values, Mapping):
            _refuse_unknown(values, tuple(rules), problems, section=section)
            for key, rule in rules.items():
                if values.get(key) is not None:
                    _check(values[key], rule, f"{section}.{key}", problems)
    _check_together(document, problems)


def fill_defaults(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return every key of a profile without faults but `format`, with its default where it is left out or null."""
    filled = {key: document[key] for key in _REQUIRED if key != "format"}
    for key, (_, default) in _OPTIONAL.items():
        value = document.get(key)
        filled[key] = default if value is None else value
    filled["template_options"] = dict(filled["template_options"])
    filled["template_date"] = str(filled["template_date"])
    filled["plain_prompt"] = filled["plain_prompt"] or DEFAULT_PLAIN_PROMPT
    filled["sampling"] = _fill(filled["sampling"], SAMPLING_DEFAULTS)
    # Probes sample as thinking does, save what they say themselves.
    filled["probe_sampling"] = _fill(filled["probe_sampling"] or {}, filled["sampling"])
    filled["answer_token_limit"] = filled["answer_token_limit"] or filled["probe_token_limit"]
    filled["engine"] = _fill(filled["engine"], ENGINE_DEFAULTS)
    return filled


def _fill(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    return {key: default if values.get(key) is None else values[key] for key, default in defaults.items()}


def _check_together(document: Mapping[str, Any], problems: ProblemCollector) -> None:
    """Record what is right key by key and wrong together."""
    if document.get("thinking_start_place") == "output" and not document.get("thinking_start"):
        problems.add(
            "missing_key",
            "thinking_start is empty, but thinking_start_place says that the model writes it",
            column="thinking_start",
        )
    if document.get("uses_chat_template") is False and document.get("template_options"):
        problems.add("bad_value", "template_options are of no use without a chat template", column="template_options")
    if document.get("uses_chat_template") is False and document.get("instruction_place") == "system":
        problems.add("bad_value", "there is no system message without a chat template", column="instruction_place")
    engine = document.get("engine")
    context: Any = engine.get("max_model_len") if isinstance(engine, Mapping) else None
    limit: Any = document.get("thinking_token_limit")
    if _is_count(context) and _is_count(limit) and limit >= context:
        problems.add(
            "bad_value",
            f"thinking_token_limit is {limit}, but the context of engine.max_model_len holds {context} tokens in all",
            column="thinking_token_limit",
        )


def _refuse_unknown(
    values: Mapping[Any, Any], known: tuple[str, ...], problems: ProblemCollector, *, section: str | None = None
) -> None:
    for key in values:
        if key not in known:
            place = f"{section}.{key}" if section else str(key)
            problems.add("unknown_key", f"the key {place!r} is not known{suggest(str(key), known)}", column=place)


def _check(value: Any, rule: Rule, place: str, problems: ProblemCollector) -> None:
    if not rule.accepts(value):
        problems.add("bad_value", f"{place} is {_show(value)}; expected: {rule.expected}", column=place)


def _show(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 80 else text[:77] + "..."
