"""The workers and the queue as an organiser sees them: who lives, what waits and for how long, what failed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import text
from sqlalchemy.orm import Session

MOST_FAILED = 50

WORKERS = """
SELECT w.id, w.last_heartbeat, p.actor AS probe_actor, p.model,
  w.last_heartbeat > clock_timestamp() - make_interval(secs => :silence) AS is_alive,
  j.id AS job_id, j.task_name, j.args, j.attempts, begun.at AS since
FROM procrastinate_workers w
LEFT JOIN probe_workers p ON p.queue_worker_id = w.id
LEFT JOIN LATERAL (
  SELECT id, task_name, args, attempts FROM procrastinate_jobs WHERE worker_id = w.id AND status = 'doing'
  ORDER BY id LIMIT 1
) j ON true
LEFT JOIN LATERAL (
  SELECT max(at) AS at FROM procrastinate_events WHERE job_id = j.id AND type = 'started'
) begun ON true
ORDER BY is_alive DESC, w.id
"""

# A job that is put back waits from then on, so it is the last of these events that counts.
QUEUES = """
SELECT j.task_name, j.status::text AS status, count(*) AS n,
  count(*) FILTER (WHERE j.scheduled_at > clock_timestamp()) AS n_later, min(since.at) AS oldest_at
FROM procrastinate_jobs j
LEFT JOIN LATERAL (
  SELECT max(at) AS at FROM procrastinate_events e
  WHERE e.job_id = j.id AND e.type IN ('deferred', 'deferred_for_retry', 'scheduled', 'started')
) since ON true
WHERE j.status IN ('todo', 'doing')
GROUP BY 1, 2 ORDER BY 1, 2
"""

# What a worker held that is gone from the table of workers altogether.
LOST = """
SELECT count(*) FROM procrastinate_jobs j WHERE j.status = 'doing' AND NOT EXISTS (
  SELECT FROM procrastinate_workers w WHERE w.id = j.worker_id
  AND w.last_heartbeat > clock_timestamp() - make_interval(secs => :silence)
)
"""

FAILED = """
SELECT j.id, j.task_name, j.args, j.attempts, max(e.at) AS at
FROM procrastinate_jobs j LEFT JOIN procrastinate_events e ON e.job_id = j.id
WHERE j.status = 'failed' GROUP BY j.id ORDER BY max(e.at) DESC NULLS LAST, j.id DESC LIMIT :most
"""


@dataclass(frozen=True)
class WorkerStatus:
    """A worker process: when it last gave a sign of life, and the job in its hands, since when."""

    id: int
    kind: str
    model: str | None
    is_alive: bool
    last_heartbeat: datetime
    job_id: int | None
    task: str | None
    subject: str | None
    since: datetime | None


@dataclass(frozen=True)
class QueueStatus:
    """The jobs of one task in one status: how many, how many of them are for later, and since when the oldest is."""

    task: str
    status: str
    n_jobs: int
    n_later: int
    oldest_at: datetime | None


@dataclass(frozen=True)
class FailedJob:
    """A job that ended with an error; it is removed a week later."""

    id: int
    task: str
    subject: str
    attempts: int
    at: datetime | None


@dataclass(frozen=True)
class WorkStatus:
    """All workers, living ones first, the queue by task, jobs in the hands of dead workers, and what failed lately."""

    workers: tuple[WorkerStatus, ...]
    queues: tuple[QueueStatus, ...]
    n_lost: int
    failed: tuple[FailedJob, ...]

    @property
    def n_alive(self) -> int:
        """How many workers live."""
        return sum(worker.is_alive for worker in self.workers)


def get_work_status(session: Session, *, silence_seconds: float) -> WorkStatus:
    """Return workers and queue; a worker is dead after so many seconds without a sign of life."""
    silence = {"silence": silence_seconds}
    workers = session.execute(text(WORKERS), silence).mappings()
    queues = session.execute(text(QUEUES)).mappings()
    failed = session.execute(text(FAILED), {"most": MOST_FAILED}).mappings()
    return WorkStatus(
        workers=tuple(_read_worker(row) for row in workers),
        queues=tuple(
            QueueStatus(row["task_name"], row["status"], row["n"], row["n_later"], row["oldest_at"]) for row in queues
        ),
        n_lost=int(session.scalar(text(LOST), silence) or 0),
        failed=tuple(
            FailedJob(row["id"], row["task_name"], describe_arguments(row["args"]), row["attempts"], row["at"])
            for row in failed
        ),
    )


def describe_arguments(arguments: dict[str, Any] | None) -> str:
    """Return what a job is about in a few words.

    Examples
    --------
    >>> describe_arguments({"submission_id": "k3J9xQ2mTz7A"}), describe_arguments({"snapshot_id": 1, "split": "test"})
    ('submission k3J9xQ2mTz7A', 'snapshot 1, split test')
    """
    named = {name.removesuffix("_id").replace("_", " "): value for name, value in (arguments or {}).items()}
    return ", ".join(f"{name} {value}" for name, value in named.items())


def _read_worker(row: Any) -> WorkerStatus:
    return WorkerStatus(
        id=row["id"],
        kind="scoring" if row["probe_actor"] is None else "measuring",
        model=row["model"],
        is_alive=row["is_alive"],
        last_heartbeat=row["last_heartbeat"],
        job_id=row["job_id"],
        task=row["task_name"],
        subject=None if row["job_id"] is None else describe_arguments(row["args"]),
        since=row["since"],
    )
