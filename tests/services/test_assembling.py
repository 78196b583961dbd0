"""Finished runs become snapshots, alone, together and with one that exists; what does not fit is named."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import models
from app.files.combining import PartsDoNotFitError
from app.files.snapshot import build_snapshot
from app.services import probe_runs, snapshots
from app.services.assembling import (
    Assembly,
    NothingToAssembleError,
    RunNotFinishedError,
    UnknownColumnError,
    assemble_runs,
)
from app.services.probe_records import unpack_answers
from app.services.snapshots import SnapshotExistsError, UnknownSnapshotError
from app.services.successors import find_successor
from tests.measured_runs import create_run, fail_item, make_profile, make_questions, make_run, measure_items


def assemble(session: Session, *names: str, name: str = "new", with_snapshot: str | None = None, **more: Any) -> Any:
    assembly = Assembly(name, **more)
    return assemble_runs(session, names, assembly=assembly, actor="ada", with_snapshot=with_snapshot)


def list_faults(caught: pytest.ExceptionInfo[Any]) -> list[tuple[str, str | None]]:
    return [(problem.code, problem.unit) for problem in caught.value.problems]


def test_a_finished_run_becomes_a_snapshot(session: Session) -> None:
    run = make_run(session, "measured")
    stored = assemble(session, "measured", name="measured")
    assert (run.state, run.snapshot_id) == ("assembled", stored.id)
    assert not stored.is_frozen
    exported = snapshots.export_snapshot(session, "measured")
    manifest = exported.manifest.raw
    assert manifest["kind"] == "measured"
    assert (manifest["target_step_tokens"], manifest["trajectories_per_question"]) == (8, 2)
    assert (manifest["probes_per_position"], manifest["thinking_token_limit"]) == (4, 64)
    (model,) = manifest["models"]
    assert (model["name"], model["repository"], model["thinking_end"]) == ("tiny", "models/tiny", "</think>")
    assert model["sampling"]["temperature"] == 0.6
    (benchmark,) = manifest["benchmarks"]
    assert (benchmark["name"], benchmark["license"], benchmark["title"]) == ("sums", "CC0-1.0", "The sums")
    assert benchmark["questions_sha256"] == make_questions().sha256
    (source,) = manifest["worker"]["sources"]
    assert source["protocol"]["seed_name"] == "measured"
    assert (source["grader_versions"], source["versions"]) == (["1"], [{"engine": "none 1.0", "otboard": "0.1.0"}])
    assert "supersedes" not in manifest
    assert exported.questions.column("prompt")[1].as_py() == "What is 1 + 1?"


def test_every_measured_value_is_in_the_snapshot(session: Session) -> None:
    run = make_run(session)
    assemble(session, run.name)
    rows = snapshots.export_snapshot(session, "new").trajectories.to_pylist()
    item, trajectory = models.ProbeItem, models.ProbeTrajectory
    query = select(item, trajectory).join(trajectory, trajectory.probe_item_id == item.id)
    stored = session.execute(query.order_by(item.question_id, trajectory.trajectory)).all()
    assert len(rows) == len(stored) == 12
    for row, (of_item, found) in zip(rows, stored, strict=True):
        assert (row["model"], row["question_id"], row["trajectory"]) == ("tiny", of_item.question_id, found.trajectory)
        for name in ("token_ids", "block_tokens", "retained_tokens", "correct_probes", "end_margin"):
            assert row[name] == getattr(found, name), name
        assert row["original_correct"] is found.original_correct
        assert row["thinking_tokens"] == len(found.token_ids)
        assert row["probe_answers"] == unpack_answers(found.answers)


def test_limits_that_were_hit_and_unreadable_answers_are_counted(session: Session) -> None:
    run = make_run(session)
    assemble(session, run.name)
    (counts,) = snapshots.get_snapshot(session, "new").manifest["worker"]["counts"]
    found = session.scalars(select(models.ProbeTrajectory)).all()
    answers = [text for t in found for of_one in unpack_answers(t.answers) for text in of_one]
    assert counts == {
        "model": "tiny",
        "benchmark": "sums",
        "trajectories": 12,
        "hit_thinking_limit": sum(t.original_answer is None for t in found),
        "answers": len(answers),
        "unextracted_answers": answers.count("I do not know"),
    }
    assert 0 < counts["hit_thinking_limit"] < 12
    assert 0 < counts["unextracted_answers"] < counts["answers"]


def test_the_same_measurements_have_the_same_identity(session: Session) -> None:
    """Who measured when, and on which machine, is no part of it."""
    for actor in ("worker here:1", "worker there:2"):
        with session.begin_nested() as savepoint:
            run = create_run(session, "measured")
            measure_items(session, run, actor=actor)
            digest = assemble(session, "measured").sha256
            savepoint.rollback()
        session.expire_all()
        if actor.endswith("1"):
            first = digest
    assert digest == first


def test_runs_of_one_protocol_make_one_snapshot(session: Session) -> None:
    for model in ("tiny", "small"):
        make_run(session, f"run-{model}", model=model)
    assemble(session, "run-tiny", "run-small", title="Both")
    exported = snapshots.export_snapshot(session, "new")
    assert (exported.manifest.models, exported.manifest.benchmarks) == (("tiny", "small"), ("sums",))
    assert (exported.questions.num_rows, exported.trajectories.num_rows) == (6, 24)
    assert exported.manifest.title == "Both"
    assert [source["run"] for source in exported.manifest.raw["worker"]["sources"]] == ["run-tiny", "run-small"]
    assert "supersedes" not in exported.manifest.raw


def test_one_model_on_two_benchmarks_in_two_runs(session: Session) -> None:
    make_run(session, "one")
    make_run(session, "two", question_sets=[make_questions("products")])
    assemble(session, "one", "two")
    exported = snapshots.export_snapshot(session, "new")
    assert (exported.manifest.models, exported.manifest.benchmarks) == (("tiny",), ("sums", "products"))


def test_a_run_joins_a_snapshot_and_takes_its_place(session: Session) -> None:
    make_run(session, "run-tiny")
    old = assemble(session, "run-tiny", name="old", hidden_splits=("test",), license="CC-BY-4.0", title="Old")
    snapshots.freeze_snapshot(session, "old")
    make_run(session, "run-small", model="small")
    new = assemble(session, "run-small", with_snapshot="old")
    manifest = new.manifest
    assert manifest["supersedes"] == [{"name": "old", "sha256": old.sha256}]
    # Hidden labels stay hidden, and what it says of itself is what the old one said.
    assert (manifest["hidden_splits"], manifest["license"], manifest["title"]) == (["test"], "CC-BY-4.0", "Old")
    assert [model["name"] for model in manifest["models"]] == ["tiny", "small"]
    assert [source["run"] for source in manifest["worker"]["sources"]] == ["run-tiny", "run-small"]
    assert [counts["model"] for counts in manifest["worker"]["counts"]] == ["tiny", "small"]
    assert find_successor(session, old) is None
    snapshots.freeze_snapshot(session, "new")
    assert find_successor(session, old) == "new"


def test_what_is_assembled_again_takes_the_place_of_what_it_was(session: Session) -> None:
    run = make_run(session, "measured")
    first = assemble(session, "measured", name="first")
    second = assemble(session, run.id, name="second")
    assert second.manifest["supersedes"] == [{"name": "first", "sha256": first.sha256}]
    assert run.snapshot_id == second.id
    reasons = [event.reason for event in probe_runs.list_run_events(session, run)][-2:]
    assert reasons == ["assembled into first", "assembled into second"]


@pytest.mark.parametrize(
    ("changes", "column", "values"),
    [
        ({"n_probes": 5}, "n_probes", ("4", "5")),
        ({"n_trajectories": 3}, "n_trajectories", ("2", "3")),
        ({"step_tokens": 16}, "step_tokens", ("8", "16")),
    ],
)
def test_other_protocols_do_not_fit(
    session: Session, changes: dict[str, int], column: str, values: tuple[str, str]
) -> None:
    make_run(session, "one")
    make_run(session, "two", model="small", **changes)
    with pytest.raises(PartsDoNotFitError) as caught:
        assemble(session, "one", "two")
    (problem,) = caught.value.problems
    assert (problem.code, problem.column) == ("protocol_differs", column)
    assert f"is {values[0]} in run one and {values[1]} in run two" in problem.message
    assert session.scalars(select(models.Snapshot)).all() == []
    assert probe_runs.get_run(session, "one").state == "finished"


def test_questions_that_differ_are_named(session: Session) -> None:
    make_run(session, "one")
    make_run(session, "two", model="small", question_sets=[make_questions(n_questions=7, offset=1)])
    with pytest.raises(PartsDoNotFitError) as caught:
        assemble(session, "one", "two")
    faults = list_faults(caught)
    assert ("question_missing", "sums / q6") in faults
    assert ("question_differs", "sums / q0") in faults
    # Prompt and reference of six questions differ, and one question is in one run only.
    assert {problem.code: problem.count for problem in caught.value.problems} == {
        "question_differs": 12,
        "question_missing": 1,
    }
    missing = next(problem for problem in caught.value.problems if problem.code == "question_missing")
    assert missing.message == "run two has a question that run one lacks"


def test_cells_that_are_there_twice_or_not_at_all_are_named(session: Session) -> None:
    sums, products = make_questions(), make_questions("products")
    make_run(session, "one", question_sets=[sums, products])
    make_run(session, "two")
    make_run(session, "three", model="small")
    with pytest.raises(PartsDoNotFitError) as caught:
        assemble(session, "one", "two", "three")
    assert list_faults(caught) == [("cell_twice", "tiny / sums"), ("cell_missing", "small / products")]


def test_one_model_under_two_profiles_is_named(session: Session) -> None:
    make_run(session, "one")
    profile = make_profile(sampling={"temperature": 1.0})
    make_run(session, "two", profile=profile, question_sets=[make_questions("products")])
    with pytest.raises(PartsDoNotFitError) as caught:
        assemble(session, "one", "two")
    assert {problem.code for problem in caught.value.problems} == {"model_differs"}
    assert {problem.column for problem in caught.value.problems} == {"sampling", "probe_sampling"}


def test_synthetic_data_and_public_exports_do_not_mix(session: Session, make_board_snapshot: Any) -> None:
    make_run(session, "one")
    synthetic = make_board_snapshot("synthetic", target_step_tokens=8)
    snapshots.import_snapshot(session, synthetic)
    with pytest.raises(PartsDoNotFitError) as caught:
        assemble(session, "one", with_snapshot="synthetic")
    assert ("protocol_differs", None) in list_faults(caught)
    assert any(problem.column == "kind" for problem in caught.value.problems)


def test_a_public_export_lacks_labels(session: Session) -> None:
    from app.files.snapshot import make_public

    make_run(session, "one")
    assemble(session, "one", name="full", hidden_splits=("test",))
    export = make_public(snapshots.export_snapshot(session, "full"))
    renamed = build_snapshot({**export.manifest.raw, "name": "export"}, export.questions, export.trajectories)
    snapshots.import_snapshot(session, renamed)
    make_run(session, "two", model="small")
    with pytest.raises(PartsDoNotFitError) as caught:
        assemble(session, "two", with_snapshot="export")
    assert list_faults(caught) == [("labels_hidden", None)]


def test_only_finished_runs(session: Session) -> None:
    run = create_run(session, "half")
    measure_items(session, run, n_items=5)
    make_run(session, "whole", model="small")
    with pytest.raises(RunNotFinishedError) as caught:
        assemble(session, "whole", "half")
    assert list_faults(caught) == [("run_not_finished", "half"), ("question_not_measured", "tiny / sums / q5")]


def test_failed_questions_are_named_with_their_reason(session: Session) -> None:
    run = create_run(session, "broken")
    fail_item(session, run)
    measure_items(session, run)
    assert run.state == "failed"
    with pytest.raises(RunNotFinishedError) as caught:
        assemble(session, "broken")
    failed = caught.value.problems[1]
    assert (failed.code, failed.unit) == ("question_not_measured", "tiny / sums / q0")
    assert "the engine ran out of memory" in failed.message


def test_columns_that_are_left_out(session: Session) -> None:
    """Some benchmarks may not be passed on in plain text, and answers make a snapshot large."""
    make_run(session, "one")
    with pytest.raises(UnknownColumnError, match="did you mean 'prompt'"):
        assemble(session, "one", left_out=("promt",))
    with pytest.raises(UnknownColumnError):
        assemble(session, "one", left_out=("correct_probes",))
    assemble(session, "one", name="bare", left_out=("prompt", "reference_answer", "token_ids", "probe_answers"))
    bare = snapshots.export_snapshot(session, "bare")
    for table, name in (
        (bare.questions, "prompt"),
        (bare.questions, "reference_answer"),
        (bare.trajectories, "token_ids"),
        (bare.trajectories, "probe_answers"),
    ):
        assert table[name].null_count == table.num_rows
    assert bare.trajectories["end_margin"].null_count == 0
    # A run with its texts joins a snapshot without them: what is known of the questions is the same.
    make_run(session, "two", model="small")
    assemble(session, "two", name="both", with_snapshot="bare")
    both = snapshots.export_snapshot(session, "both")
    assert both.questions["prompt"].null_count == 6
    assert both.trajectories["token_ids"].null_count == 12


def test_what_is_not_there(session: Session) -> None:
    with pytest.raises(NothingToAssembleError):
        assemble(session)
    with pytest.raises(probe_runs.UnknownProbeRunError, match="nowhere"):
        assemble(session, "nowhere")
    make_run(session, "one")
    with pytest.raises(UnknownSnapshotError):
        assemble(session, "one", with_snapshot="nowhere")
    assemble(session, "one", name="taken")
    with pytest.raises(SnapshotExistsError):
        assemble(session, "one", name="taken")


def test_characters_that_no_snapshot_can_hold(session: Session) -> None:
    """A tokenizer's decoder leaves halves of characters behind, and a model may write a NUL."""
    from app.services.probe_records import pack_answers

    run = make_run(session)
    trajectory = session.scalars(select(models.ProbeTrajectory).order_by(models.ProbeTrajectory.id)).first()
    assert trajectory is not None
    odd = [["a\x00b", "\ud83d", "π", ""]] * len(trajectory.retained_tokens)
    trajectory.answers = pack_answers(odd)
    session.flush()
    assemble(session, run.name)
    first = snapshots.export_snapshot(session, "new").trajectories.column("probe_answers")[0].as_py()
    assert first[0] == ["a\ufffdb", "\ufffd", "π", ""]
