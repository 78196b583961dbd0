"""Averages of figures over cells: equal weight for every cell, and no average where a cell lacks the figure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from app.evaluator.measurements import Measurements

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


@dataclass(frozen=True)
class Averages:
    """One figure averaged over cells with equal weight, in the figure's own unit.

    Attributes
    ----------
    macro : over all cells, which is the mean of the model averages and of the benchmark averages; None if a cell has no
        such figure, or a model lacks a benchmark that another one has.
    by_model : for each model over its benchmarks; None for the same reasons.
    by_benchmark : for each benchmark over its models; None for the same reasons, or if it has no question in the split.
    """

    macro: float | None
    by_model: dict[str, float | None]
    by_benchmark: dict[str, float | None]


def average_cells(measurements: Measurements, values: Sequence[float | None]) -> Averages:
    """Return the averages of one figure over all cells, each model's and each benchmark's.

    Parameters
    ----------
    values : the figure of each of the measurements' cells in their order; None where it is undefined.

    Raises
    ------
    ValueError : not one value per cell.

    Notes
    -----
    Section 3.2. Sums are correctly rounded, so the order of the cells changes nothing. O(cells).

    Examples
    --------
    >>> from app.evaluator.measurements import Measurements, build_cell
    >>> cells = tuple(build_cell("m", b, [("q", "test", [[(0, 1)]])], 4) for b in ("easy", "hard"))
    >>> measurements = Measurements("s", "", "synthetic", "all", 4, 1, ("m",), ("easy", "hard"), cells)
    >>> averages = average_cells(measurements, [0.25, 0.75])
    >>> averages.macro, averages.by_benchmark
    (0.5, {'easy': 0.25, 'hard': 0.75})
    """
    pairs = list(zip(measurements.cells, values, strict=True))
    n_models = len(measurements.models)
    n_benchmarks = len({cell.benchmark for cell in measurements.cells})
    return Averages(
        macro=_average([value for _, value in pairs], n_expected=n_models * n_benchmarks),
        by_model={
            name: _average([value for cell, value in pairs if cell.model == name], n_expected=n_benchmarks)
            for name in measurements.models
        },
        by_benchmark={
            name: _average([value for cell, value in pairs if cell.benchmark == name], n_expected=n_models)
            for name in measurements.benchmarks
        },
    )


def average_figures(measurements: Measurements, figures: Sequence[DataclassInstance]) -> dict[str, Averages]:
    """Return the averages of every field of a dataclass of figures, by the field's name.

    Parameters
    ----------
    figures : one object of the same class for each of the measurements' cells; its fields are floats or None.
    """
    names = [field.name for field in fields(figures[0])] if figures else []
    return {name: average_cells(measurements, [getattr(f, name) for f in figures]) for name in names}


def _average(values: Sequence[float | None], *, n_expected: int) -> float | None:
    known = [value for value in values if value is not None]
    if not known or len(known) != n_expected:
        return None
    return math.fsum(known) / len(known)
