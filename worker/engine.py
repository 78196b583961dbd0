"""vLLM in this process: the only module that imports vllm or torch, and it does so when an engine is opened.

What makes two runs give the same tokens is chosen here: the scheduler runs in this process, so that batches do not
depend on when a message arrives; each call begins with an empty prefix cache; the batch-invariant kernels are switched
on where a profile asks for them and the platform has them. `describe` says which of these held.
"""

from __future__ import annotations

import functools
import gc
import importlib
import logging
import os
import platform
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from worker.generation import BARRED, Completion, Engine, EngineError, Request, sampling_arguments
from worker.ordering import Prompt, order_by_shared_prefix
from worker.replicas import GPUS_VARIABLE, ReplicatedEngine, list_environments

logger = logging.getLogger(__name__)

GIBIBYTE = 2**30
# vLLM on a CPU counts its cache in whole GiB of this variable; without it a small model gets this much.
CPU_CACHE_VARIABLE = "VLLM_CPU_KVCACHE_SPACE"
CPU_CACHE_BYTES = GIBIBYTE
# The default on a CPU is 128, of which a short trajectory fills few, and only whole blocks are found again.
CPU_BLOCK_TOKENS = 32
BATCH_INVARIANT_VARIABLE = "VLLM_BATCH_INVARIANT"
IN_PROCESS_VARIABLE = "VLLM_ENABLE_V1_MULTIPROCESSING"
# The engine reports its use to nobody, and its scheduler runs here unless the operator has said otherwise.
ENVIRONMENT = {"VLLM_NO_USAGE_STATS": "1", "VLLM_DO_NOT_TRACK": "1", IN_PROCESS_VARIABLE: "0"}


class VllmEngine:
    """One vLLM engine over the GPUs of its tensor and pipeline parallel groups, or over the CPU.

    Parameters
    ----------
    model : a repository of a model hub, or a folder.
    options : the profile's `engine`; None leaves a choice to vLLM.
    revision : a commit of the repository.
    cache_bytes : memory for cached tokens; None leaves it to `gpu_memory_utilization`, and on a CPU to
        ``VLLM_CPU_KVCACHE_SPACE`` or 1 GiB.
    """

    def __init__(
        self, model: str, options: Mapping[str, Any], *, revision: str | None = None, cache_bytes: int | None = None
    ) -> None:
        for name, value in ENVIRONMENT.items():
            os.environ.setdefault(name, value)
        self._wants_invariance = bool(options.get("batch_invariant", False))
        os.environ[BATCH_INVARIANT_VARIABLE] = "1" if self._wants_invariance else "0"
        self._vllm = _import("vllm")
        self._platform = _import("vllm.platforms").current_platform
        self._arguments = build_arguments(options, is_cpu=self._platform.is_cpu(), cache_bytes=cache_bytes)
        if self._platform.is_cpu():
            _spare_llvmlite()
        try:
            self._llm = self._vllm.LLM(model, revision=revision, **self._arguments)
        except Exception as exc:
            raise EngineError(f"vLLM could not load {model}: {_first_line(exc)}") from exc

    def generate(
        self, requests: Sequence[Request], *, progress: Callable[[int], None] | None = None
    ) -> list[Completion]:
        """Return one completion a request, in the order of the requests."""
        outputs = self._run(
            [request.prompt for request in requests], [self._params(request) for request in requests], progress=progress
        )
        return [_read_completion(output) for output in outputs]

    def measure_end_margins(self, prompts: Sequence[Prompt], *, end_token: int) -> list[float]:
        """Return log p(likeliest other token) − log p(`end_token`) of the token after each prompt.

        The likeliest other token is what greedy decoding takes when `end_token` is barred. Both log-probabilities are
        taken before the bar and before any other change to the distribution.
        """
        params = self._vllm.SamplingParams(
            temperature=0.0,
            max_tokens=1,
            logit_bias={end_token: BARRED},
            logprobs=1,
            logprob_token_ids=[end_token],
            ignore_eos=True,
            detokenize=False,
        )
        outputs = self._run(prompts, [params] * len(prompts))
        return [_read_margin(output, end_token) for output in outputs]

    def describe(self) -> dict[str, str]:
        """Return the versions and choices that the figures depend on."""
        has_invariance = self._wants_invariance and not self._platform.is_cpu()
        chosen = {name: str(value) for name, value in sorted(self._arguments.items()) if name not in _OWN}
        return chosen | {
            "engine": "vllm",
            "vllm": str(self._vllm.__version__),
            "torch": str(_import("torch").__version__),
            "python": platform.python_version(),
            "device": str(self._platform.get_device_name() if not self._platform.is_cpu() else platform.machine()),
            "platform": str(self._platform.device_name),
            "scheduler": "in process" if os.environ[IN_PROCESS_VARIABLE] == "0" else "in a process of its own",
            "batch_invariant": "yes" if has_invariance else "not on this platform" if self._wants_invariance else "no",
        }

    def close(self) -> None:
        """Free the memory and the processes that the engine holds."""
        core = self._llm.llm_engine.engine_core
        del self._llm
        core.shutdown()
        del core
        gc.collect()
        _import("vllm.distributed").cleanup_dist_env_and_memory()

    def _params(self, request: Request) -> Any:
        return self._vllm.SamplingParams(
            **sampling_arguments(request.sampling),
            seed=request.seed,
            max_tokens=request.max_tokens,
            stop_token_ids=list(request.stop_tokens),
            ignore_eos=True,
            detokenize=False,
        )

    def _run(
        self, prompts: Sequence[Prompt], params: Sequence[Any], *, progress: Callable[[int], None] | None = None
    ) -> list[Any]:
        """Return the outputs in the order of the prompts, generated in the order that shares most."""
        if not prompts:
            return []
        self._refuse_unknown_tokens(prompts)
        self._llm.reset_prefix_cache()
        order = order_by_shared_prefix(prompts)
        texts = [{"prompt_token_ids": list(prompts[idx])} for idx in order]
        try:
            ids = self._llm.enqueue(texts, [params[idx] for idx in order], use_tqdm=False)
        except Exception as exc:
            raise EngineError(f"vLLM refused a request: {_first_line(exc)}") from exc
        outputs: list[Any] = [None] * len(order)
        for idx, output in zip(order, self._finish(ids, progress), strict=True):
            outputs[idx] = output
        return outputs

    def _refuse_unknown_tokens(self, prompts: Sequence[Prompt]) -> None:
        """Without a tokenizer vLLM takes any id, and one beyond the vocabulary would bring a GPU down."""
        n_tokens = int(self._llm.model_config.get_vocab_size())
        for prompt in set(prompts):
            if not 0 <= min(prompt) <= max(prompt) < n_tokens:
                raise EngineError(
                    f"a prompt holds the tokens {min(prompt)} to {max(prompt)}, and the model knows 0 to "
                    f"{n_tokens - 1}: is the tokenizer that of the model?"
                )

    def _finish(self, ids: Sequence[str], progress: Callable[[int], None] | None) -> list[Any]:
        """Step until all is generated; what raises meanwhile, a stopped run say, leaves no request in the engine."""
        core = self._llm.llm_engine
        finished: list[Any] = []
        try:
            while core.has_unfinished_requests():
                n_before = len(finished)
                finished += [output for output in _step(core) if output.finished]
                if progress is not None and len(finished) > n_before:
                    progress(len(finished))
        except BaseException:
            core.abort_request(list(ids), internal=True)
            raise
        return sorted(finished, key=lambda output: int(output.request_id))


