"""Finished probe runs become a snapshot: alone, together, or with one that exists, whose place it then takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import ContentError, StateError
from app.files.combining import Heading, combine_parts, snapshot_part
from app.files.problems import ProblemCollector, suggest
from app.services import snapshots
from app.services.probe_runs import ProbeRunState, lock_run, transition
from app.services.run_parts import OPTIONAL_COLUMNS, leave_out, run_part

# What was assembled can be assembled again, once it was graded anew or together with more.
WHOLE_STATES = (ProbeRunState.FINISHED, ProbeRunState.ASSEMBLED)


class RunNotFinishedError(StateError):
    """A run that has not measured all of its questions cannot become a snapshot."""

    code = "run_not_finished"
    title = "The probe run is not finished"


class NothingToAssembleError(ContentError):
    """No run was named."""

    code = "nothing_to_assemble"
    title = "No probe run was named"


class UnknownColumnError(ContentError):
    """A column that is to be left out, and that a snapshot does not have or cannot do without."""

    code = "unknown_optional_column"
    title = "No such optional column"


@dataclass(frozen=True)
class Assembly:
    """What a new snapshot is to be called and to say of itself; None where it says what its runs say.

    `hidden_splits` are hidden besides those that are hidden in the snapshot it is combined with. `left_out` are
    optional columns that the runs' measurements come without: texts that may not be passed on, or what makes it large.
    """

    name: str
    title: str | None = None
    description: str | None = None
    license: str | None = None
    source: str | None = None
    hidden_splits: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def assemble_runs(
    session: Session, names: Sequence[str], *, assembly: Assembly, actor: str, with_snapshot: str | None = None
) -> models.Snapshot:
    """Import the measurements of finished runs as one new snapshot, not yet frozen.

    The runs, and the snapshot that they are combined with, have the same protocol: b, R, M, and the same questions of
    each benchmark. The new one takes the place of that snapshot, and of those that the runs were assembled into before;
    its manifest names them.

    Raises
    ------
    UnknownProbeRunError, UnknownSnapshotError : there is no such run or snapshot.
    RunNotFinishedError : a run is not finished, or questions of it failed; all are named.
    PartsDoNotFitError : the protocols, questions or cells do not fit; every reason is listed.
    SnapshotExistsError : the name is taken.
    """
    runs = _lock_runs(session, names)
    _check_finished(session, runs)
    base = None if with_snapshot is None else snapshots.export_snapshot(session, with_snapshot)
    _check_left_out(assembly.left_out)
    parts = [leave_out(run_part(session, run), assembly.left_out) for run in runs]
    heading = _make_heading(assembly, runs, base.manifest.raw if base else {})
    superseded = [{"name": base.manifest.name, "sha256": base.full_sha256}] if base else []
    superseded += _list_former(session, runs)
    combined = combine_parts([*([snapshot_part(base)] if base else []), *parts], heading, superseded=superseded)
    stored = snapshots.import_snapshot(session, combined)
    for run in runs:
        # A constraint wants the state and the snapshot to be written together.
        with session.no_autoflush:
            run.snapshot_id = stored.id
            transition(session, run, ProbeRunState.ASSEMBLED, actor=actor, reason=f"assembled into {stored.name}")
    return stored


def _lock_runs(session: Session, names: Sequence[str]) -> list[models.ProbeRun]:
    if not names:
        raise NothingToAssembleError("Name at least one finished probe run.")
    # Locked in one order, so that two who assemble the same runs cannot wait for each other.
    found = {name: lock_run(session, name) for name in sorted(set(names))}
    # By its name and by its id a run may be named twice.
    return list({found[name].id: found[name] for name in names}.values())


def _check_left_out(columns: Sequence[str]) -> None:
    unknown = [name for name in columns if name not in OPTIONAL_COLUMNS]
    if unknown:
        raise UnknownColumnError(
            f"{unknown[0]!r} cannot be left out{suggest(unknown[0], OPTIONAL_COLUMNS)}; "
            f"these can: {', '.join(OPTIONAL_COLUMNS)}"
        )


def _check_finished(session: Session, runs: Iterable[models.ProbeRun]) -> None:
    problems = ProblemCollector()
    item = models.ProbeItem
    for run in runs:
        if run.state not in WHOLE_STATES:
            problems.add("run_not_finished", f"run {run.name} is {run.state}", column="state", unit=run.name)
        failed = select(item.benchmark, item.question_id, item.state, item.reason)
        failed = failed.where(item.probe_run_id == run.id, item.state != "done").order_by(item.idx)
        for benchmark, question_id, state, reason in session.execute(failed):
            why = f": {reason}" if reason else ""
            problems.add(
                "question_not_measured",
                f"a question of run {run.name} is {state}{why}",
                unit=f"{run.model} / {benchmark} / {question_id}",
            )
    if problems:
        found = problems.problems()
        raise RunNotFinishedError(f"{found[0].message}; only whole runs become a snapshot.", problems=found)


def _make_heading(assembly: Assembly, runs: Sequence[models.ProbeRun], base: Mapping[str, Any]) -> Heading:
    return Heading(
        name=assembly.name,
        title=assembly.title or base.get("title") or runs[0].title,
        description=assembly.description or base.get("description"),
        license=assembly.license or base.get("license"),
        source=assembly.source or base.get("source"),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        hidden_splits=assembly.hidden_splits,
    )


def _list_former(session: Session, runs: Sequence[models.ProbeRun]) -> list[dict[str, str]]:
    """Return the snapshots that runs were assembled into before."""
    ids = {run.snapshot_id for run in runs if run.snapshot_id is not None}
    query = select(models.Snapshot).where(models.Snapshot.id.in_(ids)).order_by(models.Snapshot.id)
    return [{"name": row.name, "sha256": row.full_sha256} for row in session.scalars(query)]
