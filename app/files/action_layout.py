"""The column names of an action file: which are allowed, which are missing, what a wrong one was meant to be."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.evaluator.strategies import Strategy
from app.files.action_problems import ActionProblems, NameSuggester, show_value

KEY_COLUMNS = ("model", "benchmark", "question_id")
ALL_COLUMNS = (*KEY_COLUMNS, "trajectory", "setting", "action", "stop_tokens")
MAX_COLUMNS = 1000
# Other common words for the columns; too far from the names for a comparison of letters.
_OTHER_WORDS = {
    "benchmark": ("dataset", "data_set", "task", "suite"),
    "question_id": ("question", "id", "problem", "problem_id", "item", "item_id", "sample_id", "qid"),
    "trajectory": ("rollout", "trace", "sample", "run", "trajectory_id", "chain"),
    "setting": ("theta", "threshold", "config", "parameter", "param", "lambda"),
    "action": ("cap", "budget", "position", "step", "stop", "decision", "route", "think", "k", "tau", "label"),
    "stop_tokens": ("tokens", "stop_token", "n_tokens"),
}
_MEANT_BY = {word: name for name, words in _OTHER_WORDS.items() for word in words}


@dataclass(frozen=True)
class Layout:
    """Which column of the file holds which column of the format.

    Attributes
    ----------
    strategy : decides the columns.
    name_in_file : the file's name of each usable column of the format; they differ in case or spaces at most, and
        such a file is refused, but its rows are still checked.
    value_column : "action", or "stop_tokens" where the file gives that instead.
    """

    strategy: Strategy
    name_in_file: Mapping[str, str]
    value_column: str

    @property
    def required(self) -> tuple[str, ...]:
        """The columns a file of this strategy must have, `value_column` last."""
        trajectory = ("trajectory",) if self.strategy.unit_is_trajectory else ()
        return (*KEY_COLUMNS, *trajectory, self.value_column)


def check_column_names(
    names: Sequence[str], strategy: Strategy, *, problems: ActionProblems, row: int | None, require: bool = True
) -> Layout:
    """Record every fault of a file's column names and say what can still be read.

    Parameters
    ----------
    names : the names as the file gives them, in its order; none twice but the empty one.
    row : the row of the file that names them, or None.
    require : whether a required column that is not among the names is a fault.

    Raises
    ------
    ReadingStopped : the file was written for another strategy, so its actions mean something else.
    """
    if len(names) > MAX_COLUMNS:
        problems.stop("unreadable_file", f"the file has {len(names):,} columns", row=row)
    name_in_file: dict[str, str] = {}
    foreign = False
    nearest = NameSuggester(ALL_COLUMNS)
    allowed = _allowed_columns(strategy)
    for place, name in enumerate(names):
        meant = name if name in ALL_COLUMNS else _same_but_for_spelling(name, names)
        if meant in allowed:
            name_in_file[meant] = name
        foreign = foreign or (meant is not None and meant not in allowed)
        if meant is None or meant != name or meant not in allowed:
            message = _explain_column(name, meant, strategy, place=place, n_columns=len(names), nearest=nearest)
            problems.add("unknown_column", message, row=row, column=name)
    if "action" in name_in_file and "stop_tokens" in name_in_file:
        message = "the file has both 'action' and 'stop_tokens'; give one of them"
        problems.add("unknown_column", message, row=row, column=name_in_file.pop("stop_tokens"))
    layout = Layout(strategy, name_in_file, "stop_tokens" if "stop_tokens" in name_in_file else "action")
    if require:
        for column in layout.required:
            if column not in name_in_file:
                message = f"the column {column!r} is missing{_why_needed(column, strategy)}"
                problems.add("missing_column", message, row=row, column=column)
    if foreign:
        problems.end_reading("the file's actions are those of another strategy")
    return layout


def refuse_repeated_names(names: Sequence[str], *, row: int | None, problems: ActionProblems) -> None:
    """Stop where two columns have the same name: nobody can tell which one counts.

    Columns without a name are let through; they are unknown columns.
    """
    for name, n_times in Counter(names).items():
        if n_times > 1 and name:
            message = f"the column {show_value(name)} appears {n_times} times"
            problems.stop("unreadable_file", message, row=row, column=name)


def _allowed_columns(strategy: Strategy) -> frozenset[str]:
    early_exit_only = frozenset({"trajectory", "stop_tokens"})
    return frozenset(ALL_COLUMNS) - (frozenset() if strategy.unit_is_trajectory else early_exit_only)


def _same_but_for_spelling(name: str, names: Sequence[str]) -> str | None:
    """Return the column that a name is but for case, spaces and dashes, unless the file has that column too."""
    plain = re.sub(r"[\s-]+", "_", name.strip()).casefold()
    return plain if plain in ALL_COLUMNS and plain not in names else None


def _explain_column(
    name: str, meant: str | None, strategy: Strategy, *, place: int, n_columns: int, nearest: NameSuggester
) -> str:
    if meant is not None and meant not in _allowed_columns(strategy):
        unit = "a trajectory only in dynamic_early_exit; here it is a question"
        return (
            f"{strategy} files have no column {name!r}: the decision unit is {unit}; "
            "is this an early-exit file, or the wrong strategy?"
        )
    if meant is not None:
        return f"the column {show_value(name)} must be written {meant!r}: names are lower case, without spaces"
    if name == "" and place == 0:
        return "the first column has no name; if pandas wrote its index there, write the file with index=False"
    if name == "":
        where = "the last column" if place == n_columns - 1 else f"column {place + 1}"
        return f"{where} has no name; remove it (a comma too many in the header?)"
    if name.startswith(("__index_level_", "Unnamed:")):
        return f"the column {show_value(name)} is an index that pandas wrote; write the file with index=False"
    other = _MEANT_BY.get(name.strip().casefold())
    hint = f"; did you mean {other!r}?" if other in _allowed_columns(strategy) else nearest(name)
    return f"the column {show_value(name)} is not one of an action file{hint}"


def _why_needed(column: str, strategy: Strategy) -> str:
    if column == "trajectory":
        return ": the decision unit of dynamic_early_exit is a trajectory"
    if column == "action" and strategy.unit_is_trajectory:
        return " (or 'stop_tokens' instead of it)"
    return ""
