"""The command `otboard`. What is heavy, and what needs a server or database, is imported inside its command."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from app.cli_admin import admin_app
from app.cli_allowance import allowance
from app.cli_options import (
    ActionsPath,
    AnonymousOption,
    BootstrapOption,
    FormatOption,
    SnapshotPath,
    SplitOption,
    StrategyOption,
    TeamOption,
)
from app.cli_output import (
    Format,
    chosen_format,
    print_notes,
    print_result,
    print_warnings,
    report_error,
    show_progress,
)
from app.cli_probe_runs import probe_run_app
from app.cli_receipt import receipt_app
from app.cli_snapshot_admin import hide_splits, remove
from app.cli_worker import worker_app
from app.errors import AppError, ContentError
from app.evaluator.strategies import Strategy

if TYPE_CHECKING:
    from app.files.snapshot import Snapshot

# What shells give a command that Ctrl-C ended; 1 would say that the input has problems.
INTERRUPTED_STATUS = 130
DEFAULT_PORT = 8000
DEFAULT_SEED = 20260721
BASELINES = ("oracle", "uninformed", "random")


class Commands(TyperGroup):
    """The root command: errors that a person can act on become a message and an exit status."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except AppError as error:
            raise typer.Exit(report_error(error, chosen_format(ctx))) from error
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(INTERRUPTED_STATUS) from interrupt


app = typer.Typer(
    name="otboard",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="The leaderboard of methods that decide when a reasoning model stops thinking.",
    epilog="Exit status: 0 done; 1 the input has problems, which are listed; 2 wrong usage; "
    "3 the server or database could not be reached.",
)
snapshot_app = typer.Typer(no_args_is_help=True, help="Verify, import, export, list and freeze snapshots.")
snapshot_app.command("hide")(hide_splits)
snapshot_app.command("remove")(remove)
app.add_typer(snapshot_app, name="snapshot")
app.add_typer(worker_app, name="worker")
app.add_typer(probe_run_app, name="probe-run")
app.add_typer(receipt_app, name="receipt")
app.add_typer(admin_app, name="admin")
app.command()(allowance)


def main() -> None:
    """Run the command line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a table holds letters that a locale may lack
    app()


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"otboard {version('otboard')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


@app.command()
def serve(
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = DEFAULT_PORT,
    demo: Annotated[
        bool, typer.Option("--demo", help="Fill the board with a synthetic snapshot and baselines.")
    ] = False,
) -> None:
    """Start everything on one machine: database, migrations, scoring, web pages and REST."""
    from app.config import load_config
    from app.main import serve as serve_all

    serve_all(load_config(), host=host, port=port, demo=demo)


@snapshot_app.command("verify")
def snapshot_verify(path: SnapshotPath, output_format: FormatOption = Format.TABLE) -> None:
    """Check a snapshot and list every fault; needs no database."""
    _print_snapshot(_read(path), output_format)


@snapshot_app.command("import")
def snapshot_import(path: SnapshotPath, output_format: FormatOption = Format.TABLE) -> None:
    """Check a snapshot and store it in the database: all of it, or nothing."""
    from app.cli_database import describe_snapshot, open_session
    from app.services.snapshots import import_snapshot

    snapshot = _read(path)
    with open_session() as session, show_progress(f"importing {path.name}") as report:
        stored = import_snapshot(
            session, snapshot, progress=lambda what, done, total: report(what, done / max(total, 1))
        )
        document = describe_snapshot(session, stored)
    _print_fields(document, output_format)


@snapshot_app.command("export")
def snapshot_export(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The snapshot's name.", show_default=False)],
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The new folder, or the new file ending in .zip.", show_default=False)
    ],
    public: Annotated[bool, typer.Option("--public", help="Leave the labels of hidden splits out.")] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Write a snapshot of the database to a new folder or zip."""
    from app.cli_database import open_session
    from app.files.snapshot import make_public, write_snapshot
    from app.services.snapshots import export_snapshot

    with open_session() as session:
        snapshot = export_snapshot(session, name)
    chosen = make_public(snapshot) if public else snapshot
    write_snapshot(chosen, path)
    _print_snapshot(chosen, output_format)


