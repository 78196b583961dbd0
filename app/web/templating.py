"""Pages out of templates: one strict environment."""

from __future__ import annotations

from functools import cache, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from app.evaluator.scorers import current_scorer_version
from app.plots.captions import SYNTHETIC_NOTICE
from app.services.accounts import Identity
from app.web.cookies import form_token, set_form_cookie
from app.web.efficiency_words import EFFICIENCY_FILTERS
from app.web.formatting import FILTERS
from app.web.static import asset_path
from app.web.vendor import PLOTLY_PATH

TEMPLATES = Path(__file__).parent / "templates"


@cache
def make_environment() -> Environment:
    """Return the environment of all templates: everything is escaped, a missing name is an error."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(FILTERS)
    environment.filters.update(EFFICIENCY_FILTERS)
    environment.globals.update(
        asset=asset_path,
        plotly_path=PLOTLY_PATH,
        scorer_version=current_scorer_version,
        synthetic_notice=SYNTHETIC_NOTICE,
    )
    return environment


def render_page(
    request: Request, template: str, *, reader: Identity | None, status: int = HTTPStatus.OK, **context: Any
) -> HTMLResponse:
    """Return a page; `reader` is who is signed in, or None."""
    html = (
        make_environment()
        .get_template(template)
        .render(path=request.url.path, reader=reader, csrf=partial(_form_field, request), **context)
    )
    # Pages depend on who asks and on what was published since; what they load is cached by its own address.
    headers = {"Cache-Control": "private, no-cache", "Vary": "Cookie"}
    response = HTMLResponse(html, status_code=status, headers=headers)
    set_form_cookie(request, response)
    return response


def _form_field(request: Request) -> Markup:
    """Return the hidden field by which a form is known to be one of ours; each template puts it into each form."""
    return Markup('<input type="hidden" name="csrf" value="{}">').format(form_token(request))
