"""The tutorial, the API guide and the client's page, by their text alone, against a real server; the examples."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
# The demo has its snapshot at full size; a smaller one says so in its name.
SCALE = "0.12"
FULL, NAME = "synthetic-otbench", "synthetic-otbench-scale-0-12"
START_SECONDS = 180
OTBOARD = str(Path(sys.executable).parent / "otboard")
SCRIPTS = {"dynamic_early_exit": "early_exit", "fixed_budget": "fixed_budget", "dynamic_routing": "routing"}


@dataclass(frozen=True)
class Ground:
    """A board that runs as `make demo` would have left it, and what a reader's shell knows."""

    address: str
    environment: dict[str, str]

    def walk(self, page: str, folder: Path) -> str:
        """Do what a page says, block by block: save the files it names, type its commands; return what was printed."""
        script = ["set -euo pipefail"]
        text = (REPOSITORY / "docs" / page).read_text(encoding="utf-8")
        for kind, content in BLOCK.findall(text.replace(FULL, NAME)):
            if kind == "python":
                name = re.match(r"# (\w+\.py)\n", content)
                assert name is not None, f"{page}: a block without a name:\n{content}"
                (folder / name[1]).write_text(content, encoding="utf-8")
                continue
            for line in content.splitlines():
                assert line.startswith("$ "), f"{page}: {line}"
                script.append(line[2:].replace("http://127.0.0.1:8000", self.address))
        typed = "\n".join(line for line in script if line not in ("make demo", "source .venv/bin/activate"))
        done = subprocess.run(
            ["bash", "-c", typed],
            cwd=folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="module")
def ground(module_database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A real `otboard serve` with its worker, and the demo's snapshot, small, imported and frozen by commands."""
    home = tmp_path_factory.mktemp("home")
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("OTBOARD_", "PYTHON"))}
    environment |= {
        "HOME": str(home),
        "XDG_DATA_HOME": str(home),
        "OTBOARD_DATABASE_URL": module_database,
        "OTBOARD_BOOTSTRAP_REPLICATES": "20",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(REPOSITORY),
        "SERVER": address,
    }
    _run(environment, home, "otboard", "synthesize", "small.zip", "--scale", SCALE)
    _run(environment, home, "otboard", "snapshot", "import", "small.zip")
    _run(environment, home, "otboard", "snapshot", "freeze", NAME)
    command = ["otboard", "serve", "--port", str(port)]
    with subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.DEVNULL) as server:
        try:
            _wait_for(f"{address}/readyz", server)
            environment["OTBOARD_TOKEN"] = (home / "otboard" / "local-token").read_text().strip()
            _publish_a_control(environment, home)
            yield Ground(address, environment)
        finally:
            server.terminate()
            server.wait(timeout=60)


def _run(environment: dict[str, str], folder: Path, *command: str) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def _publish_a_control(environment: dict[str, str], home: Path) -> None:
    """Something must be on the board that the pages read: another method than the tutorial's."""
    target = ("--strategy", "dynamic_early_exit", "--split", "test")
    _run(environment, home, "otboard", "baseline", "small.zip", "random", *target, "-o", "random.parquet")
    upload = ("submit", "random.parquet", "--server", environment["SERVER"], "--snapshot", NAME)
    _run(environment, home, "otboard", *upload, *target, "--method", "chance")
    publish = "import os\nfrom app.client import Client\n"
    publish += "board = Client(os.environ['SERVER'], os.environ['OTBOARD_TOKEN'])\n"
    publish += "board.publish(next(board.list_submissions()).id)\n"
    _run(environment, home, "python", "-c", publish)


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert server.poll() is None, "the server has ended"
        try:
            if httpx.get(url, timeout=60).status_code == 200:
                return
        except httpx.TransportError:
            assert time.monotonic() < deadline
        time.sleep(0.1)


def test_the_tutorial_ends_with_a_ranked_submission(ground: Ground, tmp_path: Path) -> None:
    printed = ground.walk("tutorial.md", tmp_path)
    assert re.search(r"rank \d+  my-first-rule +realised potential", printed), printed
    target = {"snapshot": NAME, "split": "test", "strategy": "dynamic_early_exit"}
    rows = httpx.get(f"{ground.address}/api/v1/leaderboard", params=target, timeout=60).json()["rows"]
    (mine,) = (row for row in rows if row["method"] == "my-first-rule")
    assert mine["rank"] in (1, 2)
    assert mine["n_settings"] == 8


def test_the_api_guide_and_the_client_page_do_what_they_say(ground: Ground, tmp_path: Path) -> None:
    printed = ground.walk("api-guide.md", tmp_path)
    for expected in ("160 results", "200 304", "scored 0.", "422 invalid_action_file", "unknown_question in row 2"):
        assert expected in printed
    # The client's page goes on with the file that the guide wrote; its blocks are scripts without commands.
    ground.walk("client.md", tmp_path)
    for script, expected in (("client_read.py", "GPT-OSS-20B AIME"), ("client_submit.py", "scored")):
        done = subprocess.run(
            ["python", script], cwd=tmp_path, env=ground.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert expected in done.stdout


@pytest.fixture(scope="module")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small synthetic snapshot, written by the command of the examples' page."""
    folder = tmp_path_factory.mktemp("examples")
    _run(dict(os.environ), folder, OTBOARD, "synthesize", "snapshot", "--scale", "0.02")
    return folder


@pytest.mark.parametrize("strategy", list(SCRIPTS))
def test_every_example_script_writes_a_file_without_problems(small_folder: Path, strategy: str) -> None:
    path = REPOSITORY / "docs" / "examples" / f"{SCRIPTS[strategy]}.py"
    output = f"{SCRIPTS[strategy]}.parquet"
    _run(dict(os.environ), small_folder, sys.executable, str(path), "snapshot", "validation", output)
    check = ("check", "snapshot", output, "--strategy", strategy, "--split", "validation")
    _run(dict(os.environ), small_folder, OTBOARD, *check)


def test_there_is_a_test_of_every_example_script() -> None:
    scripts = {path.stem for path in (REPOSITORY / "docs" / "examples").glob("*.py")}
    assert scripts == set(SCRIPTS.values())
