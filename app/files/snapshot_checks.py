"""Checking the tables of a snapshot against its manifest: every fault, vectorised, in the order of the files' rows."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from app.evaluator.measurements import SPLITS
from app.files.columns import QUESTIONS_FILE, TRAJECTORIES_FILE, Columns, Rows
from app.files.curve_checks import check_curves
from app.files.manifest import ManifestFacts, is_plain_name
from app.files.problems import MAX_EXAMPLES, ProblemCollector, suggest

_SEPARATOR = "\x1f"
_MAX_SUGGESTED_FROM = 5_000

IntArray = NDArray[np.int64]


def check_questions(columns: Columns, facts: ManifestFacts, problems: ProblemCollector) -> None:
    """Check the questions: known benchmarks, sound and unique identifiers, a known split each."""
    rows = Rows(columns, QUESTIONS_FILE, ("benchmark", "question_id"))
    if rows.n_rows == 0:
        problems.add("empty_file", f"{QUESTIONS_FILE} has no row")
    _check_known(rows, "benchmark", facts.benchmarks, code="unknown_benchmark", problems=problems)
    _check_identifiers(rows, problems)
    _check_splits(rows, problems)
    _check_texts(rows, ("prompt", "reference_answer"), problems)
    keys = _join_keys(columns)
    if keys is not None:
        problems.add_rows(
            "duplicate_question",
            _find_repeated_keys(keys),
            message=lambda row: f"{QUESTIONS_FILE}: this question has a row already",
            column="question_id",
            unit=rows.unit,
        )


def check_trajectories(
    columns: Columns, questions: Columns | None, facts: ManifestFacts, problems: ProblemCollector
) -> None:
    """Check the trajectories: known models and questions, exactly R per model and question, sound measurements.

    Parameters
    ----------
    columns : the coerced columns of the trajectories.
    questions : those of the questions; None where they could not be read, and what needs them is not checked.
    facts : what is known of the manifest; what needs an unknown fact is not checked.
    problems : where the faults go.
    """
    rows = Rows(columns, TRAJECTORIES_FILE, ("model", "benchmark", "question_id", "trajectory"))
    if rows.n_rows == 0:
        problems.add("empty_file", f"{TRAJECTORIES_FILE} has no row")
    _check_known(rows, "model", facts.models, code="unknown_model", problems=problems)
    _check_known(rows, "benchmark", facts.benchmarks, code="unknown_benchmark", problems=problems)
    splits = _check_units(rows, questions, facts, problems)
    check_curves(rows, facts, splits, problems)


def _check_known(
    rows: Rows, name: str, known: tuple[str, ...] | None, *, code: str, problems: ProblemCollector
) -> None:
    column = rows.columns[name]
    if column is None or known is None:
        return
    missing = pc.and_(pc.is_valid(column), pc.invert(pc.is_in(column, value_set=pa.array(known, pa.string()))))

    def message(row: int) -> str:
        value = rows.text(name, row)
        return f"{rows.file}: {name} {value!r} is not in the manifest{suggest(value, known)}"

    problems.add_rows(code, _where(missing), message=message, column=name, unit=rows.unit)


def _check_identifiers(rows: Rows, problems: ProblemCollector) -> None:
    column = rows.columns["question_id"]
    if column is None:
        return
    names = column.to_pylist()
    problems.add_rows(
        "bad_name",
        [row for row, name in enumerate(names) if name is not None and not is_plain_name(name)],
        message=lambda row: f"{rows.file}: {rows.text('question_id', row)[:80]!r} cannot name a question",
        column="question_id",
    )


def _check_splits(rows: Rows, problems: ProblemCollector) -> None:
    column = rows.columns["split"]
    if column is None:
        return
    bad = pc.invert(pc.is_in(column, value_set=pa.array(SPLITS)))
    problems.add_rows(
        "bad_split",
        np.flatnonzero(bad.to_numpy() & column.is_valid().to_numpy()),
        message=lambda row: f"{rows.file}: split {rows.text('split', row)!r} is none of {', '.join(SPLITS)}",
        column="split",
        unit=rows.unit,
    )


def _check_texts(rows: Rows, names: tuple[str, ...], problems: ProblemCollector) -> None:
    for name in names:
        column = rows.columns[name]
        if column is not None:
            problems.add_rows(
                "bad_text",
                _where(pc.match_substring(column, "\x00")),
                message=lambda row, name=name: f"{rows.file}: {name} holds a NUL character",  # type: ignore[misc]
                column=name,
                unit=rows.unit,
            )


def _check_units(
    rows: Rows, questions: Columns | None, facts: ManifestFacts, problems: ProblemCollector
) -> NDArray[np.object_] | None:
    """Check which units the rows are; return each row's split, None where its question is unknown or unchecked."""
    keys = _join_keys(rows.columns)
    question_keys = _join_keys(questions) if questions is not None else None
    if keys is None or question_keys is None or questions is None:
        return None
    known_keys = pc.unique(question_keys).drop_null()
    question_idx = _index_in(keys, known_keys)
    _check_known_questions(rows, question_idx, known_keys, facts, problems)
    per_question = facts.trajectories_per_question
    column = rows.columns["trajectory"]
    if column is not None and per_question is not None:
        trajectory = column.cast(pa.int64()).fill_null(0).to_numpy()
        outside = (trajectory < 0) | (trajectory >= per_question)
        problems.add_rows(
            "unknown_trajectory",
            np.flatnonzero(outside),
            message=lambda row: f"{rows.file}: trajectory {trajectory[row]} is outside 0..{per_question - 1}",
            column="trajectory",
            unit=rows.unit,
        )
        model = rows.columns["model"]
        if model is not None and facts.models is not None and facts.benchmarks is not None:
            model_idx = _index_in(model, pa.array(facts.models, pa.string()))
            usable = ~outside & (question_idx >= 0) & (model_idx >= 0) & column.is_valid().to_numpy()
            group = np.where(usable, model_idx * len(known_keys) + question_idx, -1)
            _check_complete(rows, group, trajectory, known_keys=known_keys, facts=facts, problems=problems)
    split = questions["split"]
    if split is None:
        return None
    first_row = _index_in(known_keys, question_keys)
    split_of_question: list[str | None] = [split[int(row)].as_py() for row in first_row]
    return np.array([*split_of_question, None], dtype=object)[question_idx]  # an unknown question's -1 takes the None


