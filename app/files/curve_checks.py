"""Checking each trajectory by itself: its lists against each other, the manifest and the split's visibility."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.evaluator.measurements import SPLITS
from app.files.columns import Lists, Rows, list_lengths, split_lists
from app.files.manifest import ManifestFacts
from app.files.problems import ProblemCollector

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def check_curves(
    rows: Rows, facts: ManifestFacts, splits: NDArray[np.object_] | None, problems: ProblemCollector
) -> None:
    """Check the measurements of each row by itself: its lists against each other and against the manifest."""
    correct = rows.columns["correct_probes"]
    if correct is not None:
        probes = split_lists(correct)
        _check_probes(rows, probes, facts, problems)
        _check_labels(rows, probes.valid, facts, splits=splits, problems=problems)
    column = rows.columns["retained_tokens"]
    if column is None:
        return
    tokens = split_lists(column)
    _check_retained(rows, tokens, problems)
    _check_lengths(rows, tokens, facts, problems)


def _check_retained(rows: Rows, tokens: Lists, problems: ProblemCollector) -> None:
    _add_rows(
        rows,
        problems,
        "retained_tokens_start",
        tokens.valid & (_value_at(tokens, tokens.starts, default=-1) != 0),
        message=lambda row: "retained_tokens is empty" if not tokens.lengths[row] else "L(0) is not 0",
        column="retained_tokens",
    )
    row_of_value = tokens.row_of_value()
    falls = np.flatnonzero((np.diff(tokens.values.astype(np.int64)) <= 0) & (np.diff(row_of_value) == 0)) + 1
    bad_rows, first = np.unique(row_of_value[falls], return_index=True)
    place = dict(zip(bad_rows.tolist(), falls[first].tolist(), strict=True))

    def message(row: int) -> str:
        position = place[row] - int(tokens.starts[row])
        before, here = tokens.values[place[row] - 1], tokens.values[place[row]]
        return f"L({position}) = {here} does not exceed L({position - 1}) = {before}"

    _add_rows(rows, problems, "retained_tokens_not_increasing", bad_rows, message=message, column="retained_tokens")
    thinking = rows.columns["thinking_tokens"]
    if thinking is None:
        return
    stated = thinking.cast(pa.int64()).fill_null(0).to_numpy()
    last = _value_at(tokens, tokens.starts + tokens.lengths - 1, default=0)
    _add_rows(
        rows,
        problems,
        "thinking_tokens_mismatch",
        tokens.valid & (tokens.lengths > 0) & thinking.is_valid().to_numpy() & (stated != last),
        message=lambda row: f"thinking_tokens is {stated[row]}, the last of retained_tokens {last[row]}",
        column="thinking_tokens",
    )


def _check_lengths(rows: Rows, tokens: Lists, facts: ManifestFacts, problems: ProblemCollector) -> None:
    n_positions = tokens.lengths
    thinking = _value_at(tokens, tokens.starts + tokens.lengths - 1, default=0)
    expected: dict[str, tuple[IntArray, str]] = {
        "correct_probes": (n_positions, "one per position"),
        "end_margin": (n_positions, "one per position"),
        "probe_answers": (n_positions, "one list per position"),
        "step_logprob": (np.maximum(n_positions - 1, 0), "one per step"),
        "token_ids": (thinking, "one per thinking token"),
    }
    sound = tokens.valid & (tokens.lengths > 0)
    for name, (wanted, rule) in expected.items():
        column = rows.columns[name]
        if column is None or column.null_count == len(column):
            continue
        lengths = list_lengths(column)
        _add_rows(
            rows,
            problems,
            "length_mismatch",
            sound & column.is_valid().to_numpy() & (lengths != wanted),
            message=lambda row, n=name, w=wanted, le=lengths, r=rule: (  # type: ignore[misc]
                f"{n} has {le[row]} values, expected {w[row]} ({r})"
            ),
            column=name,
        )
    _check_blocks(rows, sound, thinking, problems)
    _check_answers(rows, facts, problems)


def _check_blocks(rows: Rows, sound: BoolArray, thinking: IntArray, problems: ProblemCollector) -> None:
    column = rows.columns["block_tokens"]
    if column is None or column.null_count == len(column):
        return
    blocks = split_lists(column)
    total = np.bincount(blocks.row_of_value(), weights=blocks.values, minlength=rows.n_rows).astype(np.int64)
    empty_block = np.bincount(blocks.row_of_value(), weights=blocks.values < 1, minlength=rows.n_rows) > 0
    _add_rows(
        rows,
        problems,
        "block_tokens_mismatch",
        sound & blocks.valid & ((total != thinking) | empty_block),
        message=lambda row: (
            f"block_tokens add up to {total[row]}, thinking_tokens are {thinking[row]}; each block has 1 or more"
        ),
        column="block_tokens",
    )


def _check_answers(rows: Rows, facts: ManifestFacts, problems: ProblemCollector) -> None:
    """Check that no position has more recorded answers than probes, and no answer a NUL, which no database takes."""
    column = rows.columns["probe_answers"]
    if column is None or column.null_count == len(column):
        return
    row_of_position = np.repeat(np.arange(rows.n_rows), list_lengths(column))
    positions = pa.chunked_array([chunk.flatten() for chunk in column.chunks], column.type.value_type)
    answers = pa.chunked_array([chunk.flatten() for chunk in positions.chunks], pa.string())
    counts = list_lengths(positions)
    has_nul = pc.match_substring(answers, "\x00").fill_null(False).to_numpy()
    _add_rows(
        rows,
        problems,
        "bad_text",
        np.unique(np.repeat(row_of_position, counts)[has_nul]),
        message=lambda row: "an answer holds a NUL character",
        column="probe_answers",
    )
    n_probes = facts.probes_per_position
    if n_probes is not None:
        _add_rows(
            rows,
            problems,
            "length_mismatch",
            np.unique(row_of_position[counts > n_probes]),
            message=lambda row: f"a position of probe_answers has more than {n_probes} answers",
            column="probe_answers",
        )


def _check_probes(rows: Rows, probes: Lists, facts: ManifestFacts, problems: ProblemCollector) -> None:
    n_probes = facts.probes_per_position
    outside = probes.values < 0
    if n_probes is not None:
        outside |= probes.values > n_probes
    bad = np.flatnonzero(outside)
    bad_rows, first = np.unique(probes.row_of_value()[bad], return_index=True)
    place = dict(zip(bad_rows.tolist(), bad[first].tolist(), strict=True))

    def message(row: int) -> str:
        position = place[row] - int(probes.starts[row])
        return f"C({position}) = {probes.values[place[row]]} is outside 0..{'M' if n_probes is None else n_probes}"

    _add_rows(rows, problems, "correct_probes_out_of_range", bad_rows, message=message, column="correct_probes")


def _check_labels(
    rows: Rows,
    labelled: BoolArray,
    facts: ManifestFacts,
    *,
    splits: NDArray[np.object_] | None,
    problems: ProblemCollector,
) -> None:
    """Check that labels are missing nowhere but on hidden splits, and there for the whole split or not at all."""
    if splits is None or facts.hidden_splits is None:
        return
    known = np.array([split in SPLITS for split in splits], dtype=bool)
    hidden = np.array([split in facts.hidden_splits for split in splits], dtype=bool)
    _add_rows(
        rows,
        problems,
        "labels_missing",
        known & ~hidden & ~labelled,
        message=lambda row: f"correct_probes is null, but the labels of the split {splits[row]} are not hidden",
        column="correct_probes",
    )
    for split in facts.hidden_splits:
        of_split = splits == split
        if (labelled & of_split).any():
            _add_rows(
                rows,
                problems,
                "labels_missing",
                of_split & ~labelled,
                message=lambda row: f"correct_probes is null, but other rows of the split {splits[row]} have labels",
                column="correct_probes",
            )


def _add_rows(
    rows: Rows,
    problems: ProblemCollector,
    code: str,
    bad: BoolArray | IntArray,
    *,
    message: Callable[[int], str],
    column: str,
) -> None:
    problems.add_rows(
        code,
        np.flatnonzero(bad) if bad.dtype == bool else bad,
        message=lambda row: f"{rows.file}: {message(row)}",
        column=column,
        unit=rows.unit,
    )


def _value_at(lists: Lists, place: IntArray, *, default: int) -> IntArray:
    """Return each row's value at an absolute place, the default where its list is empty."""
    if not len(lists.values):
        return np.full(len(lists.lengths), default, dtype=np.int64)
    inside = np.clip(place, 0, len(lists.values) - 1)
    return np.where(lists.lengths > 0, lists.values[inside].astype(np.int64), default)
