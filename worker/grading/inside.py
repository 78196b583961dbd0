"""Runs one untrusted program; this file is the first thing that an interpreter in the sandbox executes.

It stands alone: nothing else of the project is inside. It puts the limits on itself, tells the outside that the sandbox
works, and from then on nothing it says is trusted: whether an output is right is decided outside, by expected values
that never enter. Arguments: "stdin" or the name of the function to call, the status descriptor, and limits as
``name=number``.
"""

import contextlib
import json
import os
import resource
import sys
from pathlib import Path
from typing import Any

PROGRAM = "/sandbox/program.py"
RUNTIME_ERROR_STATUS = 64
MEMORY_ERROR_STATUS = 65
RECURSION_LIMIT = 50_000
# What programs of coding competitions take for granted without importing it.
PRELUDE = """
from typing import *
from collections import *
from itertools import *
from functools import *
from heapq import *
from bisect import *
from string import *
from operator import *
from math import *
from random import *
from re import *
from copy import *
from datetime import *
from builtins import *
import bisect, collections, copy, datetime, functools, heapq, io, itertools, json, math
import operator, os, random, re, string, sys, typing
"""


def set_limits(limits: dict[str, int]) -> None:
    """Set the limits of this process and its children; soft and hard, so none can be raised again."""
    for name, value in limits.items():
        number = getattr(resource, "RLIMIT_" + name)
        # One second more until the kernel kills what ignores the signal of the first.
        resource.setrlimit(number, (value, value + 1 if name == "CPU" else value))


def call_function(namespace: dict[str, Any], name: str, text: str, output: int) -> None:
    """Call the function, or the method of a class Solution, and write what it returns as JSON."""
    arguments = [json.loads(line) for line in text.split("\n") if line.strip()]
    solution = namespace.get("Solution")
    target = getattr(solution(), name) if name not in namespace and callable(solution) else namespace[name]
    result = target(*arguments)
    written = memoryview(json.dumps(result, allow_nan=False).encode())
    while written:
        written = written[os.write(output, written) :]


def run(mode: str) -> None:
    """Execute the program as the main module, or call its function with the arguments on standard input."""
    code = compile(Path(PROGRAM).read_text(encoding="utf-8"), PROGRAM, "exec")
    namespace: dict[str, Any] = {"__name__": "__main__" if mode == "stdin" else "program"}
    exec(PRELUDE, namespace)
    if mode == "stdin":
        exec(code, namespace)
        return
    output, text = os.dup(1), sys.stdin.read()
    os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
    with contextlib.suppress(SystemExit):
        exec(code, namespace)
    call_function(namespace, mode, text, output)


def main() -> None:
    """Set the limits, say that the sandbox stands, and run the program."""
    mode, status, *limits = sys.argv[1:]
    set_limits({name: int(value) for name, value in (limit.split("=") for limit in limits)})
    sys.setrecursionlimit(RECURSION_LIMIT)
    os.write(int(status), b"started")
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    try:
        run(mode)
        sys.stdout.flush()
    except MemoryError:
        os._exit(MEMORY_ERROR_STATUS)
    except SystemExit:
        raise
    except BaseException:
        os._exit(RUNTIME_ERROR_STATUS)


if __name__ == "__main__":
    main()
