"""The installed program: what it imports, its help, its completion, its documentation, its defaults."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from app import cli, cli_options
from app.baselines import BASELINE_NAMES, random
from app.evaluator.measurements import ALL_SPLITS, SPLITS
from app.files import synthetic
from app.files.snapshot import write_snapshot

ROOT = Path(__file__).resolve().parents[2]
# Not pydantic: Typer itself uses it.
FORBIDDEN = ("sqlalchemy", "fastapi", "starlette", "psycopg", "procrastinate", "alembic", "uvicorn")
HEAVY = ("pyarrow", "pandas", "scipy", "httpx", "plotly")
CALL = "import sys; from app.cli import app\ntry: app({arguments!r})\nexcept SystemExit as end: status = end.code\n"
REPORT = "import json; print(json.dumps([status, sorted(sys.modules)]), file=sys.stderr)"


def _modules_after(*arguments: object) -> set[str]:
    """Run a command in a process of its own and return the packages it imported."""
    code = CALL.format(arguments=[str(a) for a in arguments]) + REPORT
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    status, modules = json.loads(done.stderr.splitlines()[-1])
    assert status in (0, None), done.stderr
    return {name.partition(".")[0] for name in modules}


@pytest.fixture(scope="module")
def program() -> Path:
    """The installed command."""
    return Path(sys.executable).with_name("otboard")


def test_offline_commands_need_neither_web_nor_database_packages(snapshot_path: Path, tmp_path: Path):
    target = ("--strategy", "dynamic_routing", "--split", "test")
    commands = [
        ("snapshot", "verify", snapshot_path),
        ("overthinking", snapshot_path),
        ("frontier", snapshot_path, *target),
        ("baseline", snapshot_path, "oracle", *target, "-o", tmp_path / "a.csv"),
        ("check", snapshot_path, tmp_path / "a.csv", *target),
        ("score", snapshot_path, tmp_path / "a.csv", *target),
        ("efficiency", "--accuracy", 1, "--tokens", 1, "--base-accuracy", 0.5, "--base-tokens", 1),
    ]
    code = "import sys; from app.cli import app\n"
    for arguments in commands:
        code += f"try: app({[str(a) for a in arguments]!r})\nexcept SystemExit as end: assert not end.code, end.code\n"
    code += "import json; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}
    assert "pyarrow" in modules
    assert modules.isdisjoint(FORBIDDEN)


def test_help_and_completion_import_nothing_heavy():
    assert _modules_after("--help").isdisjoint((*FORBIDDEN, *HEAVY))


def test_submitting_needs_neither_web_nor_database_packages():
    code = "import sys, app.cli_submit; assert set(sys.modules).isdisjoint({forbidden!r}), sorted(sys.modules)"
    subprocess.run([sys.executable, "-c", code.format(forbidden=FORBIDDEN)], cwd=ROOT, check=True)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_s_completion_is_shown(run, shell: str):
    assert "_OTBOARD_COMPLETE" in run("--show-completion", shell).stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("otboard over", {"overthinking"}),
        ("otboard snapshot ex", {"export"}),
        ("otboard frontier x --split val", {"validation"}),
        ("otboard frontier x --strategy dynamic_e", {"dynamic_early_exit"}),
        ("otboard baseline x or", {"oracle"}),
        ("otboard frontier x --format ", {"table", "json", "csv"}),
    ],
)
def test_commands_and_values_are_completed(run, words: str, expected: set[str]):
    count = len(words.split(" ")) - 1
    environment = {"_OTBOARD_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(count)}
    assert set(run(env=environment).stdout.split()) == expected


def test_letters_that_the_locale_lacks_stop_nothing(program: Path, make_board_snapshot, tmp_path: Path):
    """JSON and CSV are UTF-8 whatever the locale; a table shows what it can; a path may be in another encoding."""
    write_snapshot(make_board_snapshot(title="Größe – 大"), tmp_path / "große")
    environment = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}

    def verify(path: str, output_format: str) -> subprocess.CompletedProcess[bytes]:
        arguments = [program, "snapshot", "verify", path, "--format", output_format]
        return subprocess.run(arguments, env=environment, cwd=tmp_path, capture_output=True, check=False)

    assert json.loads(verify("große", "json").stdout.decode("utf-8"))["title"] == "Größe – 大"
    assert "Größe – 大" in verify("große", "csv").stdout.decode("utf-8")
    assert verify("große", "table").returncode == 0
    absent = verify("größe", "json")
    assert (absent.returncode, json.loads(absent.stdout)["code"]) == (1, "invalid_snapshot")
    assert verify("größe", "table").returncode == 1


def test_an_interrupted_command_ends_with_130(snapshot_path: Path):
    code = (
        "import os, signal; from app import cli; import app.files.snapshot as s\n"
        f"s.read_snapshot = lambda *a, **k: os.kill(os.getpid(), {int(signal.SIGINT)})\n"
        f"cli.app(['overthinking', {str(snapshot_path)!r}])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=False)
    assert done.returncode == 130


def test_the_version_is_the_package_s(run):
    from importlib.metadata import version

    assert run("--version").stdout.strip() == f"otboard {version('otboard')}"


def _list_commands() -> list[tuple[str, typer.core.TyperCommand]]:
    root = get_command(cli.app)
    found = []
    for name, command in sorted(root.commands.items()):  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [(f"{name} {sub}", c) for sub, c in sorted(inner.items())] if inner else [(name, command)]
    return found


def test_the_commands_are_those_of_the_contract():
    assert {name for name, _ in _list_commands()} >= {
        "serve",
        "snapshot verify",
        "snapshot import",
        "snapshot export",
        "snapshot list",
        "snapshot freeze",
        "synthesize",
        "overthinking",
        "frontier",
        "check",
        "score",
        "baseline",
        "efficiency",
        "submit",
        "worker score",
    }


def test_every_command_and_option_is_documented():
    documented = (ROOT / "docs" / "command-line.md").read_text(encoding="utf-8")
    missing = [name for name, _ in _list_commands() if f"otboard {name}" not in documented]
    for name, command in _list_commands():
        section = documented[documented.find(f"otboard {name}") :]
        options = {option for param in command.params for option in param.opts if option.startswith("--")}
        missing += [f"{name} {o}" for o in options - {"--help"} if o not in section and o not in documented]
    assert missing == []


def test_every_command_explains_itself(run):
    for name, command in _list_commands():
        assert (command.help or "").strip(), name
        assert run(*name.split(), "--help").exit_code == 0


def test_the_options_defaults_are_those_of_the_parts_they_stand_for():
    """They are written out in app/cli.py so that asking for help imports nothing heavy."""
    assert cli.DEFAULT_SEED == random.DEFAULT_SEED == synthetic.DEFAULT_SEED
    assert (ALL_SPLITS, *SPLITS) == cli_options.SPLIT_NAMES
    assert BASELINE_NAMES == cli.BASELINES
