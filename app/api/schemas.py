"""The shapes of REST answers. Field descriptions become the documentation; documents may carry further keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator

from app.evaluator.strategies import Strategy
from app.services.submissions import SubmissionState

Fraction01 = Annotated[float, Field(ge=0, le=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]

EXAMPLE_SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
EXAMPLE_SUBMISSION: dict[str, JsonValue] = {
    "id": "k3J9xQ2mTz7A",
    "method": "length-cap",
    "version": "1.2",
    "team": "local",
    "is_anonymous": False,
    "anonymous_until": None,
    "is_control": False,
    "description": "Caps thinking at a share of the training questions' mean length.",
    "paper_url": "https://arxiv.org/abs/2607.01234",
    "code_url": "https://github.com/example/length-cap",
    "hardware": "no model was run",
    "snapshot": "synthetic-otbench",
    "snapshot_sha256": EXAMPLE_SHA256,
    "kind": "synthetic",
    "split": "validation",
    "strategy": "fixed_budget",
    "filename": "caps.parquet",
    "actions_sha256": EXAMPLE_SHA256,
    "actions_bytes": 48213,
    "state": "scored",
    "was_cancelled": False,
    "is_current": False,
    "is_baseline": False,
    "is_verified": False,
    "flag_reason": None,
    "flagged_at": None,
    "is_mine": True,
    "problems": [],
    "warnings": [],
    "failure_reason": None,
    "n_settings": 20,
    "attempts": 1,
    "progress": None,
    "queue_place": None,
    "worker_alive": None,
    "estimated_seconds": None,
    "created_at": "2026-07-21T09:30:00Z",
    "scored_at": "2026-07-21T09:30:04Z",
    "published_at": None,
}
EXAMPLE_ROW: dict[str, JsonValue] = {
    "rank": 1,
    "last_rank": 3,
    "rank_reason": None,
    "submission_id": "k3J9xQ2mTz7A",
    "method": "length-cap",
    "version": "1.2",
    "team": "local",
    "is_anonymous": False,
    "is_control": False,
    "is_baseline": False,
    "is_verified": False,
    "flag_reason": None,
    "code_url": None,
    "strategy": "fixed_budget",
    "n_settings": 20,
    "realised_potential": 0.3127,
    "realised_potential_low": 0.2641,
    "realised_potential_high": 0.3598,
    "area": 0.7714,
    "uninformed_area": 0.7441,
    "oracle_area": 0.8314,
    "gap": 0.06,
    "max_accuracy": 0.842,
    "beta_match": 0.71,
    "tokens_saved": 0.29,
    "accuracy_25": 0.702,
    "accuracy_50": 0.801,
    "accuracy_75": 0.835,
    "best_e3": 1.21,
    "reason": None,
    "scorer_version": "1",
    "actions_sha256": EXAMPLE_SHA256,
    "published_at": "2026-07-21T09:31:00Z",
}


class Answer(BaseModel):
    """Base of answers that are read from a service's dataclass."""

    model_config = ConfigDict(from_attributes=True)


class Document(BaseModel):
    """Base of the public documents, which may grow further keys."""

    model_config = ConfigDict(extra="allow")


class ProblemOut(Answer):
    """One fault of a file, with its place; `count` is the exact total of the code in the file."""

    code: str
    message: str
    row: int | None = Field(description="The row as an editor shows it; the header of a CSV is row 1.")
    column: str | None
    unit: str | None
    count: int


class ErrorOut(BaseModel):
    """An error as RFC 9457 problem+json."""

    type: str
    title: str
    status: int
    detail: str
    code: str = Field(description="Stable snake_case name of the error.")
    instance: str = ""
    problems: list[ProblemOut] = Field(default=[], description="Present where a file or a form is at fault.")

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "type": "/api/docs#snapshot_not_frozen",
                "title": "The snapshot is not frozen yet",
                "status": 409,
                "detail": "Snapshot math is not frozen yet; nothing can be scored on it.",
                "code": "snapshot_not_frozen",
                "instance": "/api/v1/submissions",
            }
        }
    )


class SnapshotOut(Answer):
    """A snapshot: what it measures and the hash that scores refer to."""

    name: str
    title: str
    kind: str = Field(description="`measured` or `synthetic`; synthetic figures are not results of any model.")
    sha256: Sha256
    state: str = Field(description="`imported`, or `frozen` once nothing can change any more.")
    probes_per_position: int
    trajectories_per_question: int
    n_questions: int
    n_trajectories: int
    models: list[str]
    benchmarks: list[str]
    splits: list[str]
    hidden_splits: list[str]
    superseded_by: str | None = Field(description="The snapshot that takes the place of this one.")
    created_at: datetime
    frozen_at: datetime | None


