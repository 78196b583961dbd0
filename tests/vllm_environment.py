"""The environment in which the worker is tested with real vLLM: `python tests/vllm_environment.py` prints its Python.

It is kept in the user's cache, apart from the project's own, whose packages it would not agree with; its name holds the
hash of the requirement files, so that it is made once, and anew when they change. Only the standard library is needed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REQUIREMENTS = Path(__file__).resolve().parents[1] / "requirements"
LOCKED = REQUIREMENTS / "worker-cpu.txt"
TORCH = REQUIREMENTS / "torch-cpu.txt"
# Bytecode is made on first import, of the modules that are imported: of all of them it would take a minute more.
PIP = ("-m", "pip", "--disable-pip-version-check", "-qq", "install", "--no-compile", "--no-warn-conflicts")


def find_environment() -> Path:
    """Return the folder of the environment of these requirements and this Python, made or not."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parts = [LOCKED.read_bytes(), TORCH.read_bytes(), platform.python_version().encode(), platform.machine().encode()]
    return cache / "otboard" / f"worker-cpu-{hashlib.sha256(b'|'.join(parts)).hexdigest()[:16]}"


def make_environment(folder: Path) -> Path:
    """Install everything unless it is there, and return the environment's Python."""
    python = folder / "bin" / "python"
    complete = folder / "complete"
    with _lock(folder.with_suffix(".lock")):
        if complete.exists():
            return python
        shutil.rmtree(folder, ignore_errors=True)
        sys.stderr.write("Installing vLLM for the CPU (several minutes the first time, 3.5 GB) ...\n")
        venv.create(folder, with_pip=True)
        _run(python, *PIP, "--no-deps", "--require-hashes", "--requirement", str(LOCKED))
        _run(python, *PIP, "--requirement", str(TORCH))
        complete.touch()
    return python


def _run(python: Path, *arguments: str) -> None:
    # What pip prints goes where messages go: the only line on standard output is the path.
    subprocess.run([str(python), *arguments], check=True, stdout=sys.stderr)


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process at a time make the environment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.stdout.write(f"{make_environment(find_environment())}\n")
