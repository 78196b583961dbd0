"""Child processes that answer one question at a time, and are killed and replaced when they do not answer in time."""

from __future__ import annotations

import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Self

START_LIMIT_SECONDS = 120.0
# On a busy machine a process waits for a core: its own processor time decides, and the clock only ends what sleeps.
CLOCK_FACTOR = 4.0
CLOCK_SECONDS = 10.0
MAX_REPLY_BYTES = 1 << 20
_PASSED_VARIABLES = ("PATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "PYTHONPATH", "SYSTEMROOT")

Outcome = Literal["replied", "time_limit", "crashed"]


@dataclass(frozen=True)
class Reply:
    """What became of a question: the child's reply, or how it failed to give one."""

    outcome: Outcome
    value: Any = None


class ProcessPool:
    """Children that each answer one question at a time; usable from any thread, and from several at once.

    A child is a program that reads JSON lines and writes a JSON line for each, the first one, unasked, once it is
    ready. It limits its own processor time per question, so it ends even where this process is gone; one that lets the
    clock run out is killed here. Both are replaced when the next question comes.
    """

    def __init__(self, command: Sequence[str], *, n_processes: int, time_limit_seconds: float) -> None:
        if n_processes < 1 or time_limit_seconds <= 0:
            raise ValueError("a pool needs at least one process and a positive time limit")
        self._command = [*command, str(time_limit_seconds)]
        self._clock_limit_seconds = CLOCK_FACTOR * time_limit_seconds + CLOCK_SECONDS
        self._free: queue.LifoQueue[_Child | None] = queue.LifoQueue()
        self._n_processes = n_processes
        for _ in range(n_processes):
            self._free.put(None)

    def ask(self, question: Any) -> Reply:
        """Return the reply to a question; waits for a free child.

        A question whose child dies is asked once more: the death may have had nothing to do with it.
        """
        child = self._free.get()
        try:
            reply = Reply("crashed")
            for _ in range(2):
                child = child or _Child(self._command)
                reply = child.ask(question, limit_seconds=self._clock_limit_seconds)
                if reply.outcome == "replied":
                    break
                child.stop()
                child = None
                if reply.outcome == "time_limit":
                    break
            return reply
        finally:
            self._free.put(child)

    def process_ids(self) -> list[int]:
        """Return the ids of the children that are waiting for a question."""
        with self._free.mutex:
            return [child.process.pid for child in self._free.queue if child is not None]

    def close(self) -> None:
        """Stop every child; waits for the questions that are being answered."""
        for _ in range(self._n_processes):
            if (child := self._free.get()) is not None:
                child.stop()
        for _ in range(self._n_processes):
            self._free.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Child:
    """One child process with its pipes."""

    def __init__(self, command: Sequence[str]) -> None:
        # A group of its own: Ctrl-C in a terminal is for the parent, which ends its children itself.
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=child_environment(os.environ),
            process_group=0,
        )
        if self._read_line(time.monotonic() + START_LIMIT_SECONDS).outcome != "replied":
            self.stop()
            raise RuntimeError(
                f"the grading process did not start ({' '.join(command)}); is otboard[worker] installed?"
            )

    def ask(self, question: Any, *, limit_seconds: float) -> Reply:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(question).encode() + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return Reply("crashed")
        return self._read_line(time.monotonic() + limit_seconds)

    def _read_line(self, deadline: float) -> Reply:
        assert self.process.stdout is not None
        received = bytearray()
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while not received.endswith(b"\n"):
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    return Reply("time_limit")
                piece = os.read(self.process.stdout.fileno(), 1 << 16)
                received += piece
                if not piece or len(received) > MAX_REPLY_BYTES:
                    return self._explain_end()
        return Reply("replied", json.loads(received))

    def _explain_end(self) -> Reply:
        self.process.kill()
        return Reply("time_limit" if self.process.wait() == -signal.SIGPROF else "crashed")

    def stop(self) -> None:
        """Kill the process and close its pipes."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                # What a dead child had not read is lost, as it should be.
                continue


def child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the few variables that a child needs; hashing is fixed, so that verdicts do not depend on set order."""
    passed = {name: environment[name] for name in _PASSED_VARIABLES if name in environment}
    return {**passed, "PYTHONHASHSEED": "0", "LC_ALL": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}


def python_command(module: str) -> list[str]:
    """Return the command that runs a module of this project with this interpreter."""
    return [sys.executable, "-P", "-m", module]
