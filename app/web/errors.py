"""Errors as pages: what happened, where, and what to change."""

from __future__ import annotations

from urllib.parse import urlencode

from fastapi import Request, Response

from app.errors import AppError
from app.web.templating import render_page

# What a reader can do next; the error itself says what happened.
REMEDIES = {
    401: "Sign in, or make an account.",
    403: "Ask the team it belongs to, or sign in with another account.",
    404: "Check the address, or start from the board.",
    409: "Load the page again to see the present state.",
    413: "Send a smaller file: Parquet takes a small part of what CSV takes.",
    422: "Change what is listed and send it again.",
    429: "Wait until then; nothing was stored.",
    503: "Wait a moment and load the page again.",
}
DEFAULT_REMEDY = "Load the page again. If it stays, the server’s log has the details."


def error_page(request: Request, error: AppError) -> Response:
    """Return the page that explains an error, with its status."""
    return render_page(
        request,
        "error.html",
        reader=None,
        status=error.status,
        error=error,
        remedy=REMEDIES.get(error.status, DEFAULT_REMEDY),
        sign_in_address=f"/sign-in?{urlencode({'next': _find_way_back(request)})}",
    )


def _find_way_back(request: Request) -> str:
    """Return the address to go on to after signing in: this one, or the form that was sent from it."""
    if request.method != "GET":
        return request.url.path
    return f"{request.url.path}?{request.url.query}" if request.url.query else request.url.path
