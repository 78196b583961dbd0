"""The shapes of what organisers are told."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from app.api.schemas import Answer, ProblemOut

Limit = Annotated[int | None, Field(ge=0, le=2**31 - 1)]


class WorkerOut(Answer):
    """A worker process and the job in its hands."""

    id: int
    kind: str = Field(description="`scoring` or `measuring`.")
    model: str | None
    is_alive: bool
    last_heartbeat: datetime
    job_id: int | None
    task: str | None
    subject: str | None
    since: datetime | None


class QueueOut(Answer):
    """The jobs of one task that wait (`todo`) or are being done (`doing`)."""

    task: str
    status: str
    n_jobs: int
    n_later: int = Field(description="Of these, jobs that wait for a time to come.")
    oldest_at: datetime | None


class FailedJobOut(Answer):
    """A job that ended with an error."""

    id: int
    task: str
    subject: str
    attempts: int
    at: datetime | None


class WorkOut(Answer):
    """Workers and queue."""

    workers: list[WorkerOut]
    queues: list[QueueOut]
    n_lost: int = Field(description="Jobs in the hands of workers that are dead; they go back on the queue.")
    failed: list[FailedJobOut]


class AuditEntryOut(Answer):
    """Who did what to what, when."""

    id: int
    at: datetime
    actor: str
    action: str
    subject: str
    details: dict[str, Any]


class AuditPageOut(Answer):
    """Some acts, newest first."""

    items: list[AuditEntryOut]
    next_cursor: str | None


class ImportOut(Answer):
    """How far the import of a snapshot is."""

    id: int
    source: str
    state: str = Field(description="`waiting`, `importing`, `imported`, `rejected` or `failed`.")
    attempts: int
    snapshot: str | None = Field(description="The snapshot that it became.")
    problems: list[ProblemOut]
    failure_reason: str | None
    actor: str
    created_at: datetime
    finished_at: datetime | None


class ImportPageOut(BaseModel):
    """The newest imports, newest first."""

    items: list[ImportOut]
    next_cursor: str | None = None


class PathBody(BaseModel):
    """Where on the server a snapshot lies."""

    model_config = ConfigDict(extra="forbid")

    path: str = Field(min_length=1, max_length=4000, examples=["/srv/snapshots/math.zip"])


class HiddenSplitsBody(BaseModel):
    """Which splits' labels are hidden."""

    model_config = ConfigDict(extra="forbid")

    splits: list[str] = Field(max_length=3, examples=[["test"]])


class OverrideOut(Answer):
    """The limits that are set on a snapshot for a team, or for every team; null is not set here."""

    snapshot: str
    team: str | None
    hidden_per_day: int | None
    hidden_total: int | None
    open_per_day: int | None
    rejected_per_day: int | None


class OverridePageOut(BaseModel):
    """All limits that are set, and those that hold where none is."""

    items: list[OverrideOut]
    defaults: dict[str, int | None]
    next_cursor: str | None = None


class OverrideBody(BaseModel):
    """Limits to set; one that is not named stays, null takes it back."""

    model_config = ConfigDict(extra="forbid")

    snapshot: str
    team: str | None = Field(default=None, description="Null is every team.")
    hidden_per_day: Limit = None
    hidden_total: Limit = None
    open_per_day: Limit = None
    rejected_per_day: Limit = None
