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
PREFIX = "/python"
SHARED_LIBRARIES = "/python/shared"
SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib64")
_QUESTION = """
import json, os, sys, sysconfig
print(json.dumps({"executable": os.path.realpath(sys.executable), "prefix": os.path.realpath(sys.base_prefix),
    "library": sysconfig.get_path("stdlib"),
    "platform_library": sysconfig.get_path("platstdlib"), "shared": sysconfig.get_config_var("LIBDIR"),
    "triplet": sysconfig.get_config_var("MULTIARCH") or "", "version": ".".join(map(str, sys.version_info[:3])),
    "is_new_enough": sys.version_info >= (3, 11)}))
"""


@dataclass(frozen=True)
class Runtime:
    """An interpreter that the sandbox's user may read: where it lies inside, and what is mounted for it."""

    executable: str
    version: str
    mounts: tuple[str, ...]


def list_runtimes() -> list[Runtime]:
    """Return each Python 3.11 or newer that an unprivileged user can run: this one first, then the system's."""
    runtimes: list[Runtime] = []
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
            runtimes.append(_build_runtime(answer))
    return runtimes


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
    # In the sandbox every interpreter lies in one place, which tells nothing of where it lies here.
    libraries = {answer[name]: _place(answer[name], answer["prefix"]) for name in ("library", "platform_library")}
    executable = f"{PREFIX}/bin/{Path(answer['executable']).name}"
    for path, place in {answer["executable"]: executable, **libraries}.items():
        mounts += ["--ro-bind", path, place]
    for shared in sorted(Path(answer["shared"] or "/nonexistent").glob("libpython*.so*")):
        mounts += ["--ro-bind", str(shared), f"{SHARED_LIBRARIES}/{shared.name}"]
    for path, place in libraries.items():
        # A verdict must not depend on what happens to be installed here.
        for packages in ("site-packages", "dist-packages"):
            if Path(path, packages).is_dir():
                mounts += ["--tmpfs", f"{place}/{packages}", "--remount-ro", f"{place}/{packages}"]
    return Runtime(executable, answer["version"], tuple(mounts))


def _place(path: str, prefix: str) -> str:
    """Return where a folder of an interpreter lies in the sandbox; one outside its prefix keeps its place."""
    folder = Path(os.path.realpath(path))
    return f"{PREFIX}/{folder.relative_to(prefix)}" if folder.is_relative_to(prefix) else str(folder)
