"""Receipts over REST: what is answered to whom, each error, and that a page links what the command accepts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from typer.testing import CliRunner

from app.api.receipts import ReceiptKeyPageOut, SignedReceiptOut
from app.cli import app as command
from tests.signing_in import session_cookie

Caps = Callable[[int], bytes]


def check_problem(answer: Any, status: int, code: str) -> None:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == code


def verify(tmp_path: Path, receipt: bytes, keys: bytes) -> Any:
    """Check a receipt as somebody does who saved both files."""
    (tmp_path / "receipt.json").write_bytes(receipt)
    (tmp_path / "keys.json").write_bytes(keys)
    arguments = [str(tmp_path / "receipt.json"), "--key", str(tmp_path / "keys.json"), "--format", "json"]
    return CliRunner().invoke(command, ["receipt", "verify", *arguments], catch_exceptions=False)


def test_a_receipt_from_the_server_to_the_command(board: Any, make_caps: Caps, tmp_path: Path) -> None:
    submission_id = board.publish(make_caps(200), method="caps")
    answer = board.reader.get(f"/api/v1/submissions/{submission_id}/receipt")
    assert answer.status_code == 200
    assert answer.headers["content-disposition"] == f'attachment; filename="receipt-{submission_id}.json"'
    signed = SignedReceiptOut.model_validate(answer.json())
    score = board.reader.get(f"/api/v1/submissions/{submission_id}/score").json()
    assert answer.json()["receipt"]["boards"] == score["boards"]
    assert answer.json()["receipt"]["summary"] == score["summary"]
    shown = board.reader.get(f"/api/v1/submissions/{submission_id}").json()
    for name in ("method", "team", "snapshot", "snapshot_sha256", "split", "strategy", "actions_sha256", "kind"):
        assert answer.json()["receipt"][name] == shown[name]
    keys = board.reader.get("/api/v1/receipt-keys")
    listed = ReceiptKeyPageOut.model_validate(keys.json())
    assert [(key.key_id, key.is_current) for key in listed.items] == [(signed.key_id, True)]
    result = verify(tmp_path, answer.content, keys.content)
    assert result.exit_code == 0
    assert json.loads(result.stdout)["receipt"] == answer.json()["receipt"]
    changed = answer.content.replace(b'"method": "caps"', b'"method": "caqs"', 1)
    assert changed != answer.content
    result = verify(tmp_path, changed, keys.content)
    assert (result.exit_code, json.loads(result.stdout)["code"]) == (1, "receipt_changed")


def test_an_old_receipt_stays_checkable_after_a_new_key(board: Any, make_caps: Caps, tmp_path: Path) -> None:
    path = f"/api/v1/submissions/{board.publish(make_caps(200))}/receipt"
    old = board.reader.get(path)
    (board.config.data_dir / "receipt-keys" / "signing-key.pem").unlink()
    new = board.reader.get(path)
    assert (new.json()["receipt"], new.headers["etag"] != old.headers["etag"]) == (old.json()["receipt"], True)
    keys = board.reader.get("/api/v1/receipt-keys")
    assert [key["is_current"] for key in keys.json()["items"]] == [True, False]
    for receipt in (old, new):
        assert verify(tmp_path, receipt.content, keys.content).exit_code == 0


def test_a_receipt_is_frozen(board: Any, make_caps: Caps) -> None:
    path = f"/api/v1/submissions/{board.publish(make_caps(200))}/receipt"
    first = board.reader.get(path)
    etag = first.headers["etag"]
    assert etag.startswith('"')
    again = board.reader.get(path, headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert board.me.get(path).content == first.content


def test_who_gets_a_receipt(board: Any, make_caps: Caps) -> None:
    submission_id = board.submit(make_caps(200))
    path = f"/api/v1/submissions/{submission_id}/receipt"
    check_problem(board.me.get(path), 409, "not_scored")
    board.score(submission_id)
    assert board.me.get(path).status_code == 200
    for client in (board.reader, board.stranger):
        check_problem(client.get(path), 404, "unknown_submission")
    check_problem(board.reader.get(path, headers={"Authorization": "Bearer otb_wrong"}), 401, "not_signed_in")
    board.me.post(f"/api/v1/submissions/{submission_id}/publish")
    for client in (board.reader, board.stranger):
        assert client.get(path).status_code == 200
    board.me.post(f"/api/v1/submissions/{submission_id}/withdraw")
    assert board.me.get(path).status_code == 200
    for client in (board.reader, board.stranger):
        check_problem(client.get(path), 410, "withdrawn")
    check_problem(board.me.get("/api/v1/submissions/AAAAAAAAAAAA/receipt"), 404, "unknown_submission")


def test_all_splits_have_no_receipts_where_one_is_hidden(board: Any, make_caps: Caps, make_board_snapshot: Any) -> None:
    from app.services import snapshots

    submission_id = board.publish(make_caps(200))
    with board.sessions.begin() as session:
        snapshots.import_snapshot(session, make_board_snapshot("secret", seed=2, hidden_splits=["test"]))
        snapshots.freeze_snapshot(session, "secret")
        session.execute(
            text("UPDATE submissions SET split = 'all', snapshot_id = (SELECT id FROM snapshots WHERE name = 'secret')")
        )
    check_problem(board.me.get(f"/api/v1/submissions/{submission_id}/receipt"), 403, "labels_hidden")


@pytest.mark.parametrize("path", ["/api/v1/receipt-keys", "/api/v1/submissions/{id}/receipt"])
def test_a_broken_key_is_our_fault_and_named(board: Any, make_caps: Caps, path: str) -> None:
    submission_id = board.publish(make_caps(200))
    folder = board.config.data_dir / "receipt-keys"
    folder.mkdir()
    (folder / "signing-key.pem").write_text("nonsense")
    answer = board.reader.get(path.format(id=submission_id))
    check_problem(answer, 500, "receipt_key_unusable")
    assert str(board.config.data_dir) not in answer.text


def test_the_private_key_is_in_no_answer(board: Any) -> None:
    answer = board.reader.get("/api/v1/receipt-keys")
    private = (board.config.data_dir / "receipt-keys" / "signing-key.pem").read_text().splitlines()[1]
    assert private not in answer.text
    assert "PRIVATE" not in answer.text


def test_the_addresses_are_described(board: Any) -> None:
    paths = board.reader.get("/api/v1/openapi.json").json()["paths"]
    receipt = paths["/api/v1/submissions/{submission_id}/receipt"]["get"]["responses"]
    assert {"200", "304", "401", "403", "404", "409", "500"} <= receipt.keys()
    assert "500" in paths["/api/v1/receipt-keys"]["get"]["responses"]


def test_the_page_links_what_rest_answers(board: Any, make_caps: Caps) -> None:
    submission_id = board.submit(make_caps(200))
    board.reader.cookies.update(session_cookie(board.sessions, board.config))
    assert "Receipt (JSON)" not in board.reader.get(f"/submissions/{submission_id}").text
    board.score(submission_id)
    page = board.reader.get(f"/submissions/{submission_id}").text
    address = f"/api/v1/submissions/{submission_id}/receipt"
    assert f'<a href="{address}">Receipt (JSON)</a>' in page
    assert f"otboard receipt verify receipt-{submission_id}.json --key receipt-keys.json" in page
    assert f'receipt-{submission_id}.json"' in board.me.get(address).headers["content-disposition"]
    receipt = board.me.get(address).json()["receipt"]
    for name in ("submission_id", "actions_sha256", "snapshot_sha256"):
        assert f'<dd class="hash">{receipt[name]}</dd>' in page
    figures = page.split('class="figures"')[1].split("</dl>")[0]
    assert f"<dt>Area</dt><dd>{100 * receipt['summary']['area']:.1f}" in figures
