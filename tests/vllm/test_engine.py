"""The engine with real vLLM, against the same model in transformers where there is a definition to compare with."""

from __future__ import annotations

from pathlib import Path

import pytest

from worker.engine import VllmEngine
from worker.generation import Completion, EngineError, Request, Sampling
from worker.seeds import derive_seed

GREEDY = Sampling(temperature=0.0)
PROMPT = tuple(range(10, 75))


def seed(trajectory: int) -> int:
    return derive_seed(snapshot="s", model="m", benchmark="b", question="q", trajectory=trajectory, phase="thinking")


def request(
    prompt: tuple[int, ...] = PROMPT,
    *,
    max_tokens: int = 40,
    trajectory: int = 0,
    sampling: Sampling = Sampling(),  # noqa: B008
    stop_tokens: tuple[int, ...] = (),
) -> Request:
    return Request(prompt, max_tokens=max_tokens, seed=seed(trajectory), sampling=sampling, stop_tokens=stop_tokens)


def test_greedy_decoding_is_what_transformers_decodes(vllm_engine: VllmEngine, tiny_model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    prompts = [PROMPT, (5,), (90, 4, 4, 17)]
    answers = vllm_engine.generate([request(prompt, max_tokens=12, sampling=GREEDY) for prompt in prompts])
    for prompt, answer in zip(prompts, answers, strict=True):
        ids = torch.tensor([prompt])
        for _ in range(12):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], dim=1)
        assert answer.tokens == tuple(ids[0, len(prompt) :].tolist())
        assert (answer.reason, answer.stop_token) == ("length", None)


def test_the_same_requests_give_the_same_tokens_whatever_was_generated_between(vllm_engine: VllmEngine) -> None:
    requests = [request(trajectory=trajectory) for trajectory in range(6)]
    first = vllm_engine.generate(requests)
    vllm_engine.generate([request(PROMPT[:40], trajectory=9), request((1, 2, 3), trajectory=8)])
    assert vllm_engine.generate(requests) == first


def test_other_seeds_give_other_tokens(vllm_engine: VllmEngine) -> None:
    answers = vllm_engine.generate([request(trajectory=trajectory) for trajectory in range(8)])
    assert len({answer.tokens for answer in answers}) == 8


def test_generation_stops_at_the_stop_tokens_and_at_nothing_else(vllm_engine: VllmEngine) -> None:
    free = vllm_engine.generate([request(max_tokens=60)])[0]
    assert (len(free.tokens), free.reason, free.stop_token) == (60, "length", None)
    # The first token that comes for the first time after the tenth, so that something stands before it.
    place = next(idx for idx in range(10, 60) if free.tokens[idx] not in free.tokens[:idx])
    stop = free.tokens[place]
    stopped = vllm_engine.generate([request(max_tokens=60, stop_tokens=(stop,))])[0]
    assert stopped == Completion(free.tokens[:place], stop_token=stop, reason="stop", cached_tokens=0)


def test_the_end_of_sequence_token_does_not_stop_unless_asked(vllm_engine: VllmEngine, tiny_model: Path) -> None:
    from transformers import AutoConfig

    end = AutoConfig.from_pretrained(tiny_model).eos_token_id
    answers = vllm_engine.generate([request(max_tokens=200, trajectory=trajectory) for trajectory in range(8)])
    assert all(len(answer.tokens) == 200 for answer in answers)
    assert any(end in answer.tokens for answer in answers)


def test_answers_are_in_the_order_of_the_requests_though_the_longest_runs_first(vllm_engine: VllmEngine) -> None:
    prompts = [PROMPT[:count] for count in (3, 60, 10, 33, 1)]
    together = vllm_engine.generate([request(prompt, max_tokens=4, sampling=GREEDY) for prompt in prompts])
    alone = [vllm_engine.generate([request(prompt, max_tokens=4, sampling=GREEDY)])[0] for prompt in prompts]
    assert [answer.tokens for answer in together] == [answer.tokens for answer in alone]


