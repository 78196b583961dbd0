"""Model profiles: how a model is asked, where its thinking begins and ends, how it samples, how it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from app.errors import ContentError
from app.files.problems import ProblemCollector, suggest
from app.files.profile_checks import PROFILE_FORMAT, check_profile, fill_defaults

PROFILE_FOLDER = Path(__file__).parent / "data" / "profiles"
MAX_PROFILE_BYTES = 256 * 1024


class UnknownModelError(ContentError):
    """No profile is known for a model, so nothing says how to ask it or where its thinking ends."""

    code = "unknown_model_profile"
    title = "There is no profile for the model"


class ProfileError(ContentError):
    """A profile has faults; all are listed with their keys."""

    code = "bad_profile"
    title = "The model profile has problems"


@dataclass(frozen=True)
class Profile:
    """What a measurement has to know of a model; `docs/profiles.md` explains each key with an example.

    Attributes
    ----------
    name : the model's name in snapshots.
    repository, revision : where its weights are: a repository of a model hub or a folder, and a commit of it.
    tokenizer : where the tokenizer is, if not in the repository.
    license : of the weights, a note for readers.
    uses_chat_template, template_options, template_date : whether the tokenizer's chat template builds the prompt, with
        which options, and the day that a template's calendar shows, so that prompts do not change from day to day.
    plain_prompt : the prompt where there is no chat template; ``{instruction}`` and ``{question}`` are put in.
    instruction_place : whether the instruction is the system's message or stands before the question.
    extra_instruction : what this model is told after the instruction of the questions.
    thinking_start, thinking_start_place : the text that opens thinking, and whether the prompt ends with it or the
        model writes it.
    thinking_end : the text that ends thinking; its token ids are looked for.
    answer_opening : what follows it before the answer itself.
    boundary_text : a token whose own text holds it ends a block.
    sampling, probe_sampling : `temperature`, `top_p`, `top_k` (0 is off), `min_p`, `presence_penalty` and
        `repetition_penalty`, of thinking and of probes.
    thinking_token_limit, answer_token_limit, probe_token_limit : most new tokens of a thinking, of the answer that
        follows it, and of an answer probe.
    engine : options of the engine, those of `ENGINE_DEFAULTS`, all present.
    """

    name: str
    repository: str
    revision: str | None
    tokenizer: str | None
    license: str | None
    uses_chat_template: bool
    template_options: dict[str, Any]
    template_date: str
    plain_prompt: str
    instruction_place: Literal["system", "user"]
    extra_instruction: str
    thinking_start: str
    thinking_start_place: Literal["prompt", "output"]
    thinking_end: str
    answer_opening: str
    boundary_text: str
    sampling: dict[str, float]
    probe_sampling: dict[str, float]
    thinking_token_limit: int
    answer_token_limit: int
    probe_token_limit: int
    engine: dict[str, Any]


class _StrictLoader(yaml.SafeLoader):
    """Plain values only, and no key twice: YAML itself would let the later one win in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for place, key in enumerate(keys):
            if key in keys[:place]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} appears twice", node.value[place][0].start_mark
                )
        return super().construct_mapping(node, deep)


def build_profile(document: Mapping[str, Any]) -> Profile:
    """Return the profile of a document, its optional keys filled with their defaults.

    Raises
    ------
    ProfileError : unknown or missing keys, wrong values; every fault is listed with its key.
    """
    problems = ProblemCollector()
    check_profile(document, problems)
    if problems:
        name = document.get("name") or "without a name"
        raise ProfileError(f"the profile {name} has problems", problems=problems.problems())
    return Profile(**fill_defaults(document))


def profile_document(profile: Profile) -> dict[str, Any]:
    """Return a profile as the plain document it is stored as; `build_profile` makes the same profile of it."""
    return {"format": PROFILE_FORMAT, **asdict(profile)}


def parse_profile(text: str, *, source: str) -> Profile:
    """Return the profile of a YAML text; `source` names it in errors.

    Raises
    ------
    ProfileError : what is no YAML mapping, a key given twice, or any fault of its keys.
    """
    problems = ProblemCollector()
    document: Any = None
    try:
        document = yaml.load(text, Loader=_StrictLoader)  # a subclass of the safe loader
    except (yaml.YAMLError, RecursionError, ValueError) as exc:
        problems.add("unreadable_file", f"{source} is not YAML: {_describe(exc)}", row=_find_row(exc))
    if not problems and not isinstance(document, dict):
        problems.add("unreadable_file", f"{source} does not hold `key: value` lines")
    if problems:
        raise ProfileError(f"{source} cannot be read", problems=problems.problems())
    return build_profile(document)


def read_profile(path: Path) -> Profile:
    """Return the profile in a YAML file.

    Raises
    ------
    ProfileError : as for `parse_profile`, or a file that cannot be opened.
    """
    problems = ProblemCollector()
    try:
        raw = path.read_bytes()
        if len(raw) > MAX_PROFILE_BYTES:
            raise ValueError(f"it has more than {MAX_PROFILE_BYTES} bytes")
        text = raw.decode("utf-8-sig")
    except (OSError, ValueError) as exc:
        problems.add("unreadable_file", f"{path} cannot be read: {_describe(exc)}")
        raise ProfileError(f"{path} cannot be read", problems=problems.problems()) from exc
    return parse_profile(text, source=path.name)


@cache
def list_profiles() -> tuple[Profile, ...]:
    """Return the profiles that are shipped, by name."""
    return tuple(sorted((read_profile(path) for path in PROFILE_FOLDER.glob("*.yaml")), key=lambda p: p.name))


def find_profile(name: str) -> Profile | None:
    """Return the shipped profile with this name or repository, upper and lower case alike; None if there is none."""
    wanted = name.strip().casefold()
    for profile in list_profiles():
        if wanted in (profile.name.casefold(), profile.repository.casefold()):
            return profile
    return None


def get_profile(name: str) -> Profile:
    """Return the shipped profile with this name or repository.

    Raises
    ------
    UnknownModelError : there is none; the message says how to write one, with the nearest names.
    """
    profile = find_profile(name)
    if profile is None:
        known = [label for p in list_profiles() for label in (p.name, p.repository)]
        raise UnknownModelError(
            f"there is no profile for the model {name!r}{suggest(name, known).rstrip('?')}. A profile is a YAML file "
            "that says how the model is asked and where its thinking ends: copy `generic`, or the one nearest to the "
            "model, change it as docs/profiles.md describes, and name the file instead of the model. "
            f"Known: {', '.join(p.name for p in list_profiles())}"
        )
    return profile


def _describe(exc: Exception) -> str:
    if isinstance(exc, yaml.MarkedYAMLError) and exc.problem:
        return exc.problem
    lines = str(exc).splitlines()
    return lines[0] if lines else type(exc).__name__


def _find_row(exc: Exception) -> int | None:
    mark = getattr(exc, "problem_mark", None)
    return None if mark is None else int(mark.line) + 1


PROFILE_KEYS = tuple(field.name for field in fields(Profile))
