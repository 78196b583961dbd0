"""The examples in the docstrings of the public formats are true."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import app.files

NAMES = [module.name for module in pkgutil.iter_modules(app.files.__path__, "app.files.")]
MODULES = [module for module in map(importlib.import_module, NAMES) if ">>>" in inspect.getsource(module)]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_examples(module) -> None:
    result = doctest.testmod(module)
    assert result.attempted > 0
    assert result.failed == 0
