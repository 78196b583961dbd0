"""The project as it is shipped: pins, import rules, the offline packages, the wheel."""

from __future__ import annotations

import itertools
import os
import re
import socket
import subprocess
import sys
import time
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import httpx
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

REPOSITORY = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^ ;\\]+)(?: ; (?P<marker>[^\\]+))?", re.MULTILINE)


def read_pins(kind: str) -> dict[str, list[Version]]:
    pins: dict[str, list[Version]] = {}
    for match in PIN.finditer((REPOSITORY / "requirements" / f"{kind}.txt").read_text()):
        pins.setdefault(canonicalize_name(match["name"]), []).append(Version(match["version"]))
    return pins


def declared(kind: str) -> list[Requirement]:
    project = PYPROJECT["project"]
    lines = list(project["dependencies"]) + PYPROJECT["dependency-groups"]["build"]
    if kind != "offline":
        lines += project["optional-dependencies"]["server"]
    if kind == "dev":
        lines += [line for line in PYPROJECT["dependency-groups"]["dev"] if isinstance(line, str)]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("kind", ["offline", "server", "dev"])
def test_pins_satisfy_what_the_project_declares(kind: str) -> None:
    pins = read_pins(kind)
    for requirement in declared(kind):
        versions = pins.get(canonicalize_name(requirement.name), [])
        assert versions, f"requirements/{kind}.txt has no {requirement.name}: run make lock"
        assert all(requirement.specifier.contains(v) for v in versions), f"{requirement} is pinned to {versions}"


@pytest.mark.parametrize("kind", ["offline", "server", "dev"])
def test_pins_carry_hashes_and_name_no_download_address(kind: str) -> None:
    text = (REPOSITORY / "requirements" / f"{kind}.txt").read_text()
    assert "://" not in text
    assert "--index-url" not in text
    blocks = re.split(r"\n(?=\S)", text)
    unhashed = [block for block in blocks if PIN.match(block) and "--hash=sha256:" not in block]
    assert unhashed == []


def test_offline_pins_hold_neither_web_nor_database_nor_gpu_packages() -> None:
    banned = {"fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "psycopg", "procrastinate"}
    assert not (banned | {"torch", "vllm"}) & read_pins("offline").keys()
    assert not {"torch", "vllm"} & (read_pins("server").keys() | read_pins("dev").keys())


OFFLINE_PROBE = """
import importlib, pkgutil, sys
banned = set(sys.argv[1].split(","))

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in banned:
            raise ModuleNotFoundError(f"{name} is not among the offline packages", name=name)
        return None

sys.meta_path.insert(0, Refuse())
for package in ("app.evaluator", "app.files", "app.baselines", "app.plots"):
    module = importlib.import_module(package)
    for found in pkgutil.walk_packages(module.__path__, package + "."):
        importlib.import_module(found.name)
for name in ("app.errors", "app.client", "app.cli"):
    importlib.import_module(name)
"""


def test_offline_parts_import_with_only_the_offline_packages() -> None:
    offline = read_pins("offline").keys()
    banned = {
        module
        for module, owners in packages_distributions().items()
        if not any(canonicalize_name(owner) in offline for owner in owners)
    } - {"app", "worker", "pip", "setuptools", "_distutils_hack", "pkg_resources"}
    assert {"sqlalchemy", "fastapi", "psycopg"} <= banned
    command = [sys.executable, "-c", OFFLINE_PROBE, ",".join(sorted(banned))]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_no_process_loads_what_takes_long_to_load_and_is_not_needed() -> None:
    """SciPy's statistics took two fifths of the time in which each command, server and worker starts."""
    probe = "import sys, app.cli, app.main, worker.main; print([name for name in sys.argv[1:] if name in sys.modules])"
    slow = ("scipy.stats", "scipy.optimize", "scipy.signal", "plotly.express", "matplotlib")
    done = subprocess.run(
        [sys.executable, "-c", probe, *slow], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(REPOSITORY)], check=True, capture_output=True)
    return next(folder.glob("otboard-*.whl"))


