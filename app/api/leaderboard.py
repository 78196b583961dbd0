"""The board as JSON and CSV."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response

from app.api.documentation import errors
from app.api.schemas import LeaderboardOut
from app.evaluator.strategies import Strategy
from app.services.leaderboard import format_csv, get_leaderboard
from app.web.security import ReaderDep, SessionDep

router = APIRouter(tags=["leaderboard"])

CSV_MEDIA_TYPE = "text/csv"
# A team that is anonymous is named to itself.
VARY = "Accept, Authorization, Cookie"


@router.get(
    "/leaderboard",
    summary="Get a board",
    response_model=LeaderboardOut,
    responses=errors(401, 404, 422, also={200: {"content": {CSV_MEDIA_TYPE: {}}}}),
)
def get_board(
    session: SessionDep,
    reader: ReaderDep,
    response: Response,
    snapshot: Annotated[str, Query(examples=["synthetic-otbench"])],
    strategy: Strategy,
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
    """
    board = get_leaderboard(
        session,
        snapshot=snapshot,
        split=split,
        strategy=strategy,
        model=model,
        benchmark=benchmark,
        scorer_version=scorer_version,
        reader=reader,
    )
    response.headers["Vary"] = VARY
    if format == "csv" or (format is None and CSV_MEDIA_TYPE in accept):
        name = f"{snapshot}-{split}-{strategy}.csv"
        return Response(
            format_csv(board),
            media_type=f"{CSV_MEDIA_TYPE}; charset=utf-8",
            headers={"Content-Disposition": f'attachment; filename="{name}"', "Vary": VARY},
        )
    return LeaderboardOut.model_validate(board)
