"""Logging of processes: one line an event on standard error, times in UTC."""

from __future__ import annotations

import logging
import sys
import time


def configure_logging(level: str) -> None:
    """Log to standard error from this level on; the libraries' own chatter from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)sZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in ("procrastinate", "alembic", "sqlalchemy", "httpx", "multipart", "python_multipart"):
        logging.getLogger(name).setLevel(max(logging.getLevelName(level), logging.WARNING))
