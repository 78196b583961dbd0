"""Public benchmarks as question sets: from a hub of data sets where one can be reached, from JSON Lines anywhere.

The rows have the fields of the data sets as they are published; `docs/questions.md` lists them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.errors import ContentError, UnreachableError
from app.files.manifest import parse_json
from app.files.problems import ProblemCollector, suggest
from app.files.question_checks import FORMAT, check_question
from app.files.questions import Kind, Question, QuestionError, QuestionSet, build_question, build_question_set
from worker.benchmark_rows import RowError, read_code_tests

ORDER_SEED = 20260721
MATHEMATICS_INSTRUCTION = r"Please reason step by step, and put your final answer within \boxed{}."
CHOICE_INSTRUCTION = (
    "Please reason step by step, and show your choice in the `answer` field with only the choice letter, e.g., "
    '`"answer": "C"`.'
)
CODE_INSTRUCTION = "Please reason step by step."
_DIRECT = {
    "mathematics": r"Put your final answer within \boxed{} at once, without any reasoning before it.",
    "choice": 'Show your choice at once, without any reasoning before it, as in `"answer": "C"`.',
    "code": "Write the program at once, without any reasoning before it.",
}
_INSTRUCTIONS = {"mathematics": MATHEMATICS_INSTRUCTION, "choice": CHOICE_INSTRUCTION, "code": CODE_INSTRUCTION}
_LEVELS = {"easy": 1, "medium": 2, "hard": 3}


class UnknownBenchmarkError(ContentError):
    """No loader has this name."""

    code = "unknown_benchmark"
    title = "There is no loader for the benchmark"


class HubError(UnreachableError):
    """The hub of data sets cannot be reached, or does not give the data set away."""

    code = "hub_unreachable"
    title = "The data set cannot be fetched"


class RowsError(ContentError):
    """The rows of a local file are not those of the data set."""

    code = "bad_rows"
    title = "The rows have problems"


@dataclass(frozen=True)
class DataSet:
    """Where rows come from: a data set of a hub, its part, and, where it is kept as JSON Lines, the file."""

    repository: str
    part: str
    configuration: str | None = None
    file: str | None = None
    prefix: str = ""


@dataclass(frozen=True)
class Benchmark:
    """A loader: which data sets, under which licence, and how a row becomes a question's document."""

    name: str
    title: str
    kind: Kind
    license: str
    data_sets: tuple[DataSet, ...]
    convert: Callable[[Mapping[str, Any], DataSet, int], dict[str, Any]]


def list_benchmarks() -> tuple[Benchmark, ...]:
    """Return the loaders there are."""
    return _BENCHMARKS


def find_benchmark(name: str) -> Benchmark:
    """Return a loader by its name; case, blanks, dashes and underscores do not matter.

    Raises
    ------
    UnknownBenchmarkError : there is none; the names there are, and how to bring one's own questions.
    """
    for benchmark in _BENCHMARKS:
        if _squeeze(benchmark.name) == _squeeze(name):
            return benchmark
    names = [benchmark.name for benchmark in _BENCHMARKS]
    raise UnknownBenchmarkError(
        f"there is no loader for the benchmark {name!r}{suggest(name, names).rstrip('?')}. "
        f"Loaders: {', '.join(names)}. Questions of your own are a file of the format {FORMAT}: see docs/questions.md"
    )


def load_benchmark(
    name: str, *, source: Path | None = None, seed: int = ORDER_SEED, train_share: float = 0.0
) -> QuestionSet:
    """Return the question set of a public benchmark.

    Parameters
    ----------
    name : of `list_benchmarks`.
    source : JSON Lines with the rows of the data set, a file or a folder of files for a benchmark of several data
        sets; None asks the hub.
    seed : of the order of a choice's options, which is drawn for each question by itself, and of the split.
    train_share : which share of the questions goes into the split `train`, each by a draw of its own; all others are
        in `test`.

    Raises
    ------
    UnknownBenchmarkError : there is no such loader.
    HubError : the data set cannot be fetched.
    RowsError : a row lacks a field or holds something else than the data set does; all are listed.
    """
    benchmark = find_benchmark(name)
    problems = ProblemCollector()
    questions: list[Question] = []
    for row, (fields, data_set) in enumerate(_read_rows(benchmark, source), start=1):
        try:
            document = benchmark.convert(fields, data_set, seed)
        except RowError as exc:
            problems.add("bad_row", f"row {row}: {exc}", row=row, column=exc.field)
            continue
        document |= {"benchmark": benchmark.name, "kind": benchmark.kind}
        document["split"] = "train" if draw_share(seed, document["question_id"]) < train_share else "test"
        if check_question(document, problems, row=row):
            questions.append(build_question(document))
    where = str(source) if source else ", ".join(data_set.repository for data_set in benchmark.data_sets)
    if problems:
        raise RowsError(f"{where} does not hold the rows of {benchmark.title}", problems=problems.problems())
    header = {
        "format": FORMAT,
        "benchmark": benchmark.name,
        "title": benchmark.title,
        "license": benchmark.license,
        "source": ", ".join(data_set.repository for data_set in benchmark.data_sets),
        "kind": benchmark.kind,
        "instruction": _INSTRUCTIONS[benchmark.kind],
        "direct_instruction": _DIRECT[benchmark.kind],
    }
    try:
        return build_question_set(header, questions)
    except QuestionError as exc:
        raise RowsError(f"{where} does not hold the rows of {benchmark.title}", problems=exc.problems) from exc


