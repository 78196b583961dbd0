"""A grader and a sandbox that the tests of one process share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from worker.grading import Grader, Limits, open_grader
from worker.grading.sandbox import Sandbox

# Small, so that programs which run into them do not keep the suite waiting.
SMALL_LIMITS = Limits(cpu_seconds=1, clock_seconds=5.0, total_bytes=512 << 20, output_bytes=1 << 20)


@pytest.fixture(scope="session")
def grader() -> Iterator[Grader]:
    """A grader with one comparing process."""
    with open_grader(processes=1, program_limits=SMALL_LIMITS) as opened:
        yield opened


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """A working sandbox; where there is none the tests fail, since programs must never be graded without."""
    return Sandbox(SMALL_LIMITS)
