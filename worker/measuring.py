"""A process that measures models: it loads an engine and works off the questions that wait for it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from types import FrameType

import psycopg
from procrastinate import JobContext
from procrastinate.exceptions import ConnectorException
from sqlalchemy.exc import OperationalError, SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db.embedded import open_database
from app.db.migrations import upgrade_database
from app.db.session import make_engine, session_factory
from app.errors import AppError
from app.files.profiles import Profile
from app.services import jobs, probe_items
from app.services.probe_items import Lease, Work
from app.services.probe_records import LostItemError, QuestionRecord
from worker.generation import Engine, EngineError
from worker.probing import AnswerGrader, measure_question
from worker.prompts import PromptBuilder

logger = logging.getLogger(__name__)

POLL_SECONDS = 2.0
OUTAGE_SECONDS = 5.0
OUTAGES = (OperationalError, ConnectorException, psycopg.OperationalError)
# A finished question is worth hours of a GPU: it is not given up because the database restarts.
RECORD_PAUSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)

OpenEngine = Callable[[Profile], Engine]
OpenPrompts = Callable[[Profile], PromptBuilder]
OpenGrader = Callable[[], AbstractContextManager[AnswerGrader]]


@dataclass(frozen=True)
class Equipment:
    """How a worker gets what it measures with.

    Attributes
    ----------
    open_engine : loads the engine of a profile.
    open_prompts : reads the tokenizer of a profile, and builds prompts with it.
    open_grader : starts what judges answers, for as long as the worker lives.
    versions : what is known of the code that measures.
    """

    open_engine: OpenEngine
    open_prompts: OpenPrompts
    open_grader: OpenGrader
    versions: dict[str, str] = field(default_factory=dict)


class Heart:
    """Gives signs of life in a thread: of the worker always, and of the question in its hands.

    It also looks after what dead workers left, so that measuring goes on where no scoring worker runs.
    """

    def __init__(self, sessions: sessionmaker[Session], config: Config, *, actor: str) -> None:
        self._sessions = sessions
        self._config = config
        self._actor = actor
        self._lease: Lease | None = None
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._beat_on, name="heart", daemon=True)
        # Set where the question in hand is no longer this worker's, or is to be put down.
        self.must_drop = threading.Event()

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat for as long as the block lasts."""
        self._thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            self._thread.join()

    @contextmanager
    def holding(self, lease: Lease) -> Iterator[None]:
        """Renew a lease for as long as the block lasts."""
        self._lease = lease
        try:
            yield
        finally:
            self._lease = None

    def _beat_on(self) -> None:
        while not self._is_over.wait(self._config.heartbeat_timeout_seconds / 3):
            try:
                self._beat()
            except SQLAlchemyError as exc:
                # The next one may succeed; without any the question goes to another worker.
                logger.warning("no sign of life could be given: %s", exc)

    def _beat(self) -> None:
        lease = self._lease
        with self._sessions.begin() as session:
            probe_items.renew_worker(session, self._actor)
            is_lost = lease is not None and not probe_items.renew_lease(session, lease, config=self._config)
        # A lease that ended between these lines is not lost.
        if is_lost and self._lease is lease:
            self.must_drop.set()
        with self._sessions.begin() as session:
            probe_items.reap_items(session, config=self._config)


