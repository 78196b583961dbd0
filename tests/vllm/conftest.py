"""A tiny model of a real architecture, made here: random weights, a byte-level tokenizer of a hundred-odd tokens."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from worker.engine import VllmEngine
from worker.server_engine import ServerEngine

# Before anything imports the engine: it reports to nobody, looks nothing up and keeps to this machine. It compiles
# nothing, so that there need not be a compiler, and runs on one thread, since threads that wait for each other are slow
# where something else needs a core.
os.environ.update(
    VLLM_NO_USAGE_STATS="1",
    DO_NOT_TRACK="1",
    HF_HUB_OFFLINE="1",
    TRANSFORMERS_OFFLINE="1",
    VLLM_LOGGING_LEVEL="ERROR",
    VLLM_HOST_IP="127.0.0.1",
    VLLM_CPU_OMP_THREADS_BIND="nobind",
    OMP_NUM_THREADS="1",
    TORCH_COMPILE_DISABLE="1",
)

OPTIONS: dict[str, Any] = {"dtype": "float32", "max_model_len": 1024, "enforce_eager": True}
CACHE_BYTES = 128 * 2**20
STARTING_SECONDS = 600
THINK, END_THINK, TURN, END_TURN = "<think>", "</think>", "<|im_start|>", "<|im_end|>"
SPECIAL = (THINK, END_THINK, TURN, END_TURN)
ENDINGS = ("", ".", "!", "?", ":", ")", ",")
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)


def write_tokenizer(folder: Path) -> int:
    """Write a tokenizer in which every byte of ASCII is a token and a blank line merges with what ends a sentence."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    characters = ["Ċ", "Ġ", *map(chr, range(33, 127))]
    merges = [("Ċ", "Ċ"), *((ending, "ĊĊ") for ending in ENDINGS if ending)]
    words = [*characters, *(ending + "ĊĊ" for ending in ENDINGS)]
    tokenizer = Tokenizer(models.BPE(vocab={word: idx for idx, word in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_TURN,
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return int(tokenizer.get_vocab_size())


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a two-layer Qwen3 with random weights, sharp enough that its tokens differ in probability."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    folder = tmp_path_factory.mktemp("tiny-model")
    n_tokens = write_tokenizer(folder)
    torch.manual_seed(20260721)
    config = Qwen3Config(
        vocab_size=n_tokens,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
        max_position_embeddings=2048,
        initializer_range=0.2,
        tie_word_embeddings=False,
        eos_token_id=n_tokens - 1,
        bos_token_id=None,
        pad_token_id=n_tokens - 1,
    )
    model = Qwen3ForCausalLM(config).to(torch.float32)
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_options() -> dict[str, Any]:
    """The engine options of the tiny model's profile."""
    return OPTIONS


@pytest.fixture(scope="session")
def vllm_engine(tiny_model: Path) -> Iterator[VllmEngine]:
    """The tiny model in vLLM, in this process. A worker has loaded numba by then, which vLLM once failed on."""
    importlib.import_module("numba")
    opened = VllmEngine(str(tiny_model), OPTIONS, cache_bytes=CACHE_BYTES)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def vllm_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("server") / "log"


@pytest.fixture(scope="session")
def vllm_url(tiny_model: Path, vllm_log: Path) -> Iterator[str]:
    """`vllm serve` with the tiny model."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(tiny_model)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--served-model-name", "tiny", "--dtype", "float32"]
    command += ["--max-model-len", "1024", "--enforce-eager", "--kv-cache-memory-bytes", str(CACHE_BYTES)]
    command += ["--block-size", "32", "--no-enable-chunked-prefill", "--enable-prompt-tokens-details"]
    environment = {**os.environ, "PYTHONPATH": f"{_name_distribution(vllm_log.parent)}{os.pathsep}{Path.cwd()}"}
    with vllm_log.open("wb") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_for(url, server, vllm_log)
        yield url
    finally:
        server.terminate()
        server.wait(60)


def _name_distribution(folder: Path) -> Path:
    """Return a folder that says which vLLM is installed: `vllm serve` asks, and the CPU build has another name."""
    version = importlib.metadata.version("vllm-cpu")
    metadata = folder / "distributions" / f"vllm-{version}+cpu.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}+cpu\n")
    return metadata.parent.parent


def _wait_for(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + STARTING_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            if httpx.get(f"{url}/health").is_success:
                return
        except httpx.TransportError:
            time.sleep(0.2)
    pytest.fail(f"the server did not start:\n{log.read_text(errors='replace')[-4000:]}")


@pytest.fixture
def server_engine(vllm_url: str) -> Iterator[ServerEngine]:
    opened = ServerEngine(vllm_url, concurrency=8)
    yield opened
    opened.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What vLLM and its packages warn of is theirs; warnings of this project are errors as everywhere."""
    for item in items:
        for rule in ("default", "error:::app", "error:::worker", "error:::tests"):
            item.add_marker(pytest.mark.filterwarnings(rule))
