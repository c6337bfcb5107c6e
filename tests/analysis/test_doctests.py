from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil

import pytest

import balance_analysis as ba
from balance_analysis import analysis

MODULES = [
    module.name for module in pkgutil.iter_modules(analysis.__path__, "balance_analysis.analysis.")
]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
FUNCTIONS = [
    name
    for name in ba.__all__
    if inspect.isfunction(getattr(ba, name)) and getattr(ba, name).__module__ in MODULES
]


@pytest.mark.parametrize("module", [*MODULES, "balance_analysis.frame"])
def test_the_examples_in_docstrings_run(module):
    failed, _ = doctest.testmod(importlib.import_module(module), optionflags=FLAGS)
    assert failed == 0


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_of_the_analysis_has_an_example(name):
    assert ">>> " in inspect.getdoc(getattr(ba, name))
