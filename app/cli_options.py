"""Arguments and options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from app.cli_output import Format, remember_format
from app.evaluator.strategies import Strategy

SPLIT_NAMES = ("all", "train", "validation", "test")

SnapshotPath = Annotated[
    Path, typer.Argument(metavar="PATH", help="A snapshot: its folder, or a zip of it.", show_default=False)
]
ActionsPath = Annotated[
    Path,
    typer.Argument(
        metavar="ACTIONS",
        help="An action file: CSV, JSON Lines or Parquet, CSV also as .gz or .zst.",
        show_default=False,
    ),
]
StrategyOption = Annotated[
    Strategy, typer.Option("--strategy", help="The strategy the actions follow.", show_default=False)
]
SplitOption = Annotated[
    str,
    typer.Option(
        "--split",
        metavar="|".join(SPLIT_NAMES),
        help="The questions to take.",
        autocompletion=lambda: list(SPLIT_NAMES),
    ),
]
AnonymousOption = Annotated[
    str | None,
    typer.Option(
        "--anonymous-until", metavar="DATE", help="Hide your team until this date, in UTC.", show_default=False
    ),
]
TeamOption = Annotated[
    str | None, typer.Option("--team", metavar="NAME", help="The team it belongs to.", show_default="yours")
]
FormatOption = Annotated[
    Format, typer.Option("--format", help="How to print the result.", callback=remember_format, is_eager=True)
]
BootstrapOption = Annotated[
    int,
    typer.Option(
        "--bootstrap",
        metavar="N",
        min=0,
        max=100_000,
        help="Add 95 % intervals from so many bootstrap replicates; 0 adds none.",
    ),
]
