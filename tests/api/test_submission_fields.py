"""What is said with a submission, over REST: the same fields in a dry run, a hidden team in every answer."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from app.db import models
from tests.api.test_submissions import check_problem, list_uploads
from tests.small_disk import mount_small_disk

Caps = Callable[[int], bytes]

UNTIL = (datetime.now(UTC) + timedelta(days=30)).date().isoformat()
SAID = {
    "version": "1.2",
    "paper_url": "https://secret-lab.example/paper",
    "code_url": "https://secret-lab.example/code",
    "hardware": "a laptop",
    "description": "Says little.",
}


def test_what_is_said_comes_back(board: Any, make_caps: Caps) -> None:
    shown = board.send(make_caps(200), **SAID).json()
    assert {name: shown[name] for name in SAID} == SAID
    assert (shown["is_anonymous"], shown["anonymous_until"]) == (False, None)


@pytest.mark.parametrize("path", ["submissions", "validations"])
def test_a_dry_run_refuses_the_same_fields(board: Any, make_caps: Caps, path: str) -> None:
    wrong = {"paper_url": "javascript:alert(1)", "code_url": "ftp://x.example", "version": "a\nb"}
    body = check_problem(board.send(make_caps(1), path=path, **wrong), 422, "invalid_submission")
    assert [problem["column"] for problem in body["problems"]] == ["version", "paper_url", "code_url"]
    body = check_problem(board.send(make_caps(1), path=path, anonymous_until="2020-01-01"), 422, "invalid_submission")
    assert body["problems"][0]["column"] == "anonymous_until"
    body = check_problem(board.send(make_caps(1), path=path, anonymous_until="soon"), 422, "invalid_request")
    assert "2027-01-31" in body["problems"][0]["message"]
    check_problem(board.send(make_caps(1), path=path, team="nobody's"), 403, "forbidden")
    for field in ("description", "snapshot", "split", "team", "version"):
        body = check_problem(board.send(make_caps(1), path=path, **{field: "a\x00b"}), 422, "invalid_request")
        assert body["problems"][0]["column"] == field
    assert list_uploads(board) == []


def test_a_dry_run_takes_all_fields_of_a_submission(board: Any, make_caps: Caps) -> None:
    fields = {**SAID, "method": "m", "anonymous_until": UNTIL, "team": "local"}
    assert board.send(make_caps(200), path="validations", **fields).status_code == 200
    assert board.me.get("/api/v1/submissions").json()["items"] == []


def test_a_damaged_file_is_refused(board: Any, make_caps: Caps) -> None:
    digest = hashlib.sha256(make_caps(200)).hexdigest()
    check_problem(board.send(make_caps(201), sha256=digest), 400, "broken_upload")
    assert list_uploads(board) == []
    assert board.send(make_caps(200), sha256=digest).status_code == 202
    found = board.me.get("/api/v1/submissions", params={"actions_sha256": digest}).json()["items"]
    assert [item["actions_sha256"] for item in found] == [digest]
    assert board.me.get("/api/v1/submissions", params={"actions_sha256": "0" * 64}).json()["items"] == []
    check_problem(board.me.get("/api/v1/submissions", params={"actions_sha256": "x"}), 422, "invalid_request")


# Everything a reader can ask for about a submission and its method.
ADDRESSES = (
    "/api/v1/leaderboard?snapshot=small&split=test&strategy=fixed_budget",
    "/api/v1/leaderboard?snapshot=small&split=test&strategy=fixed_budget&format=csv",
    "/api/v1/submissions/{id}",
    "/api/v1/submissions/{id}/events",
    "/api/v1/submissions/{id}/score",
    "/api/v1/submissions/{id}/receipt",
    "/api/v1/submissions/{id}/actions",
    "/api/v1/methods/quiet",
    "/?snapshot=small&split=test&strategy=fixed_budget",
    "/submissions/{id}",
    "/methods/quiet",
)
SECRETS = ("secret-lab", "hushed")


@pytest.fixture
def published(board: Any, make_caps: Caps) -> str:
    """An anonymous submission of the team `hushed`, on the board."""
    with board.sessions.begin() as session:
        session.execute(update(models.Team).where(models.Team.name == "local").values(name="hushed"))
        session.execute(update(models.Account).where(models.Account.name == "local").values(name="hushed-ada"))
    form = {"snapshot": "small", "split": "test", "strategy": "fixed_budget", "method": "quiet", **SAID}
    files = {"file": ("secret-lab.csv", make_caps(200))}
    answer = board.me.post("/api/v1/submissions", data={**form, "anonymous_until": UNTIL}, files=files)
    submission_id: str = answer.json()["id"]
    board.score(submission_id)
    assert board.me.post(f"/api/v1/submissions/{submission_id}/publish").status_code == 200
    return submission_id


def test_no_interface_names_a_hidden_team(board: Any, published: str) -> None:
    """An "anonymous" board elsewhere showed team names (codalab-competitions#1648)."""
    for reader in (board.reader, board.stranger):
        for address in ADDRESSES:
            answer = reader.get(address.format(id=published))
            assert answer.status_code == 200, address
            told = answer.text + str(answer.headers)
            assert [secret for secret in SECRETS if secret in told] == [], address
    shown = board.reader.get(f"/api/v1/submissions/{published}").json()
    assert (shown["team"], shown["is_anonymous"], shown["filename"]) == ("anonymous", True, "actions.csv")
    assert (shown["paper_url"], shown["code_url"], shown["version"]) == (None, None, "1.2")
    receipt = board.reader.get(f"/api/v1/submissions/{published}/receipt").json()
    assert "anonymous" in str(receipt)


def test_the_team_reads_its_own_name(board: Any, published: str) -> None:
    for address in ADDRESSES:
        if not address.endswith(("/score", "/events")):
            answer = board.me.get(address.format(id=published))
            assert any(secret in answer.text + str(answer.headers) for secret in SECRETS), address


def test_at_the_date_every_interface_names_the_team(board: Any, published: str) -> None:
    with board.sessions.begin() as session:
        session.execute(update(models.Method).values(anonymous_until=datetime.now(UTC) - timedelta(seconds=1)))
    for address in ADDRESSES:
        if not address.endswith(("/score", "/events")):
            answer = board.reader.get(address.format(id=published))
            assert any(secret in answer.text + str(answer.headers) for secret in SECRETS), address
    page = board.reader.get(f"/submissions/{published}").text
    assert '<a href="https://secret-lab.example/paper" rel="nofollow noopener">' in page


def test_cancelling_and_sending_again(board: Any, make_caps: Caps) -> None:
    submission_id = board.submit(make_caps(200))
    address = f"/api/v1/submissions/{submission_id}"
    check_problem(board.me.post(f"{address}/withdraw", json={"reason": "a\0b"}), 422, "invalid_request")
    gone = board.me.post(f"{address}/withdraw").json()
    assert (gone["state"], gone["was_cancelled"]) == ("withdrawn", True)
    again = board.send(make_caps(200))
    assert (again.status_code, again.json()["state"], again.json()["id"]) == (200, "received", submission_id)


@pytest.fixture
def small_disk(board: Any) -> Iterator[Path]:
    """Room for one mebibyte where uploads go."""
    with mount_small_disk(board.config.data_dir / "uploads", kibibytes=1024) as folder:
        yield folder


def test_a_full_disk_is_told_and_leaves_nothing(board: Any, make_caps: Caps, small_disk: Path) -> None:
    (small_disk / "filler").write_bytes(b"x" * 900_000)
    check_problem(board.send(b"x" * 900_000), 507, "storage_full")
    check_problem(board.send(b"x" * 900_000, path="validations"), 507, "storage_full")
    assert list_uploads(board) == [small_disk / "filler"]
    assert board.me.get("/api/v1/submissions").json()["items"] == []
    assert board.send(make_caps(200)).status_code == 202


def test_odd_file_names_are_kept_as_far_as_they_can_be_shown(board: Any, make_caps: Caps) -> None:
    for cap, (given, kept) in enumerate(
        {
            "x" * 3000 + ".csv": "x" * 196 + ".csv",
            "../../etc/passwd.csv": "passwd.csv",
            "größe 🙂.csv": "größe 🙂.csv",
            "<b>&amp;.csv": "<b>&amp;.csv",
        }.items()
    ):
        form = {"snapshot": "small", "split": "test", "strategy": "fixed_budget", "method": "m"}
        answer = board.me.post("/api/v1/submissions", data=form, files={"file": (given, make_caps(cap))})
        assert answer.json()["filename"] == kept
        page = board.me.get(f"/submissions/{answer.json()['id']}")
        assert page.status_code == 200
        assert "<b>&amp;.csv" not in page.text
