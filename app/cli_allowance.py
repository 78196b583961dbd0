"""The command that asks a server how much a team may still submit."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Annotated

import typer

from app.cli_options import FormatOption
from app.cli_output import Format, Rows, print_result, write_times


def allowance(
    server: Annotated[str, typer.Option(metavar="URL", help="The server's address.", show_default=False)],
    snapshot: Annotated[str, typer.Option(metavar="NAME", help="The snapshot's name there.", show_default=False)],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Print how much your team may still submit on a snapshot; the token is taken from OTBOARD_TOKEN."""
    from app.client import Client

    token = os.environ.get("OTBOARD_TOKEN")
    if not token:
        raise typer.BadParameter("set it to the token of your account", param_hint="the variable OTBOARD_TOKEN")
    with Client(server, token) as client:
        document = write_times(asdict(client.get_allowance(snapshot)))
    meters = [(name, meter) for name, meter in document.items() if isinstance(meter, dict)]
    columns = ("limit", "used", "left", "next_at")
    rows = [(name, *(meter[column] for column in columns)) for name, meter in meters]
    print_result(document, output_format, rows=lambda: Rows(("allowance", *columns), rows))
