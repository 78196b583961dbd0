"""The examples in the evaluator's docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import app.evaluator

MODULES = [module.name for module in pkgutil.iter_modules(app.evaluator.__path__, "app.evaluator.")]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0
