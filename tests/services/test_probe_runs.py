"""Probe runs: their states, their questions on the queue and in workers' hands, and what is told of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from sqlalchemy import select, text, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, sessionmaker

from app.config import Config
from app.db import models
from app.files.profiles import UnknownModelError, get_profile, profile_document
from app.files.protocol import ProtocolError, build_protocol
from app.services import jobs, probe_items, probe_runs, probe_status, snapshots
from app.services.probe_records import LostItemError, unpack_answers
from tests.measured_runs import (
    create_run,
    fail_item,
    make_profile,
    make_questions,
    make_record,
    make_run,
    measure_items,
)

WORKER = "worker here:1"
QUEUED = (
    "SELECT queue_name, priority, args->>'probe_item_id' AS item, scheduled_at FROM procrastinate_jobs"
    " WHERE status = 'todo' ORDER BY priority DESC, id"
)


def list_queue(session: Session) -> list[Any]:
    return list(session.execute(text(QUEUED)))


def list_states(session: Session, run: models.ProbeRun) -> list[str]:
    item = models.ProbeItem
    return list(session.scalars(select(item.state).where(item.probe_run_id == run.id).order_by(item.idx)))


def find_items(session: Session, run: models.ProbeRun) -> list[models.ProbeItem]:
    item = models.ProbeItem
    query = select(item).where(item.probe_run_id == run.id).order_by(item.idx)
    return list(session.scalars(query.execution_options(populate_existing=True)))


def take(session: Session, run: models.ProbeRun, *, config: Config, idx: int = 0) -> probe_items.Lease:
    lease = probe_items.lease_item(session, find_items(session, run)[idx].id, actor=WORKER, config=config)
    assert lease is not None
    return lease


def let_pass(session: Session, column: str) -> None:
    """As if the time of a lease or deadline were over."""
    session.execute(text(f"UPDATE probe_items SET {column} = now() - interval '1 second' WHERE {column} IS NOT NULL"))
    session.expire_all()


# What a run is


def test_a_run_holds_the_questions_of_all_sets(session: Session) -> None:
    sets = [make_questions("sums", n_questions=3), make_questions("more", n_questions=2)]
    run = create_run(session, question_sets=sets)
    items = find_items(session, run)
    assert [(item.benchmark, item.question_id) for item in items] == [
        ("sums", "q0"),
        ("sums", "q1"),
        ("sums", "q2"),
        ("more", "q0"),
        ("more", "q1"),
    ]
    assert run.n_questions == 5
    stored = session.scalars(select(models.QuestionSetItem.document)).all()
    assert stored == [item.document for item in items]


def test_the_same_questions_are_stored_once(session: Session) -> None:
    first, second = create_run(session, "one"), create_run(session, "two")
    assert len(set(session.scalars(select(models.ProbeItem.question_set_id)))) == 1
    assert first.id != second.id


@pytest.mark.parametrize("name", ["a--b", "Upper", "a_b", "x" * 65, "-a"])
def test_a_name_that_no_snapshot_may_have_is_refused(session: Session, name: str) -> None:
    with pytest.raises(probe_runs.ProbeRunContentError) as caught:
        create_run(session, name)
    assert [problem.code for problem in caught.value.problems] == ["bad_name"]


def test_two_sets_of_one_benchmark_are_refused(session: Session) -> None:
    with pytest.raises(probe_runs.ProbeRunContentError) as caught:
        create_run(session, question_sets=[make_questions(n_questions=2), make_questions(n_questions=3)])
    assert [problem.code for problem in caught.value.problems] == ["duplicate_benchmark"]


def test_a_run_without_questions_is_refused(session: Session) -> None:
    profile = make_profile()
    with pytest.raises(probe_runs.ProbeRunContentError):
        probe_runs.create_run(
            session,
            "empty",
            profile=profile,
            protocol=build_protocol(profile, seed_name="empty"),
            question_sets=[],
            actor="ada",
        )


def test_the_name_of_a_run_or_snapshot_is_taken(session: Session, board_snapshot: Any) -> None:
    create_run(session, "taken")
    snapshots.import_snapshot(session, board_snapshot)
    for name in ("taken", board_snapshot.manifest.name):
        with pytest.raises(probe_runs.ProbeRunExistsError):
            create_run(session, name)


def test_limits_that_leave_no_room_for_a_question_are_refused(session: Session) -> None:
    profile = make_profile(engine={"max_model_len": 128}, answer_token_limit=32, probe_token_limit=16)
    with pytest.raises(probe_runs.ProbeRunContentError, match="128"):
        create_run(session, profile=profile, thinking_token_limit=96)
    create_run(session, profile=profile, thinking_token_limit=95)


def test_an_unknown_model_is_an_error_that_helps(session: Session) -> None:
    with pytest.raises(UnknownModelError, match=r"profiles\.md"):
        probe_runs.find_model_profile(session, "nobody-knows-it")


def test_a_registered_profile_goes_before_a_shipped_one(session: Session) -> None:
    shipped = get_profile("SmolLM2-135M-Instruct")
    assert probe_runs.find_model_profile(session, shipped.name) == shipped
    for limit in (77, 78):
        mine = dataclasses.replace(shipped, thinking_token_limit=limit)
        probe_runs.register_profile(session, mine)
        assert profile_document(probe_runs.find_model_profile(session, shipped.name)) == profile_document(mine)


def test_faults_of_a_protocol_are_all_listed() -> None:
    with pytest.raises(ProtocolError) as caught:
        build_protocol(make_profile(), seed_name="s", step_tokens=0, n_probes=-1)
    assert [problem.column for problem in caught.value.problems] == ["step_tokens", "n_probes"]


def test_models_that_share_an_engine_share_its_key() -> None:
    profile = make_profile()
    assert probe_runs.engine_key(profile) == probe_runs.engine_key(make_profile(thinking_token_limit=99))
    assert probe_runs.engine_key(profile) != probe_runs.engine_key(make_profile(repository="other"))


# States


def test_a_started_run_is_on_a_queue_of_its_own_engine(session: Session) -> None:
    run = create_run(session)
    queue = list_queue(session)
    assert {job.queue_name for job in queue} == {f"probe_question-{run.engine_key}"}
    assert not {job.queue_name for job in queue} & set(jobs.SCORING_QUEUES)
    assert [int(job.item) for job in queue] == [item.id for item in find_items(session, run)]


def test_a_run_that_is_not_started_hands_out_nothing(session: Session, config: Config) -> None:
    profile = make_profile()
    run = probe_runs.create_run(
        session,
        "held",
        profile=profile,
        protocol=build_protocol(profile, seed_name="held"),
        question_sets=[make_questions()],
        actor="ada",
    )
    assert list_queue(session) == []
    assert probe_items.lease_item(session, find_items(session, run)[0].id, actor=WORKER, config=config) is None
    assert probe_runs.start_run(session, "held", actor="ada").state == "running"
    assert len(list_queue(session)) == 6
    with pytest.raises(probe_runs.ProbeRunStateError):
        probe_runs.start_run(session, "held", actor="ada")


def test_a_paused_run_hands_out_nothing_and_loses_nothing(session: Session, config: Config) -> None:
    run = create_run(session)
    lease = take(session, run, config=config)
    probe_runs.pause_run(session, run.name, actor="ada", reason="the GPU is needed")
    assert list_queue(session) == []
    assert probe_items.lease_item(session, find_items(session, run)[1].id, actor=WORKER, config=config) is None
    # What was in a worker's hands is finished.
    assert probe_items.renew_lease(session, lease, config=config)
    probe_items.record_question(session, lease, make_record(lease))
    probe_runs.resume_run(session, run.name, actor="ada")
    assert len(list_queue(session)) == 5
    measure_items(session, run)
    assert run.state == "finished"


def test_the_last_question_ends_a_run_that_is_paused(session: Session, config: Config) -> None:
    run = create_run(session, question_sets=[make_questions(n_questions=1)])
    lease = take(session, run, config=config)
    probe_runs.pause_run(session, run.name, actor="ada")
    probe_items.record_question(session, lease, make_record(lease))
    assert run.state == "finished"


def test_a_cancelled_run_takes_questions_out_of_workers_hands(session: Session, config: Config) -> None:
    run = create_run(session)
    measure_items(session, run, n_items=1)
    lease = take(session, run, config=config, idx=1)
    probe_runs.cancel_run(session, run.name, actor="ada", reason="wrong model")
    assert list_queue(session) == []
    assert not probe_items.renew_lease(session, lease, config=config)
    with pytest.raises(LostItemError):
        probe_items.record_question(session, lease, make_record(lease))
    assert list_states(session, run) == ["done", *["waiting"] * 5]
    for act in (probe_runs.resume_run, probe_runs.pause_run):
        with pytest.raises(probe_runs.ProbeRunStateError):
            act(session, run.name, actor="ada")


def test_doing_it_twice_changes_nothing(session: Session) -> None:
    run = create_run(session)
    for act in (probe_runs.resume_run, probe_runs.pause_run, probe_runs.cancel_run):
        act(session, run.name, actor="ada")
        act(session, run.name, actor="ada")
    assert [event.to_state for event in probe_runs.list_run_events(session, run)] == [
        "created",
        "running",
        "paused",
        "cancelled",
    ]


def test_priority_orders_runs_that_share_a_worker(session: Session) -> None:
    low, high = create_run(session, "low"), create_run(session, "high")
    probe_runs.set_priority(session, "high", priority=5, actor="ada")
    queue = list_queue(session)
    assert [job.priority for job in queue] == [5] * 6 + [0] * 6
    assert int(queue[0].item) == find_items(session, high)[0].id
    work = probe_items.find_work(session)
    assert work is not None
    assert work.priority == 5
    probe_runs.set_priority(session, "high", priority=-5, actor="ada")
    assert int(list_queue(session)[0].item) == find_items(session, low)[0].id
    reasons = [event.reason for event in probe_runs.list_run_events(session, high)]
    assert reasons[-2:] == ["priority 0 becomes 5", "priority 5 becomes -5"]


def test_the_priority_of_an_ended_run_cannot_be_changed(session: Session) -> None:
    make_run(session)
    with pytest.raises(probe_runs.ProbeRunStateError):
        probe_runs.set_priority(session, "measured", priority=1, actor="ada")


def test_the_log_can_only_grow(session: Session) -> None:
    create_run(session)
    for change in ("UPDATE probe_run_events SET actor = 'x'", "DELETE FROM probe_run_events"):
        with pytest.raises(IntegrityError), session.begin_nested():
            session.execute(text(change))


def test_a_run_is_found_by_name_and_by_id(session: Session) -> None:
    run = create_run(session)
    assert probe_runs.get_run(session, run.id) is probe_runs.get_run(session, run.name)
    with pytest.raises(probe_runs.UnknownProbeRunError):
        probe_runs.get_run(session, "nothing")


# Questions in workers' hands


def test_a_question_is_leased_once(session: Session, sessions: sessionmaker[Session], config: Config) -> None:
    run = create_run(session)
    lease = take(session, run, config=config)
    assert probe_items.lease_item(session, lease.item_id, actor="worker there:2", config=config) is None
    assert (lease.question.question_id, lease.attempt, lease.instruction) == ("q0", 1, "Give the result.")
    assert lease.protocol.n_probes == 4


def test_two_workers_never_have_the_same_question(committed_database: str, config: Config) -> None:
    """The first one's transaction is still open when the second asks."""
    from app.db.session import make_engine, session_factory

    engine = make_engine(committed_database)
    own = session_factory(engine)
    with own.begin() as session:
        item_id = find_items(session, create_run(session))[0].id
    with own.begin() as first, own.begin() as second:
        assert probe_items.lease_item(first, item_id, actor=WORKER, config=config) is not None
        assert probe_items.lease_item(second, item_id, actor="worker there:2", config=config) is None
    engine.dispose()


