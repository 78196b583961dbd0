"""Loaders of public benchmarks: rows written by hand in the shape of the data sets, and no network."""

from __future__ import annotations

import base64
import io
import json
import os
import pickle
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.files.questions import CodeTest, read_questions, write_questions
from worker.benchmark_rows import RowError, unpack_tests
from worker.benchmarks import (
    RowsError,
    UnknownBenchmarkError,
    draw_order,
    find_benchmark,
    list_benchmarks,
    load_benchmark,
)

ROOT = Path(__file__).resolve().parents[2]
AIME_2024 = {"id": 60, "problem": " Find $x$. ", "solution": "…", "answer": "025", "url": "…", "year": "2024"}
AIME_2025 = {"problem_idx": 1, "problem": "Find $y$.", "answer": 70, "problem_type": ["Number Theory"]}
MATH = {
    "problem": "Convert $(0,3)$.",
    "solution": "…",
    "answer": r"\left( 3, \frac{\pi}{2} \right)",
    "subject": "Precalculus",
    "level": 2,
    "unique_id": "test/precalculus/807.json",
}
GPQA = {
    "Record ID": "rec1",
    "Question": "Which particle?\n",
    "Correct Answer": "the right one\n",
    "Incorrect Answer 1": "wrong one",
    "Incorrect Answer 2": "wrong two",
    "Incorrect Answer 3": "wrong three",
    "High-level domain": "Physics",
}
STDIN_TESTS = [{"input": "2\n", "output": "4\n", "testtype": "stdin"}]
FUNCTION_TESTS = [{"input": "[1, 2]\n3", "output": "6", "testtype": "functional"}]


