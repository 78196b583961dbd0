"""What a team says about its method and its submission, checked whole, and the method it is kept with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from urllib.parse import urlsplit

from sqlalchemy import exists, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ContentError, Problem
from app.services.accounts import Identity

MAX_METHOD_NAME = 200
MAX_DESCRIPTION = 2000
MAX_VERSION = 50
MAX_HARDWARE = 500
MAX_LINK = 500
MAX_ANONYMITY = timedelta(days=731)
LINE_BREAKS = "\r\n\t"


class InvalidSubmissionError(ContentError):
    """A field of the submission's form is empty, too long or unknown."""

    code = "invalid_submission"
    title = "The submission cannot be accepted"


@dataclass(frozen=True)
class SubmissionNotes:
    """What a team may say beside the method's name and description.

    `version` and `hardware` are of the submission. The links and the date are of the method: what a later submission
    leaves out stays as it is. `anonymous_until` hides the team from everyone else until then.
    """

    version: str | None = None
    hardware: str | None = None
    paper_url: str | None = None
    code_url: str | None = None
    anonymous_until: datetime | None = None


NO_NOTES = SubmissionNotes()


def check_notes(name: str | None, description: str | None, notes: SubmissionNotes, *, now: datetime) -> None:
    """Raise `InvalidSubmissionError` with every fault of what is said; a name of None is not looked at."""
    faults = list(_find_faults(name, description, notes, now=now))
    if faults:
        problems = [Problem(code="invalid_field", message=message, column=field) for field, message in faults]
        raise InvalidSubmissionError(faults[0][1], problems=problems)


def ensure_method(
    session: Session, account: Identity, *, name: str, description: str | None, notes: SubmissionNotes, now: datetime
) -> models.Method:
    """Return the account's method of this name; it is made where it is missing, and what is said anew replaces the old.

    Raises `InvalidSubmissionError` where anonymity is asked for and the method was shown with its team before.
    """
    check_notes(name, description, notes, now=now)
    if notes.anonymous_until is not None and _was_shown(session, account, name, now=now):
        message = (
            f"Method {name!r} has been shown with its team's name; an anonymous submission needs another method name."
        )
        problem = Problem(code="invalid_field", message=message, column="anonymous_until")
        raise InvalidSubmissionError(message, problems=[problem])
    said = {
        "description": description,
        "paper_url": notes.paper_url,
        "code_url": notes.code_url,
        "anonymous_until": notes.anonymous_until,
    }
    # An update, so that the statement also returns a row that exists or that another request is adding just now.
    added = insert(models.Method).values(team_id=account.team_id, name=name, is_control=account.is_control, **said)
    ensured = added.on_conflict_do_update(
        index_elements=["team_id", "name"],
        set_={field: func.coalesce(added.excluded[field], getattr(models.Method, field)) for field in said},
    )
    found = session.scalars(ensured.returning(models.Method), execution_options={"populate_existing": True})
    return found.one()


def list_method_names(session: Session, account: Identity) -> tuple[str, ...]:
    """Return the names of the methods of an account's teams."""
    method = models.Method
    query = select(method.name).where(method.team_id.in_(account.team_ids)).distinct().order_by(method.name)
    return tuple(session.scalars(query))


def _was_shown(session: Session, account: Identity, name: str, *, now: datetime) -> bool:
    """Whether anything of a method has been published and its team is not hidden: then hiding it is no use any more."""
    method, submission = models.Method, models.Submission
    published = exists().where(submission.method_id == method.id, submission.published_at.is_not(None))
    shown = method.anonymous_until.is_(None) | (method.anonymous_until <= now)
    query = select(method.id).where(method.team_id == account.team_id, method.name == name, shown, published)
    return session.scalar(query) is not None


def _find_faults(
    name: str | None, description: str | None, notes: SubmissionNotes, *, now: datetime
) -> Iterator[tuple[str, str]]:
    """Yield each faulty field with what is wrong about it."""
    if name is not None and not _is_line(name, MAX_METHOD_NAME):
        yield "method", f"A method's name has 1 to {MAX_METHOD_NAME} printable characters."
    if description is not None and not _is_text(description, MAX_DESCRIPTION):
        yield "description", f"A method's description has at most {MAX_DESCRIPTION} printable characters."
    if notes.version is not None and not _is_line(notes.version, MAX_VERSION):
        yield "version", f"A version has 1 to {MAX_VERSION} printable characters."
    if notes.hardware is not None and not _is_text(notes.hardware, MAX_HARDWARE):
        yield "hardware", f"The hardware note has 1 to {MAX_HARDWARE} printable characters."
    for field, link in (("paper_url", notes.paper_url), ("code_url", notes.code_url)):
        if link is not None and not is_web_address(link):
            yield field, f"A link begins with http:// or https:// and has at most {MAX_LINK} characters, none a space."
    until = notes.anonymous_until
    if until is not None and not now < until <= now + MAX_ANONYMITY:
        yield "anonymous_until", "A submission is anonymous until a date in the future, at most two years ahead."


def is_web_address(link: str) -> bool:
    """Tell whether a link leads to a web page: http or https, a host, and nothing that a browser would run."""
    if len(link) > MAX_LINK or not link.isprintable() or any(character.isspace() for character in link):
        return False
    try:
        parts = urlsplit(link)
    except ValueError:
        return False
    # Written small, as the database checks it.
    return link.startswith(("http://", "https://")) and bool(parts.hostname)


def _is_line(text: str, limit: int) -> bool:
    return bool(text) and len(text) <= limit and text.isprintable() and text == text.strip()


def _is_text(text: str, limit: int) -> bool:
    """Line breaks are fine; what no page can show is not."""
    printable = text.translate(str.maketrans("", "", LINE_BREAKS)).isprintable()
    return bool(text.strip()) and len(text) <= limit and printable