def _check_known_questions(
    rows: Rows, question_idx: IntArray, known_keys: pa.Array, facts: ManifestFacts, problems: ProblemCollector
) -> None:
    unknown = question_idx < 0
    benchmark = rows.columns["benchmark"]
    if benchmark is not None:
        unknown &= benchmark.is_valid().to_numpy()
        if facts.benchmarks is not None:  # a row of an unknown benchmark has been named for that already
            unknown &= pc.is_in(benchmark, value_set=pa.array(facts.benchmarks, pa.string())).to_numpy()
    question = rows.columns["question_id"]
    if question is not None:
        unknown &= question.is_valid().to_numpy()
    names: dict[str, list[str]] = {}
    if unknown.any() and len(known_keys) <= _MAX_SUGGESTED_FROM:
        for key in known_keys.to_pylist():
            benchmark_name, question_id = key.split(_SEPARATOR, 1)
            names.setdefault(benchmark_name, []).append(question_id)

    def message(row: int) -> str:
        question_id = rows.text("question_id", row)
        nearest = suggest(question_id, names.get(rows.text("benchmark", row), ()))
        return f"{rows.file}: {QUESTIONS_FILE} has no question {question_id!r} in this benchmark{nearest}"

    problems.add_rows(
        "unknown_question", np.flatnonzero(unknown), message=message, column="question_id", unit=rows.unit
    )


