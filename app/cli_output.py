"""How commands speak: a document, table or CSV on standard output; progress, warnings and errors on standard error."""

from __future__ import annotations

import csv
import io
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from app.errors import AppError, Problem, UnreachableError

PROBLEMS_STATUS = 1
UNREACHABLE_STATUS = 3
# Wide enough for any row where the output is no terminal, so that nothing is cut or folded in a file.
_UNBOUNDED_WIDTH = 10_000


class Format(StrEnum):
    """How a command prints what it found."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@dataclass(frozen=True)
class Rows:
    """A table to print: column names and rows of plain values; None is an undefined value."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[object]]
    title: str | None = None
    align_numbers: bool = True


def remember_format(ctx: typer.Context, value: Format) -> Format:
    """Keep the chosen format where the reporting of errors finds it."""
    ctx.meta["otboard.format"] = value
    return value


def chosen_format(ctx: Any) -> Format:
    """Return the format of the command that was run, the table where it has none or did not get so far."""
    chosen: Format = ctx.meta.get("otboard.format", Format.TABLE)
    return chosen


def write_times(value: Any) -> Any:
    """Return a document with its times as text, in UTC.

    Examples
    --------
    >>> from datetime import UTC, datetime
    >>> write_times({"ends": [datetime(2026, 1, 2, tzinfo=UTC), None]})
    {'ends': ['2026-01-02T00:00:00Z', None]}
    """
    if isinstance(value, dict):
        return {key: write_times(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [write_times(part) for part in value]
    return value.astimezone(UTC).isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else value


def print_result(document: object, output_format: Format, *, rows: Callable[[], Rows]) -> None:
    """Print a result: the document as JSON, or its rows as a table or CSV."""
    if output_format is Format.JSON:
        from app.files.documents import dump_json

        _write(dump_json(document))
    elif output_format is Format.CSV:
        _write(_format_csv(rows()))
    else:
        _print_table(rows(), _console(sys.stdout))


def print_notes(*lines: str) -> None:
    """Print remarks on standard error."""
    console = _console(sys.stderr)
    for line in lines:
        console.print(Text(_printable(line)), soft_wrap=True)


def print_warnings(warnings: Sequence[Problem]) -> None:
    """Print a file's warnings on standard error."""
    for warning in warnings:
        print_notes(f"warning: {warning.message} ({warning.code})")


def report_error(error: AppError, output_format: Format) -> int:
    """Print an error with all its problems, and return the exit status.

    As JSON it is the one document on standard output; else a line and a table on standard error.
    """
    if output_format is Format.JSON:
        from app.files.documents import dump_json, error_document

        _write(dump_json(error_document(error)))
    else:
        print_notes(f"error: {error.detail} ({error.code})")
        if error.problems:
            _print_table(_list_problems(error.problems), _console(sys.stderr))
    return UNREACHABLE_STATUS if isinstance(error, UnreachableError) else PROBLEMS_STATUS


@contextmanager
def show_progress(what: str) -> Iterator[Callable[[str, float], None]]:
    """Show a bar on standard error, if that is a terminal, and yield what moves it: a description and a share 0..1."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = _console(sys.stderr)
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(_printable(what), total=1.0)

        def report(description: str, share: float) -> None:
            progress.update(task, description=_printable(description), completed=share)

        with _show_notes(progress.console):
            yield report


@contextmanager
def _show_notes(console: Console) -> Iterator[None]:
    """Print above the bar, if there is one, that loops are being compiled: the bar stands still meanwhile."""
    logger = logging.getLogger("app.evaluator.compiled")
    handler, level = _Notes(console), logger.level
    if not console.is_terminal:
        yield
        return
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _Notes(logging.Handler):
    """Prints messages as they are."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.INFO)
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        self.console.print(record.getMessage(), markup=False)


def _list_problems(problems: Sequence[Problem]) -> Rows:
    """List the problems, and after them how many more there are of each code that is not shown in full."""
    shown: dict[str, int] = {}
    for problem in problems:
        shown[problem.code] = shown.get(problem.code, 0) + 1
    totals = {problem.code: problem.count for problem in problems}
    more: list[Sequence[object]] = [
        (code, None, None, None, f"… {total - shown[code]} more, {total} in all")
        for code, total in totals.items()
        if total > shown[code]
    ]
    rows: list[Sequence[object]] = [(p.code, p.row, p.column, p.unit, p.message) for p in problems]
    return Rows(("code", "row", "column", "unit", "message"), rows + more)


def _print_table(rows: Rows, console: Console) -> None:
    table = Table(title=Text(_printable(rows.title)) if rows.title else None, title_justify="left", box=None)
    for idx, column in enumerate(rows.columns):
        is_number = rows.align_numbers and any(isinstance(row[idx], int | float) for row in rows.rows)
        table.add_column(Text(column), justify="right" if is_number else "left", overflow="fold")
    for row in rows.rows:
        table.add_row(*(Text(_show(value, column)) for value, column in zip(row, rows.columns, strict=True)))
    console.print(table)


def _show(value: object, column: str) -> str:
    """Return a value as a table shows it: fractions to four digits, token counts to one, no model as all of them."""
    if value is None:
        return "all" if column in ("model", "benchmark") else "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.1f}" if "tokens" in column and "saved" not in column else f"{value:.4f}"
    return _printable(str(value))


def _format_csv(rows: Rows) -> str:
    from app.files.csv_fields import format_field

    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(rows.columns)
    writer.writerows([format_field(value) for value in row] for row in rows.rows)
    return written.getvalue()


def _printable(text: str) -> str:
    """Return the text with what would steer a terminal written out."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _console(stream: Any) -> Console:
    is_terminal = stream.isatty()
    return Console(file=stream, width=None if is_terminal else _UNBOUNDED_WIDTH, highlight=False, emoji=False)


def _write(text: str) -> None:
    # UTF-8 whatever the locale says: JSON and CSV are read by programs. Half a surrogate pair, from a path that is not
    # in the locale's encoding, is written as JSON's own escape for it.
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(text)
    else:
        binary.write(text.encode("utf-8", "backslashreplace"))
        binary.flush()
