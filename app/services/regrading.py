"""A new grader version over the stored answers of a probe run: nothing is generated again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.errors import StateError
from app.files.questions import Question, build_question
from app.services.probe_records import unpack_answers
from app.services.probe_runs import ProbeRunState, get_run, lock_run, note_event

GRADED_STATES = (ProbeRunState.FINISHED, ProbeRunState.ASSEMBLED)
MAX_EXAMPLES = 100


class AnswerVerdict(Protocol):
    """What a grader says of an answer: whether it is right, and what it read out of it, None where nothing."""

    @property
    def correct(self) -> bool:
        """Whether the answer is right."""

    @property
    def extracted(self) -> str | None:
        """What was compared with the reference."""


Grade = Callable[[Question, Sequence[str]], Sequence[AnswerVerdict]]
Progress = Callable[[int, int], None]


class RunNotGradedError(StateError):
    """A run that is still being measured is graded as it goes; it can be graded again once it is finished."""

    code = "run_not_graded"
    title = "The probe run is not finished"


@dataclass(frozen=True)
class GradeChange:
    """A verdict that changed; `position` is None for the trajectory's own answer and for the one without thinking.

    `before` and `after` are right answers of the position's probes, or of the one answer.
    """

    benchmark: str
    question_id: str
    trajectory: int
    what: str
    position: int | None
    before: int
    after: int


@dataclass(frozen=True)
class Regrading:
    """What a grader changes in a run.

    Attributes
    ----------
    n_questions, n_trajectories, n_answers : how much was graded, originals and answers without thinking included.
    n_right_more, n_right_less : probes that became right and wrong, the least numbers that explain how the positions'
        counts changed: which probe was right is not stored.
    n_positions : positions whose count changed.
    n_original, n_direct : trajectories whose own answer, and whose answer without thinking, changed.
    unextracted_before, unextracted_after : probe answers that nothing could be read out of.
    grader_versions : those of the verdicts that are stored.
    examples : the first hundred changes.
    """

    name: str
    n_questions: int
    n_trajectories: int
    n_answers: int
    n_right_more: int
    n_right_less: int
    n_positions: int
    n_original: int
    n_direct: int
    unextracted_before: int
    unextracted_after: int
    grader_versions: tuple[str, ...]
    examples: tuple[GradeChange, ...]

    @property
    def n_changes(self) -> int:
        """How many verdicts changed at least."""
        return self.n_right_more + self.n_right_less + self.n_original + self.n_direct


@dataclass(frozen=True)
class _Grades:
    """The verdicts on one trajectory, as they are stored."""

    correct_probes: list[int]
    n_unextracted: int
    original_correct: bool
    direct_correct: bool | None


@dataclass
class _Tally:
    """Counts what changes while a run is gone through."""

    n_questions: int = 0
    n_trajectories: int = 0
    n_answers: int = 0
    n_right_more: int = 0
    n_right_less: int = 0
    n_positions: int = 0
    n_original: int = 0
    n_direct: int = 0
    unextracted_before: int = 0
    unextracted_after: int = 0
    versions: set[str] = field(default_factory=set)
    examples: list[GradeChange] = field(default_factory=list)


def compare_grades(session: Session, name: str, grade: Grade, *, progress: Progress | None = None) -> Regrading:
    """Return what a grader would change in a finished run, and change nothing.

    Raises
    ------
    UnknownProbeRunError : there is no such run.
    RunNotGradedError : it is not finished.
    """
    # Not locked: looking at what would change may take hours, and nobody has to wait for it.
    run = get_run(session, name)
    _require_finished(run)
    tally = _Tally()
    for _ in _grade_items(session, run, grade, tally=tally, progress=progress):
        continue
    return _sum_up(run, tally)


def regrade_run(
    session: Session, name: str, grade: Grade, *, grader_version: str, actor: str, progress: Progress | None = None
) -> Regrading:
    """Replace a finished run's verdicts by those of a grader, in the session's transaction: all of them or none.

    What was assembled from the run stays as it is; assembled again, it becomes a snapshot that takes the place of the
    one it was assembled into before.

    Raises
    ------
    UnknownProbeRunError : there is no such run.
    RunNotGradedError : it is not finished.
    """
    run = lock_run(session, name)
    _require_finished(run)
    tally = _Tally()
    for trajectory, grades in _grade_items(session, run, grade, tally=tally, progress=progress):
        trajectory.correct_probes = grades.correct_probes
        trajectory.n_unextracted = grades.n_unextracted
        trajectory.original_correct = grades.original_correct
        trajectory.direct_correct = grades.direct_correct
        trajectory.grader_version = grader_version
    found = _sum_up(run, tally)
    reason = f"graded again by version {grader_version}: at least {found.n_changes} verdicts changed"
    note_event(session, run, actor=actor, reason=reason)
    return found


def _require_finished(run: models.ProbeRun) -> None:
    if run.state not in GRADED_STATES:
        raise RunNotGradedError(f"Run {run.name} is {run.state}; it can be graded again once it is finished.")


def _grade_items(
    session: Session, run: models.ProbeRun, grade: Grade, *, tally: _Tally, progress: Progress | None
) -> Iterator[tuple[models.ProbeTrajectory, _Grades]]:
    """Yield the trajectories with their new verdicts, question by question, counting what changes."""
    item = models.ProbeItem
    item_ids = session.scalars(
        select(item.id).where(item.probe_run_id == run.id, item.state == "done").order_by(item.idx)
    )
    for done, item_id in enumerate(ids := item_ids.all(), start=1):
        found = session.get_one(item, item_id)
        query = select(models.ProbeTrajectory).where(models.ProbeTrajectory.probe_item_id == item_id)
        trajectories = session.scalars(query.order_by(models.ProbeTrajectory.trajectory)).all()
        for trajectory, grades in zip(
            trajectories, _grade_question(build_question(found.document), trajectories, grade, tally=tally), strict=True
        ):
            _count_changes(found, trajectory, grades, tally)
            yield trajectory, grades
        tally.n_questions += 1
        # Written and let go, so that a large run does not stay in memory.
        session.flush()
        for trajectory in trajectories:
            session.expunge(trajectory)
        if progress is not None:
            progress(done, len(ids))


def _grade_question(
    question: Question, trajectories: Sequence[models.ProbeTrajectory], grade: Grade, *, tally: _Tally
) -> list[_Grades]:
    """Grade everything that was answered to a question at once, each distinct text once."""
    answers = [unpack_answers(trajectory.answers) for trajectory in trajectories]
    texts = [text for positions in answers for probes in positions for text in probes]
    others = [text for t in trajectories for text in (t.original_answer, t.direct_answer) if text is not None]
    tally.n_answers += len(texts) + len(others)
    distinct = list(dict.fromkeys([*texts, *others]))
    verdicts = dict(zip(distinct, grade(question, distinct), strict=True))
    return [
        _Grades(
            correct_probes=[sum(verdicts[text].correct for text in probes) for probes in positions],
            n_unextracted=sum(verdicts[text].extracted is None for probes in positions for text in probes),
            # Thinking that did not come to an end has no answer, which is wrong.
            original_correct=t.original_answer is not None and verdicts[t.original_answer].correct,
            direct_correct=None if t.direct_answer is None else verdicts[t.direct_answer].correct,
        )
        for t, positions in zip(trajectories, answers, strict=True)
    ]


def _count_changes(item: models.ProbeItem, trajectory: models.ProbeTrajectory, grades: _Grades, tally: _Tally) -> None:
    def note(what: str, position: int | None, before: int, after: int) -> None:
        if len(tally.examples) < MAX_EXAMPLES:
            tally.examples.append(
                GradeChange(item.benchmark, item.question_id, trajectory.trajectory, what, position, before, after)
            )

    for position, (before, after) in enumerate(zip(trajectory.correct_probes, grades.correct_probes, strict=True)):
        if before != after:
            tally.n_positions += 1
            tally.n_right_more += max(after - before, 0)
            tally.n_right_less += max(before - after, 0)
            note("probes", position, before, after)
    if trajectory.original_correct != grades.original_correct:
        tally.n_original += 1
        note("original", None, int(trajectory.original_correct), int(grades.original_correct))
    if trajectory.direct_correct != grades.direct_correct:
        tally.n_direct += 1
        note("direct", None, int(bool(trajectory.direct_correct)), int(bool(grades.direct_correct)))
    tally.n_trajectories += 1
    tally.unextracted_before += trajectory.n_unextracted
    tally.unextracted_after += grades.n_unextracted
    tally.versions.add(trajectory.grader_version)


def _sum_up(run: models.ProbeRun, tally: _Tally) -> Regrading:
    return Regrading(
        name=run.name,
        n_questions=tally.n_questions,
        n_trajectories=tally.n_trajectories,
        n_answers=tally.n_answers,
        n_right_more=tally.n_right_more,
        n_right_less=tally.n_right_less,
        n_positions=tally.n_positions,
        n_original=tally.n_original,
        n_direct=tally.n_direct,
        unextracted_before=tally.unextracted_before,
        unextracted_after=tally.unextracted_after,
        grader_versions=tuple(sorted(tally.versions)),
        examples=tuple(tally.examples),
    )
