"""Watches one run in the sandbox: what it may use, what it prints, and how it ends."""

from __future__ import annotations

import math
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

_RUNTIME_ERROR_STATUS, _MEMORY_ERROR_STATUS = 64, 65
_START_SECONDS = 60.0
_TICK_SECONDS = 0.02
_END_SECONDS = 10.0
_MAX_ERROR_BYTES = 4096

Ending = Literal["ended", "runtime_error", "time_limit", "memory_limit", "output_limit"]


@dataclass(frozen=True)
class Limits:
    """What one run of a program may use.

    Attributes
    ----------
    cpu_seconds : of the processor, for each process; it decides before the clock does, whatever else the machine does.
    clock_seconds : from its start to its end.
    process_bytes : address space of each process.
    total_bytes : memory of all its processes together, looked at every 20 ms.
    n_processes : processes and threads at once.
    file_bytes : size of a file that it writes.
    folder_bytes : size of all of them.
    n_open_files : of each process.
    output_bytes : what it may print.
    """

    cpu_seconds: int = 6
    clock_seconds: float = 20.0
    process_bytes: int = 2 << 30
    total_bytes: int = 2 << 30
    n_processes: int = 32
    file_bytes: int = 16 << 20
    folder_bytes: int = 32 << 20
    n_open_files: int = 64
    output_bytes: int = 4 << 20

    def arguments(self) -> list[str]:
        """Return the limits that a process puts on itself, as the program inside reads them."""
        named = {
            "CPU": self.cpu_seconds,
            "AS": self.process_bytes,
            "NPROC": self.n_processes,
            "FSIZE": self.file_bytes,
            "NOFILE": self.n_open_files,
            "STACK": 64 << 20,
            "MEMLOCK": 0,
            "MSGQUEUE": 0,
            "CORE": 0,
        }
        return [f"{name}={value}" for name, value in named.items()]


@dataclass(frozen=True)
class Run:
    """What became of a run: how it ended, and what was printed (or returned, as JSON) if it ended by itself."""

    ending: Ending
    output: bytes


class Watch:
    """Reads what one run prints until it ends or breaks a limit."""

    def __init__(self, process: subprocess.Popen[bytes], status: int, limits: Limits) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._limits = limits
        self._received = {"output": bytearray(), "errors": bytearray(), "status": bytearray()}
        self._deadline = math.inf
        self._ended = -1
        self._sources = {process.stdout.fileno(): "output", process.stderr.fileno(): "errors", status: "status"}

    def run(self) -> tuple[Run | None, str]:
        """Watch until the end; the process is dead when this returns, and with it everything it started."""
        ending = self._wait()
        self._process.kill()
        returned = self._process.wait()
        if not self._received["status"]:
            message = bytes(self._received["errors"]).decode(errors="replace").strip()
            return None, message or f"it ended with status {returned}"
        if ending is None:
            ending = _explain(returned)
        return Run(ending, bytes(self._received["output"]) if ending == "ended" else b""), ""

    def _wait(self) -> Ending | None:
        """Return the limit that was broken, or None once the process has ended and all it printed was read."""
        # The program's time begins when the sandbox stands, which on a busy machine may take a while.
        self._deadline = time.monotonic() + _START_SECONDS
        next_look = time.monotonic() + _TICK_SECONDS
        self._ended = os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                for source in (*self._sources, self._ended):
                    selector.register(source, selectors.EVENT_READ)
                while len(selector.get_map()):
                    if time.monotonic() >= self._deadline:
                        return "time_limit"
                    for key, _ in selector.select(_TICK_SECONDS):
                        if not self._take(key.fd):
                            selector.unregister(key.fd)
                    if len(self._received["output"]) > self._limits.output_bytes:
                        return "output_limit"
                    if time.monotonic() >= next_look:
                        if resident_bytes(self._process.pid) > self._limits.total_bytes:
                            return "memory_limit"
                        next_look = time.monotonic() + _TICK_SECONDS
        finally:
            os.close(self._ended)
        return None

    def _take(self, source: int) -> bool:
        """Take note of what a source has to say; False once it has said everything."""
        if source == self._ended:
            self._deadline = min(self._deadline, time.monotonic() + _END_SECONDS)
            return False
        piece = os.read(source, 1 << 16)
        name = self._sources[source]
        if name == "status" and piece:
            self._deadline = time.monotonic() + self._limits.clock_seconds
        if name == "output" or len(self._received[name]) < _MAX_ERROR_BYTES:
            self._received[name] += piece
        return bool(piece)


def resident_bytes(process_id: int) -> int:
    """Return the memory of a process and all that descend from it; what ends meanwhile counts as nothing."""
    total, waiting = 0, [process_id]
    while waiting:
        folder = Path("/proc", str(waiting.pop()))
        try:
            total += int((folder / "statm").read_text(encoding="ascii").split()[1])
            for task in (folder / "task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text(encoding="ascii").split()]
        except (OSError, IndexError):
            continue
    return total * os.sysconf("SC_PAGE_SIZE")


def _explain(status: int) -> Ending:
    """Return how a program ended by the status that bubblewrap passes on; only the first kind's output counts."""
    if status == 0:
        return "ended"
    if status in (128 + signal.SIGXCPU, 128 + signal.SIGKILL):
        return "time_limit"
    return "memory_limit" if status == _MEMORY_ERROR_STATUS else "runtime_error"
