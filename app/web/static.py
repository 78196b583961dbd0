"""The style sheet, scripts and icon of the pages."""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path

from fastapi.responses import FileResponse, Response
from starlette.exceptions import HTTPException

from app.config import resource_dir

IMMUTABLE = "public, max-age=31536000, immutable"
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
VERSION_CHARACTERS = 10


def asset_path(name: str) -> str:
    """Return the address of a static file with a part of its hash, so that browsers may keep it until it changes."""
    return f"/static/{name}?v={find_version(resource_dir('static') / name)}"


def static_file(name: str, *, version: str) -> Response:
    """Return a static file; kept for good where the address names the version that is sent."""
    path = resource_dir("static") / name
    media_type = MEDIA_TYPES.get(path.suffix)
    if media_type is None or path.parent != resource_dir("static") or not path.is_file():
        raise HTTPException(404)
    is_current = version == find_version(path)
    return FileResponse(path, media_type=media_type, headers={"Cache-Control": IMMUTABLE if is_current else "no-cache"})


def find_version(path: Path) -> str:
    """Return a part of a file's hash, read again only once the file has changed."""
    return _hash_file(path, path.stat().st_mtime_ns)


@cache
def _hash_file(path: Path, _: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:VERSION_CHARACTERS]