@snapshot_app.command("list")
def snapshot_list(output_format: FormatOption = Format.TABLE) -> None:
    """List the snapshots of the database."""
    from app.cli_database import describe_snapshot, open_session
    from app.cli_tables import list_snapshots
    from app.services import snapshots

    with open_session() as session:
        documents = [describe_snapshot(session, stored) for stored in snapshots.list_snapshots(session)]
    print_result(documents, output_format, rows=lambda: list_snapshots(documents))


@snapshot_app.command("freeze")
def snapshot_freeze(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The snapshot's name.", show_default=False)],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Make a snapshot of the database unchangeable, so that submissions can be scored on it."""
    from app.cli_database import describe_snapshot, open_session
    from app.services.audit import COMMAND_LINE
    from app.services.snapshot_admin import freeze_for_good

    with open_session() as session:
        document = describe_snapshot(session, freeze_for_good(session, name, actor=COMMAND_LINE))
    _print_fields(document, output_format)


@app.command()
def synthesize(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="The new folder, or the new file ending in .zip.", show_default=False)
    ],
    scale: Annotated[float, typer.Option(help="Size against the published benchmark; 0.1 is a tenth of it.")] = 1.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same bytes.")] = DEFAULT_SEED,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Write a synthetic snapshot matched to published tables. Its figures are no results of any model."""
    from app.files.synthetic import synthesize as write_synthetic

    with show_progress("drawing") as report:
        snapshot = write_synthetic(
            path, scale=scale, seed=seed, progress=lambda what, done, total: report(what, done / max(total, 1))
        )
    _print_snapshot(snapshot, output_format)


