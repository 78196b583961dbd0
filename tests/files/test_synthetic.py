"""Synthetic snapshots: what is drawn is valid, repeatable, plainly marked and close to the published tables."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from scipy.stats import spearmanr

from app.evaluator.curves import find_beta_match, max_accuracy
from app.evaluator.frontier import Frontier, solve_frontier
from app.evaluator.measurements import Measurements
from app.evaluator.overthinking import CellOverthinking, OverthinkingReport, summarise_overthinking
from app.evaluator.reference import build_uninformed
from app.evaluator.strategies import Strategy
from app.files.atomic import OutputExistsError
from app.files.snapshot import Snapshot, load_measurements, read_snapshot, verify_snapshot
from app.files.synthetic import DEFAULT_SEED, SynthesisError, draw_snapshot, synthesize
from app.files.synthetic_parameters import CellTargets, find_targets, load_paper_figures, read_parameters

DOCS = Path(__file__).resolve().parents[2] / "docs" / "synthetic.md"
# The identity of a small draw, so that a change of what a seed gives is noticed; it needs another parameters' version.
SMALL_DRAW_SHA256 = "c8daf231ad5fafb3886b6e3a4feddc7face3d11223d58bc3dd3d591e827d5434"
TARGETS = find_targets()


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return draw_snapshot()


@pytest.fixture(scope="module")
def measurements(snapshot: Snapshot) -> Measurements:
    return load_measurements(snapshot)


@pytest.fixture(scope="module")
def report(measurements: Measurements) -> OverthinkingReport:
    return summarise_overthinking(measurements)


@pytest.fixture(scope="module")
def small() -> Snapshot:
    return draw_snapshot(scale=0.05, seed=7)


def find_cell(report: OverthinkingReport, target: CellTargets) -> CellOverthinking:
    return next(c for c in report.cells if (c.model, c.benchmark) == (target.model, target.benchmark))


@pytest.mark.parametrize("target", TARGETS, ids=[f"{t.model}-{t.benchmark}" for t in TARGETS])
def test_a_cell_matches_the_published_tables(report: OverthinkingReport, target: CellTargets) -> None:
    figures = find_cell(report, target).figures
    assert figures.mean_thinking_tokens == pytest.approx(target.mean_thinking_tokens, rel=0.03)
    assert figures.zero_step_accuracy == pytest.approx(target.zero_step_accuracy, abs=0.02)
    assert figures.full_thinking_accuracy == pytest.approx(target.full_thinking_accuracy, abs=0.01)
    # The endpoint against Table 3's accuracy, which is that of the recorded answers.
    assert figures.endpoint_accuracy == pytest.approx(target.full_thinking_accuracy, abs=0.03)
    assert figures.overthinking_ratio == pytest.approx(target.overthinking_ratio, abs=0.04)
    assert figures.accuracy_degradation == pytest.approx(target.accuracy_degradation, abs=0.015)


def test_mean_endpoints_of_models_match_figure_3(report: OverthinkingReport) -> None:
    published = {model: figures["endpoint_accuracy"] for model, figures in load_paper_figures()["models"].items()}
    found = {model: figures.endpoint_accuracy for model, figures in report.by_model.items() if figures}
    assert set(found) == set(published)
    for model, percent in published.items():
        assert found[model] == pytest.approx(percent / 100, abs=0.015)


def test_direct_answers_match_table_7b(measurements: Measurements) -> None:
    for cell, target in zip(measurements.cells, TARGETS, strict=True):
        assert (cell.model, cell.benchmark) == (target.model, target.benchmark)
        assert (cell.direct_correct == 1).mean() == pytest.approx(target.direct_answer_accuracy, abs=0.01)


def test_size_and_lengths_are_those_of_the_paper(measurements: Measurements) -> None:
    assert {c.benchmark: c.n_questions for c in measurements.cells} == {
        "AIME": 90,
        "MATH500": 500,
        "GPQA-Diamond": 198,
        "LiveCodeBench": 175,
    }
    assert (len(measurements.models), len(measurements.cells)) == (6, 24)
    assert (measurements.trajectories_per_question, measurements.probes_per_position) == (16, 16)
    assert sum(cell.n_trajectories for cell in measurements.cells) == 92_448
    assert sum(len(cell.correct_probes) for cell in measurements.cells) == pytest.approx(2_345_000, rel=0.01)
    assert max(int(cell.thinking_tokens.max()) for cell in measurements.cells) == 32_768
    for cell in measurements.cells:
        # 256 tokens a step: max(1, floor(L(n)/256 + 1/2)).
        assert np.array_equal(cell.n_steps, np.maximum(1, (cell.thinking_tokens + 128) // 256))


def test_steps_have_the_published_mean_and_tail(measurements: Measurements) -> None:
    for model, figures in load_paper_figures()["models"].items():
        lengths = []
        for cell in measurements.cells:
            if cell.model == model:
                is_step = np.ones(len(cell.retained_tokens) - 1, dtype=bool)
                is_step[cell.last_idx[:-1]] = False
                lengths.append(np.diff(cell.retained_tokens)[is_step])
        steps = np.concatenate(lengths)
        assert 255.16 <= steps.mean() <= 256.84
        # Between 50 and 600 steps of a model are that long, so a share is only so exact.
        assert 100 * (steps >= 1024).mean() == pytest.approx(figures["steps_of_1024_or_more"], rel=0.15)


def test_splits_are_40_20_40_in_each_benchmark(snapshot: Snapshot) -> None:
    rows = zip(snapshot.questions["benchmark"].to_pylist(), snapshot.questions["split"].to_pylist(), strict=True)
    counts = Counter(rows)
    for benchmark, n in load_paper_figures()["protocol"]["benchmarks"].items():
        for split, share in (("train", 0.4), ("validation", 0.2), ("test", 0.4)):
            assert abs(counts[benchmark, split] - share * n) < 1


def test_difficulty_is_shared_by_the_models_and_seen_by_the_public(
    snapshot: Snapshot, measurements: Measurements
) -> None:
    for benchmark in measurements.benchmarks:
        accuracies = [
            cell.endpoint_correct.reshape(cell.n_questions, -1).mean(axis=1)
            for cell in measurements.cells
            if cell.benchmark == benchmark
        ]
        for one, other in itertools.combinations(accuracies, 2):
            assert spearmanr(one, other).statistic > 0.3
        of_benchmark = snapshot.questions.filter(pc.equal(snapshot.questions["benchmark"], benchmark))
        difficulty = of_benchmark["difficulty"].to_numpy()
        assert set(difficulty) == {1, 2, 3, 4, 5}
        # A view of difficulty, not the outcome itself.
        assert all(-0.9 < spearmanr(difficulty, accuracy).statistic < -0.3 for accuracy in accuracies)


def test_the_trajectories_of_a_question_share_their_level_before_thinking(measurements: Measurements) -> None:
    """Nothing is retained at position 0, so counts differ there by the chance of 16 probes alone."""
    for cell in measurements.cells:
        counts = cell.zero_correct.reshape(cell.n_questions, -1)
        share = counts.mean(axis=1) / 16
        expected = (16 * share * (1 - share)).mean()
        assert counts.var(axis=1, ddof=1).mean() == pytest.approx(expected, rel=0.15, abs=0.02)


def test_the_end_margin_tells_a_little(snapshot: Snapshot, measurements: Measurements) -> None:
    margin = snapshot.trajectories["end_margin"].combine_chunks().flatten().to_numpy()
    correct = np.concatenate([cell.correct_probes for cell in measurements.cells])
    start = np.cumsum([0, *(len(cell.correct_probes) for cell in measurements.cells)])
    last = np.concatenate([cell.last_idx + s for cell, s in zip(measurements.cells, start[:-1], strict=True)])
    inside = np.ones(len(margin), dtype=bool)
    inside[last] = False
    assert margin[inside & (correct == 0)].mean() - margin[inside & (correct == 16)].mean() > 0.5
    assert np.corrcoef(margin[inside], correct[inside])[0, 1] > -0.7
    tokens = np.concatenate([cell.thinking_tokens for cell in measurements.cells])
    assert (margin[last][tokens < 32_768] < 0).all()
    assert (margin[last][tokens == 32_768] > 0).any()


def test_frontiers_have_the_published_shape(measurements: Measurements) -> None:
    """No target of the fit, only of its shape: ceilings within 4 points, shares of the budget in the same order."""
    published = load_paper_figures()["macro"]
    matched = {}
    for strategy in Strategy:
        frontiers = [solve_frontier(cell, strategy) for cell in measurements.cells]
        curves = [frontier.curve for frontier in frontiers]
        assert float(max_accuracy(curves)) == pytest.approx(published["ceiling"][strategy] / 100, abs=0.04)
        beta = find_beta_match(curves, mean_full_accuracy(frontiers))
        assert beta is not None
        matched[strategy] = float(beta)
        assert matched[strategy] == pytest.approx(published["beta_match"][strategy] / 100, abs=0.05)
        for cell, frontier in zip(measurements.cells, frontiers, strict=True):
            assert frontier.curve.area() > build_uninformed(cell, strategy).area()
    assert matched[Strategy.DYNAMIC_EARLY_EXIT] < matched[Strategy.FIXED_BUDGET] < matched[Strategy.DYNAMIC_ROUTING]


def mean_full_accuracy(frontiers: list[Frontier]) -> Fraction:
    shares = [Fraction(frontier.full_correct, frontier.total_probes) for frontier in frontiers]
    return sum(shares, Fraction(0)) / len(shares)


def test_the_documented_table_is_what_is_drawn(report: OverthinkingReport) -> None:
    rows = {}
    for line in DOCS.read_text(encoding="utf-8").splitlines():
        fields = [field.strip() for field in line.strip("|").split("|")]
        if len(fields) == 8 and fields[1] in report.by_benchmark:
            rows[fields[0], fields[1]] = [float(re.split(r" ", field)[0].replace(",", "")) for field in fields[2:]]
    assert len(rows) == 24
    for cell in report.cells:
        f = cell.figures
        fractions = (f.zero_step_accuracy, f.endpoint_accuracy, f.full_thinking_accuracy)
        percents = [100 * x for x in (*fractions, f.overthinking_ratio, f.accuracy_degradation) if x is not None]
        tokens, *documented = rows[cell.model, cell.benchmark]
        assert tokens == pytest.approx(f.mean_thinking_tokens, abs=0.06)
        assert documented == pytest.approx(percents, abs=0.006)


def test_the_copied_figures_are_those_of_the_tables(reference_tables: Path) -> None:
    tables: dict[str, Any] = json.loads((reference_tables / "otbench_paper.json").read_text(encoding="utf-8"))
    copied = load_paper_figures()
    for cell in copied["cells"]:
        model, benchmark = cell["model"], cell["benchmark"]
        assert cell == {
            "model": model,
            "benchmark": benchmark,
            "mean_thinking_tokens": tables["table3_full_thinking_baseline"][model][f"{benchmark}:mean_thinking_tokens"],
            "full_thinking_accuracy": tables["table3_full_thinking_baseline"][model][f"{benchmark}:accuracy_percent"],
            "zero_step_accuracy": tables["table7a_zero_step_accuracy_percent"][model][benchmark],
            "direct_answer_accuracy": tables["table7b_direct_answer_accuracy_percent"][model][benchmark],
            "overthinking_ratio": tables["table1_or_ad"][model][f"{benchmark}:OR_percent"],
            "accuracy_degradation": tables["table1_or_ad"][model][f"{benchmark}:AD_pp"],
        }
    assert copied["protocol"]["benchmarks"] == tables["protocol"]["benchmarks"]
    assert list(copied["models"]) == tables["protocol"]["models"]
    tails = tables["step_lengths"]["tail_ge_1024_percent"]
    for model, figures in copied["models"].items():
        row = tables["figure3_frontiers"]["rows"][model]
        assert (figures["endpoint_accuracy"], list(figures["beta_match"].values())) == (row[0], row[1::2])
        assert figures["steps_of_1024_or_more"] == tails[model]["256"]


def test_the_parameters_were_fitted_to_the_default_seed() -> None:
    parameters = read_parameters()
    assert parameters.fitted_seed == DEFAULT_SEED
    assert [(c.model, c.benchmark) for c in parameters.cells] == [(t.model, t.benchmark) for t in TARGETS]


def test_the_same_seed_gives_the_same_snapshot(small: Snapshot) -> None:
    again = draw_snapshot(scale=0.05, seed=7)
    assert again.sha256 == small.sha256 == SMALL_DRAW_SHA256
    assert again.trajectories.equals(small.trajectories)


def test_another_seed_gives_other_measurements(small: Snapshot) -> None:
    other = draw_snapshot(scale=0.05, seed=8)
    assert other.sha256 != small.sha256
    assert not other.trajectories["correct_probes"].equals(small.trajectories["correct_probes"])


def test_a_small_snapshot_is_written_sound_and_reads_back_the_same(tmp_path: Path) -> None:
    reports: list[tuple[int, int]] = []
    for name in ("folder", "archive.zip"):
        drawn = synthesize(
            tmp_path / name, scale=0.02, progress=lambda what, done, total: reports.append((done, total))
        )
        assert verify_snapshot(tmp_path / name) == []
        assert read_snapshot(tmp_path / name).sha256 == drawn.sha256
    assert reports[:25] == [(done, 24) for done in range(25)]


@pytest.mark.parametrize("scale", [1e-9, 0.01, 0.1])
def test_every_split_of_a_small_snapshot_has_questions_of_every_benchmark(scale: float) -> None:
    whole = load_measurements(draw_snapshot(scale=scale))
    assert {cell.benchmark: cell.n_questions for cell in whole.cells} == {
        benchmark: max(5, round(scale * n)) for benchmark, n in load_paper_figures()["protocol"]["benchmarks"].items()
    }
    for split in ("train", "validation", "test"):
        assert len(whole.select(split).cells) == 24


def test_a_synthetic_snapshot_says_so(snapshot: Snapshot, small: Snapshot) -> None:
    for drawn in (snapshot, small):
        raw = drawn.manifest.raw
        assert drawn.manifest.kind == raw["kind"] == "synthetic"
        assert "synthetic" in drawn.manifest.name
        assert "Synthetic" in raw["title"]
        assert raw["description"].startswith("Synthetic: drawn by a seeded program, not measured.")
        assert drawn.questions["prompt"].null_count == drawn.questions.num_rows
        assert drawn.questions["reference_answer"].null_count == drawn.questions.num_rows
    assert small.manifest.raw["generator"] == {
        "name": "otboard synthesize",
        "version": read_parameters().version,
        "seed": 7,
        "scale": 0.05,
    }
    assert small.manifest.name != snapshot.manifest.name


def test_an_existing_place_is_refused_before_anything_is_drawn(tmp_path: Path) -> None:
    reports: list[str] = []
    with pytest.raises(OutputExistsError):
        synthesize(tmp_path, scale=0.01, progress=lambda what, done, total: reports.append(what))
    assert (reports, list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize(
    ("scale", "seed"), [(0.0, 1), (-1.0, 1), (11.0, 1), (float("nan"), 1), (0.1, -1), (0.1, 2**32)]
)
def test_a_scale_or_seed_out_of_range_is_refused(scale: float, seed: int) -> None:
    with pytest.raises(SynthesisError, match=r"^the (scale|seed) is "):
        draw_snapshot(scale=scale, seed=seed)
