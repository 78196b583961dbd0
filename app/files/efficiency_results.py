"""Results of methods that change the generation itself: sets of published figures, as CSV with a source."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path

import yaml

from app.errors import ContentError
from app.evaluator.efficiency import measure_efficiency
from app.files.problems import ProblemCollector, suggest

SHIPPED_FOLDER = Path(__file__).parent / "data" / "efficiency"
COLUMNS = ("benchmark", "paradigm", "method", "backbone", "accuracy", "tokens", "e3")
OPTIONAL_COLUMNS = frozenset({"e3"})
NAME_COLUMNS = ("benchmark", "method", "backbone")
MAX_RESULTS = 20_000
MAX_NAME = 100
MAX_NUMBER = 15
MAX_PRINTED_DIGITS = 6
NUMBER = re.compile(r"\d+(\.\d+)?|\.\d+")


class Paradigm(StrEnum):
    """Where a method intervenes: before, while or after the model reasons; `reference` is what E3 compares with."""

    REFERENCE = "reference"
    REASONING_BLUEPRINT = "reasoning_blueprint"
    DYNAMIC_EXECUTION = "dynamic_execution"
    POST_HOC_REFINEMENT = "post_hoc_refinement"
    OTHER = "other"


class InvalidEfficiencyResultsError(ContentError):
    """A file of efficiency results has faults; all are listed."""

    code = "invalid_efficiency_results"
    title = "The results have problems"


@dataclass(frozen=True)
class EfficiencyRow:
    """One line of a file.

    Attributes
    ----------
    accuracy : in [0, 1]. tokens : mean output tokens of a question, >= 0.
    e3_printed : the score that the source prints, to `e3_digits` decimals; both None where it prints none.
    """

    benchmark: str
    paradigm: Paradigm
    method: str
    backbone: str
    accuracy: float
    tokens: float
    e3_printed: float | None
    e3_digits: int | None

    @property
    def place(self) -> tuple[str, str]:
        """What a row is compared within: its benchmark and backbone."""
        return self.benchmark, self.backbone


@dataclass(frozen=True)
class EfficiencyResult:
    """A row beside its reference, and the E3 of the two.

    Attributes
    ----------
    base_accuracy, base_tokens : of the reference of the same benchmark and backbone.
    e3 : computed with rho = -1 and w = the reference's accuracy; None with `e3_reason`.
    agrees : whether it rounds to the printed score; None where one of the two is missing.
    """

    row: EfficiencyRow
    base_accuracy: float
    base_tokens: float
    e3: float | None
    e3_reason: str | None
    agrees: bool | None


@dataclass(frozen=True)
class ResultSource:
    """Where the figures of a set come from, as plain text; `url` is None where there is no page to point at."""

    title: str
    citation: str
    url: str | None
    license_note: str


@dataclass(frozen=True)
class ShippedSet:
    """A set that comes with the program."""

    name: str
    source: ResultSource
    rows: tuple[EfficiencyRow, ...]


def parse_results(content: bytes) -> tuple[EfficiencyRow, ...]:
    """Read a CSV file of results: UTF-8, a header, one row for each benchmark, backbone and method.

    Columns come in any order; `e3` may be absent or empty. Each benchmark and backbone has exactly one row of the
    paradigm `reference`. Blank lines and a byte order mark are ignored.

    Raises
    ------
    InvalidEfficiencyResultsError : with every fault, each with its code, row and column.

    Examples
    --------
    >>> text = b"benchmark,paradigm,method,backbone,accuracy,tokens,e3\\n"
    >>> rows = parse_results(text + b"sums,reference,CoT,tiny,0.5,100,\\nsums,other,terse,tiny,0.5,50,1.33\\n")
    >>> [(result.row.method, round(result.e3, 4), result.agrees) for result in compare_rows(rows)]
    [('CoT', 1.0, None), ('terse', 1.3333, True)]
    """
    problems = ProblemCollector()
    rows = tuple(_read_rows(content, problems))
    if not rows and not problems:
        problems.add("empty_file", "the file has no results below its header")
    if len(rows) > MAX_RESULTS:
        problems.add("too_many_results", f"a set holds at most {MAX_RESULTS:,} results, this file has {len(rows):,}")
    _check_together(rows, problems)
    if problems:
        found = problems.n_faults
        raise InvalidEfficiencyResultsError(
            f"The file has {found:,} problem{'' if found == 1 else 's'}.", problems=problems.problems()
        )
    return tuple(row for _, row in rows)


def compare_rows(rows: Sequence[EfficiencyRow]) -> tuple[EfficiencyResult, ...]:
    """Return every row with E3 against the reference of its benchmark and backbone, in the order given.

    The rows are those of one set that `parse_results` accepted, so each has its reference.
    """
    bases = {row.place: row for row in rows if row.paradigm is Paradigm.REFERENCE}
    return tuple(_compare(row, bases[row.place]) for row in rows)


def hash_rows(rows: Sequence[EfficiencyRow]) -> str:
    """Return the SHA-256 of a set's figures: the same for the same rows in the same order, however spelled."""
    listed = [[str(value) if isinstance(value, Paradigm) else value for value in vars(row).values()] for row in rows]
    canonical = json.dumps(listed, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


@cache
def list_shipped_sets() -> tuple[ShippedSet, ...]:
    """Return the sets that come with the program, by name: published tables, each with its source."""
    return tuple(_load_shipped(path) for path in sorted(SHIPPED_FOLDER.glob("*.csv")))


def _load_shipped(path: Path) -> ShippedSet:
    source = yaml.safe_load(path.with_suffix(".yaml").read_text(encoding="utf-8"))
    return ShippedSet(path.stem, ResultSource(**source), parse_results(path.read_bytes()))


def _compare(row: EfficiencyRow, base: EfficiencyRow) -> EfficiencyResult:
    figures = measure_efficiency(row.accuracy, row.tokens, base_accuracy=base.accuracy, base_tokens=base.tokens)
    agrees = None
    if row.e3_printed is not None and row.e3_digits is not None and figures.e3 is not None:
        agrees = round(figures.e3, row.e3_digits) == row.e3_printed
    return EfficiencyResult(row, base.accuracy, base.tokens, figures.e3, figures.e3_reason, agrees)


def _read_rows(content: bytes, problems: ProblemCollector) -> Iterator[tuple[int, EfficiencyRow]]:
    """Yield the rows that can be read with the line of the file on which each begins; note every fault."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = content[: exc.start].count(b"\n") + 1
        problems.add("unreadable_file", "the file is not UTF-8; save it as CSV UTF-8", row=line)
        return
    records = _split_records(text, problems)
    header = next(records, None)
    if header is None:
        if not problems:
            problems.add("empty_file", "the file is empty")
        return
    names = _check_header(header[1], row=header[0], problems=problems)
    if names is None:
        return
    for line, record in records:
        if len(record) != len(names):
            message = f"the row has {len(record)} values, the header {len(names)}"
            problems.add("unreadable_file", message, row=line)
        elif row := _read_row(dict(zip(names, map(str.strip, record), strict=True)), line, problems):
            yield line, row


def _split_records(text: str, problems: ProblemCollector) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    while True:
        line = reader.line_num + 1
        try:
            record = next(reader, None)
        except csv.Error as exc:
            problems.add("unreadable_file", f"the row cannot be read: {exc}", row=line)
            return
        if record is None:
            return
        if any(value.strip() for value in record):
            yield line, record


def _check_header(record: list[str], *, row: int, problems: ProblemCollector) -> list[str] | None:
    names = [name.strip() for name in record]
    for name, count in Counter(names).items():
        if name not in COLUMNS:
            message = f"unknown column {name!r}{suggest(name, COLUMNS)}"
            problems.add("unknown_column", message, row=row, column=name)
        elif count > 1:
            problems.add("unknown_column", f"the column {name} occurs {count} times", row=row, column=name)
    for name in COLUMNS:
        if name not in names and name not in OPTIONAL_COLUMNS:
            problems.add("missing_column", f"the column {name} is missing", row=row, column=name)
    return None if problems else names


def _read_row(given: Mapping[str, str], line: int, problems: ProblemCollector) -> EfficiencyRow | None:
    n_before = problems.n_faults
    for column in NAME_COLUMNS:
        if not given[column] or len(given[column]) > MAX_NAME or not given[column].isprintable():
            message = f"{column} is 1 to {MAX_NAME} printable characters, not {given[column][:MAX_NAME]!r}"
            problems.add("bad_name", message, row=line, column=column)
    paradigm = given["paradigm"]
    if paradigm not in list(Paradigm):
        message = f"unknown paradigm {paradigm[:MAX_NAME]!r}; use one of {', '.join(Paradigm)}"
        problems.add("unknown_paradigm", message, row=line, column="paradigm")
    accuracy = _read_number(given["accuracy"], "accuracy", line, problems)
    if accuracy is not None and accuracy > 1:
        message = f"accuracy is a fraction from 0 to 1, not {given['accuracy']}: 90.6 % is 0.906"
        problems.add("accuracy_out_of_range", message, row=line, column="accuracy")
    tokens = _read_number(given["tokens"], "tokens", line, problems)
    printed_text = given.get("e3", "")
    printed = _read_number(printed_text, "e3", line, problems) if printed_text else None
    if problems.n_faults > n_before or accuracy is None or tokens is None:
        return None
    digits = None if printed is None else min(len(printed_text.partition(".")[2]), MAX_PRINTED_DIGITS)
    names = (given["benchmark"], Paradigm(paradigm), given["method"], given["backbone"])
    return EfficiencyRow(*names, accuracy=accuracy, tokens=tokens, e3_printed=printed, e3_digits=digits)


def _read_number(text: str, column: str, line: int, problems: ProblemCollector) -> float | None:
    """Read a plain decimal number: neither NaN nor infinity nor a thousands separator can be meant."""
    if len(text) <= MAX_NUMBER and NUMBER.fullmatch(text) and text.isascii():
        return float(text)
    message = f"{column} is a number such as 0.906 or 292.86, at most {MAX_NUMBER} characters, not {text[:30]!r}"
    problems.add("not_a_number", message, row=line, column=column)
    return None


def _check_together(rows: Sequence[tuple[int, EfficiencyRow]], problems: ProblemCollector) -> None:
    """Check what no row shows by itself: no result twice, one reference for each benchmark and backbone."""
    first: dict[tuple[str, str, str], int] = {}
    references: dict[tuple[str, str], int] = {}
    for line, row in rows:
        unit = f"{row.benchmark} / {row.backbone} / {row.method}"
        if (seen := first.setdefault((*row.place, row.method), line)) != line:
            problems.add("duplicate_result", f"the same method stands in row {seen} already", row=line, unit=unit)
        if row.paradigm is Paradigm.REFERENCE and (known := references.setdefault(row.place, line)) != line:
            message = f"row {known} is the reference of this benchmark and backbone already"
            problems.add("several_references", message, row=line, column="paradigm", unit=unit)
    for line, row in rows:
        if row.place not in references:
            references[row.place] = line
            message = (
                "no row of this benchmark and backbone has the paradigm reference, so there is nothing to compare with"
            )
            unit = f"{row.benchmark} / {row.backbone}"
            problems.add("missing_reference", message, row=line, column="paradigm", unit=unit)
