"""The project as it is shipped: pins, import rules, the offline packages, the wheel."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(REPOSITORY)], check=True, capture_output=True)
    return next(folder.glob("otboard-*.whl"))


def test_the_wheel_carries_migrations_and_static_files(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder in ("migrations", "static"):
        files = [p for p in (REPOSITORY / folder).rglob("*") if p.is_file() and "__pycache__" not in p.parts]
        assert files
        missing = [
            str(p) for p in files if f"app/{folder}/{p.relative_to(REPOSITORY / folder).as_posix()}" not in names
        ]
        assert missing == []
    assert "worker/main.py" in names
    assert any(name.startswith("app/web/templates/") for name in names)
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)
