"""The REST documentation as a page of our own: what the OpenAPI document says, without a script from another host."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from jinja2 import Environment
from markupsafe import Markup, escape

from app.api.problems import list_error_kinds

router = APIRouter(include_in_schema=False)

PHRASES = {"200": "OK", "202": "Accepted"}
METHODS = ("get", "post", "put", "delete")
TEMPLATE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ spec.info.title }} REST</title>
<link rel="stylesheet" href="/static/otboard.css">
</head>
<body>
<main class="docs">
<h1>{{ spec.info.title }} REST interface</h1>
{% for paragraph in spec.info.description.strip().split("\n\n") %}
<p>{{ paragraph | code }}</p>
{% endfor %}
<p><a href="/api/v1/openapi.json">OpenAPI document</a> · <a href="/">board</a></p>
{% for tag, operations in groups %}
<h2>{{ tag }}</h2>
{% for operation in operations %}
<section id="{{ operation.id }}">
<h3><code>{{ operation.method }} {{ operation.path }}</code></h3>
<p>{{ operation.description | code }}</p>
{% if operation.parameters %}
<table>
<thead><tr><th>parameter</th><th>in</th><th>required</th><th>meaning</th></tr></thead>
<tbody>
{% for p in operation.parameters %}
<tr><td><code>{{ p.name }}</code></td><td>{{ p.place }}</td><td>{{ "yes" if p.required else "no" }}</td>
<td>{{ p.description | code }}</td></tr>
{% endfor %}
</tbody>
</table>
{% endif %}
<p>Answers:
{% for status, text in operation.answers %}
<code>{{ status }}</code> {{ text }}{{ "" if loop.last else "; " }}
{% endfor %}</p>
</section>
{% endfor %}
{% endfor %}
<h2>errors</h2>
<table>
<thead><tr><th>code</th><th>status</th><th>means</th></tr></thead>
<tbody>
{% for error in errors %}
<tr id="{{ error.code }}"><td><code>{{ error.code }}</code></td><td>{{ error.status }}</td>
<td>{{ error.title }}</td></tr>
{% endfor %}
</tbody>
</table>
</main>
</body>
</html>
"""


@router.get("/api/docs")
def show_docs(request: Request) -> HTMLResponse:
    """Show every operation with its parameters and answers."""
    spec = request.app.openapi()
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["code"] = mark_code
    page = environment.from_string(TEMPLATE)
    return HTMLResponse(page.render(spec=spec, groups=_group_operations(spec), errors=list_error_kinds()))


def mark_code(text: str) -> Markup:
    """Return text as HTML, what stands between backticks as code.

    Examples
    --------
    >>> str(mark_code("`a<b` holds"))
    '<code>a&lt;b</code> holds'
    """
    parts = str(escape(text)).split("`")
    return Markup("".join(f"<code>{part}</code>" if idx % 2 else part for idx, part in enumerate(parts)))


def _group_operations(spec: dict[str, Any]) -> list[tuple[str, list[dict[str, Any]]]]:
    groups: dict[str, list[dict[str, Any]]] = {}
    for path, operations in spec["paths"].items():
        for method in METHODS:
            if method in operations:
                operation = operations[method]
                tag = operation.get("tags", ["other"])[0]
                groups.setdefault(tag, []).append(_describe(path, method, operation))
    return list(groups.items())


def _describe(path: str, method: str, operation: dict[str, Any]) -> dict[str, Any]:
    form = operation.get("requestBody", {}).get("content", {}).get("multipart/form-data", {}).get("schema", {})
    required = form.get("required", [])
    parameters = [
        {
            "name": given["name"],
            "place": given["in"],
            "required": given.get("required", False),
            "description": given.get("description", ""),
        }
        for given in operation.get("parameters", [])
    ]
    parameters += [
        {"name": name, "place": "form", "required": name in required, "description": field.get("description", "")}
        for name, field in form.get("properties", {}).items()
    ]
    answers = sorted(operation["responses"].items())
    return {
        "id": operation["operationId"],
        "method": method.upper(),
        "path": path,
        "description": operation.get("description", operation.get("summary", "")),
        "parameters": parameters,
        "answers": [(status, PHRASES.get(status, answer["description"])) for status, answer in answers],
    }
