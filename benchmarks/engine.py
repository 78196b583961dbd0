"""Times the engine against bare `LLM.generate` on the same prompts, and counts what the prefix cache served.

Run ``python -m benchmarks.engine MODEL_FOLDER`` where vLLM is installed (docs/worker.md). The prompts are those of a
measurement: trajectories of random tokens, cut every `--step-tokens`, each position probed `--probes` times. Three
sides generate from them in turns, each time from an empty cache, and must give the same tokens in the end, or it exits
1: our engine; bare `LLM.generate` with the requests in our order, which is what our code adds to; and bare
`LLM.generate` with the requests position by position, as they come, which shows what the order is worth. Seconds are
processor time of this process, in which the model runs as well; the least of the repeats counts.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from worker.engine import VllmEngine
from worker.generation import Completion, Request, Sampling
from worker.ordering import order_by_shared_prefix
from worker.seeds import derive_seed

QUESTION_TOKENS = 60


@dataclass(frozen=True)
class Side:
    """What one way of generating took, and what its cache served."""

    seconds: float
    cached_share: float
    tokens: tuple[tuple[int, ...], ...]


def draw_requests(arguments: argparse.Namespace, *, n_vocabulary: int) -> list[Request]:
    """Return the probes of a question: position by position, trajectory by trajectory."""
    rng = random.Random(20260721)
    question = tuple(rng.randrange(n_vocabulary) for _ in range(QUESTION_TOKENS))
    requests = []
    for trajectory in range(arguments.trajectories):
        thinking = tuple(rng.randrange(n_vocabulary) for _ in range(arguments.thinking_tokens))
        for position, kept in enumerate(range(0, len(thinking) + 1, arguments.step_tokens)):
            for probe in range(arguments.probes):
                seed = derive_seed(
                    snapshot="benchmark",
                    model="any",
                    benchmark="random",
                    question="q",
                    trajectory=trajectory,
                    phase="probe",
                    position=position,
                    probe=probe,
                )
                requests.append(
                    Request((*question, *thinking[:kept], 2), arguments.new_tokens, seed, Sampling(temperature=0.6))
                )
    # Position by position over all trajectories, the order in which one would write the loops down.
    return sorted(requests, key=lambda request: len(request.prompt))


def run_ours(engine: VllmEngine, requests: list[Request]) -> list[Completion]:
    """Generate through our engine."""
    return engine.generate(requests)


def run_bare(engine: VllmEngine, requests: list[Request]) -> list[Completion]:
    """Generate with `LLM.generate`, in the order given; what it returns is read after the clock has stopped."""
    llm = engine._llm
    llm.reset_prefix_cache()
    params = [engine._params(request) for request in requests]
    prompts = [{"prompt_token_ids": list(request.prompt)} for request in requests]
    outputs: list[Any] = llm.generate(prompts, params, use_tqdm=False)
    return [
        Completion(tuple(output.outputs[0].token_ids), None, "length", output.num_cached_tokens) for output in outputs
    ]


def time_side(
    run: Callable[[VllmEngine, list[Request]], list[Completion]], engine: VllmEngine, requests: list[Request]
) -> Side:
    """Return what one run took."""
    started = time.process_time()
    completions = run(engine, requests)
    seconds = time.process_time() - started
    cached = sum(completion.cached_tokens or 0 for completion in completions)
    asked = sum(len(request.prompt) for request in requests)
    return Side(seconds, cached / asked, tuple(completion.tokens for completion in completions))


def best(sides: list[Side]) -> Side:
    """Return the fastest of the repeats, after checking that all gave the same tokens."""
    if len({side.tokens for side in sides}) != 1:
        raise SystemExit("the repeats of one side gave different tokens")
    return min(sides, key=lambda side: side.seconds)


def main() -> int:
    """Print what each side took, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="a model's folder")
    parser.add_argument("--trajectories", type=int, default=4)
    parser.add_argument("--thinking-tokens", type=int, default=256)
    parser.add_argument("--step-tokens", type=int, default=64)
    parser.add_argument("--probes", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    config = json.loads((arguments.model / "config.json").read_text())
    options = {"dtype": "float32", "max_model_len": 2048, "enforce_eager": True}
    engine = VllmEngine(str(arguments.model), options)
    requests = draw_requests(arguments, n_vocabulary=int(config["vocab_size"]))
    order = order_by_shared_prefix([request.prompt for request in requests])
    ordered = [requests[idx] for idx in order]
    time_side(run_ours, engine, requests[:8])
    sides: dict[str, list[Side]] = {"ours": [], "bare, our order": [], "bare, as they come": []}
    for _ in range(arguments.repeats):
        sides["bare, our order"].append(time_side(run_bare, engine, ordered))
        sides["ours"].append(time_side(run_ours, engine, requests))
        sides["bare, as they come"].append(time_side(run_bare, engine, requests))
    result = {name: best(repeats) for name, repeats in sides.items()}
    engine.close()
    if [result["ours"].tokens[idx] for idx in order] != list(result["bare, our order"].tokens):
        sys.stderr.write("our engine and bare LLM.generate gave different tokens\n")
        return 1
    write(result, requests, as_json=arguments.format == "json")
    return 0


def write(result: dict[str, Side], requests: list[Request], *, as_json: bool) -> None:
    """Write the figures as a table or as one JSON document."""
    ratio = result["ours"].seconds / result["bare, our order"].seconds
    if as_json:
        rows = {
            name: {key: value for key, value in asdict(side).items() if key != "tokens"}
            for name, side in result.items()
        }
        document = {"n_requests": len(requests), "sides": rows, "ratio": ratio}
        sys.stdout.write(json.dumps(document, indent=2) + "\n")
        return
    n_tokens = sum(len(request.prompt) for request in requests)
    sys.stdout.write(f"{len(requests)} requests, {n_tokens} prompt tokens\n")
    for name, side in result.items():
        sys.stdout.write(f"{name:20} {side.seconds:8.3f} s, {side.cached_share:6.1%} of prompt tokens cached\n")
    sys.stdout.write(f"ours / bare in our order: {ratio:.4f}\n")


if __name__ == "__main__":
    sys.exit(main())
