"""The commands `otboard admin rescore …`: new scores by a new scorer version, previewed and then applied as a whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli_options import FormatOption
from app.cli_output import Format, Rows, print_result, write_times
from app.evaluator.strategies import Strategy

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from app.services.rescoring import RescoringStatus
    from app.services.rescoring_preview import Preview, RowChange

rescore_app = typer.Typer(no_args_is_help=True, help="Score boards again after an upgrade that changed the scorer.")

Number = Annotated[int, typer.Argument(metavar="NUMBER", min=1, help="The re-scoring's number.", show_default=False)]
SplitFilter = Annotated[str | None, typer.Option("--split", help="Boards of this split only.", show_default=False)]
StrategyFilter = Annotated[
    Strategy | None, typer.Option("--strategy", help="Boards of this strategy only.", show_default=False)
]
PREVIEW_COLUMNS = (
    "method",
    "team",
    "old_rank",
    "new_rank",
    "old_realised_potential",
    "new_realised_potential",
    "old_area",
    "new_area",
    "changed",
)


@rescore_app.command("start")
def start(
    snapshot: Annotated[str, typer.Argument(metavar="SNAPSHOT", help="The snapshot's name.", show_default=False)],
    split: SplitFilter = None,
    strategy: StrategyFilter = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Queue new scores, by this program's scorer, of what stands on boards that show another version."""
    from app.services import rescoring

    _act(
        lambda session: rescoring.start_rescoring(
            session, snapshot_name=snapshot, split=split, strategy=strategy, actor=_name_actor()
        ),
        output_format,
    )


@rescore_app.command("status")
def status(
    number: Annotated[
        int | None,
        typer.Argument(metavar="[NUMBER]", min=1, help="A re-scoring; all if not given.", show_default=False),
    ] = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Tell how far a re-scoring is, or list all of them and the boards that show an older version."""
    from app.cli_database import open_session
    from app.services import rescoring

    if number is not None:
        _act(lambda session: rescoring.get_rescoring(session, number), output_format)
        return
    with open_session() as session:
        found = rescoring.list_rescorings(session)
        outdated = rescoring.list_outdated_boards(session)
    document = {
        "rescorings": [asdict(one) for one in found],
        "outdated_boards": [{"snapshot": name, **asdict(board)} for name, board in outdated],
    }
    print_result(write_times(document), output_format, rows=lambda: _list_rows(found))


@rescore_app.command("preview")
def preview(
    number: Number,
    split: SplitFilter = None,
    strategy: StrategyFilter = None,
    model: Annotated[str | None, typer.Option(help="The board of this model.", show_default=False)] = None,
    benchmark: Annotated[str | None, typer.Option(help="The board of this benchmark.", show_default=False)] = None,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Show one board by the old version and by the new one; as JSON also the counts and largest changes of all."""
    from app.cli_database import open_session
    from app.services.rescoring_preview import preview_rescoring

    with open_session() as session:
        found = preview_rescoring(session, number, split=split, strategy=strategy, model=model, benchmark=benchmark)
    print_result(write_times(_describe_preview(found)), output_format, rows=lambda: _preview_rows(found))


@rescore_app.command("apply")
def apply(
    number: Number,
    leave_out_failed: Annotated[
        bool, typer.Option("--leave-out-failed", help="Also where some submissions could not be scored.")
    ] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Let all boards of a re-scoring show the new version, at once."""
    from app.services import rescoring

    _act(
        lambda session: rescoring.apply_rescoring(
            session, number, leave_out_failed=leave_out_failed, actor=_name_actor()
        ),
        output_format,
    )


@rescore_app.command("retry")
def retry(number: Number, output_format: FormatOption = Format.TABLE) -> None:
    """Queue the submissions again that could not be scored."""
    from app.services import rescoring

    _act(lambda session: rescoring.retry_rescoring(session, number, actor=_name_actor()), output_format)


@rescore_app.command("cancel")
def cancel(number: Number, output_format: FormatOption = Format.TABLE) -> None:
    """Leave the boards as they are; scores that were made are kept."""
    from app.services import rescoring

    _act(lambda session: rescoring.cancel_rescoring(session, number, actor=_name_actor()), output_format)


def _act(act: Callable[[Session], RescoringStatus], output_format: Format) -> None:
    from app.cli_database import open_session

    with open_session() as session:
        found = act(session)
    print_result(write_times(asdict(found)), output_format, rows=lambda: _list_rows((found,)))


def _name_actor() -> str:
    from app.services.audit import COMMAND_LINE

    return COMMAND_LINE


def _list_rows(found: tuple[RescoringStatus, ...]) -> Rows:
    columns = ("number", "snapshot", "to_version", "state", "submissions", "waiting", "done", "failed", "boards")
    rows = [
        (
            one.id,
            one.snapshot,
            one.to_version,
            one.state,
            one.n_submissions,
            one.n_waiting + one.n_scoring,
            one.n_done,
            one.n_failed,
            ", ".join(f"{board.split} {board.strategy}" for board in one.boards),
        )
        for one in found
    ]
    return Rows(columns, rows)


def _describe_preview(found: Preview) -> dict[str, Any]:
    board = found.board
    return {
        "rescoring": asdict(found.rescoring),
        "targets": [asdict(target) for target in found.targets],
        "largest": [asdict(change) for change in found.largest],
        "board": {
            "split": board.split,
            "strategy": board.strategy,
            "model": board.model,
            "benchmark": board.benchmark,
            "n_ranks_changed": board.n_ranks_changed,
            "n_figures_changed": board.n_figures_changed,
            "rows": [dict(zip(PREVIEW_COLUMNS, _preview_row(row), strict=True)) for row in board.rows],
        },
    }


def _preview_rows(found: Preview) -> Rows:
    return Rows(PREVIEW_COLUMNS, [_preview_row(row) for row in found.board.rows])


def _preview_row(row: RowChange) -> tuple[object, ...]:
    old, new = row.old, row.new
    return (
        row.shown.method,
        row.shown.team,
        None if old is None else old.rank,
        None if new is None else new.rank,
        None if old is None else old.realised_potential,
        None if new is None else new.realised_potential,
        None if old is None else old.area,
        None if new is None else new.area,
        ", ".join(row.changed),
    )
