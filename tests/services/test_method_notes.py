"""What a team says about its method: checked whole, kept with the method, and never run by a browser."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.db import models
from app.services import submissions
from app.services.accounts import Identity
from app.services.method_notes import InvalidSubmissionError, SubmissionNotes, check_notes, is_web_address
from app.services.submission_forms import InvalidFormError, SubmissionForm, ValidationForm, read_form

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
TARGET = {"snapshot": "small", "strategy": "fixed_budget"}


def test_every_fault_of_what_is_said_is_listed() -> None:
    notes = SubmissionNotes(
        version="two\nlines",
        hardware=" ",
        paper_url="javascript:alert(1)",
        code_url="//example.org/x",
        anonymous_until=NOW - timedelta(days=1),
    )
    with pytest.raises(InvalidSubmissionError) as caught:
        check_notes("", "x" * 2001, notes, now=NOW)
    named = [problem.column for problem in caught.value.problems]
    assert named == ["method", "description", "version", "hardware", "paper_url", "code_url", "anonymous_until"]


def test_what_is_fine_passes() -> None:
    notes = SubmissionNotes(
        "1.2 (β)", "8 × H100\n80 GB", "https://arxiv.org/abs/1", "http://[::1]:80/x", NOW + timedelta(1)
    )
    check_notes("a method", "Two\nlines.", notes, now=NOW)
    check_notes(None, None, SubmissionNotes(), now=NOW)


@pytest.mark.parametrize(
    "link",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "ftp://example.org",
        "//example.org",
        "example.org",
        "https://",
        "https:///path",
        "https://exa mple.org",
        "https://example.org/\n",
        "https://example.org/\u202e",
        "https://[::1",
        "HTTPS://example.org",
        " https://example.org",
        "https://example.org/" + "x" * 500,
    ],
)
def test_only_links_to_web_pages_are_links(link: str) -> None:
    assert not is_web_address(link)


def test_the_database_refuses_such_a_link_too(session: Session, author: Identity) -> None:
    session.add(models.Method(team_id=author.team_id, name="m", paper_url="javascript:alert(1)"))
    with pytest.raises(IntegrityError, match="ck_methods_paper_url"):
        session.flush()


def test_a_date_is_its_first_moment_in_utc() -> None:
    for given in ("2027-01-31", "2027-01-31T00:00:00", "2027-01-31T01:00:00+01:00", "2027-01-31T00:00Z"):
        form = read_form({**TARGET, "anonymous_until": given}, ValidationForm)
        assert form.anonymous_until == datetime(2027, 1, 31, tzinfo=UTC)
    for wrong in ("5", "tomorrow", "31.1.2027", "2027-02-30"):
        with pytest.raises(InvalidFormError, match="a date such as") as caught:
            read_form({**TARGET, "anonymous_until": wrong}, ValidationForm)
        assert caught.value.problems[0].column == "anonymous_until"


def test_blank_fields_are_absent_and_all_faults_are_named() -> None:
    form = read_form({**TARGET, "method": " m ", "version": "  ", "paper_url": ""}, SubmissionForm)
    assert (form.method, form.notes()) == ("m", SubmissionNotes())
    with pytest.raises(InvalidFormError) as caught:
        read_form({"strategy": "x", "method": " ", "paper": "https://example.org"}, SubmissionForm)
    assert {problem.column for problem in caught.value.problems} == {"snapshot", "strategy", "method", "paper"}


def accept(session: Session, desk: Any, account: Identity, content: bytes, notes: SubmissionNotes, **more: Any) -> str:
    accepted = submissions.accept_submission(
        session,
        account=account,
        snapshot_name="small",
        split="test",
        strategy=submissions.Strategy.FIXED_BUDGET,
        upload=desk.store(content),
        filename="actions.csv",
        notes=notes,
        **{"method_name": "method", "description": None, **more},
    )
    session.commit()
    return accepted.submission_id


def test_links_are_the_methods_and_versions_the_submissions(
    session: Session, desk: Any, author: Identity, make_caps: Any
) -> None:
    first = SubmissionNotes(
        version="1", hardware="a laptop", paper_url="https://a.example/1", code_url="https://a.example/c"
    )
    one = accept(session, desk, author, make_caps(1), first, description="First words.")
    two = accept(session, desk, author, make_caps(2), SubmissionNotes(version="2", paper_url="https://a.example/2"))
    old, new = (submissions.get_submission(session, found, account=author) for found in (one, two))
    assert (old.version, old.hardware, new.version, new.hardware) == ("1", "a laptop", "2", None)
    for shown in (old, new):
        assert (shown.paper_url, shown.code_url) == ("https://a.example/2", "https://a.example/c")
        assert shown.description == "First words."


def test_the_same_bytes_again_take_what_is_said_anew_and_make_no_other_method(
    session: Session, desk: Any, author: Identity, make_caps: Any
) -> None:
    first = accept(session, desk, author, make_caps(1), SubmissionNotes(version="1"))
    assert accept(session, desk, author, make_caps(1), SubmissionNotes(hardware="a laptop")) == first
    shown = submissions.get_submission(session, first, account=author)
    assert (shown.version, shown.hardware) == ("1", "a laptop")
    assert accept(session, desk, author, make_caps(1), SubmissionNotes(version="9"), method_name="other") == first
    assert submissions.get_submission(session, first, account=author).version == "1"
    assert session.query(models.Method).where(models.Method.name == "other").count() == 0
