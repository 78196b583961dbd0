"""Submitting from the command line: upload, follow, fetch the score, with the progress shown."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from app.cli_output import print_notes, show_progress
from app.client import Client, SubmissionStatus

_WORDS = {
    "received": "waiting to be scored",
    "validating": "checking the file",
    "scoring": "scoring",
}


def submit_actions(actions: Path, *, server: str, token: str, fields: Mapping[str, str]) -> dict[str, Any]:
    """Upload an action file, wait until it is scored, and return the score document."""
    with Client(server, token) as client, show_progress(f"uploading {actions.name}") as report:
        submission = client.submit(
            actions, fields=fields, progress=lambda share: report(f"uploading {actions.name}", share)
        )
        print_notes(f"submission {submission.id}: {client.server}/submissions/{submission.id}")
        submission = client.wait(submission, watch=lambda status: report(_describe(status), status.progress or 0.0))
        return client.get_score(submission.id)


def _describe(status: SubmissionStatus) -> str:
    words = _WORDS.get(status.state, status.state)
    if status.queue_place is not None:
        words += f", place {status.queue_place} in the queue"
    if status.worker_alive is False:
        words += " (no scoring worker is running)"
    return words