def pack(tests: Any) -> str:
    """Pack tests as the data set does."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(tests)))).decode()


def code_row(**changes: Any) -> dict[str, Any]:
    row = {
        "question_title": "Double",
        "question_content": "Double the number.",
        "platform": "atcoder",
        "question_id": "abc387_a",
        "contest_date": "2025-01-04T00:00:00",
        "starter_code": "",
        "difficulty": "easy",
        "public_test_cases": json.dumps(STDIN_TESTS),
        "private_test_cases": pack([{"input": "5\n", "output": "10\n", "testtype": "stdin"}]),
        "metadata": "{}",
    }
    return {**row, **changes}


WriteRows = Callable[[Sequence[dict[str, Any]]], Path]


@pytest.fixture
def write_rows(tmp_path: Path) -> WriteRows:
    def write(rows: Sequence[dict[str, Any]], name: str = "rows.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
        return path

    return write


def test_aime_of_three_years(write_rows: Any, tmp_path: Path) -> None:
    write_rows([AIME_2024], "aime_2024.jsonl")
    write_rows([AIME_2025], "aime_2025.jsonl")
    write_rows([{**AIME_2025, "answer": 3}, {**AIME_2025, "problem_idx": 2}], "aime_2026.jsonl")
    loaded = load_benchmark("aime", source=tmp_path)
    assert [(q.question_id, q.reference_answer) for q in loaded.questions] == [
        ("2024-60", "025"),
        ("2025-1", "70"),
        ("2026-1", "3"),
        ("2026-2", "70"),
    ]
    assert {q.prompt for q in loaded.questions} == {"Find $x$.", "Find $y$."}
    assert r"\boxed{}" in loaded.instruction
    one = load_benchmark("AIME 2025", source=tmp_path / "aime_2025.jsonl")
    assert (one.benchmark, [q.question_id for q in one.questions]) == ("AIME2025", ["2025-1"])
    with pytest.raises(RowsError, match="name a folder that holds aime_2024"):
        load_benchmark("aime", source=tmp_path / "aime_2025.jsonl")


def test_math(write_rows: WriteRows) -> None:
    rows = [MATH, {**MATH, "unique_id": "x", "level": "Level 5"}]
    loaded = load_benchmark("math-500", source=write_rows(rows))
    assert [(q.question_id, q.difficulty) for q in loaded.questions] == [("test/precalculus/807.json", 2), ("x", 5)]
    assert loaded.questions[0].reference_answer == MATH["answer"]


def test_choices_are_listed_in_their_drawn_order(write_rows: WriteRows) -> None:
    loaded = load_benchmark("gpqa-diamond", source=write_rows([GPQA]))
    (question,) = loaded.questions
    assert sorted(question.options) == ["the right one", "wrong one", "wrong three", "wrong two"]
    assert question.options["ABCD".index(question.reference_answer)] == "the right one"
    listed = [f"{letter}) {option}" for letter, option in zip("ABCD", question.options, strict=True)]
    assert question.prompt == "Which particle?\n\n" + "\n".join(listed)
    assert "answer" in loaded.instruction


def test_the_right_option_is_not_always_in_one_place(write_rows: WriteRows) -> None:
    """A loader that always gives D rewards a model that always says D."""
    rows = [{**GPQA, "Record ID": f"rec{idx}"} for idx in range(400)]
    loaded = load_benchmark("gpqa-diamond", source=write_rows(rows))
    letters = Counter(q.reference_answer for q in loaded.questions)
    # 100 each if all are equally likely; 400 draws give less than 70 or more than 130 once in a thousand times.
    assert set(letters) == set("ABCD")
    assert all(70 <= count <= 130 for count in letters.values())
    orders = Counter(draw_order(1, f"rec{idx}", 4) for idx in range(2400))
    assert len(orders) == 24
    assert max(orders.values()) < 160


def test_the_order_is_the_questions_own(write_rows: WriteRows) -> None:
    rows = [{**GPQA, "Record ID": f"rec{idx}"} for idx in range(20)]
    first = load_benchmark("gpqa-diamond", source=write_rows(rows))
    again = load_benchmark("gpqa-diamond", source=write_rows(rows[::-1]))
    assert first == again
    alone = load_benchmark("gpqa-diamond", source=write_rows(rows[7:8]))
    assert alone.questions[0] in first.questions
    other = load_benchmark("gpqa-diamond", source=write_rows(rows), seed=1)
    assert [q.options for q in other.questions] != [q.options for q in first.questions]


def test_programs_that_read_and_print(write_rows: WriteRows) -> None:
    loaded = load_benchmark("livecodebench", source=write_rows([code_row()]))
    (question,) = loaded.questions
    assert question.tests == (CodeTest("2\n", "4\n"), CodeTest("5\n", "10\n"))
    assert (question.difficulty, question.function_name, question.reference_answer) == (1, None, "")
    assert question.prompt.startswith("Double the number.\n\nWrite a Python program that reads the input")


def test_programs_that_are_a_function(write_rows: WriteRows) -> None:
    starter = "class Solution:\n    def total(self, values, more):\n        "
    row = code_row(
        starter_code=starter,
        difficulty="hard",
        public_test_cases=json.dumps(FUNCTION_TESTS),
        private_test_cases=json.dumps(FUNCTION_TESTS),
        metadata=json.dumps({"func_name": "total"}),
    )
    (question,) = load_benchmark("livecodebench", source=write_rows([row])).questions
    assert question.tests == (CodeTest("[1, 2]\n3", "6", "function"),) * 2
    assert (question.function_name, question.difficulty) == ("total", 3)
    assert "```python\nclass Solution:\n    def total(self, values, more):\n```" in question.prompt


class Hostile:
    """Unpickled by a careless reader, it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_packed_tests_run_no_code(tmp_path: Path) -> None:
    trap = tmp_path / "trap"
    packed = base64.b64encode(zlib.compress(pickle.dumps(Hostile(trap)))).decode()
    with pytest.raises(RowError, match=r"it asks for posix\.mkdir"):
        unpack_tests(packed)
    assert not trap.exists()
    # The trap is real: unpickled as it is, it does what it says.
    pickle.load(io.BytesIO(zlib.decompress(base64.b64decode(packed))))
    assert trap.exists()


@pytest.mark.parametrize(
    "packed",
    ["!!", base64.b64encode(b"x").decode(), base64.b64encode(zlib.compress(b"\x80")).decode(), ""],
)
def test_packed_tests_that_are_broken(packed: str) -> None:
    with pytest.raises(RowError):
        unpack_tests(packed)


def test_packed_tests_that_are_no_text() -> None:
    with pytest.raises(RowError, match="it is no text"):
        unpack_tests(base64.b64encode(zlib.compress(pickle.dumps(5))).decode())


