"""The commands `otboard receipt …`: checking a signed score without the server that signed it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from app.cli_options import FormatOption
from app.cli_output import Format, Rows, print_result
from app.errors import ContentError

if TYPE_CHECKING:
    from app.files.receipts import Receipt

receipt_app = typer.Typer(no_args_is_help=True, help="Signed scores.")

# A receipt of every board of the largest snapshot has some hundred kilobytes.
MAX_FILE_BYTES = 64 * 2**20
MAX_SHOWN_KEY = 100


class UnreadableFileError(ContentError):
    """A file that was named cannot be read."""

    code = "unreadable_file"
    title = "The file cannot be read"


@receipt_app.callback()
def _root() -> None:
    """Keep `verify` a command of its own, though it is the only one."""


@receipt_app.command("verify")
def receipt_verify(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A receipt, as the server answers it.", show_default=False)
    ],
    key: Annotated[
        str,
        typer.Option(
            "--key",
            metavar="KEY",
            help="The server's public key: a file (PEM, base64, hexadecimal or the server's list), or base64 text.",
            show_default=False,
        ),
    ],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Check offline that a server with this key signed a score, and that nothing in it was changed."""
    from app.files.receipts import verify_receipt

    receipt = verify_receipt(_read(file), _read_key(key))
    print_result(
        {"valid": True, "key_id": receipt.key_id, "receipt": receipt.document},
        output_format,
        rows=lambda: _list_receipt(receipt),
    )


def _read_key(text: str) -> bytes:
    """Return the file of this name, or else the text itself: a file's name is hardly ever base64 of 32 bytes."""
    from app.files.receipt_keys import ReceiptKeyError, read_public_keys

    if _is_file(text):
        return _read(Path(text))
    content = text.encode("utf-8", "surrogateescape")
    try:
        read_public_keys(content)
    except ReceiptKeyError as exc:
        raise ReceiptKeyError(f"There is no file {text[:MAX_SHOWN_KEY]!r}, and it is no key. {exc.detail}") from exc
    return content


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except OSError:  # too long for a name
        return False


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as opened:
            content = opened.read(MAX_FILE_BYTES + 1)
    except OSError as exc:
        raise UnreadableFileError(f"{path} cannot be read: {exc.strerror}") from exc
    if len(content) > MAX_FILE_BYTES:
        raise UnreadableFileError(f"{path} is larger than {MAX_FILE_BYTES // 2**20} MiB")
    return content


def _list_receipt(receipt: Receipt) -> Rows:
    """One row a field; of the figures those of the whole snapshot."""
    from app.cli_tables import list_fields

    fields = {"valid": True, "key_id": receipt.key_id, **receipt.document, "boards": len(receipt.boards)}
    if receipt.summary is not None:
        fields["summary"] = {key: item for key, item in receipt.summary.items() if key not in ("model", "benchmark")}
    return list_fields(fields)
