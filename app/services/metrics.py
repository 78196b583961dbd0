"""How much work there is and who does it, and whether the database can serve."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import text
from sqlalchemy.orm import Session

from app.db.migrations import is_up_to_date
from app.errors import UnreachableError
from app.services.submissions import SubmissionState, count_states


class NotReadyError(UnreachableError):
    """The database lacks migrations of this version."""

    code = "not_ready"
    title = "Not ready yet"


@dataclass(frozen=True)
class Work:
    """Submissions by state, jobs by task and status, and workers that gave a sign of life lately."""

    submissions: dict[SubmissionState, int]
    jobs: dict[tuple[str, str], int]
    n_workers: int


def check_ready(session: Session) -> None:
    """Raise `NotReadyError` unless the database has the tables of this version."""
    if not is_up_to_date(session.connection()):
        raise NotReadyError("The database's tables are not those of this version.")


def count_work(session: Session, *, silence_seconds: float) -> Work:
    """Count submissions, jobs and living workers."""
    jobs = text("SELECT task_name, status::text, count(*) FROM procrastinate_jobs GROUP BY 1, 2 ORDER BY 1, 2")
    workers = text(
        "SELECT count(*) FROM procrastinate_workers "
        "WHERE last_heartbeat > clock_timestamp() - make_interval(secs => :silence)"
    )
    return Work(
        submissions=count_states(session),
        jobs={(task, status): int(n) for task, status, n in session.execute(jobs)},
        n_workers=int(session.scalar(workers, {"silence": silence_seconds}) or 0),
    )


def format_metrics(work: Work) -> str:
    """Return the counts in the Prometheus text format."""
    lines = [
        "# HELP otboard_submissions Submissions by state.",
        "# TYPE otboard_submissions gauge",
        *(f'otboard_submissions{{state="{state}"}} {n}' for state, n in work.submissions.items()),
        "# HELP otboard_queue_length Jobs that wait, by task.",
        "# TYPE otboard_queue_length gauge",
        *(f'otboard_queue_length{{task="{task}"}} {n}' for (task, status), n in work.jobs.items() if status == "todo"),
        "# HELP otboard_jobs Jobs in the queue's tables, by task and status.",
        "# TYPE otboard_jobs gauge",
        *(f'otboard_jobs{{task="{task}",status="{status}"}} {n}' for (task, status), n in work.jobs.items()),
        "# HELP otboard_workers Workers that gave a sign of life within the heartbeat timeout.",
        "# TYPE otboard_workers gauge",
        f"otboard_workers {work.n_workers}",
    ]
    return "\n".join(lines) + "\n"
