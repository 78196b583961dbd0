"""How near an action file is to others: nothing here looks at a label, so what it finds tells nothing about one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.evaluator.compiled import compiled
from app.evaluator.measurements import IntArray, Measurements
from app.evaluator.reference import list_constant_actions
from app.evaluator.resampled_settings import Stops
from app.evaluator.strategies import Strategy

MIN_PAIRS = 8
"""Fewer differing unit-setting pairs than this are always too few; of large files, fewer than 1 % of the pairs are."""
PAIRS_PER_DIFFERENCE = 100
BoardNames = tuple[str | None, str | None]


@dataclass(frozen=True, eq=False)
class FileStops:
    """Where the settings of an action file stop, cell by cell, and whether its units are trajectories.

    Policies are compared by where they stop, so routing, a cap of 0 or without end, and exits at 0 or n are the same.
    """

    cells: tuple[Stops, ...]
    by_trajectory: bool


@dataclass(frozen=True)
class Verdict:
    """What a file is too close to: as a whole, and on single boards (None stands for all models or benchmarks)."""

    is_close: bool
    close_boards: frozenset[BoardNames]


@dataclass(frozen=True, eq=False)
class _Distances:
    """Differing units of every pair of settings in every cell, int64 of shape cells x settings x others, and sizes.

    `sizes` are the units of each cell; `covered` and `other_covered` are bool, cells x settings.
    """

    counts: IntArray
    sizes: IntArray
    covered: NDArray[np.bool_]
    other_covered: NDArray[np.bool_]


@compiled
def _count_questions_and_trajectories(new: Any, old: Any, per_question: int) -> Any:
    found = np.zeros((2, new.shape[0], old.shape[0]), dtype=np.int64)
    n_questions = new.shape[1] // per_question
    for i in range(new.shape[0]):
        for j in range(old.shape[0]):
            questions = 0
            trajectories = 0
            for q in range(n_questions):
                differing = 0
                for t in range(q * per_question, (q + 1) * per_question):
                    differing += new[i, t] != old[j, t]
                trajectories += differing
                questions += differing > 0
            found[0, i, j] = questions
            found[1, i, j] = trajectories
    return found


def find_constant_stops(measurements: Measurements) -> FileStops:
    """Return the policies whose figures everybody knows: all constants of the uninformed reference, on every board.

    They are the constant caps and positions; nothing thinks and everything thinks to its end are among them.
    """
    cells = []
    for cell in measurements.cells:
        constants = list_constant_actions(cell, Strategy.DYNAMIC_EARLY_EXIT)
        positions = np.stack([actions for _, actions in constants])
        kept = positions.astype(np.min_scalar_type(int(cell.n_steps.max())))
        cells.append(Stops(np.ones(len(kept), dtype=np.bool_), kept))
    return FileStops(tuple(cells), by_trajectory=False)


class Closeness:
    """Compares one file with others, one after the other, and says in the end what it is too close to.

    Differences are counted in questions and, where both files decide by trajectory, in trajectories as well: twelve
    trajectories of one question are one question. A difference is *too small* if it is more than 0 and less than
    max(1 % of the file's unit-setting pairs, 8). A file is too close if, on the board of the whole snapshot,

    - its settings, each matched to the nearest one of another file, differ from them too little, or those of the other
      file, matched to its own, do: leaving a setting out is a difference as well;
    - the same holds of the nearest settings of all other files together: settings recombine;
    - any one setting of the two files has its nearest one in the other file more than 0 but fewer than 8 units away:
      what the other settings of a file do does not hide that one.

    A board is too close if the first or the second holds of the file's units on it. The constants of the uninformed
    reference are another file, except that a file need not have settings near theirs.

    Notes
    -----
    O(settings² x trajectories) a file, compiled; what is kept between two files is a number per board and setting.
    """

    def __init__(self, measurements: Measurements, file: FileStops) -> None:
        self._measurements = measurements
        self._file = file
        self._boards = list_boards(measurements)
        self._members = np.array(
            [
                [model in (None, c.model) and name in (None, c.benchmark) for c in measurements.cells]
                for model, name in self._boards
            ]
        )
        self._close = np.zeros(len(self._boards), dtype=np.bool_)
        self._has_near_setting = False
        n_settings = len(file.cells[0].covered)
        # The nearest setting of any file so far, by granularity: questions, trajectories.
        self._nearest = np.full((2, len(self._boards), n_settings), _FAR, dtype=np.int64)
        self._compare(find_constant_stops(measurements), is_file=False)

    def compare(self, other: FileStops) -> None:
        """Take in another file of the same measurements."""
        self._compare(other, is_file=True)

    def conclude(self) -> Verdict:
        """Return what the file is too close to, of all that it was compared with."""
        close = self._close.copy()
        for granularity in range(2):
            pairs, stands = self._count_pairs(granularity)
            total = np.where(stands, self._nearest[granularity], 0).sum(axis=1)
            close |= _is_too_small(total, pairs)
        named = [board for board, is_close in zip(self._boards, close, strict=True) if is_close]
        return Verdict(
            is_close=bool(close[0]) or self._has_near_setting,
            close_boards=frozenset(named),
        )

    def _compare(self, other: FileStops, *, is_file: bool) -> None:
        granularities = 2 if self._file.by_trajectory and other.by_trajectory else 1
        distances = self._measure(other)
        for granularity in range(granularities):
            self._take(distances[granularity], granularity, is_file=is_file)

    def _take(self, found: _Distances, granularity: int, *, is_file: bool) -> None:
        between = np.tensordot(self._members.astype(np.int64), found.counts, axes=1)
        mine, theirs = (self._members @ covered for covered in (found.covered, found.other_covered))
        comparable = mine[:, :, None] & theirs[:, None, :]
        between = np.where(comparable, between, _FAR)
        forward, backward = between.min(axis=2), between.min(axis=1)
        self._nearest[granularity] = np.minimum(self._nearest[granularity], forward)
        pairs, _ = self._count_pairs(granularity)
        has_other = theirs.any(axis=1)
        total = np.where(mine, np.minimum(forward, _FAR), 0).sum(axis=1)
        self._close |= has_other & _is_too_small(total, pairs)
        self._note_near_settings(forward[0])
        if not is_file:
            return
        other_pairs = (self._members[:, :, None] * found.other_covered * found.sizes[:, None]).sum(axis=(1, 2))
        back_total = np.where(theirs, np.minimum(backward, _FAR), 0).sum(axis=1)
        # Against the smaller of the two files: a large one that repeats a small one is no smaller a difference.
        self._close |= has_other & _is_too_small(back_total, np.minimum(pairs, other_pairs))
        self._note_near_settings(backward[0])

    def _note_near_settings(self, nearest: IntArray) -> None:
        self._has_near_setting |= bool(((nearest > 0) & (nearest < MIN_PAIRS)).any())

    def _measure(self, other: FileStops) -> tuple[_Distances, _Distances]:
        cells = self._measurements.cells
        n_new, n_old = len(self._file.cells[0].covered), len(other.cells[0].covered)
        counts = np.zeros((2, len(cells), n_new, n_old), dtype=np.int64)
        sizes = np.array([[c.n_questions for c in cells], [c.n_trajectories for c in cells]], dtype=np.int64)
        for at, (cell, new, old) in enumerate(zip(cells, self._file.cells, other.cells, strict=True)):
            # Where only one of the two covers the cell, all its units differ.
            counts[:, at] = sizes[:, at, None, None] * (new.covered[:, None] != old.covered[None, :])
            rows, columns = np.flatnonzero(new.covered), np.flatnonzero(old.covered)
            counts[:, at, rows[:, None], columns] = _count_questions_and_trajectories(
                _widen(new.positions), _widen(old.positions), cell.trajectories_per_question
            )
        covered = np.array([stops.covered for stops in self._file.cells])
        other_covered = np.array([stops.covered for stops in other.cells])
        first, second = (
            _Distances(counts[granularity], sizes[granularity], covered, other_covered) for granularity in range(2)
        )
        return first, second

    def _count_pairs(self, granularity: int) -> tuple[IntArray, NDArray[np.bool_]]:
        """Return the unit-setting pairs of the file on every board, and which settings stand on which board."""
        covered = np.array([stops.covered for stops in self._file.cells])
        cells = self._measurements.cells
        sizes = np.array([c.n_trajectories if granularity else c.n_questions for c in cells], dtype=np.int64)
        pairs: IntArray = (self._members[:, :, None] * covered * sizes[:, None]).sum(axis=(1, 2))
        return pairs, self._members @ covered


def list_boards(measurements: Measurements) -> list[BoardNames]:
    """Return the whole snapshot, then the models, benchmarks and cells that have a question in the split."""
    cells = [(cell.model, cell.benchmark) for cell in measurements.cells]
    return [
        (None, None),
        *((model, None) for model in dict.fromkeys(model for model, _ in cells)),
        *((None, benchmark) for benchmark in dict.fromkeys(benchmark for _, benchmark in cells)),
        *cells,
    ]


_FAR = 2**40


def _is_too_small(total: IntArray, pairs: IntArray) -> NDArray[np.bool_]:
    """Whether differences are more than 0 and less than max(1 % of the pairs, 8)."""
    return (total > 0) & ((total < MIN_PAIRS) | (total * PAIRS_PER_DIFFERENCE < pairs))


def _widen(positions: NDArray[Any]) -> NDArray[np.int32]:
    """Return positions in the one type that the inner loop is compiled for."""
    return np.ascontiguousarray(positions, dtype=np.int32)


def find_close(measurements: Measurements, file: FileStops, others: Sequence[FileStops]) -> Verdict:
    """Return what a file is too close to among the constants and other files. See `Closeness`.

    Examples
    --------
    Of 20 questions, one that thinks tells two files apart.

    >>> from app.evaluator.measurements import build_cell
    >>> curve = [[(0, 1), (10, 4)]]
    >>> cell = build_cell("m", "b", [(f"q{i:02}", "test", curve) for i in range(20)], 4)
    >>> measurements = Measurements("s", "0" * 64, "measured", "test", 4, 1, ("m",), ("b",), (cell,))
    >>> def route(*questions):
    ...     positions = np.zeros((1, 20), dtype=np.uint8)
    ...     positions[0, list(questions)] = 1
    ...     return FileStops((Stops(np.array([True]), positions),), by_trajectory=False)
    >>> one, other, far = route(*range(10)), route(*range(11)), route(*range(5, 15))
    >>> find_close(measurements, other, [one]).is_close, find_close(measurements, far, [one]).is_close
    (True, False)
    >>> find_close(measurements, one, [one]).is_close, find_close(measurements, route(3), []).is_close
    (False, True)
    """
    closeness = Closeness(measurements, file)
    for other in others:
        closeness.compare(other)
    return closeness.conclude()
