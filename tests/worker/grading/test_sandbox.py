"""Hostile programs: whatever they do the verdict is wrong, the host is unharmed and the next program is graded."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.files.questions import CodeTest, Question
from worker.grading import SandboxMissingError, Verdict, open_grader
from worker.grading.grader import Grader
from worker.grading.sandbox import Sandbox
from worker.grading.seccomp import build_filter
from worker.grading.watching import Limits, Run, resident_bytes

LIMITS = Limits(cpu_seconds=1, clock_seconds=3.0, total_bytes=256 << 20, output_bytes=1 << 20)
RIGHT = "print(sum(map(int, input().split())))"
ADDITION = Question(
    benchmark="b",
    question_id="q",
    split="test",
    prompt="Add two numbers.",
    reference_answer="",
    kind="code",
    tests=(CodeTest("1 2\n", "3\n"),),
)


def fence(program: str) -> str:
    return f"```python\n{program}\n```"


def is_running(token: str) -> bool:
    """Return whether a process on this machine, in a sandbox or not, has the token among its arguments."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if token.encode() in arguments:
            return True
    return False


def open_descriptors() -> list[str]:
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen within a minute"
        select.select([], [], [], 0.02)


@pytest.fixture(scope="module")
def strict() -> Iterator[Grader]:
    """A grader whose programs run into their limits soon."""
    with open_grader(processes=1, program_limits=LIMITS) as opened:
        yield opened


@pytest.fixture(scope="module")
def box(strict: Grader) -> Sandbox:
    return strict.require_sandbox()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may read, unlike pytest's own: as root, sandboxes are started as somebody else."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


