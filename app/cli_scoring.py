"""What the offline commands do with measurements and action files, with their progress shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from app.baselines import BASELINE_NAMES, build_baseline
from app.baselines.examples import build_example, list_examples
from app.cli_output import show_progress
from app.errors import ContentError
from app.evaluator.measurements import ALL_SPLITS, Cell, Measurements
from app.evaluator.reference import CellReference, build_uninformed
from app.evaluator.strategies import ActionTable, Strategy
from app.files.actions import MAX_SETTINGS, ActionFile, read_actions
from app.files.atomic import OutputExistsError
from app.files.problems import suggest
from app.files.snapshot import Snapshot, load_measurements

MAX_SETTINGS_HIDDEN = 32


class UnreadableActionsError(ContentError):
    """The action file cannot be opened."""

    code = "unreadable_file"
    title = "The action file cannot be read"


class UnknownCellError(ContentError):
    """The snapshot has no such model or benchmark in the split."""

    code = "unknown_cell"
    title = "No such model or benchmark"


@dataclass(frozen=True, eq=False)
class CheckedActions:
    """An action file without problems, and the measurements of the split it addresses."""

    file: ActionFile
    measurements: Measurements


def read_action_file(snapshot: Snapshot, path: Path, *, strategy: Strategy, split: str) -> CheckedActions:
    """Read and check an action file against a split of a snapshot.

    Raises
    ------
    ContentError : an unknown split, a file that cannot be opened, or one with problems, all listed.
    """
    selected = load_measurements(snapshot, split)
    hidden = snapshot.manifest.hidden_splits
    is_hidden = split in hidden or (split == ALL_SPLITS and bool(hidden))
    with show_progress(f"checking {path.name}") as report:
        try:
            file = read_actions(
                path,
                load_measurements(snapshot),
                strategy=strategy,
                split=split,
                max_settings=MAX_SETTINGS_HIDDEN if is_hidden else MAX_SETTINGS,
                progress=lambda share: report(f"checking {path.name}", share),
            )
        except OSError as exc:
            raise UnreadableActionsError(f"{path} cannot be read: {exc.strerror or exc}") from exc
    return CheckedActions(file, selected)


def select_cells(measurements: Measurements, *, model: str | None, benchmark: str | None) -> list[Cell]:
    """Return the cells of a model and a benchmark, None standing for all.

    Raises
    ------
    UnknownCellError : there is none.
    """
    for what, name, known in (
        ("model", model, dict.fromkeys(cell.model for cell in measurements.cells)),
        ("benchmark", benchmark, dict.fromkeys(cell.benchmark for cell in measurements.cells)),
    ):
        if name is not None and name not in known:
            message = f"there is no {what} {name!r} in the split {measurements.split}; there are {', '.join(known)}"
            raise UnknownCellError(message + suggest(name, known))
    return [c for c in measurements.cells if model in (None, c.model) and benchmark in (None, c.benchmark)]


def solve_references(cells: Sequence[Cell], strategies: Sequence[Strategy]) -> list[CellReference]:
    """Return the frontier and uninformed reference of each cell, and in each cell of the strategies in their order."""
    # Brings the compiler along, which the commands that solve nothing do without.
    from app.evaluator.fast_frontier import solve_frontier_fast

    wanted = [(cell, strategy) for cell in cells for strategy in strategies]
    references = []
    with show_progress("solving frontiers") as report:
        for done, (cell, strategy) in enumerate(wanted):
            report(f"{strategy} of {cell.model} on {cell.benchmark}", done / len(wanted))
            references.append(CellReference(solve_frontier_fast(cell, strategy), build_uninformed(cell, strategy)))
    return references


def build_action_table(snapshot: Snapshot, name: str, *, strategy: Strategy, split: str, seed: int) -> ActionTable:
    """Return the actions of a baseline or an example method.

    Raises
    ------
    ContentError : hidden labels that it needs, or an unknown split.
    typer.BadParameter : the snapshot and strategy have no baseline of this name.
    """
    if name in BASELINE_NAMES:
        return build_baseline(name, load_measurements(snapshot), strategy=strategy, split=split, seed=seed)
    examples = [example.name for example in list_examples(snapshot) if example.strategy is strategy]
    if name in examples:
        return build_example(name, snapshot, split=split)
    known = (*BASELINE_NAMES, *examples)
    raise typer.BadParameter(f"there is no {name!r} of {strategy}; there are {', '.join(known)}{suggest(name, known)}")


def require_free(path: Path, *, force: bool) -> None:
    """Raise OutputExistsError where the file to write is there, unless it may be replaced."""
    if path.is_dir() or (path.exists() and not force):
        raise OutputExistsError(f"{path} exists already" + ("" if path.is_dir() else "; --force replaces it"))
