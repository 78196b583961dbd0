"""What the jobs on the queue do."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from typing import Any

from procrastinate import JobContext
from procrastinate.exceptions import AlreadyEnqueued
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.evaluator.strategies import Strategy
from app.services import (
    analyses,
    bootstrap,
    interval_parts,
    intervals,
    jobs,
    losses,
    probe_items,
    ranks,
    rescoring_jobs,
    scoring,
    snapshot_imports,
    snapshots,
)
from app.services.uploads import remove_orphans

logger = logging.getLogger(__name__)

REAP_PRIORITY = 100
REAP_EVERY_SECONDS = 10
SWEEP_EVERY_SECONDS = 3600
KEEP_JOBS_HOURS = 24 * 7
ACTOR = f"worker {socket.gethostname()}:{os.getpid()}"


def make_context(config: Config, sessions: sessionmaker[Session]) -> dict[str, Any]:
    """Return what every task needs of its worker."""
    return {"config": config, "sessions": sessions}


@jobs.queue.task(name=jobs.SCORE_SUBMISSION, queue=jobs.SCORE_SUBMISSION, pass_context=True)
def score_submission(context: JobContext, *, submission_id: str) -> None:
    """Score a submission."""
    needs = context.additional_context
    scoring.score_submission(needs["sessions"], submission_id, config=needs["config"], actor=ACTOR)


@jobs.queue.task(name=jobs.PREPARE_SNAPSHOT, queue=jobs.PREPARE_SNAPSHOT, pass_context=True)
def prepare_snapshot(context: JobContext, *, snapshot_id: int, split: str) -> None:
    """Compute the frontiers and figures of a frozen snapshot's split."""
    needs = context.additional_context
    snapshots.prepare_split(needs["sessions"], snapshot_id, split=split, data_dir=needs["config"].data_dir)
    with needs["sessions"].begin() as session:
        snapshot = session.get_one(models.Snapshot, snapshot_id)
        bootstrap.begin_bootstrap(session, snapshot, split=split, config=needs["config"])
        analyses.begin_analyses(session, snapshot, split=split)


@jobs.queue.task(name=jobs.ANALYSE_SPLIT, queue=jobs.ANALYSE_SPLIT, pass_context=True)
def analyse_split(context: JobContext, *, snapshot_id: int, split: str) -> None:
    """Compute some seconds' worth of the analyses of a frozen snapshot's split."""
    needs = context.additional_context
    analyses.run_slice(needs["sessions"], snapshot_id, split=split, config=needs["config"])


@jobs.queue.task(name=jobs.BOOTSTRAP_SPLIT, queue=jobs.BOOTSTRAP_SPLIT, pass_context=True)
def bootstrap_split(context: JobContext, *, snapshot_id: int, split: str) -> None:
    """Compute some seconds' worth of a split's bootstrap replicates."""
    needs = context.additional_context
    bootstrap.run_slice(needs["sessions"], snapshot_id, split=split, config=needs["config"])


@jobs.queue.task(name=jobs.RESAMPLE_SUBMISSION, queue=jobs.RESAMPLE_SUBMISSION, pass_context=True)
def resample_submission(context: JobContext, *, submission_id: str) -> None:
    """Compute some seconds' worth of the intervals of a scored submission."""
    needs = context.additional_context
    intervals.resample_submission(needs["sessions"], submission_id, config=needs["config"])


@jobs.queue.task(name=jobs.RESCORE_SUBMISSION, queue=jobs.RESCORE_SUBMISSION, pass_context=True)
def rescore_submission(context: JobContext, *, submission_id: str) -> None:
    """Give a submission another score by the scorer in force."""
    needs = context.additional_context
    rescoring_jobs.rescore_submission(needs["sessions"], submission_id, config=needs["config"])


@jobs.queue.task(name=jobs.IMPORT_SNAPSHOT, queue=jobs.IMPORT_SNAPSHOT, pass_context=True)
def import_snapshot(context: JobContext, *, import_id: int) -> None:
    """Check and import a snapshot that was handed in over the web."""
    needs = context.additional_context
    snapshot_imports.run_import(needs["sessions"], import_id, config=needs["config"])


@jobs.queue.task(name=jobs.KEEP_STOPS, queue=jobs.KEEP_STOPS, pass_context=True)
def keep_stops(context: JobContext, *, submission_id: str) -> None:
    """Keep where a scored submission stops."""
    needs = context.additional_context
    losses.keep_stops(needs["sessions"], submission_id, config=needs["config"])


@jobs.queue.task(name=jobs.RANK_BOARDS, queue=jobs.RANK_BOARDS, pass_context=True)
def rank_boards(context: JobContext, *, snapshot_id: int, split: str, strategy: str) -> None:
    """Rank the boards of a snapshot, split and strategy."""
    sessions: sessionmaker[Session] = context.additional_context["sessions"]
    ranks.rank_boards(sessions, snapshot_id, split=split, strategy=Strategy(strategy))


@jobs.queue.periodic(cron=jobs.REAP_CRON)
@jobs.queue.task(name=jobs.REAP, queue=jobs.REAP, queueing_lock=jobs.REAP, priority=REAP_PRIORITY, pass_context=True)
async def reap(context: JobContext, timestamp: int) -> None:
    """Take up what dead workers left, and remove files that no submission refers to."""
    config: Config = context.additional_context["config"]
    sessions: sessionmaker[Session] = context.additional_context["sessions"]
    await jobs.retry_stalled_jobs(config.heartbeat_timeout_seconds)
    await asyncio.to_thread(_reap, config, sessions)
    if timestamp % SWEEP_EVERY_SECONDS < REAP_EVERY_SECONDS:
        await asyncio.to_thread(_sweep, config, sessions)
        await jobs.queue.job_manager.delete_old_jobs(
            nb_hours=KEEP_JOBS_HOURS, include_failed=True, include_cancelled=True, include_aborted=True
        )


def defer_reaping(sessions: sessionmaker[Session]) -> None:
    """Queue a look after what dead workers left, which a worker that starts does first of all."""
    try:
        with sessions.begin() as session:
            bootstrap.forget_failures(session)
            jobs.defer(session, jobs.REAP, priority=REAP_PRIORITY, timestamp=int(time.time()))
    except AlreadyEnqueued:
        logger.debug("a reaper waits already")


def _reap(config: Config, sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        moved = scoring.reap_submissions(session, config=config)
        bootstrap.begin_missing(session, config=config)
        analyses.begin_missing(session)
    if moved:
        logger.warning("%d overdue submissions were moved on", moved)
    with sessions.begin() as session:
        overdue = rescoring_jobs.reap_rescorings(session, config=config)
        n_imports = snapshot_imports.reap_imports(session, config=config)
    if overdue or n_imports:
        logger.warning("%d overdue submissions of re-scorings and %d imports were moved on", overdue, n_imports)
    with sessions.begin() as session:
        queued = probe_items.reap_items(session, config=config)
    if queued:
        logger.warning("%d questions of probe runs were taken back or queued again", queued)


def _sweep(config: Config, sessions: sessionmaker[Session]) -> None:
    with sessions.begin() as session:
        removed = remove_orphans(session, data_dir=config.data_dir)
        swept = interval_parts.sweep_parts(session, data_dir=config.data_dir)
    if removed:
        logger.info("removed %d uploaded files that no submission refers to", removed)
    if swept:
        logger.info("removed what was left of the intervals of %d submissions", swept)