def test_a_record_is_whole_and_ends_the_run(session: Session, config: Config) -> None:
    run = create_run(session, question_sets=[make_questions(n_questions=2)])
    for idx in (0, 1):
        lease = take(session, run, config=config, idx=idx)
        record = make_record(lease)
        probe_items.record_question(session, lease, record)
        assert run.state == ("running", "finished")[idx]
    item = find_items(session, run)[1]
    assert (item.seconds, item.prompt_tokens, item.cached_tokens) == (2.0, 1000, 900)
    assert item.generated_tokens == record.accounting.generated_tokens
    assert item.worker == {"engine": "none 1.0", "otboard": "0.1.0", "actor": WORKER}
    stored = session.scalars(
        select(models.ProbeTrajectory).where(models.ProbeTrajectory.probe_item_id == item.id)
    ).all()
    for trajectory, written in zip(record.trajectories, stored, strict=True):
        assert tuple(written.token_ids) == trajectory.token_ids
        assert tuple(written.correct_probes) == trajectory.correct_probes
        assert unpack_answers(written.answers) == [list(texts) for texts in trajectory.answers]
    assert run.finished_at is not None


def test_a_record_is_written_once(session: Session, config: Config) -> None:
    run = create_run(session)
    lease = take(session, run, config=config)
    probe_items.record_question(session, lease, make_record(lease))
    with pytest.raises(LostItemError):
        probe_items.record_question(session, lease, make_record(lease))
    count = "SELECT count(*) FROM probe_trajectories"
    assert session.scalar(text(count)) == 2
    assert probe_items.lease_item(session, lease.item_id, actor=WORKER, config=config) is None


