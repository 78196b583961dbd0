"""What becomes of finished probe runs: `otboard probe-run assemble` and `otboard probe-run regrade`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from app.cli_options import FormatOption
from app.cli_output import Format, Rows, print_result, show_progress

RunNames = Annotated[list[str], typer.Argument(metavar="RUN...", help="Finished probe runs.", show_default=False)]


def assemble(
    runs: RunNames,
    name: Annotated[
        str | None, typer.Option("--name", help="The new snapshot's name.", show_default="the run's, if it is one")
    ] = None,
    with_snapshot: Annotated[
        str | None,
        typer.Option(
            "--with",
            metavar="SNAPSHOT",
            help="A snapshot of the same protocol, whose place the new one takes.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Its heading.", show_default="the run's")] = None,
    description: Annotated[str | None, typer.Option(help="What it says of itself.", show_default=False)] = None,
    license: Annotated[str | None, typer.Option(help="The license of the measurements.", show_default=False)] = None,
    source: Annotated[str | None, typer.Option(help="Where they are from.", show_default=False)] = None,
    hide: Annotated[
        list[str] | None,
        typer.Option("--hide", metavar="SPLIT", help="A split whose labels stay hidden.", show_default=False),
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option(
            "--leave-out",
            metavar="COLUMN",
            help="An optional column to leave out, such as prompt, token_ids or probe_answers.",
            show_default=False,
        ),
    ] = None,
    freeze: Annotated[bool, typer.Option("--freeze", help="Make it unchangeable at once.")] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Make a snapshot of finished probe runs, or of runs and a snapshot, all of one protocol."""
    from app.cli_database import describe_snapshot, open_session
    from app.cli_probe_runs import name_actor
    from app.services.assembling import Assembly, assemble_runs
    from app.services.snapshots import freeze_snapshot

    if name is None and len(runs) > 1:
        raise typer.BadParameter("several runs need a name for their snapshot", param_hint="--name")
    assembly = Assembly(
        name=name or runs[0],
        title=title,
        description=description,
        license=license,
        source=source,
        hidden_splits=tuple(hide or ()),
        left_out=tuple(leave_out or ()),
    )
    with open_session() as session:
        stored = assemble_runs(session, runs, assembly=assembly, actor=name_actor(), with_snapshot=with_snapshot)
        if freeze:
            stored = freeze_snapshot(session, stored.name)
        document = describe_snapshot(session, stored)
        document["supersedes"] = [entry["name"] for entry in stored.manifest.get("supersedes") or []]
    _print_fields(document, output_format)


def regrade(
    run: Annotated[str, typer.Argument(metavar="RUN", help="A finished probe run.", show_default=False)],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change, and change nothing.")] = False,
    processes: Annotated[
        int | None, typer.Option(min=1, help="How many answers to grade at once.", show_default="one a core, at most 8")
    ] = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Grade a run's stored answers again with this version's grader; nothing is generated."""
    from dataclasses import asdict

    from app.cli_database import open_session
    from app.cli_probe_runs import name_actor
    from app.services.regrading import compare_grades, regrade_run
    from worker.grading import GRADER_VERSION, open_grader

    with open_session() as session, open_grader(processes=processes) as grader, show_progress("grading") as report:

        def tell(done: int, total: int) -> None:
            report(f"graded {done} of {total} questions", done / total)

        if dry_run:
            found = compare_grades(session, run, grader.grade, progress=tell)
        else:
            found = regrade_run(
                session, run, grader.grade, grader_version=GRADER_VERSION, actor=name_actor(), progress=tell
            )
    document = {**asdict(found), "n_changes": found.n_changes, "grader_version": GRADER_VERSION, "written": not dry_run}
    if output_format is Format.JSON:
        print_result(document, output_format, rows=lambda: Rows((), ()))
        return
    examples: list[dict[str, Any]] = document.pop("examples")
    _print_fields(document, output_format)
    if examples and output_format is Format.TABLE:
        rows = Rows(tuple(examples[0]), [tuple(one.values()) for one in examples], title="The first places that change")
        print_result(document, output_format, rows=lambda: rows)


def _print_fields(document: dict[str, Any], output_format: Format) -> None:
    from app.cli_tables import list_fields

    print_result(document, output_format, rows=lambda: list_fields(document))
