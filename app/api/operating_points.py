"""The settings of a submission on one board, and the questions on which one loses most."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response

from app.api.csv_answers import CSV_MEDIA_TYPE, csv_attachment
from app.api.documentation import Responses, errors
from app.api.schemas import LossesOut, OperatingPointsOut
from app.files.action_checks import DEFAULT_SETTING
from app.services.board_lines import BoardKey
from app.services.losses import MAX_QUESTIONS, find_losses
from app.services.operating_rows import Order, SortKey, format_rows_csv, get_operating_table, sort_rows
from app.web.security import ConfigDep, ReaderDep, SessionDep

router = APIRouter(tags=["submissions"])

WORKED_OUT: Responses = {202: {"description": "A job works out where the submission stops; ask again in a moment."}}


@router.get(
    "/submissions/{submission_id}/operating-points",
    summary="Get the settings on one board",
    response_model=OperatingPointsOut,
    responses=errors(401, 403, 404, 409, 410, 422, also={200: {"content": {CSV_MEDIA_TYPE: {}}}}),
)
def get_operating_points(
    submission_id: str,
    reader: ReaderDep,
    session: SessionDep,
    model: str | None = None,
    benchmark: str | None = None,
    sort: SortKey = "setting",
    order: Order = "asc",
    scorer_version: str | None = None,
    format: Literal["json", "csv"] = "json",
) -> OperatingPointsOut | Response:
    """Return every setting's figures on one board, sorted as asked; not where the split's labels are hidden."""
    table = get_operating_table(
        session, submission_id, account=reader, board=BoardKey(model, benchmark), scorer_version=scorer_version
    )
    table = replace(table, rows=sort_rows(table.rows, sort=sort, order=order))
    if format == "csv":
        return csv_attachment(format_rows_csv(table), filename=f"{submission_id}-operating-points.csv")
    return OperatingPointsOut.model_validate(table)


@router.get(
    "/submissions/{submission_id}/losses",
    summary="Get the questions on which a setting loses most",
    response_model=LossesOut,
    responses=errors(401, 403, 404, 409, 410, 422, also=WORKED_OUT),
)
def get_question_losses(
    submission_id: str,
    reader: ReaderDep,
    session: SessionDep,
    config: ConfigDep,
    setting: str = DEFAULT_SETTING,
    model: str | None = None,
    benchmark: str | None = None,
    limit: Annotated[int, Query(ge=1, le=MAX_QUESTIONS)] = 10,
) -> LossesOut | Response:
    """Return the questions with the largest early and late loss together; not where the split's labels are hidden.

    Where the file has no settings, `setting` may be left out. The first to ask sets a job going that works out where
    the submission stops; until then the answer is 202.
    """
    losses = find_losses(
        session,
        submission_id,
        account=reader,
        setting=setting,
        board=BoardKey(model, benchmark),
        limit=limit,
        config=config,
    )
    if losses is None:
        return Response(status_code=202, headers={"Retry-After": "5"})
    return LossesOut.model_validate(losses)