HOSTILE = {
    "fork bomb": (
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass",
        {"time_limit", "memory_limit"},
    ),
    "threads without end": (
        "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(99,)).start()",
        {"runtime_error", "time_limit"},
    ),
    "10 GiB at once": ("x = bytearray(10 << 30)", {"memory_limit"}),
    "memory bit by bit": ("x = []\nwhile True:\n    x.append(bytearray(1 << 20))", {"memory_limit"}),
    "memory in many processes": (
        "import os\nfor _ in range(3):\n    os.fork()\nx = []\nwhile True:\n    x.append(b'x' * (1 << 20))",
        {"memory_limit"},
    ),
    "output without end": ("while True:\n    print('x' * 10000)", {"output_limit"}),
    "errors without end": ("import sys\nwhile True:\n    sys.stderr.write('x' * 10000)", {"time_limit"}),
    "a loop without end": ("while True:\n    pass", {"time_limit"}),
    "a loop that ignores signals": (
        "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True:\n    pass",
        {"time_limit"},
    ),
    "sleeping": ("import time\ntime.sleep(1000)", {"time_limit"}),
    "reading the users of the host": ("print(open('/etc/passwd').read())", {"runtime_error"}),
    "reading the home folder": ("import os\nprint(os.listdir('/root'), os.listdir('/home'))", {"runtime_error"}),
    "opening a socket": ("import socket\nsocket.socket().connect(('127.0.0.1', 22))", {"runtime_error"}),
    "a local socket": ("import socket\nsocket.socket(socket.AF_UNIX).bind('/tmp/x')", {"runtime_error"}),
    "killing its parent": (
        "import os\nos.kill(os.getppid(), 9)\nos.kill(1, 9)\nos.kill(-1, 9)",
        {"runtime_error", "wrong_output"},
    ),
    "killing itself": ("import os\nos.kill(os.getpid(), 11)", {"runtime_error"}),
    "writing over itself": ("open('/sandbox/program.py', 'w').write('x')", {"runtime_error"}),
    "writing into the library": ("import os\nopen(os.__file__, 'w').write('x')", {"runtime_error"}),
    "writing outside": ("open('/var/otboard', 'w').write('x')", {"runtime_error"}),
    "filling its folder": (
        "for i in range(99):\n    with open(f'/tmp/{i}', 'wb') as f:\n        f.write(bytes(8 << 20))",
        {"runtime_error"},
    ),
    "one file too large": ("with open('/tmp/x', 'wb') as f:\n    f.write(bytes(31 << 20))", {"runtime_error"}),
    "a link to the outside": (
        "import os\nos.symlink('/etc/passwd', '/tmp/x')\nprint(open('/tmp/x').read())",
        {"runtime_error"},
    ),
    "a way out by ..": ("print(open('../../../../etc/passwd').read())", {"runtime_error"}),
    "a program of the host": ("import subprocess\nsubprocess.run(['/bin/ls'], check=True)", {"runtime_error"}),
    "a new namespace": (
        "import ctypes\nif ctypes.CDLL(None).unshare(0x10000000) != 0:\n    raise OSError('refused')",
        {"runtime_error"},
    ),
    "raising its limits": (
        "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (99, 99))",
        {"runtime_error"},
    ),
    "forging by leaving at once": ("import os\nos._exit(0)", {"wrong_output"}),
    "forging by an exit status": ("import sys\nprint(3)\nsys.exit(1)", {"runtime_error"}),
    "forging by printing a verdict": ("print('{\"correct\": true}')\nprint('ok')", {"wrong_output"}),
    "forging by the descriptors": (
        "import contextlib, os\nfor number in range(3, 64):\n"
        "    with contextlib.suppress(OSError):\n        os.write(number, b'started')",
        {"wrong_output"},
    ),
    "bytes that are no text": ("import sys\nsys.stdout.buffer.write(bytes(range(128, 256)))", {"wrong_output"}),
    "no program at all": ("this is not Python", {"runtime_error"}),
    "a null byte": ("print('\\0')", {"wrong_output"}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_program_is_wrong_and_the_next_one_is_graded(strict: Grader, name: str) -> None:
    program, reasons = HOSTILE[name]
    hostile, right = strict.grade(ADDITION, [fence(program), fence(RIGHT)])
    assert not hostile.correct
    assert hostile.reason in reasons
    assert right == Verdict(True, RIGHT + "\n", None)


def test_the_answer_to_one_test_does_not_pass_another(strict: Grader) -> None:
    question = replace(ADDITION, tests=(*ADDITION.tests, CodeTest("40 2\n", "42\n")))
    forged, right = strict.grade(question, [fence("print(3)"), fence(RIGHT)])
    assert forged.reason == "wrong_output"
    assert right.correct


def test_what_a_program_sees(box: Sandbox) -> None:
    program = (
        "import os, sys\nprint(sorted(os.listdir('/')), sorted(os.listdir('/dev')), os.listdir('/tmp'))\n"
        "print(sorted(set(os.environ) - {'PWD'}), os.getuid() == 0, os.uname().nodename)\n"
        "print([n for n in range(64) if os.path.lexists(f'/proc/self/fd/{n}')], os.getcwd())"
    )
    folders, variables, descriptors = box.run(program, text="").output.decode().splitlines()
    assert "'dev', 'lib'" in folders
    assert not {"'etc'", "'home'", "'root'", "'proc'", "'var'", "'opt'"} & set(re.split(r"[\[\], ]+", folders))
    assert "['null', 'urandom', 'zero'] []" in folders
    assert variables == "['HOME', 'LC_ALL', 'LD_LIBRARY_PATH', 'PYTHONHASHSEED', 'PYTHONHOME', 'TMPDIR'] False sandbox"
    assert descriptors == "[] /tmp"


def test_installed_packages_are_not_inside(box: Sandbox) -> None:
    assert box.run("import numpy", text="").ending == "runtime_error"
    assert box.run("import pip", text="").ending == "runtime_error"


def test_nothing_outlives_a_run(box: Sandbox) -> None:
    token = f"otboard-test-{os.getpid()}-outlives"
    program = (
        "import os, sys\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        f"    os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(1000)', {token!r}])\n"
        "print('done')"
    )
    assert box.run(program, text="") == Run("ended", b"done\n")
    wait_until(lambda: not is_running(token))


def test_a_program_does_not_outlive_a_killed_grader() -> None:
    token = f"otboard-test-{os.getpid()}-killed"
    program = (
        f"import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'import time; time.sleep(1000)', {token!r}])"
    )
    grading = f"from worker.grading.sandbox import Sandbox\nSandbox().run({program!r}, text='')"
    process = subprocess.Popen([sys.executable, "-c", grading], process_group=0)
    try:
        wait_until(lambda: is_running(token))
        process.send_signal(signal.SIGKILL)
        process.wait()
        wait_until(lambda: not is_running(token))
    finally:
        process.kill()
        process.wait()


def test_a_run_leaves_no_descriptor_open(box: Sandbox) -> None:
    before = open_descriptors()
    box.run("print(1)", text="")
    box.run("while True: print('x' * 10000)", text="")
    assert open_descriptors() == before


def test_limits_do_not_hinder_honest_programs(box: Sandbox) -> None:
    programs = {
        "def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\nprint(f(40000))": b"40000\n",
        "import threading\nthreading.stack_size(64 << 20)\nt = threading.Thread(target=print, args=(7,))\n"
        "t.start()\nt.join()": b"7\n",
        "import asyncio\nasync def f():\n    return 5\nprint(asyncio.run(f()))": b"5\n",
        "print(7)\nexit()": b"7\n",
        "from __future__ import annotations\nprint(7)": b"7\n",
        "if __name__ == '__main__':\n    print(7)": b"7\n",
        "print(gcd(12, 18), Counter('aa')['a'], pow(2, 3, 5), math.inf)": b"6 2 3 inf\n",
        "with open('/tmp/x', 'w') as f:\n    f.write('7')\nprint(open('/tmp/x').read())": b"7\n",
        "import sys\nprint(len(sys.stdin.read()))": b"1000000\n",
        "import random\nprint(hash('a') == hash('a'), 'ä')": "True ä\n".encode(),
    }
    for program, output in programs.items():
        assert box.run(program, text="x" * 1_000_000) == Run("ended", output)


def test_hashes_are_the_same_in_every_run(box: Sandbox) -> None:
    assert box.run("print(hash('a'))", text="").output == box.run("print(hash('a'))", text="").output


def test_without_bubblewrap_programs_are_not_graded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with open_grader(processes=1) as opened, pytest.raises(SandboxMissingError, match="apt-get install bubblewrap"):
        opened.grade(ADDITION, [fence(RIGHT)])


def test_with_a_bubblewrap_that_cannot_make_namespaces_programs_are_not_graded(
    monkeypatch: pytest.MonkeyPatch, open_folder: Path
) -> None:
    # What bubblewrap says where unprivileged user namespaces are switched off.
    failing = open_folder / "bwrap"
    failing.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n", encoding="ascii"
    )
    failing.chmod(0o755)
    monkeypatch.setenv("PATH", f"{open_folder}:/usr/bin:/bin")
    with (
        open_grader(processes=1) as opened,
        pytest.raises(SandboxMissingError, match="unprivileged user namespaces") as caught,
    ):
        opened.grade(ADDITION, [fence(RIGHT)])
    assert "No permissions to create new namespace" in str(caught.value)


def test_the_memory_of_a_process_counts_its_children() -> None:
    child = "import sys; x = bytearray(64 << 20); print('ready', flush=True); sys.stdin.read()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert resident_bytes(process.pid) > 64 << 20
        process.communicate()
    assert resident_bytes(process.pid) == 0


def test_the_filter_is_a_whole_number_of_instructions() -> None:
    for machine in ("x86_64", "aarch64"):
        filter_program = build_filter(machine)
        assert filter_program is not None
        assert len(filter_program) % 8 == 0
    assert build_filter("m68k") is None
