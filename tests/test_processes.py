"""Child processes that live and end with the process that started them."""

from __future__ import annotations

import signal
import subprocess
import sys

ENDS_BY_ITSELF = "from app.processes import stop_with_parent; stop_with_parent(); print('done')"
WAITS = """
import time
from app.processes import stop_with_parent
stop_with_parent()
print("up", flush=True)
time.sleep(60)
"""


def start(code: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_child_ends_cleanly_while_its_parent_lives() -> None:
    # The demo's process once aborted at its end: the thread that watches standard input held the buffer's lock, so
    # that the supervisor started it again and again.
    with start(ENDS_BY_ITSELF) as child:
        assert child.stdout is not None
        assert child.stdout.read() == b"done\n"
        assert child.wait(timeout=30) == 0


def test_a_child_stops_when_its_parent_is_gone() -> None:
    with start(WAITS) as child:
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == b"up\n"
        child.stdin.close()
        assert child.wait(timeout=30) == -signal.SIGTERM
