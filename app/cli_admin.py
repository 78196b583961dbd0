"""The commands `otboard admin …`: what organisers and operators do on the machine itself."""

from __future__ import annotations

import typer

from app.cli_rescore import rescore_app

admin_app = typer.Typer(no_args_is_help=True, help="Organise and operate this server.")
admin_app.add_typer(rescore_app, name="rescore")
