"""Requests that come at once share a look at the database, and none sees a state older than itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from sqlalchemy.exc import OperationalError

from app.services.shown_changes import ShownState
from app.web import shown_state
from app.web.shown_state import StateReader


class Database:
    """Answers when told to, with how often it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.n_asked = 0
        self.may_answer = asyncio.Event()
        self.error: Exception | None = None
        monkeypatch.setattr(shown_state, "run_in_threadpool", self.answer)

    async def answer(self, *_: Any) -> ShownState:
        self.n_asked += 1
        number = self.n_asked
        await self.may_answer.wait()
        if self.error is not None:
            raise self.error
        return ShownState(1, number, number)


def test_a_request_never_gets_the_state_of_a_query_that_began_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> tuple[list[int], int]:
        database, reader = Database(monkeypatch), StateReader()
        sessions: Any = None
        first = asyncio.create_task(reader.read(sessions))
        await asyncio.sleep(0.01)
        assert database.n_asked == 1
        later = [asyncio.create_task(reader.read(sessions)) for _ in range(20)]
        await asyncio.sleep(0.01)
        later[7].cancel()
        database.may_answer.set()
        found = [(await one).n_changes for one in (first, *later[:7], *later[8:])]
        last = (await reader.read(sessions)).n_changes
        return [*found, last], database.n_asked

    found, n_asked = asyncio.run(ask())
    assert found == [1, *[2] * 19, 3]
    assert n_asked == 3


def test_an_error_reaches_all_who_wait_and_the_next_one_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        database, reader = Database(monkeypatch), StateReader()
        sessions: Any = None
        database.error = OperationalError("SELECT", None, Exception("away"))
        database.may_answer.set()
        for found in await asyncio.gather(*(reader.read(sessions) for _ in range(3)), return_exceptions=True):
            assert isinstance(found, OperationalError)
        database.error = None
        assert (await reader.read(sessions)).n_changes == 2

    asyncio.run(ask())
