"""Ed25519 public keys as people hand them over: PEM, base64, hexadecimal, or the list that a server answers."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from typing import Any

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from app.errors import ContentError
from app.files.manifest import parse_json

KEY_BYTES = 32
KEY_ID_DIGITS = 16
_HEX_KEY = re.compile(r"[0-9a-fA-F]{64}")
_FORMS = "PEM, the base64 or hexadecimal digits of its 32 bytes, or the JSON of a server's /api/v1/receipt-keys"


class ReceiptKeyError(ContentError):
    """What was given as a key is no Ed25519 public key."""

    code = "invalid_receipt_key"
    title = "The key is no Ed25519 public key"


def key_id(key: Ed25519PublicKey) -> str:
    """Return the name of a key: the first 16 hexadecimal digits of the SHA-256 of its 32 bytes.

    Examples
    --------
    >>> key_id(Ed25519PublicKey.from_public_bytes(bytes(32)))
    '66687aadf862bd77'
    """
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:KEY_ID_DIGITS]


def encode_key(key: Ed25519PublicKey) -> str:
    """Return a key's 32 bytes in base64.

    Examples
    --------
    >>> encode_key(Ed25519PublicKey.from_public_bytes(bytes(32)))
    'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA='
    """
    return base64.b64encode(key.public_bytes_raw()).decode()


def write_pem(key: Ed25519PublicKey) -> str:
    """Return a key as PEM text with a newline at its end, as `openssl pkey -pubin` reads it."""
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()


def read_public_keys(content: bytes) -> tuple[Ed25519PublicKey, ...]:
    """Read one public key, or all keys of a server's list; blanks around it do not matter.

    Text of 64 hexadecimal digits is hexadecimal, other text without a PEM header and not an object is base64.

    Parameters
    ----------
    content : bytes of a file, or of text that was typed.

    Returns
    -------
    At least one key.

    Raises
    ------
    ReceiptKeyError : anything else: a private key, a key of another kind, a broken or empty text.

    Examples
    --------
    >>> [key_id(key) for key in read_public_keys(b"00" * 32)]
    ['66687aadf862bd77']
    """
    try:
        text = content.decode("utf-8-sig").strip()
    except UnicodeDecodeError as exc:
        raise ReceiptKeyError(f"The key is not text; give it as {_FORMS}.") from exc
    if text.startswith("{"):
        return _read_list(text)
    if text.startswith("-----BEGIN"):
        return (_read_pem(text),)
    return (_read_digits(text),)


def _read_list(text: str) -> tuple[Ed25519PublicKey, ...]:
    try:
        document = parse_json(text)
    except ValueError as exc:
        raise ReceiptKeyError(f"The list of keys cannot be read as JSON: {exc}.") from exc
    items: Any = document.get("items")
    if not isinstance(items, list) or not items:
        raise ReceiptKeyError("The JSON object is no list of keys: its `items` are missing or empty.")
    return tuple(_read_item(item) for item in items)


def _read_item(item: Any) -> Ed25519PublicKey:
    digits = item.get("public_key") if isinstance(item, dict) else None
    if not isinstance(digits, str):
        raise ReceiptKeyError("The list of keys has an item without `public_key`.")
    return _read_digits(digits)


def _read_pem(text: str) -> Ed25519PublicKey:
    if "PRIVATE KEY-----" in text.partition("\n")[0]:
        raise ReceiptKeyError("This is a private key. It belongs to the server alone; check with its public key.")
    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm) as exc:
        raise ReceiptKeyError("The PEM text is no public key.") from exc
    if not isinstance(key, Ed25519PublicKey):
        raise ReceiptKeyError("The PEM text is a public key of another kind than Ed25519.")
    return key


def _read_digits(text: str) -> Ed25519PublicKey:
    try:
        raw = bytes.fromhex(text) if _HEX_KEY.fullmatch(text) else base64.b64decode(text, validate=True)
    except (ValueError, binascii.Error) as exc:
        raise ReceiptKeyError(f"The text is no key; give it as {_FORMS}.") from exc
    if len(raw) != KEY_BYTES:
        raise ReceiptKeyError(f"An Ed25519 public key has {KEY_BYTES} bytes; the text has {len(raw)}.")
    return Ed25519PublicKey.from_public_bytes(raw)
