"""The allowance over REST, and what an organiser decides about hidden splits."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from app.client import Client
from app.db import models
from tests.api.conftest import Board


def test_the_allowance_is_told_and_its_end_in_seconds(board: Board) -> None:
    made = board.me.put("/api/v1/snapshots/small/allowance", json={"open_per_day": 1})
    assert made.status_code == 204, made.text
    before = board.me.get("/api/v1/me/allowance", params={"snapshot": "small"}).json()
    assert before["open_day"] == {"limit": 1, "used": 0, "left": 1, "next_at": None}
    assert before["hidden_splits"] == []
    board.submit(board.write())
    refused = board.send(board.write("uninformed"))
    assert (refused.status_code, refused.json()["code"]) == (429, "allowance_spent")
    waiting = int(refused.headers["Retry-After"])
    assert 24 * 3600 - 60 < waiting <= 24 * 3600
    after = board.me.get("/api/v1/me/allowance", params={"snapshot": "small"}).json()
    assert (after["open_day"]["used"], after["open_day"]["left"]) == (1, 0)
    told = datetime.fromisoformat(after["open_day"]["next_at"])
    assert abs(told - datetime.now(UTC) - timedelta(seconds=waiting)) < timedelta(seconds=60)
    with Client(str(board.me.base_url), board.token) as client:
        assert client.get_allowance("small")["open_day"] == after["open_day"]
    page = board.me.get("/submit?snapshot=small", headers={"Accept": "text/html"}).text
    assert "1 of 1 used" in page
    with board.sessions.begin() as session:
        audit = session.scalars(select(models.AuditEvent)).all()[-1]
        assert (audit.action, audit.subject) == ("set_allowance", "snapshot small")
        assert audit.details == {"team_id": None, "open_per_day": 1}


def test_who_may_ask_and_decide(board: Board) -> None:
    assert board.reader.get("/api/v1/me/allowance", params={"snapshot": "small"}).status_code == 401
    unknown = board.me.get("/api/v1/me/allowance", params={"snapshot": "none"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_snapshot")
    address = "/api/v1/snapshots/small/allowance"
    assert board.reader.put(address, json={}).status_code == 401
    assert board.stranger.put(address, json={"hidden_total": 1000}).status_code == 403
    assert board.me.put(address, json={"hidden_total": -1}).status_code == 422
    assert board.me.put(address, json={"per_week": 1}).status_code == 422
    nobody = board.me.put(address, json={"team": "nobody", "hidden_total": 1})
    assert (nobody.status_code, nobody.json()["code"]) == (404, "unknown_team")
    submission_id = board.submit(board.write())
    release = f"/api/v1/submissions/{submission_id}/release"
    assert board.reader.post(release).status_code == 401
    assert board.stranger.post(release).status_code == 403
    nothing = board.me.post(release)
    assert (nothing.status_code, nothing.json()["code"]) == (409, "wrong_state")
    assert board.me.post("/api/v1/submissions/abcdefghijkl/release").status_code == 404
