"""The faults of an action file: which rows are shown, how many there are, and the name that was probably meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import NoReturn

import numpy as np

from app.errors import Problem
from app.evaluator.measurements import IntArray
from app.files.problems import MAX_EXAMPLES, ProblemCollector, suggest

# In the order in which a person has to mend them: what hides other faults comes first.
PROBLEM_CODES = (
    "unreadable_file",
    "empty_file",
    "unknown_column",
    "missing_column",
    "unknown_model",
    "unknown_benchmark",
    "unknown_question",
    "question_not_in_split",
    "unknown_trajectory",
    "not_an_integer",
    "action_out_of_range",
    "bad_setting_label",
    "too_many_settings",
    "duplicate_unit",
    "incomplete_cell",
)
MAX_SHOWN_CHARACTERS = 60
# Comparing a name with every known one is slow: past this many unknown names the nearest ones are no longer sought.
MAX_SUGGESTIONS = 25
MAX_SUGGESTED_CHARACTERS = 100


class ReadingStopped(Exception):
    """The fault that was just recorded leaves the rest of the file without meaning."""


class ActionProblems:
    """Gathers the faults of one file, with exact totals and at most a hundred examples.

    Of many rows with the same fault (one misspelt model, say) one example is kept before any is repeated, so that the
    hundred examples show as many different faults as they can.
    """

    def __init__(self) -> None:
        self._totals: Counter[str] = Counter()
        self._first: dict[str, dict[str, Problem]] = {code: {} for code in PROBLEM_CODES}
        self._repeated: dict[str, list[Problem]] = {code: [] for code in PROBLEM_CODES}

    def __bool__(self) -> bool:
        """Whether any fault was found."""
        return bool(self._totals)

    def add(
        self, code: str, message: str, *, row: int | None = None, column: str | None = None, unit: str | None = None
    ) -> None:
        """Record one fault."""
        self._totals[code] += 1
        self._keep(Problem(code, message, row=row, column=column, unit=unit))

    def stop(self, code: str, message: str, *, row: int | None = None, column: str | None = None) -> NoReturn:
        """Record a fault after which the rest cannot be read, and end the reading."""
        self.add(code, message, row=row, column=column)
        raise ReadingStopped(message)

    def end_reading(self, reason: str) -> NoReturn:
        """End the reading because of faults recorded before."""
        raise ReadingStopped(reason)

    def add_rows(
        self,
        code: str,
        chosen: IntArray,
        *,
        rows: IntArray,
        message: Callable[[int], str],
        column: str | None = None,
        unit: Callable[[int], str | None] = lambda _: None,
        alike: IntArray | None = None,
    ) -> None:
        """Record one fault for each chosen index of a batch.

        Parameters
        ----------
        chosen : indices into the batch, ascending.
        rows : the file's row number of every index of the batch.
        message, unit : text of an index; called for possible examples only.
        alike : a number per index of the batch; indices that share it have the same message.
        """
        if not len(chosen):
            return
        self._totals[code] += len(chosen)
        for idx in self._pick(code, chosen, alike):
            self._keep(Problem(code, message(idx), row=int(rows[idx]), column=column, unit=unit(idx)))

    def list_problems(self) -> list[Problem]:
        """Return at most a hundred examples by code, then row, each with its code's exact total."""
        collector = ProblemCollector()
        for code in PROBLEM_CODES:
            examples = (list(self._first[code].values()) + self._repeated[code])[:MAX_EXAMPLES]
            for example in examples:
                collector.add(code, example.message, row=example.row, column=example.column, unit=example.unit)
            collector.count_more(code, self._totals[code] - len(examples))
        return sorted(collector.problems(), key=lambda p: (PROBLEM_CODES.index(p.code), p.row or 0))

    def totals(self) -> dict[str, int]:
        """Return the number of faults of each code that occurs."""
        return {code: self._totals[code] for code in PROBLEM_CODES if self._totals[code]}

    def _pick(self, code: str, chosen: IntArray, alike: IntArray | None) -> list[int]:
        """Choose what may become an example: one of each kind while kinds are missing, then the earliest rows."""
        first_room = MAX_EXAMPLES - len(self._first[code])
        picked: set[int] = set()
        if first_room:
            starts = chosen[:first_room]
            if alike is not None:
                starts = chosen[np.sort(np.unique(alike[chosen], return_index=True)[1])][: MAX_EXAMPLES * 2]
            picked.update(starts.tolist())
        picked.update(chosen[: MAX_EXAMPLES - len(self._repeated[code])].tolist())
        return sorted(picked)

    def _keep(self, problem: Problem) -> None:
        first, repeated = self._first[problem.code], self._repeated[problem.code]
        if problem.message not in first:
            if len(first) < MAX_EXAMPLES:
                first[problem.message] = problem
        elif len(repeated) < MAX_EXAMPLES:
            repeated.append(problem)


class NameSuggester:
    """Names the known name that an unknown one probably stands for."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self._folded = {_fold(name): name for name in known}
        self._answers: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        """Return "; did you mean 'x'?", or an empty string."""
        if name not in self._answers:
            if len(self._answers) >= MAX_SUGGESTIONS or len(name) > MAX_SUGGESTED_CHARACTERS:
                return ""
            self._answers[name] = self._find(name)
        return self._answers[name]

    def _find(self, name: str) -> str:
        folded = self._folded.get(_fold(name))
        return f"; did you mean {folded!r}?" if folded is not None else suggest(name, self._known)


def show_value(value: object) -> str:
    """Return a value of the file as a message shows it: quoted if it is text, cut if it is long."""
    return cut_text(repr(value) if isinstance(value, str) else str(value))


def cut_text(text: str) -> str:
    """Return a text as far as a message shows it."""
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS] + "…"


def _fold(name: str) -> str:
    return "".join(name.split()).casefold()
