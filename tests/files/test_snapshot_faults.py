"""A faulty snapshot: every fault is listed with its code, row, column and unit, and nothing is read."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.errors import Problem
from app.files.manifest import OPTIONAL_KEYS, REQUIRED_KEYS, build_manifest, canonical_manifest, check_manifest
from app.files.problems import ProblemCollector
from app.files.snapshot import SnapshotError, build_snapshot, read_snapshot, verify_snapshot


def _faults(parts: Any) -> list[Problem]:
    with pytest.raises(SnapshotError) as caught:
        build_snapshot(parts.manifest, parts.question_table(), parts.trajectory_table())
    assert len(caught.value.problems) <= 100
    return list(caught.value.problems)


def _only(problems: list[Problem]) -> Problem:
    assert len(problems) == 1, problems
    return problems[0]


def _codes(problems: list[Problem]) -> dict[str, int]:
    return {problem.code: problem.count for problem in problems}


def test_a_sound_snapshot_has_no_problem(parts, tmp_path: Path):
    assert verify_snapshot(parts.write(tmp_path / "s")) == []


def test_ten_kinds_of_faults_are_all_listed_at_once(parts, tmp_path: Path):
    """Ten kinds of faults in one snapshot give ten codes, each with its exact total, and nothing is read."""
    parts.manifest["licence"] = "MIT"
    parts.questions.append(dict(parts.questions[0]))
    parts.questions[2]["split"] = "dev"
    parts.find("large", "math", "q2", 0)["thinking_tokens"] = 999
    parts.find("large", "math", "q2", 1)["correct_probes"] = [9] * len(
        parts.find("large", "math", "q2", 1)["correct_probes"]
    )
    parts.find("large", "math", "q10", 0).update(retained_tokens=[0, 8, 8], correct_probes=[0, 0, 0], thinking_tokens=8)
    parts.find("large", "math", "q10", 1).update(retained_tokens=[1, 8], correct_probes=[0, 0], thinking_tokens=8)
    parts.find("tiny", "math", "q10", 1)["correct_probes"].append(1)
    parts.find("tiny", "aime", "b", 1)["correct_probes"] = None
    parts.find("tiny", "aime", "a", 1)["model"] = "tyni"
    parts.find("tiny", "aime", "b", 0)["trajectory"] = 1
    folder = parts.write(tmp_path / "s")
    raw = json.loads((folder / "manifest.json").read_text())
    raw["files"]["questions.parquet"] = "0" * 64
    (folder / "manifest.json").write_text(json.dumps(raw))
    with pytest.raises(SnapshotError) as caught:
        read_snapshot(folder)
    assert _codes(list(caught.value.problems)) == {
        "hash_mismatch": 1,
        "unknown_key": 1,
        "bad_split": 1,
        "duplicate_question": 1,
        "unknown_model": 1,
        "duplicate_trajectory": 1,
        "missing_trajectory": 2,
        "correct_probes_out_of_range": 1,
        "labels_missing": 1,
        "retained_tokens_start": 1,
        "retained_tokens_not_increasing": 1,
        "thinking_tokens_mismatch": 1,
        "length_mismatch": 1,
    }
    assert verify_snapshot(folder) == list(caught.value.problems)
    by_code = {problem.code: problem for problem in caught.value.problems}
    assert by_code["unknown_key"].column == "licence"
    assert "did you mean 'license'?" in by_code["unknown_key"].message
    assert "did you mean 'tiny'?" in by_code["unknown_model"].message
    assert by_code["retained_tokens_not_increasing"].unit == "large / math / q10 / 0"
    assert "L(2) = 8 does not exceed L(1) = 8" in by_code["retained_tokens_not_increasing"].message
    assert by_code["thinking_tokens_mismatch"].row == 1
    assert json.dumps([problem.as_dict() for problem in caught.value.problems])


@pytest.mark.parametrize(
    ("key", "value", "code"),
    [
        ("format", "stp-snapshot/2", "bad_format"),
        ("format", None, "missing_key"),
        ("name", "Not a slug", "bad_name"),
        ("name", "a" * 65, "bad_name"),
        ("name", "a-", "bad_name"),
        ("name", 7, "bad_name"),
        ("title", "  ", "bad_value"),
        ("kind", "simulated", "bad_kind"),
        ("kind", ["measured"], "bad_kind"),
        ("description", 3, "bad_value"),
        ("generator", "seed 1", "bad_value"),
        ("supersedes", {"name": "old", "sha256": "0" * 64}, "bad_value"),
        ("supersedes", ["old"], "bad_value"),
        ("supersedes", [{"name": "old"}], "bad_value"),
        ("supersedes", [{"name": "old", "sha256": "0" * 63}], "bad_value"),
        ("supersedes", [{"name": "old", "sha256": "0" * 64, "why": "regraded"}], "bad_value"),
        ("target_step_tokens", 0, "bad_value"),
        ("probes_per_position", True, "bad_value"),
        ("probes_per_position", 4.5, "bad_value"),
        ("trajectories_per_question", 2**31, "bad_value"),
        ("models", [], "bad_value"),
        ("models", ["large"], "bad_value"),
        ("models", [{"name": "large"}, {"name": "tiny"}, {"name": "tiny"}], "duplicate_name"),
        ("models", [{"name": "large"}, {"name": "tiny"}, {"repository": "x"}], "missing_key"),
        ("models", [{"name": "large"}, {"name": "tiny"}, {"name": " x"}], "bad_name"),
        ("benchmarks", [{"name": "math", "title": 3}, {"name": "aime"}], "bad_value"),
        ("hidden_splits", ["tests"], "bad_split"),
        ("hidden_splits", [["test"]], "bad_split"),
        ("hidden_splits", "test", "bad_value"),
        ("full_sha256", "abc", "bad_value"),
        ("files", {"../questions.parquet": "0" * 64}, "bad_value"),
        ("files", ["questions.parquet"], "bad_value"),
        ("created", "a\x00b", "bad_text"),
        ("surprise", 1, "unknown_key"),
    ],
)
def test_each_manifest_fault_has_its_code(parts, key, value, code):
    parts.manifest[key] = value
    assert set(_codes(_faults(parts))) == {code}


def test_every_required_key_is_missed_by_name(parts, tmp_path: Path):
    folder = parts.write(tmp_path / "s")
    (folder / "manifest.json").write_text("{}")
    problems = [p for p in verify_snapshot(folder) if p.code == "missing_key"]
    assert [p.column for p in problems] == [
        "format",
        "name",
        "title",
        "kind",
        "probes_per_position",
        "trajectories_per_question",
        "models",
        "benchmarks",
        "files",
    ]
    assert {p.count for p in problems} == {9}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"name": NaN}',
        '{"generator": {"x": 1e999}}',
        '{"name": "a", "name": "b"}',
        "[" * 100_000,
        '{"generator": ' + '{"a":' * 70 + "1" + "}" * 71,
    ],
)
def test_a_manifest_that_is_not_strict_json_is_named_and_the_tables_are_checked_all_the_same(
    parts, text, tmp_path: Path
):
    parts.find("large", "math", "q2", 0)["correct_probes"][0] = -1
    folder = parts.write(tmp_path / "s")
    (folder / "manifest.json").write_text(text)
    assert _codes(verify_snapshot(folder)) == {"unreadable_file": 1, "correct_probes_out_of_range": 1}


def test_a_manifest_with_a_byte_order_mark_is_read(parts, tmp_path: Path):
    folder = parts.write(tmp_path / "s")
    text = (folder / "manifest.json").read_text()
    (folder / "manifest.json").write_text("\ufeff" + text, encoding="utf-8")
    assert read_snapshot(folder).manifest.name == "small"


@pytest.mark.parametrize("name", ["manifest.json", "questions.parquet", "trajectories.parquet"])
def test_a_missing_file_is_named_once(parts, name, tmp_path: Path):
    folder = parts.write(tmp_path / "s")
    (folder / name).unlink()
    problem = _only([p for p in verify_snapshot(folder) if p.code == "missing_file"])
    assert (problem.column, problem.count) == (name, 1)


def test_a_listed_file_that_is_not_there_is_named(parts, tmp_path: Path):
    parts.manifest["files"] = {"extra.csv": "0" * 64}
    problems = verify_snapshot(parts.write(tmp_path / "s"))
    assert _codes(problems) == {"missing_hash": 2, "missing_file": 1}
    assert [p.column for p in problems] == ["files", "files", "extra.csv"]


def test_a_damaged_parquet_file_is_named_by_hash_and_content(parts, tmp_path: Path):
    folder = parts.write(tmp_path / "s")
    damaged = (folder / "trajectories.parquet").read_bytes()[:-20]
    (folder / "trajectories.parquet").write_bytes(damaged)
    assert _codes(verify_snapshot(folder)) == {"unreadable_file": 1, "hash_mismatch": 1}


def test_one_changed_byte_is_a_hash_mismatch(parts, tmp_path: Path):
    folder = parts.write(tmp_path / "s")
    table = pq.read_table(folder / "questions.parquet").replace_schema_metadata({"by": "me"})
    pq.write_table(table, folder / "questions.parquet")
    problem = _only(verify_snapshot(folder))
    assert (problem.code, problem.column) == ("hash_mismatch", "questions.parquet")
    assert hashlib.sha256((folder / "questions.parquet").read_bytes()).hexdigest() in problem.message


def test_unknown_missing_and_double_columns_are_named(parts):
    for row in parts.trajectories:
        row["end_margins"] = None
        del row["thinking_tokens"]
    problems = _faults(parts)
    assert [(p.code, p.column) for p in problems] == [
        ("unknown_column", "end_margins"),
        ("missing_column", "thinking_tokens"),
    ]
    assert "did you mean 'end_margin'?" in problems[0].message
    table = parts.question_table()
    double = pa.table([*table.columns, table.column("split")], names=[*table.column_names, "split"])
    with pytest.raises(SnapshotError) as caught:
        build_snapshot(parts.manifest, double, parts.trajectory_table())
    assert ("duplicate_column", "split") in [(p.code, p.column) for p in caught.value.problems]


@pytest.mark.parametrize(
    ("column", "values", "data_type", "code"),
    [
        ("trajectory", "0", pa.string(), "wrong_type"),
        ("trajectory", 0.5, pa.float64(), "wrong_type"),
        ("trajectory", True, pa.bool_(), "wrong_type"),
        ("model", 3, pa.int64(), "wrong_type"),
        ("model", b"large", pa.binary(), "wrong_type"),
        ("original_correct", 1, pa.int8(), "wrong_type"),
        ("original_correct", "yes", pa.string(), "wrong_type"),
        ("retained_tokens", 0, pa.int32(), "wrong_type"),
        ("retained_tokens", "[0]", pa.string(), "wrong_type"),
        ("retained_tokens", [[0]], pa.list_(pa.list_(pa.int32())), "wrong_type"),
        ("retained_tokens", [0], pa.list_view(pa.int32()), "wrong_type"),
        ("correct_probes", [0.5], pa.list_(pa.float32()), "wrong_type"),
        ("thinking_tokens", 2**31, pa.int64(), "out_of_range"),
        ("thinking_tokens", 2**64 - 1, pa.uint64(), "wrong_type"),
        ("retained_tokens", [0, 2**40], pa.list_(pa.int64()), "out_of_range"),
        ("thinking_tokens", None, pa.int32(), "null_value"),
        ("retained_tokens", None, pa.list_(pa.int32()), "null_value"),
        ("correct_probes", [None], pa.list_(pa.int32()), "null_value"),
        ("model", None, pa.string(), "null_value"),
    ],
)
def test_a_wrong_type_or_null_is_named_with_its_column(parts, column, values, data_type, code):
    for row in parts.trajectories:
        row[column] = values
    parts.extra_types[column] = data_type
    problems = [p for p in _faults(parts) if p.code == code]
    assert {p.column for p in problems} == {column}
    if code != "wrong_type":
        assert problems[0].count == len(parts.trajectories)
        assert problems[0].row == 1


@pytest.mark.parametrize("column", ["question_id", "prompt"])
def test_bytes_that_are_not_utf_8_are_named(parts, column, tmp_path: Path):
    """Arrow reads such texts without a word and fails when one is looked at."""
    table = parts.question_table()
    idx = table.column_names.index(column)
    damaged = pa.array([b"\xff\xfe"] * len(table), pa.binary()).view(pa.string())
    folder = parts.write(tmp_path / "s")
    pq.write_table(table.set_column(idx, column, damaged), folder / "questions.parquet")
    assert ("bad_text", column) in [(p.code, p.column) for p in verify_snapshot(folder)]


def test_rows_are_those_of_the_file_counted_from_one(parts):
    parts.trajectories[6]["model"] = "nobody"
    parts.trajectories[6]["original_correct"] = None
    problem = next(p for p in _faults(parts) if p.code == "unknown_model")
    row = parts.trajectories[6]
    assert problem.row == 7
    assert problem.unit == f"nobody / {row['benchmark']} / {row['question_id']} / {row['trajectory']}"


@pytest.mark.parametrize(
    ("change", "code", "count"),
    [
        (lambda p: p.questions[0].update(benchmark="maths"), "unknown_benchmark", 1),
        (lambda p: p.questions[0].update(split=None), "null_value", 1),
        (lambda p: p.questions[0].update(split="Train"), "bad_split", 1),
        (lambda p: p.questions[0].update(question_id=""), "bad_name", 1),
        (lambda p: p.questions[0].update(question_id=" q2"), "bad_name", 1),
        (lambda p: p.questions[0].update(question_id="q\n2"), "bad_name", 1),
        (lambda p: p.questions[0].update(question_id="q" * 201), "bad_name", 1),
        (lambda p: p.questions[0].update(prompt="a\x00"), "bad_text", 1),
        (lambda p: p.questions[0].update(question_id="q2\u3000"), "bad_name", 1),
        (lambda p: p.trajectories[0].update(probe_answers=[["a", "b\x00"]]), "bad_text", 1),
        (lambda p: p.questions.append(p.questions[1]), "duplicate_question", 1),
        (lambda p: p.questions.pop(0), "unknown_question", 4),
        (lambda p: p.questions.clear(), "empty_file", 1),
        (lambda p: p.trajectories[0].update(trajectory=2), "unknown_trajectory", 1),
        (lambda p: p.trajectories[0].update(trajectory=-1), "unknown_trajectory", 1),
        (lambda p: p.trajectories.append(p.trajectories[1]), "duplicate_trajectory", 1),
        (lambda p: p.trajectories.pop(), "missing_trajectory", 1),
        (lambda p: p.trajectories.__delitem__(slice(2, 8)), "missing_trajectory", 6),
        (lambda p: p.manifest.update(trajectories_per_question=3), "missing_trajectory", 10),
        (lambda p: p.manifest.update(trajectories_per_question=2**31 - 1), "missing_trajectory", 10 * (2**31 - 3)),
        (lambda p: p.manifest.update(trajectories_per_question=1), "unknown_trajectory", 10),
        (lambda p: p.manifest["models"].append({"name": "third"}), "missing_trajectory", 10),
        (lambda p: p.manifest["models"].pop(), "unknown_model", 10),
        (lambda p: p.trajectories[0].update(retained_tokens=[], correct_probes=[]), "retained_tokens_start", 1),
        (lambda p: p.trajectories[0].update(end_margin=[]), "length_mismatch", 1),
        (lambda p: p.trajectories[0].update(probe_answers=[["1"] * 5]), "length_mismatch", 1),
        (lambda p: p.trajectories[0].update(step_logprob=[0.5] * 9), "length_mismatch", 1),
        (lambda p: p.trajectories[0].update(token_ids=[1] * 7777), "length_mismatch", 1),
        (lambda p: p.trajectories[0].update(block_tokens=[3, 7777]), "block_tokens_mismatch", 1),
        (lambda p: p.trajectories[0].update(correct_probes=None), "labels_missing", 1),
        (lambda p: p.manifest.update(full_sha256="0" * 64), "hash_mismatch", 1),
    ],
)
def test_each_content_fault_has_its_code_and_exact_total(parts, change, code, count):
    change(parts)
    assert _codes(_faults(parts))[code] == count


def test_a_zero_block_is_a_fault_and_sound_optional_lists_are_none(parts):
    row = next(row for row in parts.trajectories if len(row["retained_tokens"]) == 3)
    row.update(
        token_ids=list(range(250)),
        block_tokens=[50, 50, 150],
        step_logprob=[-0.5, -1.0],
        end_margin=[1.0, 2.0, 3.0],
        probe_answers=[["1"] * 4, [], ["2", None]],
    )
    snapshot = build_snapshot(parts.manifest, parts.question_table(), parts.trajectory_table())
    assert snapshot.trajectories["token_ids"].null_count == 19
    row["block_tokens"] = [100, 0, 150]
    assert _only(_faults(parts)).code == "block_tokens_mismatch"


def test_missing_trajectories_are_named_one_by_one(parts):
    parts.trajectories.remove(parts.find("tiny", "math", "q10", 1))
    problem = _only(_faults(parts))
    assert (problem.code, problem.unit) == ("missing_trajectory", "tiny / math / q10 / 1")


def test_labels_of_a_hidden_split_may_be_missing_but_only_all_of_them(parts):
    parts.manifest["hidden_splits"] = ["test"]
    hidden = [row for row in parts.trajectories if row["question_id"] in ("q10", "a")]
    for row in hidden:
        row.update(correct_probes=None, original_correct=None)
    assert build_snapshot(parts.manifest, parts.question_table(), parts.trajectory_table()).manifest.hidden_splits == (
        "test",
    )
    hidden[3]["correct_probes"] = [0] * len(hidden[3]["retained_tokens"])
    problems = _faults(parts)
    assert _codes(problems) == {"labels_missing": len(hidden) - 1}
    parts.manifest["hidden_splits"] = []
    assert _codes(_faults(parts)) == {"labels_missing": len(hidden) - 1}


def test_a_million_faults_of_one_kind_do_not_hide_the_others(parts):
    """200 wrong rows of one kind: at most 100 examples in all, every kind there, totals exact."""
    parts.manifest["trajectories_per_question"] = 200
    row = parts.find("tiny", "aime", "a", 0)
    parts.trajectories += [{**row, "trajectory": n, "thinking_tokens": 10**6} for n in range(2, 200)]
    row["correct_probes"] = [77] * len(row["correct_probes"])
    problems = _faults(parts)
    assert len(problems) == 100
    assert _codes(problems) == {
        "missing_trajectory": 9 * 198,
        "correct_probes_out_of_range": 1,
        "thinking_tokens_mismatch": 198,
    }
    shown = Counter(problem.code for problem in problems)
    assert shown["correct_probes_out_of_range"] == 1
    assert abs(shown["missing_trajectory"] - shown["thinking_tokens_mismatch"]) <= 1


@pytest.mark.parametrize("seed", range(8))
def test_the_vectorised_curve_checks_agree_with_a_plain_loop(parts, seed):
    """Random small lists, many of them wrong, checked again row by row in plain Python."""
    rng = np.random.default_rng(seed)
    expected: Counter[str] = Counter()
    for row in parts.trajectories:
        tokens = rng.integers(-1, 6, rng.integers(0, 5)).tolist()
        if rng.random() < 0.6:
            tokens = [0, *(np.cumsum(rng.integers(1, 4, len(tokens))).tolist())]
        correct = rng.integers(-1, 6, max(0, len(tokens) + int(rng.integers(-1, 2)) * (rng.random() < 0.3))).tolist()
        thinking = tokens[-1] if tokens and rng.random() < 0.7 else 3
        row.update(retained_tokens=tokens, correct_probes=correct, thinking_tokens=thinking)
        expected["retained_tokens_start"] += not tokens or tokens[0] != 0
        expected["retained_tokens_not_increasing"] += any(b <= a for a, b in pairwise(tokens))
        expected["correct_probes_out_of_range"] += any(not 0 <= c <= 4 for c in correct)
        if tokens:
            expected["thinking_tokens_mismatch"] += thinking != tokens[-1]
            expected["length_mismatch"] += len(correct) != len(tokens)
    assert _codes(_faults(parts)) == {code: count for code, count in expected.items() if count}


def test_infinite_margins_are_values(parts):
    row = next(row for row in parts.trajectories if len(row["retained_tokens"]) == 1)
    row["end_margin"] = [math.inf]
    snapshot = build_snapshot(parts.manifest, parts.question_table(), parts.trajectory_table())
    assert [m for m in snapshot.trajectories["end_margin"].to_pylist() if m] == [[math.inf]]


def test_every_problem_code_is_in_the_documentation():
    """The codes that the checks can give, read from their source, all stand in docs/snapshot-format.md."""
    root = Path(__file__).resolve().parents[2]
    documented = (root / "docs" / "snapshot-format.md").read_text(encoding="utf-8")
    listed = documented[documented.index("## Faults") :]
    found = set()
    for name in ("columns", "curve_checks", "manifest", "snapshot", "snapshot_checks", "snapshot_source"):
        source = (root / "app" / "files" / f"{name}.py").read_text(encoding="utf-8")
        found |= set(re.findall(r'(?:add|add_rows|count_more)\(\s*"([a-z_0-9]+)"', source))
        found |= set(re.findall(r'code(?:: str)? ?= ?"([a-z_0-9]+)"', source))
        found |= set(re.findall(r'_add_rows\(\s*rows,\s*problems,\s*"([a-z_0-9]+)"', source))
    found -= {"invalid_snapshot", "unknown_split", "labels_hidden"}
    rows = re.findall(r"^\| (`[a-z_0-9`, ]+`) \|", listed, re.MULTILINE)
    assert {code for row in rows for code in re.findall(r"[a-z_0-9]+", row)} == found


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "title", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=st.sampled_from([*REQUIRED_KEYS, *OPTIONAL_KEYS, "other"]), value=_VALUES)
def test_no_value_of_a_manifest_key_breaks_the_check(parts, key, value):
    """Whatever stands there: problems that can be written as JSON, or a manifest with a canonical text."""
    raw = {"files": {}, **parts.manifest, key: value}
    problems = ProblemCollector()
    facts = check_manifest(raw, problems)
    if problems:
        assert json.dumps([problem.as_dict() for problem in problems.problems()])
    else:
        assert build_manifest(raw, facts).name == raw["name"]
        assert json.loads(canonical_manifest(raw))["name"] == raw["name"]
