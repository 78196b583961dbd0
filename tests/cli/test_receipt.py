"""`otboard receipt verify`: the key as file and as text, the three formats, and every reason to refuse."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.files.documents import dump_json
from app.files.receipt_keys import encode_key, key_id, write_pem
from app.files.receipts import build_receipt, sign_receipt

ROOT = Path(__file__).resolve().parents[2]
PRIVATE_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC_KEY = PRIVATE_KEY.public_key()
KEY_TEXT = encode_key(PUBLIC_KEY)
OTHER_TEXT = encode_key(Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key())
BOARD: dict[str, Any] = {
    "model": None,
    "benchmark": None,
    "area": 0.123456789012345,
    "beta_match": None,
    "intervals": {"area": [0.25, 0.5]},
}


@pytest.fixture
def envelope() -> dict[str, Any]:
    """A signed receipt, which a test may spoil."""
    score = {
        "snapshot": "small",
        "snapshot_sha256": "1" * 64,
        "kind": "measured",
        "split": "test",
        "strategy": "dynamic_routing",
        "scorer_version": "1",
        "actions_sha256": "2" * 64,
        "summary": dict(BOARD),
        "boards": [dict(BOARD)],
    }
    receipt = build_receipt(
        score,
        submission_id="k3J9xQ2mTz7A",
        team="engines",
        method="\x1b[31mred",
        scored_at=datetime(2026, 7, 21, tzinfo=UTC),
        evaluator_version="1",
        server="OTBoard",
    )
    return sign_receipt(receipt, PRIVATE_KEY)


@pytest.fixture
def receipt_path(envelope: dict[str, Any], tmp_path: Path) -> Path:
    """The receipt as a file."""
    path = tmp_path / "receipt.json"
    path.write_text(dump_json(envelope), encoding="utf-8")
    return path


def test_a_valid_receipt_is_printed(run, receipt_path: Path, envelope: dict[str, Any]):
    result = run("receipt", "verify", receipt_path, "--key", KEY_TEXT, "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout) == {
        "valid": True,
        "key_id": key_id(PUBLIC_KEY),
        "receipt": envelope["receipt"],
    }
    table = run("receipt", "verify", receipt_path, "--key", KEY_TEXT)
    assert table.exit_code == 0
    shown = dict(line.split(None, 1) for line in table.stdout.splitlines() if line.strip())
    assert (shown["valid"].strip(), shown["summary.area"].strip()) == ("yes", "0.1235")
    assert (shown["boards"].strip(), shown["summary.beta_match"].strip()) == ("1", "–")
    # What a stranger's file holds cannot steer the terminal.
    assert "\x1b" not in table.stdout
    rows = csv.DictReader(
        io.StringIO(run("receipt", "verify", receipt_path, "--key", KEY_TEXT, "--format", "csv").stdout)
    )
    fields = {row["field"]: row["value"] for row in rows}
    assert (fields["summary.area"], fields["team"]) == ("0.123456789012345", "engines")


@pytest.mark.parametrize(
    "content",
    [
        write_pem(PUBLIC_KEY),
        KEY_TEXT + "\n",
        PUBLIC_KEY.public_bytes_raw().hex(),
        json.dumps({"items": [{"public_key": OTHER_TEXT}, {"public_key": KEY_TEXT}]}),
    ],
)
def test_the_key_can_be_a_file(run, receipt_path: Path, tmp_path: Path, content: str):
    key = tmp_path / "key"
    key.write_text(content)
    assert run("receipt", "verify", receipt_path, "--key", key).exit_code == 0


def _change_figure(envelope: dict[str, Any]) -> None:
    envelope["receipt"]["boards"][0]["area"] = 0.9


def _break_signature(envelope: dict[str, Any]) -> None:
    envelope["signature"] = "nonsense!"


def _change_format(envelope: dict[str, Any]) -> None:
    envelope["receipt"]["format"] = "otboard-receipt/9"


def _drop_field(envelope: dict[str, Any]) -> None:
    del envelope["receipt"]["boards"]


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (_change_figure, "receipt_changed"),
        (_break_signature, "malformed_signature"),
        (_change_format, "unknown_receipt_format"),
        (_drop_field, "invalid_receipt"),
    ],
)
def test_an_invalid_receipt_ends_with_1_and_the_reason(
    run, receipt_path: Path, envelope: dict[str, Any], spoil: Any, code: str
):
    spoil(envelope)
    receipt_path.write_text(dump_json(envelope), encoding="utf-8")
    told = run("receipt", "verify", receipt_path, "--key", KEY_TEXT)
    assert (told.exit_code, told.stdout) == (1, "")
    assert f"({code})" in told.stderr
    as_json = run("receipt", "verify", receipt_path, "--key", KEY_TEXT, "--format", "json")
    assert (as_json.exit_code, json.loads(as_json.stdout)["code"]) == (1, code)


@pytest.mark.parametrize(
    ("key", "code", "words"),
    [
        (OTHER_TEXT, "wrong_receipt_key", "was signed with key"),
        ("no-such-key.pem", "invalid_receipt_key", "There is no file 'no-such-key.pem'"),
        ("x" * 5000, "invalid_receipt_key", "no key"),
        ("", "invalid_receipt_key", "no key"),
    ],
)
def test_a_key_that_is_not_the_one(run, receipt_path: Path, key: str, code: str, words: str):
    result = run("receipt", "verify", receipt_path, "--key", key, "--format", "json")
    error = json.loads(result.stdout)
    assert (result.exit_code, error["code"]) == (1, code)
    assert words in error["detail"]


def test_a_key_file_that_holds_none(run, receipt_path: Path):
    result = run("receipt", "verify", receipt_path, "--key", receipt_path, "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)["code"]) == (1, "invalid_receipt_key")


def test_files_that_cannot_be_read(run, receipt_path: Path, tmp_path: Path):
    for path in (tmp_path / "nowhere.json", tmp_path):
        result = run("receipt", "verify", path, "--key", KEY_TEXT, "--format", "json")
        assert (result.exit_code, json.loads(result.stdout)["code"]) == (1, "unreadable_file")
    empty = tmp_path / "empty.json"
    empty.touch()
    result = run("receipt", "verify", empty, "--key", KEY_TEXT, "--format", "json")
    assert (result.exit_code, json.loads(result.stdout)["code"]) == (1, "unreadable_receipt")
    assert run("receipt", "verify", receipt_path).exit_code == 2


def test_verifying_needs_no_server_package_and_nothing_heavy(receipt_path: Path):
    arguments = ["receipt", "verify", str(receipt_path), "--key", KEY_TEXT]
    code = (
        f"import sys; from app.cli import app\ntry: app({arguments!r})\nexcept SystemExit as end: assert not end.code\n"
        "import json; print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stderr.splitlines()[-1])}
    assert not loaded & {"sqlalchemy", "fastapi", "psycopg", "httpx", "pandas", "pyarrow", "numba"}
    assert "cryptography" in loaded
