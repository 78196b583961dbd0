"""Processes that work off the job queue: on this machine, or anywhere with the same database and data folder."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from collections.abc import Sequence

from app.config import Config, load_config
from app.db.embedded import open_database
from app.db.migrations import upgrade_database
from app.db.session import make_engine, session_factory
from app.errors import AppError
from app.log import configure_logging
from app.processes import Child, Supervisor, stop_with_parent
from app.services import jobs
from worker import tasks

# Its own name also where the module is run as a program.
logger = logging.getLogger("worker.main")

UNREACHABLE_STATUS = 3


def run_scoring_worker(config: Config, *, concurrency: int = 1, until_idle: bool = False) -> None:
    """Score submissions until SIGINT or SIGTERM; `until_idle`: until no job is left.

    A job that is under way at a signal is finished first. One that is killed is taken up again by another worker.
    More than one at once are more processes, since scoring is arithmetic that keeps a core busy; they read their
    configuration from the environment.
    """
    if concurrency > 1:
        _run_processes(config, concurrency)
        return
    with open_database(config) as url:
        engine = make_engine(url, pool_size=config.database_pool_size)
        upgrade_database(engine)
        sessions = session_factory(engine)
        tasks.defer_reaping(sessions)
        context = tasks.make_context(config, sessions)
        logger.info("working off jobs as %s", tasks.ACTOR)
        try:
            jobs.run_worker(config, url, context=context, wait=not until_idle)
        finally:
            engine.dispose()


def worker_command() -> list[str]:
    """Return the command that runs one worker as a child which ends with its parent."""
    return [sys.executable, "-m", "worker.main", "--stop-with-parent"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a worker with the configuration of the environment; this is what child processes start."""
    parser = argparse.ArgumentParser(prog="python -m worker.main", description=main.__doc__)
    parser.add_argument("--stop-with-parent", action="store_true", help="stop when standard input ends")
    parser.add_argument("--until-idle", action="store_true", help="stop when no job is left")
    chosen = parser.parse_args(arguments)
    if chosen.stop_with_parent:
        stop_with_parent()
    try:
        config = load_config()
        configure_logging(config.log_level)
        run_scoring_worker(config, until_idle=chosen.until_idle)
    except AppError as exc:
        logger.error("%s", exc.detail)
        return UNREACHABLE_STATUS
    return 0


def _run_processes(config: Config, n_processes: int) -> None:
    children = [
        Child(f"worker {number}", worker_command(), restart=lambda status: status != 0)
        for number in range(1, n_processes + 1)
    ]
    supervisor = Supervisor(children)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    supervisor.start()
    try:
        supervisor.wait()
    finally:
        supervisor.stop()


if __name__ == "__main__":
    sys.exit(main())
