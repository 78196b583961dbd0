"""What is frozen or recorded cannot be changed in the database itself, whoever is connected to it."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg import sql

from app.db.session import conninfo

ADD_SNAPSHOT = """
WITH snapshot AS (
    INSERT INTO snapshots (name, title, kind, sha256, manifest, probes_per_position, trajectories_per_question,
                           n_questions, n_trajectories)
    VALUES (%(name)s, 'T', 'measured', %(sha256)s, '{}', 4, 1, 1, 1) RETURNING id
), model AS (
    INSERT INTO snapshot_models (snapshot_id, idx, name) SELECT id, 0, 'm' FROM snapshot RETURNING id
), benchmark AS (
    INSERT INTO snapshot_benchmarks (snapshot_id, idx, name) SELECT id, 0, 'b' FROM snapshot RETURNING id
), question AS (
    INSERT INTO questions (snapshot_id, benchmark_id, question_id, split)
    SELECT snapshot.id, benchmark.id, 'q', 'test' FROM snapshot, benchmark RETURNING id
)
INSERT INTO trajectories (snapshot_id, model_id, question_pk, trajectory, thinking_tokens, retained_tokens,
                          correct_probes)
SELECT snapshot.id, model.id, question.id, 0, 7, '{0,7}', '{1,4}' FROM snapshot, model, question
RETURNING snapshot_id
"""
FREEZE = "UPDATE snapshots SET state = 'frozen', frozen_at = now() WHERE name = 'frozen'"
CHANGES = {
    "rename": "UPDATE snapshots SET title = 'other' WHERE name = 'frozen'",
    "thaw": "UPDATE snapshots SET state = 'imported', frozen_at = NULL WHERE name = 'frozen'",
    "delete snapshot": "DELETE FROM snapshots WHERE name = 'frozen'",
    "update trajectory": "UPDATE trajectories SET correct_probes = '{4,4}' WHERE snapshot_id = %(frozen)s",
    "delete trajectory": "DELETE FROM trajectories WHERE snapshot_id = %(frozen)s",
    "move trajectory in": "UPDATE trajectories SET snapshot_id = %(frozen)s WHERE snapshot_id = %(open)s",
    "move trajectory out": "UPDATE trajectories SET snapshot_id = %(open)s WHERE snapshot_id = %(frozen)s",
    "add trajectory": "INSERT INTO trajectories (snapshot_id, model_id, question_pk, trajectory, thinking_tokens,"
    " retained_tokens, correct_probes) SELECT snapshot_id, model_id, question_pk, 1, 7, '{0,7}', '{0,0}'"
    " FROM trajectories WHERE snapshot_id = %(frozen)s",
    "update question": "UPDATE questions SET split = 'train' WHERE snapshot_id = %(frozen)s",
    "add question": "INSERT INTO questions (snapshot_id, benchmark_id, question_id, split)"
    " SELECT snapshot_id, benchmark_id, 'more', 'test' FROM questions WHERE snapshot_id = %(frozen)s",
    "delete question": "DELETE FROM questions WHERE snapshot_id = %(frozen)s",
    "update model": "UPDATE snapshot_models SET name = 'other' WHERE snapshot_id = %(frozen)s",
    "add model": "INSERT INTO snapshot_models (snapshot_id, idx, name) VALUES (%(frozen)s, 1, 'more')",
    "delete model": "DELETE FROM snapshot_models WHERE snapshot_id = %(frozen)s",
    "update benchmark": "UPDATE snapshot_benchmarks SET idx = 3 WHERE snapshot_id = %(frozen)s",
    "add benchmark": "INSERT INTO snapshot_benchmarks (snapshot_id, idx, name) VALUES (%(frozen)s, 1, 'more')",
    "delete benchmark": "DELETE FROM snapshot_benchmarks WHERE snapshot_id = %(frozen)s",
    "truncate trajectories": "TRUNCATE trajectories",
    "truncate everything": "TRUNCATE snapshots CASCADE",
    "truncate questions": "TRUNCATE questions CASCADE",
}


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection]:
    """A plain connection, as psql makes one; its transaction is rolled back."""
    with psycopg.connect(conninfo(database_url)) as connection:
        yield connection
        connection.rollback()


@pytest.fixture
def ids(connection: psycopg.Connection) -> dict[str, int]:
    """The keys of a frozen snapshot and of one that is not."""
    found = {}
    for name, digit in (("frozen", "a"), ("open", "b")):
        row = connection.execute(ADD_SNAPSHOT, {"name": name, "sha256": digit * 64}).fetchone()
        assert row is not None
        found[name] = row[0]
    connection.execute(FREEZE)
    return found


@pytest.mark.parametrize("change", CHANGES)
def test_frozen_snapshot_refuses(connection: psycopg.Connection, ids: dict[str, int], change: str) -> None:
    with pytest.raises(psycopg.errors.RestrictViolation) as refused:
        connection.execute(CHANGES[change], ids)
    assert refused.value.diag.constraint_name == "snapshot_is_frozen"


def test_frozen_snapshot_refuses_copy(connection: psycopg.Connection, ids: dict[str, int]) -> None:
    statement = "COPY snapshot_models (snapshot_id, idx, name) FROM STDIN"
    with pytest.raises(psycopg.errors.RestrictViolation), connection.cursor().copy(statement) as copy:
        copy.write_row((ids["frozen"], 1, "more"))


def test_open_snapshot_can_change_and_go(connection: psycopg.Connection, ids: dict[str, int]) -> None:
    connection.execute("UPDATE trajectories SET correct_probes = '{4,4}' WHERE snapshot_id = %(open)s", ids)
    connection.execute("INSERT INTO snapshot_models (snapshot_id, idx, name) VALUES (%(open)s, 1, 'more')", ids)
    connection.execute("DELETE FROM snapshots WHERE id = %(open)s", ids)
    left = connection.execute("SELECT snapshot_id FROM trajectories").fetchall()
    assert left == [(ids["frozen"],)]


def test_row_cannot_slip_in_while_a_snapshot_is_frozen(committed_database: str) -> None:
    """Looked at without a lock, a row added beside a freeze would be seen by neither."""
    with (
        psycopg.connect(conninfo(committed_database)) as freezing,
        psycopg.connect(conninfo(committed_database)) as adding,
    ):
        row = freezing.execute(ADD_SNAPSHOT, {"name": "frozen", "sha256": "c" * 64}).fetchone()
        assert row is not None
        freezing.commit()
        freezing.execute(FREEZE)
        adding.execute("SET lock_timeout = '50ms'")
        adding.commit()
        statement = "INSERT INTO snapshot_models (snapshot_id, idx, name) VALUES (%s, 1, 'more')"
        with pytest.raises(psycopg.errors.LockNotAvailable):
            adding.execute(statement, row)
        adding.rollback()
        freezing.commit()
        with pytest.raises(psycopg.errors.RestrictViolation):
            adding.execute(statement, row)
        adding.rollback()


ADD_SCORE = """
WITH team AS (
    INSERT INTO teams (name) VALUES ('t') RETURNING id
), account AS (
    INSERT INTO accounts (name, team_id) SELECT 'a', id FROM team RETURNING id
), method AS (
    INSERT INTO methods (team_id, name) SELECT id, 'm' FROM team RETURNING id
), submission AS (
    INSERT INTO submissions (id, team_id, method_id, account_id, snapshot_id, split, strategy, actions_sha256,
                             actions_bytes, filename)
    SELECT 'abcdefghijkl', team.id, method.id, account.id, %(open)s, 'test', 'fixed_budget', repeat('d', 64), 1, 'f.csv'
    FROM team, method, account RETURNING id
), event AS (
    INSERT INTO submission_events (submission_id, to_state, actor) SELECT id, 'received', 'a' FROM submission
), score AS (
    INSERT INTO scores (submission_id, scorer_version, document) SELECT id, '1', '{}' FROM submission RETURNING id
)
INSERT INTO board_scores (score_id, n_settings, n_cells, min_questions, realised_potential, area, uninformed_area,
                          oracle_area, gap, max_accuracy, accuracy_25, accuracy_50, accuracy_75, curve_beta,
                          curve_accuracy)
SELECT id, 1, 1, 1, 0.5, 0.5, 0.25, 0.75, 0.25, 0.5, 0.5, 0.5, 0.5, '{0}', '{0.5}' FROM score
"""


@pytest.mark.parametrize("table", ["submission_events", "scores", "board_scores"])
@pytest.mark.parametrize("change", ["UPDATE {} SET id = DEFAULT", "DELETE FROM {}", "TRUNCATE {} CASCADE"])
def test_records_are_only_ever_added(
    connection: psycopg.Connection, ids: dict[str, int], table: str, change: str
) -> None:
    connection.execute(ADD_SCORE, ids)
    with pytest.raises(psycopg.errors.RestrictViolation) as refused:
        connection.execute(sql.SQL(change).format(sql.Identifier(table)))
    assert refused.value.diag.constraint_name == "append_only"
