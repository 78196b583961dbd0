"""Makes sure that programs can be graded in a sandbox, and installs bubblewrap where it is missing.

Run as ``python -m tests.sandbox_setup``: exits 1 with what to do when there is no working sandbox to be had. Its tests
are never skipped, since a grader that runs a model's programs without one would pass them all.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from worker.grading.sandbox import Sandbox, SandboxMissingError


def install_bubblewrap() -> None:
    """Ask the package manager for bubblewrap, as root where there is apt-get."""
    if os.geteuid() == 0 and shutil.which("apt-get"):
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-q"], check=False, env=environment)
        command = ["apt-get", "install", "-q", "-y", "--no-install-recommends", "bubblewrap"]
        subprocess.run(command, check=False, env=environment)


def main() -> int:
    """Exit 0 once a program can be run in a sandbox, 1 with the remedy otherwise."""
    if shutil.which("bwrap") is None:
        install_bubblewrap()
    try:
        described = Sandbox().describe()
    except SandboxMissingError as exc:
        print(f"no sandbox for the tests of the graders: {exc}", file=sys.stderr)  # noqa: T201
        return 1
    print(f"sandbox: {described['sandbox']}, Python {described['sandbox_python']}", file=sys.stderr)  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
