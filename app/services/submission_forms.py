"""The fields that go with an action file: one description of them for the page, REST and the dry run."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from app.errors import ContentError, Problem
from app.evaluator.measurements import ALL_SPLITS
from app.evaluator.strategies import Strategy
from app.services.accounts import MAX_TEAM_NAME
from app.services.method_notes import (
    MAX_DESCRIPTION,
    MAX_HARDWARE,
    MAX_LINK,
    MAX_METHOD_NAME,
    MAX_VERSION,
    SubmissionNotes,
)

MAX_SHOWN_INPUT = 100


class InvalidFormError(ContentError):
    """Fields of a form are missing, unknown or of the wrong kind."""

    code = "invalid_request"
    title = "The request has problems"


def read_moment(given: Any) -> Any:
    """Read a date, which means its first moment in UTC, or a time; one without a zone is UTC."""
    if not isinstance(given, str):
        return given
    try:
        moment = datetime.fromisoformat(given.strip())
    except ValueError as exc:
        raise ValueError("a date such as 2027-01-31 is needed, or a time such as 2027-01-31T12:00:00Z") from exc
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


Moment = Annotated[datetime, BeforeValidator(read_moment)]


class ValidationForm(BaseModel):
    """The target an action file is checked against; what a submission says besides may be checked with it."""

    model_config = ConfigDict(extra="forbid")

    snapshot: str
    strategy: Strategy
    split: str = ALL_SPLITS
    method: str | None = Field(default=None, min_length=1, max_length=MAX_METHOD_NAME)
    description: str | None = Field(default=None, max_length=MAX_DESCRIPTION)
    version: str | None = Field(default=None, max_length=MAX_VERSION, description="Of the method, as you count them.")
    paper_url: str | None = Field(default=None, max_length=MAX_LINK, description="Of the method's paper.")
    code_url: str | None = Field(default=None, max_length=MAX_LINK, description="Of the method's code.")
    hardware: str | None = Field(default=None, max_length=MAX_HARDWARE, description="What the method ran on.")
    anonymous_until: Moment | None = Field(
        default=None,
        description="A date: until then the team is called `anonymous` to everyone but itself and the organisers.",
    )
    team: str | None = Field(
        default=None, max_length=MAX_TEAM_NAME, description="One of your teams; your own unless you say so."
    )
    sha256: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{64}$",
        description="SHA-256 of the file, if you have it: a file that arrives damaged is then refused.",
    )

    def notes(self) -> SubmissionNotes:
        """Return what is said beside the method's name and description."""
        names = ("version", "hardware", "paper_url", "code_url", "anonymous_until")
        return SubmissionNotes(**{name: getattr(self, name) for name in names})


class SubmissionForm(ValidationForm):
    """The target of a submission and the method it is one of."""

    method: str = Field(min_length=1, max_length=MAX_METHOD_NAME)


Form = TypeVar("Form", bound=BaseModel)


def read_form(given: Mapping[str, str], model: type[Form]) -> Form:
    """Return the fields as `model`, or name every one that is wrong.

    A blank field counts as absent: browsers send what was left blank. A NUL stands in no text of ours, and the database
    takes none.
    """
    nul = [name for name, value in given.items() if "\0" in value or "\0" in name]
    if nul:
        message = "the field holds a NUL character"
        problems = [Problem(code="invalid_field", message=message, column=name) for name in nul]
        raise InvalidFormError(message, problems=problems)
    try:
        return model.model_validate({name: value.strip() for name, value in given.items() if value.strip()})
    except ValidationError as exc:
        problems = [_read_fault(error) for error in exc.errors()]
        raise InvalidFormError(problems[0].message, problems=problems) from exc


def _read_fault(error: Mapping[str, Any]) -> Problem:
    name = ".".join(str(part) for part in error["loc"])
    given = "" if error["type"] == "missing" else f" (given: {str(error.get('input'))[:MAX_SHOWN_INPUT]!r})"
    return Problem(code="invalid_field", message=f"{name}: {error['msg']}{given}", column=name)
