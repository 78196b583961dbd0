"""The job queue: how a job is put on it with the row it belongs to, and what a worker process runs.

The bodies of the tasks stand in ``worker/tasks.py``, above the services that they call; here are only their names, so
that a service can queue one without importing what it does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from procrastinate import App, JobContext, PsycopgConnector, SyncPsycopgConnector
from procrastinate.exceptions import ConnectorException
from procrastinate.manager import JobManager
from procrastinate.worker import Worker
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.config import Config
from app.db.session import conninfo

logger = logging.getLogger(__name__)

SCORE_SUBMISSION = "score_submission"
PREPARE_SNAPSHOT = "prepare_snapshot"
BOOTSTRAP_SPLIT = "bootstrap_split"
RESAMPLE_SUBMISSION = "resample_submission"
RANK_BOARDS = "rank_boards"
ANALYSE_SPLIT = "analyse_split"
RESCORE_SUBMISSION = "rescore_submission"
IMPORT_SNAPSHOT = "import_snapshot"
KEEP_STOPS = "keep_stops"
PROBE_QUESTION = "probe_question"
# Submissions that wait for their score have priority 0.
RANKING_PRIORITY = -1
RESAMPLING_PRIORITY = -2
STOPS_PRIORITY = -3
ANALYSIS_PRIORITY = -5
RESCORING_PRIORITY = -3
BOOTSTRAP_PRIORITY = -10
REAP = "reap"

# What a scoring worker takes. Questions of probe runs are in queues of their own, one for each loaded model, since
# only a worker that has the model can do anything with them.
SCORING_QUEUES = (
    SCORE_SUBMISSION,
    PREPARE_SNAPSHOT,
    BOOTSTRAP_SPLIT,
    RESAMPLE_SUBMISSION,
    RANK_BOARDS,
    ANALYSE_SPLIT,
    RESCORE_SUBMISSION,
    IMPORT_SNAPSHOT,
    KEEP_STOPS,
    REAP,
)

# Every ten seconds (the sixth field): with the heartbeat timeout this bounds how long a killed worker's job lies still.
REAP_CRON = "* * * * * */10"

queue = App(connector=PsycopgConnector())

# Jobs are put on the queue over the session's own connection only, so this connector is never opened. It is the
# blocking one also inside a worker, whose own connector is not.
_manager = JobManager(SyncPsycopgConnector())


def defer(
    session: Session,
    task_name: str,
    *,
    priority: int = 0,
    lock: str | None = None,
    delay: timedelta = timedelta(0),
    **arguments: Any,
) -> int:
    """Put a job on the queue in the session's transaction and return its number.

    The job appears with the rows of that transaction, or not at all; workers are told when it is committed. Jobs with
    the same `lock` run one after the other. No worker takes the job up before `delay` is over.
    """
    deferrer = queue.configure_task(
        task_name,
        queue=task_name,
        priority=priority,
        lock=lock,
        schedule_at=datetime.now(UTC) + delay if delay else None,
        task_kwargs=arguments,
    )
    job = _manager.defer_job(deferrer.job, connection=session.connection().connection.driver_connection)
    assert job.id is not None
    return job.id


def defer_scoring(session: Session, submission_id: str, *, delay: timedelta = timedelta(0)) -> int:
    """Queue the scoring of a submission; two jobs of one submission never run at once."""
    lock = scoring_lock(submission_id)
    return defer(session, SCORE_SUBMISSION, lock=lock, delay=delay, submission_id=submission_id)


def scoring_lock(submission_id: str) -> str:
    """Return the lock of the jobs that score a submission."""
    return f"{SCORE_SUBMISSION}-{submission_id}"


def list_jobless(session: Session, submission_ids: Sequence[str]) -> list[str]:
    """Return which of these submissions no scoring job waits for and none works on."""
    query = text(
        "SELECT id FROM unnest(CAST(:ids AS text[]), CAST(:locks AS text[])) AS s (id, lock) WHERE NOT EXISTS"
        " (SELECT FROM procrastinate_jobs j WHERE j.lock = s.lock AND j.status IN ('todo', 'doing'))"
    )
    ids = list(submission_ids)
    return list(session.scalars(query, {"ids": ids, "locks": [scoring_lock(one) for one in ids]}))


def defer_preparation(session: Session, snapshot_id: int, *, split: str) -> int:
    """Queue the computation of a split's frontiers and figures, ahead of submissions, which need them."""
    return defer(session, PREPARE_SNAPSHOT, priority=10, snapshot_id=snapshot_id, split=split)


