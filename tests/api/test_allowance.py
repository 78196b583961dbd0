"""The allowance over REST, and who may release what is withheld."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select, update
from typer.testing import CliRunner

from app.cli import app as command
from app.client import Client
from app.client_results import Meter
from app.db import models
from app.files.snapshot import Snapshot
from app.services import snapshots
from app.services.allowance import set_limits
from app.services.snapshots import get_snapshot
from tests.api.conftest import Board, _serve_board


@pytest.fixture
def hidden(
    server_url: str,
    template_database: str,
    tmp_path: Path,
    board_snapshot: Snapshot,
    make_board_snapshot: Callable[..., Snapshot],
) -> Iterator[Board]:
    """A board with `small`, whose labels are open, and `secret`, which hides those of its test split."""
    with _serve_board(server_url, template_database, tmp_path, snapshot=board_snapshot) as served:
        with served.sessions.begin() as session:
            for made in (board_snapshot, make_board_snapshot("secret", seed=2, hidden_splits=["test"])):
                snapshots.import_snapshot(session, made)
                snapshots.freeze_snapshot(session, made.manifest.name)
        yield served


def read_everywhere(board: Board, snapshot: str) -> dict[str, Any]:
    """Return the allowance from REST, once client, command and both pages are seen to say the same.

    Pages are silent where no split is hidden and nothing is limited.
    """
    told: dict[str, Any] = board.me.get("/api/v1/me/allowance", params={"snapshot": snapshot}).json()
    with Client(str(board.me.base_url), board.token) as client:
        allowance = client.get_allowance(snapshot)
    assert allowance.hidden_splits == tuple(told["hidden_splits"])
    for name in ("hidden_day", "hidden_total", "open_day", "rejected_day"):
        found, shown = getattr(allowance, name), told[name]
        assert (found.limit, found.used, found.left) == (shown["limit"], shown["used"], shown["left"])
        assert (found.next_at and found.next_at.timestamp()) == (
            shown["next_at"] and datetime.fromisoformat(shown["next_at"]).timestamp()
        )
    words = ["allowance", "--server", str(board.me.base_url), "--snapshot", snapshot, "--format", "json"]
    printed = CliRunner().invoke(command, words, env={"OTBOARD_TOKEN": board.token}, catch_exceptions=False)
    assert json.loads(printed.stdout) == told
    sent = [one["id"] for one in board.me.get("/api/v1/submissions").json()["items"] if one["snapshot"] == snapshot]
    pages = [f"/submit?snapshot={snapshot}", *(f"/submissions/{one}" for one in sent[:1])]
    for page in pages:
        text = board.me.get(page, headers={"Accept": "text/html"}).text
        meters = [m for m in told.values() if isinstance(m, dict) and told["hidden_splits"] and m["limit"] is not None]
        used = [f"{meter['used']} of {meter['limit']}" for meter in meters]
        assert re.findall(r"(\d+ of \d+) used", text) == used
    return told


@contextmanager
def exactly(waiting: Callable[[], datetime]) -> Iterator[Callable[[httpx.Response], None]]:
    """Check that an answer's Retry-After ends at a moment, rounded up to the second after it was given."""
    before = datetime.now(UTC)

    def check(refused: httpx.Response) -> None:
        ends = datetime.now(UTC) + timedelta(seconds=int(refused.headers["Retry-After"]))
        assert before + timedelta(seconds=int(refused.headers["Retry-After"])) <= waiting() + timedelta(seconds=1)
        assert waiting() <= ends

    yield check


def test_pages_rest_client_and_command_say_the_same_on_a_hidden_split(hidden: Board, make_caps: Any) -> None:
    for cap in range(5):
        last = hidden.submit(make_caps(100 + cap), snapshot="secret")
        told = read_everywhere(hidden, "secret")
        assert (told["hidden_day"]["used"], told["hidden_day"]["left"]) == (cap + 1, 4 - cap)
        assert (told["hidden_total"]["used"], told["hidden_splits"]) == (cap + 1, ["test"])
    with exactly(lambda: datetime.fromisoformat(told["hidden_day"]["next_at"])) as check:
        refused = hidden.send(make_caps(200), snapshot="secret")
        assert (refused.status_code, refused.json()["code"]) == (429, "allowance_spent")
        check(refused)
    # The oldest charge is the one that leaves the window; a later one leaves it later.
    with hidden.sessions.begin() as session:
        charged = session.scalars(select(models.Submission.charged_at).order_by(models.Submission.charged_at)).all()
    assert datetime.fromisoformat(told["hidden_day"]["next_at"]) == charged[0] + timedelta(hours=24)
    # Open splits and other snapshots have counts of their own, a check counts nowhere, the same bytes only once.
    hidden.submit(make_caps(300), snapshot="small")
    assert hidden.send(make_caps(201), path="validations", snapshot="secret").status_code == 200
    assert hidden.submit(make_caps(104), snapshot="secret") == last
    assert read_everywhere(hidden, "small")["hidden_day"]["used"] == 0
    # A failure of ours gives the charge back, an hour of an override another one, both at once.
    with hidden.sessions.begin() as session:
        table = models.Submission
        session.execute(update(table).where(table.id == last).values(state="failed", failure_reason="r"))
    assert read_everywhere(hidden, "secret")["hidden_day"]["left"] == 1
    body = {"snapshot": "secret", "team": "local", "hidden_per_day": 9}
    assert hidden.me.put("/api/v1/console/allowances", json=body).status_code == 200
    assert read_everywhere(hidden, "secret")["hidden_day"]["left"] == 5
    hidden.submit(make_caps(200), snapshot="secret")


def test_rejected_files_have_a_larger_limit_of_their_own(hidden: Board, make_caps: Any) -> None:
    """A wrong file costs nothing of what is scored; fifty of them in a day are enough."""
    wrong = make_caps(100).replace(b"alpha", b"alhpa")
    rejected = hidden.submit(wrong, snapshot="secret")
    hidden.score(rejected)
    told = read_everywhere(hidden, "secret")
    assert (told["rejected_day"]["used"], told["rejected_day"]["limit"], told["hidden_day"]["used"]) == (1, 50, 0)
    with hidden.sessions.begin() as session:
        set_limits(session, get_snapshot(session, "secret"), team_id=None, limits={"rejected_per_day": 1})
    told = read_everywhere(hidden, "secret")
    with exactly(lambda: datetime.fromisoformat(told["rejected_day"]["next_at"])) as check:
        check(hidden.send(make_caps(100), snapshot="secret"))


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
