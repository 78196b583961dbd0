"""The commands `otboard probe-run …`: measuring a new model, from the first estimate to the snapshot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli_assemble import assemble, regrade
from app.cli_options import FormatOption
from app.cli_output import Format, Rows, print_result

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

    from app.db import models
    from app.files.profiles import Profile
    from app.files.protocol import Protocol
    from app.files.questions import QuestionSet

probe_run_app = typer.Typer(no_args_is_help=True, help="Measure a new model by probing its thinking at every step.")

# What a question set of the package is called instead of a file.
SHIPPED_QUESTIONS = "arithmetic-word-problems"

RunName = Annotated[str, typer.Argument(metavar="NAME", help="The probe run's name.", show_default=False)]
ReasonOption = Annotated[str | None, typer.Option("--reason", help="Why, for the run's log.", show_default=False)]
ModelOption = Annotated[str | None, typer.Option("--model", help="A model with a known profile.", show_default=False)]
ProfileOption = Annotated[
    Path | None, typer.Option("--profile", help="A profile of your own, a YAML file.", show_default=False)
]
QuestionsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--questions",
        help=f"A question file, or {SHIPPED_QUESTIONS}; once for each benchmark.",
        show_default=False,
    ),
]
StepTokensOption = Annotated[
    int | None, typer.Option("--step-tokens", help="b, the mean length of a step aimed at.", show_default="256")
]
TrajectoriesOption = Annotated[
    int | None, typer.Option("--trajectories", help="R, trajectories of each question.", show_default="16")
]
ProbesOption = Annotated[
    int | None, typer.Option("--probes", help="M, answer probes at each position.", show_default="16")
]
ThinkingLimitOption = Annotated[
    int | None, typer.Option("--thinking-limit", help="Most tokens of a thinking.", show_default="the profile's")
]
AnswerLimitOption = Annotated[
    int | None, typer.Option("--answer-limit", help="Most tokens of an answer.", show_default="the profile's")
]
ProbeLimitOption = Annotated[
    int | None, typer.Option("--probe-limit", help="Most tokens of an answer probe.", show_default="the profile's")
]


@probe_run_app.command("create")
def create(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The name of the snapshot that the run makes.", show_default=False)
    ],
    model: ModelOption = None,
    profile: ProfileOption = None,
    questions: QuestionsOption = None,
    title: Annotated[str | None, typer.Option(help="A heading for the run.", show_default=False)] = None,
    step_tokens: StepTokensOption = None,
    trajectories: TrajectoriesOption = None,
    probes: ProbesOption = None,
    thinking_limit: ThinkingLimitOption = None,
    answer_limit: AnswerLimitOption = None,
    probe_limit: ProbeLimitOption = None,
    question_seconds: Annotated[
        int | None,
        typer.Option(
            "--question-seconds", help="How long a question may be in one worker's hands.", show_default="21600"
        ),
    ] = None,
    seed_name: Annotated[
        str | None, typer.Option("--seed-name", help="What the seeds are derived from.", show_default="NAME")
    ] = None,
    priority: Annotated[int, typer.Option(help="Runs of higher priority are measured first.")] = 0,
    hold: Annotated[bool, typer.Option("--hold", help="Do not start it; `resume` does.")] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Create a probe run, and start it: each of its questions becomes a job for `otboard worker probe`."""
    from app.services import probe_runs

    _require_one(model, profile)
    question_sets = _read_sets(questions)

    def act(session: Session) -> models.ProbeRun:
        found = _find_profile(model, profile, session=session)
        protocol = _build_protocol(
            found,
            seed_name=seed_name or name,
            step_tokens=step_tokens,
            n_trajectories=trajectories,
            n_probes=probes,
            thinking_token_limit=thinking_limit,
            answer_token_limit=answer_limit,
            probe_token_limit=probe_limit,
            question_seconds=question_seconds,
        )
        run = probe_runs.create_run(
            session,
            name,
            profile=found,
            protocol=protocol,
            question_sets=question_sets,
            actor=name_actor(),
            title=title,
            priority=priority,
        )
        return run if hold else probe_runs.start_run(session, run.name, actor=name_actor())

    _act(act, output_format)


