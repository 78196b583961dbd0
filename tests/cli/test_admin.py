"""Accounts by command, on a real database."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

Run = Callable[..., Result]


@pytest.fixture
def run_there(run: Run, committed_database: str, tmp_path: Path) -> Run:
    """Runs commands against a database of this test's own."""
    env = {
        "OTBOARD_DATABASE_URL": committed_database,
        "OTBOARD_DATA": str(tmp_path / "data"),
        "OTBOARD_PUBLIC_URL": "https://board.example.org",
    }
    return lambda *arguments: run(*arguments, env=env)


def read(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_the_first_organiser_and_what_follows(run_there: Run) -> None:
    made = read(run_there("admin", "create-account", "olga", "--role", "organiser", "--format", "json"))
    assert (made["name"], made["role"]) == ("olga", "organiser")
    assert made["link"].startswith("https://board.example.org/reset-password#")
    again = run_there("admin", "create-account", "olga", "--format", "json")
    assert (again.exit_code, json.loads(again.stdout)["code"]) == (1, "name_taken")
    assert run_there("admin", "set-role", "olga", "king").exit_code == 2
    assert run_there("admin", "set-role", "nobody-here", "member").exit_code == 1
    assert read(run_there("admin", "set-role", "olga", "operator", "--format", "json"))["role"] == "operator"
    link = read(run_there("admin", "reset-link", "olga", "--server", "http://here:1", "--format", "json"))["link"]
    assert link.startswith("http://here:1/reset-password#")
    assert "/sign-up#" in read(run_there("admin", "invite", "--format", "json"))["link"]
    assert "/sign-in/link#" in read(run_there("admin", "sign-in-link", "--format", "json"))["link"]
    listed = read(run_there("admin", "list-accounts", "--format", "json"))
    assert [(entry["name"], entry["role"], entry["n_tokens"]) for entry in listed] == [
        ("local", "operator", 1),
        ("olga", "operator", 0),
    ]
    assert "olga" in run_there("admin", "list-accounts").stdout
    assert read(run_there("admin", "revoke-tokens", "local", "--format", "json"))["revoked_tokens"] == 1
