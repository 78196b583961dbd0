"""The sections of an analysis as CSV: one table each, every digit of the JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from app.files.csv_fields import format_field
from app.report_tables import index_figures
from app.report_values import Document

Row = dict[str, Any]


def format_analysis_csv(kind: str, section: Document) -> str:
    """Return one section of an analysis as CSV: a head, then a row each; an empty field for an undefined value.

    Averages over all models or benchmarks have an empty `model` or `benchmark`.

    Raises
    ------
    KeyError : no section has this name.

    Examples
    --------
    >>> bins = [{"start_tokens": 0, "end_tokens": 1024, "positive": 0.5, "reason": None}]
    >>> print(format_analysis_csv("local_changes", {"bin_tokens": 1024, "bins": bins}), end="")
    start_tokens,end_tokens,positive,reason\r
    0,1024,0.5,\r
    """
    rows = list(_TABLES[kind](section))
    columns = list(dict.fromkeys(name for row in rows for name in row))
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([format_field(row.get(name)) for name in columns])
    return written.getvalue()


def _list_cells(section: Document) -> Iterator[Row]:
    for (model, benchmark), figures in index_figures(section).items():
        plain = {name: value for name, value in figures.items() if not isinstance(value, list | Mapping)}
        yield {"model": model, "benchmark": benchmark} | {
            name: value for name, value in plain.items() if name not in ("model", "benchmark")
        }


def _list_bins(section: Document) -> Iterator[Row]:
    yield from section["bins"]


def _list_points(section: Document) -> Iterator[Row]:
    for point in section["points"]:
        weights = {f"aes_weight_{name}": value for name, value in point["aes_weights"].items()}
        yield {name: value for name, value in point.items() if name != "aes_weights"} | weights


def _list_thinned(section: Document) -> Iterator[Row]:
    for thinned in section["probes"]:
        macro = {name: average["macro"] for name, average in thinned["averages"].items()}
        yield {"probes": thinned["probes"], "trajectories": None} | macro
    for thinned in section["trajectories"]:
        ranges = thinned["macro"] or {}
        ends = {f"{name}_{end}": bounds[end] for name, bounds in ranges.items() for end in ("low", "high")}
        yield {"probes": None, "trajectories": thinned["trajectories"]} | ends


def _list_curves(section: Document) -> Iterator[Row]:
    groups: list[tuple[str, Sequence[Document]]] = [(s["shape"], s["curves"]) for s in section["shapes"]]
    for name, curves in (*groups, ("question", section["question"]["curves"])):
        for curve in curves:
            named = {key: curve[key] for key in ("model", "benchmark", "question_id", "trajectory")}
            points = zip(curve["retained_tokens"], curve["correct_probes"], strict=True)
            for position, (tokens, correct) in enumerate(points):
                yield {"example": name, **named, "position": position, "retained_tokens": tokens,
                       "correct_probes": correct, "probes_per_position": curve["probes_per_position"],
                       "is_reference": position == curve["reference"]}  # fmt: skip


def _list_steps(section: Document) -> Iterator[Row]:
    for partition in section["partitions"]:
        for model, figures in partition["models"].items():
            named = {"model": model, "step_tokens": partition["step_tokens"], "is_recorded": partition["is_recorded"]}
            for idx, count in enumerate(figures["counts"]):
                yield {**named, "from_tokens": idx * figures["bin_tokens"], "steps": count}


def _list_intervals(section: Document) -> Iterator[Row]:
    for board in section["boards"]:
        named = {"model": board["model"], "benchmark": board["benchmark"]}
        for strategy, figures in (
            (None, board["figures"]),
            *((frontier["strategy"], frontier["figures"]) for frontier in board["frontiers"]),
        ):
            for name, ends in figures.items():
                low, high = ends or (None, None)
                yield {**named, "strategy": strategy, "figure": name, "low": low, "high": high}


_TABLES: dict[str, Callable[[Document], Iterator[Row]]] = {
    "overthinking": _list_cells,
    "direct_answers": _list_cells,
    "diversity": _list_cells,
    "traces": _list_cells,
    "local_changes": _list_bins,
    "thinning": _list_thinned,
    "examples": _list_curves,
    "step_lengths": _list_steps,
    "efficiency": _list_points,
    "intervals": _list_intervals,
}
