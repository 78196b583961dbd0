"""The shapes of what is said of models and probe runs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from app.api.schemas import Answer, Fraction01, Sha256
from app.services.probe_runs import ProbeRunState

EXAMPLE_PROTOCOL: dict[str, JsonValue] = {
    "step_tokens": 256,
    "n_trajectories": 16,
    "n_probes": 16,
    "thinking_token_limit": 32768,
    "answer_token_limit": 2048,
    "probe_token_limit": 1024,
    "seed_name": "qwen3-4b-aime",
    "question_seconds": 21600,
}
EXAMPLE_SUMMARY: dict[str, JsonValue] = {
    "id": "u7Xv2LqTz9Ka",
    "name": "qwen3-4b-aime",
    "title": "Qwen3-4B-Thinking on AIME",
    "model": "Qwen3-4B-Thinking-2507",
    "state": "running",
    "priority": 0,
    "n_questions": 90,
    "n_done": 31,
    "n_failed": 0,
    "n_running": 2,
    "tokens_per_second": 2140.5,
    "snapshot": None,
    "created_at": "2026-07-21T09:30:00Z",
    "started_at": "2026-07-21T09:30:00Z",
    "finished_at": None,
}


class ModelOut(Answer):
    """A model that can be measured, with the profile that says how it is asked and where its thinking ends."""

    name: str
    repository: str
    revision: str | None
    license: str | None
    is_builtin: bool = Field(description="Whether the profile is shipped, and not one that somebody registered.")
    registered_at: datetime | None
    profile: dict[str, Any] = Field(description="The whole profile; `docs/profiles.md` explains its keys.")


class ModelPageOut(Answer):
    """Some models, by name."""

    items: list[ModelOut]
    next_cursor: str | None


class ProtocolBody(BaseModel):
    """How finely, how often and how long a model is probed; what is left out is the paper's or the profile's."""

    model_config = ConfigDict(extra="forbid")

    step_tokens: int | None = Field(default=None, description="b, the mean length of a step aimed at; 256.")
    n_trajectories: int | None = Field(default=None, description="R, trajectories of each question; 16.")
    n_probes: int | None = Field(default=None, description="M, answer probes at each position; 16.")
    thinking_token_limit: int | None = None
    answer_token_limit: int | None = None
    probe_token_limit: int | None = None
    question_seconds: int | None = Field(
        default=None, description="How long a question may be in one worker's hands; 21,600."
    )


class QuestionSetBody(BaseModel):
    """A question set: inline, the objects of a question file's lines, or by the hash of one that is stored."""

    model_config = ConfigDict(extra="forbid")

    sha256: Sha256 | None = Field(default=None, description="Of a set that an earlier run brought.")
    header: dict[str, Any] | None = Field(default=None, description="The first line of a question file.")
    questions: list[dict[str, Any]] | None = Field(default=None, description="Its other lines.")