@pytest.mark.parametrize(
    ("benchmark", "row", "column"),
    [
        ("math500", {key: MATH[key] for key in MATH if key != "answer"}, "answer"),
        ("math500", {**MATH, "level": "hard"}, "difficulty"),
        ("gpqa-diamond", {**GPQA, "Incorrect Answer 3": None}, "Incorrect Answer 3"),
        ("gpqa-diamond", {**GPQA, "Incorrect Answer 3": "wrong two"}, "options"),
        ("aime2025", {"problem": "x", "answer": True, "problem_idx": 1}, "answer"),
        ("livecodebench", code_row(public_test_cases="{"), "public_test_cases"),
        ("livecodebench", code_row(public_test_cases='[{"input": 1}]'), "public_test_cases"),
        ("livecodebench", code_row(private_test_cases="{}"), "private_test_cases"),
        ("livecodebench", code_row(public_test_cases=json.dumps(FUNCTION_TESTS)), "metadata"),
        ("livecodebench", code_row(public_test_cases=json.dumps(FUNCTION_TESTS), metadata="["), "metadata"),
    ],
)
def test_rows_of_another_shape_are_named(
    write_rows: WriteRows, benchmark: str, row: dict[str, Any], column: str
) -> None:
    with pytest.raises(RowsError) as raised:
        load_benchmark(benchmark, source=write_rows([row]))
    assert [(problem.row, problem.column) for problem in raised.value.problems] == [(1, column)]


def test_files_of_rows_that_cannot_be_read(write_rows: WriteRows, tmp_path: Path) -> None:
    with pytest.raises(RowsError, match="there is no file"):
        load_benchmark("math500", source=tmp_path / "none.jsonl")
    path = write_rows([MATH])
    path.write_text(path.read_text() + "{\n[]\n")
    with pytest.raises(RowsError) as raised:
        load_benchmark("math500", source=path)
    assert [problem.row for problem in raised.value.problems] == [2, 3]
    with pytest.raises(RowsError) as raised:
        load_benchmark("math500", source=write_rows([MATH, MATH]))
    assert [problem.code for problem in raised.value.problems] == ["duplicate_question"]


def test_a_share_of_the_questions_may_be_for_training(write_rows: WriteRows) -> None:
    rows = [{**MATH, "unique_id": f"q{idx}"} for idx in range(300)]
    splits = {
        share: [q.split for q in load_benchmark("math500", source=write_rows(rows), train_share=share).questions]
        for share in (0.0, 0.3, 0.5, 1.0)
    }
    assert set(splits[0.0]) == {"test"}
    assert set(splits[1.0]) == {"train"}
    assert 60 <= splits[0.3].count("train") <= 120
    # A larger share keeps the questions that were in the smaller one.
    assert all(b == "train" for a, b in zip(splits[0.3], splits[0.5], strict=True) if a == "train")


def test_a_loaded_benchmark_is_a_question_file(write_rows: WriteRows, tmp_path: Path) -> None:
    for name, rows in (("gpqa-diamond", [GPQA]), ("livecodebench", [code_row()]), ("math500", [MATH])):
        loaded = load_benchmark(name, source=write_rows(rows))
        path = tmp_path / f"{name}.jsonl"
        write_questions(path, loaded)
        assert read_questions(path) == loaded


def test_names_are_found_however_they_are_written() -> None:
    assert {find_benchmark(name).name for name in ("MATH-500", "math500", "Math_500")} == {"MATH500"}
    with pytest.raises(UnknownBenchmarkError) as raised:
        find_benchmark("AIME2023")
    assert "did you mean 'AIME2026'" in raised.value.detail or "did you mean 'AIME202" in raised.value.detail
    assert "docs/questions.md" in raised.value.detail
    assert all(benchmark.name in raised.value.detail for benchmark in list_benchmarks())


def test_a_hub_that_cannot_be_reached_is_said(tmp_path: Path) -> None:
    script = (
        "from worker.benchmarks import HubError, load_benchmark\n"
        "for name in ('math500', 'livecodebench'):\n"
        "    try:\n"
        "        load_benchmark(name)\n"
        "    except HubError as error:\n"
        "        print(error.code, error.status, error.detail)\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("hub_unreachable 503")]
    assert len(lines) == 2
    assert "HuggingFaceH4/MATH-500 cannot be fetched" in lines[0]
    assert all("save its rows as JSON Lines" in line for line in lines)


def test_every_loader_is_documented() -> None:
    documented = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
    for benchmark in list_benchmarks():
        assert f"`{benchmark.name}`" in documented
        assert all(f"`{data_set.repository}`" in documented for data_set in benchmark.data_sets)