def defer_bootstrap(session: Session, snapshot_id: int, *, split: str) -> int:
    """Queue some seconds' worth of a split's bootstrap, behind everything else; the job queues what is left."""
    lock = _bootstrap_lock(snapshot_id, split)
    return defer(session, BOOTSTRAP_SPLIT, priority=BOOTSTRAP_PRIORITY, lock=lock, snapshot_id=snapshot_id, split=split)


def is_bootstrap_queued(session: Session, snapshot_id: int, *, split: str) -> bool:
    """Whether a job of a split's bootstrap waits or is being done."""
    query = text(
        "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing') AND lock = :lock"
        " AND task_name = :task)"
    )
    return bool(session.scalar(query, {"lock": _bootstrap_lock(snapshot_id, split), "task": BOOTSTRAP_SPLIT}))


def defer_analyses(session: Session, snapshot_id: int, *, split: str) -> int:
    """Queue some seconds' worth of a split's analyses; the job queues what is left."""
    lock = _analysis_lock(snapshot_id, split)
    return defer(session, ANALYSE_SPLIT, priority=ANALYSIS_PRIORITY, lock=lock, snapshot_id=snapshot_id, split=split)


def defer_stops(session: Session, submission_id: str) -> int:
    """Queue working out where a scored submission stops, which its page shows question by question."""
    lock = f"{KEEP_STOPS}-{submission_id}"
    return defer(session, KEEP_STOPS, priority=STOPS_PRIORITY, lock=lock, submission_id=submission_id)


def is_stops_queued(session: Session, submission_id: str) -> bool:
    """Whether there is a job that works out where a submission stops: waiting, under way or failed."""
    query = text(
        "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status IN ('todo', 'doing', 'failed') AND lock = :lock"
        " AND task_name = :task)"
    )
    return bool(session.scalar(query, {"lock": f"{KEEP_STOPS}-{submission_id}", "task": KEEP_STOPS}))


def is_analysis_queued(
    session: Session, snapshot_id: int, *, split: str, statuses: Sequence[str] = ("todo", "doing", "failed")
) -> bool:
    """Whether there is a job of a split's analyses that waits, is being done or has failed."""
    query = text(
        "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status::text = ANY (:statuses) AND lock = :lock"
        " AND task_name = :task)"
    )
    parameters = {"lock": _analysis_lock(snapshot_id, split), "task": ANALYSE_SPLIT, "statuses": list(statuses)}
    return bool(session.scalar(query, parameters))


def _analysis_lock(snapshot_id: int, split: str) -> str:
    return f"{ANALYSE_SPLIT}-{snapshot_id}-{split}"


def is_ahead(session: Session, *, priority: int) -> bool:
    """Whether a job of a scoring worker waits that goes ahead of those of this priority."""
    query = text(
        "SELECT EXISTS (SELECT FROM procrastinate_jobs WHERE status = 'todo' AND priority > :priority"
        " AND queue_name = ANY (:queues) AND (scheduled_at IS NULL OR scheduled_at <= now()))"
    )
    return bool(session.scalar(query, {"priority": priority, "queues": list(SCORING_QUEUES)}))


def _bootstrap_lock(snapshot_id: int, split: str) -> str:
    return f"{BOOTSTRAP_SPLIT}-{snapshot_id}-{split}"


def defer_resampling(session: Session, submission_id: str) -> int:
    """Queue the intervals of a scored submission, behind submissions that wait for their score."""
    lock = f"{RESAMPLE_SUBMISSION}-{submission_id}"
    return defer(session, RESAMPLE_SUBMISSION, priority=RESAMPLING_PRIORITY, lock=lock, submission_id=submission_id)


