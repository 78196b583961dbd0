"""The text fields of a multipart form, checked like every other parameter."""

from __future__ import annotations

from typing import TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError

from app.services.uploads import ReceivedForm

Form = TypeVar("Form", bound=BaseModel)


def read_form(form: ReceivedForm, model: type[Form]) -> Form:
    """Return the form's fields as `model`; an empty field counts as absent, as browsers send what was left blank."""
    given = {name: value for name, value in form.fields.items() if value != ""}
    try:
        return model.model_validate(given)
    except ValidationError as exc:
        raise RequestValidationError([{**error, "loc": ("body", *error["loc"])} for error in exc.errors()]) from exc
