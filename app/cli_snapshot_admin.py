"""The commands `otboard snapshot hide` and `remove`: what is done with a stored snapshot before it is frozen."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli_options import FormatOption
from app.cli_output import Format, Rows, print_result

SnapshotName = Annotated[str, typer.Argument(metavar="NAME", help="The snapshot's name.", show_default=False)]


def hide_splits(
    name: SnapshotName,
    splits: Annotated[
        list[str] | None, typer.Argument(metavar="[SPLIT]...", help="Splits to hide; none if not given.")
    ] = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Say which splits' labels are hidden, before the snapshot is frozen; its hash changes."""
    from app.cli_database import describe_snapshot, open_session
    from app.services.audit import COMMAND_LINE
    from app.services.snapshot_admin import set_hidden_splits

    with open_session() as session:
        document = describe_snapshot(session, set_hidden_splits(session, name, splits or (), actor=COMMAND_LINE))
    _print(document, output_format)


def remove(name: SnapshotName, output_format: FormatOption = Format.TABLE) -> None:
    """Remove a snapshot of the database that is not frozen."""
    from app.cli_database import describe_snapshot, open_session
    from app.services.audit import COMMAND_LINE
    from app.services.snapshot_admin import remove_snapshot
    from app.services.snapshots import get_snapshot

    with open_session() as session:
        document = describe_snapshot(session, get_snapshot(session, name))
        remove_snapshot(session, name, actor=COMMAND_LINE)
    _print(document, output_format)


def _print(document: dict[str, Any], output_format: Format) -> None:
    def list_fields() -> Rows:
        shown = [(key, ", ".join(value) if isinstance(value, list) else value) for key, value in document.items()]
        return Rows(("field", "value"), shown, align_numbers=False)

    print_result(document, output_format, rows=list_fields)
