"""The server's keys, made once whoever asks first, and receipts that are made from what is stored."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from sqlalchemy import update
from sqlalchemy.orm import Session

from app.config import Config
from app.db import models
from app.evaluator.centring import INTERVAL_VERSION
from app.files.receipt_keys import encode_key, key_id, write_pem
from app.files.receipts import verify_receipt
from app.services import receipts, snapshots
from app.services.accounts import Identity
from app.services.receipts import ReceiptKeyUnusableError, ensure_signing_key, get_receipt, list_receipt_keys
from app.services.scoring import NotScoredError, WithdrawnError, get_score
from app.services.submissions import (
    HiddenLabelsError,
    UnknownSubmissionError,
    get_submission,
    publish_submission,
    withdraw_submission,
)

ROOT = Path(__file__).resolve().parents[2]


def test_the_key_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    key = ensure_signing_key(tmp_path)
    assert ensure_signing_key(tmp_path).private_bytes_raw() == key.private_bytes_raw()
    path = tmp_path / "receipt-keys" / "signing-key.pem"
    assert path.stat().st_mode & 0o777 == 0o600
    public = tmp_path / "receipt-keys" / "public" / f"{key_id(key.public_key())}.pem"
    assert public.read_text() == write_pem(key.public_key())
    # Nothing else is left, no draft of the private key above all.
    files = [found for found in (tmp_path / "receipt-keys").rglob("*") if found.is_file()]
    assert sorted(files) == sorted([path, public])


MAKE_KEY = """
import sys
from pathlib import Path
from app.services.receipts import ensure_signing_key
print("ready", flush=True)
sys.stdin.readline()
print(ensure_signing_key(Path(sys.argv[1])).public_key().public_bytes_raw().hex())
"""


def test_two_processes_that_start_at_once_make_one_key(tmp_path: Path) -> None:
    def start() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", MAKE_KEY, str(tmp_path)]
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with start() as first, start() as second:
        for process in (first, second):
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in (first, second):
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        keys = {process.communicate(timeout=60)[0].strip() for process in (first, second)}
    assert keys == {ensure_signing_key(tmp_path).public_key().public_bytes_raw().hex()}
    assert len(list_receipt_keys(tmp_path)) == 1


def test_whoever_makes_the_key_too_late_takes_the_first_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both see that there is no key; the second one's must not replace what the first one signs with already."""
    generate = Ed25519PrivateKey.generate
    made: list[bytes] = []

    class Late:
        @staticmethod
        def generate() -> Ed25519PrivateKey:
            monkeypatch.undo()
            made.append(ensure_signing_key(tmp_path).private_bytes_raw())
            return generate()

    monkeypatch.setattr(receipts, "Ed25519PrivateKey", Late)
    # The class is back in place by the time the key is read.
    assert [ensure_signing_key(tmp_path).private_bytes_raw()] == made


def test_many_threads_get_one_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        keys = list(pool.map(lambda _: ensure_signing_key(tmp_path).private_bytes_raw(), range(16)))
    assert len(set(keys)) == 1


def test_a_former_key_stays_listed(tmp_path: Path) -> None:
    former = ensure_signing_key(tmp_path).public_key()
    (tmp_path / "receipt-keys" / "signing-key.pem").unlink()
    current = ensure_signing_key(tmp_path).public_key()
    listed = list_receipt_keys(tmp_path)
    assert [(key.key_id, key.is_current) for key in listed] == [(key_id(current), True), (key_id(former), False)]
    assert [key.public_key for key in listed] == [encode_key(current), encode_key(former)]
    assert [key.pem for key in listed] == [write_pem(current), write_pem(former)]
    assert {key.algorithm for key in listed} == {"Ed25519"}


def test_the_public_half_is_kept_also_of_a_key_that_was_put_there(tmp_path: Path) -> None:
    """A server that was killed between the two files, or a key that an operator copied."""
    key = ensure_signing_key(tmp_path)
    public = tmp_path / "receipt-keys" / "public" / f"{key_id(key.public_key())}.pem"
    public.unlink()
    ensure_signing_key(tmp_path)
    assert public.read_text() == write_pem(key.public_key())


