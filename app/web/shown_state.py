"""The state of what boards show, read from the database for all requests that wait for it at once."""

from __future__ import annotations

import asyncio

from sqlalchemy.orm import Session, sessionmaker
from starlette.concurrency import run_in_threadpool

from app.services.shown_changes import ShownState, read_shown_state


class StateReader:
    """Reads the state with one query at a time, however many requests ask.

    A request gets what a query found that began after the request had come, so that it never sees a state older than
    itself; those that come while a query runs share the next one.
    """

    def __init__(self) -> None:
        self._next: asyncio.Future[ShownState] | None = None
        self._reading: asyncio.Task[None] | None = None

    async def read(self, sessions: sessionmaker[Session]) -> ShownState:
        """Return the state of now, or a later one.

        Raises
        ------
        SQLAlchemyError : the database cannot be read.
        """
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        asked = self._next
        if self._reading is None:
            self._reading = asyncio.create_task(self._read_all(sessions))
        # A client that goes away must not take the answer from the others.
        return await asyncio.shield(asked)

    async def _read_all(self, sessions: sessionmaker[Session]) -> None:
        try:
            while self._next is not None:
                asked, self._next = self._next, None
                try:
                    asked.set_result(await run_in_threadpool(_read, sessions))
                except Exception as error:
                    asked.set_exception(error)
                    # Whoever asked may be gone; then nobody would take the error.
                    asked.exception()
        finally:
            self._reading = None


def _read(sessions: sessionmaker[Session]) -> ShownState:
    with sessions() as session:
        # One statement needs no transaction, whose beginning and end would be two more journeys.
        session.connection(execution_options={"isolation_level": "AUTOCOMMIT"})
        return read_shown_state(session)
