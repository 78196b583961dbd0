"""The sections of a report: each takes measurements and returns its figures as plain JSON values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pyarrow.compute as pc

from app.evaluator.curves import find_beta_match, find_beta_sat, mean_accuracy_at, mean_accuracy_at_grid
from app.evaluator.dynamics import (
    BIN_TOKENS,
    DIRECT_UNKNOWN,
    SINGLE_TRAJECTORY,
    compare_direct_answers,
    correlate_overthinking,
    summarise_diversity,
    summarise_local_changes,
)
from app.evaluator.efficiency import measure_efficiency
from app.evaluator.fast_frontier import solve_frontier_fast
from app.evaluator.measurements import Measurements
from app.evaluator.overthinking import summarise_overthinking
from app.evaluator.reference import CellReference, build_uninformed
from app.evaluator.segmentation import Partition, merge_partition
from app.evaluator.step_lengths import StepLengths, summarise_model_steps, summarise_step_lengths
from app.evaluator.strategies import Strategy
from app.evaluator.thinning import N_DRAWS, THINNING_SEED, summarise_probe_thinning, thin_trajectories
from app.evaluator.traces import (
    NO_DIFFICULTY,
    NO_RIGHT_ENDPOINT,
    ORIGINAL_UNKNOWN,
    summarise_by_difficulty,
    summarise_traces,
)
from app.files.blocks import load_blocks
from app.files.documents import frontier_document, overthinking_document
from app.files.snapshot import Snapshot
from app.report_examples import find_question_example, find_shape_examples
from app.report_values import AVERAGES, Document, give_reasons, to_plain

PLOT_INTERVALS = 1000
NO_BLOCKS = "blocks_not_stored"
NO_TARGET = "target_not_recorded"
NO_FULL_ACCURACY = "full_thinking_accuracy_never_reached"
DEFAULT_STEP_TOKENS = 256
Report = Callable[[str, float], None]


def analyse_overthinking(measurements: Measurements) -> Document:
    """OR, AD, accuracies and tokens per cell, model, benchmark and over all; Spearman's correlation of OR and AD."""
    report = summarise_overthinking(measurements)
    section = _drop_header(overthinking_document(report, measurements))
    section["or_ad_spearman"] = to_plain(correlate_overthinking(report.cells))
    return give_reasons(section, {**AVERAGES, "full_thinking_accuracy": ORIGINAL_UNKNOWN})


def analyse_frontiers(measurements: Measurements, report: Report) -> Document:
    """Exact frontiers per cell, their mean curves over all and per model, and efficiency of what oracles reach."""
    references = solve_references(measurements, report)
    section = _drop_header(frontier_document(references, measurements))
    models = dict.fromkeys(cell.model for cell in measurements.cells)
    section["boards"] = [
        board
        for model in (None, *models)
        for board in _list_boards([r for r in references if model in (None, r.frontier.model)], measurements, model)
    ]
    section["efficiency"] = measure_oracles(references, section["macro"], measurements)
    return give_reasons(section, {"beta_match": NO_FULL_ACCURACY})


def solve_references(measurements: Measurements, report: Report) -> list[CellReference]:
    """Return the frontiers and uninformed references of all cells and strategies."""
    wanted = [(cell, strategy) for cell in measurements.cells for strategy in Strategy]
    references = []
    for done, (cell, strategy) in enumerate(wanted):
        report(f"frontiers: {strategy} of {cell.model} on {cell.benchmark}", done / len(wanted))
        references.append(CellReference(solve_frontier_fast(cell, strategy), build_uninformed(cell, strategy)))
    return references


def analyse_direct_answers(measurements: Measurements) -> Document:
    """Accuracy of position 0 beside that of a separate prompt that asks for no thinking."""
    section = to_plain(compare_direct_answers(measurements))
    return give_reasons(section, {**AVERAGES, "direct_accuracy": DIRECT_UNKNOWN, "difference": DIRECT_UNKNOWN})


def analyse_local_changes(measurements: Measurements) -> Document:
    """Proportions of steps that gain, lose or keep correct probes, by the tokens retained at their end."""
    return give_reasons({"bin_tokens": BIN_TOKENS, "bins": to_plain(summarise_local_changes(measurements))}, {})


def analyse_diversity(measurements: Measurements) -> Document:
    """How far the trajectories of one question differ in OR and AD."""
    names = dict.fromkeys(("overthinking_ratio", "accuracy_degradation"), SINGLE_TRAJECTORY)
    return give_reasons(to_plain(summarise_diversity(measurements)), {**AVERAGES, **names})


def analyse_thinning(measurements: Measurements) -> Document:
    """What fewer probes (exactly) and fewer trajectories (by draws) would have shown."""
    rng = np.random.default_rng(THINNING_SEED)
    section = {
        "probes": to_plain(summarise_probe_thinning(measurements)),
        "trajectories": to_plain(thin_trajectories(measurements, rng=rng)),
        "n_draws": N_DRAWS,
        "seed": THINNING_SEED,
    }
    return give_reasons(section, AVERAGES)


def analyse_examples(measurements: Measurements) -> Document:
    """Recorded curves picked by stated rules: three shapes, and all trajectories of one question."""
    return {
        "shapes": to_plain(find_shape_examples(measurements)),
        "question": to_plain(find_question_example(measurements)),
    }


