"""Logging of processes: one line an event on standard error, times in UTC, and nothing that is to be kept secret."""

from __future__ import annotations

import logging
import re
import sys
import time
from types import TracebackType

# What the database adds to an error: the row at fault, and with it password hashes, addresses or hidden labels.
ROW_DETAILS = re.compile(
    r"^(DETAIL|CONTEXT):.*?(?=^(?:\[SQL|\[parameters|\(Background|Traceback|The above|During|  File|    )|\Z)",
    re.MULTILINE | re.DOTALL,
)
QUIET = ("procrastinate", "alembic", "sqlalchemy", "httpx", "httpcore", "authlib", "multipart", "python_multipart")


def configure_logging(level: str) -> None:
    """Log to standard error from this level on; the libraries' own chatter from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = _Formatter("%(asctime)sZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    # On the handler and not on the server's logger, since filters of a logger add up.
    handler.addFilter(_leave_out_query)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in QUIET:
        logging.getLogger(name).setLevel(max(logging.getLevelName(level), logging.WARNING))


class _Formatter(logging.Formatter):
    """Writes the traceback of a database's error without the row that it quotes."""

    def formatException(
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        return ROW_DETAILS.sub(r"\1: left out\n", super().formatException(ei))


def _leave_out_query(record: logging.LogRecord) -> bool:
    """Cut a line of the web server at the address's question mark: the code of a sign-in at a provider follows it."""
    if record.name == "uvicorn.access" and isinstance(record.args, tuple):
        record.args = tuple(arg.partition("?")[0] if isinstance(arg, str) else arg for arg in record.args)
    return True
