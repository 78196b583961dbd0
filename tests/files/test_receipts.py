"""Score receipts: their canonical form by hand, the round trip, and every way of tampering with one."""

from __future__ import annotations

import base64
import copy
import doctest
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from app.errors import ContentError
from app.files import receipt_keys, receipts
from app.files.documents import dump_json
from app.files.receipt_keys import ReceiptKeyError, encode_key, key_id, read_public_keys, write_pem
from app.files.receipts import build_receipt, canonical_receipt, sign_receipt, verify_receipt

DOCUMENTATION = (Path(__file__).resolve().parents[2] / "docs" / "receipts.md").read_text(encoding="utf-8")
# The key pair of RFC 8032, section 7.1, test 1.
PRIVATE_KEY = Ed25519PrivateKey.from_private_bytes(
    bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
)
PUBLIC_HEX = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
KEY = PUBLIC_HEX.encode()
OTHER_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))

BOARD: dict[str, Any] = {
    "model": None,
    "benchmark": None,
    "realised_potential": 0.1 + 0.2,
    "area": 1.0,
    "beta_match": None,
    "accuracy_at": {"0.25": 0.5, "0.5": 1e-05, "0.75": 0.75},
    "intervals": {"realised_potential": [0.25, 0.3333333333333333], "beta_match": None},
}
SCORE: dict[str, Any] = {
    "snapshot": "small",
    "snapshot_sha256": "1" * 64,
    "kind": "synthetic",
    "split": "test",
    "strategy": "fixed_budget",
    "scorer_version": "1",
    "actions_sha256": "2" * 64,
    "warnings": [],
    "settings": [{"setting": "a"}],
    "boards": [BOARD, {"model": "alpha", "benchmark": "math", "area": 0.5}],
    "summary": BOARD,
    "summary_reason": None,
}
SCORED_AT = datetime(2026, 7, 21, 9, 30, 4, 5, tzinfo=UTC)


def build(**changes: Any) -> dict[str, Any]:
    given: dict[str, Any] = {
        "submission_id": "k3J9xQ2mTz7A",
        "team": "engines",
        "method": "Längen-Kappe",
        "scored_at": SCORED_AT,
        "evaluator_version": "1",
        "server": "OTBoard",
    }
    return build_receipt(SCORE, **given | changes)


@pytest.fixture
def envelope() -> dict[str, Any]:
    """A signed receipt, which a test may spoil."""
    return copy.deepcopy(sign_receipt(build(), PRIVATE_KEY))


def test_examples_of_the_documentation_hold() -> None:
    for module in (receipts, receipt_keys):
        assert doctest.testmod(module).failed == 0


def test_a_receipt_comes_back_as_it_was_signed(envelope: dict[str, Any]) -> None:
    receipt = verify_receipt(dump_json(envelope).encode(), KEY)
    assert (receipt.submission_id, receipt.team, receipt.method) == ("k3J9xQ2mTz7A", "engines", "Längen-Kappe")
    assert (receipt.snapshot, receipt.split, receipt.strategy, receipt.kind) == (
        "small",
        "test",
        "fixed_budget",
        "synthetic",
    )
    assert (receipt.snapshot_sha256, receipt.actions_sha256) == ("1" * 64, "2" * 64)
    assert (receipt.scorer_version, receipt.evaluator_version, receipt.server) == ("1", "1", "OTBoard")
    assert receipt.scored_at == SCORED_AT
    assert (receipt.summary, list(receipt.boards)) == (SCORE["summary"], SCORE["boards"])
    assert receipt.document == envelope["receipt"]
    assert receipt.key_id == envelope["key_id"] == hashlib.sha256(bytes.fromhex(PUBLIC_HEX)).hexdigest()[:16]


def test_a_receipt_has_the_figures_and_not_the_settings() -> None:
    receipt = build()
    assert receipt["format"] == "otboard-receipt/1"
    assert receipt["scored_at"] == "2026-07-21T09:30:04.000005Z"
    assert "settings" not in receipt
    assert "warnings" not in receipt


def test_the_time_is_in_utc_whatever_the_zone() -> None:
    berlin = timezone(timedelta(hours=2))
    assert build(scored_at=SCORED_AT.astimezone(berlin)) == build()
    with pytest.raises(ValueError, match="time zone"):
        build(scored_at=datetime(2026, 7, 21))  # noqa: DTZ001


