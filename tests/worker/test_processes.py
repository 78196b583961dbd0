"""Child processes: restarted when they die, stopped in order, and none left over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from app.processes import Child, Supervisor

DEADLINE_SECONDS = 120.0
SLEEP = "import time; time.sleep(600)"
# Counts its starts in a file, one byte each.
COUNT = "import sys; open(sys.argv[1], 'a').write('x'); "


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come to hold"
        time.sleep(0.02)


def count_starts(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    return tmp_path / "starts"


def make_child(code: str, *arguments: str, restart: bool = True) -> Child:
    child = Child("a child", [sys.executable, "-c", code, *arguments], lambda _: restart)
    child.pause_seconds = 0.01
    return child


def test_a_child_that_dies_is_started_again(starts: Path) -> None:
    supervisor = Supervisor([make_child(f"{COUNT} {SLEEP}", str(starts))])
    supervisor.start()
    try:
        wait_until(lambda: count_starts(starts) == 1)
        process = supervisor._children[0].process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: count_starts(starts) == 2)
    finally:
        supervisor.stop()


def test_a_child_that_is_done_is_left_alone(starts: Path) -> None:
    supervisor = Supervisor([make_child(COUNT, str(starts), restart=False)])
    supervisor.start()
    supervisor.wait()
    supervisor.stop()
    assert count_starts(starts) == 1


def test_pauses_grow_while_a_child_keeps_dying(starts: Path) -> None:
    child = make_child(f"{COUNT} sys.exit(1)", str(starts))
    supervisor = Supervisor([child])
    supervisor.start()
    wait_until(lambda: count_starts(starts) >= 3)
    supervisor.stop()
    assert child.pause_seconds >= 0.04


def test_stopping_ends_every_child() -> None:
    children = [make_child(SLEEP), make_child(SLEEP)]
    supervisor = Supervisor(children)
    supervisor.start()
    processes = [child.process for child in children]
    supervisor.stop()
    assert [process.returncode for process in processes if process] == [-signal.SIGTERM] * 2


def test_a_child_ends_with_its_parent_however_that_ends(tmp_path: Path) -> None:
    """The parent is killed, so it cannot tell its child anything; the end of the pipe does."""
    child = "from app.processes import stop_with_parent; import time; stop_with_parent(); time.sleep(600)"
    parent = (
        "import sys, time; from app.processes import Child, Supervisor; "
        f"child = Child('c', [sys.executable, '-c', {child!r}], lambda _: True); Supervisor([child]).start(); "
        "print(child.process.pid, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        wait_until(lambda: is_gone(pid))


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has waited for yet counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True
