"""Submissions side by side as JSON and CSV."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import APIRouter, Header, Query, Response
from pydantic import ConfigDict, Field

from app.api.csv_answers import CSV_MEDIA_TYPE, csv_attachment, wants_csv
from app.api.documentation import errors
from app.api.schemas import Answer, Document, Sha256
from app.evaluator.strategies import Strategy
from app.services.comparison import compare_submissions, format_differences
from app.web.security import ReaderDep, SessionDep

router = APIRouter(tags=["leaderboard"])

VARY = "Accept, Authorization, Cookie"


class ComparedOut(Answer):
    """A submission of a comparison."""

    id: str
    method: str
    team: str
    is_control: bool
    n_settings: int | None
    actions_sha256: Sha256


class DifferenceOut(Answer):
    """The first's realised potential minus the second's, and the 95 % interval of the paired difference."""

    first: str
    second: str
    difference: float | None
    low: float | None
    high: float | None
    better: Literal["first", "second", "undecided"]


class ComparedBoardOut(Answer):
    """One board: figures in the order of the submissions, null for one that does not stand there."""

    model: str | None
    benchmark: str | None
    figures: list[Document | None]
    differences: list[DifferenceOut]


class WinsOut(Answer):
    """Cells on which one of two is better by more than chance, and on which it is merely ahead."""

    first: str
    second: str
    n_cells: int
    n_first_better: int
    n_second_better: int
    n_undecided: int
    n_first_ahead: int
    n_second_ahead: int


class ComparisonOut(Answer):
    """Two to six submissions of one target."""

    snapshot: str
    snapshot_sha256: Sha256
    kind: str
    split: str
    strategy: Strategy
    scorer_version: str
    submissions: list[ComparedOut]
    boards: list[ComparedBoardOut]
    wins: list[WinsOut]
    settings: list[list[Document]] = Field(description="Of each submission, as in its score document.")

    model_config = ConfigDict(from_attributes=True)


@router.get(
    "/compare",
    summary="Compare submissions",
    response_model=ComparisonOut,
    responses=errors(401, 403, 404, 409, 422, also={200: {"content": {CSV_MEDIA_TYPE: {}}}}),
)
def compare(
    session: SessionDep,
    reader: ReaderDep,
    response: Response,
    submissions: Annotated[str, Query(description="Two to six, separated by commas.", max_length=200)],
    format: Annotated[Literal["json", "csv"] | None, Query(description="Else what `Accept` asks for.")] = None,
    accept: Annotated[str, Header(include_in_schema=False)] = "",
) -> ComparisonOut | Response:
    """Return submissions of one snapshot, split and strategy side by side, with paired differences on every board.

    The CSV has the differences: a row for each board and pair. One submission is better than another on a board where
    the 95 % interval of the paired difference of realised potential lies to one side of zero.
    """
    comparison = compare_submissions(session, split_ids(submissions), account=reader)
    response.headers["Vary"] = VARY
    if wants_csv(format, accept):
        name = f"compare-{comparison.snapshot}-{comparison.split}-{comparison.strategy}.csv"
        return csv_attachment(format_differences(comparison), filename=name, vary=VARY)
    return ComparisonOut.model_validate(comparison)


def split_ids(text: str) -> list[str]:
    """Return the submissions of a list separated by commas; empty places are left out."""
    return [part for one in text.split(",") if (part := one.strip())]
