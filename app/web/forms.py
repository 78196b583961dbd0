"""Forms that are shown again with what was wrong in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sqlalchemy.orm import Session

from app.errors import AppError

T = TypeVar("T")


def attempt(session: Session, act: Callable[[], T]) -> T | AppError:
    """Do something and return its result, or undo all of it and return the error, for the form to show.

    Without the savepoint, what was done before the error would be committed with the page that shows it: a link used
    up, say, by a sign-up whose name was taken.
    """
    try:
        with session.begin_nested():
            return act()
    except AppError as error:
        return error
