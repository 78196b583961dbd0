"""What of a profile reaches vLLM; the engine itself is tested where vLLM is installed."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from worker.engine import CPU_CACHE_BYTES, VllmEngine, build_arguments
from worker.generation import EngineError

OPTIONS: dict[str, Any] = {
    "dtype": "bfloat16",
    "quantization": None,
    "max_model_len": 4096,
    "gpu_memory_utilization": 0.9,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": None,
    "max_num_batched_tokens": 2048,
    "tensor_parallel_size": 2,
    "pipeline_parallel_size": 4,
    "data_parallel_size": 1,
    "distributed_executor_backend": "ray",
    "batch_invariant": True,
}
ALWAYS = {"skip_tokenizer_init": True, "generation_config": "vllm", "logprobs_mode": "raw_logprobs", "seed": 0}


def test_parallel_sizes_and_the_ray_executor_are_passed_through() -> None:
    assert build_arguments(OPTIONS, is_cpu=False) == ALWAYS | {
        "dtype": "bfloat16",
        "max_model_len": 4096,
        "gpu_memory_utilization": 0.9,
        "enable_prefix_caching": True,
        "max_num_batched_tokens": 2048,
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 4,
        "distributed_executor_backend": "ray",
    }


def test_prefixes_are_cached_unless_a_profile_says_otherwise() -> None:
    assert build_arguments({}, is_cpu=False)["enable_prefix_caching"] is True
    assert build_arguments({"enable_prefix_caching": False}, is_cpu=False)["enable_prefix_caching"] is False


def test_a_cpu_takes_whole_prompts_and_a_cache_of_fixed_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_CPU_KVCACHE_SPACE", raising=False)
    arguments = build_arguments(OPTIONS, is_cpu=True)
    assert arguments["enable_chunked_prefill"] is False
    assert arguments["kv_cache_memory_bytes"] == CPU_CACHE_BYTES
    assert arguments["block_size"] == 32
    # A share of the memory is meant for a GPU, and a batch below the context would not hold a whole prompt.
    assert not arguments.keys() & {"gpu_memory_utilization", "max_num_batched_tokens"}
    assert (
        build_arguments({"max_num_batched_tokens": 8192, "max_model_len": 4096}, is_cpu=True)["max_num_batched_tokens"]
        == 8192
    )
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "4")
    assert "kv_cache_memory_bytes" not in build_arguments(OPTIONS, is_cpu=True)
    assert build_arguments(OPTIONS, is_cpu=True, cache_bytes=123)["kv_cache_memory_bytes"] == 123


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed here")
def test_without_vllm_the_error_says_where_to_read() -> None:
    with pytest.raises(EngineError, match=r"vllm cannot be imported .* docs/worker.md"):
        VllmEngine("any", {})