def test_what_fails_is_tried_again_later_each_time(session: Session, config: Config) -> None:
    run = create_run(session)
    pauses = []
    for attempt in (1, 2):
        lease = take(session, run, config=config)
        probe_items.fail_item(session, lease, reason="the engine is out of memory")
        (item,) = [item for item in find_items(session, run) if item.id == lease.item_id]
        assert (item.state, item.failures, item.attempts) == ("waiting", attempt, attempt)
        pause = "SELECT extract(epoch FROM retry_at - now()) FROM probe_items WHERE id = :id"
        pauses.append(session.scalar(text(pause), {"id": item.id}))
        assert probe_items.lease_item(session, item.id, actor=WORKER, config=config) is None
        assert max(job.scheduled_at is not None for job in list_queue(session) if int(job.item) == item.id)
        session.execute(update(models.ProbeItem).values(retry_at=None))
    assert 8 < pauses[0] < 12
    assert 18 < pauses[1] < 22


def test_a_question_that_keeps_failing_fails_the_run_at_its_end(session: Session) -> None:
    run = create_run(session)
    fail_item(session, run, reason="the prompt is too long")
    assert list_states(session, run)[0] == "failed"
    assert run.state == "running"
    measure_items(session, run)
    assert run.state == "failed"
    assert run.failure_reason == ("1 of 6 questions failed; the first is q0: the prompt is too long (after 3 attempts)")
    probe_runs.resume_run(session, run.name, actor="ada")
    assert len(list_queue(session)) >= 1
    measure_items(session, run)
    assert (run.state, run.failure_reason) == ("finished", None)