@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_broken_key_is_named_and_not_replaced(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "receipt-keys" / "signing-key.pem"
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(ReceiptKeyUnusableError, match=r"signing-key\.pem"):
        ensure_signing_key(tmp_path)
    assert path.read_bytes() == content


def test_a_key_of_another_kind_is_named(tmp_path: Path) -> None:
    path = tmp_path / "receipt-keys" / "signing-key.pem"
    path.parent.mkdir()
    path.write_bytes(X25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    assert load_pem_private_key(path.read_bytes(), None) is not None
    with pytest.raises(ReceiptKeyUnusableError, match="no Ed25519 key"):
        ensure_signing_key(tmp_path)


def test_a_broken_public_key_is_named(tmp_path: Path) -> None:
    ensure_signing_key(tmp_path)
    (tmp_path / "receipt-keys" / "public" / "old.pem").write_text("nonsense!")
    with pytest.raises(ReceiptKeyUnusableError, match=r"old\.pem"):
        list_receipt_keys(tmp_path)


@pytest.fixture
def scored(desk: Any, author: Identity, make_caps: Any) -> str:
    """A scored submission of the author's."""
    submission_id: str = desk.submit(author, make_caps(200), method="caps")
    desk.score(submission_id)
    return submission_id


def test_a_receipt_has_the_figures_of_the_score(
    session: Session, scored: str, author: Identity, config: Config
) -> None:
    config = replace(config, server_name="Tafel 1")
    text = get_receipt(session, scored, account=author, config=config)
    key = list_receipt_keys(config.data_dir)[0].public_key
    receipt = verify_receipt(text.encode(), key.encode())
    score = json.loads(get_score(session, scored, account=author).text)
    assert (receipt.summary, list(receipt.boards)) == (score["summary"], score["boards"])
    for name in ("snapshot", "snapshot_sha256", "kind", "split", "strategy", "actions_sha256", "scorer_version"):
        assert receipt.document[name] == score[name]
    details = get_submission(session, scored, account=author)
    assert (receipt.submission_id, receipt.team, receipt.method) == (details.id, "engines", "caps")
    assert receipt.snapshot_sha256 == details.snapshot_sha256
    assert (receipt.server, receipt.evaluator_version) == ("Tafel 1", "1")
    assert receipt.scored_at == session.query(models.Score.created_at).filter_by(submission_id=scored).scalar()


def test_the_same_score_gives_the_same_bytes(session: Session, scored: str, author: Identity, config: Config) -> None:
    first = get_receipt(session, scored, account=author, config=config)
    publish_submission(session, scored, account=author)
    assert get_receipt(session, scored, account=None, config=config) == first
    session.execute(update(models.Submission).where(models.Submission.id == scored).values(scored_at="2030-01-01Z"))
    assert get_receipt(session, scored, account=author, config=config) == first


def test_the_intervals_are_in_the_receipt_once_they_are_there(
    session: Session, scored: str, author: Identity, config: Config
) -> None:
    early = get_receipt(session, scored, account=author, config=config)
    board = session.query(models.BoardScore).filter_by(model=None, benchmark=None).one()
    intervals = {"area": [0.25, 0.5]}
    session.add(
        models.BoardInterval(
            board_score_id=board.id, version=INTERVAL_VERSION, n_replicates=1, intervals=intervals, replicates=bytes(8)
        )
    )
    session.flush()
    late = json.loads(get_receipt(session, scored, account=author, config=config))
    assert json.loads(early)["receipt"]["summary"]["intervals"] is None
    assert late["receipt"]["summary"]["intervals"] == intervals
    key = list_receipt_keys(config.data_dir)[0].public_key.encode()
    for text in (early, json.dumps(late)):
        assert verify_receipt(text.encode(), key).submission_id == scored


def test_a_receipt_is_for_whoever_may_see_the_score(
    session: Session, scored: str, author: Identity, stranger: Identity, config: Config
) -> None:
    for reader in (None, stranger):
        with pytest.raises(UnknownSubmissionError):
            get_receipt(session, scored, account=reader, config=config)
    publish_submission(session, scored, account=author)
    for reader in (None, stranger):
        assert get_receipt(session, scored, account=reader, config=config)
    withdraw_submission(session, scored, account=author)
    for reader in (None, stranger):
        with pytest.raises(WithdrawnError):
            get_receipt(session, scored, account=reader, config=config)
    assert json.loads(get_receipt(session, scored, account=author, config=config))["receipt"]["submission_id"] == scored


def test_there_is_none_before_the_score(session: Session, desk: Any, author: Identity, config: Config, make_caps: Any):
    submission_id = desk.submit(author, make_caps(200))
    with pytest.raises(NotScoredError):
        get_receipt(session, submission_id, account=author, config=config)


def test_there_is_none_on_all_splits_where_one_is_hidden(
    session: Session, scored: str, author: Identity, config: Config, make_board_snapshot: Any
) -> None:
    """No submission gets there yet; one that did, whatever the way, must not give its figures away."""
    snapshots.import_snapshot(session, make_board_snapshot("secret", seed=2, hidden_splits=["test"]))
    secret = snapshots.freeze_snapshot(session, "secret")
    session.execute(update(models.Submission).where(models.Submission.id == scored).values(snapshot_id=secret.id))
    session.expire_all()
    for split in ("all",):
        session.execute(update(models.Submission).where(models.Submission.id == scored).values(split=split))
        with pytest.raises(HiddenLabelsError):
            get_receipt(session, scored, account=author, config=config)


def test_another_server_s_key_does_not_verify(
    session: Session, scored: str, author: Identity, config: Config, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Servers with data folders of their own have keys of their own; the receipt inside is the same."""
    here = get_receipt(session, scored, account=author, config=config)
    other = replace(config, data_dir=tmp_path_factory.mktemp("other"))
    there = get_receipt(session, scored, account=author, config=other)
    assert json.loads(here)["receipt"] == json.loads(there)["receipt"]
    assert json.loads(here)["key_id"] != json.loads(there)["key_id"]
