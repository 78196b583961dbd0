"""Random tables survive every format; random damage is always the file's fault and never another exception."""

from __future__ import annotations

import contextlib
import gzip
import json

import numpy as np
import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.evaluator.strategies import ActionTable, CellActions, Strategy, n_units, sort_settings
from app.files.action_columns import number_text, parse_integer
from app.files.actions import ActionFileError, read_actions, write_actions

DR, FB, DEE = Strategy.DYNAMIC_ROUTING, Strategy.FIXED_BUDGET, Strategy.DYNAMIC_EARLY_EXIT
SUFFIXES = (".parquet", ".csv", ".csv.gz", ".csv.zst", ".jsonl", ".jsonl.gz")
quick = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
labels = st.text(min_size=1, max_size=64).filter(lambda s: s.isprintable() and s == s.strip() and "\ufffd" not in s)


@quick
@given(
    strategy=st.sampled_from(Strategy),
    suffix=st.sampled_from(SUFFIXES),
    names=st.sets(labels, min_size=1, max_size=5),
    seed=st.integers(0, 2**32),
)
def test_a_random_table_survives_every_format(strategy, suffix, names, seed, tmp_path, whole):
    rng = np.random.default_rng(seed)
    measurements = whole.select("test")
    cells = []
    for cell in measurements.cells:
        covered = rng.random(len(names)) < 0.8
        most = {DR: 1, FB: 2**62}.get(strategy, 0) + (cell.n_steps if strategy is DEE else 0)
        actions = rng.integers(
            0, np.broadcast_to(most, n_units(cell, strategy)) + 1, (len(names), n_units(cell, strategy))
        )
        cells.append(CellActions(covered, actions * covered[:, None]))
    used = np.any([cell.covered for cell in cells], axis=0)
    table = ActionTable(strategy, sort_settings(names), tuple(cells))
    path = tmp_path / f"table{suffix}"
    write_actions(path, table, measurements)
    if not used.any():
        with pytest.raises(ActionFileError, match="empty_file"):
            read_actions(path, whole, strategy=strategy, split="test")
        return

    file = read_actions(path, whole, strategy=strategy, split="test")

    assert file.table.settings == tuple(np.array(table.settings, dtype=object)[used])
    for got, written in zip(file.table.cells, table.cells, strict=True):
        assert np.array_equal(got.covered, written.covered[used])
        assert np.array_equal(got.actions, written.actions[used])


def damage(data: bytes, rng: np.random.Generator) -> bytes:
    """Change some bytes, cut the data off, leave a piece out, or put one in."""
    octets = bytearray(data)
    kind = rng.integers(4)
    at = int(rng.integers(len(octets)))
    if kind == 0:
        for place in rng.integers(len(octets), size=int(rng.integers(1, 20))):
            octets[place] = int(rng.integers(256))
    elif kind == 1:
        del octets[at:]
    elif kind == 2:
        del octets[at : at + int(rng.integers(1, 200))]
    else:
        octets[at:at] = rng.bytes(int(rng.integers(1, 50)))
    return bytes(octets)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("strategy", [FB, DEE])
def test_damage_is_always_the_files_fault(suffix, strategy, read, make_rows, encode):
    rng = np.random.default_rng(20260721)
    data = encode(make_rows(strategy, settings=["a", "b", "0.5"]), suffix)

    n_refused = 0
    for _ in range(60):
        with contextlib.suppress(ActionFileError):
            read(damage(data, rng), strategy, name=f"a{suffix}")
            continue
        n_refused += 1

    assert n_refused > 40


@quick
@given(
    data=st.binary(max_size=300),
    start=st.sampled_from([b"", b"model,benchmark,question_id,action\n", b'{"model":', b"PAR1"]),
)
def test_any_bytes_are_refused(data, start, read):
    with pytest.raises(ActionFileError):
        read(start + data, DR)


@quick
@given(
    values=st.lists(
        st.one_of(
            st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({"a": 1})
        ),
        min_size=10,
        max_size=10,
    ),
    column=st.sampled_from(["model", "question_id", "action", "setting"]),
)
def test_any_json_values_are_read_or_refused(values, column, read, make_rows):
    rows = [row | {column: value} for row, value in zip(make_rows(FB), values, strict=True)]
    text = "".join(json.dumps(row) + "\n" for row in rows)

    with contextlib.suppress(ActionFileError):
        read(text.encode(), FB, name="a.jsonl")


@quick
@given(text=st.text(alphabet='ab,"\r\n; 0\u00e9', max_size=60))
def test_any_csv_text_below_a_header_is_refused(text, read):
    with pytest.raises(ActionFileError) as caught:
        read(f"model,benchmark,question_id,action\n{text}".encode(), DR)

    n_lines = 1 + text.count("\n") + 1
    assert all(p.row is None or 1 <= p.row <= n_lines for p in caught.value.problems)


@pytest.mark.parametrize("compress", [gzip.compress, zstandard.compress])
def test_every_cut_of_a_compressed_file_is_damage(compress, read, make_rows, encode):
    data = compress(encode(make_rows(DR), ".csv"))

    for end in range(4, len(data)):
        with pytest.raises(ActionFileError, match="unreadable_file"):
            read(data[:end], DR)


@quick
@given(number=st.integers(-(2**63) + 1, 2**63 - 1))
def test_an_integer_is_read_as_itself(number):
    assert parse_integer(str(number)) == number
    assert parse_integer(f"{number}.000") == number
    assert parse_integer(f"{number}0e-1") == number


@quick
@given(number=st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_is_written_so_that_it_reads_back(number):
    assert float(number_text(number)) == number
    assert not number_text(number).endswith(".0")
