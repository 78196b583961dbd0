"""Grades stored answers: text in, verdicts out, by nothing but the question, the text and the grader's version."""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from types import TracebackType
from typing import Self

from app.files.questions import Question
from worker.grading.choices import extract_choice
from worker.grading.mathematics import equal_results
from worker.grading.processes import ProcessPool, Reply, python_command
from worker.grading.programs import extract_program, grade_program
from worker.grading.results import extract_result
from worker.grading.sandbox import Sandbox
from worker.grading.texts import read_final_text
from worker.grading.verdicts import GRADER_VERSION, Reason, Verdict, refuse, wrong
from worker.grading.watching import Limits

TIME_LIMIT_SECONDS = 5.0
COMPARING_COMMAND = tuple(python_command("worker.grading.comparing"))
_LIBRARIES = ("math-verify", "latex2sympy2-extended", "sympy", "mpmath", "antlr4-python3-runtime")


def open_grader(
    *,
    processes: int | None = None,
    time_limit_seconds: float = TIME_LIMIT_SECONDS,
    program_limits: Limits | None = None,
) -> Grader:
    """Return a grader; use it in a ``with`` statement, from any thread.

    Parameters
    ----------
    processes : how many answers are graded at once; one for each core, at most eight, if None.
    time_limit_seconds : of processor time for one mathematical comparison.
    program_limits : of one run of a program.
    """
    n_processes = processes or min(os.cpu_count() or 1, 8)
    return Grader(n_processes, time_limit_seconds=time_limit_seconds, program_limits=program_limits or Limits())


class Grader:
    """Grades answers to questions of every kind; `open_grader` makes one."""

    def __init__(self, n_processes: int, *, time_limit_seconds: float, program_limits: Limits) -> None:
        self._n_processes = n_processes
        self._time_limit_seconds = time_limit_seconds
        self._program_limits = program_limits
        self._pool = ProcessPool(COMPARING_COMMAND, n_processes=n_processes, time_limit_seconds=time_limit_seconds)
        self._threads = ThreadPoolExecutor(n_processes, thread_name_prefix="grading")
        self._sandbox: Sandbox | None = None
        self._sandbox_lock = threading.Lock()

    def grade(self, question: Question, answers: Sequence[str]) -> list[Verdict]:
        """Return the verdicts on answers to a question, in their order.

        Parameters
        ----------
        answers : what the model wrote after the end of its thinking, with the answer opening that it was given.

        Raises
        ------
        SandboxMissingError : the question asks for a program, and there is no sandbox to run programs in.
        """
        texts = [read_final_text(answer) for answer in answers]
        match question.kind:
            case "choice":
                return [_grade_choice(question, text) for text in texts]
            case "mathematics":
                return self._grade_results(question, texts)
            case "code":
                return self._grade_programs(question, texts)

    def require_sandbox(self) -> Sandbox:
        """Return the sandbox; made at the first call, so that a run can refuse before it begins.

        Raises
        ------
        SandboxMissingError : there is none to be had; the message says how to get it.
        """
        with self._sandbox_lock:
            self._sandbox = self._sandbox or Sandbox(self._program_limits)
            return self._sandbox

    def describe(self) -> dict[str, str]:
        """Return what a verdict depends on besides the text: versions and limits, the sandbox's once it was used."""
        described = {
            "grader": GRADER_VERSION,
            "grader_python": platform.python_version(),
            "comparison_cpu_seconds": f"{self._time_limit_seconds:g}",
            **{name.replace("-", "_"): version(name) for name in _LIBRARIES},
        }
        with self._sandbox_lock:
            return {**described, **(self._sandbox.describe() if self._sandbox is not None else {})}

    def close(self) -> None:
        """Stop the processes, after the answers that are being graded."""
        self._threads.shutdown(cancel_futures=True)
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _grade_results(self, question: Question, answers: Sequence[str]) -> list[Verdict]:
        """Grade mathematical answers; what many answers share is compared once."""
        reference = question.reference_answer
        extractions = [extract_result(answer, reference) for answer in answers]
        texts = dict.fromkeys(extraction.text for extraction in extractions if extraction.text is not None)
        compared = {text: _compare_text(text, reference) for text in texts}
        undecided = [text for text, verdict in compared.items() if verdict is None]

        def ask(text: str) -> Verdict:
            return _judge(text, self._pool.ask([text, reference]))

        decided = dict(zip(undecided, self._threads.map(ask, undecided), strict=True))
        return [
            refuse(extraction) if extraction.text is None else compared[extraction.text] or decided[extraction.text]
            for extraction in extractions
        ]

    def _grade_programs(self, question: Question, answers: Sequence[str]) -> list[Verdict]:
        sandbox = self.require_sandbox()
        extractions = [extract_program(answer) for answer in answers]
        programs = dict.fromkeys(extraction.text for extraction in extractions if extraction.text is not None)

        def grade(program: str) -> Verdict:
            return grade_program(program, question.tests, function_name=question.function_name, sandbox=sandbox)

        graded = dict(zip(programs, self._threads.map(grade, programs), strict=True))
        return [
            refuse(extraction) if extraction.text is None else graded[extraction.text] for extraction in extractions
        ]


class _UndecidedError(Exception):
    """Text alone does not decide a comparison."""


def _compare_text(text: str, reference: str) -> Verdict | None:
    """Compare two results here where their text decides; None where it takes a process that can be killed."""
    try:
        return Verdict(equal_results(text, reference, symbolic=_leave_open), text, None)
    except RecursionError:
        return wrong(text, Reason.TOO_LONG)
    except _UndecidedError:
        return None


def _leave_open(answer: str, reference: str) -> bool:
    raise _UndecidedError


def _grade_choice(question: Question, answer: str) -> Verdict:
    extraction = extract_choice(answer, question.options)
    if extraction.text is None:
        return refuse(extraction)
    return Verdict(extraction.text == question.reference_answer, extraction.text, None)


def _judge(text: str, reply: Reply) -> Verdict:
    if reply.outcome == "time_limit":
        return wrong(text, Reason.TIME_LIMIT)
    if reply.outcome == "crashed":
        return wrong(text, Reason.GRADER_CRASHED)
    if reply.value.get("failed") == "memory":
        return wrong(text, Reason.MEMORY_LIMIT)
    return Verdict(bool(reply.value["equal"]), text, None)
