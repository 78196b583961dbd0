"""The board as JSON and CSV."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Header, Query, Response

from app.api.csv_answers import CSV_MEDIA_TYPE, csv_attachment, wants_csv
from app.api.documentation import errors
from app.api.schemas import BoardCurvesOut, LeaderboardOut
from app.evaluator.strategies import Strategy
from app.services.board_curves import format_curves, list_curves, list_keys
from app.services.board_lines import BoardKey
from app.services.board_views import SORTS, Baselines, RowChoice, choose_rows
from app.services.leaderboard import format_csv, get_leaderboard
from app.services.snapshots import get_snapshot
from app.web.security import ReaderDep, SessionDep

router = APIRouter(tags=["leaderboard"])

# A team that is anonymous is named to itself.
VARY = "Accept, Authorization, Cookie"


def read_choice(
    q: Annotated[str, Query(max_length=200, description="What the method's or the team's name contains.")] = "",
    verified: Annotated[bool, Query(description="Only rows that an organiser verified.")] = False,
    code: Annotated[bool, Query(description="Only rows with a link to their code.")] = False,
    baselines: Annotated[Baselines, Query(description="Controls and baselines.")] = Baselines.SHOWN,
    since: Annotated[date | None, Query(description="First day of publication, UTC.")] = None,
    until: Annotated[date | None, Query(description="Last day of publication, UTC.")] = None,
    sort: Annotated[Literal[SORTS], Query(description="With a minus the other way round.")] = "rank",  # type: ignore[valid-type]
) -> RowChoice:
    """Return which rows of a board are asked for; their ranks stay those among all."""
    return RowChoice(q, verified, code, baselines, since, until, sort)


ChoiceDep = Annotated[RowChoice, Depends(read_choice)]


@router.get(
    "/leaderboard",
    summary="Get a board",
    response_model=LeaderboardOut,
    responses=errors(401, 403, 404, 422, also={200: {"content": {CSV_MEDIA_TYPE: {}}}}),
)
def get_board(
    session: SessionDep,
    reader: ReaderDep,
    response: Response,
    snapshot: Annotated[str, Query(examples=["synthetic-otbench"])],
    strategy: Strategy,
    choice: ChoiceDep,
    split: str = "all",
    model: Annotated[str | None, Query(description="The board of one model; both, of one cell.")] = None,
    benchmark: Annotated[str | None, Query(description="The board of one benchmark.")] = None,
    scorer_version: Annotated[
        str | None, Query(description="The board by an older scorer version; else the one that it shows.")
    ] = None,
    format: Annotated[Literal["json", "csv"] | None, Query(description="Else what `Accept` asks for.")] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> LeaderboardOut | Response:
    """Return one row a method, best first: its current published submission, else its latest published one.

    Ranked by realised potential: methods whose paired difference cannot be told from zero share a rank. Until a job has
    computed that, ranks are provisional, by point estimate. Controls have no rank, and nobody has one where every cell
    of the board has fewer than 20 questions. Teams that chose to be anonymous for now are called `anonymous`.
    A part of the rows, or another order, never changes a rank.
    """
    whole = get_leaderboard(
        session,
        snapshot=snapshot,
        split=split,
        strategy=strategy,
        model=model,
        benchmark=benchmark,
        scorer_version=scorer_version,
        reader=reader,
    )
    board = choose_rows(whole, choice)
    response.headers["Vary"] = VARY
    if wants_csv(format, accept):
        return csv_attachment(format_csv(board), filename=f"{snapshot}-{split}-{strategy}.csv", vary=VARY)
    return LeaderboardOut.model_validate(board)


@router.get(
    "/leaderboard/curves",
    summary="Get a board's curves",
    response_model=BoardCurvesOut,
    responses=errors(401, 403, 404, 422, also={200: {"content": {CSV_MEDIA_TYPE: {}}}}),
)
def get_curves(
    session: SessionDep,
    reader: ReaderDep,
    response: Response,
    snapshot: Annotated[str, Query(examples=["synthetic-otbench"])],
    strategy: Strategy,
    choice: ChoiceDep,
    split: str = "all",
    model: str | None = None,
    benchmark: str | None = None,
    scorer_version: str | None = None,
    by: Annotated[Literal["whole", "model", "benchmark"], Query(description="One board, or one for each.")] = "whole",
    format: Annotated[Literal["json", "csv"] | None, Query(description="Else what `Accept` asks for.")] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> BoardCurvesOut | Response:
    """Return what the board's plot draws, every point: the oracle, the uninformed reference, and every method's curve.

    The oracle's and a method's accuracy hold from each relative budget up to the next; the reference is straight
    between its points.
    """
    whole = get_leaderboard(
        session,
        snapshot=snapshot,
        split=split,
        strategy=strategy,
        model=model,
        benchmark=benchmark,
        scorer_version=scorer_version,
        reader=reader,
    )
    board = choose_rows(whole, choice)
    curves = list_curves(session, board, list_keys(get_snapshot(session, snapshot), BoardKey(model, benchmark), by=by))
    response.headers["Vary"] = VARY
    if wants_csv(format, accept):
        name = f"{snapshot}-{split}-{strategy}-curves.csv"
        return csv_attachment(format_curves(board, curves), filename=name, vary=VARY)
    return BoardCurvesOut.model_validate({"curves": curves, "snapshot": snapshot, "split": split, "strategy": strategy})