class SnapshotDetailsOut(SnapshotOut):
    """A snapshot with its whole manifest."""

    manifest: dict[str, Any]


class SnapshotPageOut(BaseModel):
    """Some snapshots, by name, and the cursor of the next page."""

    items: list[SnapshotOut]
    next_cursor: str | None


class TrajectoryOut(Answer):
    """One trajectory: L(k) and C(k) at every position."""

    model: str
    trajectory: int
    thinking_tokens: int
    original_correct: bool | None
    retained_tokens: list[int]
    correct_probes: list[int]
    end_margin: list[float] | None


class TrajectoriesOut(Answer):
    """The curves of one question."""

    snapshot: str
    benchmark: str
    question_id: str
    split: str
    difficulty: int | None
    probes_per_position: int
    items: list[TrajectoryOut]
    next_cursor: str | None


class OverthinkingFiguresOut(Document):
    """Overthinking figures, fractions in [0, 1]."""

    mean_thinking_tokens: float
    full_thinking_accuracy: float | None
    zero_step_accuracy: float
    endpoint_accuracy: float
    overthinking_ratio: float
    accuracy_degradation: float


class CellOverthinkingOut(OverthinkingFiguresOut):
    """Overthinking figures of one model on one benchmark."""

    model: str
    benchmark: str
    questions: int
    trajectories: int


class OverthinkingOut(Document):
    """The document `otboard overthinking` prints."""

    snapshot: str
    split: str
    cells: list[CellOverthinkingOut]
    macro: OverthinkingFiguresOut | None = Field(description="Null where a cell of the grid is missing.")


class CertificateOut(Document):
    """What shows that no point of a frontier is missing; see `docs/exactness.md`."""

    cost: list[int] = Field(description="Where chunks of the frontier begin and end, in tokens.")
    correct: list[int] = Field(description="The correct probes there.")
    band: list[float] = Field(description="Per chunk: everything so many probes below the bound was tried.")
    needed: list[float] = Field(description="Per chunk: how far below the bound something missed could lie.")


class CellFrontierOut(Document):
    """The exact frontier of one cell; `cost` in tokens and `correct` in probes are integers."""

    model: str
    benchmark: str
    strategy: Strategy
    total_thinking_tokens: int
    total_probes: int
    cost: list[int] | None = Field(default=None, description="Not on hidden splits.")
    correct: list[int] | None = Field(default=None, description="Not on hidden splits.")
    beta_match: float | None
    max_accuracy: float
    beta_sat: float
    area: float
    uninformed_area: float
    certificate: CertificateOut | None = Field(
        default=None, description="Null of a frontier that an earlier version stored; none on hidden splits."
    )
    quantum: float | None = Field(default=None, description="On hidden splits: the step in which figures are told.")


class MacroFrontierOut(Document):
    """The macro frontier of a strategy on relative budgets."""

    strategy: Strategy
    beta_match: float | None
    max_accuracy: float
    beta_sat: float
    area: float
    uninformed_area: float
    grid: list[float]
    accuracy: list[float]


class FrontiersOut(Document):
    """The document `otboard frontier` prints."""

    snapshot: str
    split: str
    cells: list[CellFrontierOut]
    macro: list[MacroFrontierOut]


class BoardFiguresOut(Document):
    """A score's figures on one board."""

    model: str | None
    benchmark: str | None
    n_settings: int
    realised_potential: float | None
    area: float
    uninformed_area: float
    oracle_area: float
    max_accuracy: float
    beta_match: float | None
    accuracy_at: dict[str, float]
    best_e3: float | None
    reason: str | None
    quantum: float | None = Field(default=None, description="On hidden splits: the step of accuracies and areas.")
    curve: dict[str, list[float]] | None = Field(
        default=None, description="On hidden splits: the curve at the relative budgets 0, 0.05 … 1."
    )
    intervals: dict[str, Any] | None = Field(
        default=None, description="95 % intervals `[low, high]` under the names of the figures; null until computed."
    )


class SettingOut(Document):
    """A score's figures of one setting."""

    setting: str
    beta: float | None
    accuracy: float | None
    gap: float | None
    early_loss: float | None
    late_loss: float | None
    wasted: float | None
    forgone: float | None
    e3: float | None
    cells: list[dict[str, Any]]


