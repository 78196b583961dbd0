"""Compilation is announced once, and compiled code is kept."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import logging
from app.evaluator.compiled import compiled, compiled_part

@compiled_part
def double(a):
    return 2 * a

@compiled
def quadruple(a):
    return double(double(a))

@compiled
def halve(a):
    return a / 2

logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
print(quadruple(3), quadruple(0.5), halve(3))
"""


def test_compiling_is_logged_once_and_not_again_when_the_code_is_kept(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run() -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, str(program)], env=environment, capture_output=True, text=True, check=True, timeout=120
        )
        return done.stdout, done.stderr

    # Three kinds of call are compiled, one line says so.
    assert run() == (
        "12 2.0 1.5\n",
        "INFO compiling the evaluator's inner loops; this happens once and takes several seconds\n",
    )
    assert run() == ("12 2.0 1.5\n", "")
