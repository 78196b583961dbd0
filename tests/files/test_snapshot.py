"""Reading, writing, exporting and loading snapshots."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from app.files import snapshot as snapshots
from app.files.atomic import OutputExistsError, OutputFailedError, new_file, new_folder, replaced_file
from app.files.problems import ProblemCollector
from app.files.snapshot import (
    LabelsHiddenError,
    Snapshot,
    SnapshotError,
    UnknownSplitError,
    build_snapshot,
    load_measurements,
    make_public,
    read_snapshot,
    require_labels,
    verify_snapshot,
    write_snapshot,
)


def _build(parts: Any) -> Snapshot:
    return build_snapshot(parts.manifest, parts.question_table(), parts.trajectory_table())


def _zip(target: Path, members: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return target


def _members(folder: Path, prefix: str = "") -> dict[str, bytes]:
    return {prefix + item.name: item.read_bytes() for item in folder.iterdir()}


def test_tables_are_in_canonical_order_with_every_column(parts):
    parts.trajectories.reverse()
    snapshot = _build(parts)
    questions = list(zip(*(snapshot.questions[c].to_pylist() for c in ("benchmark", "question_id")), strict=True))
    assert questions == [("math", "q1"), ("math", "q10"), ("math", "q2"), ("aime", "a"), ("aime", "b")]
    columns = ("model", "benchmark", "question_id", "trajectory")
    rows = list(zip(*(snapshot.trajectories[c].to_pylist() for c in columns), strict=True))
    assert rows == [(m, b, q, t) for m in ("large", "tiny") for b, q in questions for t in (0, 1)]
    assert snapshot.trajectories.schema.equals(snapshots.TRAJECTORIES_SCHEMA)
    assert snapshot.questions.schema.equals(snapshots.QUESTIONS_SCHEMA)
    assert snapshot.questions["reference_answer"].null_count == 5


def test_question_ids_sort_by_code_point(parts):
    """U+FFFD comes before U+1F600 by code point and after it by UTF-16 unit; capitals before small letters."""
    names = {"q1": "\U0001f600", "q10": "\ufffd", "q2": "Z", "a": "a", "b": "b"}
    for row in [*parts.questions, *parts.trajectories]:
        row["question_id"] = names[row["question_id"]]
    assert _build(parts).questions["question_id"].to_pylist()[:3] == ["Z", "\ufffd", "\U0001f600"]


@pytest.mark.parametrize("name", ["out", "out.zip", "OUT.ZIP"])
def test_what_was_written_reads_back_the_same(parts, name, tmp_path: Path):
    parts.find("tiny", "aime", "a", 0)["probe_answers"] = [["1", None]] * len(
        parts.find("tiny", "aime", "a", 0)["retained_tokens"]
    )
    snapshot = _build(parts)
    write_snapshot(snapshot, tmp_path / name)
    again = read_snapshot(tmp_path / name)
    assert (again.sha256, again.full_sha256) == (snapshot.sha256, snapshot.sha256)
    assert again.questions.equals(snapshot.questions)
    assert again.trajectories.equals(snapshot.trajectories)
    assert sorted(item.name for item in tmp_path.iterdir()) == [name]


@pytest.mark.parametrize("suffix", ["", ".zip"])
def test_the_same_snapshot_gives_the_same_bytes_with_ordinary_permissions(parts, suffix, tmp_path: Path):
    for name in ("one", "two"):
        write_snapshot(_build(parts), tmp_path / f"{name}{suffix}")
    files = [
        [p] if p.is_file() else sorted(p.iterdir()) for p in (tmp_path / f"one{suffix}", tmp_path / f"two{suffix}")
    ]
    for left, right in zip(*files, strict=True):
        assert left.read_bytes() == right.read_bytes()
        assert stat.S_IMODE(left.stat().st_mode) & 0o444 == 0o444 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_columns_of_nulls_are_left_out_of_the_files(parts, tmp_path: Path):
    write_snapshot(_build(parts), tmp_path / "s")
    assert pq.read_schema(tmp_path / "s" / "trajectories.parquet").names == [
        "model",
        "benchmark",
        "question_id",
        "trajectory",
        "thinking_tokens",
        "original_correct",
        "retained_tokens",
        "correct_probes",
    ]


@pytest.mark.parametrize("name", ["taken", "taken.zip"])
def test_writing_never_overwrites(parts, name, tmp_path: Path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "precious").write_text("x")
    (tmp_path / "taken.zip").write_text("x")
    with pytest.raises(OutputExistsError):
        write_snapshot(_build(parts), tmp_path / name)
    assert (tmp_path / "taken" / "precious").read_text() == (tmp_path / "taken.zip").read_text() == "x"


@pytest.mark.parametrize("name", ["nowhere/out", "nowhere/out.zip"])
def test_writing_into_a_missing_folder_is_named(parts, name, tmp_path: Path):
    with pytest.raises(OutputFailedError, match=r"cannot write .*nowhere"):
        write_snapshot(_build(parts), tmp_path / name)


@pytest.mark.parametrize("writer", [new_file, replaced_file, new_folder])
def test_a_writer_that_fails_half_way_leaves_nothing(writer, tmp_path: Path):
    def fail() -> None:
        with writer(tmp_path / "out") as temporary:
            ((temporary / "part") if temporary.is_dir() else temporary).write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert list(tmp_path.iterdir()) == []


def test_replacing_keeps_the_old_file_until_the_new_one_is_whole(tmp_path: Path):
    target = tmp_path / "out.txt"
    target.write_text("old")
    with replaced_file(target) as temporary:
        temporary.write_text("new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"


@pytest.mark.parametrize("prefix", ["", "small/", "a/b/"])
def test_a_zip_of_the_files_or_of_their_folder_is_read(parts, prefix, tmp_path: Path):
    members = {**_members(parts.write(tmp_path / "s"), prefix), "__MACOSX/._manifest.json": b"\x00"}
    assert read_snapshot(_zip(tmp_path / "s.zip", members)).sha256 == _build(parts).sha256


@pytest.mark.parametrize("name", ["../evil.txt", "/evil.txt", "..\\evil.txt", "C:\\evil.txt", "a/../../evil.txt"])
def test_a_zip_with_an_unsafe_path_is_refused_and_writes_nothing(parts, name, tmp_path: Path):
    members = {**_members(parts.write(tmp_path / "s")), name: b"x"}
    problems = verify_snapshot(_zip(tmp_path / "s.zip", members))
    assert [(p.code, p.count) for p in problems] == [("unreadable_file", 1)]
    assert "unsafe path" in problems[0].message
    assert not list(tmp_path.rglob("evil*"))


def test_a_damaged_zip_and_other_files_are_unreadable(parts, tmp_path: Path):
    whole = _zip(tmp_path / "whole.zip", _members(parts.write(tmp_path / "s"))).read_bytes()
    two_roots = _zip(tmp_path / "roots.zip", {"a/manifest.json": b"{}", "b/manifest.json": b"{}"})
    changed = bytearray(whole)
    changed[whole.index(b"PAR1") + 40] ^= 0xFF
    contents = {"cut.zip": whole[: len(whole) // 2], "crc.zip": bytes(changed), "empty.zip": b"", "text.zip": b"hello"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    for path in [*(tmp_path / name for name in contents), two_roots, tmp_path / "absent", Path("/dev/null")]:
        with pytest.raises(SnapshotError) as caught:
            read_snapshot(path)
        assert [p.code for p in caught.value.problems] == ["unreadable_file"], path


def test_an_encrypted_member_is_unreadable(parts, tmp_path: Path):
    """A zip whose first member carries the encryption flag cannot be read without a password."""
    path = _zip(tmp_path / "s.zip", _members(parts.write(tmp_path / "s")))
    content = bytearray(path.read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)
    assert [p.code for p in verify_snapshot(path)] == ["unreadable_file"]


def test_progress_goes_up_to_done(parts, tmp_path: Path):
    seen: list[tuple[str, int, int]] = []
    read_snapshot(parts.write(tmp_path / "s"), progress=lambda *report: seen.append(report))
    assert [done for _, done, _ in seen] == [0, 1, 2, 3, 4]
    assert seen[-1] == ("done", 4, 4)


def test_public_export_hides_the_labels_of_hidden_splits_only(parts, tmp_path: Path):
    parts.manifest["hidden_splits"] = ["test"]
    for row in parts.trajectories:
        n_positions = len(row["retained_tokens"])
        row.update(
            direct_correct=True,
            probe_answers=[["7"]] * n_positions,
            end_margin=[0.5] * n_positions,
            token_ids=[5] * row["thinking_tokens"],
        )
    snapshot = _build(parts)
    write_snapshot(make_public(snapshot), tmp_path / "public.zip")
    public = read_snapshot(tmp_path / "public.zip")
    assert public.sha256 != snapshot.sha256
    assert public.full_sha256 == snapshot.full_sha256 == snapshot.sha256
    assert public.manifest.raw["full_sha256"] == snapshot.sha256
    assert public.questions.equals(snapshot.questions)
    hidden = ("correct_probes", "original_correct", "direct_correct", "probe_answers")
    for before, after in zip(snapshot.trajectories.to_pylist(), public.trajectories.to_pylist(), strict=True):
        if after["question_id"] in ("q10", "a"):
            assert all(after[name] is None for name in hidden)
            before.update(dict.fromkeys(hidden))
        assert before == after


def test_hidden_labels_are_in_no_byte_of_the_public_files(parts, tmp_path: Path):
    """An answer that stands only on the hidden split is nowhere in the export, statistics and dictionaries included."""
    parts.manifest["hidden_splits"] = ["test"]
    for row in parts.trajectories:
        answer = "zq-secret" if row["question_id"] in ("q10", "a") else "zq-open"
        row["probe_answers"] = [[answer]] * len(row["retained_tokens"])
    write_snapshot(make_public(_build(parts)), tmp_path / "public")
    table = pq.read_table(tmp_path / "public" / "trajectories.parquet")
    pq.write_table(table, tmp_path / "plain.parquet", compression="none", use_dictionary=False)
    content = (tmp_path / "plain.parquet").read_bytes()
    assert b"zq-open" in content
    assert b"zq-secret" not in content
    assert b"zq-secret" not in (tmp_path / "public" / "trajectories.parquet").read_bytes()


def test_a_public_export_of_a_public_export_refers_to_the_same_snapshot(parts):
    parts.manifest["hidden_splits"] = ["test", "validation"]
    once = make_public(_build(parts))
    twice = make_public(once)
    assert (twice.sha256, twice.full_sha256) == (once.sha256, once.full_sha256)


def test_without_hidden_splits_the_public_export_is_the_snapshot(parts):
    snapshot = _build(parts)
    assert make_public(snapshot) is snapshot


def test_a_full_snapshot_may_state_its_own_identity(parts):
    expected = _build(parts).sha256
    parts.manifest["full_sha256"] = expected
    assert _build(parts).full_sha256 == expected


def test_measurements_hold_the_rows_in_order(parts):
    snapshot = _build(parts)
    measurements = load_measurements(snapshot)
    assert measurements.sha256 == snapshot.sha256
    assert (measurements.snapshot, measurements.kind, measurements.split) == ("small", "synthetic", "all")
    assert [(c.model, c.benchmark) for c in measurements.cells] == [
        ("large", "math"),
        ("large", "aime"),
        ("tiny", "math"),
        ("tiny", "aime"),
    ]
    for cell in measurements.cells:
        assert cell.question_ids == (("q1", "q10", "q2") if cell.benchmark == "math" else ("a", "b"))
        for idx in range(cell.n_trajectories):
            row = parts.find(cell.model, cell.benchmark, cell.question_ids[idx // 2], idx % 2)
            positions = slice(cell.offsets[idx], cell.offsets[idx + 1])
            assert cell.retained_tokens[positions].tolist() == row["retained_tokens"]
            assert cell.correct_probes[positions].tolist() == row["correct_probes"]
            assert cell.original_correct[idx] == row["original_correct"]
            assert cell.direct_correct[idx] == -1
        assert cell.retained_tokens.dtype == cell.correct_probes.dtype == np.int32


def test_a_split_keeps_its_questions_and_drops_empty_cells(parts):
    measurements = load_measurements(_build(parts), "validation")
    assert measurements.split == "validation"
    assert [(c.model, c.benchmark, c.question_ids) for c in measurements.cells] == [
        ("large", "math", ("q1",)),
        ("tiny", "math", ("q1",)),
    ]


def test_a_benchmark_without_questions_is_no_cell(parts):
    parts.manifest["benchmarks"].insert(1, {"name": "empty"})
    measurements = load_measurements(_build(parts))
    assert measurements.benchmarks == ("math", "empty", "aime")
    assert [c.benchmark for c in measurements.cells] == ["math", "aime"] * 2


@pytest.mark.parametrize("split", ["tests", "", "validation"])
def test_an_unknown_or_empty_split_is_named(parts, split):
    for row in parts.questions:
        row["split"] = "train"
    with pytest.raises(UnknownSplitError) as caught:
        load_measurements(_build(parts), split)
    assert caught.value.code == "unknown_split"
    assert split in caught.value.detail


def test_hidden_labels_are_unknown_and_required_labels_say_so(parts):
    parts.manifest["hidden_splits"] = ["test"]
    public = make_public(_build(parts))
    hidden = load_measurements(public, "test")
    assert not hidden.has_labels
    assert set(hidden.cells[0].correct_probes.tolist()) == {-1}
    assert (
        hidden.cells[0].total_thinking_tokens == load_measurements(_build(parts), "test").cells[0].total_thinking_tokens
    )
    for split in ("test", "all"):
        with pytest.raises(LabelsHiddenError) as caught:
            require_labels(load_measurements(public, split))
        assert caught.value.code == "labels_hidden"
    require_labels(load_measurements(public, "train"))


def test_the_real_snapshot_reads_with_its_published_figures(real_snapshot: Path):
    """Mean tokens, zero-step and endpoint accuracy stand in the README beside the data."""
    snapshot = read_snapshot(real_snapshot)
    figures = {
        cell.model: (
            cell.total_thinking_tokens / cell.n_trajectories,
            int(cell.zero_correct.sum()) / cell.total_probes,
            int(cell.endpoint_correct.sum()) / cell.total_probes,
        )
        for cell in load_measurements(snapshot).cells
    }
    assert figures == {
        "DeepSeek-R1-Distill-Qwen-14B": (3668.5, 0.734, 0.5),
        "DeepSeek-R1-Distill-Llama-8B": (3278.75, 0.57, 0.5),
    }


def test_the_real_snapshot_keeps_its_identity_when_rewritten(real_snapshot: Path, tmp_path: Path):
    snapshot = read_snapshot(real_snapshot)
    write_snapshot(snapshot, tmp_path / "again.zip")
    assert read_snapshot(tmp_path / "again.zip").sha256 == snapshot.sha256
    assert json.loads((real_snapshot / "manifest.json").read_text())["name"] == snapshot.manifest.name


def test_the_collector_shares_the_examples_among_the_codes():
    problems = ProblemCollector()
    problems.add_rows("many", range(1000), message=lambda row: f"row {row}")
    problems.add("one", "alone")
    problems.count_more("many", 5)
    listed = problems.problems()
    assert [p.code for p in listed] == ["many"] * 99 + ["one"]
    assert (listed[0].count, listed[-1].count) == (1005, 1)
    assert [p.row for p in listed[:3]] == [1, 2, 3]