def list_queued_resampling(session: Session) -> set[str]:
    """Return the submissions for whose intervals a job waits or is at work."""
    query = text(
        "SELECT args->>'submission_id' FROM procrastinate_jobs WHERE task_name = :task AND status IN ('todo', 'doing')"
    )
    return set(session.scalars(query, {"task": RESAMPLE_SUBMISSION}))


def defer_import(session: Session, import_id: int, *, delay: timedelta = timedelta(0)) -> int:
    """Queue the import of a snapshot that was handed in over the web."""
    lock = f"{IMPORT_SNAPSHOT}-{import_id}"
    return defer(session, IMPORT_SNAPSHOT, lock=lock, delay=delay, import_id=import_id)


def defer_rescoring(session: Session, submission_id: str, *, delay: timedelta = timedelta(0)) -> int:
    """Queue another score of a submission, by the scorer in force; two such jobs of one never run at once."""
    lock = f"{RESCORE_SUBMISSION}-{submission_id}"
    return defer(
        session,
        RESCORE_SUBMISSION,
        priority=RESCORING_PRIORITY,
        lock=lock,
        delay=delay,
        submission_id=submission_id,
    )


def defer_ranking(session: Session, snapshot_id: int, *, split: str, strategy: str) -> int:
    """Queue the ranks of every board of a snapshot, split and strategy, whose published submissions changed."""
    lock = f"{RANK_BOARDS}-{snapshot_id}-{split}-{strategy}"
    return defer(
        session,
        RANK_BOARDS,
        priority=RANKING_PRIORITY,
        lock=lock,
        snapshot_id=snapshot_id,
        split=split,
        strategy=strategy,
    )


def count_live_workers(session: Session, *, timeout_seconds: float) -> int:
    """Return how many scoring workers have given a sign of life within this time."""
    query = text(
        "SELECT count(*) FROM procrastinate_workers w"
        " WHERE last_heartbeat > clock_timestamp() - make_interval(secs => :timeout)"
        " AND NOT EXISTS (SELECT FROM probe_workers p WHERE p.queue_worker_id = w.id)"
    )
    return int(session.scalar(query, {"timeout": timeout_seconds}) or 0)


def has_live_worker(session: Session, *, timeout_seconds: float) -> bool:
    """Whether a scoring worker has given a sign of life within this time."""
    return count_live_workers(session, timeout_seconds=timeout_seconds) > 0


def probe_queue(engine_key: str) -> str:
    """Return the queue of the questions that a worker with this engine takes."""
    return f"{PROBE_QUESTION}-{engine_key}"


def defer_probes(
    session: Session,
    item_ids: Sequence[int],
    *,
    run_id: str,
    engine_key: str,
    priority: int,
    delay: timedelta = timedelta(0),
) -> None:
    """Queue questions of a probe run, one job each, in the order given."""
    if not item_ids:
        return
    deferrer = queue.configure_task(
        PROBE_QUESTION,
        queue=probe_queue(engine_key),
        priority=priority,
        schedule_at=datetime.now(UTC) + delay if delay else None,
    )
    waiting = [
        deferrer.job.evolve(task_kwargs={"probe_run_id": run_id, "probe_item_id": item_id}) for item_id in item_ids
    ]
    _manager.batch_defer_jobs(waiting, connection=session.connection().connection.driver_connection)


def drop_probes(session: Session, run_id: str) -> int:
    """Take the questions of a probe run off the queue, those in a worker's hands excepted; return how many."""
    query = text(
        "SELECT count(procrastinate_cancel_job_v1(id, false, true)) FROM procrastinate_jobs"
        " WHERE task_name = :task AND status = 'todo' AND args->>'probe_run_id' = :run_id"
    )
    return int(session.scalar(query, {"task": PROBE_QUESTION, "run_id": run_id}) or 0)


def prioritise_probes(session: Session, run_id: str, *, priority: int) -> None:
    """Give the questions of a probe run that wait another priority."""
    query = text(
        "UPDATE procrastinate_jobs SET priority = :priority"
        " WHERE task_name = :task AND status = 'todo' AND args->>'probe_run_id' = :run_id"
    )
    session.execute(query, {"task": PROBE_QUESTION, "run_id": run_id, "priority": priority})


