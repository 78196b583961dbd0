"""Plotly's script, out of the installed package: compressed once, kept by browsers for good."""

from __future__ import annotations

import gzip
from functools import cache
from importlib.resources import files

import zstandard
from fastapi import Request
from fastapi.responses import Response
from plotly.offline import get_plotlyjs_version

from app.web.static import IMMUTABLE

PLOTLY_PATH = f"/static/vendor/plotly-{get_plotlyjs_version()}.min.js"
ZSTD_LEVEL = 12  # 0.5 s for the whole script, an eighth smaller than gzip


@cache
def load_bundle(encoding: str) -> bytes:
    """Return Plotly's script in a content encoding: `zstd`, `gzip` or `identity`."""
    script = (files("plotly") / "package_data" / "plotly.min.js").read_bytes()
    if encoding == "zstd":
        return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(script)
    return gzip.compress(script, mtime=0) if encoding == "gzip" else script


def choose_encoding(accepted: str) -> str:
    """Return the best encoding that an `Accept-Encoding` header allows.

    Examples
    --------
    >>> choose_encoding("gzip, deflate, br, zstd"), choose_encoding("gzip;q=1.0, zstd;q=0"), choose_encoding("")
    ('zstd', 'gzip', 'identity')
    """
    offers = {}
    for part in accepted.split(","):
        name, _, parameters = part.strip().partition(";")
        offers[name.strip().lower()] = parameters.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return next((name for name in ("zstd", "gzip") if offers.get(name)), "identity")


def plotly_script(request: Request) -> Response:
    """Answer with Plotly's script in an encoding that the browser takes."""
    encoding = choose_encoding(request.headers.get("Accept-Encoding", ""))
    headers = {"Cache-Control": IMMUTABLE, "Vary": "Accept-Encoding"}
    if encoding != "identity":
        headers["Content-Encoding"] = encoding
    return Response(load_bundle(encoding), media_type="text/javascript", headers=headers)
