"""What of the host a program in the sandbox sees: an interpreter with its standard library, and the C library."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

# Above every id that systems give out, so that no file and no other process belongs to it.
FIRST_USER_ID = 1_500_000_000
N_USER_IDS = 1 << 20
NOBODY_ID = 65534
SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib64")
_QUESTION = """
import json, os, sys, sysconfig
print(json.dumps({"executable": os.path.realpath(sys.executable), "library": sysconfig.get_path("stdlib"),
    "platform_library": sysconfig.get_path("platstdlib"), "shared": sysconfig.get_config_var("LIBDIR"),
    "triplet": sysconfig.get_config_var("MULTIARCH") or "", "version": ".".join(map(str, sys.version_info[:3])),
    "is_new_enough": sys.version_info >= (3, 11)}))
"""


@dataclass(frozen=True)
class Runtime:
    """An interpreter that the sandbox's user may read, and where its parts lie."""

    executable: str
    version: str
    mounts: tuple[str, ...]
    library_path: str


def find_runtime() -> Runtime | None:
    """Return the first Python 3.11 or newer that an unprivileged user can run: this one's, else the system's."""
    candidates = (getattr(sys, "_base_executable", sys.executable), "/usr/bin/python3", "/usr/local/bin/python3")
    user = own_user_id(0)
    for candidate in candidates:
        try:
            completed = subprocess.run(
                [candidate, "-I", "-c", _QUESTION],
                capture_output=True,
                env={},
                timeout=60,
                check=True,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
            )
        except (OSError, subprocess.SubprocessError):
            continue
        answer = json.loads(completed.stdout)
        if answer["is_new_enough"]:
            return _build_runtime(answer)
    return None


def own_user_id(number: int) -> int | None:
    """Return an id that a process may be started under where this process is root, else None.

    The kernel counts processes by user and does not limit root's; and what broke out would be nobody.
    """
    if os.geteuid() != 0:
        return None
    return FIRST_USER_ID + number % N_USER_IDS if _has_user_id(FIRST_USER_ID + N_USER_IDS) else NOBODY_ID


def _has_user_id(user: int) -> bool:
    """Return whether an id exists here: containers may have few."""
    for line in Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines():
        first, _, length = (int(number) for number in line.split())
        if first <= user < first + length:
            return True
    return False


def _build_runtime(answer: dict[str, str]) -> Runtime:
    mounts: list[str] = []
    system = [*SYSTEM_LIBRARIES, f"/usr/lib/{answer['triplet']}" if answer["triplet"] else "/usr/lib"]
    for folder in system:
        if Path(folder).is_symlink():
            mounts += ["--symlink", str(Path(folder).readlink()), folder]
        elif Path(folder).is_dir():
            mounts += ["--ro-bind", folder, folder]
    for path in dict.fromkeys((answer["executable"], answer["library"], answer["platform_library"])):
        mounts += ["--ro-bind", path, path]
    for shared in sorted(Path(answer["shared"] or "/nonexistent").glob("libpython*.so*")):
        mounts += ["--ro-bind", str(shared), str(shared)]
    for packages in ("site-packages", "dist-packages"):
        # A verdict must not depend on what happens to be installed here.
        hidden = Path(answer["library"], packages)
        if hidden.is_dir():
            mounts += ["--tmpfs", str(hidden), "--remount-ro", str(hidden)]
    return Runtime(answer["executable"], answer["version"], tuple(mounts), answer["shared"] or "")