def test_the_canonical_form_is_these_bytes() -> None:
    receipt = {
        "z": [True, False, None, [], {}],
        "a b": "é☃😀",
        "": 'quote " backslash \\ slash / newline \n tab \t',
        "control": "\x00\x1f\x7f\b\f\r",
        "Z": {"b": 10**30, "a": -1},
        # The sum of a tenth and two tenths takes seventeen digits; exponents begin at 1e16 and below 1e-4.
        "numbers": [0.1 + 0.2, 1.0, -0.0, 1e15, 1e16, 0.0001, 0.00001, 5e-324, 2 / 3],
        "😀": 1,
        "\ufffd": 2,
    }
    # By code point: "" < "Z" < "a b" < "control" < "numbers" < "z" < U+FFFD < U+1F600, which UTF-16 would turn round.
    expected = (
        '{"":"quote \\" backslash \\\\ slash / newline \\n tab \\t",'
        '"Z":{"a":-1,"b":1000000000000000000000000000000},'
        '"a b":"é☃😀",'
        '"control":"\\u0000\\u001f\x7f\\b\\f\\r",'
        '"numbers":[0.30000000000000004,1.0,-0.0,1000000000000000.0,1e+16,0.0001,1e-05,5e-324,0.6666666666666666],'
        '"z":[true,false,null,[],{}],'
        '"\ufffd":2,"😀":1}'
    )
    assert canonical_receipt(receipt) == expected.encode("utf-8")


