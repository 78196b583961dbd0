"""A client of the REST interface: boards, scores and snapshots as typed results; uploads that are followed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self, TypeVar

import httpx

from app.client_errors import build_refusal, read_json, read_problems, read_retry_after
from app.client_results import (
    Account,
    Allowance,
    EfficiencyResult,
    Frontiers,
    Leaderboard,
    Overthinking,
    Score,
    Snapshot,
    Submission,
    UnexpectedAnswerError,
    read_result,
)
from app.errors import (
    AppError,
    Problem,
    StateError,
    UnreachableError,
)
from app.files.atomic import new_file

WAITING_STATES = frozenset({"received", "validating", "scoring"})
SCORED_STATES = frozenset({"scored", "published"})
POLL_SECONDS = (0.2, 0.5, 1.0, 2.0)
# Polls in a row that may fail before the server counts as gone: a restart takes a few seconds.
POLL_ATTEMPTS = 10
TIMEOUT = httpx.Timeout(30.0, write=300.0, read=300.0)
# A server that asks for a longer pause, or for one too often, is reported instead of waited for.
MAX_RETRY_AFTER_SECONDS = 60
MAX_RETRIES = 5
PAGE_ITEMS = 200

T = TypeVar("T")


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
    """Speaks to one server with one account's token, or with none, which is enough to read what is published.

    Every method raises `UnreachableError` when the server cannot be reached or does not answer as an OTBoard server.
    When the server refuses, it raises an error with the server's own code and problems that is also a `NotFoundError`
    (404), `ForbiddenError` (401, 403), `StateError` (409), `ContentError` (422) or `TooManyRequestsError` (429). Asked
    to wait, it waits and asks again, though not for more than a minute at a time; an upload is not sent again.
    """

    def __init__(
        self,
        server: str,
        token: str | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.server = server.rstrip("/")
        self._pause = pause
        authorization = {"Authorization": f"Bearer {token}"} if token else {}
        self._http = httpx.Client(
            base_url=f"{self.server}/api/v1",
            headers={**authorization, "Accept": "application/json"},
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

    def get_account(self) -> Account:
        """Return whose token it is."""
        return self._read(Account, "/me")

    def get_leaderboard(
        self,
        snapshot: str,
        strategy: str,
        *,
        split: str = "all",
        model: str | None = None,
        benchmark: str | None = None,
    ) -> Leaderboard:
        """Return a board: of the whole snapshot, of a model, of a benchmark, or of the cell of both."""
        asked = {"snapshot": snapshot, "strategy": strategy, "split": split, "model": model, "benchmark": benchmark}
        return self._read(Leaderboard, "/leaderboard", params=asked)

    def read_score(self, submission_id: str) -> Score:
        """Return a submission's score as an object; `get_score` returns the whole document."""
        return self._read(Score, f"/submissions/{submission_id}/score")

    def get_submission(self, submission_id: str) -> Submission:
        """Return a submission; `get_status` tells how far its scoring is."""
        return self._read(Submission, f"/submissions/{submission_id}")

    def list_submissions(self) -> Iterator[Submission]:
        """Yield the submissions of the token's team, newest first."""
        return self._list(Submission, "/submissions")

    def list_snapshots(self) -> Iterator[Snapshot]:
        """Yield all snapshots, by name."""
        return self._list(Snapshot, "/snapshots")

    def get_snapshot(self, name: str) -> Snapshot:
        """Return one snapshot."""
        return self._read(Snapshot, f"/snapshots/{name}")

    def download_snapshot(self, name: str, path: Path) -> Path:
        """Write a snapshot as a zip file to `path`, which must not exist, without the labels of hidden splits."""
        address = f"/snapshots/{name}/download"
        with new_file(path) as temporary, temporary.open("wb") as written, self._stream(address) as answer:
            for chunk in answer.iter_bytes():
                written.write(chunk)
        return path

    def get_overthinking(self, snapshot: str, *, split: str = "all") -> Overthinking:
        """Return the overthinking figures of a split."""
        return self._read(Overthinking, f"/snapshots/{snapshot}/overthinking", params={"split": split})

    def get_frontiers(
        self,
        snapshot: str,
        *,
        split: str = "all",
        strategy: str | None = None,
        model: str | None = None,
        benchmark: str | None = None,
    ) -> Frontiers:
        """Return the oracle frontiers of a split: of all strategies and cells unless they are chosen."""
        asked = {"split": split, "strategy": strategy, "model": model, "benchmark": benchmark}
        return self._read(Frontiers, f"/snapshots/{snapshot}/frontiers", params=asked)

    def list_efficiency_results(
        self,
        *,
        set: str | None = None,
        paradigm: str | None = None,
        method: str | None = None,
        backbone: str | None = None,
        benchmark: str | None = None,
    ) -> Iterator[EfficiencyResult]:
        """Yield published results of methods that change the generation itself, in the order of their sources."""
        asked = {"set": set, "paradigm": paradigm, "method": method, "backbone": backbone, "benchmark": benchmark}
        return self._list(EfficiencyResult, "/efficiency-results", params=asked)

    def get_allowance(self, snapshot: str) -> Allowance:
        """Return how much the token's team may still submit on a snapshot, limit by limit."""
        return self._read(Allowance, "/me/allowance", params={"snapshot": snapshot})

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

    def _read(
        self, kind: type[T], path: str, *, method: str = "GET", params: Mapping[str, str | None] | None = None
    ) -> T:
        return _build(kind, self._request(method, path, params=_drop_none(params)))

    def _list(self, kind: type[T], path: str, *, params: Mapping[str, str | None] | None = None) -> Iterator[T]:
        asked: dict[str, str | int] = {**_drop_none(params), "limit": PAGE_ITEMS}
        while True:
            page = self._request("GET", path, params=asked)
            if not isinstance(page.get("items"), list):
                raise UnreachableError("the server's answer is no list; this is not an OTBoard server's answer")
            yield from (_build(kind, item) for item in page["items"])
            if page.get("next_cursor") is None:
                return
            asked["cursor"] = page["next_cursor"]

    @contextmanager
    def _stream(self, path: str) -> Iterator[httpx.Response]:
        try:
            with self._http.stream("GET", path) as answer:
                if not answer.is_success:
                    answer.read()
                    raise build_refusal(answer, self.server)
                yield answer
        except httpx.HTTPError as exc:
            raise UnreachableError(f"{self.server} cannot be reached: {exc or type(exc).__name__}") from exc

    def _request(self, method: str, path: str, **content: Any) -> dict[str, Any]:
        answer = self._send(method, path, **content)
        body = read_json(answer)
        if answer.is_success and body is not None:
            return body
        raise build_refusal(answer, self.server)

    def _send(self, method: str, path: str, **content: Any) -> httpx.Response:
        """Send a request, again after a pause where the server asks for one that is not too long."""
        n_tries = 0
        while True:
            try:
                answer = self._http.request(method, path, **content)
            except httpx.HTTPError as exc:
                raise UnreachableError(f"{self.server} cannot be reached: {exc or type(exc).__name__}") from exc
            seconds = read_retry_after(answer)
            n_tries += 1
            # The stream of an upload was read to its end.
            if "files" in content or n_tries > MAX_RETRIES or seconds is None or seconds > MAX_RETRY_AFTER_SECONDS:
                return answer
            self._pause(seconds)


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


def _read_status(body: Mapping[str, Any]) -> SubmissionStatus:
    try:
        return SubmissionStatus(
            id=str(body["id"]),
            state=str(body["state"]),
            queue_place=body.get("queue_place"),
            worker_alive=body.get("worker_alive"),
            progress=body.get("progress"),
            problems=read_problems(body.get("problems")),
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
    return Validation(**read, warnings=read_problems(body.get("warnings")), document=body)


def _build(kind: type[T], body: Any) -> T:
    try:
        return read_result(kind, body)
    except UnexpectedAnswerError as exc:
        raise UnreachableError(f"{exc}; this is not an OTBoard server's answer") from exc


def _drop_none(params: Mapping[str, str | None] | None) -> dict[str, str]:
    return {name: value for name, value in (params or {}).items() if value is not None}