def test_the_wheel_carries_migrations_static_files_and_documentation(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("migrations", "static", "docs"):
        files = [p for p in (REPOSITORY / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
        assert files
        missing = [
            str(p) for p in files if f"app/{folder}/{p.relative_to(REPOSITORY / folder).as_posix()}" not in names
        ]
        assert missing == []
    assert "worker/main.py" in names
    assert any(name.startswith("app/web/templates/") for name in names)
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


@pytest.fixture
def fresh_python(wheel: Path, tmp_path: Path) -> Path:
    """The interpreter of a fresh environment with the wheel in it.

    The packages it needs are those of this run, put on its path: an editable install among them has no say there.
    """
    environment = tmp_path / "environment"
    venv.create(environment)
    python = environment / "bin" / "python"
    ours = next(Path(p) for p in sys.path if Path(p).name == "site-packages")
    ask = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    theirs = Path(subprocess.run(ask, check=True, capture_output=True, text=True).stdout.strip())
    (theirs / "packages.pth").write_text(f"{ours}\n")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(theirs)]
    subprocess.run([*command, str(wheel)], check=True, capture_output=True)
    return python


def test_the_installed_wheel_serves(fresh_python: Path, committed_database: str, tmp_path: Path) -> None:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "OTBOARD_", "COV_"))}
    environment |= {"OTBOARD_DATABASE_URL": committed_database, "OTBOARD_DATA": str(tmp_path / "data")}
    command = [str(fresh_python), "-c", "import app; print(app.__file__, flush=True); from app.cli import main; main()"]
    with subprocess.Popen(
        [*command, "serve", "--port", str(port)], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert str(fresh_python.parent.parent) in server.stdout.readline()
            board = ask_until_it_answers(f"http://127.0.0.1:{port}/", server)
            assert "OTBoard" in board.text
            sheet = re.search(r'href="(/static/otboard\.css[^"]*)"', board.text)
            assert sheet is not None
            assert httpx.get(f"http://127.0.0.1:{port}{sheet[1]}", timeout=60).status_code == 200
        finally:
            server.terminate()
        assert server.wait(timeout=60) == 0


def ask_until_it_answers(url: str, server: subprocess.Popen[str]) -> httpx.Response:
    deadline = time.monotonic() + 120
    while True:
        assert server.poll() is None, "the server has ended"
        try:
            return httpx.get(url, timeout=60)
        except httpx.ConnectError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@pytest.mark.parametrize("name", ["Dockerfile", "Dockerfile.worker"])
def test_what_an_image_copies_is_in_the_repository(name: str) -> None:
    lines = (REPOSITORY / name).read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    assert {"app", "worker", "migrations", "static", "pyproject.toml"} <= set(copied)
    assert [word for word in copied if not (REPOSITORY / word).exists()] == []


def test_the_services_are_built_from_files_that_exist_and_run_commands_that_exist() -> None:
    services = yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())["services"]
    built = {name: service["build"] for name, service in services.items() if "build" in service}
    files = {name: build["dockerfile"] if isinstance(build, dict) else "Dockerfile" for name, build in built.items()}
    assert files == {"board": "Dockerfile", "scorer": "Dockerfile", "prober": "Dockerfile.worker"}
    assert services["prober"]["profiles"] == ["gpu"]
    commands = [services["scorer"]["command"]]
    for name in sorted(set(files.values())):
        last = (REPOSITORY / name).read_text().strip().splitlines()[-1]
        commands.append(yaml.safe_load(last.removeprefix("CMD ")))
    for command in commands:
        words = list(itertools.takewhile(lambda word: not word.startswith("-"), command[1:]))
        program = [sys.executable, "-c", "from app.cli import main; main()", *words, "--help"]
        asked = subprocess.run(program, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
        assert asked.returncode == 0, asked.stderr