class ScoreOut(Document):
    """The document `otboard score` prints."""

    snapshot: str
    split: str
    strategy: Strategy
    scorer_version: str
    actions_sha256: Sha256
    warnings: list[ProblemOut]
    settings: list[SettingOut]
    boards: list[BoardFiguresOut]
    held_back: list[dict[str, Any]] | None = Field(
        default=None, description="On hidden splits: boards not told, and why."
    )
    summary: BoardFiguresOut | None


class AnalysisStateOut(BaseModel):
    """An analysis of a snapshot's split, and whether it is computed."""

    kind: str
    is_ready: bool


class AnalysesOut(BaseModel):
    """The analyses of a snapshot's split."""

    snapshot: str
    split: str
    items: list[AnalysisStateOut]


class OperatingRowOut(Answer):
    """One setting on one board; all null, with the reason, unless it covers all of the board's cells."""

    setting: str
    beta: float | None
    accuracy: float | None
    gap: float | None
    early_loss: float | None
    late_loss: float | None
    wasted: float | None
    forgone: float | None
    e3: float | None
    reason: str | None


class OperatingPointsOut(Answer):
    """The settings of a submission on one board."""

    submission_id: str
    model: str | None
    benchmark: str | None
    rows: list[OperatingRowOut]


class TrajectoryStopOut(Answer):
    """Where one trajectory stops, where the oracle would at the same cost, and its best position k*."""

    trajectory: int
    position: int
    oracle_position: int
    reference: int
    n_steps: int
    lost_probes: int


class QuestionLossOut(Answer):
    """What a setting loses on one question: means over its trajectories."""

    model: str
    benchmark: str
    question_id: str
    early_loss: float
    late_loss: float
    wasted_tokens: float
    forgone_tokens: float
    stops: list[TrajectoryStopOut]


class LossesOut(Answer):
    """The questions on which one setting loses most, worst first."""

    submission_id: str
    setting: str
    model: str | None
    benchmark: str | None
    n_questions: int = Field(description="Questions of the board, one a model and question.")
    questions: list[QuestionLossOut]


class SubmissionOut(Answer):
    """A submission and where it stands."""

    id: str
    method: str
    version: str | None
    team: str = Field(description="`anonymous` where the team is hidden from you.")
    is_anonymous: bool = Field(description="Whether the team is hidden, for now, from all but itself and organisers.")
    anonymous_until: datetime | None
    is_control: bool
    description: str | None
    paper_url: str | None = Field(description="Null where the team is hidden from you; so is `code_url`.")
    code_url: str | None
    hardware: str | None
    snapshot: str
    snapshot_sha256: Sha256
    kind: str
    split: str
    strategy: Strategy
    filename: str
    actions_sha256: Sha256
    actions_bytes: int
    state: SubmissionState
    was_cancelled: bool = Field(description="Withdrawn before it had a score: it may be queued again.")
    is_current: bool = Field(description="Whether its team chose it to stand for the method on the boards.")
    is_baseline: bool = Field(description="Whether an organiser marked its method as a baseline.")
    is_verified: bool = Field(description="Whether an organiser verified it.")
    flag_reason: str | None = Field(description="What an organiser says is wrong with it, else null.")
    flagged_at: datetime | None
    is_mine: bool
    problems: list[ProblemOut] = Field(description="Why the file was rejected: at most 100 examples, exact totals.")
    warnings: list[ProblemOut] = Field(description="What is odd about the file without being wrong.")
    failure_reason: str | None = Field(description="What went wrong on the server's side.")
    n_settings: int | None
    attempts: int
    progress: float | None = Field(description="How far the file has been read, in [0, 1].")
    queue_place: int | None = Field(description="1 is the next to be scored; null where it does not wait.")
    worker_alive: bool | None = Field(
        default=None, description="Whether a scoring worker lives; null where the submission needs none."
    )
    estimated_seconds: float | None = Field(
        default=None, description="Until it is scored, by how long that took lately; null where nobody can tell."
    )
    created_at: datetime
    scored_at: datetime | None
    published_at: datetime | None

    model_config = ConfigDict(from_attributes=True, json_schema_extra={"example": EXAMPLE_SUBMISSION})


class SubmissionPageOut(Answer):
    """Some submissions, newest first, and the cursor of the next page."""

    items: list[SubmissionOut]
    next_cursor: str | None


class EventOut(Answer):
    """A change of a submission's state."""

    from_state: SubmissionState | None
    to_state: SubmissionState
    actor: str
    reason: str | None
    at: datetime


class EventPageOut(BaseModel):
    """What happened to a submission, oldest first."""

    items: list[EventOut]
    next_cursor: str | None = None


