"""The grader as a whole: processes that hang or die, several graders and threads at once, hostile texts, versions."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.files.questions import Question
from worker.grading import GRADER_VERSION, Grader, Reason, Verdict, open_grader
from worker.grading.processes import ProcessPool, Reply

# A child that answers as `worker.grading.comparing` does, save that some questions make it hang or die.
CHILD = """
import json, os, signal, sys, time
limit = float(sys.argv[1])
signal.signal(signal.SIGPROF, signal.SIG_DFL)
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    question = json.loads(line)
    signal.setitimer(signal.ITIMER_PROF, limit)
    if question == "spin":
        while True:
            pass
    if question == "multiply":
        x = 3 ** 10_000_000
        while True:
            x = x * x
    if question == "sleep":
        time.sleep(1000)
    if question == "die":
        os._exit(1)
    if question == "half":
        os.write(1, b"{")
        time.sleep(1000)
    if question == "flood":
        os.write(1, b"x" * (4 << 20))
    signal.setitimer(signal.ITIMER_PROF, 0)
    print(json.dumps([os.getpid(), question]), flush=True)
"""


def mathematics(reference: str) -> Question:
    return Question(
        benchmark="b", question_id="q", split="test", prompt="?", reference_answer=reference, kind="mathematics"
    )


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[ProcessPool]:
    # What sleeps is ended by the clock, whose allowance for busy machines would keep the suite waiting.
    monkeypatch.setattr("worker.grading.processes.CLOCK_SECONDS", 1.0)
    with ProcessPool([sys.executable, "-c", CHILD], n_processes=1, time_limit_seconds=0.2) as opened:
        yield opened


@pytest.mark.parametrize(
    ("question", "outcome"),
    [
        ("spin", "time_limit"),
        ("multiply", "time_limit"),
        ("sleep", "time_limit"),
        ("half", "time_limit"),
        ("die", "crashed"),
        ("flood", "crashed"),
    ],
)
def test_a_process_that_hangs_or_dies_is_replaced(pool: ProcessPool, question: str, outcome: str) -> None:
    first = pool.ask("hello")
    assert first.outcome == "replied"
    assert pool.ask(question) == Reply(outcome)  # type: ignore[arg-type]
    assert not Path("/proc", str(first.value[0])).exists()
    second = pool.ask("hello")
    assert second.outcome == "replied"
    assert second.value[0] != first.value[0]


def test_a_process_that_was_killed_meanwhile_is_replaced_and_asked_again(pool: ProcessPool) -> None:
    first = pool.ask("hello")
    [process_id] = pool.process_ids()
    os.kill(process_id, signal.SIGKILL)
    second = pool.ask("hello")
    assert second.outcome == "replied"
    assert second.value[0] != first.value[0]


def test_closing_leaves_no_process() -> None:
    with ProcessPool([sys.executable, "-c", CHILD], n_processes=2, time_limit_seconds=5) as pool:
        pool.ask("hello")
        process_ids = pool.process_ids()
    assert process_ids
    assert not any(Path("/proc", str(process_id)).exists() for process_id in process_ids)


def test_a_child_that_does_not_start_is_an_error() -> None:
    with (
        ProcessPool([sys.executable, "-c", "pass"], n_processes=1, time_limit_seconds=1) as pool,
        pytest.raises(RuntimeError, match="did not start"),
    ):
        pool.ask("hello")


def test_a_pool_needs_processes_and_time() -> None:
    with pytest.raises(ValueError, match="at least one process"):
        ProcessPool(["x"], n_processes=0, time_limit_seconds=1)
    with pytest.raises(ValueError, match="positive time limit"):
        ProcessPool(["x"], n_processes=1, time_limit_seconds=0)


def test_an_expression_that_never_ends_is_wrong_and_the_next_is_graded() -> None:
    # Simplifying either in place takes all memory or for ever.
    hanging = [r"\boxed{10^{10^{10}} + x!}", r"\boxed{((10^{10})!)!}"]
    with open_grader(processes=1, time_limit_seconds=0.6) as grader:
        verdicts = grader.grade(mathematics("y!"), [*hanging, r"\boxed{y! + 0}"])
    assert [verdict.correct for verdict in verdicts] == [False, False, True]
    assert {verdict.reason for verdict in verdicts} <= {None, "time_limit", "memory_limit", "grader_crashed"}


def test_two_graders_in_threads_at_once(grader: Grader) -> None:
    answers = [r"\boxed{(x+2)^2}", r"\boxed{(x+3)^2}", r"\boxed{(x-3)^2}"]
    verdicts: dict[int, list[Verdict]] = {}

    def work(number: int, used: Grader) -> None:
        verdicts[number] = used.grade(mathematics("x^2+6x+9"), answers)

    with open_grader(processes=1) as other:
        threads = [
            threading.Thread(target=work, args=(number, used)) for number, used in enumerate((grader, other, grader))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [[verdict.correct for verdict in verdicts[number]] for number in range(3)] == [[False, True, False]] * 3


def test_no_answers_no_verdicts(grader: Grader) -> None:
    assert grader.grade(mathematics("5"), []) == []


def test_equal_answers_get_equal_verdicts_in_their_places(grader: Grader) -> None:
    verdicts = grader.grade(mathematics("5"), [r"\boxed{5}", "", r"\boxed{6}", r"\boxed{5}"])
    assert verdicts == [
        Verdict(True, "5", None),
        Verdict(False, None, "empty"),
        Verdict(False, "6", None),
        Verdict(True, "5", None),
    ]


def test_very_long_answers(grader: Grader) -> None:
    answers = [
        "so " * 1_000_000 + r"\boxed{5}",
        r"\boxed{" * 30_000,
        r"\boxed{" * 5_000 + "5" + "}" * 5_000,
        r"\boxed{" + "(" * 300 + "5" + ")" * 300 + "}",
        r"\boxed{" + "(1," * 600 + "5" + ")" * 600 + "}",
        r"\boxed{" + "5" * 100_000 + "}",
        r"\boxed{" + "5" * 1_500 + "}",
        r"\boxed{" + r"\text{" * 200 + "5" + "}" * 200 + "}",
        "the answer is \n" * 50_000,
        "a" * 500_000,
    ]
    verdicts = grader.grade(mathematics("5"), answers)
    assert [verdict.correct for verdict in verdicts] == [True, False, True, True, *[False] * 3, True, *[False] * 2]
    assert verdicts[1].reason == "unclosed_box"
    assert verdicts[5].reason == "too_long"


def test_random_texts_never_break_the_grader(grader: Grader) -> None:
    pieces = [
        r"\boxed{",
        "}",
        "{",
        r"\frac",
        "12",
        "{1}",
        "^",
        "_",
        "=",
        ",",
        "(",
        ")",
        r"\{",
        r"\}",
        "x",
        r"\text{",
        " ",
    ]
    pieces += [
        "answer is ",
        "**",
        "$",
        r"\pm",
        r"\cup",
        "[",
        "]",
        "%",
        r"\begin{pmatrix}",
        r"\end{pmatrix}",
        "&",
        r"\\",
    ]
    pieces += ["²", "٣", "\n", "A", "(C)", "and", "5 cm", r"\sqrt", "\0", "\ud800", "1e", "."]
    source = random.Random(20260721)
    texts = ["".join(source.choices(pieces, k=source.randint(1, 20))) for _ in range(1000)]
    choice = Question("b", "q", "test", "?", reference_answer="A", kind="choice", options=("5 cm", "6 cm", "C"))
    assert len(grader.grade(choice, texts)) == 1000
    # Few of them reach the processes: those that do take long, and say nothing more.
    short = [text for text in texts if len(text) < 24][:30]
    assert len(grader.grade(mathematics(r"\frac{1}{2}"), short)) == len(short)


def test_what_a_grader_says_of_itself(grader: Grader) -> None:
    described = grader.describe()
    assert described["grader"] == GRADER_VERSION
    assert {"math_verify", "sympy", "grader_python", "comparison_cpu_seconds"} <= set(described)
    grader.require_sandbox()
    assert {"sandbox", "sandbox_python", "program_cpu_seconds"} <= set(grader.describe())
    assert all(isinstance(value, str) for value in grader.describe().values())


def test_reasons_and_rules_are_in_the_documentation() -> None:
    text = (Path(__file__).parents[3] / "docs" / "grading.md").read_text(encoding="utf-8")
    assert [reason for reason in Reason if f"`{reason}`" not in text] == []
    assert f"Version {GRADER_VERSION}" in text
