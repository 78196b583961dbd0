"""Score receipts: made from the stored score when they are asked for, signed with the key of the data folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.config import Config
from app.db import models
from app.errors import AppError
from app.files.atomic import write_once
from app.files.documents import dump_json
from app.files.receipt_keys import ReceiptKeyError, encode_key, key_id, read_public_keys, write_pem
from app.files.receipts import build_receipt, sign_receipt
from app.services.accounts import Identity
from app.services.scoring import get_score
from app.services.snapshots import get_snapshot, is_closed
from app.services.submissions import HiddenLabelsError, SubmissionDetails, get_submission

KEYS_FOLDER = "receipt-keys"
SIGNING_KEY = "signing-key.pem"
PUBLIC_FOLDER = "public"
ALGORITHM = "Ed25519"
PRIVATE_MODE = 0o600
PUBLIC_MODE = 0o644


class ReceiptKeyUnusableError(AppError):
    """A key file in the data folder is not one; a new key is not put in its place, since receipts rest on it."""

    status = 500
    code = "receipt_key_unusable"
    title = "A key of this server cannot be used"


@dataclass(frozen=True)
class ReceiptKey:
    """A public key of this server: its name, its 32 bytes in base64, the same as PEM, and whether it signs now."""

    key_id: str
    algorithm: str
    public_key: str
    pem: str
    is_current: bool


def get_receipt(
    session: Session,
    submission_id: str,
    *,
    account: Identity | None,
    config: Config,
    scorer_version: str | None = None,
) -> str:
    """Return the signed receipt of a score that the reader may see, as JSON text.

    The same score gives the same text. Raises what `get_score` does, and `HiddenLabelsError` on a split whose labels
    are hidden.
    """
    details = get_submission(session, submission_id, account=account)
    if not may_have_receipt(session, details):
        raise HiddenLabelsError(f"There are no receipts on split {details.split!r}: its labels are hidden.")
    score = get_score(session, submission_id, account=account, scorer_version=scorer_version)
    stored = _get_record(session, details, scorer_version=score.scorer_version)
    receipt = build_receipt(
        json.loads(score.text),
        submission_id=details.id,
        team=details.team,
        method=details.method,
        # Not when the submission was last scored, which another version may change.
        scored_at=stored.created_at,
        evaluator_version=stored.evaluator_version
        or _find_evaluator_version(session, details, scored_at=stored.created_at),
        server=config.server_name,
    )
    return dump_json(sign_receipt(receipt, ensure_signing_key(config.data_dir)))


def may_have_receipt(session: Session, details: SubmissionDetails) -> bool:
    """Tell whether a score of this submission's target can be had as a receipt: it holds what is told of the score."""
    return not is_closed(get_snapshot(session, details.snapshot), details.split)


def list_receipt_keys(data_dir: Path) -> tuple[ReceiptKey, ...]:
    """Return the public keys of this server's receipts: the one in use first, then the former ones by name."""
    current = ensure_signing_key(data_dir).public_key()
    former = [_read_public(path) for path in sorted((data_dir / KEYS_FOLDER / PUBLIC_FOLDER).glob("*.pem"))]
    keys = {key_id(key): key for key in (current, *former)}
    return tuple(
        ReceiptKey(name, ALGORITHM, encode_key(key), write_pem(key), is_current=name == key_id(current))
        for name, key in keys.items()
    )


def ensure_signing_key(data_dir: Path) -> Ed25519PrivateKey:
    """Return the key that signs receipts; the first to ask makes it, and its public half is kept for good."""
    path = data_dir / KEYS_FOLDER / SIGNING_KEY
    # Receipts are given away at once; a power cut must not take back the key that they can be checked with.
    if not path.exists():
        write_once(path, _encode_private(Ed25519PrivateKey.generate()), mode=PRIVATE_MODE)
    key = _read_private(path)
    public = data_dir / KEYS_FOLDER / PUBLIC_FOLDER / f"{key_id(key.public_key())}.pem"
    if not public.exists():
        write_once(public, write_pem(key.public_key()).encode(), mode=PUBLIC_MODE)
    return key


def _get_record(session: Session, details: SubmissionDetails, *, scorer_version: str) -> Any:
    """Return when the score was stored and against which frontiers it was made, where that is stored."""
    score = models.Score
    query = select(score.created_at, score.evaluator_version).where(
        score.submission_id == details.id, score.scorer_version == scorer_version
    )
    return session.execute(query).one()


def _find_evaluator_version(session: Session, details: SubmissionDetails, *, scored_at: datetime) -> str | None:
    """Return the version of the frontiers that were the newest ones when a score was stored that does not say so."""
    frontier = models.CellFrontier
    query = (
        select(frontier.evaluator_version)
        .join(models.Snapshot, models.Snapshot.id == frontier.snapshot_id)
        .where(models.Snapshot.name == details.snapshot, frontier.split == details.split)
        .where(frontier.strategy == details.strategy.value, frontier.created_at <= scored_at)
        .order_by(frontier.created_at.desc(), frontier.id.desc())
        .limit(1)
    )
    return session.scalar(query)


def _encode_private(key: Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _read_private(path: Path) -> Ed25519PrivateKey:
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except (OSError, ValueError, TypeError) as exc:
        raise ReceiptKeyUnusableError(f"The file {path.name} in the data folder is no private key.") from exc
    if not isinstance(key, Ed25519PrivateKey):
        raise ReceiptKeyUnusableError(f"The file {path.name} in the data folder is no {ALGORITHM} key.")
    return key


def _read_public(path: Path) -> Ed25519PublicKey:
    try:
        return read_public_keys(path.read_bytes())[0]
    except (OSError, ReceiptKeyError) as exc:
        raise ReceiptKeyUnusableError(f"The file {path.name} in the data folder is no public key.") from exc
