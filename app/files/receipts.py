"""Score receipts, `otboard-receipt/1`: what a server released of a score, signed, to be checked offline by anyone."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from app.errors import ContentError
from app.files.manifest import parse_json
from app.files.problems import ProblemCollector
from app.files.receipt_fields import RECEIPT_FIELDS, check_envelope, check_receipt
from app.files.receipt_keys import key_id, read_public_keys

Document = dict[str, Any]
RECEIPT_FORMAT = "otboard-receipt/1"
SIGNATURE_BYTES = 64
SCORE_KEYS = (
    "snapshot",
    "snapshot_sha256",
    "kind",
    "split",
    "strategy",
    "actions_sha256",
    "scorer_version",
    "summary",
    "summary_reason",
    "boards",
)
"""What a receipt takes from the score document, under the same names."""
_TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"


class UnreadableReceiptError(ContentError):
    """The file is not one JSON object."""

    code = "unreadable_receipt"
    title = "The receipt cannot be read"


class ReceiptFormatError(ContentError):
    """The receipt has a format that this program does not know."""

    code = "unknown_receipt_format"
    title = "The receipt has another format"


class ReceiptFieldsError(ContentError):
    """A field of the receipt or of its envelope is missing, unknown or not of its type."""

    code = "invalid_receipt"
    title = "The receipt has missing or wrong fields"


class MalformedSignatureError(ContentError):
    """The signature is not the base64 text of 64 bytes."""

    code = "malformed_signature"
    title = "The signature is malformed"


class OtherReceiptKeyError(ContentError):
    """The receipt says that it was signed with another key than the one given."""

    code = "wrong_receipt_key"
    title = "The receipt was signed with another key"


class ReceiptChangedError(ContentError):
    """The signature is not that of this receipt by this key."""

    code = "receipt_changed"
    title = "The receipt is not what was signed"


@dataclass(frozen=True)
class Receipt:
    """A receipt whose signature was checked.

    Attributes
    ----------
    server : the name of the server that signed, as its organiser chose it.
    submission_id, team, method : whose score it is.
    snapshot, snapshot_sha256, kind, split : what it was scored on; the hash is that of the snapshot with all labels.
    strategy, actions_sha256 : what was scored.
    scorer_version : of the rules by which the figures were computed.
    evaluator_version : of the frontiers they were compared with; None where the server no longer knows.
    scored_at : when the score was stored, UTC.
    summary : the figures of the whole snapshot, None where a cell is not covered.
    boards : the figures of every board, as the score document has them.
    key_id : which key signed it.
    document : the receipt as it was signed.
    """

    server: str
    submission_id: str
    team: str
    method: str
    snapshot: str
    snapshot_sha256: str
    kind: str
    split: str
    strategy: str
    actions_sha256: str
    scorer_version: str
    evaluator_version: str | None
    scored_at: datetime
    summary: Document | None
    boards: tuple[Document, ...]
    key_id: str
    document: Document


def canonical_receipt(receipt: Mapping[str, Any]) -> bytes:
    """Return the bytes that are signed: the receipt as JSON in exactly one form.

    Keys sorted by code point at every depth, no blanks, UTF-8 without a mark at its start; nothing is left out. Text as
    it is but for the quotation mark, the backslash and the characters below U+0020, which take the escapes of JSON (the
    short ones where there are such, else four lower-case hexadecimal digits). Integers as their digits; fractions as
    the shortest digits that read back as the same float64, with an exponent below 1e-4 and from 1e16, as Python's
    `json.dumps` writes them: 1.0 stays "1.0", and is not 1.

    Parameters
    ----------
    receipt : what JSON can hold, texts as keys.

    Raises
    ------
    ValueError : NaN, an infinity, or half a surrogate pair.

    Examples
    --------
    >>> canonical_receipt({"b": [1, 1.0, 1e-05, None, True], "a": "é/\\n"}).decode()
    '{"a":"é/\\\\n","b":[1,1.0,1e-05,null,true]}'
    """
    text = json.dumps(receipt, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode()


def build_receipt(
    score: Mapping[str, Any],
    *,
    submission_id: str,
    team: str,
    method: str,
    scored_at: datetime,
    evaluator_version: str | None,
    server: str,
) -> Document:
    """Return the receipt of a score, not signed yet: the figures of its boards as they are, without its settings.

    Parameters
    ----------
    score : a score document as it is released to whoever gets the receipt.
    submission_id, team, method : whose score it is.
    scored_at : when the score was stored; with its time zone.
    evaluator_version : of the frontiers that the score was compared with, None where not known.
    server : the name of the server that will sign.

    Raises
    ------
    ValueError : a time without a zone, a score document without one of its keys, or a number that JSON does not have.
    """
    if scored_at.tzinfo is None:
        raise ValueError("scored_at has no time zone")
    receipt = {
        "format": RECEIPT_FORMAT,
        "server": server,
        "submission_id": submission_id,
        "team": team,
        "method": method,
        "scored_at": scored_at.astimezone(UTC).strftime(_TIME_FORMAT),
        "evaluator_version": evaluator_version,
        **{key: score[key] for key in SCORE_KEYS if key in score},
    }
    problems = ProblemCollector()
    check_receipt(receipt, problems)
    if problems:
        raise ValueError(problems.problems()[0].message)
    canonical_receipt(receipt)
    return receipt


def sign_receipt(receipt: Mapping[str, Any], private_key: Ed25519PrivateKey) -> Document:
    """Return the envelope of a receipt: `receipt`, its `signature` in base64, and the `key_id`.

    The signature is Ed25519 (RFC 8032) of `canonical_receipt`, which is deterministic: the same receipt and key give
    the same bytes.
    """
    signature = private_key.sign(canonical_receipt(receipt))
    return {
        "receipt": dict(receipt),
        "signature": base64.b64encode(signature).decode(),
        "key_id": key_id(private_key.public_key()),
    }


def verify_receipt(content: bytes, key: bytes) -> Receipt:
    """Return the receipt of an envelope if the key signed it.

    Blanks, the order of keys and the spelling of numbers and escapes in the file do not matter, since the canonical
    form is what is signed; any other change does. Further keys are allowed in the receipt, where they are signed too,
    and not in the envelope. Of several keys the one with the envelope's `key_id` counts.

    Parameters
    ----------
    content : the file's bytes, JSON in UTF-8.
    key : an Ed25519 public key in any form of `read_public_keys`.

    Raises
    ------
    UnreadableReceiptError : no single JSON object.
    ReceiptFormatError : another format than `otboard-receipt/1`.
    ReceiptFieldsError : missing or unknown fields, or values of the wrong type; lists all.
    ReceiptKeyError : the key is none.
    MalformedSignatureError : the signature is not base64 of 64 bytes.
    OtherReceiptKeyError : signed with another key.
    ReceiptChangedError : something in it was changed, or the signature.

    Notes
    -----
    Needs no network and no file. The receipt says what the server released, not that the action file is honest; with
    that file and the snapshot anyone can score it again.
    """
    envelope = _read_envelope(content)
    receipt, signer = envelope["receipt"], envelope["key_id"]
    found = {key_id(public): public for public in read_public_keys(key)}
    signature = _read_signature(envelope["signature"])
    if signer not in found:
        given = ", ".join(found)
        raise OtherReceiptKeyError(f"The receipt was signed with key {signer}; the key given is {given}.")
    try:
        found[signer].verify(signature, canonical_receipt(receipt))
    except InvalidSignature as exc:
        raise ReceiptChangedError(
            f"The signature does not belong to this receipt and key {signer}: something in it was changed."
        ) from exc
    return _build(receipt, signer)


def _build(receipt: Document, signer: str) -> Receipt:
    plain = {name: receipt[name] for name in RECEIPT_FIELDS if name not in ("format", "scored_at", "boards")}
    scored_at = datetime.fromisoformat(receipt["scored_at"])
    return Receipt(**plain, scored_at=scored_at, boards=tuple(receipt["boards"]), key_id=signer, document=receipt)


def _read_envelope(content: bytes) -> Document:
    try:
        envelope = parse_json(content.decode("utf-8-sig"))
    except ValueError as exc:
        raise UnreadableReceiptError(f"The receipt cannot be read as JSON: {exc}.") from exc
    if not isinstance(envelope, dict):
        raise UnreadableReceiptError("The receipt is JSON, and no object.")
    receipt = envelope.get("receipt")
    if isinstance(receipt, dict) and receipt.get("format", RECEIPT_FORMAT) != RECEIPT_FORMAT:
        raise ReceiptFormatError(f"The receipt's format is {receipt['format']!r}; this program knows {RECEIPT_FORMAT}.")
    problems = ProblemCollector()
    check_envelope(envelope, problems)
    if isinstance(receipt, dict):
        check_receipt(receipt, problems)
        if not _is_storable(receipt):
            problems.add("bad_value", "a text of the receipt holds half a surrogate pair", column="receipt")
    if problems:
        first = problems.problems()[0].message
        raise ReceiptFieldsError(f"The receipt is not whole: {first}.", problems=problems.problems())
    return envelope


def _read_signature(text: str) -> bytes:
    try:
        signature = base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as exc:
        raise MalformedSignatureError(f"The signature is not base64: {exc}.") from exc
    if base64.b64encode(signature).decode() != text:
        raise MalformedSignatureError("The signature is base64 with stray bits at its end.")
    if len(signature) != SIGNATURE_BYTES:
        raise MalformedSignatureError(f"A signature has {SIGNATURE_BYTES} bytes; this one has {len(signature)}.")
    return signature


def _is_storable(receipt: Document) -> bool:
    try:
        canonical_receipt(receipt)
    except UnicodeEncodeError:
        return False
    return True
