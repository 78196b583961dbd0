"""Times reading an action file against a plain textbook reader, in the same run, on the same files.

    python benchmarks/actions.py                     # paper's scale: 92,448 trajectories, 20 settings
    python benchmarks/actions.py --scale 0.1 --format json

The textbook reader does the same work row by row with dictionaries (columns, names, split, ranges, duplicates,
completeness) and must give the same table; it is not a straw man with needless copies. Both read files that this
script writes first. Seconds are processor time of all threads of this process.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from app.evaluator.measurements import Cell, Measurements
from app.evaluator.strategies import ActionTable, CellActions, Strategy, sort_settings
from app.files.actions import read_actions, write_actions
from benchmarks.parts import SHARES
from benchmarks.timing import Row, add_format_option, build_row, count_size, measure, print_rows, time_best

N_MODELS, N_TRAJECTORIES = 6, 16
QUESTIONS = {"AIME": 60, "GPQA": 198, "LiveCodeBench": 205, "MATH500": 500}
SEED = 20260721
SPLIT = "all"


def build_measurements(scale: float, rng: np.random.Generator) -> Measurements:
    """Return measurements of the paper's shape with random step counts; the labels do not matter here."""
    benchmarks = {name: max(1, round(n * scale)) for name, n in QUESTIONS.items()}
    models = tuple(f"model-{i}-distill-32B" for i in range(N_MODELS))
    cells = tuple(_build_cell(m, b, n, rng) for m in models for b, n in benchmarks.items())
    return Measurements("bench", "0" * 64, "synthetic", SPLIT, 16, N_TRAJECTORIES, models, tuple(benchmarks), cells)


def _build_cell(model: str, benchmark: str, n_questions: int, rng: np.random.Generator) -> Cell:
    sizes = rng.integers(2, 60, n_questions * N_TRAJECTORIES)
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    retained = 256 * (np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes))
    unknown = np.full(len(sizes), -1, dtype=np.int8)
    return Cell(
        model=model,
        benchmark=benchmark,
        question_ids=tuple(f"{benchmark.lower()}-{i:04d}" for i in range(n_questions)),
        question_splits=("test",) * n_questions,
        trajectories_per_question=N_TRAJECTORIES,
        probes_per_position=16,
        offsets=offsets.astype(np.int64),
        retained_tokens=retained.astype(np.int32),
        correct_probes=np.zeros(offsets[-1], dtype=np.int32),
        original_correct=unknown,
        direct_correct=unknown,
    )


def build_table(measurements: Measurements, n_settings: int, rng: np.random.Generator) -> ActionTable:
    """Return random positions for every setting of every trajectory."""
    cells = tuple(
        CellActions(
            np.ones(n_settings, dtype=np.bool_), rng.integers(0, cell.n_steps + 1, (n_settings, cell.n_trajectories))
        )
        for cell in measurements.cells
    )
    return ActionTable(Strategy.DYNAMIC_EARLY_EXIT, sort_settings({f"{i / 100:g}" for i in range(n_settings)}), cells)


def read_by_the_book(path: Path, measurements: Measurements) -> ActionTable:
    """Read a valid early-exit file row by row; raises ValueError at the first fault."""
    cells = {(c.model, c.benchmark): c for c in measurements.cells}
    place = {key: {q: i for i, q in enumerate(cell.question_ids)} for key, cell in cells.items()}
    n_steps = {key: cell.n_steps.tolist() for key, cell in cells.items()}
    given: dict[tuple[str, str], dict[str, dict[int, int]]] = {key: {} for key in cells}
    for number, row in enumerate(_list_rows(path)):
        key = (row["model"], row["benchmark"])
        trajectory = int(row["trajectory"])
        if key not in cells or row["question_id"] not in place[key] or not 0 <= trajectory < N_TRAJECTORIES:
            raise ValueError(f"row {number}: unknown unit")
        unit = place[key][row["question_id"]] * N_TRAJECTORIES + trajectory
        action = int(row["action"])
        if not 0 <= action <= n_steps[key][unit]:
            raise ValueError(f"row {number}: action out of range")
        of_setting = given[key].setdefault(row["setting"], {})
        if unit in of_setting:
            raise ValueError(f"row {number}: duplicate unit")
        of_setting[unit] = action
    settings = sort_settings({label for of_cell in given.values() for label in of_cell})
    return ActionTable(
        Strategy.DYNAMIC_EARLY_EXIT,
        settings,
        tuple(_gather(given[key], settings, cell.n_trajectories) for key, cell in cells.items()),
    )