def analyse_step_lengths(snapshot: Snapshot, measurements: Measurements) -> Document:
    """Distribution of step lengths per model; for half and twice the target length too where blocks are stored.

    A snapshot need not aim at any length: its steps may be sentences, say. Others are then made around the usual one.
    """
    target = snapshot.manifest.raw.get("target_step_tokens")
    partitions = [{"step_tokens": target, "is_recorded": True, "models": summarise_model_steps(measurements)}]
    blocks = load_blocks(snapshot, measurements.split)
    if blocks is not None:
        partitions += [
            {"step_tokens": step_tokens, "is_recorded": False, "models": _repartition(blocks, step_tokens)}
            for step_tokens in _list_other_targets(target)
        ]
    section = {
        "target_step_tokens": target,
        "partitions": sorted(to_plain(partitions), key=lambda p: p["step_tokens"] or 0),
        "other_lengths": None if blocks is None else "repartitioned",
    }
    return give_reasons(
        section, {"other_lengths": NO_BLOCKS, "target_step_tokens": NO_TARGET, "step_tokens": NO_TARGET}
    )


def analyse_traces(snapshot: Snapshot, measurements: Measurements) -> Document:
    """Outcome efficiency, first correct step and flips per cell, and by question difficulty in each benchmark."""
    section = to_plain(summarise_traces(measurements))
    section["by_difficulty"] = [
        to_plain(_summarise_difficulty(snapshot, measurements, benchmark))
        for benchmark in dict.fromkeys(cell.benchmark for cell in measurements.cells)
    ]
    undefined = dict.fromkeys(("rfcs", "early_share"), NO_RIGHT_ENDPOINT)
    return give_reasons(
        section, {**AVERAGES, **undefined, "original_outcome_efficiency": ORIGINAL_UNKNOWN, "levels": NO_DIFFICULTY}
    )


def _drop_header(document: Document) -> Document:
    """Leave out what the whole report says once: snapshot, hash, kind and split."""
    return {key: value for key, value in document.items() if key not in HEADER}


HEADER = ("snapshot", "snapshot_sha256", "kind", "split")


def _list_boards(references: Sequence[CellReference], measurements: Measurements, model: str | None) -> list[Document]:
    """Return the mean curves over these cells on the grid of a plot, one of each strategy."""
    boards = frontier_document(references, measurements, grid_intervals=PLOT_INTERVALS)["macro"]
    for board in boards:
        hulls = [r.uninformed for r in references if str(r.frontier.strategy) == board["strategy"]]
        board["uninformed_accuracy"] = mean_accuracy_at_grid(hulls, PLOT_INTERVALS).tolist()
        del board["grid"]  # i / 1000, i = 0..1000
    return [{"model": model, "grid_intervals": PLOT_INTERVALS, **board} for board in boards]


def measure_oracles(
    references: Sequence[CellReference], macro: Sequence[Document], measurements: Measurements
) -> list[Document]:
    """Return E3 and AES of each strategy's oracle where it matches full thinking and where it is at its highest.

    Parameters
    ----------
    references : of all cells under every strategy wanted.
    macro : objects whose `strategy` names those, in the order to show.
    """
    means = [Fraction(cell.total_thinking_tokens, cell.n_trajectories) for cell in measurements.cells]
    base_tokens = sum(means, start=Fraction(0)) / len(means)
    points = []
    for curve in macro:
        of_strategy = [r.frontier.curve for r in references if str(r.frontier.strategy) == curve["strategy"]]
        full = [Fraction(r.frontier.full_correct, r.frontier.total_probes) for r in references]
        full_accuracy = sum(full, start=Fraction(0)) / len(full)
        places = {
            "no_thinking": Fraction(0),
            "beta_match": find_beta_match(of_strategy, full_accuracy),
            "beta_sat": find_beta_sat(of_strategy),
        }
        for name, beta in places.items():
            if beta is not None:
                figures = measure_efficiency(
                    float(mean_accuracy_at(of_strategy, beta)),
                    float(beta * base_tokens),
                    base_accuracy=float(full_accuracy),
                    base_tokens=float(base_tokens),
                )
                place = {"strategy": curve["strategy"], "point": name, "beta": float(beta)}
                points.append({**place, **_explain(to_plain(figures))})
    return points


def _explain(figures: Document) -> Document:
    """Give E3 and AES one reason, as the other objects have it."""
    reasons = [figures.pop(name) for name in ("e3_reason", "aes_reason")]
    return {**figures, "reason": next((reason for reason in reasons if reason), None)}


def _list_other_targets(target: int | None) -> tuple[int, ...]:
    if target is None:
        return DEFAULT_STEP_TOKENS // 2, DEFAULT_STEP_TOKENS, 2 * DEFAULT_STEP_TOKENS
    return max(1, target // 2), 2 * target


def _repartition(blocks: dict[str, Partition], step_tokens: int) -> dict[str, StepLengths]:
    return {
        model: summarise_step_lengths(merge_partition(partition, step_tokens=step_tokens).tokens)
        for model, partition in blocks.items()
    }


def _summarise_difficulty(snapshot: Snapshot, measurements: Measurements, benchmark: str) -> Document:
    questions = snapshot.questions.filter(pc.equal(snapshot.questions["benchmark"], benchmark))
    known = dict(zip(questions["question_id"].to_pylist(), questions["difficulty"].to_pylist(), strict=True))
    cells = [cell for cell in measurements.cells if cell.benchmark == benchmark]
    report: Document = to_plain(summarise_by_difficulty(cells, [known[q] for q in cells[0].question_ids]))
    return report