def test_a_silent_worker_s_question_goes_to_another(session: Session, config: Config) -> None:
    run = create_run(session)
    lease = take(session, run, config=config)
    assert probe_items.reap_items(session, config=config) == 0
    let_pass(session, "lease_until")
    assert probe_items.reap_items(session, config=config) == 1
    item = find_items(session, run)[0]
    assert (item.state, item.losses, item.failures, item.reason) == (
        "waiting",
        1,
        0,
        f"{WORKER} fell silent (after 1 attempt)",
    )
    again = probe_items.lease_item(session, item.id, actor="worker there:2", config=config)
    assert again is not None
    assert again.attempt == 2
    # The first worker was only slow: what it measured comes too late, and is the same anyway.
    with pytest.raises(LostItemError):
        probe_items.record_question(session, lease, make_record(lease))
    probe_items.fail_item(session, lease, reason="lost")
    probe_items.return_item(session, lease)
    assert find_items(session, run)[0].state == "running"


def test_a_question_that_kills_every_worker_fails(session: Session, config: Config) -> None:
    run = create_run(session, question_sets=[make_questions(n_questions=1)])
    for _ in range(probe_items.MAX_LOSSES):
        take(session, run, config=config)
        let_pass(session, "lease_until")
        probe_items.reap_items(session, config=config)
    assert run.state == "failed"
    assert run.failure_reason is not None
    assert "fell silent (after 10 attempts)" in run.failure_reason


