"""The efficiency scores of one operating point that is given in numbers."""

from __future__ import annotations

from math import isfinite
from typing import Any

import typer

from app.evaluator.efficiency import measure_efficiency
from app.files.documents import efficiency_document


def measure_point(
    accuracy: float, tokens: float, *, base_accuracy: float, base_tokens: float, rho: float, weight: float | None
) -> dict[str, Any]:
    """Return E3 and AES of one operating point as a document; numbers out of range are wrong usage."""
    if not all(map(isfinite, (accuracy, tokens, base_accuracy, base_tokens, rho))):
        raise typer.BadParameter("accuracies, tokens and rho are finite numbers")
    if weight is not None and not 0 < weight < 1:
        raise typer.BadParameter("a weight lies strictly between 0 and 1", param_hint="--weight")
    figures = measure_efficiency(
        accuracy, tokens, base_accuracy=base_accuracy, base_tokens=base_tokens, rho=rho, weight=weight
    )
    return efficiency_document(figures)
