"""Rows go in and come out by COPY as they were, whatever is in them."""

from __future__ import annotations

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from sqlalchemy import text
from sqlalchemy.orm import Session

from app.db import bulk

SCHEMA = pa.schema(
    [
        ("number", pa.int64()),
        ("label", pa.string()),
        ("known", pa.bool_()),
        ("share", pa.float64()),
        ("tokens", pa.list_(pa.int32())),
        ("margins", pa.list_(pa.float32())),
    ]
)
LABELS = [
    "plain",
    "",
    None,
    "tab\there",
    "two\nlines",
    "\r\n",
    "back\\slash \\N \\t",
    'quo"ted, comma',
    "ü 中 \u2028",
    "\\.",
]


@pytest.fixture
def rows() -> pa.Table:
    n = len(LABELS)
    columns = [
        pa.array(range(n), pa.int64()),
        pa.array(LABELS, pa.string()),
        pa.array([True, False, None, True, None, False, True, True, False, None]),
        pa.array([0.1, -0.0, None, 1e-300, 1e300, float("inf"), float("-inf"), 2 / 3, 5e-324, 1.0], pa.float64()),
        pa.array([[0, 1, 2], [], None, [2**31 - 1], [-(2**31)], [0], None, [], [7, 7], [1]], pa.list_(pa.int32())),
        pa.array(
            [
                [0.1, 1e-45],
                None,
                [],
                [float("nan")],
                [float("inf"), float("-inf")],
                [-0.0],
                [3.4e38],
                None,
                [],
                [1 / 3],
            ],
            pa.list_(pa.float32()),
        ),
    ]
    return pa.table(columns, schema=SCHEMA)


@pytest.fixture
def table(session: Session) -> str:
    session.execute(
        text(
            "CREATE TEMPORARY TABLE bulk_rows (number int8, label text, known bool, share float8, tokens int4[],"
            " margins real[])"
        )
    )
    return "bulk_rows"


def read_back(session: Session) -> pa.Table:
    query = "SELECT number, label, known, share, tokens, margins FROM bulk_rows ORDER BY number"
    return bulk.copy_out(session, query, SCHEMA)


def test_round_trip(session: Session, table: str, rows: pa.Table) -> None:
    bulk.copy_in(session, table, rows)
    assert str(read_back(session).to_pylist()) == str(rows.to_pylist())


def test_round_trip_of_a_slice_in_small_pieces(
    session: Session, table: str, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An Arrow slice shares the buffers of the whole, so offsets are what is easily got wrong."""
    monkeypatch.setattr(bulk, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(bulk, "BYTES_AT_ONCE", 1)
    part = pa.concat_tables([rows.slice(1, 4), rows.slice(6)])
    seen: list[int] = []
    bulk.copy_in(session, table, part, progress=seen.append)
    assert seen == [3, 6, 8]
    assert str(read_back(session).to_pylist()) == str(part.to_pylist())


def test_random_numbers_keep_every_bit(session: Session, table: str) -> None:
    rng = np.random.default_rng(11)
    bits = rng.integers(0, 2**32, size=5000, dtype=np.uint32).view(np.float32)
    shares = rng.integers(0, 2**64, size=5000, dtype=np.uint64).view(np.float64)
    shares = np.where(np.isnan(shares), 0.5, shares)
    rows = pa.table(
        {
            "number": pa.array(range(5000)),
            "share": shares,
            "margins": pa.array([[value] for value in bits], pa.list_(pa.float32())),
        }
    )
    bulk.copy_in(session, table, rows)
    found = read_back(session)
    assert found["share"].to_numpy().tobytes() == shares.tobytes()
    margins = found["margins"].combine_chunks().flatten().to_numpy()
    is_number = ~np.isnan(bits)
    assert margins[is_number].tobytes() == bits[is_number].tobytes()
    assert np.isnan(margins[~is_number]).all()


def test_nothing(session: Session, table: str, rows: pa.Table) -> None:
    bulk.copy_in(session, table, rows.slice(0, 0))
    assert read_back(session).num_rows == 0


def test_parameters_are_quoted(session: Session) -> None:
    found = bulk.copy_out(
        session, "SELECT {} AS label", pa.schema([("label", pa.string())]), parameters=['it\'s, "so"']
    )
    assert found.to_pylist() == [{"label": 'it\'s, "so"'}]


def test_failure_in_the_middle_leaves_nothing(session: Session, table: str, rows: pa.Table) -> None:
    session.execute(text("ALTER TABLE bulk_rows ADD CHECK (number < 9)"))
    with pytest.raises(psycopg.errors.CheckViolation), session.begin_nested():
        bulk.copy_in(session, table, rows)
    assert session.scalar(text("SELECT count(*) FROM bulk_rows")) == 0
