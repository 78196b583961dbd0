"""The allowance over REST, and who may release what is withheld."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from app.client import Client
from app.client_results import Meter
from app.services.allowance import set_limits
from app.services.snapshots import get_snapshot
from tests.api.conftest import Board


def test_the_allowance_is_told_and_its_end_in_seconds(board: Board) -> None:
    with board.sessions.begin() as session:
        set_limits(session, get_snapshot(session, "small"), team_id=None, limits={"open_per_day": 1})
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
        allowance = client.get_allowance("small")
        assert (allowance.snapshot, allowance.hidden_splits) == ("small", ())
        assert allowance.open_day == Meter(limit=1, used=1, left=0, next_at=told)
        assert allowance.rejected_day == Meter(limit=50, used=0, left=50, next_at=None)
    page = board.me.get("/submit?snapshot=small", headers={"Accept": "text/html"}).text
    assert "1 of 1 used" in page


def test_who_may_ask_and_decide(board: Board) -> None:
    assert board.reader.get("/api/v1/me/allowance", params={"snapshot": "small"}).status_code == 401
    unknown = board.me.get("/api/v1/me/allowance", params={"snapshot": "none"})
    assert (unknown.status_code, unknown.json()["code"]) == (404, "unknown_snapshot")
    submission_id = board.submit(board.write())
    release = f"/api/v1/submissions/{submission_id}/release"
    assert board.reader.post(release).status_code == 401
    assert board.stranger.post(release).status_code == 403
    nothing = board.me.post(release)
    assert (nothing.status_code, nothing.json()["code"]) == (409, "wrong_state")
    assert board.me.post("/api/v1/submissions/abcdefghijkl/release").status_code == 404