@probe_run_app.command("estimate")
def estimate(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="A run; without it the options describe one.", show_default=False),
    ] = None,
    model: ModelOption = None,
    profile: ProfileOption = None,
    questions: QuestionsOption = None,
    step_tokens: StepTokensOption = None,
    trajectories: TrajectoriesOption = None,
    probes: ProbesOption = None,
    thinking_limit: ThinkingLimitOption = None,
    answer_limit: AnswerLimitOption = None,
    probe_limit: ProbeLimitOption = None,
    thinking_tokens: Annotated[
        float | None, typer.Option("--thinking-tokens", help="Mean length of a thinking.", show_default="its limit")
    ] = None,
    answer_tokens: Annotated[
        float | None, typer.Option("--answer-tokens", help="Mean length of an answer.", show_default="its limit")
    ] = None,
    tokens_per_second: Annotated[
        float | None,
        typer.Option("--tokens-per-second", help="Generated by one worker.", show_default="that of finished questions"),
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="How many workers share it.")] = 1,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Estimate trajectories, probes, tokens and hours: of a run, or, without a database, of one that is described."""
    from app.files.estimates import estimate_document, estimate_run

    lengths = {
        "thinking_tokens": thinking_tokens,
        "answer_tokens": answer_tokens,
        "tokens_per_second": tokens_per_second,
    }
    if name is not None:
        _print_fields(_estimate_stored(name, n_workers=workers, **lengths), output_format)
        return
    _require_one(model, profile)
    question_sets = _read_sets(questions)
    protocol = _build_protocol(
        _find_profile(model, profile, session=None),
        seed_name="estimate",
        step_tokens=step_tokens,
        n_trajectories=trajectories,
        n_probes=probes,
        thinking_token_limit=thinking_limit,
        answer_token_limit=answer_limit,
        probe_token_limit=probe_limit,
    )
    n_questions = sum(len(question_set.questions) for question_set in question_sets)
    found = estimate_run(protocol, n_questions=n_questions, n_workers=workers, **lengths)
    _print_fields(estimate_document(found), output_format)


@probe_run_app.command("status")
def status(
    name: RunName,
    questions: Annotated[bool, typer.Option("--questions", help="List the questions with what each took.")] = False,
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Show how far a run is: questions, tokens, throughput, prefix hits, time left, workers, reasons of failures."""
    from dataclasses import asdict

    from app.cli_database import open_session
    from app.config import load_config
    from app.services.probe_runs import get_run
    from app.services.probe_status import get_status, list_items, status_document

    with open_session() as session:
        run = get_run(session, name)
        document = status_document(get_status(session, run, config=load_config()))
        items = [asdict(item) for item in list_items(session, run)] if questions else []
    if not questions:
        _print_fields(document, output_format)
        return
    document["questions"] = items
    columns = tuple(items[0]) if items else ("benchmark", "question_id")
    print_result(document, output_format, rows=lambda: Rows(columns, [tuple(item.values()) for item in items]))


@probe_run_app.command("list")
def list_all(output_format: FormatOption = Format.TABLE) -> None:
    """List the probe runs, newest first."""
    from app.cli_database import open_session
    from app.config import load_config
    from app.services.probe_runs import list_runs
    from app.services.probe_status import get_status, status_document

    with open_session() as session:
        config = load_config()
        documents = [status_document(get_status(session, run, config=config)) for run in list_runs(session)]
    columns = ("name", "model", "state", "priority", "n_questions", "n_done", "n_failed", "seconds_left")
    print_result(
        {"probe_runs": documents},
        output_format,
        rows=lambda: Rows(columns, [tuple(document[column] for column in columns) for document in documents]),
    )


@probe_run_app.command("pause")
def pause(name: RunName, reason: ReasonOption = None, output_format: FormatOption = Format.TABLE) -> None:
    """Hand out no more questions of a run; those in workers' hands are finished."""
    from app.services.probe_runs import pause_run

    _act(lambda session: pause_run(session, name, actor=name_actor(), reason=reason), output_format)


