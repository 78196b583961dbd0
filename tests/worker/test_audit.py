"""The audit of boundary tokens: the command on a small tokenizer, and the real ones where they are at hand."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from app.cli import app
from app.files.boundary_audits import find_boundary_audit, list_boundary_audits
from worker.tokenizers import load_tokenizer

ROOT = Path(__file__).resolve().parents[2]
WriteTokenizer = Callable[..., Path]
FOLDERS = {"GPT-OSS": "gptoss", "Qwen3": "qwen3"}


def run(*words: str) -> str:
    result = CliRunner().invoke(app, ["worker", "audit-boundaries", *words])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_counts_by_category(write_tokenizer: WriteTokenizer) -> None:
    folder = write_tokenizer("chat")
    document = json.loads(run(str(folder / "tokenizer.json"), "--format", "json"))
    texts = load_tokenizer(folder).token_texts
    found = [text for text in texts if "\n\n" in text]
    assert document["vocabulary"] == len(texts)
    assert document["boundary_tokens"] == len(found) == sum(document["categories"].values())
    assert document["categories"]["pure"] == 1
    assert document["categories"]["suffix"] == sum(t.endswith("\n\n") and not t.isspace() for t in found) > 2
    assert document["known_as"] is None
    # The folder of the file does as well, and every format says the same.
    lines = run(str(folder), "--format", "csv").splitlines()
    assert lines == [
        "category,boundary_tokens",
        *(f"{name},{count}" for name, count in document["categories"].items()),
        f"all,{len(found)}",
    ]
    assert f"among {len(texts)} ids" in run(str(folder))


def test_a_path_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["worker", "audit-boundaries", str(tmp_path), "--format", "json"])
    assert result.exit_code == 1
    assert json.loads(result.stdout)["code"] == "bad_tokenizer"


@pytest.mark.parametrize("audit", list_boundary_audits(), ids=lambda audit: audit.name)
def test_the_audits_are_told_in_the_documentation(audit) -> None:
    documented = (ROOT / "docs" / "profiles.md").read_text(encoding="utf-8")
    cells = [audit.name, f"{audit.vocabulary:,}", audit.boundary_tokens, *audit.categories.values()]
    assert f"| {' | '.join(str(cell) for cell in cells)} |" in documented
    assert audit.ids_sha256 in documented
    assert sum(audit.categories.values()) == audit.boundary_tokens


@pytest.mark.parametrize("audit", list_boundary_audits(), ids=lambda audit: audit.name)
def test_the_real_tokenizers_give_the_papers_counts(audit) -> None:
    """Appendix D.1, table 8: 671 boundary tokens, 1/48/552/70, and 565, 1/36/528/0."""
    folder = os.environ.get("OTBOARD_TEST_TOKENIZERS")
    if folder is None:
        pytest.skip("set OTBOARD_TEST_TOKENIZERS to a folder with gptoss/tokenizer.json and qwen3/tokenizer.json")
    tokenizer = load_tokenizer(Path(folder) / FOLDERS[audit.name])
    boundaries = tokenizer.find_boundaries()
    assert boundaries.count_categories() == audit.categories
    assert boundaries.n_vocabulary == audit.vocabulary
    assert find_boundary_audit(boundaries.digest()) == audit
    contents = tokenizer.map_boundary_contents(boundaries)
    whole = [token for token in contents if "\ufffd" not in tokenizer.token_texts[token]]
    assert len(whole) > 0.99 * len(contents)
    assert all(
        tokenizer.decode(contents[token]) == tokenizer.token_texts[token].replace("\n", "").replace("\r", "")
        for token in whole
    )