def _check_complete(
    rows: Rows,
    group: IntArray,
    trajectory: IntArray,
    *,
    known_keys: pa.Array,
    facts: ManifestFacts,
    problems: ProblemCollector,
) -> None:
    """Check that each pair of a model and a question has each of its R trajectories once; group -1 is left out."""
    models, per_question = facts.models or (), facts.trajectories_per_question or 1
    usable_rows = np.flatnonzero(group >= 0)
    units = group[usable_rows] * per_question + trajectory[usable_rows]
    problems.add_rows(
        "duplicate_trajectory",
        usable_rows[_find_repeats(units)],
        message=lambda row: f"{rows.file}: this trajectory has a row already",
        column="trajectory",
        unit=rows.unit,
    )
    of_known_benchmark = _rows_of_known_benchmarks(known_keys, facts.benchmarks or ())
    expected = (np.arange(len(models))[:, None] * len(known_keys) + of_known_benchmark).reshape(-1)
    present = np.unique(units)
    n_present = np.bincount(present // per_question, minlength=len(models) * len(known_keys))
    lacking = expected[n_present[expected] < per_question]
    total = int((per_question - n_present[lacking]).sum())
    shown = 0
    for group_idx in lacking:
        model_idx, question_idx = divmod(int(group_idx), len(known_keys))
        start, end = np.searchsorted(present, [group_idx * per_question, (group_idx + 1) * per_question])
        there = set((present[start:end] - group_idx * per_question).tolist())
        unit = f"{models[model_idx]} / {' / '.join(known_keys[question_idx].as_py().split(_SEPARATOR, 1))}"
        for number in range(min(per_question, len(there) + MAX_EXAMPLES)):
            if number not in there and shown < MAX_EXAMPLES:
                message = f"{rows.file}: there is no row for this trajectory of 0..{per_question - 1}"
                problems.add("missing_trajectory", message, column="trajectory", unit=f"{unit} / {number}")
                shown += 1
        if shown == MAX_EXAMPLES:
            break
    problems.count_more("missing_trajectory", total - shown)


def _rows_of_known_benchmarks(known_keys: pa.Array, benchmarks: tuple[str, ...]) -> IntArray:
    named = np.zeros(len(known_keys), dtype=bool)
    for benchmark in benchmarks:
        named |= pc.starts_with(known_keys, benchmark + _SEPARATOR).to_numpy(zero_copy_only=False)
    return np.flatnonzero(named)


def _join_keys(columns: Columns) -> pa.ChunkedArray | None:
    """Return benchmark and question_id as one text per row, null where either is; None where a column is unusable."""
    benchmark, question = columns["benchmark"], columns["question_id"]
    if benchmark is None or question is None:
        return None
    return pc.binary_join_element_wise(benchmark, question, _SEPARATOR)


def _index_in(values: pa.Array | pa.ChunkedArray, known: pa.Array | pa.ChunkedArray) -> IntArray:
    """Return where each value first stands among the known ones, -1 where it does not or is null."""
    if isinstance(known, pa.ChunkedArray):
        known = known.combine_chunks()
    found = pc.index_in(values, value_set=known, skip_nulls=True).fill_null(-1).cast(pa.int64())
    return np.asarray(found.to_numpy(zero_copy_only=False) if isinstance(found, pa.Array) else found.to_numpy())


def _find_repeats(values: NDArray[np.generic]) -> IntArray:
    """Return the indices of all but the first occurrence of each value, ascending."""
    _, first = np.unique(values, return_index=True)
    repeated = np.ones(len(values), dtype=bool)
    repeated[first] = False
    return np.flatnonzero(repeated)


def _find_repeated_keys(keys: pa.ChunkedArray) -> IntArray:
    """Return the rows whose key has occurred before; rows without a key are left out."""
    rows = np.flatnonzero(keys.is_valid().to_numpy())
    return rows[_find_repeats(_index_in(keys, pc.unique(keys))[rows])]


def _where(mask: pa.ChunkedArray) -> IntArray:
    return np.flatnonzero(mask.fill_null(False).to_numpy())
