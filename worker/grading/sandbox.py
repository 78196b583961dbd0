"""Runs untrusted programs with bubblewrap: no network, no files of the host, and limits on all that they can use up."""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from app.errors import AppError
from worker.grading.runtime import PREFIX, SHARED_LIBRARIES, Runtime, list_runtimes, own_user_id
from worker.grading.seccomp import build_filter
from worker.grading.watching import Limits, Run, Watch

_INSIDE = Path(__file__).with_name("inside.py")
_SEALS = fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SEAL
_run_numbers = itertools.count()


class SandboxMissingError(AppError):
    """Programs cannot be graded here, since they would have to run without a sandbox."""

    status = 503
    code = "sandbox_missing"
    title = "There is no sandbox to run programs in"


class Sandbox:
    """Runs programs, each run in a sandbox of its own that is gone when it ends; usable from any thread.

    Raises
    ------
    SandboxMissingError : bubblewrap is not installed, may not make namespaces, or there is no interpreter for it.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self._bubblewrap = _find_bubblewrap()
        self._filter = build_filter()
        self._runtime = self._find_runtime()

    def describe(self) -> dict[str, str]:
        """Return what a verdict may depend on."""
        version = subprocess.run(
            [self._bubblewrap, "--version"], capture_output=True, text=True, check=True, timeout=60
        )
        return {
            "sandbox": version.stdout.strip(),
            "sandbox_python": self._runtime.version,
            "sandbox_filter": "seccomp" if self._filter else "none",
            "program_cpu_seconds": str(self.limits.cpu_seconds),
            "program_clock_seconds": str(self.limits.clock_seconds),
            "program_memory_bytes": str(self.limits.process_bytes),
        }

    def run(self, program: str, *, text: str, function_name: str | None = None) -> Run:
        """Run a program with a text on its standard input, or call its function with the arguments in the text.

        Raises
        ------
        SandboxError : the sandbox itself did not come up, twice; the program had not begun.
        """
        for _ in range(2):
            run, message = self._try(self._runtime, program, text, function_name or "stdin")
            if run is not None:
                return run
        raise SandboxError(f"the sandbox did not start: {message}")

    def _find_runtime(self) -> Runtime:
        """Return the first interpreter with which a trivial program runs and its end is seen; without any, refuse."""
        runtimes = list_runtimes()
        if not runtimes:
            raise SandboxMissingError(
                "there is no Python 3.11 or newer that an unprivileged user can run in the sandbox; "
                "install the system's python3"
            )
        messages = []
        for runtime in runtimes:
            run, message = self._try(runtime, "print(input())", "sandbox", "stdin")
            if run == Run("ended", b"sandbox\n"):
                return runtime
            messages.append(message or f"a trial program ended with {run and run.ending}")
        raise SandboxMissingError(
            f"bubblewrap is installed but cannot make a sandbox: {messages[0]}; allow unprivileged user namespaces "
            "(sysctl kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0, "
            "user.max_user_namespaces > 0), and run a container with seccomp=unconfined"
        )

    def _try(self, runtime: Runtime, program: str, text: str, mode: str) -> tuple[Run | None, str]:
        """Return the run, or None and what bubblewrap said where the program never began."""
        with ExitStack() as stack:
            inside, source, given = (
                _readable(stack, data) for data in (_INSIDE.read_bytes(), _encode(program), _encode(text))
            )
            filters = [] if self._filter is None else [_readable(stack, self._filter)]
            status_read, status_write = os.pipe()
            stack.callback(os.close, status_read)
            command = [
                *self._arguments(runtime, inside, source, filters),
                *("--", runtime.executable, "-s", "-P", "-B", "/sandbox/inside.py", mode, str(status_write)),
                *self.limits.arguments(),
            ]
            user = own_user_id(next(_run_numbers) + os.getpid() * 64)
            try:
                process = subprocess.Popen(
                    command,
                    stdin=given,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env={},
                    cwd="/",
                    pass_fds=(inside, source, *filters, status_write),
                    user=user,
                    group=user,
                    extra_groups=None if user is None else [],
                )
            except OSError as exc:
                return None, str(exc)
            finally:
                os.close(status_write)
            with process:
                watch = Watch(process, status_read, self.limits)
                try:
                    return watch.run()
                finally:
                    process.kill()

    def _arguments(self, runtime: Runtime, inside: int, source: int, filters: Sequence[int]) -> list[str]:
        arguments = [self._bubblewrap, "--unshare-all", "--new-session", "--die-with-parent", "--clearenv"]
        environment = {"HOME": "/tmp", "TMPDIR": "/tmp", "LC_ALL": "C.UTF-8", "PYTHONHASHSEED": "0"}
        environment |= {"LD_LIBRARY_PATH": SHARED_LIBRARIES, "PYTHONHOME": PREFIX}
        for name, value in environment.items():
            arguments += ["--setenv", name, value]
        arguments += ["--hostname", "sandbox", *runtime.mounts]
        for device in ("null", "zero", "urandom"):
            arguments += ["--dev-bind", f"/dev/{device}", f"/dev/{device}"]
        arguments += ["--ro-bind-data", str(inside), "/sandbox/inside.py"]
        arguments += ["--ro-bind-data", str(source), "/sandbox/program.py"]
        # The one place to write to; it lives in memory, and ends with the sandbox.
        arguments += [
            "--size",
            str(self.limits.folder_bytes),
            "--tmpfs",
            "/tmp",
            "--remount-ro",
            "/",
            "--chdir",
            "/tmp",
        ]
        for number in filters:
            arguments += ["--seccomp", str(number)]
        return arguments


class SandboxError(RuntimeError):
    """The sandbox did not come up: our fault or the machine's, never the program's."""


def _readable(stack: ExitStack, data: bytes) -> int:
    """Return a descriptor from which the data can be read: a file in memory without a name."""
    number = os.memfd_create("otboard", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    stack.callback(os.close, number)
    with os.fdopen(number, "wb", closefd=False) as file:
        file.write(data)
    os.lseek(number, 0, os.SEEK_SET)
    # The program reads its input through this descriptor, so it could otherwise be made to grow.
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, _SEALS)
    return number


def _encode(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")


def _find_bubblewrap() -> str:
    found = shutil.which("bwrap")
    if found is None:
        raise SandboxMissingError(
            "programs written by a model are run in a bubblewrap sandbox only, and bubblewrap is not installed; "
            "on Debian and Ubuntu: apt-get install bubblewrap; on Fedora: dnf install bubblewrap"
        )
    return found
