"""The page of a probe run: how far it is, who works on it, what went wrong, and what can be done next."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy.orm import Session

from app.config import Config
from app.db import models
from app.services.probe_run_lists import FailedQuestion, list_failed_questions
from app.services.probe_runs import TRANSITIONS, ProbeRunState, get_run, list_run_events
from app.services.probe_status import RunStatus, get_status
from app.web.formatting import duration, plural

# What each button leads to, in the order of the buttons.
BUTTONS = (
    ("pause", "Pause", ProbeRunState.PAUSED),
    ("resume", "Resume", ProbeRunState.RUNNING),
    ("cancel", "Cancel for good", ProbeRunState.CANCELLED),
)
# While it is in one of these, a run moves by itself.
MOVING_STATES = (ProbeRunState.RUNNING, ProbeRunState.PAUSED)


@dataclass(frozen=True)
class Button:
    """A form with one button; `is_main` marks what most people want."""

    action: str
    label: str
    is_main: bool


@dataclass(frozen=True)
class ProbeRunPage:
    """Everything a run's template shows; `is_moving` tells whether it changes by itself."""

    run: RunStatus
    headline: str
    sentences: tuple[str, ...]
    share: float
    is_moving: bool
    needs_worker: bool
    worker_command: str
    assemble_command: str | None
    buttons: tuple[Button, ...]
    failed: tuple[FailedQuestion, ...]
    events: tuple[models.ProbeRunEvent, ...]


def load_probe_run_page(session: Session, name: str, *, config: Config) -> ProbeRunPage:
    """Return the page of a run, by its name or id."""
    run = get_run(session, name)
    status = get_status(session, run, config=config)
    is_finished = status.state == ProbeRunState.FINISHED
    return ProbeRunPage(
        run=status,
        headline=describe_headline(status),
        sentences=describe_progress(status),
        share=status.n_done / status.n_questions,
        is_moving=status.state in MOVING_STATES,
        needs_worker=status.state == ProbeRunState.RUNNING and not status.workers,
        worker_command=f"otboard worker probe --model {status.model}",
        assemble_command=f"otboard probe-run assemble {status.name} --freeze" if is_finished else None,
        buttons=list_buttons(ProbeRunState(status.state)),
        failed=list_failed_questions(session, run.id) if status.n_failed else (),
        events=tuple(list_run_events(session, run)),
    )


def list_buttons(state: ProbeRunState) -> tuple[Button, ...]:
    """Return the buttons that a state allows; a run that was not started yet is started by what else resumes it."""
    label = {ProbeRunState.CREATED: "Start", ProbeRunState.FAILED: "Try the failed questions again"}
    return tuple(
        Button(action, label.get(state, text) if action == "resume" else text, is_main=action == "resume")
        for action, text, target in BUTTONS
        if target in TRANSITIONS[state]
    )


def describe_headline(status: RunStatus) -> str:
    """Return in a few words how many questions are done."""
    if status.n_done == status.n_questions:
        return f"All {plural(status.n_questions, 'question')} measured"
    return f"{status.n_done:,} of {plural(status.n_questions, 'question')} measured"


def describe_progress(status: RunStatus) -> tuple[str, ...]:
    """Return in sentences what goes on, and how long it will."""
    sentences = []
    if status.n_running:
        sentences.append(f"{plural(status.n_running, 'question')} in workers’ hands.")
    if status.state == ProbeRunState.PAUSED:
        sentences.append("No more questions are handed out.")
    if status.seconds_left is not None:
        workers = plural(len(status.workers), "worker")
        sentences.append(f"About {duration(status.seconds_left)} left at this pace, with {workers}.")
    if status.failure_reason is not None:
        sentences.append(f"{status.failure_reason}.")
    return tuple(sentences)