@app.command()
def overthinking(
    path: SnapshotPath,
    split: SplitOption = "all",
    bootstrap: BootstrapOption = 0,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Print overthinking ratio, accuracy degradation, accuracies and tokens of every cell and over all."""
    from app.cli_tables import list_overthinking
    from app.evaluator.overthinking import summarise_overthinking
    from app.files.documents import overthinking_document
    from app.files.snapshot import load_measurements, require_labels

    measurements = load_measurements(_read(path), split)
    require_labels(measurements)
    document = overthinking_document(summarise_overthinking(measurements), measurements)
    if bootstrap:
        from app.cli_bootstrap import find_intervals
        from app.files.interval_documents import add_overthinking_intervals

        document = add_overthinking_intervals(document, find_intervals(measurements, bootstrap))
    print_result(document, output_format, rows=lambda: list_overthinking(document))


@app.command()
def frontier(
    path: SnapshotPath,
    strategy: Annotated[Strategy | None, typer.Option(help="Only this strategy.", show_default="all")] = None,
    split: SplitOption = "all",
    model: Annotated[str | None, typer.Option(help="Only this model.", show_default="all")] = None,
    benchmark: Annotated[str | None, typer.Option(help="Only this benchmark.", show_default="all")] = None,
    grid: Annotated[
        int | None,
        typer.Option(
            min=1, max=100_000, help="Print accuracies at the relative budgets 0, 1/N … 1.", show_default=False
        ),
    ] = None,
    bootstrap: BootstrapOption = 0,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Print the exact frontiers: every point as JSON or CSV, a summary as a table; accuracies on a grid with --grid."""
    from app import cli_tables
    from app.cli_scoring import select_cells, solve_references
    from app.files.documents import DEFAULT_GRID_INTERVALS, frontier_document
    from app.files.snapshot import load_measurements, require_labels

    measurements = load_measurements(_read(path), split)
    cells = select_cells(measurements, model=model, benchmark=benchmark)
    require_labels(measurements)
    references = solve_references(cells, [strategy] if strategy else list(Strategy))
    document = frontier_document(references, measurements, grid_intervals=grid or DEFAULT_GRID_INTERVALS)
    if bootstrap:
        from app.cli_bootstrap import find_intervals
        from app.files.interval_documents import add_frontier_intervals

        intervals = find_intervals(measurements, bootstrap, references)
        document = add_frontier_intervals(document, intervals, model=model, benchmark=benchmark)
    is_table = output_format is Format.TABLE
    if grid is None:
        list_rows = cli_tables.list_frontiers if is_table else cli_tables.list_frontier_points
    else:
        list_rows = cli_tables.tabulate_frontier_grid if is_table else cli_tables.list_frontier_grid
    print_result(document, output_format, rows=lambda: list_rows(document))


@app.command()
def check(
    path: SnapshotPath,
    actions: ActionsPath,
    strategy: StrategyOption,
    split: SplitOption = "all",
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Check an action file as the server would, and list every problem; works on hidden splits too."""
    from app.cli_scoring import read_action_file
    from app.files.documents import check_document

    snapshot = _read(path)
    checked = read_action_file(snapshot, actions, strategy=strategy, split=split)
    document = check_document(checked.file, checked.measurements)
    if output_format is not Format.JSON:
        print_warnings(checked.file.warnings)
    _print_fields(document, output_format)


@app.command()
def score(
    path: SnapshotPath,
    actions: ActionsPath,
    strategy: StrategyOption,
    split: SplitOption = "all",
    rows: Annotated[str, typer.Option(metavar="boards|settings|cells", help="What a table or CSV lists.")] = "boards",
    bootstrap: BootstrapOption = 0,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Score an action file against the exact frontiers of its strategy."""
    from app.cli_scoring import read_action_file, solve_references
    from app.evaluator.scoring import score_actions
    from app.files.documents import score_document
    from app.files.snapshot import load_measurements, require_labels

    _check_rows(rows)
    snapshot = _read(path)
    require_labels(load_measurements(snapshot, split))
    checked = read_action_file(snapshot, actions, strategy=strategy, split=split)
    references = solve_references(checked.measurements.cells, [strategy])
    scored = score_actions(checked.measurements, checked.file.table, references)
    intervals = None
    if bootstrap:
        from app.cli_bootstrap import bootstrap_file

        intervals = bootstrap_file(checked, scored, n_replicates=bootstrap)
    document = score_document(
        scored, actions_sha256=checked.file.sha256, warnings=checked.file.warnings, intervals=intervals
    )
    if output_format is not Format.JSON:
        print_warnings(checked.file.warnings)
    _print_score(document, output_format, rows=rows)


@app.command()
def baseline(
    path: SnapshotPath,
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="oracle, uninformed, random, or an example method of the strategy.",
            autocompletion=lambda: list(BASELINES),
            show_default=False,
        ),
    ],
    strategy: StrategyOption,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="ACTIONS",
            help="The file to write; its suffix says the format.",
            show_default=False,
        ),
    ],
    split: SplitOption = "all",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the random control.")] = DEFAULT_SEED,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Write a baseline's action file."""
    from app.cli_scoring import build_action_table, require_free
    from app.files.actions import write_actions
    from app.files.snapshot import hash_file, load_measurements

    require_free(output, force=force)
    snapshot = _read(path)
    measurements = load_measurements(snapshot, split)
    with show_progress(f"building {name}"):
        table = build_action_table(snapshot, name, strategy=strategy, split=split, seed=seed)
        write_actions(output, table, measurements)
    document = {
        "snapshot": measurements.snapshot,
        "snapshot_sha256": measurements.sha256,
        "kind": measurements.kind,
        "split": split,
        "strategy": str(strategy),
        "baseline": name,
        "n_settings": len(table.settings),
        "actions": str(output),
        "actions_sha256": hash_file(output),
    }
    _print_fields(document, output_format)


@app.command()
def analyse(
    path: SnapshotPath,
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="REPORT",
            help="The report's name; REPORT.json and REPORT.html are written.",
            show_default=False,
        ),
    ],
    split: SplitOption = "all",
    bootstrap: BootstrapOption = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace the files if they are there.")] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Run every analysis, and write it as one JSON document and one HTML page that needs no other file."""
    from app.cli_analyse import write_report

    _print_fields(write_report(_read(path), output, split=split, n_replicates=bootstrap, force=force), output_format)


