"""The errors a person can act on, and the problems found in what they handed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar


@dataclass(frozen=True)
class Problem:
    """One fault of a file, with its place.

    Attributes
    ----------
    code : stable snake_case name of the kind of fault.
    message : a sentence that names the offending value and, where there is one, the remedy.
    row : the row of the file as an editor shows it (the header of a CSV is row 1), or None.
    column : the column, file or manifest key at fault, or None.
    unit : the decision unit at fault, written ``model / benchmark / question_id[ / trajectory]``, or None.
    count : how many faults of this code the whole input has; the same on every example of the code.
    """

    code: str
    message: str
    row: int | None = None
    column: str | None = None
    unit: str | None = None
    count: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Return the problem as the JSON object of the public format."""
        return asdict(self)


class AppError(Exception):
    """Base of every error that is the caller's to fix; a handler turns it into problem+json or an exit status."""

    status: ClassVar[int] = 400
    code: ClassVar[str] = "error"
    title: ClassVar[str] = "The request could not be carried out"

    def __init__(self, detail: str, *, problems: Sequence[Problem] = ()) -> None:
        super().__init__(detail)
        self.detail = detail
        self.problems = tuple(problems)


class ContentError(AppError):
    """The input was understood and is wrong; ``problems`` lists every fault."""

    status = 422
    code = "invalid_content"
    title = "The content has problems"


class NotFoundError(AppError):
    """What was named does not exist, or the caller may not know that it does."""

    status = 404
    code = "not_found"
    title = "Not found"


class ForbiddenError(AppError):
    """The caller is known and may not do this."""

    status = 403
    code = "forbidden"
    title = "Not allowed"


class StateError(AppError):
    """The thing exists but is in a state that does not allow this."""

    status = 409
    code = "conflict"
    title = "Not possible in this state"


class TooManyRequestsError(AppError):
    """The caller has to wait; the answer says for how many seconds."""

    status = 429
    code = "too_many_requests"
    title = "Too many requests"

    def __init__(self, detail: str, *, retry_after_seconds: int) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class UnreachableError(AppError):
    """The server or the database could not be reached."""

    status = 503
    code = "unreachable"
    title = "The server or database could not be reached"
