"""A database that an older release filled: upgraded, it has all that was in it, and the program works on it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from alembic import command
from sqlalchemy import Engine, inspect
from sqlalchemy.orm import Session, sessionmaker
from starlette.testclient import TestClient

from app.baselines import build_baseline
from app.config import Config
from app.db.migrations import alembic_config, is_up_to_date, upgrade_database
from app.db.models import Base
from app.db.session import conninfo, make_engine, session_factory
from app.evaluator.strategies import Strategy
from app.files.actions import write_actions
from app.files.snapshot import Snapshot, load_measurements
from app.main import create_app
from app.services import snapshots
from app.services.accounts import ensure_local_account, find_account_by_token
from app.services.bootstrap import begin_bootstrap, run_slice
from app.services.intervals import resample_submission
from app.services.ranks import rank_boards
from app.services.scoring import score_submission
from app.services.submissions import accept_submission, publish_submission
from app.services.uploads import store_upload

TARGET = {"snapshot": "small", "split": "test", "strategy": "fixed_budget"}
OLDER = ("0005", "0008", "0011")


@dataclass(frozen=True)
class Filled:
    """A database of this release with a board on it: what the tests write into older ones."""

    url: str
    config: Config
    token: str
    published: str
    draft: str


@pytest.fixture(scope="module")
def filled(module_database: str, board_snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Filled:
    config = Config(tmp_path_factory.mktemp("older"), database_url=module_database, bootstrap_replicates=20)
    engine = make_engine(module_database)
    sessions = session_factory(engine)
    with sessions.begin() as session:
        stored = snapshots.import_snapshot(session, board_snapshot)
        snapshots.freeze_snapshot(session, "small")
        token = ensure_local_account(session, config.data_dir)
    snapshots.prepare_split(sessions, stored.id, split="test", data_dir=config.data_dir)
    published, draft = (submit(sessions, config, board_snapshot, token, name) for name in ("oracle", "random"))
    with sessions.begin() as session:
        account = find_account_by_token(session, token)
        assert account is not None
        publish_submission(session, published, account=account)
        begin_bootstrap(session, stored, split="test", config=config)
    run_slice(sessions, stored.id, split="test", config=config)
    resample_submission(sessions, published, config=config)
    while rank_boards(sessions, stored.id, split="test", strategy=Strategy.FIXED_BUDGET):
        continue
    engine.dispose()
    return Filled(module_database, config, token, published, draft)


def submit(sessions: sessionmaker[Session], config: Config, snapshot: Snapshot, token: str, baseline: str) -> str:
    measurements = load_measurements(snapshot)
    table = build_baseline(baseline, measurements, strategy=Strategy.FIXED_BUDGET, split="test")
    path = config.data_dir / f"{baseline}.csv"
    write_actions(path, table, measurements.select("test"))
    with path.open("rb") as stream:
        upload = store_upload(stream, data_dir=config.data_dir, limit_bytes=10**9)
    with sessions.begin() as session:
        account = find_account_by_token(session, token)
        assert account is not None
        submission_id = accept_submission(
            session,
            account=account,
            snapshot_name="small",
            split="test",
            strategy=Strategy.FIXED_BUDGET,
            method_name=baseline,
            description=f"What {baseline} does.",
            upload=upload,
            filename=path.name,
        ).submission_id
    score_submission(sessions, submission_id, config=config, actor="worker")
    return submission_id


@pytest.fixture
def older(empty_database: str) -> Iterator[Engine]:
    engine = make_engine(empty_database)
    yield engine
    engine.dispose()


def list_columns(engine: Engine) -> dict[str, list[str]]:
    """Return the columns of our tables that the database has, tables in the order in which they refer to each other."""
    found = inspect(engine)
    there = set(found.get_table_names())
    ordered = [table.name for table in Base.metadata.sorted_tables if table.name in there]
    return {table: [column["name"] for column in found.get_columns(table)] for table in ordered}


def copy_rows(source: str, engine: Engine, columns: dict[str, list[str]]) -> None:
    """Write the rows of one database into another, as far as the tables there have the columns.

    A snapshot is frozen last: a frozen one takes no more rows.
    """
    target = conninfo(engine.url.render_as_string(hide_password=False))
    with psycopg.connect(conninfo(source)) as reading, psycopg.connect(target) as writing:
        for table, names in columns.items():
            thawed = {"state": "'imported'", "frozen_at": "NULL"} if table == "snapshots" else {}
            chosen = ", ".join(thawed.get(name, name) for name in names)
            with (
                reading.cursor().copy(f"COPY (SELECT {chosen} FROM {table}) TO STDOUT") as out,
                writing.cursor().copy(f"COPY {table} ({', '.join(names)}) FROM STDIN") as into,
            ):
                for block in out:
                    into.write(block)
            if "id" in names and Base.metadata.tables[table].c.id.identity is not None:
                last = f"(SELECT coalesce(max(id), 1) FROM {table})"
                writing.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {last})")
        frozen = reading.execute("SELECT id, frozen_at FROM snapshots WHERE state = 'frozen'").fetchall()
        for snapshot_id, frozen_at in frozen:
            query = "UPDATE snapshots SET state = 'frozen', frozen_at = %s WHERE id = %s"
            writing.execute(query, (frozen_at, snapshot_id))


def read_rows(url: str, columns: dict[str, list[str]]) -> dict[str, bytes]:
    """Return all rows of these columns as the database writes them, sorted."""
    rows = {}
    with psycopg.connect(conninfo(url)) as connection:
        for table, names in columns.items():
            query = f"COPY (SELECT {', '.join(names)} FROM {table}) TO STDOUT"
            with connection.cursor().copy(query) as out:
                rows[table] = b"\n".join(sorted(b"".join(out).splitlines()))
    return rows


def address(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


@pytest.mark.parametrize("revision", OLDER)
def test_what_was_in_it_is_there_and_works(filled: Filled, older: Engine, revision: str, tmp_path: Path) -> None:
    upgrade_database(older, revision=revision)
    columns = list_columns(older)
    copy_rows(filled.url, older, columns)
    before = read_rows(address(older), columns)
    assert {"snapshots", "trajectories", "submissions", "submission_events", "board_scores"} <= {
        table for table, rows in before.items() if rows
    }
    upgrade_database(older)
    with older.connect() as connection:
        assert is_up_to_date(connection)
    assert read_rows(address(older), columns) == before
    _use(filled, older)


def _use(filled: Filled, older: Engine) -> None:
    """Read what was there, as its owner and as a stranger, and submit something new."""
    config = Config(filled.config.data_dir, database_url=address(older), bootstrap_replicates=20)
    headers = {"Authorization": f"Bearer {filled.token}"}
    with TestClient(create_app(config)) as client:
        (row,) = client.get("/api/v1/leaderboard", params=TARGET).json()["rows"]
        assert (row["submission_id"], row["method"], row["team"]) == (filled.published, "oracle", "local")
        me = client.get("/api/v1/me", headers=headers).json()
        assert (me["name"], me["role"], me["team"]) == ("local", "operator", "local")
        assert client.get(f"/api/v1/submissions/{filled.draft}/score").status_code == 404
        mine = client.get("/api/v1/submissions", headers=headers).json()["items"]
        assert {item["id"]: item["state"] for item in mine} == {filled.published: "published", filled.draft: "scored"}
        new = _submit(client, headers, filled)
        score_submission(client.app.state.sessions, new, config=config, actor="worker")  # type: ignore[attr-defined]
        for submission_id in (filled.draft, new):
            assert client.post(f"/api/v1/submissions/{submission_id}/publish", headers=headers).status_code == 200
        rows = client.get("/api/v1/leaderboard", params=TARGET).json()["rows"]
        assert {row["method"] for row in rows} == {"oracle", "random", "newer"}
        for path in ("/", f"/submissions/{filled.published}", "/snapshots/small", "/methods/oracle"):
            assert client.get(path, headers={"Accept": "text/html"}).status_code == 200, path


def _submit(client: TestClient, headers: dict[str, str], filled: Filled) -> str:
    lines = (filled.config.data_dir / "random.csv").read_text().splitlines()
    # Another file: one setting of the one that is there.
    setting = lines[0].split(",").index("setting")
    kept = [lines[0], *(line for line in lines[1:] if line.split(",")[setting] == lines[1].split(",")[setting])]
    file: Any = {"file": ("newer.csv", "\n".join(kept).encode())}
    answer = client.post("/api/v1/submissions", data={**TARGET, "method": "newer"}, files=file, headers=headers)
    assert answer.status_code == 202, answer.text
    return str(answer.json()["id"])


def test_a_filled_database_goes_down_and_up_again(filled: Filled, older: Engine) -> None:
    """Going down drops what the older tables have no place for or cannot tell apart, and nothing else."""
    upgrade_database(older)
    copy_rows(filled.url, older, list_columns(older))
    with older.connect() as connection:
        command.downgrade(alembic_config(connection), OLDER[0])
        connection.commit()
    columns = list_columns(older)
    # Intervals made in another way than the older release makes them; it computes them anew.
    del columns["board_intervals"]
    source = read_rows(filled.url, columns)
    assert read_rows(address(older), columns) == source
    upgrade_database(older)
    assert read_rows(address(older), columns) == source
    _use(filled, older)
