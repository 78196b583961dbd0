"""Collecting the faults of a file: exact totals per code, a bounded number of examples."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from difflib import get_close_matches

from app.errors import Problem

MAX_EXAMPLES = 100


class ProblemCollector:
    """Gathers faults while a file is checked.

    Counts every fault, keeps the first hundred examples of each code, and hands out at most a hundred in all, so
    that a file with a million faults of one kind still shows one example of every other kind.
    """

    def __init__(self) -> None:
        self._examples: dict[str, list[Problem]] = {}
        self._totals: dict[str, int] = {}

    def __bool__(self) -> bool:
        """Whether there is any fault."""
        return bool(self._totals)

    @property
    def n_faults(self) -> int:
        """How many faults were recorded, those without an example too."""
        return sum(self._totals.values())

    def add(
        self,
        code: str,
        message: str,
        *,
        row: int | None = None,
        column: str | None = None,
        unit: str | None = None,
        count: int = 1,
    ) -> None:
        """Record `count` faults of a code with one example."""
        self._totals[code] = self._totals.get(code, 0) + count
        examples = self._examples.setdefault(code, [])
        if len(examples) < MAX_EXAMPLES:
            examples.append(Problem(code, message, row=row, column=column, unit=unit))

    def add_rows(
        self,
        code: str,
        rows: Iterable[int],
        *,
        message: Callable[[int], str],
        column: str | None = None,
        unit: Callable[[int], str | None] | None = None,
    ) -> None:
        """Record one fault for each row index (from 0; shown from 1); messages are made for the examples alone."""
        all_rows = [int(row) for row in rows]
        room = MAX_EXAMPLES - len(self._examples.get(code, ()))
        for row in all_rows[:room]:
            self.add(code, message(row), row=row + 1, column=column, unit=unit(row) if unit else None)
        self.count_more(code, len(all_rows[max(room, 0) :]))

    def count_more(self, code: str, count: int) -> None:
        """Record further faults of a code without an example."""
        if count:
            self._totals[code] = self._totals.get(code, 0) + count
            self._examples.setdefault(code, [])

    def has(self, code: str, *, column: str) -> bool:
        """Whether a fault of this code was recorded for a column."""
        return any(example.column == column for example in self._examples.get(code, ()))

    def problems(self) -> list[Problem]:
        """Return at most a hundred examples, codes in the order they were met, each with its code's exact total."""
        shares = dict.fromkeys(self._examples, 0)
        left = MAX_EXAMPLES
        while left and (open_codes := [c for c in shares if shares[c] < len(self._examples[c])]):
            for code in open_codes[:left]:
                shares[code] += 1
            left -= len(open_codes[:left])
        return [
            replace(example, count=self._totals[code])
            for code, share in shares.items()
            for example in self._examples[code][:share]
        ]


def suggest(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean 'x'?" for the nearest known name, or an empty string.

    Examples
    --------
    >>> suggest("trajectry", ["model", "trajectory"])
    "; did you mean 'trajectory'?"
    >>> suggest("zzz", ["model"])
    ''
    """
    nearest = get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f"; did you mean {nearest[0]!r}?" if nearest else ""
