"""Methods by name."""

from __future__ import annotations

from fastapi import APIRouter

from app.api.documentation import CURSOR, LIMIT, errors
from app.api.schemas import MethodOut, MethodPageOut, SubmissionOut
from app.services.methods import get_methods
from app.services.submissions import list_method_submissions
from app.web.security import ReaderDep, SessionDep

router = APIRouter()


@router.get("/methods/{name:path}", tags=["methods"], summary="Get a method", responses=errors(401, 403, 404, 422))
def get_method(
    name: str, reader: ReaderDep, session: SessionDep, limit: LIMIT = 50, cursor: CURSOR = None
) -> MethodPageOut:
    """Return the methods of a name, one a team at most, and their submissions that the reader may see."""
    methods = get_methods(session, name, account=reader)
    page = list_method_submissions(session, method=name, account=reader, limit=limit, cursor=cursor)
    return MethodPageOut(
        methods=[MethodOut.model_validate(method) for method in methods],
        submissions=[SubmissionOut.model_validate(item) for item in page.items],
        next_cursor=page.next_cursor,
    )
