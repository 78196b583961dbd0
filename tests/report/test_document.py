"""The JSON document of a report: complete, equal to the commands' figures, with a reason for every null."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from app.evaluator.fast_frontier import solve_frontiers_fast
from app.evaluator.overthinking import summarise_overthinking
from app.evaluator.reference import build_references
from app.evaluator.strategies import Strategy
from app.files.documents import frontier_document, overthinking_document
from app.files.snapshot import (
    LabelsHiddenError,
    Snapshot,
    build_snapshot,
    load_measurements,
    make_public,
    read_snapshot,
)
from app.report import analyse_snapshot, dump_report
from app.report_values import give_reasons

SECTIONS = (
    "overthinking",
    "direct_answers",
    "local_changes",
    "frontiers",
    "thinning",
    "diversity",
    "examples",
    "step_lengths",
    "traces",
)


def _analyse(snapshot: Snapshot, split: str = "all") -> dict[str, Any]:
    return analyse_snapshot(snapshot, split=split, progress=lambda what, share: None)


def _without_reason(value: object, path: str = "") -> Iterator[str]:
    """Yield nulls around which no object gives a reason, and numbers that JSON does not have."""
    if isinstance(value, dict):
        if value.get("reason") or value.get("reasons"):
            return
        for key, item in value.items():
            if key not in ("model", "benchmark", "reason"):
                yield from _without_reason(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from _without_reason(item, path)
    elif value is None:
        yield path


@pytest.mark.parametrize("report", ["small_report", "real_report"])
def test_overthinking_and_frontiers_are_those_of_the_commands(
    report: str, request: pytest.FixtureRequest, board_snapshot: Snapshot
):
    document = request.getfixturevalue(report)
    snapshot = board_snapshot
    if report == "real_report":
        snapshot = read_snapshot(request.getfixturevalue("real_snapshot"))
    measurements = load_measurements(snapshot)
    plain = json.loads(json.dumps(overthinking_document(summarise_overthinking(measurements), measurements)))
    assert {key: document["overthinking"][key] for key in ("cells", "macro", "by_model", "by_benchmark")} == {
        key: plain[key] for key in ("cells", "macro", "by_model", "by_benchmark")
    }
    frontiers = solve_frontiers_fast(measurements)
    by_strategy = [build_references(measurements, strategy, frontiers) for strategy in Strategy]
    in_order = [reference for of_cell in zip(*by_strategy, strict=True) for reference in of_cell]
    expected = frontier_document(in_order, measurements)
    assert document["frontiers"]["cells"] == expected["cells"]
    assert document["frontiers"]["macro"] == expected["macro"]


def test_the_real_snapshot_has_its_known_figures(real_report: dict[str, Any]):
    cells = {cell["model"]: cell for cell in real_report["overthinking"]["cells"]}
    figures = cells["DeepSeek-R1-Distill-Qwen-14B"]
    assert round(figures["overthinking_ratio"], 4) == 0.7034
    assert round(figures["accuracy_degradation"], 4) == 0.4420
    # Two cells: ranks can only agree or disagree.
    assert real_report["overthinking"]["or_ad_spearman"]["value"] == pytest.approx(1.0)
    full = real_report["thinning"]["probes"][-1]
    assert full["probes"] == 100
    macro = real_report["overthinking"]["macro"]
    assert full["averages"]["overthinking_ratio"]["macro"] == pytest.approx(macro["overthinking_ratio"], abs=1e-12)


def test_every_section_is_there_and_every_null_has_a_reason(small_report: dict[str, Any], real_report: dict[str, Any]):
    for document in (small_report, real_report):
        assert set(SECTIONS) <= set(document)
        assert list(_without_reason({name: document[name] for name in SECTIONS})) == []
        assert json.loads(dump_report(document)) == document


def test_a_null_without_a_reason_is_an_error():
    with pytest.raises(ValueError, match=r"nothing says why bins\.gain is undefined"):
        give_reasons({"bins": [{"gain": None}]}, {"loss": "no_step"})


def test_unknown_original_and_direct_answers_leave_only_what_rests_on_them_undefined(small_report: dict[str, Any]):
    """The small snapshot has original answers for all trajectories, and no direct answers."""
    direct = small_report["direct_answers"]
    assert {cell["reason"] for cell in direct["cells"]} == {"direct_answers_unknown"}
    assert {cell["figures"]["direct_accuracy"] for cell in direct["cells"]} == {None}
    assert direct["averages"]["zero_step_accuracy"]["macro"] is not None
    assert small_report["overthinking"]["macro"]["full_thinking_accuracy"] is not None
    reasons = dict.fromkeys(("target_step_tokens", "step_tokens"), "target_not_recorded")
    assert small_report["step_lengths"]["reasons"] == {"other_lengths": "blocks_not_stored", **reasons}


def test_step_lengths_follow_from_stored_blocks(make_board_snapshot: Callable[..., Snapshot]):
    """Every step becomes two blocks of equal tokens, give or take one; the split's trajectories alone count."""
    plain = make_board_snapshot(target_step_tokens=64)
    rows = plain.trajectories.to_pylist()
    for row in rows:
        lengths = [b - a for a, b in pairwise(row["retained_tokens"])]
        row["block_tokens"] = [part for length in lengths for part in (length // 2, length - length // 2)]
    described = {key: value for key, value in plain.manifest.raw.items() if key not in ("files", "created")}
    named = [{key: value for key, value in row.items() if value is not None} for row in rows]
    snapshot = build_snapshot(described, plain.questions, pa.Table.from_pylist(named))
    section = _analyse(snapshot, "test")["step_lengths"]
    assert [(p["step_tokens"], p["is_recorded"]) for p in section["partitions"]] == [
        (32, False),
        (64, True),
        (128, False),
    ]
    tokens = [sum(m["total_tokens"] for m in p["models"].values()) for p in section["partitions"]]
    assert tokens == [sum(c.total_thinking_tokens for c in load_measurements(snapshot, "test").cells)] * 3
    steps = [sum(m["n_steps"] for m in p["models"].values()) for p in section["partitions"]]
    assert steps[0] > steps[2]


def test_examples_follow_their_rules(real_report: dict[str, Any]):
    shapes = {shape["shape"]: shape["curves"] for shape in real_report["examples"]["shapes"]}
    for curve in shapes["flat"]:
        assert 8 * (max(curve["correct_probes"]) - min(curve["correct_probes"])) <= curve["probes_per_position"]
    for curve in shapes["late_peak"]:
        peak = curve["retained_tokens"][curve["reference"]]
        assert 4 * peak >= 3 * curve["retained_tokens"][-1]
        assert curve["correct_probes"][curve["reference"]] == max(curve["correct_probes"])
        assert 2 * (max(curve["correct_probes"]) - curve["correct_probes"][0]) >= curve["probes_per_position"]
    for curve in shapes["fluctuating"]:
        correct = curve["correct_probes"]
        assert sum(abs(b - a) for a, b in pairwise(correct)) >= 2 * curve["probes_per_position"]
    assert all(len({curve["model"] for curve in curves}) == len(curves) for curves in shapes.values())
    question = real_report["examples"]["question"]["curves"]
    assert [curve["trajectory"] for curve in question] == [0, 1]
    assert len({(curve["model"], curve["question_id"]) for curve in question}) == 1


def test_oracles_beside_full_thinking_have_efficiency(real_report: dict[str, Any]):
    """The oracle that matches full thinking is as accurate on no more tokens, so its E3 is at least 1."""
    points = real_report["frontiers"]["efficiency"]
    assert {point["strategy"] for point in points} == {str(strategy) for strategy in Strategy}
    for point in points:
        if point["point"] != "no_thinking":
            assert point["accuracy"] >= point["base_accuracy"]
            assert point["e3"] >= 1


def test_a_hidden_split_is_refused(make_board_snapshot: Callable[..., Snapshot]):
    public = make_public(make_board_snapshot(hidden_splits=["test"]))
    with pytest.raises(LabelsHiddenError):
        _analyse(public, "test")
    assert _analyse(public, "train")["n_questions"] == {"math": 3, "logic": 2}


def test_progress_rises_and_names_the_analyses(board_snapshot: Snapshot):
    seen: list[tuple[str, float]] = []
    analyse_snapshot(board_snapshot, split="train", progress=lambda what, share: seen.append((what, share)))
    shares = [share for _, share in seen]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] < 1
    assert [what for what, _ in seen if ":" not in what] == [name.replace("_", " ") for name in SECTIONS]


def test_the_order_of_questions_changes_nothing(board_snapshot: Snapshot, small_report: dict[str, Any]):
    raw = {key: value for key, value in board_snapshot.manifest.raw.items() if key not in ("files", "created")}
    backwards = pa.array(range(board_snapshot.trajectories.num_rows - 1, -1, -1))
    shuffled = build_snapshot(raw, board_snapshot.questions, board_snapshot.trajectories.take(backwards))
    assert dump_report(_analyse(shuffled)) == dump_report(small_report)