def test_a_question_that_hangs_is_taken_away_at_its_deadline(session: Session, config: Config) -> None:
    """Its worker lives and renews the lease; the engine does nothing."""
    run = create_run(session, question_seconds=60)
    lease = take(session, run, config=config)
    assert probe_items.renew_lease(session, lease, config=config)
    let_pass(session, "deadline")
    assert not probe_items.renew_lease(session, lease, config=config)
    probe_items.reap_items(session, config=config)
    item = find_items(session, run)[0]
    assert (item.state, item.failures) == ("waiting", 1)
    assert item.reason == "it took more than 60 seconds (after 1 attempt)"


def test_a_question_put_down_waits_without_a_word_against_it(session: Session, config: Config) -> None:
    run = create_run(session)
    lease = take(session, run, config=config)
    session.execute(text("DELETE FROM procrastinate_jobs"))
    probe_items.return_item(session, lease)
    item = find_items(session, run)[0]
    assert (item.state, item.failures, item.losses) == ("waiting", 0, 0)
    assert [int(job.item) for job in list_queue(session)] == [item.id]


def test_questions_that_lost_their_job_get_another(session: Session, config: Config) -> None:
    run = create_run(session)
    session.execute(text("DELETE FROM procrastinate_jobs WHERE (args->>'probe_item_id')::bigint % 2 = 0"))
    n_lost = 6 - len(list_queue(session))
    assert probe_items.reap_items(session, config=config) == n_lost > 0
    assert {int(job.item) for job in list_queue(session)} == {item.id for item in find_items(session, run)}
    assert probe_items.reap_items(session, config=config) == 0


def test_jobs_of_dead_workers_are_cleared_away(session: Session, config: Config) -> None:
    create_run(session)
    add = "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - make_interval(secs => :s)) RETURNING id"
    for seconds in (1, 1000):
        worker = session.scalar(text(add), {"s": seconds})
        session.execute(text("SELECT procrastinate_fetch_job_v2(NULL, :worker)"), {"worker": worker})
    doing = "SELECT count(*) FROM procrastinate_jobs WHERE status = 'doing'"
    assert session.scalar(text(doing)) == 2
    probe_items.reap_items(session, config=config)
    assert session.scalar(text(doing)) == 1


def test_work_is_found_by_model_and_engine(session: Session) -> None:
    first = create_run(session, "one", model="one")
    create_run(session, "two", model="two")
    assert probe_items.find_work(session, model="three") is None
    found = probe_items.find_work(session, model="two")
    assert found is not None
    assert found.profile.name == "two"
    found = probe_items.find_work(session, engine_key=first.engine_key)
    assert found is not None
    assert found.profile.name == "one"
    measure_items(session, first)
    assert probe_items.find_work(session, model="one") is None
    assert not probe_items.is_work_left(session, model="one")
    assert probe_items.is_work_left(session)


def test_a_question_that_waits_for_another_try_is_work_left(session: Session, config: Config) -> None:
    run = create_run(session, question_sets=[make_questions(n_questions=1)])
    probe_items.fail_item(session, take(session, run, config=config), reason="no luck")
    assert probe_items.find_work(session) is None
    assert probe_items.is_work_left(session)


# What is told of a run


