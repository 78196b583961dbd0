"""The commands `otboard worker …`: processes that work off jobs, and the audit of a tokenizer for a measurement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli_options import FormatOption
from app.cli_output import Format, Rows, print_result

worker_app = typer.Typer(no_args_is_help=True, help="Processes that work off the jobs of a database.")


@worker_app.command("score")
def worker_score(
    concurrency: Annotated[int, typer.Option(min=1, help="How many submissions to score at once.")] = 1,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when no job is left.")] = False,
) -> None:
    """Score the submissions that wait in the database, until stopped."""
    from app.config import load_config
    from app.log import configure_logging
    from worker.main import run_scoring_worker

    config = load_config()
    configure_logging(config.log_level)
    run_scoring_worker(config, concurrency=concurrency, until_idle=until_idle)


@worker_app.command("audit-boundaries")
def audit_boundaries(
    tokenizer: Annotated[
        Path,
        typer.Argument(metavar="TOKENIZER", help="A tokenizer.json, or the folder it is in.", show_default=False),
    ],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Count the tokens that end a block, those whose own text holds a double newline, by category."""
    from worker.tokenizers import load_tokenizer

    boundaries = load_tokenizer(tokenizer).find_boundaries()
    document = {
        "tokenizer": str(tokenizer),
        "vocabulary": boundaries.n_vocabulary,
        "boundary_tokens": int(boundaries.ids.size),
        "categories": boundaries.count_categories(),
        "ids_sha256": boundaries.digest(),
    }
    print_result(document, output_format, rows=lambda: _list_categories(document))


def _list_categories(document: dict[str, Any]) -> Rows:
    counts = [*document["categories"].items(), ("all", document["boundary_tokens"])]
    return Rows(("category", "boundary_tokens"), counts, title=f"{document['vocabulary']} ids")