def open_engine(model: str, options: Mapping[str, Any], *, revision: str | None = None) -> Engine:
    """Return the engine of a profile: here, or in as many processes as its `data_parallel_size`."""
    if int(options.get("data_parallel_size", 1)) == 1:
        return VllmEngine(model, options, revision=revision)
    open_replica = functools.partial(VllmEngine, model, dict(options), revision=revision)
    return ReplicatedEngine(open_replica, list_environments(options, visible=os.environ.get(GPUS_VARIABLE)))


# Arguments that are the same for every run of this code, so that the manifest need not list them.
_OWN = {
    "skip_tokenizer_init": True,
    "generation_config": "vllm",
    "logprobs_mode": "raw_logprobs",
    "seed": 0,
}


def build_arguments(options: Mapping[str, Any], *, is_cpu: bool, cache_bytes: int | None = None) -> dict[str, Any]:
    """Return vLLM's arguments for a profile's `engine` options."""
    arguments = {
        name: value
        for name, value in options.items()
        if value is not None and name not in {"batch_invariant", "data_parallel_size"}
    }
    if cache_bytes is not None:
        arguments["kv_cache_memory_bytes"] = cache_bytes
    if is_cpu:
        _adapt_to_cpu(arguments)
    return {"enable_prefix_caching": True} | arguments | _OWN


def _adapt_to_cpu(arguments: dict[str, Any]) -> None:
    """Leave out what is meant for a GPU; a prompt goes in whole, since seeds fail with pieces of prompts on a CPU."""
    arguments.pop("gpu_memory_utilization", None)
    arguments["enable_chunked_prefill"] = False
    arguments.setdefault("block_size", CPU_BLOCK_TOKENS)
    if arguments.get("max_num_batched_tokens", 0) < arguments.get("max_model_len", 1):
        arguments.pop("max_num_batched_tokens", None)
    if not os.environ.get(CPU_CACHE_VARIABLE):
        arguments.setdefault("kv_cache_memory_bytes", CPU_CACHE_BYTES)


def _step(core: Any) -> list[Any]:
    try:
        outputs: list[Any] = core.step()
    except Exception as exc:
        raise EngineError(f"vLLM could not generate: {_first_line(exc)}") from exc
    return outputs


def _spare_llvmlite() -> None:
    """Let vLLM look for kernels in every object of every module, as its CPU build does at the start.

    The library of llvmlite, which numba has loaded by then, answers to any name, `__dict__` too, with a function of its
    own, on which that search fails.
    """
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    functions = getattr(library, "_fntab", None)
    if isinstance(functions, dict):
        functions.setdefault("__dict__", {})


def _read_completion(output: Any) -> Completion:
    """Return a completion without the stop token that vLLM leaves at its end."""
    (made,) = output.outputs
    tokens = tuple(made.token_ids)
    if made.finish_reason == "length":
        return Completion(tokens, stop_token=None, reason="length", cached_tokens=output.num_cached_tokens)
    if made.finish_reason != "stop":
        raise EngineError(f"vLLM ended a request with {made.finish_reason!r} after {len(tokens)} tokens")
    return Completion(tokens[:-1], stop_token=tokens[-1], reason="stop", cached_tokens=output.num_cached_tokens)


def _read_margin(output: Any, end_token: int) -> float:
    (made,) = output.outputs
    (likeliest,) = made.token_ids
    if likeliest == end_token:
        raise EngineError(f"the model gives no other token than {end_token} any probability")
    (logprobs,) = made.logprobs
    return float(logprobs[likeliest].logprob - logprobs[end_token].logprob)


def _import(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as exc:
        raise EngineError(
            f"{name} cannot be imported ({exc}); docs/worker.md says how to install vLLM for this machine"
        ) from exc


def _first_line(exc: Exception) -> str:
    return (str(exc).strip() or type(exc).__name__).splitlines()[0]