def test_status_counts_to_the_token(session: Session, config: Config) -> None:
    run = create_run(session)
    measure_items(session, run, n_items=2)
    take(session, run, config=config, idx=2)
    fail_item(session, run)
    probe_items.announce_worker(
        session, WORKER, model=run.model, engine_key=run.engine_key, versions={"engine": "none"}
    )
    probe_items.announce_worker(session, "other", model="x", engine_key="0" * 16, versions={})
    status = probe_status.get_status(session, run, config=config)
    assert (status.n_done, status.n_running, status.n_waiting, status.n_failed) == (2, 1, 2, 1)
    items = find_items(session, run)
    assert status.generated_tokens == sum(item.generated_tokens or 0 for item in items)
    assert (status.seconds, status.prompt_tokens, status.cached_tokens) == (4.0, 2000, 1800)
    assert status.prefix_share == 0.9
    assert status.tokens_per_second == status.generated_tokens / 4
    # Three questions are left, two seconds each, and one worker.
    assert status.seconds_left == 6.0
    trajectories = session.scalars(select(models.ProbeTrajectory)).all()
    assert status.n_trajectories == len(trajectories) == 4
    assert status.n_probes == 4 * sum(len(trajectory.retained_tokens) for trajectory in trajectories)
    assert status.thinking_tokens == sum(len(trajectory.token_ids) for trajectory in trajectories)
    assert status.n_hit_limit == sum(trajectory.hit_limit for trajectory in trajectories)
    assert [(worker.actor, worker.question_id) for worker in status.workers] == [(WORKER, "q2")]
    assert [(reason.n_questions, reason.n_failed) for reason in status.reasons] == [(1, 1)]
    document = probe_status.status_document(status)
    assert document["workers"][0]["question_id"] == "q2"
    assert isinstance(document["created_at"], str)


def test_nothing_is_known_before_the_first_question(session: Session, config: Config) -> None:
    status = probe_status.get_status(session, create_run(session), config=config)
    assert (status.tokens_per_second, status.prefix_share, status.seconds_left) == (None, None, None)
    assert (status.cached_tokens, status.workers, status.n_waiting) == (None, (), 6)


def test_time_left_needs_a_worker_that_lives(session: Session, config: Config) -> None:
    run = create_run(session)
    measure_items(session, run, n_items=1)
    assert probe_status.get_status(session, run, config=config).seconds_left is None
    for name in ("one", "two"):
        probe_items.announce_worker(session, name, model=run.model, engine_key=run.engine_key, versions={})
    assert probe_status.get_status(session, run, config=config).seconds_left == 5.0
    session.execute(text("UPDATE probe_workers SET seen_at = now() - interval '1 hour' WHERE actor = 'one'"))
    assert probe_status.get_status(session, run, config=config).seconds_left == 10.0
    probe_items.renew_worker(session, "one")
    assert len(probe_status.get_status(session, run, config=config).workers) == 2
    probe_items.dismiss_worker(session, "two")
    assert [w.actor for w in probe_status.get_status(session, run, config=config).workers] == ["one"]


def test_questions_are_listed_with_what_they_took(session: Session) -> None:
    run = create_run(session)
    measure_items(session, run, n_items=1)
    first, second = probe_status.list_items(session, run)[:2]
    assert (first.question_id, first.state, first.seconds, first.attempts) == ("q0", "done", 2.0, 1)
    assert (second.state, second.seconds, second.generated_tokens) == ("waiting", None, None)


def test_an_estimate_becomes_the_truth(session: Session) -> None:
    run = create_run(session)
    before = probe_status.estimate_run(session, run, tokens_per_second=100.0)
    # 12 trajectories of at most 64 tokens, 8 steps of 8, 9 positions, 4 probes each.
    assert (before.basis, before.n_trajectories, before.n_positions, before.n_probes) == ("limits", 12, 108, 432)
    assert before.thinking_tokens == 12 * 64
    assert before.seconds == before.generated_tokens / 100
    measure_items(session, run)
    after = probe_status.estimate_run(session, run)
    items = find_items(session, run)
    assert after.basis == "finished questions"
    assert after.generated_tokens == sum(item.generated_tokens or 0 for item in items) < before.generated_tokens
    assert after.seconds == pytest.approx(12.0)
    assert probe_status.estimate_run(session, run, n_workers=3).elapsed_seconds == pytest.approx(4.0)
    assert probe_status.estimate_run(session, run, thinking_tokens=16.0).basis == "lengths"
