"""Times reading an action file against a plain textbook reader, in the same run, on the same files.

    python benchmarks/actions.py                     # paper's scale: 92,448 trajectories, 20 settings
    python benchmarks/actions.py --scale 0.1 --format json

The textbook reader does the same work row by row with dictionaries (columns, names, split, ranges, duplicates,
completeness) and must give the same table; it is not a straw man with needless copies. Both read files that this
script writes first.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from app.evaluator.measurements import Cell, Measurements
from app.evaluator.strategies import ActionTable, CellActions, Strategy, sort_settings
from app.files.actions import read_actions, write_actions

N_MODELS, N_TRAJECTORIES = 6, 16
QUESTIONS = {"AIME": 60, "GPQA": 198, "LiveCodeBench": 205, "MATH500": 500}
SEED = 20260721
SPLIT = "all"


@dataclass(frozen=True)
class Timing:
    """Seconds that both readers took for one file."""

    format: str
    rows: int
    megabytes: float
    textbook_seconds: float
    our_seconds: float
    ratio: float


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


def time_reader(read: Callable[[], ActionTable], repeats: int) -> tuple[float, ActionTable]:
    """Return the shortest of several times and the table."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        table = read()
        seconds.append(time.perf_counter() - start)
    return min(seconds), table


def compare(path: Path, measurements: Measurements, n_rows: int, repeats: int) -> Timing:
    """Time both readers on a file and check that they agree."""
    ours, table = time_reader(
        lambda: read_actions(path, measurements, strategy=Strategy.DYNAMIC_EARLY_EXIT, split=SPLIT).table, repeats
    )
    textbook, expected = time_reader(lambda: read_by_the_book(path, measurements), 1)
    same = all(np.array_equal(a.actions, b.actions) for a, b in zip(table.cells, expected.cells, strict=True))
    if not same or table.settings != expected.settings:
        raise SystemExit(f"the readers disagree on {path.name}")
    megabytes = path.stat().st_size / 1e6
    return Timing(
        path.suffix[1:], n_rows, round(megabytes, 1), round(textbook, 3), round(ours, 3), round(textbook / ours, 1)
    )


def main() -> None:
    """Write the files, time both readers on each and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the paper's questions (default 1)")
    parser.add_argument("--settings", type=int, default=20, help="settings of the file (default 20)")
    parser.add_argument("--repeats", type=int, default=3, help="times our reader runs; the shortest counts (default 3)")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    rng = np.random.default_rng(SEED)
    measurements = build_measurements(arguments.scale, rng)
    table = build_table(measurements, arguments.settings, rng)
    n_rows = sum(cell.actions.size for cell in table.cells)
    timings = []
    with tempfile.TemporaryDirectory() as folder:
        for suffix in (".parquet", ".csv", ".jsonl"):
            path = Path(folder) / f"actions{suffix}"
            write_actions(path, table, measurements)
            timings.append(compare(path, measurements, n_rows, arguments.repeats))
    peak_mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(_format(timings, peak_mebibytes, arguments.format))


def _format(timings: list[Timing], peak_mebibytes: float, style: str) -> str:
    if style == "json":
        return json.dumps({"timings": [asdict(t) for t in timings], "peak_mebibytes": round(peak_mebibytes)}) + "\n"
    out = io.StringIO()
    out.write(f"{'format':8} {'rows':>10} {'MB':>7} {'textbook s':>11} {'ours s':>7} {'ratio':>6}\n")
    for t in timings:
        seconds = f"{t.textbook_seconds:11.3f} {t.our_seconds:7.3f}"
        out.write(f"{t.format:8} {t.rows:10,} {t.megabytes:7.1f} {seconds} {t.ratio:6.1f}\n")
    return out.getvalue()


if __name__ == "__main__":
    main()
