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


@worker_app.command("probe")
def worker_probe(
    model: Annotated[
        str | None, typer.Option("--model", help="Measure this model only; all if not given.", show_default=False)
    ] = None,
    server: Annotated[
        str | None,
        typer.Option(
            "--server",
            metavar="URL",
            help="Generate on an OpenAI-compatible server that takes token ids, not here.",
            show_default=False,
        ),
    ] = None,
    served_model: Annotated[
        str | None,
        typer.Option(
            "--served-model", help="The server's name for the model, if it serves several.", show_default=False
        ),
    ] = None,
    until_idle: Annotated[bool, typer.Option("--until-idle", help="Stop when no question is left.")] = False,
) -> None:
    """Measure the questions of running probe runs, until stopped; a killed worker loses the one in hand at most."""
    import os

    from app.config import load_config
    from app.log import configure_logging
    from worker.equipment import API_KEY_VARIABLE, local_equipment, server_equipment
    from worker.measuring import run_probe_worker

    if server is not None and model is None:
        raise typer.BadParameter("a server serves what it has loaded: name the runs' model", param_hint="--model")
    config = load_config()
    configure_logging(config.log_level)
    if server is None:
        equipment = local_equipment()
    else:
        equipment = server_equipment(server, served_model=served_model, api_key=os.environ.get(API_KEY_VARIABLE))
    run_probe_worker(config, equipment=equipment, model=model, until_idle=until_idle)


@worker_app.command("audit-boundaries")
def audit_boundaries(
    tokenizer: Annotated[
        Path,
        typer.Argument(metavar="TOKENIZER", help="A tokenizer.json, or the folder it is in.", show_default=False),
    ],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Count the tokens that end a block, those whose own text holds a double newline, by category."""
    from app.files.boundary_audits import find_boundary_audit
    from worker.tokenizers import load_tokenizer

    boundaries = load_tokenizer(tokenizer).find_boundaries()
    document = {
        "tokenizer": str(tokenizer),
        "vocabulary": boundaries.n_vocabulary,
        "boundary_tokens": int(boundaries.ids.size),
        "categories": boundaries.count_categories(),
        "ids_sha256": boundaries.digest(),
        "known_as": known.name if (known := find_boundary_audit(boundaries.digest())) else None,
    }
    print_result(document, output_format, rows=lambda: _list_categories(document))


def _list_categories(document: dict[str, Any]) -> Rows:
    counts = [*document["categories"].items(), ("all", document["boundary_tokens"])]
    known = f", those of {document['known_as']}" if document["known_as"] else ""
    title = f"boundary tokens among {document['vocabulary']} ids{known}"
    return Rows(("category", "boundary_tokens"), counts, title=title)
