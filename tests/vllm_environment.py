"""The environment in which the worker is tested with real vLLM: `python tests/vllm_environment.py` prints its Python.

It is kept in the user's cache, apart from the project's own, whose packages it would not agree with; its name holds the
hash of the requirement files, so that it is made once, and anew when they change. Only the standard library is needed,
and libnuma, which vLLM's CPU build loads: as root it is installed where there is apt-get.
"""

from __future__ import annotations

import ctypes
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


def has_libnuma() -> bool:
    """Whether the library is there, asked in a way that sees one which was installed just now."""
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        return False
    return True


def install_libnuma() -> None:
    """Ask the package manager for libnuma, or say how to."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "-y", "--no-install-recommends", "libnuma1"]):
            subprocess.run(["apt-get", "-qq", *command], check=False, env=environment, stdout=sys.stderr)
    if not has_libnuma():
        raise SystemExit("vLLM's CPU build needs libnuma; on Debian and Ubuntu: apt-get install libnuma1")


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
    if not has_libnuma():
        install_libnuma()
    sys.stdout.write(f"{make_environment(find_environment())}\n")
