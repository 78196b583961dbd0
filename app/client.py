"""A small client of the REST interface: upload an action file, follow its submission, fetch the score."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import httpx

from app.errors import AppError, Problem, StateError, UnreachableError

WAITING_STATES = frozenset({"received", "validating", "scoring"})
SCORED_STATES = frozenset({"scored", "published"})
POLL_SECONDS = (0.2, 0.5, 1.0, 2.0)
# Polls in a row that may fail before the server counts as gone: a restart takes a few seconds.
POLL_ATTEMPTS = 10
TIMEOUT = httpx.Timeout(30.0, write=300.0, read=300.0)


class RejectedError(AppError):
    """The server found problems in the file; all are listed."""

    status = 422
    code = "rejected"
    title = "The action file was rejected"


class ScoringFailedError(StateError):
    """The server could not score the file, through no fault of the file."""

    code = "scoring_failed"
    title = "The server could not score the file"


class NoScoreError(StateError):
    """The submission has no score that may be shown."""

    code = "no_score"
    title = "There is no score"


@dataclass(frozen=True)
class Validation:
    """What the server says of a file without problems that was checked and not submitted.

    Attributes
    ----------
    actions_sha256 : of the file's bytes. n_rows, n_settings : what it holds.
    n_cells_covered, n_cells : cells with actions, and cells of the split.
    warnings : what is odd about it without being wrong. document : the server's whole answer.
    """

    actions_sha256: str
    n_rows: int
    n_settings: int
    n_cells_covered: int
    n_cells: int
    warnings: tuple[Problem, ...]
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True)
class SubmissionStatus:
    """Where a submission stands.

    Attributes
    ----------
    id, state : as the server says. method : the method that it is of.
    queue_place : 1 is the next to be scored; None where it does not wait in the queue.
    worker_alive : whether a scoring worker lives; None where the submission needs none.
    progress : how far the file has been read, in [0, 1], or None.
    estimated_seconds : until it is scored, or None where the server cannot tell.
    problems : of a rejected file. failure_reason : of a failed submission.
    document : the server's whole answer.
    """

    id: str
    state: str
    queue_place: int | None
    worker_alive: bool | None
    progress: float | None
    problems: tuple[Problem, ...]
    failure_reason: str | None
    method: str = ""
    estimated_seconds: float | None = None
    document: Mapping[str, Any] = field(default_factory=dict, repr=False)


class Client:
    """Speaks to one server with one account's token.

    Every method raises `UnreachableError` when the server cannot be reached or does not answer as an OTBoard server,
    and another `AppError` with the server's own code and problems when it refuses.
    """

    def __init__(self, server: str, token: str, *, transport: httpx.BaseTransport | None = None) -> None:
        self.server = server.rstrip("/")
        self._http = httpx.Client(
            base_url=f"{self.server}/api/v1",
            headers={"Authorization": f"Bearer {token}", "Accept": "application/json"},
            timeout=TIMEOUT,
            transport=transport,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._http.close()

    def submit(
        self,
        actions: Path,
        *,
        fields: Mapping[str, str],
        progress: Callable[[float], None] | None = None,
    ) -> SubmissionStatus:
        """Upload an action file; the same bytes again find the submission that they are.

        Parameters
        ----------
        actions : the file; it is streamed.
        fields : `snapshot`, `split`, `strategy`, `method` and, if wanted, `description`, `version`, `paper_url`,
            `code_url`, `hardware`, `anonymous_until` (a date), `team`.
        progress : called with the share of the file that was sent, 0 to 1.
        """
        return _read_status(self._upload("/submissions", actions, fields=fields, progress=progress))

    def validate(
        self,
        actions: Path,
        *,
        fields: Mapping[str, str],
        progress: Callable[[float], None] | None = None,
    ) -> Validation:
        """Check an action file, and whatever else of `submit`'s fields is given, as a submission would be.

        Nothing is stored. A file with problems is an `AppError` that lists them.
        """
        return _read_validation(self._upload("/validations", actions, fields=fields, progress=progress))

    def find_same(self, sha256: str, *, snapshot: str, split: str, strategy: str) -> SubmissionStatus | None:
        """Return the submission that bytes of this hash are for this target already, or None."""
        page = self._request("GET", "/submissions", params={"actions_sha256": sha256})
        target = (snapshot, split, strategy)
        for item in page.get("items", ()):
            if (item.get("snapshot"), item.get("split"), item.get("strategy")) == target:
                return _read_status(item)
        return None

    def publish(self, submission_id: str) -> SubmissionStatus:
        """Show a scored submission on the board."""
        return _read_status(self._request("POST", f"/submissions/{submission_id}/publish"))

    def withdraw(self, submission_id: str, *, reason: str | None = None) -> SubmissionStatus:
        """Cancel a submission that waits or is being scored; take one that has a score off the board for good."""
        return _read_status(self._request("POST", f"/submissions/{submission_id}/withdraw", json={"reason": reason}))

    def get_status(self, submission_id: str) -> SubmissionStatus:
        """Return where a submission stands."""
        return _read_status(self._request("GET", f"/submissions/{submission_id}"))

    def get_score(self, submission_id: str) -> dict[str, Any]:
        """Return a submission's score document."""
        return self._request("GET", f"/submissions/{submission_id}/score")

    def wait(
        self,
        submission: SubmissionStatus,
        *,
        watch: Callable[[SubmissionStatus], None],
        pause: Callable[[float], None] = time.sleep,
    ) -> SubmissionStatus:
        """Follow a submission until no job has to end its state; `watch` sees every answer, `pause` waits seconds.

        Raises
        ------
        RejectedError : the file has problems. ScoringFailedError : the server failed.
        """
        n_polls = failures = 0
        while submission.state in WAITING_STATES:
            watch(submission)
            pause(POLL_SECONDS[min(n_polls, len(POLL_SECONDS) - 1)])
            n_polls += 1
            try:
                submission = self.get_status(submission.id)
                failures = 0
            except UnreachableError:
                failures += 1
                if failures == POLL_ATTEMPTS:
                    raise
        watch(submission)
        return _require_end(submission)

    def _upload(
        self, path: str, actions: Path, *, fields: Mapping[str, str], progress: Callable[[float], None] | None
    ) -> dict[str, Any]:
        size = actions.stat().st_size
        with actions.open("rb") as stream:
            body = stream if progress is None else _Watched(stream, size=size, progress=progress)
            file = (actions.name, body, "application/octet-stream")
            return self._request("POST", path, data=dict(fields), files={"file": file})

    def _request(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        try:
            answer = self._http.request(method, path, **content)
        except httpx.HTTPError as exc:
            raise UnreachableError(f"{self.server} cannot be reached: {exc or type(exc).__name__}") from exc
        body = _read_json(answer)
        if answer.is_success and body is not None:
            return body
        if body is None or "code" not in body or answer.status_code in (502, 503, 504):
            detail = str(body["detail"]) if body and "detail" in body else "this is not an OTBoard server's answer"
            raise UnreachableError(f"{self.server} answered {answer.status_code}: {detail}")
        raise _make_error(answer.status_code, body)


class _Watched:
    """A file whose reading is reported."""

    def __init__(self, stream: BinaryIO, *, size: int, progress: Callable[[float], None]) -> None:
        self._stream = stream
        self._size = max(size, 1)
        self._progress = progress

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._progress(min(1.0, self._stream.tell() / self._size))
        return data


def _require_end(submission: SubmissionStatus) -> SubmissionStatus:
    if submission.state == "rejected":
        raise RejectedError("the server found problems in the file", problems=submission.problems)
    if submission.state == "failed":
        raise ScoringFailedError(f"submission {submission.id} failed: {submission.failure_reason or 'no reason given'}")
    if submission.state not in SCORED_STATES:
        raise NoScoreError(f"submission {submission.id} is {submission.state}; there is no score to show")
    return submission


def _read_json(answer: httpx.Response) -> dict[str, Any] | None:
    try:
        body = answer.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) else None


