"""Answers that are kept for readers who are not signed in: while they are right, in every process, and no longer."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from sqlalchemy import Engine, event, text
from starlette.datastructures import Headers

from app.evaluator.strategies import Strategy
from app.services.shown_changes import ShownState, read_shown_state
from app.web.kept_pages import MOST_BYTES, MOST_BYTES_EACH, MOST_SECONDS, Asked, Kept, KeptPages, find_asked
from tests.signing_in import session_cookie
from tests.web.conftest import _serve

BOARD = "/?snapshot=small&split=test&strategy=dynamic_early_exit"
OTHER_BOARD = "snapshot=small&split=test&strategy=dynamic_routing"
# What no board shows, though it is read to find out who asks.
ELSEWHERE = {"shown_changes"}


def test_an_answer_is_given_again_and_a_reader_who_has_it_is_told_so(site: Any) -> None:
    first, second = site.get(BOARD), site.get(BOARD)
    assert first.content == second.content
    etag = first.headers["ETag"]
    assert second.headers["ETag"] == etag
    again = site.get(BOARD, headers={"If-None-Match": etag})
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    assert again.headers["Content-Security-Policy"] == first.headers["Content-Security-Policy"]
    assert site.get(BOARD, headers={"If-None-Match": '"old"'}).status_code == 200
    plain = site.get(BOARD, headers={"Accept-Encoding": "identity"})
    assert plain.text == first.text
    # A strong tag promises the same bytes, and compressed ones are others.
    assert plain.headers["ETag"] != etag


def test_what_one_process_changes_no_other_one_shows_as_it_was(site: Any) -> None:
    rest = f"/api/v1/leaderboard?{OTHER_BOARD}"
    actions = "model,benchmark,question_id,action\n" + "".join(
        f"{cell.model},{cell.benchmark},{question},1\n"
        for cell in site.measurements.select("test").cells
        for question in cell.question_ids
    )
    with _serve(site.config) as other:
        addresses = (site.url, other)
        before = [httpx.get(address + rest).json()["rows"] for address in addresses]
        submission_id = site.submit(actions.encode(), method="kept or not", strategy=Strategy.DYNAMIC_ROUTING)
        site.score(submission_id)
        assert [httpx.get(address + rest).json()["rows"] for address in addresses] == before
        site.publish(submission_id)
        for address in addresses:
            rows = httpx.get(address + rest).json()["rows"]
            assert submission_id in {row["submission_id"] for row in rows}
            assert "kept or not" in httpx.get(f"{address}/?{OTHER_BOARD}").text


def test_whoever_is_known_never_gets_what_is_kept(site: Any) -> None:
    assert "Sign in" in site.get(BOARD).text
    page = site.get(BOARD, cookies=session_cookie(site.sessions, site.config))
    assert "Sign out" in page.text
    assert "ETag" not in page.headers
    assert "Sign out" not in site.get(BOARD).text
    for name, value in (("cookie", "a=b"), ("authorization", "Bearer otb_x")):
        assert find_asked(_scope(headers=[(name.encode(), value.encode())])) is None
    assert find_asked(_scope(method="POST")) is None
    assert find_asked(_scope(path="/submissions")) is None


def test_csv_and_views_have_answers_of_their_own(site: Any) -> None:
    rest = "/api/v1/leaderboard" + BOARD[1:]
    assert httpx.get(site.url + rest).headers["Content-Type"] == "application/json"
    csv = httpx.get(site.url + rest, headers={"Accept": "text/csv"})
    assert csv.headers["Content-Type"].startswith("text/csv")
    assert site.get(f"{BOARD}&sort=area").content != site.get(BOARD).content
    # What went wrong is not kept.
    assert "ETag" not in site.get(f"{BOARD}&sort=luck").headers


def test_every_table_that_the_kept_answers_are_made_of_notes_its_changes(site: Any) -> None:
    with site.sessions() as session:
        noting = set(
            session.scalars(text("SELECT tgrelid::regclass::text FROM pg_trigger WHERE tgname = 'note_update'"))
        )
    rows = site.get_json("/leaderboard" + BOARD[1:])["rows"]
    ids = [row["submission_id"] for row in rows]
    asked: list[str] = []

    def read(*arguments: Any) -> None:
        asked.append(arguments[2])

    event.listen(Engine, "before_cursor_execute", read)
    try:
        view = f"{BOARD[1:]}&by=model&intervals=1&axis=log&open={ids[0]}&pin={ids[1]}&x=tables"
        for path in (
            "/",
            "/figures/board",
            f"/board-rows/{ids[0]}",
            "/api/v1/leaderboard",
            "/api/v1/leaderboard/curves",
        ):
            assert httpx.get(site.url + path + view, timeout=60).status_code == 200
        for path in ("/compare", "/api/v1/compare"):
            answer = httpx.get(f"{site.url}{path}?submissions={ids[0]},{ids[1]}&x=tables", timeout=60)
            assert answer.status_code == 200
    finally:
        event.remove(Engine, "before_cursor_execute", read)
    tables = {name for statement in asked for name in re.findall(r"\b(?:FROM|JOIN) ([a-z_]+)\b", statement)}
    known = tables & _list_tables(site)
    assert {"submissions", "board_scores", "board_ranks", "methods"} <= known
    assert known - noting - ELSEWHERE == set()


def test_a_change_is_noted_when_it_is_seen_and_not_before(site: Any) -> None:
    def read() -> ShownState:
        with site.sessions() as session:
            return read_shown_state(session)

    before = read()
    with site.sessions() as session:
        session.execute(text("UPDATE teams SET name = name"))
        assert read() == before
        session.rollback()
    assert read() == before
    with site.sessions.begin() as session:
        session.execute(text("UPDATE teams SET name = name"))
    assert read() != before


def test_no_more_is_kept_than_there_is_room_for_and_nothing_for_long() -> None:
    now = [0.0]
    pages = KeptPages(_fail, clock=lambda: now[0])
    state = ShownState(1, 2, 2)
    answer = Kept(state, 0.0, 200, Headers(), bytes(MOST_BYTES_EACH))
    asked = [Asked("http", "host", "/", str(number).encode(), False, True) for number in range(40)]
    for one in asked:
        pages.keep(one, answer)
        pages.keep(one, answer)
    assert pages.n_bytes <= MOST_BYTES
    assert pages.n_bytes == sum(kept.n_bytes for kept in pages.kept.values())
    assert pages.find(asked[0], state) is None
    assert pages.find(asked[-1], state) is answer
    assert pages.find(asked[-1], ShownState(1, 3, 3)) is None
    now[0] = MOST_SECONDS + 1
    assert pages.find(asked[-1], state) is None


def _scope(*, path: str = "/", method: str = "GET", headers: list[tuple[bytes, bytes]] | None = None) -> dict[str, Any]:
    named = {"type": "http", "scheme": "http", "query_string": b"", "path": path, "method": method}
    return {**named, "headers": headers or []}


def _list_tables(site: Any) -> set[str]:
    with site.sessions() as session:
        return set(session.scalars(text("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")))


async def _fail(*_: Any) -> None:
    pytest.fail("nothing is asked")
