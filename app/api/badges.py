"""Badges of submissions, for other sites to show."""

from __future__ import annotations

import hashlib

from fastapi import APIRouter, Request, Response

from app.api.documentation import NOT_MODIFIED, errors
from app.api.frozen import find_unchanged
from app.plots.badge import draw_badge
from app.services.badges import get_badge
from app.web.security import SessionDep

router = APIRouter(tags=["leaderboard"])

SVG_MEDIA_TYPE = "image/svg+xml"
# Other sites' caches may be a few minutes behind the board.
CACHED = "public, max-age=300"


@router.get(
    "/badges/{submission_id}.svg",
    summary="Get a badge",
    response_class=Response,
    responses=errors(404, also={200: {"content": {SVG_MEDIA_TYPE: {}}}, **NOT_MODIFIED}),
)
def show_badge(submission_id: str, session: SessionDep, request: Request) -> Response:
    """Draw a submission's realised potential and rank on its whole board, as everybody sees them there."""
    picture = draw_badge(get_badge(session, submission_id))
    etag = f'"{hashlib.sha256(picture.encode()).hexdigest()[:32]}"'
    answer = find_unchanged(request, etag) or Response(picture, media_type=SVG_MEDIA_TYPE, headers={"ETag": etag})
    answer.headers["Cache-Control"] = CACHED
    return answer