def list_queued_probes(session: Session) -> set[int]:
    """Return the numbers of the questions for which a job waits."""
    query = text(
        "SELECT (args->>'probe_item_id')::bigint FROM procrastinate_jobs WHERE task_name = :task AND status = 'todo'"
    )
    return set(session.scalars(query, {"task": PROBE_QUESTION}))


def forget_lost_probes(session: Session, *, timeout_seconds: float) -> None:
    """Remove the jobs of measuring workers that fell silent; their questions are queued anew when their lease ends."""
    query = text(
        "DELETE FROM procrastinate_jobs j WHERE task_name = :task AND status = 'doing' AND NOT EXISTS"
        " (SELECT FROM procrastinate_workers w WHERE w.id = j.worker_id"
        " AND w.last_heartbeat > clock_timestamp() - make_interval(secs => :timeout))"
    )
    session.execute(query, {"task": PROBE_QUESTION, "timeout": timeout_seconds})


def run_probe_worker(
    config: Config, url: str, *, engine_key: str, context: dict[str, Any], go_on: Callable[[int], bool]
) -> None:
    """Work off the questions that wait for one engine, one at a time, until none is left or `go_on` says no.

    `go_on` is asked before and after each question, with the queue's number of this worker. Signals are the caller's
    to handle: a question under way when one comes is finished first.
    """

    def ask(call_next: Callable[[], Any], _: JobContext, worker: Worker) -> Any:
        assert worker.worker_id is not None
        if not go_on(worker.worker_id):
            # The question still waits; whoever looks after the queue finds it without a job and queues it again.
            worker.stop()  # type: ignore[no-untyped-call]
            return None
        result = call_next()
        if not go_on(worker.worker_id):
            worker.stop()  # type: ignore[no-untyped-call]
        return result

    connector = PsycopgConnector(conninfo=conninfo(url), min_size=1, max_size=4, kwargs={"application_name": "otboard"})
    with queue.replace_connector(connector) as app:
        app.run_worker(
            queues=[probe_queue(engine_key)],
            wait=False,
            concurrency=1,
            delete_jobs="always",
            update_heartbeat_interval=config.heartbeat_timeout_seconds / 3,
            stalled_worker_timeout=config.heartbeat_timeout_seconds,
            additional_context=context,
            install_signal_handlers=False,
            task_middleware=[ask],
        )


async def retry_stalled_jobs(timeout_seconds: float) -> int:
    """Put the jobs of workers that fell silent back on the queue; return how many.

    A worker killed in mid-job leaves the job marked as being done. Its heartbeat stops: so the job is found.
    """
    n_retried = 0
    for job in await queue.job_manager.get_stalled_jobs(seconds_since_heartbeat=timeout_seconds):
        try:
            await queue.job_manager.retry_job(job)
        except ConnectorException:
            # Another worker found it too and was faster, or its own worker finished it after all.
            continue
        n_retried += 1
        logger.warning("job %s of a silent worker goes back on the queue: %s", job.id, job.call_string)
    return n_retried


def run_worker(config: Config, url: str, *, context: dict[str, Any], wait: bool = True) -> None:
    """Work off jobs until told to stop by SIGINT or SIGTERM; without `wait`, until the queue is empty.

    `context` is handed to every task as ``context.additional_context``. Jobs are blocking code in a thread of their
    own, one at a time, so that the heartbeat goes on beside them; more at once means more worker processes.
    """
    connector = PsycopgConnector(conninfo=conninfo(url), min_size=1, max_size=4, kwargs={"application_name": "otboard"})
    with queue.replace_connector(connector) as app:
        app.run_worker(
            wait=wait,
            queues=list(SCORING_QUEUES),
            concurrency=1,
            delete_jobs="successful",
            update_heartbeat_interval=config.heartbeat_timeout_seconds / 3,
            stalled_worker_timeout=config.heartbeat_timeout_seconds,
            additional_context=context,
            install_signal_handlers=wait,
        )
