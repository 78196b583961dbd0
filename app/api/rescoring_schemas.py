"""The shapes of what is said of re-scorings."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, ConfigDict, Field

from app.api.schemas import Answer, BoardRowOut
from app.evaluator.strategies import Strategy


class RescoringBody(BaseModel):
    """Which boards are to be scored again."""

    model_config = ConfigDict(extra="forbid")

    snapshot: str = Field(examples=["synthetic-otbench"])
    split: str | None = Field(default=None, description="Of this split only.")
    strategy: Strategy | None = Field(default=None, description="Of this strategy only.")


class ApplyBody(BaseModel):
    """How a re-scoring is applied."""

    model_config = ConfigDict(extra="forbid")

    leave_out_failed: bool = Field(
        default=False, description="Apply although some submissions have no new score; they are then on no board."
    )


class RescoredBoardOut(Answer):
    """The boards of a split and strategy, and the version that they showed when the re-scoring began."""

    split: str
    strategy: Strategy
    from_version: str


class FailedRescoringOut(Answer):
    """A submission that could not be scored again, and why."""

    submission_id: str
    method: str
    team: str
    reason: str


class RescoringOut(Answer):
    """How far a re-scoring is."""

    id: int
    snapshot: str
    to_version: str
    state: str = Field(description="`running`, `ready` (nothing waits any more), `applied` or `cancelled`.")
    boards: list[RescoredBoardOut]
    n_submissions: int
    n_waiting: int
    n_scoring: int
    n_done: int
    n_failed: int
    n_resampled: int = Field(description="How many have intervals by the new version as well.")
    failed: list[FailedRescoringOut] = Field(description="At most 100.")
    actor: str
    created_at: datetime
    ended_by: str | None
    ended_at: datetime | None


class RescoringPageOut(BaseModel):
    """Re-scorings, newest first."""

    items: list[RescoringOut]
    next_cursor: str | None = None


class FigureChangeOut(Answer):
    """How a method's realised potential changes on one board."""

    split: str
    strategy: Strategy
    model: str | None
    benchmark: str | None
    submission_id: str
    method: str
    team: str
    old: float | None
    new: float | None


class TargetChangesOut(Answer):
    """What changes on all boards of a split and strategy."""

    split: str
    strategy: Strategy
    from_version: str
    n_rows: int
    n_figures_changed: int
    n_added: int = Field(description="Rows that stand by the new version only.")
    n_removed: int = Field(description="Rows that stand by the old version only.")


class RowChangeOut(Answer):
    """A method's row by the old version and by the new one; null where it does not stand."""

    old: BoardRowOut | None
    new: BoardRowOut | None
    changed: list[str] = Field(description="The figures that differ.")


class BoardPreviewOut(Answer):
    """One board by both versions, in the order of the new one."""

    split: str
    strategy: Strategy
    model: str | None
    benchmark: str | None
    n_ranks_changed: int
    n_figures_changed: int
    rows: list[RowChangeOut]


class PreviewOut(Answer):
    """What a re-scoring would change."""

    rescoring: RescoringOut
    targets: list[TargetChangesOut]
    largest: list[FigureChangeOut] = Field(description="The ten largest changes of realised potential on any board.")
    board: BoardPreviewOut