class ValidationOut(Answer):
    """A file without problems: what it holds, and what is odd about it."""

    actions_sha256: Sha256
    n_rows: int
    n_settings: int
    settings: list[str]
    n_cells_covered: int
    n_cells: int
    warnings: list[ProblemOut]

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "example": {
                "actions_sha256": EXAMPLE_SHA256,
                "n_rows": 7720,
                "n_settings": 20,
                "settings": ["0.1", "0.2", "…"],
                "n_cells_covered": 24,
                "n_cells": 24,
                "warnings": [],
            }
        },
    )


class BoardRowOut(Answer):
    """A method on the board. Accuracies and areas are fractions; `gap` is the oracle's area minus the method's."""

    rank: int | None = Field(
        description="1 + the number of methods whose paired difference to this one has a 95 % interval entirely above "
        "zero; by point estimate where the board's ranks are provisional. Null with `rank_reason`."
    )
    last_rank: int | None = Field(description="Methods that share a rank take up the places from `rank` to this one.")
    rank_reason: str | None = Field(description="`control`, `flagged`, `too_few_questions` or `no_potential`.")
    submission_id: str
    method: str
    version: str | None
    team: str = Field(description="`anonymous` where the team is hidden from you.")
    is_anonymous: bool
    is_control: bool
    is_baseline: bool = Field(description="Marked by an organiser; ranked like any other method.")
    is_verified: bool = Field(description="Verified by an organiser.")
    flag_reason: str | None = Field(description="What an organiser says is wrong with it: it takes no rank.")
    code_url: str | None = Field(description="Where the method's code is; null as long as its team is anonymous.")
    strategy: Strategy
    n_settings: int
    realised_potential: float | None
    realised_potential_low: float | None = Field(description="Lower end of the 95 % interval; null until there is one.")
    realised_potential_high: float | None
    area: Fraction01
    uninformed_area: Fraction01
    oracle_area: Fraction01
    gap: float
    max_accuracy: Fraction01
    beta_match: float | None
    tokens_saved: float | None
    accuracy_25: Fraction01
    accuracy_50: Fraction01
    accuracy_75: Fraction01
    best_e3: float | None
    reason: str | None = Field(description="Why there is no realised potential.")
    scorer_version: str
    actions_sha256: Sha256
    published_at: datetime

    model_config = ConfigDict(from_attributes=True, json_schema_extra={"example": EXAMPLE_ROW})


class LeaderboardOut(Answer):
    """A board: its rows, best first."""

    snapshot: str
    snapshot_sha256: Sha256
    kind: str
    split: str
    strategy: Strategy
    model: str | None
    benchmark: str | None
    scorer_version: str
    ranks_are_provisional: bool = Field(description="Whether ranks go by the point estimate: a job replaces them.")
    superseded_by: str | None = Field(description="The snapshot that takes the place of this board's.")
    newer_scorer_version: str | None = Field(
        description="The version that the server scores with now, where the board was made by another one; else null."
    )
    n_waiting: int = Field(description="Methods that are published and have no score by the board's version.")
    rows: list[BoardRowOut]

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "example": {
                "snapshot": "synthetic-otbench",
                "snapshot_sha256": EXAMPLE_SHA256,
                "kind": "synthetic",
                "split": "validation",
                "strategy": "fixed_budget",
                "model": None,
                "benchmark": None,
                "scorer_version": "1",
                "ranks_are_provisional": False,
                "superseded_by": None,
                "newer_scorer_version": None,
                "n_waiting": 0,
                "rows": [EXAMPLE_ROW],
            }
        },
    )


class BoardCurveOut(Answer):
    """One line of a board's plot: accuracies at rising relative budgets, both fractions."""

    model: str | None
    benchmark: str | None
    line: str = Field(description="`oracle`, `uninformed` or `method`.")
    submission_id: str | None
    method: str | None
    beta: list[float]
    accuracy: list[float]

    @field_validator("beta", "accuracy", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        return value.tolist() if hasattr(value, "tolist") else value


class BoardCurvesOut(Answer):
    """What a board's plot draws."""

    snapshot: str
    split: str
    strategy: Strategy
    curves: list[BoardCurveOut]


class MethodOut(Answer):
    """A method of a team."""

    name: str
    team: str = Field(description="`anonymous` where the team is hidden from you.")
    is_anonymous: bool
    anonymous_until: datetime | None
    description: str | None
    paper_url: str | None
    code_url: str | None
    is_control: bool
    created_at: datetime


class MethodPageOut(BaseModel):
    """The methods of a name, one a team at most, and their submissions that the reader may see, newest first."""

    methods: list[MethodOut]
    submissions: list[SubmissionOut]
    next_cursor: str | None