class MeasuringWorker:
    """One process with at most one engine; `run` works until it is stopped, or until nothing is left to do."""

    def __init__(
        self,
        config: Config,
        url: str,
        *,
        sessions: sessionmaker[Session],
        equipment: Equipment,
        actor: str,
        model: str | None = None,
    ) -> None:
        self._config = config
        self._url = url
        self._sessions = sessions
        self._equipment = equipment
        self._actor = actor
        self._model = model
        self._heart = Heart(sessions, config, actor=actor)
        self._stopping = threading.Event()
        self._engine: Engine | None = None
        self._engine_key: str | None = None
        self._is_broken = False
        self._is_hurried = False
        self._grader: AnswerGrader | None = None
        self._prompts: dict[str, PromptBuilder] = {}
        self._n_taken = 0

    def run(self, *, until_idle: bool = False) -> None:
        """Measure until told to stop; `until_idle`: until no running run of its model has anything left."""
        with self._handling_signals(), self._heart.beating(), self._equipment.open_grader() as grader:
            self._grader = grader
            try:
                self._work(until_idle)
            finally:
                self._close_engine()
                with contextlib.suppress(OperationalError), self._sessions.begin() as session:
                    probe_items.dismiss_worker(session, self._actor)

    def measure(self, item_id: int) -> None:
        """Measure one question and record it; what goes wrong is noted with the question, which is tried again."""
        with self._sessions.begin() as session:
            lease = probe_items.lease_item(session, item_id, actor=self._actor, config=self._config)
        if lease is None:
            return
        self._n_taken += 1
        self._heart.must_drop.clear()
        label = f"{lease.question.benchmark} / {lease.question.question_id} of {lease.run_name}"
        logger.info("measuring %s, attempt %d", label, lease.attempt)
        try:
            with self._heart.holding(lease):
                record = self._measure(lease)
                self._record(lease, record)
        except LostItemError:
            self._put_down(lease)
            logger.warning("%s was put down", label)
        except Exception as exc:
            self._is_broken = isinstance(exc, EngineError)
            logger.exception("%s could not be measured", label)
            with self._sessions.begin() as session:
                probe_items.fail_item(session, lease, reason=_describe(exc))
        else:
            taken = record.accounting
            logger.info("measured %s: %.1f s, %d tokens generated", label, taken.seconds, taken.generated_tokens)

    def _put_down(self, lease: Lease) -> None:
        """Give a question back that was not finished; nothing happens where it is no longer this worker's."""
        with self._sessions.begin() as session:
            if self._is_hurried:
                probe_items.return_item(session, lease)
            else:
                # Neither taken away nor cancelled: then its time was over.
                reason = f"it took more than {lease.protocol.question_seconds} seconds"
                probe_items.fail_item(session, lease, reason=reason)

    def _work(self, until_idle: bool) -> None:
        self._reap()
        while not self._stopping.is_set():
            try:
                if not self._take_turn() and until_idle and not self._is_work_left():
                    return
            except OUTAGES as exc:
                # A loaded engine is worth waiting for the database.
                logger.warning("the database does not answer: %s", str(exc).strip() or type(exc).__name__)
                self._stopping.wait(OUTAGE_SECONDS)

    def _take_turn(self) -> bool:
        """Work off what waits for one engine; return whether there was anything, and wait a little where not."""
        work = self._choose()
        if work is None:
            self._stopping.wait(POLL_SECONDS)
            return False
        self._prepare(work)
        n_before = self._n_taken
        context = {"worker": self}
        jobs.run_probe_worker(self._config, self._url, engine_key=work.engine_key, context=context, go_on=self._goes_on)
        if self._n_taken == n_before and not self._stopping.wait(POLL_SECONDS / 10):
            # A question without a job, which a worker that was killed at the wrong moment leaves.
            self._reap()
        return True

    def _reap(self) -> None:
        with self._sessions.begin() as session:
            probe_items.reap_items(session, config=self._config)

    def _is_work_left(self) -> bool:
        with self._sessions.begin() as session:
            return probe_items.is_work_left(session, model=self._model)

    def _choose(self) -> Work | None:
        """Return what to work on next: the most urgent; of equals what the loaded engine can do."""
        with self._sessions.begin() as session:
            best = probe_items.find_work(session, model=self._model)
            if best is None or self._engine_key in (None, best.engine_key):
                return best
            own = probe_items.find_work(session, model=self._model, engine_key=self._engine_key)
        return own if own is not None and own.priority >= best.priority else best

    def _goes_on(self, queue_worker_id: int) -> bool:
        """Whether to take another question for the loaded engine."""
        with self._sessions.begin() as session:
            probe_items.renew_worker(session, self._actor, queue_worker_id=queue_worker_id)
        if self._stopping.is_set() or self._is_broken:
            return False
        best = self._choose()
        return best is None or best.engine_key == self._engine_key

    def _prepare(self, work: Work) -> None:
        """Load the engine that the work needs, unless it is loaded."""
        if self._engine is not None and self._engine_key == work.engine_key and not self._is_broken:
            return
        self._close_engine()
        self._announce(work, {})
        logger.info("loading the engine of %s", work.profile.name)
        self._engine = self._equipment.open_engine(work.profile)
        self._engine_key = work.engine_key
        self._announce(work, self._describe())

    def _announce(self, work: Work, versions: dict[str, str]) -> None:
        with self._sessions.begin() as session:
            probe_items.announce_worker(
                session, self._actor, model=work.profile.name, engine_key=work.engine_key, versions=versions
            )

    def _close_engine(self) -> None:
        if self._engine is not None:
            self._engine.close()
        self._engine = self._engine_key = None
        self._is_broken = False

    def _measure(self, lease: Lease) -> QuestionRecord:
        assert self._engine is not None
        assert self._grader is not None
        return measure_question(
            self._engine,
            self._find_prompts(lease),
            self._grader,
            question=lease.question,
            protocol=lease.protocol,
            instruction=lease.instruction,
            direct_instruction=lease.direct_instruction,
            progress=self._note_progress,
            worker=self._equipment.versions,
        )

    def _record(self, lease: Lease, record: QuestionRecord) -> None:
        for pause in (*RECORD_PAUSES, None):
            try:
                with self._sessions.begin() as session:
                    probe_items.record_question(session, lease, record)
            except OperationalError as exc:
                if pause is None:
                    raise
                logger.warning("the question could not be recorded yet: %s", str(exc.orig).strip())
                time.sleep(pause)
            else:
                return

    def _find_prompts(self, lease: Lease) -> PromptBuilder:
        """Return the prompt builder of a run; the last one is kept, since reading a vocabulary takes seconds."""
        if lease.run_id not in self._prompts:
            self._prompts = {lease.run_id: self._equipment.open_prompts(lease.profile)}
        return self._prompts[lease.run_id]

    def _describe(self) -> dict[str, str]:
        assert self._engine is not None
        return {**self._equipment.versions, **self._engine.describe()}

    def _note_progress(self, what: str, n_done: int, n_all: int) -> None:
        logger.debug("%s: %d of %d", what, n_done, n_all)
        if self._heart.must_drop.is_set():
            raise LostItemError("The question is to be put down.")

    @contextmanager
    def _handling_signals(self) -> Iterator[None]:
        """Stop at SIGINT or SIGTERM when the question in hand is done; at the second one put it down."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def stop(number: int, _: FrameType | None) -> None:
            if self._stopping.is_set():
                self._is_hurried = True
                self._heart.must_drop.set()
            else:
                logger.info("stopping when the question in hand is done; a second signal puts it down at once")
            self._stopping.set()

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def run_probe_worker(
    config: Config, *, equipment: Equipment, model: str | None = None, until_idle: bool = False
) -> None:
    """Measure the questions of running probe runs until SIGINT or SIGTERM.

    Parameters
    ----------
    model : takes runs of this model only; None takes them all, and loads another engine when a run needs it.
    until_idle : ends when no running run of the model has a question left that is not done or failed.
    """
    with open_database(config) as url:
        engine = make_engine(url, pool_size=config.database_pool_size)
        try:
            upgrade_database(engine)
            sessions = session_factory(engine)
            worker = MeasuringWorker(
                config, url, sessions=sessions, equipment=equipment, actor=name_actor(), model=model
            )
            worker.run(until_idle=until_idle)
        finally:
            engine.dispose()


def name_actor() -> str:
    """Return what this process is called in logs and on pages: its machine and its number."""
    return f"worker {socket.gethostname()}:{os.getpid()}"


@jobs.queue.task(name=jobs.PROBE_QUESTION, queue=jobs.PROBE_QUESTION, pass_context=True)
def probe_question(context: JobContext, *, probe_run_id: str, probe_item_id: int) -> None:
    """Measure one question of a probe run."""
    worker: MeasuringWorker = context.additional_context["worker"]
    worker.measure(probe_item_id)


def _describe(error: Exception) -> str:
    if isinstance(error, MemoryError):
        return "the worker ran out of memory"
    if isinstance(error, AppError):
        return error.detail
    return f"{type(error).__name__}: {error}"