class ProbeRunBody(BaseModel):
    """What a run measures."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "name": "qwen3-4b-aime",
                "title": "Qwen3-4B-Thinking on AIME",
                "model": "Qwen3-4B-Thinking-2507",
                "question_sets": [{"sha256": "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}],
                "protocol": {"n_trajectories": 16, "n_probes": 16},
            }
        },
    )

    name: str = Field(description="The name of the snapshot that the run makes.")
    model: str = Field(description="The name of a model with a profile.")
    question_sets: list[QuestionSetBody] = Field(min_length=1, max_length=100)
    title: str | None = Field(default=None, min_length=1, max_length=200)
    priority: int = Field(default=0, description="Questions of runs with a higher priority are handed out first.")
    seed_name: str | None = Field(
        default=None, min_length=1, max_length=200, description="What seeds are derived from; the run's name."
    )
    protocol: ProtocolBody = ProtocolBody()
    start: bool = Field(default=True, description="Whether its questions are queued at once; `resume` does it later.")


class ReasonBody(BaseModel):
    """Why a run is paused or cancelled."""

    reason: str | None = Field(default=None, max_length=500, examples=["the GPU is needed elsewhere"])


class ProbeRunSummaryOut(Answer):
    """A run in a list."""

    id: str
    name: str
    title: str
    model: str
    state: ProbeRunState
    priority: int
    n_questions: int
    n_done: int
    n_failed: int
    n_running: int
    tokens_per_second: float | None = Field(description="Generated tokens a second of one worker.")
    snapshot: str | None = Field(description="What it was last assembled into.")
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None

    model_config = ConfigDict(from_attributes=True, json_schema_extra={"example": EXAMPLE_SUMMARY})


class ProbeRunPageOut(Answer):
    """Some runs, newest first."""

    items: list[ProbeRunSummaryOut]
    next_cursor: str | None


class ProbeWorkerOut(Answer):
    """A worker that lives and can serve a run, with the question in its hands."""

    actor: str
    seen_at: datetime
    benchmark: str | None
    question_id: str | None
    question_started_at: datetime | None


class FailureReasonOut(Answer):
    """Why questions failed or were given back, and how many last did for this reason."""

    reason: str
    n_questions: int
    n_failed: int


class FailedQuestionOut(Answer):
    """A question that nobody tries again until its run is resumed, and why."""

    benchmark: str
    question_id: str
    attempts: int
    reason: str


class ProbeRunOut(ProbeRunSummaryOut):
    """How far a run is, who works on it and what went wrong."""

    protocol: dict[str, JsonValue]
    failure_reason: str | None
    n_waiting: int
    n_trajectories: int = Field(description="Of the questions that are done, as all that follows.")
    n_positions: int
    n_probes: int
    n_hit_limit: int = Field(description="Trajectories that the thinking limit cut off.")
    n_unextracted: int = Field(description="Probes from whose answer nothing could be read.")
    thinking_tokens: int
    seconds: float = Field(description="One worker's time.")
    prompt_tokens: int
    cached_tokens: int | None
    generated_tokens: int
    prefix_share: Fraction01 | None = Field(
        description="The share of prompt tokens that the prefix cache served; null where the engine does not say."
    )
    seconds_left: float | None = Field(
        description="With the workers that live; null where nothing is known yet, or nobody works on it."
    )
    workers: list[ProbeWorkerOut]
    reasons: list[FailureReasonOut]
    failed_questions: list[FailedQuestionOut] = Field(default=[], description="The first hundred.")

    model_config = ConfigDict(
        from_attributes=True,
        json_schema_extra={
            "example": {
                **EXAMPLE_SUMMARY,
                "protocol": EXAMPLE_PROTOCOL,
                "failure_reason": None,
                "n_waiting": 57,
                "n_trajectories": 496,
                "n_positions": 25104,
                "n_probes": 401664,
                "n_hit_limit": 12,
                "n_unextracted": 803,
                "thinking_tokens": 6310220,
                "seconds": 41020.4,
                "prompt_tokens": 2610442800,
                "cached_tokens": 2588106300,
                "generated_tokens": 87804166,
                "prefix_share": 0.9914,
                "seconds_left": 39035.5,
                "workers": [
                    {
                        "actor": "worker gpu-1:4312",
                        "seen_at": "2026-07-21T15:12:08Z",
                        "benchmark": "AIME",
                        "question_id": "2026-I-7",
                        "question_started_at": "2026-07-21T14:58:41Z",
                    }
                ],
                "reasons": [],
                "failed_questions": [],
            }
        },
    )


class ProbeRunEventOut(Answer):
    """Something that happened to a run: who, when and why."""

    from_state: ProbeRunState | None
    to_state: ProbeRunState
    actor: str
    reason: str | None
    at: datetime


class ProbeRunEventPageOut(BaseModel):
    """What happened to a run, oldest first."""

    items: list[ProbeRunEventOut]