@app.command()
def efficiency(
    accuracy: Annotated[float, typer.Option(min=0, max=1, help="The method's accuracy.", show_default=False)],
    tokens: Annotated[float, typer.Option(min=0, help="The method's mean tokens.", show_default=False)],
    base_accuracy: Annotated[float, typer.Option(min=0, max=1, help="Full thinking's accuracy.", show_default=False)],
    base_tokens: Annotated[float, typer.Option(min=0, help="Full thinking's mean tokens.", show_default=False)],
    rho: Annotated[float, typer.Option(help="The exponent of E3's power mean.")] = -1.0,
    weight: Annotated[float | None, typer.Option(help="E3's weight of accuracy, A0 if not given.")] = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Print the efficiency scores E3 and AES of one operating point against full thinking."""
    from app.cli_efficiency import measure_point

    base = {"base_accuracy": base_accuracy, "base_tokens": base_tokens}
    document = measure_point(accuracy, tokens, **base, rho=rho, weight=weight)
    _print_fields(document, output_format)


@app.command()
def submit(
    actions: ActionsPath,
    server: Annotated[str, typer.Option(metavar="URL", help="The server's address.", show_default=False)],
    snapshot: Annotated[str, typer.Option(metavar="NAME", help="The snapshot's name there.", show_default=False)],
    strategy: StrategyOption,
    method: Annotated[str, typer.Option(metavar="NAME", help="The method the file is of.", show_default=False)],
    split: SplitOption = "all",
    description: Annotated[str | None, typer.Option(help="What the method does.", show_default=False)] = None,
    version: Annotated[str | None, typer.Option(help="The method's version.", show_default=False)] = None,
    paper: Annotated[str | None, typer.Option(metavar="URL", help="Of the method's paper.", show_default=False)] = None,
    code: Annotated[str | None, typer.Option(metavar="URL", help="Of the method's code.", show_default=False)] = None,
    hardware: Annotated[str | None, typer.Option(help="What the method ran on.", show_default=False)] = None,
    anonymous_until: AnonymousOption = None,
    team: TeamOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Have the server check the file; store nothing.")] = False,
    wait: Annotated[bool, typer.Option(help="Wait for the score, or print the submission at once.")] = True,
    rows: Annotated[str, typer.Option(metavar="boards|settings|cells", help="What a table or CSV lists.")] = "boards",
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Upload an action file, wait until it is scored, and print the score; the token is taken from OTBOARD_TOKEN."""
    from app.cli_submit import check_actions, submit_actions

    _check_rows(rows)
    if not server.startswith(("http://", "https://")):
        raise typer.BadParameter("the address begins with http:// or https://", param_hint="--server")
    # Not an option: what stands on a command line can be read by every user of the machine.
    token = os.environ.get("OTBOARD_TOKEN")
    if not token:
        raise typer.BadParameter("set it to the token of your account", param_hint="the variable OTBOARD_TOKEN")
    if not actions.is_file():
        raise UnreadableFileError(f"there is no file {actions}")
    said = {"description": description, "version": version, "paper_url": paper, "code_url": code, "hardware": hardware}
    said |= {"anonymous_until": anonymous_until, "team": team}
    fields = {"snapshot": snapshot, "strategy": str(strategy), "split": split, "method": method}
    fields |= {name: value for name, value in said.items() if value}
    if dry_run:
        _print_fields(check_actions(actions, server=server, token=token, fields=fields), output_format)
        return
    document = submit_actions(actions, server=server, token=token, fields=fields, wait=wait)
    if wait:
        _print_score(document, output_format, rows=rows)
    else:
        _print_fields(document, output_format)


class UnreadableFileError(ContentError):
    """A file that was named cannot be read."""

    code = "unreadable_file"
    title = "The file cannot be read"


def _read(path: Path) -> Snapshot:
    from app.files.snapshot import read_snapshot

    with show_progress(f"reading {path.name}") as report:
        return read_snapshot(path, progress=lambda what, done, total: report(what, done / total))


def _print_snapshot(snapshot: Snapshot, output_format: Format) -> None:
    from app.files.documents import snapshot_document

    _print_fields(snapshot_document(snapshot), output_format)


def _print_fields(document: dict[str, Any], output_format: Format) -> None:
    from app.cli_tables import list_fields

    print_result(document, output_format, rows=lambda: list_fields(document))


def _check_rows(rows: str) -> None:
    if rows not in ("boards", "settings", "cells"):
        raise typer.BadParameter("use boards, settings or cells", param_hint="--rows")


def _print_score(document: dict[str, Any], output_format: Format, *, rows: str) -> None:
    from app.cli_tables import list_boards, list_setting_cells, list_settings

    list_rows = {"boards": list_boards, "settings": list_settings, "cells": list_setting_cells}[rows]
    if document["summary"] is None and output_format is not Format.JSON:
        print_notes("note: no setting covers some cell, so there is no figure of the whole snapshot")
    print_result(document, output_format, rows=lambda: list_rows(document))
