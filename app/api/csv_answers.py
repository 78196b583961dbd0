"""Answers that are CSV files."""

from __future__ import annotations

from fastapi import Response

CSV_MEDIA_TYPE = "text/csv"


def csv_attachment(text: str, *, filename: str) -> Response:
    """Return a CSV text as a file that browsers save."""
    return Response(
        text,
        media_type=f"{CSV_MEDIA_TYPE}; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{filename}"'},
    )
