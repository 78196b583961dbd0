"""The rows that commands print of a document, as a table or as CSV."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from app.cli_output import Rows

Document = Mapping[str, Any]

_OVERTHINKING = (
    "mean_thinking_tokens",
    "full_thinking_accuracy",
    "zero_step_accuracy",
    "endpoint_accuracy",
    "overthinking_ratio",
    "accuracy_degradation",
)
_FRONTIER = ("beta_match", "max_accuracy", "beta_sat", "area", "uninformed_area")
_BOARD = (
    "model",
    "benchmark",
    "n_settings",
    "realised_potential",
    "area",
    "uninformed_area",
    "oracle_area",
    "gap",
    "max_accuracy",
    "beta_match",
    "tokens_saved",
)
_SETTING = ("beta", "accuracy", "gap", "early_loss", "late_loss", "wasted", "forgone", "e3")
_MAX_LISTED = 20
_SNAPSHOT = ("name", "kind", "state", "n_questions", "n_trajectories", "splits", "hidden_splits", "sha256")


def list_overthinking(document: Document) -> Rows:
    """One row a cell, and one with neither model nor benchmark for the mean over them."""
    rows: list[Sequence[object]] = [
        (cell["model"], cell["benchmark"], cell["questions"], cell["trajectories"], *_pick(cell, _OVERTHINKING))
        for cell in document["cells"]
    ]
    entries = list(document["cells"])
    if document["macro"] is not None:
        rows.append((None, None, None, None, *_pick(document["macro"], _OVERTHINKING)))
        entries.append(document["macro"])
    columns = ("model", "benchmark", "questions", "trajectories", *_OVERTHINKING)
    listed = Rows(columns, rows, title=_title(document))
    return _add_intervals(listed, entries, names=("overthinking_ratio", "accuracy_degradation"))


def list_frontiers(document: Document) -> Rows:
    """One row a cell and strategy, then one a strategy for the mean over its cells."""
    columns = ("strategy", "model", "benchmark", "points", *_FRONTIER)
    rows: list[Sequence[object]] = [
        (cell["strategy"], cell["model"], cell["benchmark"], len(cell["cost"]), *_pick(cell, _FRONTIER))
        for cell in document["cells"]
    ]
    rows += [(macro["strategy"], None, None, None, *_pick(macro, _FRONTIER)) for macro in document["macro"]]
    entries = [*document["cells"], *document["macro"]]
    return _add_intervals(Rows(columns, rows, title=_title(document)), entries, names=("beta_match", "max_accuracy"))


def list_frontier_points(document: Document) -> Rows:
    """One row a point of each exact frontier."""
    rows = [
        (
            cell["strategy"],
            cell["model"],
            cell["benchmark"],
            cost,
            correct,
            cost / max(cell["total_thinking_tokens"], 1),
            correct / cell["total_probes"],
        )
        for cell in document["cells"]
        for cost, correct in zip(cell["cost"], cell["correct"], strict=True)
    ]
    return Rows(("strategy", "model", "benchmark", "cost", "correct", "beta", "accuracy"), rows)


def list_frontier_grid(document: Document) -> Rows:
    """One row a cell, strategy and relative budget, then the same for the mean over the cells."""
    rows: list[Sequence[object]] = []
    grids = {macro["strategy"]: macro["grid"] for macro in document["macro"]}
    for curve in (*document["cells"], *document["macro"]):
        strategy, name = curve["strategy"], (curve.get("model"), curve.get("benchmark"))
        rows += [
            (strategy, *name, beta, accuracy) for beta, accuracy in zip(grids[strategy], curve["accuracy"], strict=True)
        ]
    return Rows(("strategy", "model", "benchmark", "beta", "accuracy"), rows)


def tabulate_frontier_grid(document: Document) -> Rows:
    """One row a relative budget with the mean accuracy of every strategy."""
    curves = document["macro"]
    columns = ("beta", *(curve["strategy"] for curve in curves))
    rows = list(zip(curves[0]["grid"], *(curve["accuracy"] for curve in curves), strict=True))
    return Rows(columns, rows, title=_title(document))


def list_boards(document: Document) -> Rows:
    """One row a board of a score; neither model nor benchmark is the whole snapshot."""
    columns = (*_BOARD, "accuracy_25", "accuracy_50", "accuracy_75", "best_e3", "reason")
    rows = [
        (*_pick(board, _BOARD), *(board["accuracy_at"][beta] for beta in ("0.25", "0.5", "0.75")), board["best_e3"],
         board["reason"])
        for board in document["boards"]
    ]  # fmt: skip
    listed = Rows(columns, rows, title=f"{_title(document)}, {document['strategy']}")
    return _add_intervals(listed, document["boards"], names=("realised_potential", "area"))


def list_settings(document: Document) -> Rows:
    """One row a setting: means over all cells, undefined where it does not cover them all."""
    rows = [(setting["setting"], *_pick(setting, _SETTING)) for setting in document["settings"]]
    return Rows(("setting", *_SETTING), rows, title=f"{_title(document)}, {document['strategy']}")


def list_setting_cells(document: Document) -> Rows:
    """One row a setting and cell that it covers."""
    columns = ("setting", "model", "benchmark", "mean_tokens", *_SETTING, "on_curve")
    rows = [
        (setting["setting"], *_pick(cell, columns[1:])) for setting in document["settings"] for cell in setting["cells"]
    ]
    return Rows(columns, rows, title=f"{_title(document)}, {document['strategy']}")


def list_snapshots(documents: Sequence[Document]) -> Rows:
    """One row a snapshot."""
    rows = [
        tuple(", ".join(value) if isinstance(value, list) else value for value in _pick(document, _SNAPSHOT))
        for document in documents
    ]
    return Rows(_SNAPSHOT, rows)


def list_fields(document: Document) -> Rows:
    """One row a field, for a document that is one thing; warnings and problems are printed elsewhere."""
    fields = [(name, value) for name, value in _flatten(document) if name not in ("warnings", "problems")]
    return Rows(("field", "value"), fields, align_numbers=False)


def _flatten(document: Document) -> Iterator[tuple[str, object]]:
    for name, value in document.items():
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", item) for inner, item in _flatten(value))
        elif isinstance(value, list):
            more = [f"… {len(value) - _MAX_LISTED} more"] if len(value) > _MAX_LISTED else []
            yield name, ", ".join([*(str(item) for item in value[:_MAX_LISTED]), *more])
        else:
            yield name, value


def _add_intervals(rows: Rows, entries: Sequence[Document], *, names: Sequence[str]) -> Rows:
    """Add the ends of some figures' intervals as columns, if any row has such an interval."""
    intervals = [entry.get("intervals") or {} for entry in entries]
    if not any(of_entry.get(name) for of_entry in intervals for name in names):
        return rows
    ends = [[end for name in names for end in of_entry.get(name) or (None, None)] for of_entry in intervals]
    columns = tuple(f"{name}_{end}" for name in names for end in ("low", "high"))
    added = [(*row, *more) for row, more in zip(rows.rows, ends, strict=True)]
    return Rows((*rows.columns, *columns), added, title=rows.title)


def _pick(document: Document, names: Sequence[str]) -> tuple[object, ...]:
    return tuple(document.get(name) for name in names)


def _title(document: Document) -> str:
    kind = " (synthetic)" if document["kind"] == "synthetic" else ""
    return f"{document['snapshot']}{kind}, split {document['split']}"
