"""What a measuring worker works with when nothing is replaced: vLLM here or on a server, tokenizers, the grader."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from app.files.profiles import Profile
from worker.engine import open_engine
from worker.generation import Engine
from worker.grading import open_grader
from worker.measuring import Equipment
from worker.prompts import PromptBuilder, build_prompts
from worker.server_engine import ServerEngine
from worker.tokenizers import load_tokenizer

# Read from the environment by the command: it is a secret, and no option.
API_KEY_VARIABLE = "OTBOARD_ENGINE_API_KEY"


def local_equipment() -> Equipment:
    """Return what loads each model here with vLLM."""
    return Equipment(
        open_engine=_open_vllm, open_prompts=_open_prompts, open_grader=open_grader, versions=_list_versions()
    )


def server_equipment(url: str, *, served_model: str | None = None, api_key: str | None = None) -> Equipment:
    """Return what generates on an OpenAI-compatible server that takes token ids; tokenizers are read here.

    Parameters
    ----------
    served_model : the server's name for the model; None where it serves one only.
    """

    def open_server(profile: Profile) -> Engine:
        return ServerEngine(url, model=served_model, api_key=api_key)

    return Equipment(
        open_engine=open_server, open_prompts=_open_prompts, open_grader=open_grader, versions=_list_versions()
    )


def _open_vllm(profile: Profile) -> Engine:
    return open_engine(profile.repository, profile.engine, revision=profile.revision)


def _open_prompts(profile: Profile) -> PromptBuilder:
    return build_prompts(profile, load_tokenizer(profile))


def _list_versions() -> dict[str, str]:
    found = {}
    for package in ("otboard", "tokenizers", "transformers"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