def draw_order(seed: int, question_id: str, n_options: int) -> tuple[int, ...]:
    """Return the order in which a question shows its options: all orders are equally likely.

    Each option's place is drawn by the SHA-256 of the seed, the question and the option's number, so that the order
    does not depend on other questions, and a second run shows the same.
    """
    return tuple(sorted(range(n_options), key=lambda idx: _hash(seed, question_id, idx)))


def draw_share(seed: int, question_id: str) -> float:
    """Return a number from 0 up to 1 that is a question's own."""
    return int.from_bytes(_hash(seed, question_id, "split")[:6], "big") / 2**48


def _hash(*parts: str | int) -> bytes:
    return hashlib.sha256(json.dumps(parts, ensure_ascii=True).encode("ascii")).digest()


def _squeeze(name: str) -> str:
    return "".join(character for character in name.casefold() if character.isalnum())


def _read_rows(benchmark: Benchmark, source: Path | None) -> Iterator[tuple[Mapping[str, Any], DataSet]]:
    """Yield the rows of a benchmark, each with the data set it is of."""
    for data_set in benchmark.data_sets:
        if source is None:
            rows = _fetch_rows(data_set, benchmark)
        else:
            rows = _read_lines(_find_file(source, data_set, benchmark))
        for row in rows:
            yield row, data_set


def _fetch_rows(data_set: DataSet, benchmark: Benchmark) -> Iterable[Mapping[str, Any]]:
    """Fetch the rows of a data set of the hub, or take them from its cache."""
    # Importing it takes seconds, and reads settings from the environment.
    from datasets import load_dataset  # type: ignore[import-untyped]

    try:
        if data_set.file is not None:
            address = f"hf://datasets/{data_set.repository}/{data_set.file}"
            rows: Iterable[Mapping[str, Any]] = load_dataset("json", data_files=address, split="train")
        else:
            rows = load_dataset(data_set.repository, data_set.configuration, split=data_set.part)
        return rows
    except Exception as exc:  # the hub's client raises what its many parts raise
        reason = (str(exc).splitlines() or [type(exc).__name__])[0]
        raise HubError(
            f"{data_set.repository} cannot be fetched: {reason}. Its licence: {benchmark.license}. Where no hub can be "
            "reached, save its rows as JSON Lines elsewhere and name the file as the source"
        ) from exc


def _find_file(source: Path, data_set: DataSet, benchmark: Benchmark) -> Path:
    """Return the file of a data set: the one that was named, or of a folder the one named like the data set."""
    name = f"{data_set.repository.rsplit('/', maxsplit=1)[-1]}.jsonl"
    path = source / name if source.is_dir() else source
    if len(benchmark.data_sets) > 1 and not source.is_dir():
        names = ", ".join(f"{d.repository.rsplit('/', maxsplit=1)[-1]}.jsonl" for d in benchmark.data_sets)
        raise RowsError(f"{benchmark.title} has several data sets: name a folder that holds {names}")
    if not path.is_file():
        raise RowsError(f"there is no file {path} with the rows of {data_set.repository}")
    return path


def _read_lines(path: Path) -> list[Mapping[str, Any]]:
    problems = ProblemCollector()
    rows: list[Mapping[str, Any]] = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    value = parse_json(line)
                    if not isinstance(value, dict):
                        raise ValueError("it is no object")
                    rows.append(value)
                except ValueError as exc:
                    problems.add("not_json", f"line {number} is not a JSON object: {exc}", row=number)
    except (OSError, UnicodeDecodeError) as exc:
        problems.add("unreadable_file", f"{path} cannot be read: {exc}")
    if problems:
        raise RowsError(f"{path.name} has problems", problems=problems.problems())
    return rows


