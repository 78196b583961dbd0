"""What a person sees while a command works."""

from __future__ import annotations

import io
import logging
import sys

import pytest

from app.cli_output import show_progress


class Screen(io.StringIO):
    """Text that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("stream", "is_shown"), [(Screen(), True), (io.StringIO(), False)])
def test_compiling_is_announced_above_the_bar(
    stream: io.StringIO, is_shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first run compiles for half a minute; the bar alone stood still all that time."""
    monkeypatch.setattr(sys, "stderr", stream)
    logger = logging.getLogger("app.evaluator.compiled")
    with show_progress("solving frontiers"):
        logger.info("compiling [something]")
    logger.info("after the command")
    assert ("compiling [something]" in stream.getvalue()) == is_shown
    assert "after the command" not in stream.getvalue()
    assert (logger.handlers, logger.level) == ([], logging.NOTSET)
