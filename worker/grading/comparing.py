"""The program of the children that compare mathematical results; started by `processes`, never imported by the rest.

It reads ``[answer, reference]`` as JSON, a line each, and writes ``{"equal": …}`` or ``{"failed": "memory"}``.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from typing import Any

from worker.grading.mathematics import equal_results
from worker.grading.symbols import equal_symbolically

MEMORY_LIMIT_BYTES = 2 << 30


def main() -> None:
    """Answer questions until standard input ends, each within the processor time given as the argument."""
    limit_seconds = float(sys.argv[1])
    # Replies have a pipe of their own: what a library prints must not come between.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT_BYTES, MEMORY_LIMIT_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # The default action ends the process even inside a single multiplication that never returns to the interpreter.
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    equal_symbolically("x", "x+0")
    _write(replies, {"ready": True})
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, limit_seconds)
        reply = _compare(*json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        _write(replies, reply)


def _compare(answer: str, reference: str) -> dict[str, Any]:
    try:
        return {"equal": equal_results(answer, reference, symbolic=equal_symbolically)}
    except MemoryError:
        return {"failed": "memory"}
    except Exception:
        # The libraries raise anything on text that is no mathematics; such an answer is not equal to the reference.
        return {"equal": False}


def _write(replies: Any, reply: dict[str, Any]) -> None:
    replies.write(json.dumps(reply) + "\n")
    replies.flush()


if __name__ == "__main__":
    main()