def _read_status(body: Mapping[str, Any]) -> SubmissionStatus:
    try:
        return SubmissionStatus(
            id=str(body["id"]),
            state=str(body["state"]),
            queue_place=body.get("queue_place"),
            worker_alive=body.get("worker_alive"),
            progress=body.get("progress"),
            problems=_read_problems(body.get("problems")),
            failure_reason=body.get("failure_reason"),
            method=str(body.get("method") or ""),
            estimated_seconds=body.get("estimated_seconds"),
            document=body,
        )
    except KeyError as exc:
        raise UnreachableError(f"the server's answer lacks {exc}; this is not an OTBoard server's answer") from exc


def _read_validation(body: Mapping[str, Any]) -> Validation:
    names = ("actions_sha256", "n_rows", "n_settings", "n_cells_covered", "n_cells")
    try:
        read = {name: body[name] for name in names}
    except KeyError as exc:
        raise UnreachableError(f"the server's answer lacks {exc}; this is not an OTBoard server's answer") from exc
    return Validation(**read, warnings=_read_problems(body.get("warnings")), document=body)


def _read_problems(listed: Any) -> tuple[Problem, ...]:
    return tuple(
        Problem(
            code=str(item.get("code")),
            message=str(item.get("message")),
            row=item.get("row"),
            column=item.get("column"),
            unit=item.get("unit"),
            count=item.get("count") or 1,
        )
        for item in listed or ()
        if isinstance(item, dict)
    )


def _make_error(status: int, body: Mapping[str, Any]) -> AppError:
    """Return the server's problem document as an error that keeps its status, code and title."""
    attributes = {"status": status, "code": str(body["code"]), "title": str(body.get("title") or "Refused")}
    kind = type("ServerRefusedError", (AppError,), attributes)
    error: AppError = kind(
        str(body.get("detail") or attributes["title"]), problems=_read_problems(body.get("problems"))
    )
    return error