def _text(row: Mapping[str, Any], field: str) -> str:
    """Return a text of a row; numbers are taken as they are written."""
    value = row.get(field)
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise RowError(field, f"{field} is {json.dumps(value, default=str)[:80]}, expected a text")
    return str(value)


def _convert_aime(row: Mapping[str, Any], data_set: DataSet, _: int) -> dict[str, Any]:
    identifier = _text(row, "id" if "id" in row else "problem_idx")
    return {
        "question_id": f"{data_set.prefix}{identifier}",
        "prompt": _text(row, "problem").strip(),
        "reference_answer": _text(row, "answer").strip(),
    }


def _convert_math(row: Mapping[str, Any], _: DataSet, __: int) -> dict[str, Any]:
    level = row.get("level")
    if isinstance(level, str) and level.removeprefix("Level ").isdigit():
        level = int(level.removeprefix("Level "))
    return {
        "question_id": _text(row, "unique_id"),
        "prompt": _text(row, "problem").strip(),
        "reference_answer": _text(row, "answer").strip(),
        "difficulty": level,
    }


def _convert_gpqa(row: Mapping[str, Any], _: DataSet, seed: int) -> dict[str, Any]:
    identifier = _text(row, "Record ID")
    fields = ("Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3")
    texts = [_text(row, field).strip() for field in fields]
    order = draw_order(seed, identifier, len(texts))
    options = [texts[idx] for idx in order]
    listed = "\n".join(f"{chr(ord('A') + idx)}) {option}" for idx, option in enumerate(options))
    return {
        "question_id": identifier,
        "prompt": f"{_text(row, 'Question').strip()}\n\n{listed}",
        "reference_answer": chr(ord("A") + order.index(0)),
        "options": options,
    }


def _convert_code(row: Mapping[str, Any], _: DataSet, __: int) -> dict[str, Any]:
    starter = row.get("starter_code") or ""
    if starter:
        request = f"Complete this Python code:\n\n```python\n{starter.rstrip()}\n```"
    else:
        request = "Write a Python program that reads the input from standard input and prints the answer."
    tests, function_name = read_code_tests(row)
    document = {
        "question_id": _text(row, "question_id"),
        "prompt": f"{_text(row, 'question_content').strip()}\n\n{request} Put the whole program into one code block.",
        "reference_answer": "",
        "difficulty": _LEVELS.get(str(row.get("difficulty")).casefold()),
        "tests": tests,
    }
    return document if function_name is None else {**document, "function_name": function_name}


_AIME = {
    2024: DataSet("HuggingFaceH4/aime_2024", "train", prefix="2024-"),
    2025: DataSet("MathArena/aime_2025", "train", prefix="2025-"),
    2026: DataSet("MathArena/aime_2026", "train", prefix="2026-"),
}
_AIME_LICENSE = "the problems are the Mathematical Association of America's; the data sets say {}"
_BENCHMARKS = (
    Benchmark(
        "AIME",
        "AIME 2024, 2025 and 2026",
        "mathematics",
        _AIME_LICENSE.format("CC BY-NC-SA 4.0 (2025, 2026), and nothing (2024)"),
        tuple(_AIME.values()),
        _convert_aime,
    ),
    *(
        Benchmark(
            f"AIME{year}",
            f"AIME {year}",
            "mathematics",
            _AIME_LICENSE.format("nothing" if year == 2024 else "CC BY-NC-SA 4.0"),
            (data_set,),
            _convert_aime,
        )
        for year, data_set in _AIME.items()
    ),
    Benchmark(
        "MATH500",
        "MATH500",
        "mathematics",
        "MIT, as MATH, whose problems these are",
        (DataSet("HuggingFaceH4/MATH-500", "test"),),
        _convert_math,
    ),
    Benchmark(
        "GPQA-Diamond",
        "GPQA-Diamond",
        "choice",
        "CC BY 4.0; its authors ask not to publish the questions in plain text, and to agree to that before fetching",
        (DataSet("Idavidrein/gpqa", "train", configuration="gpqa_diamond"),),
        _convert_gpqa,
    ),
    Benchmark(
        "LiveCodeBench",
        "LiveCodeBench, the 175 questions of January to April 2025",
        "code",
        "the data set says CC; the problems are those of the contests' hosts",
        (DataSet("livecodebench/code_generation_lite", "test", file="test6.jsonl"),),
        _convert_code,
    ),
)