@probe_run_app.command("resume")
def resume(name: RunName, output_format: FormatOption = Format.TABLE) -> None:
    """Start a held run, or go on with a paused or failed one; questions that failed are tried anew."""
    from app.services.probe_runs import resume_run

    _act(lambda session: resume_run(session, name, actor=name_actor()), output_format)


@probe_run_app.command("cancel")
def cancel(name: RunName, reason: ReasonOption = None, output_format: FormatOption = Format.TABLE) -> None:
    """End a run for good; workers put down the questions in their hands."""
    from app.services.probe_runs import cancel_run

    _act(lambda session: cancel_run(session, name, actor=name_actor(), reason=reason), output_format)


@probe_run_app.command("priority")
def priority(
    name: RunName,
    value: Annotated[int, typer.Argument(metavar="PRIORITY", help="A whole number; 0 is usual.", show_default=False)],
    output_format: FormatOption = Format.TABLE,
) -> None:
    """Give a run another priority; put `--` before a negative one."""
    from app.services.probe_runs import set_priority

    _act(lambda session: set_priority(session, name, priority=value, actor=name_actor()), output_format)


probe_run_app.command("assemble")(assemble)
probe_run_app.command("regrade")(regrade)


def _act(act: Callable[[Session], models.ProbeRun], output_format: Format) -> None:
    """Do something to a run, and print how it then stands."""
    from app.cli_database import open_session
    from app.config import load_config
    from app.services.probe_status import get_status, status_document

    with open_session() as session:
        run = act(session)
        session.flush()
        document = status_document(get_status(session, run, config=load_config()))
    _print_fields(document, output_format)


def _estimate_stored(name: str, **given: Any) -> dict[str, Any]:
    from app.cli_database import open_session
    from app.files.estimates import estimate_document
    from app.services.probe_runs import get_run
    from app.services.probe_status import estimate_run

    with open_session() as session:
        return estimate_document(estimate_run(session, get_run(session, name), **given))


def _require_one(model: str | None, path: Path | None) -> None:
    if (model is None) == (path is None):
        raise typer.BadParameter("give one of --model and --profile", param_hint="--model")


def _find_profile(model: str | None, path: Path | None, *, session: Session | None) -> Profile:
    """Return the profile of the file, or of the model's name, one that is registered in the database first."""
    from app.files.profiles import get_profile, read_profile

    if path is not None:
        return read_profile(path)
    assert model is not None
    if session is None:
        return get_profile(model)
    from app.services.probe_runs import find_model_profile

    return find_model_profile(session, model)


def _read_sets(names: list[str] | None) -> list[QuestionSet]:
    from app.files.questions import ARITHMETIC_FILE, read_questions

    if not names:
        raise typer.BadParameter("name at least one question file", param_hint="--questions")
    return [read_questions(ARITHMETIC_FILE if name == SHIPPED_QUESTIONS else Path(name)) for name in names]


def _build_protocol(profile: Profile, *, seed_name: str, **chosen: int | None) -> Protocol:
    from app.files.protocol import build_protocol

    return build_protocol(profile, seed_name=seed_name, **chosen)


def name_actor() -> str:
    """Return who acts, for the run's log."""
    import getpass

    return f"command of {getpass.getuser()}"


def _print_fields(document: dict[str, Any], output_format: Format) -> None:
    from app.cli_tables import list_fields

    print_result(document, output_format, rows=lambda: list_fields(_shorten(document)))


def _shorten(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document for a table, where a worker or a reason is a few words."""
    shortened = dict(document)
    if "workers" in document:
        shortened["workers"] = [
            f"{worker['actor']} ({worker['question_id'] or 'between questions'})" for worker in document["workers"]
        ]
    if "reasons" in document:
        shortened["reasons"] = [f"{reason['reason']}: {reason['n_questions']}" for reason in document["reasons"]]
    return shortened
