"""Compilation of the evaluator's inner loops: cached on disk, and announced once when it takes place."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import event

_logger = logging.getLogger(__name__)


class _CompileNotice(event.Listener):
    """Logs one line when the process compiles something for the first time; loading from the cache is silent."""

    def __init__(self) -> None:
        self.announced = False

    def on_start(self, event: event.Event) -> None:
        if not self.announced:
            self.announced = True
            _logger.info("compiling the evaluator's inner loops; this happens once and takes several seconds")

    def on_end(self, event: event.Event) -> None:
        pass


event.register("numba:compile", _CompileNotice())


def compiled(function: Callable[..., Any]) -> Any:
    """Return the function compiled on first use for the types it is called with, without the interpreter's lock.

    Compiled code is kept beside the source, or in the user's cache folder where that cannot be written, so only the
    first use after an installation or a change waits for it. Where nothing can be written it is compiled in each
    process anew. A compiled function calls compiled functions of its own module only: the cache of a caller is not
    renewed when another file changes.

    Examples
    --------
    >>> @compiled
    ... def add(a, b):
    ...     return a + b
    >>> add(1, 2)
    3
    """
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)


def compiled_part(function: Callable[..., Any]) -> Any:
    """Return the function to be compiled into each compiled function that calls it; it is not kept by itself.

    Its arguments may be named tuples. Those of `compiled` functions should not: what is kept on disk names the types of
    arguments, and could not be read any more once such a class has moved. Division by zero gives infinity or NaN.

    Examples
    --------
    >>> @compiled_part
    ... def double(a):
    ...     return 2 * a
    >>> @compiled
    ... def quadruple(a):
    ...     return double(double(a))
    >>> quadruple(1)
    4
    """
    # To let Python and C call it would take a fifth of the time of compilation. Numba's types do not name the options.
    callable_by_compiled_code_only: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return njit(nogil=True, error_model="numpy", **callable_by_compiled_code_only)(function)
