"""Answers that are CSV files."""

from __future__ import annotations

from typing import Literal

from fastapi import Response

CSV_MEDIA_TYPE = "text/csv"


def wants_csv(format: Literal["json", "csv"] | None, accept: str) -> bool:
    """Whether a CSV file is asked for, by name or else by what `Accept` says."""
    return format == "csv" or (format is None and CSV_MEDIA_TYPE in accept)


def csv_attachment(text: str, *, filename: str, vary: str | None = None) -> Response:
    """Return a CSV text as a file that browsers save; `vary` names the headers that it depends on."""
    return Response(
        text,
        media_type=f"{CSV_MEDIA_TYPE}; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{filename}"',
            **({"Vary": vary} if vary is not None else {}),
        },
    )
