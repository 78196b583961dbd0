"""How much a team may still submit, and the release of what is withheld."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from app.api.documentation import errors
from app.api.schemas import Answer, SubmissionOut
from app.services.allowance import get_allowance
from app.services.snapshots import get_snapshot
from app.services.submissions import get_submission
from app.services.withheld import release_submission
from app.web.security import AccountDep, OrganiserDep, SessionDep

router = APIRouter()


class MeterOut(Answer):
    """One limit and how much of it is used; null where there is no limit."""

    limit: int | None
    used: int
    left: int | None
    next_at: datetime | None = Field(description="When one more fits; null where one does now or never will.")


class AllowanceOut(Answer):
    """What a team may still submit on a snapshot."""

    snapshot: str
    hidden_splits: list[str]
    hidden_day: MeterOut = Field(description="Submissions on hidden splits, scored or on their way, in 24 hours.")
    hidden_total: MeterOut = Field(description="The same in all.")
    open_day: MeterOut = Field(description="Submissions on the other splits in 24 hours.")
    rejected_day: MeterOut = Field(description="Files with problems in 24 hours, on splits that have a limit.")


@router.get("/me/allowance", tags=["account"], summary="What I may still submit", responses=errors(401, 403, 404, 422))
def get_my_allowance(
    account: AccountDep, session: SessionDep, snapshot: Annotated[str, Query(examples=["synthetic-otbench"])]
) -> AllowanceOut:
    """Return how much of its allowance the caller's team has left on a snapshot."""
    row = get_snapshot(session, snapshot)
    return AllowanceOut.model_validate(get_allowance(session, account.team_id, row, now=datetime.now(UTC)))


@router.post(
    "/submissions/{submission_id}/release",
    tags=["submissions"],
    summary="Release",
    responses=errors(401, 403, 404, 409),
)
def release(submission_id: str, organiser: OrganiserDep, session: SessionDep) -> SubmissionOut:
    """Tell a team what was withheld from it on a hidden split: the whole score, or boards of it."""
    release_submission(session, submission_id, account=organiser)
    return SubmissionOut.model_validate(get_submission(session, submission_id, account=organiser))
