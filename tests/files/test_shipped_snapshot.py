"""The measured snapshot that is shipped: sound, and what its datasheet says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.evaluator.fast_frontier import solve_frontier_fast
from app.evaluator.overthinking import summarise_overthinking
from app.evaluator.strategies import Strategy
from app.files.questions import read_questions
from app.files.snapshot import Snapshot, load_measurements, read_snapshot

REPOSITORY = Path(__file__).resolve().parents[2]
SHIPPED = REPOSITORY / "app" / "files" / "data" / "snapshots" / "smollm2-arithmetic.zip"
DATASHEET = (REPOSITORY / "docs" / "measured-snapshot.md").read_text()


@pytest.fixture(scope="module")
def shipped() -> Snapshot:
    return read_snapshot(SHIPPED)


def test_its_datasheet_names_its_content_and_size(shipped: Snapshot) -> None:
    manifest = shipped.manifest
    assert (manifest.kind, manifest.raw["license"], manifest.probes_per_position) == ("measured", "CC0-1.0", 8)
    lengths = [len(steps) for steps in shipped.trajectories.column("retained_tokens").to_pylist()]
    assert (len(lengths), sum(lengths), min(lengths) - 1, max(lengths) - 1) == (320, 1363, 1, 5)
    for said in (shipped.sha256, "320 trajectories", "1,363 positions", "10,904 probes", "76 of 320"):
        assert said in DATASHEET
    (counts,) = shipped.manifest.raw["worker"]["counts"]
    assert (counts["hit_thinking_limit"], counts["answers"], counts["unextracted_answers"]) == (76, 10904, 9)


def test_its_datasheet_gives_the_evaluators_figures(shipped: Snapshot) -> None:
    measurements = load_measurements(shipped)
    (cell,) = measurements.cells
    figures = summarise_overthinking(measurements).cells[0].figures
    shown = {
        "6.9 %": figures.full_thinking_accuracy,
        "9.0 %": figures.endpoint_accuracy,
        "1.6 %": figures.zero_step_accuracy,
        "86.4 %": figures.overthinking_ratio,
        "5.3 points": figures.accuracy_degradation,
    }
    for said, figure in shown.items():
        assert said in DATASHEET
        assert figure == pytest.approx(float(said.split()[0]) / 100, abs=0.0005)
    for strategy, percent in zip(Strategy, (9.5, 12.2, 14.3), strict=True):
        best = solve_frontier_fast(cell, strategy).correct[-1] / (len(cell.n_steps) * 8)
        assert best == pytest.approx(percent / 100, abs=0.0005)


def test_its_questions_are_those_of_the_file(shipped: Snapshot) -> None:
    written = read_questions(REPOSITORY / "app" / "files" / "data" / "arithmetic-word-problems.jsonl").questions
    easy = {q.question_id: (q.split, q.prompt, q.reference_answer) for q in written if (q.difficulty or 0) <= 2}
    rows = shipped.questions.to_pylist()
    assert {r["question_id"]: (r["split"], r["prompt"], r["reference_answer"]) for r in rows} == easy