def test_probes_of_a_trajectory_are_served_from_its_cached_prefix(vllm_engine: VllmEngine) -> None:
    trajectory = tuple(3 + idx * 7 % 90 for idx in range(320))
    # Position by position with four probes each, as a measurement asks them; a block of the cache holds 32 tokens.
    prompts = [(*trajectory[:kept], 2) for kept in range(0, 321, 40) for _ in range(4)]
    requests = [request(prompt, max_tokens=2, trajectory=idx) for idx, prompt in enumerate(prompts)]
    cached = [answer.cached_tokens for answer in vllm_engine.generate(requests)]
    # The longest is computed, all others find every whole block of theirs; the last token is always computed.
    assert cached[-4:] == [0, 320, 320, 320]
    assert cached[:-4] == [len(prompt[:-1]) // 32 * 32 for prompt in prompts[:-4]]


def test_token_ids_go_round_through_the_tokenizer(tiny_model: Path, vllm_engine: VllmEngine) -> None:
    from worker.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(tiny_model)
    text = "What is 2 + 3?\n\nIt is 5.\n\nSo"
    ids = tuple(tokenizer.encode(text))
    assert tokenizer.decode(ids) == text
    answer = vllm_engine.generate([request(ids, max_tokens=30)])[0]
    # Every id generated is one of the vocabulary, and decoding loses none of them.
    texts = tokenizer.token_texts
    assert tokenizer.decode([*ids, *answer.tokens]) == text + "".join(texts[token] for token in answer.tokens)


def test_end_margins_are_those_of_transformers(vllm_engine: VllmEngine, tiny_model: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    prompts = [PROMPT[:count] for count in (1, 2, 5, 20, 33, 64, 65)] + [(7, 7, 7)]
    with torch.no_grad():
        logprobs = [model(torch.tensor([prompt])).logits[0, -1].log_softmax(-1) for prompt in prompts]
    # Any token may stand for the end of thinking: a rare one, and one that is the likeliest somewhere.
    for end in (106, int(logprobs[3].argmax())):
        expected = []
        for row in logprobs:
            others = row.clone()
            others[end] = -torch.inf
            expected.append(float(others.max() - row[end]))
        assert vllm_engine.measure_end_margins(prompts, end_token=end) == pytest.approx(expected, abs=2e-4)
    assert min(expected) < 0 < max(expected)


def test_progress_is_told_and_a_run_that_is_stopped_leaves_nothing_behind(vllm_engine: VllmEngine) -> None:
    told: list[int] = []
    requests = [request(max_tokens=5 + 5 * trajectory, trajectory=trajectory) for trajectory in range(4)]
    first = vllm_engine.generate(requests, progress=told.append)
    assert told == [1, 2, 3, 4]

    def stop(n_done: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        vllm_engine.generate(requests, progress=stop)
    assert vllm_engine.generate(requests) == first
    assert vllm_engine.generate([]) == []


def test_what_vllm_refuses_is_an_error_that_says_why(vllm_engine: VllmEngine) -> None:
    with pytest.raises(EngineError, match="holds the tokens 5 to 1000000, and the model knows 0 to 106"):
        vllm_engine.generate([request((5, 10**6))])
    with pytest.raises(EngineError, match="vLLM refused a request"):
        vllm_engine.generate([request(PROMPT * 20)])
    assert len(vllm_engine.generate([request(max_tokens=3)])[0].tokens) == 3


def test_the_description_names_versions_and_choices(vllm_engine: VllmEngine) -> None:
    said = vllm_engine.describe()
    assert (said["engine"], said["vllm"][:4], said["torch"][:4]) == ("vllm", "0.32", "2.13")
    assert (said["platform"], said["scheduler"], said["batch_invariant"]) == ("cpu", "in process", "no")
    assert (said["dtype"], said["block_size"], said["enable_chunked_prefill"]) == ("float32", "32", "False")
    assert all(isinstance(value, str) for value in said.values())


def test_a_model_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="vLLM could not load"):
        VllmEngine(str(tmp_path / "nothing"), {})