def _gather(of_cell: dict[str, dict[int, int]], settings: tuple[str, ...], n_units: int) -> CellActions:
    actions = np.zeros((len(settings), n_units), dtype=np.int64)
    for idx, label in enumerate(settings):
        of_setting = of_cell.get(label, {})
        if len(of_setting) not in (0, n_units):
            raise ValueError("incomplete cell")
        actions[idx, list(of_setting)] = list(of_setting.values())
    return CellActions(np.array([label in of_cell for label in settings]), actions)


def _list_rows(path: Path) -> Iterator[dict[str, str]]:
    if path.suffix == ".parquet":
        for batch in pq.ParquetFile(path).iter_batches():
            yield from batch.to_pylist()
    elif path.suffix == ".jsonl":
        with path.open(encoding="utf-8") as lines:
            yield from map(json.loads, lines)
    else:
        with path.open(encoding="utf-8", newline="") as lines:
            yield from csv.DictReader(lines)


def time_files(
    folder: Path, table: ActionTable, measurements: Measurements, *, repeats: int, growth: str
) -> Iterator[Row]:
    """Write the table in each format and time both readers on each file; exits where they disagree."""
    strategy = table.strategy
    for suffix in (".parquet", ".csv", ".jsonl"):
        path = folder / f"actions{suffix}"
        write_actions(path, table, measurements)
        ours_seconds, ours = time_best(
            lambda path=path: read_actions(path, measurements, strategy=strategy, split=SPLIT).table, repeats=repeats
        )
        textbook_seconds, textbook = measure(lambda path=path: read_by_the_book(path, measurements))
        same = all(np.array_equal(a.actions, b.actions) for a, b in zip(ours.cells, textbook.cells, strict=True))
        if not same or ours.settings != textbook.settings:
            sys.exit(f"the readers disagree on {path.name}, {growth}")
        size = count_size(
            measurements,
            settings=len(table.settings),
            rows=sum(cell.actions.size for cell in table.cells),
            bytes=path.stat().st_size,
        )
        yield build_row(f"reading and checking {suffix[1:]}, {growth}", textbook_seconds, ours_seconds, size=size)
        path.unlink()


def list_rows(*, scale: float, n_settings: int, repeats: int) -> Iterator[Row]:
    """Yield the rows as they are measured: the full file, and smaller ones of fewer questions and settings."""
    with tempfile.TemporaryDirectory() as folder:
        sizes = [(scale, n_settings), *((scale * share, n_settings) for share in SHARES), (scale, 1)]
        for of_questions, of_settings in sizes:
            rng = np.random.default_rng(SEED)
            measurements = build_measurements(of_questions, rng)
            table = build_table(measurements, of_settings, rng)
            growth = "whole" if of_questions == scale else f"{of_questions / scale:.3g} of the questions"
            growth = growth if of_settings == n_settings else f"{of_settings} of {n_settings} settings"
            yield from time_files(Path(folder), table, measurements, repeats=repeats, growth=growth)


def main() -> None:
    """Time both readers on each file and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the paper's questions (default 1)")
    parser.add_argument("--settings", type=int, default=20, help="settings of the file (default 20)")
    parser.add_argument("--repeats", type=int, default=3, help="times our reader runs; the shortest counts (default 3)")
    add_format_option(parser)
    options = parser.parse_args()
    rows = list_rows(scale=options.scale, n_settings=options.settings, repeats=options.repeats)
    print_rows(rows, options.format)


if __name__ == "__main__":
    main()
