"""Submitting from the command line: check or upload, follow, fetch the score, with the progress shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.cli_output import print_notes, print_warnings, show_progress
from app.client import Client, SubmissionStatus
from app.files.snapshot import hash_file

# Below this a look whether the server has the bytes already costs more than it saves.
LARGE_BYTES = 8 * 2**20
UNFINISHED = ("failed", "withdrawn")
_WORDS = {
    "received": "waiting to be scored",
    "validating": "checking the file",
    "scoring": "scoring",
}


def submit_actions(
    actions: Path, *, server: str, token: str, fields: Mapping[str, str], wait: bool = True
) -> dict[str, Any]:
    """Upload an action file and return the score document once it is scored; without `wait` the submission at once."""
    with Client(server, token) as client, show_progress(f"uploading {actions.name}") as report:
        submission = _find_sent(client, actions, fields) or client.submit(
            actions,
            fields={**fields, "sha256": hash_file(actions)},
            progress=lambda share: report(f"uploading {actions.name}", share),
        )
        print_notes(f"submission {submission.id}: {client.server}/submissions/{submission.id}")
        if submission.method and submission.method != fields["method"]:
            print_notes(f"note: these bytes were submitted before, as method {submission.method}; that one stands")
        if not wait:
            return dict(submission.document)
        submission = client.wait(submission, watch=lambda status: report(_describe(status), status.progress or 0.0))
        return client.get_score(submission.id)


def check_actions(actions: Path, *, server: str, token: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Have the server check an action file and what is said with it, and return what it found; nothing is stored."""
    with Client(server, token) as client, show_progress(f"uploading {actions.name}") as report:
        checked = client.validate(
            actions,
            fields={**fields, "sha256": hash_file(actions)},
            progress=lambda share: report("uploading" if share < 1 else "being checked", share),
        )
    print_warnings(checked.warnings)
    return dict(checked.document)


def _find_sent(client: Client, actions: Path, fields: Mapping[str, str]) -> SubmissionStatus | None:
    """Return the submission of a large file that was sent before, so that it need not be sent again."""
    said = set(fields) - {"snapshot", "split", "strategy", "method"}
    if actions.stat().st_size < LARGE_BYTES or said:
        return None
    target = {name: fields[name] for name in ("snapshot", "split", "strategy")}
    found = client.find_same(hash_file(actions), **target)
    return None if found is None or found.state in UNFINISHED else found


def _describe(status: SubmissionStatus) -> str:
    words = _WORDS.get(status.state, status.state)
    if status.queue_place is not None:
        words += f", place {status.queue_place} in the queue"
    if status.estimated_seconds is not None:
        words += f", about {round(status.estimated_seconds)} s"
    if status.worker_alive is False:
        words += " (no scoring worker is running)"
    return words