def test_a_whole_receipt_s_canonical_bytes_by_hand() -> None:
    receipt = build_receipt(
        SCORE | {"summary": None, "boards": [{"model": "m", "benchmark": None, "area": 0.5}]},
        submission_id="A" * 12,
        team="t",
        method="ö",
        scored_at=SCORED_AT,
        evaluator_version=None,
        server="s",
    )
    expected = (
        f'{{"actions_sha256":"{"2" * 64}","boards":[{{"area":0.5,"benchmark":null,"model":"m"}}],'
        '"evaluator_version":null,"format":"otboard-receipt/1","kind":"synthetic","method":"ö",'
        '"scored_at":"2026-07-21T09:30:04.000005Z","scorer_version":"1","server":"s","snapshot":"small",'
        f'"snapshot_sha256":"{"1" * 64}","split":"test","strategy":"fixed_budget",'
        f'"submission_id":"{"A" * 12}","summary":null,"summary_reason":null,"team":"t"}}'
    )
    assert canonical_receipt(receipt) == expected.encode()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_does_not_have_are_refused(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_receipt({"area": number})
    with pytest.raises(ValueError, match="not JSON compliant"):
        build_receipt(
            SCORE | {"summary": BOARD | {"area": number}},
            submission_id="x",
            team="t",
            method="m",
            scored_at=SCORED_AT,
            evaluator_version="1",
            server="s",
        )


def test_the_signature_is_plain_ed25519_over_the_canonical_bytes(envelope: dict[str, Any]) -> None:
    """What the documentation says, done with nothing of ours: the canonical text by `json`, the signature as it is."""
    text = json.dumps(envelope["receipt"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    public = Ed25519PublicKey.from_public_bytes(bytes.fromhex(PUBLIC_HEX))
    public.verify(base64.b64decode(envelope["signature"]), text.encode())


def test_the_documented_check_finds_the_same(
    envelope: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The few lines of the documentation, as somebody copies them who has none of our programs."""
    program = DOCUMENTATION.split("```python\n")[1].split("```")[0]
    monkeypatch.chdir(tmp_path)
    Path("key.pem").write_text(write_pem(PRIVATE_KEY.public_key()))
    check = [sys.executable, "-c", program]
    Path("receipt.json").write_text(dump_json(envelope), encoding="utf-8")
    assert subprocess.run(check, check=False, capture_output=True).returncode == 0
    envelope["receipt"]["boards"][0]["area"] = 0.5
    Path("receipt.json").write_text(dump_json(envelope), encoding="utf-8")
    done = subprocess.run(check, check=False, capture_output=True, text=True)
    assert (done.returncode, "InvalidSignature" in done.stderr) == (1, True)


def test_every_field_and_code_is_documented(envelope: dict[str, Any]) -> None:
    names = [*envelope, *envelope["receipt"], "missing_key", "bad_value", "unknown_key"]
    errors = [ReceiptKeyError, *(kind for kind in vars(receipts).values() if is_error(kind))]
    assert len(errors) == 7
    names += [error.code for error in errors]
    assert [name for name in names if f"`{name}`" not in DOCUMENTATION] == []


def is_error(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, ContentError) and kind.__module__ == receipts.__name__


def test_the_same_receipt_and_key_give_the_same_bytes() -> None:
    assert dump_json(sign_receipt(build(), PRIVATE_KEY)) == dump_json(sign_receipt(build(), PRIVATE_KEY))


def test_the_spelling_of_the_file_does_not_matter(envelope: dict[str, Any]) -> None:
    turned = {
        "key_id": envelope["key_id"],
        "signature": envelope["signature"],
        "receipt": dict(sorted(envelope["receipt"].items(), reverse=True)),
    }
    # Escapes instead of letters, blanks, CRLF, a byte-order mark, one digit more than the number needs.
    text = json.dumps(turned, indent=7, ensure_ascii=True).replace("\n", "\r\n")
    text = text.replace("0.3333333333333333", "0.33333333333333331").replace("1e-05", "0.00001")
    assert verify_receipt(b"\xef\xbb\xbf" + text.encode(), KEY).method == "Längen-Kappe"


def test_further_fields_that_were_signed_are_allowed() -> None:
    signed = sign_receipt(build() | {"note": "more"}, PRIVATE_KEY)
    assert verify_receipt(dump_json(signed).encode(), KEY).document["note"] == "more"


Spoil = Callable[[dict[str, Any]], Any]


def change(*path: str | int, to: Any) -> Spoil:
    """A function that changes one value of an envelope."""

    def spoil(envelope: dict[str, Any]) -> None:
        inner: Any = envelope
        for key in path[:-1]:
            inner = inner[key]
        assert inner[path[-1]] != to or type(inner[path[-1]]) is not type(to)
        inner[path[-1]] = to

    return spoil


def drop(*path: str) -> Spoil:
    """A function that removes one field of an envelope."""

    def spoil(envelope: dict[str, Any]) -> None:
        inner = envelope
        for key in path[:-1]:
            inner = inner[key]
        del inner[path[-1]]

    return spoil


CHANGES: dict[str, Any] = {
    "server": "Another",
    "submission_id": "AAAAAAAAAAAA",
    "team": "others",
    "method": "Längen-Kappe ",
    "snapshot": "large",
    "snapshot_sha256": "3" * 64,
    "kind": "measured",
    "split": "validation",
    "strategy": "dynamic_routing",
    "actions_sha256": "3" * 64,
    "scorer_version": "2",
    "evaluator_version": None,
    "scored_at": "2026-07-21T09:30:04.000006Z",
    "summary": None,
    "summary_reason": "none",
    "boards": [],
}


def test_every_field_is_signed(envelope: dict[str, Any]) -> None:
    assert {*CHANGES, "format"} == set(envelope["receipt"])
    for name, value in CHANGES.items():
        spoiled = copy.deepcopy(envelope)
        change("receipt", name, to=value)(spoiled)
        with pytest.raises(receipts.ReceiptChangedError):
            verify_receipt(dump_json(spoiled).encode(), KEY)


@pytest.mark.parametrize(
    "spoil",
    [
        change("receipt", "boards", 0, "realised_potential", to=0.3),
        change("receipt", "boards", 0, "area", to=1),
        change("receipt", "boards", 0, "beta_match", to=0.0),
        change("receipt", "boards", 0, "intervals", "realised_potential", 1, to=0.33),
        change("receipt", "boards", 0, "accuracy_at", "0.5", to=2e-05),
        change("receipt", "boards", 1, "model", to="beta"),
        drop("receipt", "summary", "intervals"),
        lambda envelope: envelope["receipt"]["boards"].reverse(),
        lambda envelope: envelope["receipt"].update(note="not signed"),
        change("signature", to=base64.b64encode(bytes(64)).decode()),
        lambda envelope: envelope.update(signature=sign_receipt(envelope["receipt"], OTHER_KEY)["signature"]),
    ],
)
def test_a_change_is_found(envelope: dict[str, Any], spoil: Spoil) -> None:
    spoil(envelope)
    with pytest.raises(receipts.ReceiptChangedError) as raised:
        verify_receipt(dump_json(envelope).encode(), KEY)
    assert raised.value.code == "receipt_changed"


def test_another_key_is_named() -> None:
    content = dump_json(sign_receipt(build(), OTHER_KEY)).encode()
    with pytest.raises(receipts.OtherReceiptKeyError, match=key_id(OTHER_KEY.public_key())) as raised:
        verify_receipt(content, KEY)
    assert raised.value.code == "wrong_receipt_key"


def test_a_changed_key_id_does_not_make_a_receipt_that_of_another_key(envelope: dict[str, Any]) -> None:
    envelope["key_id"] = key_id(OTHER_KEY.public_key())
    content = dump_json(envelope).encode()
    with pytest.raises(receipts.OtherReceiptKeyError):
        verify_receipt(content, KEY)
    with pytest.raises(receipts.ReceiptChangedError):
        verify_receipt(content, encode_key(OTHER_KEY.public_key()).encode())


@pytest.mark.parametrize(
    "signature",
    [
        "nonsense!",
        "AAAA",
        "é" * 88,
        base64.b64encode(bytes(63)).decode(),
        base64.b64encode(bytes(65)).decode(),
        base64.b64encode(bytes(64)).decode().rstrip("="),
        base64.b64encode(bytes(64)).decode()[:-3] + "B==",
        base64.b64encode(bytes(64)).decode() + "\n",
    ],
)
def test_a_signature_that_is_none(envelope: dict[str, Any], signature: str) -> None:
    envelope["signature"] = signature
    with pytest.raises(receipts.MalformedSignatureError) as raised:
        verify_receipt(dump_json(envelope).encode(), KEY)
    assert raised.value.code == "malformed_signature"


@pytest.mark.parametrize("found", ["otboard-receipt/2", "", None, 1, ["otboard-receipt/1"]])
def test_another_format_is_named_before_its_fields(found: Any) -> None:
    with pytest.raises(receipts.ReceiptFormatError, match="otboard-receipt/1") as raised:
        verify_receipt(json.dumps({"receipt": {"format": found}}).encode(), KEY)
    assert raised.value.code == "unknown_receipt_format"


@pytest.mark.parametrize(
    ("spoil", "code", "column"),
    [
        *((drop(name), "missing_key", name) for name in ("receipt", "signature", "key_id")),
        *((drop("receipt", name), "missing_key", name) for name in CHANGES if name != "summary_reason"),
        (drop("receipt", "format"), "missing_key", "format"),
        (change("receipt", to=[]), "bad_value", "receipt"),
        (change("signature", to=None), "bad_value", "signature"),
        (change("key_id", to=1), "bad_value", "key_id"),
        (change("receipt", "team", to=""), "bad_value", "team"),
        (change("receipt", "actions_sha256", to="2" * 63), "bad_value", "actions_sha256"),
        (change("receipt", "snapshot_sha256", to="A" * 64), "bad_value", "snapshot_sha256"),
        (change("receipt", "evaluator_version", to=1), "bad_value", "evaluator_version"),
        (change("receipt", "scored_at", to="2026-07-21"), "bad_value", "scored_at"),
        (change("receipt", "scored_at", to="2026-13-21T09:30:04.000005Z"), "bad_value", "scored_at"),
        (change("receipt", "summary", to=[]), "bad_value", "summary"),
        (change("receipt", "boards", to={}), "bad_value", "boards"),
        (change("receipt", "boards", to=[{"model": None}]), "bad_value", "boards"),
        (change("receipt", "method", to="\ud800"), "bad_value", "receipt"),
        (lambda envelope: envelope.update(note="not signed"), "unknown_key", "note"),
    ],
)
def test_a_missing_or_wrong_field_is_named(envelope: dict[str, Any], spoil: Spoil, code: str, column: str) -> None:
    spoil(envelope)
    with pytest.raises(receipts.ReceiptFieldsError) as raised:
        verify_receipt(json.dumps(envelope).encode(), KEY)
    assert raised.value.code == "invalid_receipt"
    assert [(problem.code, problem.column) for problem in raised.value.problems] == [(code, column)]


def test_all_faults_of_the_fields_are_listed(envelope: dict[str, Any]) -> None:
    del envelope["key_id"], envelope["receipt"]["team"]
    envelope["receipt"]["boards"] = None
    with pytest.raises(receipts.ReceiptFieldsError) as raised:
        verify_receipt(dump_json(envelope).encode(), KEY)
    assert {(problem.code, problem.column, problem.count) for problem in raised.value.problems} == {
        ("missing_key", "key_id", 2),
        ("missing_key", "team", 2),
        ("bad_value", "boards", 1),
    }


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'"text"',
        b"{} {}",
        b"\xff\xfe{",
        b'{"receipt": {"area": NaN}}',
        b'{"receipt": {"area": 1e999}}',
        b'{"key_id": "a", "key_id": "b"}',
        b'{"a":' * 2000,
    ],
)
def test_what_is_no_json_object(content: bytes) -> None:
    with pytest.raises(receipts.UnreadableReceiptError) as raised:
        verify_receipt(content, KEY)
    assert raised.value.code == "unreadable_receipt"


def test_a_key_is_taken_in_every_form(envelope: dict[str, Any]) -> None:
    public = PRIVATE_KEY.public_key()
    listed = [{"public_key": encode_key(key)} for key in (OTHER_KEY.public_key(), public)]
    forms = (
        PUBLIC_HEX,
        PUBLIC_HEX.upper() + "\n",
        encode_key(public),
        f"\n {encode_key(public)} \n",
        write_pem(public),
        write_pem(public).replace("\n", "\r\n"),
        json.dumps({"items": listed, "next_cursor": None}),
    )
    content = dump_json(envelope).encode()
    for form in forms:
        assert verify_receipt(content, form.encode()).key_id == envelope["key_id"]
    assert verify_receipt(content, b"\xef\xbb\xbf" + KEY).key_id == envelope["key_id"]


def test_pem_is_that_of_the_standard() -> None:
    """RFC 8410: the twelve bytes of the algorithm's name, then the key."""
    body = write_pem(PRIVATE_KEY.public_key()).splitlines()[1]
    assert base64.b64decode(body).hex() == "302a300506032b6570032100" + PUBLIC_HEX


EC_KEY = generate_private_key(SECP256R1()).public_key()


@pytest.mark.parametrize(
    ("key", "words"),
    [
        (b"", "has 32 bytes; the text has 0"),
        (b"nonsense!", "is no key"),
        (b"ab" * 31, "is no key"),
        (b"ab" * 30, "has 32 bytes; the text has 45"),
        (base64.b64encode(bytes(33)), "has 32 bytes; the text has 33"),
        (b"\xff\x00", "not text"),
        (b"{}", "no list of keys"),
        (b'{"items": []}', "no list of keys"),
        (b'{"items": [{"key_id": "x"}]}', "without `public_key`"),
        (b'{"items": ["x"]}', "without `public_key`"),
        (b'{"items": ', "cannot be read as JSON"),
        (b"-----BEGIN PUBLIC KEY-----\nMCow\n-----END PUBLIC KEY-----\n", "no public key"),
        (EC_KEY.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), "another kind"),
        (PRIVATE_KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), "private key"),
    ],
)
def test_what_is_no_key(envelope: dict[str, Any], key: bytes, words: str) -> None:
    with pytest.raises(ReceiptKeyError, match=words) as raised:
        verify_receipt(dump_json(envelope).encode(), key)
    assert raised.value.code == "invalid_receipt_key"
    assert isinstance(raised.value, ContentError)


def test_the_list_of_keys_keeps_its_order() -> None:
    keys = [OTHER_KEY.public_key(), PRIVATE_KEY.public_key()]
    text = json.dumps({"items": [{"public_key": encode_key(key)} for key in keys]})
    assert [key_id(key) for key in read_public_keys(text.encode())] == [key_id(key) for key in keys]


@pytest.mark.parametrize("lost", ["snapshot", "boards", "summary", "actions_sha256"])
def test_a_score_without_a_key_is_our_bug(lost: str) -> None:
    score = {key: value for key, value in SCORE.items() if key != lost}
    with pytest.raises(ValueError, match=f"'{lost}' is missing"):
        build_receipt(
            score,
            submission_id="x",
            team="t",
            method="m",
            scored_at=SCORED_AT,
            evaluator_version="1",
            server="s",
        )
