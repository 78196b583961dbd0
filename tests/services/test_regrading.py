"""A new grader over stored answers: what it changes is told before it is written, and nothing is generated."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.files.questions import Question
from app.services import probe_runs, snapshots
from app.services.assembling import Assembly, assemble_runs
from app.services.probe_records import pack_answers, unpack_answers
from app.services.regrading import GradeChange, RunNotGradedError, compare_grades, regrade_run
from tests.measured_runs import Verdict, create_run, grade, make_run, measure_items


def grade_leniently(question: Question, answers: Sequence[str]) -> list[Verdict]:
    """Also right with a zero too many, and something can be read out of everything."""
    return [Verdict(answer.rstrip("0").endswith(question.reference_answer.rstrip("0")), answer) for answer in answers]


def list_trajectories(session: Session) -> Sequence[models.ProbeTrajectory]:
    session.expire_all()
    return session.scalars(select(models.ProbeTrajectory).order_by(models.ProbeTrajectory.id)).all()


def read_counts(session: Session) -> list[tuple[list[int], int, bool, str]]:
    return [
        (t.correct_probes, t.n_unextracted, t.original_correct, t.grader_version) for t in list_trajectories(session)
    ]


def test_the_same_grader_changes_nothing(session: Session) -> None:
    make_run(session)
    before = read_counts(session)
    found = compare_grades(session, "measured", grade)
    assert (found.n_questions, found.n_trajectories) == (6, 12)
    assert (found.n_changes, found.n_positions, found.examples) == (0, 0, ())
    assert found.unextracted_before == found.unextracted_after > 0
    assert found.grader_versions == ("1",)
    regrade_run(session, "measured", grade, grader_version="2", actor="ada")
    assert [row[:3] for row in read_counts(session)] == [row[:3] for row in before]
    assert {row[3] for row in read_counts(session)} == {"2"}


def test_what_changes_is_told_and_nothing_written(session: Session) -> None:
    make_run(session)
    before = read_counts(session)
    found = compare_grades(session, "measured", grade_leniently)
    assert read_counts(session) == before
    regraded = regrade_run(session, "measured", grade_leniently, grader_version="2", actor="ada")
    assert regraded == found
    after = read_counts(session)
    gained = sum(sum(new[0]) - sum(old[0]) for old, new in zip(before, after, strict=True))
    # The lenient grader takes nothing back, so the least number of changes is the number of changes.
    assert (found.n_right_more, found.n_right_less) == (gained, 0)
    assert gained > 0
    changed = sum(a != b for old, new in zip(before, after, strict=True) for a, b in zip(old[0], new[0], strict=True))
    assert (found.n_positions, found.n_original) == (changed, 0)
    assert (found.unextracted_after, sum(row[1] for row in after)) == (0, 0)


def test_counts_by_hand(session: Session) -> None:
    """Three of four probes were right; the new grader finds two of them wrong and the fourth right: two are left."""
    make_run(session)
    trajectory = list_trajectories(session)[0]
    n_positions = len(trajectory.retained_tokens)
    trajectory.answers = pack_answers([["a 1", "b 1", "c 1", "none"]] * n_positions)
    trajectory.correct_probes = [3] * n_positions
    trajectory.original_answer, trajectory.original_correct = "b 1", True
    session.flush()

    def judge(question: Question, answers: Sequence[str]) -> list[Verdict]:
        own = {"a 1": True, "b 1": False, "c 1": False, "none": True}
        return [
            Verdict(own.get(answer, verdict.correct), verdict.extracted)
            for answer, verdict in zip(answers, grade(question, answers), strict=True)
        ]

    found = compare_grades(session, "measured", judge)
    assert found.n_original == 1
    assert GradeChange("sums", "q0", 0, "probes", 0, before=3, after=2) in found.examples
    assert GradeChange("sums", "q0", 0, "original", None, before=1, after=0) in found.examples


def test_each_distinct_text_is_graded_once_a_question(session: Session) -> None:
    make_run(session)
    seen: list[tuple[str, tuple[str, ...]]] = []

    def note(question: Question, answers: Sequence[str]) -> list[Verdict]:
        seen.append((question.question_id, tuple(answers)))
        return grade(question, answers)

    found = compare_grades(session, "measured", note)
    assert [question_id for question_id, _ in seen] == [f"q{n}" for n in range(6)]
    assert all(len(set(answers)) == len(answers) for _, answers in seen)
    stored = sum(len(of_one) for t in list_trajectories(session) for of_one in unpack_answers(t.answers))
    originals = sum(t.original_answer is not None for t in list_trajectories(session))
    assert found.n_answers == stored + originals


def test_thinking_without_an_end_stays_wrong(session: Session) -> None:
    make_run(session)

    def accept_all(_: Question, answers: Sequence[str]) -> list[Verdict]:
        return [Verdict(True, answer) for answer in answers]

    regrade_run(session, "measured", accept_all, grader_version="2", actor="ada")
    found = list_trajectories(session)
    assert {t.original_correct for t in found if t.original_answer is None} == {False}
    assert all(count == 4 for t in found for count in t.correct_probes)


def test_progress_is_told_question_by_question(session: Session) -> None:
    make_run(session)
    told: list[tuple[int, int]] = []
    compare_grades(session, "measured", grade, progress=lambda done, total: told.append((done, total)))
    assert told == [(n, 6) for n in range(1, 7)]


def test_a_grader_that_breaks_leaves_everything_as_it_was(session: Session) -> None:
    make_run(session)
    before = read_counts(session)

    def break_down(question: Question, answers: Sequence[str]) -> list[Verdict]:
        if question.question_id == "q4":
            raise RuntimeError("out of memory")
        return grade_leniently(question, answers)

    with pytest.raises(RuntimeError), session.begin_nested():
        regrade_run(session, "measured", break_down, grader_version="2", actor="ada")
    assert read_counts(session) == before


def test_only_finished_runs(session: Session) -> None:
    run = create_run(session)
    measure_items(session, run, n_items=2)
    with pytest.raises(RunNotGradedError, match="running"):
        compare_grades(session, "measured", grade)
    with pytest.raises(probe_runs.UnknownProbeRunError):
        regrade_run(session, "nowhere", grade, grader_version="2", actor="ada")


def test_what_was_assembled_stays_and_is_assembled_anew(session: Session) -> None:
    run = make_run(session)
    first = assemble_runs(session, ["measured"], assembly=Assembly("first"), actor="ada")
    snapshots.freeze_snapshot(session, "first")
    found = regrade_run(session, "measured", grade_leniently, grader_version="2", actor="ada")
    assert probe_runs.list_run_events(session, run)[-1].reason == (
        f"graded again by version 2: at least {found.n_changes} verdicts changed"
    )
    # The frozen one is what it was imported as.
    assert snapshots.export_snapshot(session, "first").sha256 == first.sha256
    second = assemble_runs(session, ["measured"], assembly=Assembly("second"), actor="ada")
    assert second.sha256 != first.sha256
    assert second.manifest["supersedes"] == [{"name": "first", "sha256": first.sha256}]
    assert second.manifest["worker"]["sources"][0]["grader_versions"] == ["2"]
    assert second.manifest["worker"]["counts"][0]["unextracted_answers"] == 0
