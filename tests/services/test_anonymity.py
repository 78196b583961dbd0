"""An anonymous team is named to itself alone, until the date; each query goes by the time it is asked at."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.orm import Session

from app.services import methods, submissions
from app.services.accounts import Identity
from app.services.anonymity import hide_actor, hide_filename
from app.services.leaderboard import format_csv, get_leaderboard
from app.services.method_notes import InvalidSubmissionError, SubmissionNotes
from app.services.submissions import Strategy

Caps = Callable[..., bytes]

NOW = datetime.now(UTC)
UNTIL = NOW + timedelta(days=30)
LATER = UNTIL + timedelta(seconds=1)


def submit(session: Session, desk: Any, account: Identity, content: bytes, until: datetime | None, **more: Any) -> str:
    accepted = submissions.accept_submission(
        session,
        account=account,
        snapshot_name="small",
        split="test",
        strategy=Strategy.FIXED_BUDGET,
        method_name="secretive",
        description=None,
        upload=desk.store(content),
        filename="engines-of-ada.csv.gz",
        notes=SubmissionNotes(paper_url="https://engines.example/paper", anonymous_until=until),
        **more,
    )
    session.commit()
    return accepted.submission_id


@pytest.fixture
def published(session: Session, desk: Any, author: Identity, make_caps: Caps) -> str:
    """An anonymous submission of team `engines`, on the board."""
    # The name of the file says gzip; only its bytes are scored here.
    submission_id = submit(session, desk, author, make_caps(100), UNTIL)
    found = submissions.find_locked(session, submission_id)
    assert found is not None
    found.filename = "engines-of-ada.csv"
    desk.score(submission_id)
    submissions.publish_submission(session, submission_id, account=author)
    return submission_id


def look(session: Session, reader: Identity | None, submission_id: str, now: datetime) -> str:
    """Return everything a reader sees of a submission at a time."""
    board = get_leaderboard(
        session,
        snapshot="small",
        split="test",
        strategy=Strategy.FIXED_BUDGET,
        model=None,
        benchmark=None,
        reader=reader,
        now=now,
    )
    shown = (
        board,
        format_csv(board),
        submissions.get_submission(session, submission_id, account=reader, now=now),
        submissions.list_events(session, submission_id, account=reader, now=now),
        submissions.list_method_submissions(session, method="secretive", account=reader, now=now),
        methods.get_methods(session, "secretive", account=reader, now=now),
    )
    return repr(shown)


@pytest.mark.parametrize("is_stranger", [True, False])
def test_nobody_else_learns_the_team_before_the_date(
    session: Session, published: str, stranger: Identity, is_stranger: bool
) -> None:
    reader = stranger if is_stranger else None
    seen = look(session, reader, published, NOW)
    # On the board, the submission, its five events, the list of the method, and the method; and in the CSV.
    assert seen.count("'anonymous'") == 9
    assert ",anonymous,true," in seen
    for secret in ("engines", "ada", "engines.example"):
        assert secret not in seen
    revealed = look(session, reader, published, LATER)
    assert "'anonymous'" not in revealed
    assert "engines.example/paper" in revealed


def test_the_team_itself_sees_its_name_and_that_it_is_hidden(
    session: Session, published: str, author: Identity
) -> None:
    seen = look(session, author, published, NOW)
    assert "'anonymous'" not in seen
    assert "is_anonymous=True" in seen
    assert "is_anonymous=True" not in look(session, author, published, LATER)


def test_a_clock_that_jumps_back_hides_again(session: Session, published: str) -> None:
    views = [look(session, None, published, now) for now in (NOW, LATER, NOW, UNTIL, UNTIL - timedelta(microseconds=1))]
    assert [("engines" in view) for view in views] == [False, True, False, True, False]


def test_a_method_that_was_shown_cannot_be_hidden(
    session: Session, desk: Any, author: Identity, make_caps: Caps, published: str
) -> None:
    # While it is anonymous the date may move, and what leaves it out changes nothing.
    submit(session, desk, author, make_caps(101), UNTIL + timedelta(days=1))
    submit(session, desk, author, make_caps(102), None)
    shown = submissions.get_submission(session, published, account=None)
    assert (shown.is_anonymous, shown.anonymous_until) == (True, UNTIL + timedelta(days=1))
    after = UNTIL + timedelta(days=2)
    with pytest.raises(InvalidSubmissionError, match="another method name"):
        submit(session, desk, author, make_caps(103), after + timedelta(days=9), now=after)


def test_names_that_would_tell_are_replaced() -> None:
    assert hide_filename("Engines of Ada.parquet") == "actions.parquet"
    assert hide_filename("ada.v2.CSV.gz") == "actions.csv.gz"
    assert hide_filename("ada.engines") == "actions"
    assert [hide_actor(actor) for actor in ("ada", "system", "worker host:12", "worker ada", "systems")] == [
        "anonymous",
        "system",
        "worker host:12",
        "anonymous",
        "anonymous",
    ]
