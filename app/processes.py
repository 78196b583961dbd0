"""Child processes: started, started again when they die, and stopped with the process that started them."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

logger = logging.getLogger(__name__)

STOP_SECONDS = 10.0
CHECK_SECONDS = 0.5
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
# A child that lived this long is not caught in a loop of dying, so the pauses start anew.
STEADY_SECONDS = 60.0


@dataclass
class Child:
    """A command that should be running; `restart` tells by its exit status whether it should be started again."""

    name: str
    command: Sequence[str]
    restart: Callable[[int], bool]
    environment: Mapping[str, str] | None = field(default=None, repr=False)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    start_at: float = 0.0
    pause_seconds: float = FIRST_PAUSE_SECONDS


class Supervisor:
    """Keeps child processes running from `start` until `stop`, from a thread of its own.

    The standard input of each child is a pipe that closes when this process ends, however it ends: a child that calls
    `stop_with_parent` never outlives it.
    """

    def __init__(self, children: Sequence[Child]) -> None:
        self._children = list(children)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start every child and watch over them."""
        for child in self._children:
            _launch(child)
        self._thread.start()

    def stop(self) -> None:
        """Ask every child to stop, wait a while, and kill what is left; an unfinished job is taken up again later."""
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join()
        running = [child.process for child in self._children if child.process is not None]
        for process in running:
            process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for process in running:
            try:
                process.wait(timeout=max(deadline - time.monotonic(), 0.1))
            except subprocess.TimeoutExpired:
                logger.warning("process %d did not stop in time and is killed", process.pid)
                process.kill()
                process.wait()
            assert process.stdin is not None
            process.stdin.close()

    def wait(self) -> None:
        """Block until every child has ended for good."""
        self._thread.join()

    def _watch(self) -> None:
        while self._children and not self._stopping.wait(CHECK_SECONDS):
            self._children = [child for child in self._children if _keep_running(child)]


def stop_with_parent() -> None:
    """Stop this process by SIGTERM as soon as its standard input ends, which is when its supervisor has."""

    def wait_for_end() -> None:
        # Not through sys.stdin: its buffer's lock, held by this thread, would abort the interpreter at its end.
        while os.read(0, 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait_for_end, name="parent", daemon=True).start()


def _launch(child: Child) -> None:
    # A group of its own: Ctrl-C in a terminal reaches the supervisor only, which then stops its children in order.
    child.process = subprocess.Popen(child.command, env=child.environment, stdin=subprocess.PIPE, process_group=0)
    child.start_at = time.monotonic()
    logger.info("started %s as process %d", child.name, child.process.pid)


def _keep_running(child: Child) -> bool:
    """Start the child again if it died, after a pause that doubles; return False once it has ended for good."""
    if child.process is None:
        if time.monotonic() >= child.start_at:
            _launch(child)
        return True
    status = child.process.poll()
    if status is None:
        return True
    assert child.process.stdin is not None
    child.process.stdin.close()
    if not child.restart(status):
        logger.info("%s has ended with status %d", child.name, status)
        return False
    if time.monotonic() - child.start_at > STEADY_SECONDS:
        child.pause_seconds = FIRST_PAUSE_SECONDS
    logger.warning("%s died with status %d; it is started again in %.0f s", child.name, status, child.pause_seconds)
    child.process, child.start_at = None, time.monotonic() + child.pause_seconds
    child.pause_seconds = min(child.pause_seconds * 2, LONGEST_PAUSE_SECONDS)
    return True
