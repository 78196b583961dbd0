"""What the benchmarks share: a row with both sides' seconds, how they are measured, and how rows are printed."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import TypeVar

from app.evaluator.measurements import Measurements

Result = TypeVar("Result")
Size = dict[str, int]


@dataclass(frozen=True)
class Row:
    """Seconds of the textbook side and of ours for the same work.

    Attributes
    ----------
    ratio : textbook over ours.
    size : counts of what was worked on, by their plural names: of measurements always `cells`, `questions`,
        `trajectories` and `positions`, summed over the cells; beside them what else the work depends on, `settings`
        or `bytes`, say.
    """

    work: str
    textbook_seconds: float
    ours_seconds: float
    ratio: float
    size: Size


def measure(work: Callable[[], Result], *, clock: Callable[[], float] = time.process_time) -> tuple[float, Result]:
    """Return the seconds of a call, and its result.

    The clock counts the processor time of this process, since other work on the machine stretches any other kind.
    """
    start = clock()
    result = work()
    return clock() - start, result


def time_best(
    work: Callable[[], Result], *, repeats: int, clock: Callable[[], float] = time.process_time
) -> tuple[float, Result]:
    """Return the least seconds of some calls, and the last result."""
    least, result = measure(work, clock=clock)
    for _ in range(repeats - 1):
        seconds, result = measure(work, clock=clock)
        least = min(least, seconds)
    return least, result


def build_row(work: str, textbook_seconds: float, ours_seconds: float, *, size: Size) -> Row:
    """Return a row with its ratio."""
    return Row(work, textbook_seconds, ours_seconds, textbook_seconds / ours_seconds, size)


def count_size(measurements: Measurements, **counts: int) -> Size:
    """Return how much there is of what.

    Examples
    --------
    >>> from app.evaluator.measurements import build_cell
    >>> cell = build_cell("m", "b", [("q", "test", [[(0, 1), (5, 2)], [(0, 0)]])], 4)
    >>> count_size(Measurements("s", "", "measured", "all", 4, 2, ("m",), ("b",), (cell,)), settings=20)
    {'cells': 1, 'questions': 1, 'trajectories': 2, 'positions': 3, 'settings': 20}
    """
    cells = measurements.cells
    return {
        "cells": len(cells),
        "questions": sum(cell.n_questions for cell in cells),
        "trajectories": sum(cell.n_trajectories for cell in cells),
        "positions": sum(cell.retained_tokens.size for cell in cells),
        **counts,
    }


def add_format_option(parser: argparse.ArgumentParser) -> None:
    """Let the user choose between lines of text, a Markdown table and one JSON document."""
    parser.add_argument("--format", choices=("text", "markdown", "json"), default="text")


def print_rows(rows: Iterable[Row], style: str) -> None:
    """Print rows as they are measured; as JSON all at once, in one list."""
    if style == "json":
        print(json.dumps([asdict(row) for row in rows]))  # noqa: T201
        return
    if style == "markdown":
        print("| work | size | textbook | ours | ratio |\n| --- | --- | --- | --- | --- |")  # noqa: T201
    for row in rows:
        counts = ", ".join(f"{count:,} {name}" for name, count in row.size.items())
        textbook, ours = write_seconds(row.textbook_seconds), write_seconds(row.ours_seconds)
        if style == "markdown":
            print(f"| {row.work} | {counts} | {textbook} | {ours} | {write_ratio(row.ratio)} |", flush=True)  # noqa: T201
        else:
            line = f"{row.work}: textbook {textbook}, ours {ours}, {write_ratio(row.ratio)} times faster ({counts})"
            print(line, flush=True)  # noqa: T201


def write_seconds(seconds: float) -> str:
    """Return seconds with three digits that count, milliseconds below a tenth.

    >>> [write_seconds(s) for s in (12.345, 0.5, 0.01234, 0.0001)]
    ['12.3 s', '0.500 s', '12.3 ms', '0.100 ms']
    """
    if seconds >= 0.1:
        return f"{write_digits(seconds)} s"
    return f"{write_digits(1000 * seconds)} ms"


def write_ratio(ratio: float) -> str:
    """Return a ratio with two digits that count, or whole."""
    return f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}"


def write_digits(value: float) -> str:
    """Return a number with three digits that count."""
    return (
        f"{value:.3f}"
        if value < 1
        else f"{value:.2f}"
        if value < 10
        else f"{value:.1f}"
        if value < 100
        else f"{value:.0f}"
    )
